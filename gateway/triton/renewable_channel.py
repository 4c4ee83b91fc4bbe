"""A grpcio channel with headers for each call, whose connection can be replaced."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Any

import anyio
import grpc

from gateway.triton.access import Metadata

_READY_S = 5.0


class _Opened:
    """One of the channels underneath, with the calls that run on it."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.channel = channel
        self.calls = 0
        self.idle = asyncio.Event()
        self.replaced = asyncio.Event()

    def began(self) -> None:
        self.calls += 1
        self.idle.clear()

    def ended(self, _call: object) -> None:
        self.calls -= 1
        if not self.calls:
            self.idle.set()


class RenewableChannel(grpc.aio.Channel):
    """A channel that can be replaced under running calls, as for new certificates.

    The credentials of a grpcio channel are fixed when it is opened.

    Args:
        open_one: opens a channel with the current credentials.
        metadata: headers of each call, before its own.
    """

    def __init__(self, open_one: Callable[[], grpc.aio.Channel], metadata: Metadata) -> None:
        self._open_one = open_one
        self._metadata = metadata
        self._present = _Opened(open_one())
        self._leaving: set[asyncio.Task[None]] = set()

    async def renew(self) -> str | None:
        """Replace the channel by a new one once that is connected; returns why it failed, or None.

        Running calls stay on their channel.
        """
        opened = _Opened(self._open_one())
        try:
            with anyio.fail_after(_READY_S):
                await opened.channel.channel_ready()
        except TimeoutError:
            await opened.channel.close()
            return "no connection with the new certificates in time"
        except BaseException:
            await opened.channel.close()
            raise
        before, self._present = self._present, opened
        before.replaced.set()
        leave = asyncio.create_task(self._leave(before))
        self._leaving.add(leave)
        leave.add_done_callback(self._leaving.discard)
        return None

    async def close(self, grace: float | None = None) -> None:
        """Close all open channels."""
        leaving = list(self._leaving)
        for task in leaving:
            task.cancel()
        await asyncio.gather(*leaving, return_exceptions=True)
        await self._present.channel.close(grace)

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:
        """The state of the connection."""
        return self._present.channel.get_state(try_to_connect)

    async def wait_for_state_change(self, last_observed_state: grpc.ChannelConnectivity) -> None:
        """Wait for another state; a replaced channel alone is not one."""
        while True:
            present = self._present
            change = asyncio.ensure_future(present.channel.wait_for_state_change(last_observed_state))
            exchange = asyncio.ensure_future(present.replaced.wait())
            try:
                await asyncio.wait({change, exchange}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                change.cancel()
                exchange.cancel()
            if not present.replaced.is_set() or self.get_state() is not last_observed_state:
                return

    async def channel_ready(self) -> None:
        """Wait until the channel is connected."""
        await self._present.channel.channel_ready()

    def unary_unary(self, method: str, *arguments: Any, **options: Any) -> Any:
        """Make calls of one request and one response."""
        return self._calls(lambda channel: channel.unary_unary(method, *arguments, **options))

    def unary_stream(self, method: str, *arguments: Any, **options: Any) -> Any:
        """Make calls of one request and many responses."""
        return self._calls(lambda channel: channel.unary_stream(method, *arguments, **options))

    def stream_unary(self, method: str, *arguments: Any, **options: Any) -> Any:
        """Make calls of many requests and one response."""
        return self._calls(lambda channel: channel.stream_unary(method, *arguments, **options))

    def stream_stream(self, method: str, *arguments: Any, **options: Any) -> Any:
        """Make calls of many requests and many responses."""
        return self._calls(lambda channel: channel.stream_stream(method, *arguments, **options))

    async def __aenter__(self) -> RenewableChannel:
        """Itself."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        await self.close()

    def _calls(self, make: Callable[[grpc.aio.Channel], Any]) -> Callable[..., Any]:
        made: tuple[_Opened | None, Any] = (None, None)

        def call(*arguments: Any, metadata: Metadata = (), **options: Any) -> Any:
            nonlocal made
            present = self._present
            if made[0] is not present:
                made = present, make(present.channel)
            begun = made[1](*arguments, metadata=(*self._metadata, *(metadata or ())), **options)
            present.began()
            begun.add_done_callback(present.ended)
            return begun

        return call

    async def _leave(self, opened: _Opened) -> None:
        """Close a former channel once no call runs on it."""
        try:
            if opened.calls:
                await opened.idle.wait()
        finally:
            await opened.channel.close()

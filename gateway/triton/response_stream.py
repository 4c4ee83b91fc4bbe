"""The responses of one request, with mapped errors and a recognised end (wire contract 3.4 and 3.5)."""

from __future__ import annotations

import asyncio
import contextlib

from google.protobuf.message import DecodeError
from tritonclient.grpc import service_pb2

from gateway.triton.error_mapping import engine_error, no_final_response
from gateway.triton.transport import InferCall, TransportError

FINAL = "triton_final_response"
END_TIMEOUT_S = 1.0
"""How long the end of a call is waited for, all of whose answer has come."""
_parse = service_pb2.ModelStreamInferResponse.FromString


class ResponseStream:
    """Reads one request's responses up to the final one.

    Attributes:
        final: whether the last response read was marked as the last of the request, with data or without.
    """

    __slots__ = ("_call", "_ended", "final")

    def __init__(self, call: InferCall) -> None:
        self._call = call
        self._ended = False
        self.final = False

    async def read(self) -> service_pb2.ModelInferResponse:
        """Read the next response; not to be called after the final one.

        Raises:
            EngineError: the request failed, or the stream ended without a final response.
        """
        return await self.parse(await self.read_message())

    async def read_message(self) -> bytes:
        """Read the next response as bytes, for ``parse`` or for a reader of known bytes.

        Raises:
            EngineError: as ``read``.
        """
        try:
            message = await self._call.read()
        except TransportError as error:
            self._ended = True
            raise engine_error(error.status, error.text) from None
        if message is None:
            self._ended = True
            raise no_final_response()
        return message

    async def parse(self, data: bytes) -> service_pb2.ModelInferResponse:
        """Parse a response of ``read_message``, and note whether it is the final one.

        Raises:
            EngineError: as ``read``.
        """
        try:
            message = _parse(data)
        except DecodeError:
            raise engine_error("INTERNAL", "a response that cannot be parsed") from None
        if message.error_message:
            await self._read_end()
            raise engine_error(None, message.error_message)
        response = message.infer_response
        # Asking a protobuf map for an absent key would add it.
        if FINAL in response.parameters and response.parameters[FINAL].bool_param:
            self.final = True
            await self._read_end()
        return response

    async def _read_end(self) -> None:
        # The status follows immediately. A call that is dropped before its status arrives is cancelled: that can kill
        # Triton 2.51, and Triton counts a cancelled ensemble request as in flight until its shutdown (wire contract
        # 9.1, rows 7 and 5).
        self._call.tap = None
        if not self._call.ended:  # usually the status arrives with the response
            timer = asyncio.get_running_loop().call_later(END_TIMEOUT_S, self._call.cancel)
            with contextlib.suppress(TransportError):
                while await self._call.read() is not None:
                    pass
            timer.cancel()
        self._ended = True

    def close(self) -> None:
        """Cancel the request unless it has ended."""
        self._call.tap = None
        if not self._ended:
            self._ended = True
            self._call.cancel()

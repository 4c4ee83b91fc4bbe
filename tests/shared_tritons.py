"""The Tritons that all tests of a process share, and a new start of one that died.

A cancel that meets the end of its stream can kill Triton 2.51 (docs/contributing/wire-contract.md, 9.1, row 7), and
tests of clients that leave have to cancel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from gateway_ops.local_stack.tritonserver import TritonServer
from tests.stack import GatewayProcess

_STARTS: dict[TritonServer, Callable[[], object]] = {}  # of the servers that are to run


@contextmanager
def shared(server: TritonServer, start: Callable[[], object]) -> Iterator[None]:
    """Run a server for all tests; ``start`` starts it, and returns when its models are ready."""
    start()
    _STARTS[server] = start
    try:
        yield
    finally:
        del _STARTS[server]
        server.kill()  # quicker than a shutdown, and nothing is left to be kept


def start_again() -> list[str]:
    """Start each server again that a signal has killed, and wait until the gateways serve; how each server ended."""
    dead = [server for server in _STARTS if "signal" in server.ending]
    endings = [f"{server.log_path}: Triton {server.ending}" for server in dead]
    for server in dead:
        server.log_path.rename(server.log_path.with_suffix(".died"))
        _STARTS[server]()
    for gateway in GatewayProcess.serving if dead else ():
        with suppress(AssertionError):  # one that serves no more, as its test wants it
            gateway.wait("/health/ready", 200)
    return endings

"""The Tritons that all tests of a process share, and a new start of one that died or hangs.

A cancel that meets the end of its stream can kill Triton 2.51, or stop all its streams
(docs/contributing/wire-contract.md, 9.1, row 7), and tests of clients that leave have to cancel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import grpc
from tritonclient.grpc import service_pb2, service_pb2_grpc

from gateway_ops.local_stack.process_tree import descendants, is_zombie_stub
from gateway_ops.local_stack.tritonserver import TritonServer
from tests.stack import GatewayProcess

_HANGS_S = 10.0
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
    """Start each server again that died, whole or in a stub, or hangs, and wait until the gateways serve.

    Returns:
        What became of each.
    """
    endings = {server: ending for server in _STARTS if (ending := _ending(server))}
    for server in endings:
        server.kill()
        server.log_path.rename(server.log_path.with_suffix(".died"))
        _STARTS[server]()
    for gateway in GatewayProcess.serving if endings else ():
        with suppress(AssertionError):  # one that serves no more, as its test wants it
            gateway.wait("/health/ready", 200)
    return [f"{server.log_path}: Triton {ending}" for server, ending in endings.items()]


def _ending(server: TritonServer) -> str:
    if server.pid is None or not server.running:
        return server.ending if "signal" in server.ending else ""
    if any(map(is_zombie_stub, descendants(server.pid))):
        return "has a stub that died"
    return "hangs" if _hangs(server) else ""


def _hangs(server: TritonServer) -> bool:
    """Whether the thread of all streams is stuck: it returns no error for a model that does not exist."""
    request = service_pb2.ModelInferRequest(model_name="no_such_model")
    with grpc.insecure_channel(server.grpc_url) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        try:
            next(iter(stub.ModelStreamInfer(iter((request,)), timeout=_HANGS_S)))
        except grpc.RpcError as error:
            return error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    return False

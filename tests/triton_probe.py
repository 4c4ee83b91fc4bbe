"""A question that tells a Triton that works from one whose gRPC front end hangs."""

from __future__ import annotations

import grpc
from tritonclient.grpc import service_pb2, service_pb2_grpc

_TIMEOUT_S = 10.0


def takes_streams(url: str) -> bool:
    """Whether a Triton answers a request without inputs, which it refuses at once; one that hangs says nothing.

    Args:
        url: host and port of its gRPC endpoint.
    """
    with grpc.insecure_channel(url) as channel:
        ask = service_pb2_grpc.GRPCInferenceServiceStub(channel).ModelStreamInfer
        empty = service_pb2.ModelInferRequest(model_name="ensemble", id="are-you-there")
        try:
            return any(response.error_message for response in ask(iter([empty]), timeout=_TIMEOUT_S))
        except grpc.RpcError as error:
            return error.code() is not grpc.StatusCode.DEADLINE_EXCEEDED

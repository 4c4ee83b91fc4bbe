"""The only room that knows gRPC: Triton's transport, discovery, dialects (each an Engine) and error mapping."""

from gateway.triton.backend import BackendStatus, TritonBackend

__all__ = ["BackendStatus", "TritonBackend"]

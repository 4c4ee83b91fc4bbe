"""The only room that knows gRPC: Triton's transport, discovery, dialects (each an Engine) and error mapping."""

from gateway.triton.abilities import EngineOptions
from gateway.triton.backend import BackendStatus, TritonBackend

__all__ = ["BackendStatus", "EngineOptions", "TritonBackend"]

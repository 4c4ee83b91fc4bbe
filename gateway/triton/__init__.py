"""The only package that knows gRPC: Triton's transports, discovery, dialects (each an Engine) and error mapping."""

import os

# gRPC's event engine reads sockets in threads of its own; each token passes through two of them, which costs as much as
# half of our own work. The older client reads in the thread that Python waits in anyway
# (docs/explanation/reliability.md). gRPC reads the variable when it is imported; a version without the experiment
# passes it over.
os.environ.setdefault("GRPC_EXPERIMENTS", "-event_engine_client")
# Our children are other programs. What gRPC does between fork and exec, to be of use in a child, can wait for ever for
# a thread that the child does not have; and the event loop waits for the exec.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

from gateway.triton.abilities import EngineOptions
from gateway.triton.triton_backend import TritonBackend, TritonStatus

__all__ = ["EngineOptions", "TritonBackend", "TritonStatus"]

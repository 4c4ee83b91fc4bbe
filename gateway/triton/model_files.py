"""A model's configuration from its file, for what is told of models without a server."""

from __future__ import annotations

from pathlib import Path

from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

from gateway.triton.model_view import ModelView


def read_model_file(path: Path) -> ModelView:
    """Read a ``config.pbtxt``.

    Raises:
        OSError: it cannot be read.
        text_format.ParseError: it is none.
    """
    config = model_config_pb2.ModelConfig()
    text_format.Parse(path.read_text(encoding="utf-8"), config)
    return ModelView.of(config)

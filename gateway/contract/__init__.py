"""The wire contract of the TensorRT-LLM models on Triton: tensor tables per model, as pure data.

The one source for the dialects, for rendered configurations and for the tests that compare it with ``triton_repo/``.
"""

from gateway.contract.bls import BLS
from gateway.contract.engine import TENSORRT_LLM
from gateway.contract.ensemble import ENSEMBLE
from gateway.contract.steps import POSTPROCESSING, PREPROCESSING
from gateway.contract.tensors import ModelSpec, TensorSpec

MODELS: dict[str, ModelSpec] = {
    model.name: model for model in (PREPROCESSING, TENSORRT_LLM, POSTPROCESSING, ENSEMBLE, BLS)
}
"""The five models of TensorRT-LLM 1.2.1 by name."""

__all__ = [
    "BLS",
    "ENSEMBLE",
    "MODELS",
    "POSTPROCESSING",
    "PREPROCESSING",
    "TENSORRT_LLM",
    "ModelSpec",
    "TensorSpec",
]

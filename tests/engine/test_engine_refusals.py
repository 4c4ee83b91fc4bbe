"""Every input of an engine that docs/reference/served.md lists as refused or missing is refused, by its name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from gateway.text.contract import TENSORRT_LLM, TensorSpec
from tests.engine.tensors import read
from tools.coverage.llmapi import LLMAPI
from tools.coverage.tensors import INPUTS
from wire.additions import BEAMS, LORA, RETENTION, TOP_P_DECAY
from wire.request import RejectedError

KINDS = {"STRING": object, "LOGITS": np.float32, "FP16": np.float16, "FP32": np.float32, "UINT8": np.uint8}


def ones(spec: TensorSpec) -> NDArray[Any]:
    kind = KINDS.get(spec.datatype) or np.dtype({"BOOL": "bool"}.get(spec.datatype, spec.datatype.lower()))
    return np.ones([1, *(1 if size < 0 else size for size in spec.dims)], dtype=kind)


REJECTED = [spec for spec in TENSORRT_LLM.inputs if not spec.extension and INPUTS[spec.name][2] == "rejected"]


@pytest.mark.parametrize("spec", REJECTED, ids=lambda spec: spec.name)
def test_what_is_listed_as_refused_is_refused(spec) -> None:
    with pytest.raises(RejectedError, match=spec.name.partition("_")[0]):
        read(**{spec.name: ones(spec)})


# These say nothing alone: the first needs ids, the others a task, whose adapter the engine has or refuses.
NOT_BY_THEMSELVES = {"decoder_input_lengths", "lora_weights", "lora_config"}
MISSING = [spec for spec in TENSORRT_LLM.inputs if not spec.extension and LLMAPI[spec.name][2] == "missing"]


@pytest.mark.parametrize(
    "spec", [spec for spec in MISSING if spec.name not in NOT_BY_THEMSELVES], ids=lambda spec: spec.name
)
def test_what_the_llm_api_engine_lacks_is_refused(spec) -> None:
    value = ones(spec) + ones(spec) if spec.name == "num_return_sequences" else ones(spec)
    with pytest.raises(RejectedError, match=spec.name.partition("_")[0]):
        read((BEAMS, LORA, RETENTION, TOP_P_DECAY), **{spec.name: value})

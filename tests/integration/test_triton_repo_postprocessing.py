"""The decoding state of ``postprocessing``, called by itself."""

from __future__ import annotations

import numpy as np
import pytest
from kserve import Kserve

from gateway_ops.local_stack.tritonserver import TritonServer


def test_postprocessing_is_stateless_without_an_id(triton: TritonServer, kserve: Kserve, greeting: list[int]) -> None:
    assert "\ufffd" in "".join(kserve.detokenize("", [token]) for token in greeting)
    assert triton.log_path.read_text().count("a request without an id is decoded by itself") == 1


@pytest.mark.parametrize("name", ["BATCH_INDEX", "SEQUENCE_INDEX"])
def test_rows_and_sequences_of_one_request_have_states_of_their_own(
    kserve: Kserve, greeting: list[int], name: str
) -> None:
    emoji = greeting[-4:]
    for index, token in enumerate(emoji):
        for place in range(2):
            text = kserve.detokenize(name, [token], **{name: place})
            assert text == ("🙂" if index == 3 else "")


def test_each_beam_is_decoded_by_itself_to_its_length(kserve: Kserve, greeting: list[int]) -> None:
    tokens = np.array([[greeting[:4], greeting[:4]]], dtype=np.int32)
    answer = kserve.infer("postprocessing", "beams", TOKENS_BATCH=tokens, SEQUENCE_LENGTH=[4, 1])
    assert [bytes(text).decode() for text in answer.tensors["OUTPUT"]] == ["Grü", "G"]

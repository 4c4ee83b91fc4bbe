"""What the LLM API adds, on a real Triton: prompt scores, costs, guides and adapters."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import recorded
from kserve import Answer
from test_llmapi_server import MODEL, PROMPT, ids, inputs

from engines.llmapi.extensions import Extensions
from engines.llmapi.peft_adapters import read_adapters
from wire.request import Guide, LoraTask, RejectedError, Request

TAG = {"structures": [{"begin": "a", "schema": {}, "end": "b"}], "triggers": ["a"]}


@pytest.fixture(scope="module")
def adapters(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("adapters")
    for task, rank, modules in ((3, 4, ["q_proj", "v_proj"]), (12, 16, ["q_proj", "up_proj"])):
        (folder / str(task)).mkdir()
        config = {"r": rank, "lora_alpha": 8, "target_modules": modules}
        (folder / str(task) / "adapter_config.json").write_text(json.dumps(config))
    return folder


@pytest.fixture(scope="module")
def wide(serve, adapters) -> Any:
    """An engine with everything switched on."""
    with serve(LLM_GUIDED_DECODING_BACKEND="xgrammar", LLM_LORA_DIR=str(adapters)) as running:
        yield running


def test_prompts_are_scored_as_by_the_reference_engine(server, reference) -> None:
    wanted = inputs(tokens=2, num_prompt_log_probs=3)
    mine, other = server.client.stream(MODEL, **wanted), reference.client.stream(MODEL, **wanted)
    for name in ("prompt_log_probs", "prompt_top_log_probs"):
        np.testing.assert_allclose(mine[0].tensors[name], other[0].tensors[name], atol=1e-4)
    np.testing.assert_array_equal(
        mine[0].tensors["prompt_top_log_probs_ids"], other[0].tensors["prompt_top_log_probs_ids"]
    )
    assert "prompt_log_probs" not in mine[1].tensors


def test_what_a_request_cost_is_the_engine_s_own_word(server) -> None:
    prompt = PROMPT * 4

    def last() -> Answer:
        return server.client.stream(MODEL, **inputs(prompt, tokens=2, return_perf_metrics=True))[-1]

    last()
    tensors = last().tensors
    told = {name: int(tensors[name].item()) for name in tensors if name.startswith("kv_")}
    assert told == {
        "kv_cache_alloc_total_blocks": 4,
        "kv_cache_alloc_new_blocks": 1,
        "kv_cache_reused_blocks": 3,
    }
    times = [tensors[f"{name}_time_ns"].item() for name in ("arrival", "first_scheduled", "first_token", "last_token")]
    assert times == sorted(times)
    assert times[0] > 0


@pytest.mark.parametrize(
    ("kind", "guide"),
    [("regex", "(ab){3}"), ("ebnf_grammar", 'root ::= "ab" "ab" "ab"'), ("json_schema", '{"const": 7}')],
)
def test_answers_keep_to_guides(wide, kind, guide) -> None:
    stream = wide.client.stream(
        MODEL, **inputs(tokens=20, end_id=0, guided_decoding_guide_type=kind, guided_decoding_guide=guide)
    )
    text = wide_text(ids(stream))
    assert text == ("7" if kind == "json_schema" else "ababab")
    (field,) = wide.events("generate_async")[-1]["sampling"]["guided_decoding"].split(":")[:1]
    assert field == "GuidedDecodingParams({" + repr({"regex": "regex", "json_schema": "json"}.get(kind, "grammar"))


def wide_text(tokens: list[int]) -> str:
    """Text of the tiny model's tokens, of which printable ASCII is in order after three special ones."""
    return "".join(chr(token - 3 + 33) for token in tokens)


def test_adapters_are_asked_for_by_their_folder(wide, adapters) -> None:
    ids(wide.client.stream(MODEL, **inputs(lora_task_id=np.array([[12]], np.uint64))))
    assert wide.events("generate_async")[-1]["lora"] == "LoRARequest(12, 12)"
    (construction,) = wide.events("LLM")
    assert "'max_lora_rank': 16" in construction["lora_config"]
    assert "['attn_q', 'attn_v', 'mlp_gate']" in construction["lora_config"]
    assert construction["skip_tokenizer_init"] is False
    (answer,) = wide.client.stream(MODEL, **inputs(lora_task_id=np.array([[4]], np.uint64)))
    assert "LoRA task 4 not found in cache. Please send LoRA weights with request" in answer.error


def test_an_adapter_that_is_not_there_cannot_be_sent(adapters) -> None:
    task = LoraTask(4, np.zeros((1, 3), np.float16), np.zeros((1, 3), np.int32))
    with pytest.raises(RejectedError, match="lora_weights"):
        read_adapters(adapters).request_arguments(task)


@pytest.mark.parametrize("broken", [None, '{"r": 4}', '{"r": 4, "target_modules": ["lm_head"]}'])
def test_a_folder_without_adapters_is_a_load_error(tmp_path, broken) -> None:
    if broken is not None:
        (tmp_path / "3").mkdir()
        (tmp_path / "3" / "adapter_config.json").write_text(broken)
    with pytest.raises(RuntimeError, match=r"LLM_LORA_DIR|not an adapter that can be served"):
        read_adapters(tmp_path)


GUIDES = [
    Guide("json", ""),
    Guide("json_schema", "{}"),
    Guide("regex", "a"),
    Guide("ebnf_grammar", 'root ::= "a"'),
    Guide("structural_tag", json.dumps(TAG)),
]


@pytest.mark.parametrize("version", recorded.TABLE)
@pytest.mark.parametrize("guide", GUIDES, ids=lambda guide: guide.kind)
def test_guides_fit_the_recorded_signature(version, guide) -> None:
    made: list[dict[str, Any]] = []
    extensions = Extensions(guided=lambda **arguments: made.append(arguments), guided_backend="xgrammar")
    extensions.sampling_arguments(Request("", [1], 1, guide=guide))
    recorded.check_call("GuidedDecodingParams", made[0], version)


def test_structural_tags_need_xgrammar() -> None:
    extensions = Extensions(guided=dict, guided_backend="llguidance")
    with pytest.raises(RejectedError, match="structural_tag"):
        extensions.sampling_arguments(Request("", [1], 1, guide=GUIDES[-1]))


@pytest.mark.parametrize("version", recorded.TABLE)
def test_adapters_and_arguments_fit_the_recorded_signatures(version, adapters) -> None:
    found = read_adapters(adapters)
    recorded.check_call("LoraConfig", found.config_arguments(), version)
    recorded.check_call("LoRARequest", found.request_arguments(LoraTask(3)), version)
    request = Request("", [1], 1, prompt_log_probs=0, perf_metrics=True)
    arguments = Extensions(metrics=True, to_array=np.asarray).sampling_arguments(request)
    recorded.check_call("SamplingParams", arguments, version)
    assert recorded.parameters("RequestOutput.context_logits", version) == {}
    assert "request_perf_metrics" in recorded.parameters("CompletionOutput", version)

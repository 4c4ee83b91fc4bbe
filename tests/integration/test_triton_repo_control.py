"""Ends that are not the model's own: stop by id, cancellation, failures; and the state that must not pile up."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest
from kserve import Kserve, answers, infer_request, metric, steps

from gateway_ops.local_stack.triton_installation import TritonStartError
from gateway_ops.local_stack.tritonserver import EMBEDDING, TritonServer
from tests.waiting import wait_until

LONG = 1900
REQUESTS = "nv_trt_llm_request_metrics"


def wait_until_idle(server: TritonServer, seconds: float = 20) -> None:
    wait_until(lambda: not metric(server.metrics_url, REQUESTS, "active"), seconds)


def direct(prompt: list[int], **inputs: object) -> dict[str, object]:
    return {"input_ids": prompt, "input_lengths": len(prompt), "request_output_len": LONG, "streaming": True, **inputs}


@pytest.mark.parametrize("model", ["ensemble", "tensorrt_llm"])
def test_stop_by_request_id_ends_the_answer(triton: TritonServer, kserve: Kserve, model: str) -> None:
    inputs = {"text_input": "hello", "max_tokens": LONG, "stream": True, "end_id": -1}
    request = infer_request(model, f"stop-{model}", **(inputs if model == "ensemble" else direct([5, 6, 7])))
    responses = answers(kserve.call(request))
    got = [next(responses)]
    stopped = kserve.stream("tensorrt_llm", f"stop-{model}", **direct([1], stop=True))
    assert [(answer.tensors, answer.final) for answer in stopped] == [({}, True)]
    got += responses
    assert got[-1].final
    assert len(got) < LONG
    wait_until_idle(triton, 5)


@pytest.mark.parametrize("model", ["tensorrt_llm", "tensorrt_llm_bls"])
def test_a_cancelled_call_frees_the_engine(triton: TritonServer, kserve: Kserve, model: str) -> None:
    inputs = {"text_input": "hello", "max_tokens": LONG, "stream": True, "end_id": -1}
    before = steps(triton)
    call = kserve.call(infer_request(model, **(inputs if model == "tensorrt_llm_bls" else direct([5, 6, 7]))))
    next(answers(call))
    call.cancel()
    wait_until_idle(triton)
    assert steps(triton) - before < LONG


def test_many_cancelled_requests_do_no_harm_and_leave_nothing_behind(own_triton: TritonServer) -> None:
    """They are cancelled long before their end: a cancel that meets it can end Triton 2.51, whatever a model does."""

    def one(count: int) -> None:
        call = kserve.call(infer_request("tensorrt_llm", **direct([5, 6], request_output_len=LONG, end_id=-1)))
        responses = answers(call)
        for _ in range(count % 5):
            next(responses, None)
        call.cancel()

    kserve = Kserve(own_triton.grpc_url)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(one, range(200)))
    for _ in range(70):  # more than the threads of BLS
        call = kserve.call(infer_request("tensorrt_llm_bls", text_input="hi", max_tokens=LONG, stream=True, end_id=-1))
        next(answers(call))
        call.cancel()
    wait_until_idle(own_triton)
    assert kserve.stream("tensorrt_llm_bls", text_input="hi", max_tokens=2, end_id=-1)[-1].final
    kserve.close()


def test_bls_survives_many_short_answers_and_errors(triton: TritonServer, kserve: Kserve) -> None:
    """Its calls end within the time between two looks for cancellation, where Triton's stub used to crash."""

    def one(index: int) -> str:
        wrong = {"beam_width": 3} if index % 4 == 0 else {}
        last = kserve.stream("tensorrt_llm_bls", text_input="x", max_tokens=3, end_id=-1, stream=True, **wrong)[-1]
        return last.error[:14] or last.finish_reason

    with ThreadPoolExecutor(8) as pool:
        assert Counter(pool.map(one, range(400))) == {"Requested beam": 100, "length": 300}
    assert triton.running


@pytest.mark.parametrize(
    ("engine", "model_dir", "names"),
    [
        ("reference", None, "MODEL_DIR"),
        (None, "tiny", "TRITON_ENGINE"),
        ("no-such-engine", "tiny", "no-such-engine"),
        ("reference", "empty", "MODEL_DIR has no tokenizer.json"),
    ],
)
def test_what_is_missing_is_a_load_error_that_names_it(
    chat_repository: Path, tiny_model_dir: Path, tmp_path: Path, engine: str | None, model_dir: str | None, names: str
) -> None:
    folder = {"tiny": tiny_model_dir, "empty": tmp_path, None: None}[model_dir]
    server = TritonServer(chat_repository, model_dir=folder, engine=engine, log_path=tmp_path / "log", exit_timeout_s=0)
    server.start()
    try:
        with pytest.raises(TritonStartError) as caught:
            server.wait_ready(deadline_s=60)
    finally:
        server.stop()
    assert any(names in line for line in caught.value.log_lines), server.log()
    assert not any("At:" in line or ".py(" in line for line in caught.value.log_lines)


def test_an_encoder_without_a_folder_fails_its_requests_alone(
    repository: Path, tiny_model_dir: Path, tmp_path: Path
) -> None:
    with TritonServer(repository, model_dir=tiny_model_dir, log_path=tmp_path / "log", exit_timeout_s=0) as server:
        server.wait_ready([EMBEDDING])
        kserve = Kserve(server.grpc_url)
        with pytest.raises(grpc.RpcError, match=r"\$\{EMBEDDING_MODEL_DIR\} is not set, so embedding has no model"):
            kserve.infer(EMBEDDING, text="hi")
        kserve.close()

"""Families of metrics of Triton and of TensorRT-LLM: which this project's engines make, and which are only passed on."""

from __future__ import annotations

from tools.coverage.row import Row, Status

_RELAY = "integration/test_triton_metrics_relay.py::test_triton_s_metrics_are_relayed"
_AS_THEY_ARE = (
    "telemetry/test_triton_metrics.py::test_families_that_only_tensorrt_llm_and_gpus_have_are_relayed_as_they_are"
)

_RELAYED: Status = "relayed"
_TRITON = ("success", "failure", "count", "exec_count", "request_duration_us", "queue_duration_us", "compute_input_duration_us", "compute_infer_duration_us", "compute_output_duration_us", "pending_request_count")  # fmt: skip


def _of_triton(name: str) -> str:
    return f"nv_inference_{f'request_{name}' if name in ('success', 'failure') else name}"


METRICS = (
    Row("nv_trt_llm_request_metrics", "from this project's engines; relayed by `/metrics`", _RELAY),
    Row("nv_trt_llm_kv_cache_block_metrics", "from the reference engine; relayed", "engine/test_engine_scheduling.py::test_kv_blocks_are_counted"),
    Row("nv_trt_llm_general_metrics", "from the reference engine; relayed", "integration/test_drafts.py::test_a_prediction_saves_steps_and_changes_nothing"),
    Row("nv_trt_llm_runtime_memory_metrics", "no engine here makes it", _AS_THEY_ARE, _RELAYED),
    Row("nv_trt_llm_inflight_batcher_metrics", "no engine here makes it", _AS_THEY_ARE, _RELAYED),
    Row("nv_trt_llm_v1_metrics", "no engine here makes it", _AS_THEY_ARE, _RELAYED),
    Row("nv_trt_llm_disaggregated_serving_metrics", "no engine here makes it", _AS_THEY_ARE, _RELAYED),
    Row("nv_llm_input_token_len", "no engine here makes it; the gateway's own counts are `gateway_prompt_tokens_total`", _AS_THEY_ARE, _RELAYED),
    Row("nv_llm_output_token_len", "likewise; `gateway_completion_tokens_total`", _AS_THEY_ARE, _RELAYED),
    *(Row(_of_triton(name), "Triton's own", _RELAY) for name in _TRITON),
    Row("nv_gpu_*", "Triton's own, where it sees a GPU; also seen on an H200 ([benchmarks/gpu.md](../benchmarks/gpu.md))", _AS_THEY_ARE, _RELAYED),
)  # fmt: skip

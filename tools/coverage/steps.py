"""Headings of the READMEs and steps of the Llama 3 tutorial, in their order: how each is done here."""

from __future__ import annotations

from tools.coverage.row import Row

_RENDERING = "gateway_ops/repository/test_rendering.py::"
_SCRIPTS = f"{_RENDERING}test_python_files_come_with_it_and_scripts_say_how"
_EXAMPLE = f"{_RENDERING}test_an_example_renders_the_tensors_of_the_contract"
_README = "tools/coverage/test_readme_scripts.py::"
_TEXT = "integration/test_triton_repo_text.py::"
_UP = "gateway_ops/cli/test_up.py::test_up_in_the_background_chats_as_printed_and_goes_down"
_SLURM = f"{_RENDERING}test_slurm_starts_a_server_for_each_rank"

STEPS = (
    Row("Run the pre-built container (NGC)", "`launch.sh` runs inside it; it was not run", _SCRIPTS, "rendered"),
    Row("Build the container with build.py of the server", "upstream's own build, unchanged: nothing of this project goes into the image but the rendered repository", status="documented"),
    Row("Build the container with Docker", "likewise", status="documented"),
    Row("Download the weights", "`hf download` in `build_engines.sh`, where `model.source` is an id", f"{_README}test_the_flags_of_the_readme_s_example_are_in_the_script", "rendered"),
    Row("Prepare TensorRT-LLM engines", "`build_engines.sh` of a rendered repository", _SCRIPTS, "rendered"),
    Row("Quantize the model", "likewise, with `model.quantization`", f"{_README}test_the_flags_of_the_tutorial_are_in_the_script", "rendered"),
    Row("Run the engine locally (run.py)", "upstream's script, before Triton comes in; here the same by `/v1/completions`", status="documented"),
    Row("Create the model repository", "`gateway repo build`; the five models", _EXAMPLE),
    Row("Leave the BLS model out", "`bls.enabled: false`", "gateway_ops/repository/test_no_key_is_dropped.py::test_every_key_is_rendered_or_refused"),
    Row("Modify the model configuration (fill_template.py)", "`deployments`, or `--set` in the same words", "gateway_ops/repository/test_overrides.py::test_variables_and_keys_reach_their_sections"),
    Row("Launch Triton server within NVIDIA's container", "`launch.sh` of a rendered repository", _SCRIPTS, "rendered"),
    Row("Launch without one", "`gateway up`, docker compose: the same models on a CPU", _UP),
    Row("Log in to Hugging Face before the launch", "not needed: the tokenizer is read from the model's folder", "app/test_application.py::test_tokenizer_and_context_from_what_is_discovered"),
    Row("Query the server with the generate endpoint", "all five models answer it", f"{_TEXT}test_generate_answers_over_http"),
    Row("Query with generate_stream", "likewise", f"{_TEXT}test_generate_stream_answers_over_http"),
    Row("Query tensorrt_llm_bls instead of the ensemble", "a served model's `triton.model`, or directly", "integration/test_dialects.py::test_a_bls_model_answers_as_the_ensemble_does"),
    Row("Utilize the provided client script", "its arguments one by one [below](#arguments-of-the-client-scripts)", "clients/test_readme.py::test_python"),
    Row("Early stopping", "a client that leaves ends its generation", "integration/test_triton_repo_control.py::test_a_cancelled_call_frees_the_engine"),
    Row("Return context logits and/or generation logits", "`logits` of a deployment; log-probs are made of them", "integration/test_dialects_parameters.py::test_log_probs_from_logits_where_the_engine_has_no_others"),
    Row("Requests with batch size above 1", "a request for each prompt; the engine batches in flight. Triton's own batch of one request is refused", "clients/test_completions.py::test_more_prompts_than_the_engine_s_queue_holds"),
    Row("Launch Triton server within Slurm based clusters", "`launch.sh` under `srun --mpi=pmix`; the job script around it is the cluster's own", _SLURM, "rendered"),
    Row("Submit a Slurm job", "the cluster's `sbatch`, as before", status="documented"),
    Row("Kill the Triton server", "`gateway down`", _UP),
    Row("Triton metrics", "relayed by `/metrics`, family by family [below](#metrics)", "integration/test_triton_metrics_relay.py::test_triton_s_metrics_are_relayed"),
    Row("Load and unload models while Triton runs", "Triton's own API (`--model-control-mode=explicit`); the gateway says which of its models are ready", "integration/test_errors.py::test_an_unloaded_model"),
    Row("Testing the TensorRT-LLM backend (ci/README.md)", "upstream's tests of its own backend; this repository's are `make test`", status="documented"),
)  # fmt: skip

"""Options of upstream's `launch_triton_server.py`: what `launch.sh` of a rendered repository makes of each."""

from __future__ import annotations

from tools.coverage.row import Row

_SCRIPTS = "tools/coverage/test_readme_scripts.py::test_the_launcher_is_told_of_ranks_models_and_mode"
_SLURM = "gateway_ops/repository/test_rendering.py::test_slurm_starts_a_server_for_each_rank"
_WORKERS = "gateway_ops/repository/test_build_commands.py::test_workers_with_ranks_start_with_the_orchestrator"
_MORE = (
    "write it after `launch.sh`, which hands on what follows it (to `tritonserver` itself where there is no launcher)"
)

LAUNCHER = (
    Row("--world_size", "`parallelism.tp` times `parallelism.pp`; 1 with an orchestrator", _SCRIPTS, "rendered"),
    Row("--model_repo", "the folder of `launch.sh` itself", _SCRIPTS, "rendered"),
    Row("--tensorrt_llm_model_name", "the engines of the repository, by their names", _SCRIPTS, "rendered"),
    Row("--multi-model", "`triton.executor: orchestrator`", "tools/coverage/test_readme_scripts.py::test_the_launcher_is_told_of_ranks_models_and_mode", "rendered"),
    Row("--disable-spawn-processes", "`triton.participant_ids`", _WORKERS, "rendered"),
    Row("--trtllm_llmapi_launch", "`engine: llmapi` over several nodes is started by `trtllm-llmapi-launch`", "tools/coverage/test_readme_scripts.py::test_the_llm_api_is_started_without_mpi_or_by_its_own_launcher", "rendered"),
    Row("--no-mpi", "`engine: llmapi` on one node is started without MPI", "tools/coverage/test_readme_scripts.py::test_the_llm_api_is_started_without_mpi_or_by_its_own_launcher", "rendered"),
    Row("--oversubscribe", _MORE, status="documented"),
    Row("--grpc_port", _MORE, status="documented"),
    Row("--http_port", _MORE, status="documented"),
    Row("--metrics_port", _MORE, status="documented"),
    Row("--tritonserver", _MORE, status="documented"),
    Row("--force", _MORE, status="documented"),
    Row("--log", _MORE, status="documented"),
    Row("--log-file", _MORE, status="documented"),
    Row("--exit_timeout", _MORE, status="documented"),
    Row("--multimodal_gpu0_cuda_mem_pool_bytes", "for images, of which there are none here; else pass it to `launch.sh`", status="documented"),
    Row("--disable-auto-complete-config", "as the launcher has it", _SLURM, "rendered"),
    Row("--backend-config=python,shm-region-prefix-name", "one for each rank under Slurm", _SLURM, "rendered"),
)  # fmt: skip

"""The subject of each file of tests: which target of the Makefile runs it.

What stands in no row is of the gateway, and run by ``make test``; ``make test-<subject>`` runs another subject, and
``make test-long`` all of them.
"""

from __future__ import annotations

from typing import Final

GATEWAY: Final = "gateway"
# By the beginnings of paths below tests/.
_FILES: Final[dict[str, tuple[str, ...]]] = {
    # Commands that stand beside a gateway, what is rendered for Triton and Kubernetes, and releases.
    "operators": (
        "bench/", "clients/test_chat_command.py", "clients/test_models_command.py", "clients/test_record_command.py",
        "clients/test_report_command.py", "clients/test_strange_servers.py", "clients/test_top_command.py", "compose/",
        "gateway_ops/cli/test_commands.py", "gateway_ops/cli/test_plan_fleet.py", "gateway_ops/cli/test_repo.py",
        "gateway_ops/cli/test_up.py", "gateway_ops/cli/test_usage.py", "gateway_ops/compare/",
        "gateway_ops/engines/", "gateway_ops/launch/", "gateway_ops/local_stack/", "gateway_ops/plan_fleet/",
        "gateway_ops/repository/", "integration/test_compare_equal_models.py", "integration/test_refusals.py",
        "integration/test_rendered_repository.py", "kubernetes/", "release/", "tools/test_fleet_page.py",
    ),
    # The models of triton_repo/ and their engines by themselves, and the doubles that tests use in their place.
    "engines": (
        "doubles/", "engine/", "integration/test_kv_reuse.py", "integration/test_triton_repo_", "llmapi/",
        "triton_models/",
    ),
    # The chat page in a browser.
    "page": ("clients/page/",),
    # Programs of others that write code, and the languages that examples are in.
    "agents": ("clients/programs/", "clients/test_languages.py"),
}  # fmt: skip
SUBJECTS: Final = (GATEWAY, *_FILES)


def subject_of(file: str) -> str:
    """The subject of a file by its path below tests/."""
    return next((subject for subject, files in _FILES.items() if file.startswith(files)), GATEWAY)


def beginnings(subject: str) -> tuple[str, ...]:
    """The beginnings of paths that a subject's row names."""
    return _FILES.get(subject, ())

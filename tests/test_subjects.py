"""Each test has a subject, and each subject a target of the Makefile."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.subjects import GATEWAY, SUBJECTS, beginnings, subject_of

TESTS = Path(__file__).parent
MAKEFILE = (TESTS.parent / "Makefile").read_text(encoding="utf-8")


@pytest.mark.parametrize("subject", SUBJECTS)
def test_a_target_runs_each_subject(subject: str) -> None:
    target = "test" if subject == GATEWAY else f"test-{subject}"
    assert re.search(rf"^{target}:.*\n\t.*--subject={subject}\b", MAKEFILE, re.MULTILINE)


def test_each_row_names_files_that_are_there() -> None:
    files = [path.relative_to(TESTS).as_posix() for path in TESTS.rglob("test_*.py")]
    named = [beginning for subject in SUBJECTS for beginning in beginnings(subject)]
    assert [beginning for beginning in named if not any(file.startswith(beginning) for file in files)] == []


def test_one_run_takes_all_subjects_and_others_one(
    pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    def left_out(file: str, wanted: str | None) -> bool:
        monkeypatch.setattr(pytestconfig.option, "subject", wanted)
        return bool(pytestconfig.hook.pytest_ignore_collect(collection_path=TESTS / file, config=pytestconfig))

    for file in ("engine/test_engine_lora.py", "openai/test_chat_stream.py"):
        assert [left_out(file, subject) for subject in SUBJECTS].count(False) == 1
        assert not left_out(file, subject_of(file))
        assert not left_out(file, None)

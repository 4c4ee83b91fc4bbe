"""What docs/how-to/clients shows of the SDKs, run as it stands; only the address differs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.clients.programs.pages import blocks, exports
from tests.npm import UnavailableError, installed
from tests.scripted_engine.replay import turn
from tests.sdks.conftest import Stack, called
from tests.sdks.javascript import HERE

RESPONSES, MESSAGES = "POST /v1/responses 200", "POST /v1/messages 200"
WARM = "It is 22 °C in Rome."
SHOWN = [  # page, language, what its last line prints, what it asked
    ("openai-sdk", "python", "city='Rome'", [RESPONSES]),
    ("openai-sdk", "js", "{ city: 'Rome' }", [RESPONSES]),
    ("openai-agents", "python", WARM, [RESPONSES] * 2),
    ("openai-agents", "js", WARM, [RESPONSES] * 2),
    ("ai-sdk", "js", WARM, [RESPONSES] * 2),
    ("langchain", "python", WARM, [RESPONSES] * 2),
    ("langchain", "js", "Warm.", [RESPONSES]),
    ("pydantic-ai", "python", WARM, [RESPONSES] * 2),
    ("anthropic-sdk", "python", WARM, [MESSAGES] * 2),
    ("anthropic-sdk", "js", "Warm.", [MESSAGES]),
]


# Each start of a library in Python takes seconds; other tests run the same calls in one process.
PROGRAMS = [
    pytest.param(*one, id=f"{one[0]}-{one[1]}", marks=pytest.mark.long if one[1] == "python" else ()) for one in SHOWN
]


@pytest.mark.parametrize(("page", "language", "printed", "asked"), PROGRAMS)
def test_the_program_of_a_page(
    stack: Stack, tmp_path: Path, page: str, language: str, printed: str, asked: list[str]
) -> None:
    stack.play(
        turn("How warm", text="Warm.<|im_end|>"),
        turn("Colosseum", text='{"city": "Rome"}<|im_end|>'),
        turn("get_weather.*How warm", text=f"{called('Rome')}<|im_end|>"),
        turn("22 degrees", text=f"{WARM}<|im_end|>"),
    )
    if page == "pydantic-ai":
        pytest.importorskip("pydantic_ai", reason="it has no release for Python 3.10")
    (program,) = blocks(page, language, stack.url)
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    for block in blocks(page, "sh", stack.url):
        env |= exports(block)
    if language == "python":
        command = [sys.executable, "-c", program]
    else:
        try:
            (tmp_path / "node_modules").symlink_to(installed(HERE / "package.json"))
        except UnavailableError as error:
            pytest.skip(str(error))
        (tmp_path / "program.mjs").write_text(program, encoding="utf-8")
        command = ["node", "program.mjs"]
    done = subprocess.run(command, cwd=tmp_path, env=env, check=False, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1].endswith(printed)
    assert stack.asked() == asked

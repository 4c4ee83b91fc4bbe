"""What is printed for a user to paste."""

from __future__ import annotations

import json
import shlex
import subprocess

import pytest

from gateway_ops.cli.up import curl_line, python_snippet

URL = "http://127.0.0.1:9000"


@pytest.mark.parametrize("model", ["tiny", 'it\'s a "model"', "$HOME `id`"])
def test_a_shell_reads_the_line_as_meant(model: str) -> None:
    words = shlex.split(curl_line(URL, model, {}))
    assert words[:3] == ["curl", "-N", f"{URL}/v1/chat/completions"]
    assert json.loads(words[-1])["model"] == model


def test_the_key_comes_from_the_environment_and_is_not_printed() -> None:
    environ = {"GATEWAY_API_KEYS": "first,second"}
    line, snippet = curl_line(URL, "tiny", environ), python_snippet(URL, 'a "quoted" name', environ)
    assert "first" not in line + snippet
    command = ["sh", "-c", line.replace("curl", "printf '%s\\n'", 1)]
    echoed = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=10, check=False)
    assert "Authorization: Bearer first\n" in echoed.stdout
    compile(snippet, "snippet", "exec")
    assert f'base_url="{URL}/v1"' in snippet

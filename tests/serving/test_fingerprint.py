"""Which changes of a model's files make it be loaded anew."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.serving.registry import fingerprint
from gateway.settings import ModelSettings, TritonSettings


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer.model", "tekken.json", "chat_template.jinja"])
def test_a_file_of_the_tokenizer_that_comes_or_changes_counts(tmp_path: Path, name: str) -> None:
    settings = ModelSettings(name="a", triton=TritonSettings(url="h:1"), tokenizer=tmp_path)
    seen = [fingerprint(settings)]
    for content in ("{}", "longer"):
        (tmp_path / name).write_text(content, encoding="utf-8")
        seen.append(fingerprint(settings))
    assert seen[0] != seen[1] != seen[2]
    assert fingerprint(settings) == seen[2]

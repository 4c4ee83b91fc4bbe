"""Chat templates of public repositories: what the choice of a family looks at in each, and what it chooses.

The templates are not kept here, only facts about them, in ``templates.yaml``; the choice is tested from those. To look
at the templates again, check out each repository that the file names at its commit, as ``FOLDER/owner/name``, and run

    python -m tests.families.templates FOLDER

which reads the templates that are there, compares their hashes, and writes facts and choices anew. Without a folder
it chooses anew from the facts, as is needed when a family is added. Look at the difference before you keep it.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from gateway.serving.loading import written_call
from gateway.text.families.family_choice import FamilyChoice, ModelEvidence, WrittenCall, choose
from gateway.text.families.family_table import CLAIMING, THINK
from gateway.text.prompt import ChatTemplate
from tests.families.harness import LOADER

FILE = Path(__file__).with_name("templates.yaml")
_WORD = re.compile(r"""<[^\s<>"'{}]{1,48}>|\[/?[A-Z_]{3,32}\]|\btools\b|functools""")
_PROMPT = 40  # characters of the prompt before a call: only its end tells something


class _Tokens:
    """Special tokens for all templates, of the form that most models' have."""

    bos_token: str | None = "<|begin|>"
    eos_token: str | None = "<|end|>"
    special_tokens: Mapping[str, str] = {}
    control_tokens: Sequence[str] = ()


def load() -> dict[str, dict[str, Any]]:
    """The entries of the file, by name."""
    return yaml.load(FILE.read_text(encoding="utf-8"), Loader=LOADER)  # type: ignore[no-any-return]


def evidence(entry: Mapping[str, Any]) -> ModelEvidence:
    """The evidence of an entry's facts: its template is the words in it that families have as signs, and like ones."""
    config, written = entry.get("config", {}), entry.get("writes")
    return ModelEvidence(
        architectures=config.get("architectures", ()),
        model_type=config.get("model_type"),
        template="\n".join(entry["words"]),
        written=WrittenCall(written["behind"], written["call"]) if written else None,
    )


def chosen(choice: FamilyChoice) -> dict[str, Any]:
    """A choice as an entry has it."""
    doubts = {"doubts": list(choice.doubts)} if choice.doubts else {}
    return {"family": choice.family.name, "by": choice.reason, **doubts}


def _facts(source: str) -> dict[str, Any]:
    """What the choice may look at in a template."""
    signs = {text for family in (*CLAIMING, THINK) for group in family.signs for text in group if text in source}
    found = written_call(ChatTemplate(source, _Tokens()))
    written = {"writes": {"behind": found.prompt[-_PROMPT:], "call": found.text}} if found else {}
    return {"words": sorted({*_WORD.findall(source), *signs}), **written}


def _read(folder: Path, entry: Mapping[str, Any]) -> str | None:
    """The template of an entry; None when it is not there."""
    path = folder / str(entry["repository"]) / str(entry["path"])
    if not path.is_file():
        return None
    text = path.read_text(encoding="utf-8")
    if "key" not in entry:
        return text
    templates = {str(model["model_name"]): str(model.get("chat_template")) for model in json.loads(text)}
    return templates[entry["key"]]


class _Dumper(yaml.SafeDumper):
    """Writes lists of texts in as few lines as they take."""


_Dumper.add_representer(
    list, lambda dumper, data: dumper.represent_sequence("tag:yaml.org,2002:seq", data, flow_style=True)
)


def _again(name: str, entry: dict[str, Any], folder: Path | None) -> dict[str, Any]:
    """An entry with its facts and choice as they are now."""
    source = None if folder is None else _read(folder, entry)
    if source is not None:
        found = hashlib.sha256(source.encode()).hexdigest()
        if entry.setdefault("sha256", found) != found:
            raise SystemExit(f"{name} is another template than the one recorded: {found}")
        entry = {key: value for key, value in entry.items() if key not in ("words", "writes")} | _facts(source)
    kept = {key: value for key, value in entry.items() if key not in ("family", "by", "doubts")}
    return kept | chosen(choose(evidence(entry)))


def main() -> None:
    """Write the file anew; the command line may name a folder of repositories."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else None
    entries = {name: _again(name, entry, folder) for name, entry in load().items()}
    text = yaml.dump(entries, Dumper=_Dumper, allow_unicode=True, sort_keys=False, width=150)
    FILE.write_text("# Written by `python -m tests.families.templates`; see there.\n" + text, encoding="utf-8")


if __name__ == "__main__":
    main()

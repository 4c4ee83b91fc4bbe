"""Record the signatures of TensorRT-LLM's LLM API that the engine ``llmapi`` depends on, into signatures.json.

    python -m tests.llmapi.record_signatures REPOSITORY REF VERSION [NOTE]

REPOSITORY is a clone of github.com/NVIDIA/TensorRT-LLM, bare or not, and REF a tag or commit in it, as ``v1.2.1``; or a
folder of the documentation in its branch gh-pages, as ``58fb435e:1.2.1``, whose pages ``_modules/`` hold the sources of
that very release. With the REF ``-`` it is a folder of either without git; its ``sources.json``, if there, tells where
the files are from, by their paths or by names of the table, and as ``ref`` for all.

Sources are parsed, never imported. What is not found is left out and named on standard error; the tests say whether it
matters. What is recorded here is kept: bindings of C++ (`RequestPerfMetrics` and its parts, `KvCacheRetentionConfig`)
have no Python source; their names are transcribed from the bindings and from upstream's tests of them.

What the table holds: 1.0.0 and 1.2.1 are exact but for `LoraConfig`, whose module has no page, and which is the nearest
that was found. ``main`` is exact for the release candidate 1.3.0rc26 where a page of its sources was found, and else of
2026 by the rendered documentation, without the constraints of ``Annotated``: each entry names its source. There, a
default ``factory()`` is one that is made, and ``...`` one that the source does not tell.
"""

from __future__ import annotations

import ast
import html
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.rows import in_rows

TABLE = Path(__file__).with_name("signatures.json")

# Name in the table: source file, classes whose fields are its parameters (a derived class first).
DATA_CLASSES = {
    "SamplingParams": ("tensorrt_llm/sampling_params.py", ("SamplingParams",)),
    "KvCacheConfig": ("tensorrt_llm/llmapi/llm_args.py", ("KvCacheConfig",)),
    "PeftCacheConfig": ("tensorrt_llm/llmapi/llm_args.py", ("PeftCacheConfig",)),
    "SchedulerConfig": ("tensorrt_llm/llmapi/llm_args.py", ("SchedulerConfig",)),
    "TorchLlmArgs": ("tensorrt_llm/llmapi/llm_args.py", ("TorchLlmArgs", "BaseLlmArgs")),
    "CompletionOutput": ("tensorrt_llm/executor/result.py", ("CompletionOutput",)),
    "Logprob": ("tensorrt_llm/executor/result.py", ("Logprob",)),
    "GuidedDecodingParams": ("tensorrt_llm/sampling_params.py", ("GuidedDecodingParams",)),
    "LoRARequest": ("tensorrt_llm/executor/request.py", ("LoRARequest",)),
    "LoraConfig": ("tensorrt_llm/lora_helper.py", ("LoraConfig",)),
}
# Where else the classes of a file have been, before and after.
MOVED = {
    "tensorrt_llm/lora_helper.py": ("tensorrt_llm/lora_manager.py", "tensorrt_llm/_torch/peft/lora/config.py"),
}
# Name in the table: source file, classes that may hold the method.
METHODS = {
    "LLM.__init__": ("tensorrt_llm/llmapi/llm.py", ("BaseLLM", "LLM")),
    "LLM.generate_async": ("tensorrt_llm/llmapi/llm.py", ("BaseLLM", "LLM")),
    "LLM.shutdown": ("tensorrt_llm/llmapi/llm.py", ("BaseLLM", "LLM")),
    "RequestOutput.abort": ("tensorrt_llm/executor/result.py", ("GenerationResult",)),
    "RequestOutput.finished": ("tensorrt_llm/executor/result.py", ("GenerationResult",)),
    "RequestOutput.context_logits": ("tensorrt_llm/executor/result.py", ("GenerationResultBase",)),
    "RequestOutput.outputs": ("tensorrt_llm/executor/result.py", ("GenerationResultBase",)),
    "RequestOutput.__anext__": ("tensorrt_llm/executor/result.py", ("GenerationResult",)),
}
# Private fields that the engine sets, as their name in the table: source file, class.
FIELDS = {"SamplingParams._bad_word_ids": ("tensorrt_llm/sampling_params.py", "SamplingParams")}


def main() -> None:
    """Record one version."""
    repository, ref, version = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    table = json.loads(TABLE.read_text(encoding="utf-8")) if TABLE.exists() else {}
    given = json.loads(read_file(repository, ref, "sources.json") or "{}") if ref == "-" else {}
    names = {**DATA_CLASSES, **METHODS, **FIELDS}
    kept = table.get(version, {}).get("signatures", {})
    recorded: dict[str, Any] = {name: entry for name, entry in kept.items() if name not in names}
    for name, (first, classes) in {**DATA_CLASSES, **METHODS}.items():
        for path in (first, *MOVED.get(first, ())):
            modules = classes_of(read_source(repository, ref, path))
            found = [modules[one] for one in classes if one in modules]
            parameters = method_parameters(found, name) if name in METHODS else field_parameters(found)
            if parameters is not None:
                recorded[name] = {"source": given.get(name, given.get(path, path)), "parameters": parameters}
                break
        else:
            sys.stderr.write(f"{version}: no {name} in {first}\n")
    for name, (path, owner) in FIELDS.items():
        node = classes_of(read_source(repository, ref, path)).get(owner)
        if node is not None and name.partition(".")[2] in annotated(node):
            recorded[name] = {"source": given.get(path, path), "parameters": {}}
        else:
            sys.stderr.write(f"{version}: no {name} in {path}\n")
    note = sys.argv[4] if len(sys.argv) > 4 else ""
    table[version] = {"ref": given.get("ref", ref), "note": note, "signatures": recorded}
    TABLE.write_text(in_rows(table) + "\n", encoding="utf-8")


def read_source(repository: Path, ref: str, path: str) -> str:
    """Text of a module, or what the documentation's page of it holds; empty where there is neither."""
    page = f"_modules/{path.removesuffix('.py')}.html"
    return read_file(repository, ref, path) or source_of_page(read_file(repository, ref, page))


def read_file(repository: Path, ref: str, path: str) -> str:
    """Text of a file at a ref; empty where there is none."""
    if ref == "-":
        file = repository / path
        return file.read_text(encoding="utf-8") if file.is_file() else ""
    name = f"{ref}/{path}" if ":" in ref else f"{ref}:{path}"
    shown = subprocess.run(["git", "-C", str(repository), "show", name], capture_output=True, text=True, check=False)
    return shown.stdout if shown.returncode == 0 else ""


def source_of_page(page: str) -> str:
    """The source in a page of Sphinx's viewcode."""
    found = re.search(r"<pre>(.*)</pre>", page, re.DOTALL)
    text = re.sub(r'<a class="viewcode-back".*?</a>', "", found[1]) if found else ""
    return html.unescape(re.sub(r"<[^>]*>", "", text))


def classes_of(source: str) -> dict[str, ast.ClassDef]:
    """Classes of a module by name."""
    return {node.name: node for node in ast.parse(source).body if isinstance(node, ast.ClassDef)}


def annotated(node: ast.ClassDef) -> set[str]:
    """Names of the annotated fields of a class, private ones among them."""
    fields = (item.target for item in node.body if isinstance(item, ast.AnnAssign))
    return {target.id for target in fields if isinstance(target, ast.Name)}


def field_parameters(classes: list[ast.ClassDef]) -> dict[str, Any] | None:
    """Public annotated fields, as parameters of the constructor; a derived class wins over its base."""
    parameters: dict[str, Any] = {}
    for node in reversed(classes):
        for item in node.body:
            if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
                name, default = item.target.id, field_default(item.value)
                if not name.startswith("_"):
                    parameters[name] = {"type": ast.unparse(item.annotation), **default}
    return parameters if classes else None


def field_default(value: ast.expr | None) -> dict[str, Any]:
    """The default of a dataclass or pydantic field; nothing when it is required."""
    if value is None:
        return {}
    if not (isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id in ("Field", "field")):
        return {"default": ast.unparse(value)}
    for keyword in value.keywords:
        if keyword.arg in ("default", "default_factory"):
            text = ast.unparse(keyword.value)
            return {"default": text if keyword.arg == "default" else f"{text}()"}
    return {"default": ast.unparse(value.args[0])} if value.args else {}


def method_parameters(classes: list[ast.ClassDef], name: str) -> dict[str, Any] | None:
    """Parameters of a method, without ``self``; ``**kwargs`` keeps its stars."""
    for node in classes:
        for item in node.body:
            if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef) and item.name == name.split(".")[1]:
                return signature(item.args)
    return None


def signature(arguments: ast.arguments) -> dict[str, Any]:
    """Names, annotations and defaults."""
    named = [*arguments.posonlyargs, *arguments.args][1:]
    defaults = [None] * (len(named) - len(arguments.defaults)) + list(arguments.defaults)
    pairs = [*zip(named, defaults, strict=True), *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)]
    parameters: dict[str, Any] = {}
    for argument, default in pairs:
        entry = {"type": ast.unparse(argument.annotation)} if argument.annotation else {}
        parameters[argument.arg] = entry | ({"default": ast.unparse(default)} if default is not None else {})
    if arguments.kwarg:
        parameters[f"**{arguments.kwarg.arg}"] = {}
    return parameters


if __name__ == "__main__":
    main()

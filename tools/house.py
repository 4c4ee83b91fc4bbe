"""``make house``: counts that tell whether the repository is easy to read, and what some of them are held at."""

from __future__ import annotations

import argparse
import ast
import re
import statistics
import subprocess
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from tools.generated_part import by_hand
from tools.import_circles import import_circles
from tools.path_thresholds import Threshold, ThresholdSearch
from tools.source_modules import SourceModule, read_modules

ROOT = Path(__file__).parents[1]
# Citations of the wire contract in a form that tests/docs/test_named_code.py does not follow to its section.
_CITATION = re.compile(r"contract[^\n]{0,12}sections?\s+\d", re.IGNORECASE)
# Upper bounds, which tests/docs/test_house.py holds. A change that adds a capability raises its number in a commit of
# its own, which says why; one that removes code lowers it to what is then counted.
HELD = {
    "gateway_code_lines": 38_442,
    "gateway_ops_code_lines": 15_679,
    "template_lines": 1_248,
    "page_javascript_lines": 1_577,
    "chart_template_lines": 500,
    "public_class_names_twice": 0,
    "path_thresholds": 63,
    "import_circles": 0,
    "words_of_pages": 75_000,
}
# Indented blocks are paragraphs of their own; lines of lists are indented by less.
_CODE_BLOCK = re.compile(r"^ *```.*?^ *```$|^    [^\n]*$", re.DOTALL | re.MULTILINE)
_WORD = re.compile(r"\S*\w\S*")
_JINJA_COMMENT = re.compile(r"\{#.*?#\}", re.DOTALL)
# Names that are not also English words, so that each occurrence is the parameter.
_PARAMETERS = (
    "temperature", "top_p", "top_k", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty",
    "length_penalty", "logit_bias", "bad_words", "stop_token_ids", "include_stop_str_in_output", "min_tokens",
    "ignore_eos", "skip_special_tokens", "prompt_logprobs", "return_token_ids", "num_draft_tokens", "prompt_table",
    "use_beam_search", "best_of", "top_logprobs", "parallel_tool_calls", "tool_choice", "max_completion_tokens",
)  # fmt: skip


def _python(folder: str) -> list[Path]:
    return sorted((ROOT / folder).rglob("*.py"))


def _lines(files: list[Path]) -> int:
    return sum(len(file.read_text().splitlines()) for file in files)


@dataclass(frozen=True)
class HeldMeasures:
    """The measures of ``HELD``, and the lists behind them."""

    code_lines: dict[str, int]
    """By package: without docstrings, comments and blank lines."""
    template_lines: int
    page_javascript_lines: int
    chart_template_lines: int
    """Of the Helm chart, without comments and blank lines."""
    class_names_twice: dict[str, list[str]]
    """Names of public classes that several modules define, with their files."""
    path_thresholds: list[Threshold]
    rejecting_bounds: list[Threshold]
    import_circles: list[str]
    """In the packages, in ``tools``, and in each model's folder."""
    words_of_pages: dict[str, int]
    """Words of ``docs/`` that are written by hand, without blocks of code, by page."""

    @classmethod
    def count(cls) -> HeldMeasures:
        """Count them in ``gateway`` and ``gateway_ops``; chat templates and the table of families are templates."""
        modules = read_modules(ROOT, "gateway", "gateway_ops")
        lines = Counter[str]()
        for module in modules.values():
            lines[module.name.partition(".")[0]] += module.code_lines()
        search = ThresholdSearch(modules)
        circles = import_circles(modules | read_modules(ROOT, "tools"))
        for folder in ROOT.glob("triton_repo/*/1"):
            circles += import_circles(read_modules(folder, ""))
        return cls(
            code_lines=dict(lines),
            template_lines=_template_lines(),
            page_javascript_lines=sum(map(javascript_lines, (ROOT / "gateway" / "api" / "page").rglob("*.js"))),
            chart_template_lines=_chart_template_lines(),
            class_names_twice=_class_names_twice(modules),
            path_thresholds=search.path_thresholds,
            rejecting_bounds=search.rejecting_bounds,
            import_circles=circles,
            words_of_pages=_words_of_pages(),
        )

    def numbers(self) -> dict[str, int]:
        """The numbers that are compared with ``HELD``."""
        return {
            **{f"{package}_code_lines": count for package, count in self.code_lines.items()},
            "template_lines": self.template_lines,
            "page_javascript_lines": self.page_javascript_lines,
            "chart_template_lines": self.chart_template_lines,
            "public_class_names_twice": len(self.class_names_twice),
            "path_thresholds": len(self.path_thresholds),
            "import_circles": len(self.import_circles),
            "words_of_pages": sum(self.words_of_pages.values()),
        }

    def lists(self) -> dict[str, list[str]]:
        """The counted items of each measure, a line each."""
        return {
            "public_class_names_twice": [f"{name}: {', '.join(f)}" for name, f in self.class_names_twice.items()],
            "path_thresholds": list(map(str, self.path_thresholds)),
            "rejecting_bounds": list(map(str, self.rejecting_bounds)),
            "import_circles": self.import_circles,
            "words_of_pages": [f"{count:6} {page}" for page, count in self.words_of_pages.items() if count],
        }

    def growth(self) -> list[str]:
        """The numbers above what they are held at, and what is listed of them."""
        return [
            "\n  ".join([f"{name} has grown to {number}, and {HELD[name]} is held", *self.lists().get(name, ())])
            for name, number in self.numbers().items()
            if number > HELD[name]
        ]


def _template_lines() -> int:
    templates = [*(ROOT / "chat_templates").glob("*.jinja"), *(ROOT / "gateway_ops").rglob("*.jinja")]
    lines = [line for file in templates for line in _JINJA_COMMENT.sub("", file.read_text()).splitlines()]
    for file in (ROOT / "gateway" / "text" / "families").glob("*.yaml"):
        lines += (line for line in file.read_text().splitlines() if not line.lstrip().startswith("#"))
    return sum(bool(line.strip()) for line in lines)


def javascript_lines(file: Path) -> int:
    """Lines of a script without blank ones and those of comments alone."""
    lines = (line.strip() for line in file.read_text().splitlines())
    return sum(bool(line) and not line.startswith("//") for line in lines)


def _chart_template_lines() -> int:
    lines = (
        line.strip() for file in (ROOT / "deploy/helm/templates").iterdir() for line in file.read_text().splitlines()
    )
    return sum(bool(line) and not line.startswith("#") for line in lines)


def _words_of_pages() -> dict[str, int]:
    docs = ROOT / "docs"
    texts = {str(page.relative_to(docs)): by_hand(page.read_text()) for page in sorted(docs.rglob("*.md"))}
    return {page: len(_WORD.findall(_CODE_BLOCK.sub("", text))) for page, text in texts.items()}


def _class_names_twice(modules: dict[str, SourceModule]) -> dict[str, list[str]]:
    files: dict[str, set[str]] = {}
    for module in modules.values():
        for node in module.nodes:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                files.setdefault(node.name, set()).add(module.file)
    return {name: sorted(found) for name, found in sorted(files.items()) if len(found) > 1}


def files_naming(parameter: str) -> int:
    """Files of the server in which a request parameter is named."""
    pattern = re.compile(rf"\b{parameter}\b")
    return sum(pattern.search(file.read_text()) is not None for file in _python("gateway"))


def tracked() -> list[Path]:
    """Text files under version control."""
    names = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [ROOT / name for name in names.splitlines() if Path(name).suffix in {".py", ".md", ".toml", ".yml", ".yaml"}]


def other_measures() -> dict[str, object]:
    """Counts that no test holds, those of a traced request last, which starts a server."""
    from tools.request_trace import trace_request  # noqa: PLC0415 - imports the server, which the test does without

    server = _python("gateway")
    names = Counter(file.name for file in server if file.name != "__init__.py")
    counts = sorted(files_naming(parameter) for parameter in _PARAMETERS)
    request = trace_request()
    return {
        "server_files": len(server),
        "test_lines": _lines(_python("tests")),
        "files_naming_a_parameter": f"{counts[0]} to {counts[-1]} (median {statistics.median(counts):g})",
        "citations_that_cannot_be_opened": sum(
            len(_CITATION.findall(file.read_text(errors="replace"))) for file in tracked() if file.name != "house.py"
        ),
        "file_names_used_more_than_twice": ", ".join(f"{n} {name}" for name, n in sorted(names.items()) if n > 2),
        "request_calls": len(request.calls),
        "request_functions": request.functions,
        "request_files": request.files,
        "request_room_changes": request.room_changes,
    }


def _print_table() -> None:
    held = HeldMeasures.count()
    rows: list[tuple[str, object, object]] = [("measure", "value", "held")]
    rows += ((name, number, HELD[name]) for name, number in held.numbers().items())
    rows.append(("rejecting_bounds", len(held.rejecting_bounds), ""))
    rows += ((name, value, "") for name, value in other_measures().items())
    for name, value, limit in rows:
        print(f"{name:<46}{value!s:>9}{limit!s:>9}".rstrip())


def main() -> None:
    """Print the counts, what is listed of them, or the calls of the traced request."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", action="store_true", help="print each call of the traced request")
    parser.add_argument("--list", action="store_true", help="print thresholds and class names one by one")
    options = parser.parse_args()
    if options.calls:
        from tools.request_trace import trace_request  # noqa: PLC0415 - imports the whole server

        for file, name in trace_request().calls:
            print(f"{file}:{name}")
    elif options.list:
        for name, lines in HeldMeasures.count().lists().items():
            print("\n  ".join([f"{name}: {len(lines)}", *lines]))
    else:
        _print_table()


if __name__ == "__main__":
    main()

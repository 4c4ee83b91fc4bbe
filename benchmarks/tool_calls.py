"""The share of simple prompts for which SmolLM2-135M-Instruct calls a tool, by the way in which tools are shown to it.

    OPENBLAS_NUM_THREADS=1 nice -n 10 .venv/bin/python benchmarks/tool_calls.py [--temperature T --top-p P] [WAY ...]

One tool stands beside each prompt: 50 prompts need it, 20 do not. Half of the answers are greedy, half are drawn, at
OpenAI's default of temperature 1 unless told otherwise; none is longer than 60 tokens. Then ten calls get results.
The embedded model's template is read by its family, the other ways more kindly than by any. It takes some minutes.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter
from collections.abc import Mapping
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import jsonschema

from gateway.text.families import CallArguments, CallStart, Tool, ToolPlan
from gateway.text.families.family_table import FAMILIES
from gateway.text.prompt import ChatTemplate
from gateway.text.tokens import Tokenizer
from gateway_ops.local_stack.smollm2 import CHAT_TEMPLATE, ensure_model_folder

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "triton_repo" / "tensorrt_llm" / "1"))

from cpu_double.llama import Llama
from cpu_double.reference_engine import Limits, ReferenceEngine
from wire.request import Request, Sampling

HERE = Path(__file__).resolve().parent
MAX_TOKENS = 60
BEGINNING = 8
CALL = re.compile(r"\s*(`|<|\[|\{)")
EMBEDDED = "the embedded model's template"
ARGUMENTS = "{% for name in f.parameters.properties %}{{ ', ' if not loop.first }}\"{{ name }}\": ...{% endfor %}"
EXAMPLE = '{"name": "{{ f.name }}", "arguments": { ' + ARGUMENTS + " }}"  # {% may not touch another brace
SYSTEM_TEXTS = {
    # The structure is that of the prompts which the model's makers gave for its larger sister; the words are ours.
    "a list of calls between tags": (
        "You write function calls. Call those of these functions that answer the question:\n<tools>[{{ f | tojson }}]"
        '</tools>\nAnswer with nothing but a list, which is empty where no function helps:\n<tool_call>[\n{"name": '
        '"function", "arguments": {"argument": "value"}}\n]</tool_call>'
    ),
    "plain JSON": (
        "You have a function: {{ f | tojson }}\nTo call it, answer with nothing but JSON: "
        '{"name": "function", "arguments": {"argument": "value"}}'
    ),
    "a short definition, an example of its call": (
        "You have a function: {{ f.name }}({{ f.parameters.properties | join(', ') }}). {{ f.description }}\n"
        "To call it, answer with nothing but:\n<tool_call>\n" + EXAMPLE + "\n</tool_call>"
    ),
    "a definition, a dialogue as example": (
        "You have a function: {{ f | tojson }}\nAn example:\nUser: {{ f.description }}\nAssistant: <tool_call>"
        + EXAMPLE
        + "</tool_call>\nUser: Hello!\nAssistant: Hello! How can I help you?"
    ),
}
TURNS = "<|im_end|>\n<|im_start|>user\n{{ messages[0].content }}<|im_end|>\n<|im_start|>assistant{{ '\n' }}"
WAYS = {
    EMBEDDED: CHAT_TEMPLATE,
    "chat_templates/hermes.jinja": (HERE.parent / "chat_templates" / "hermes.jinja").read_text(encoding="utf-8"),
    **{
        name: "{% set f = tools[0].function %}<|im_start|>system\n" + text + TURNS
        for name, text in SYSTEM_TEXTS.items()
    },
}


class Asked(NamedTuple):
    """A conversation beside one tool: what it is, the function, and what the arguments or the answer should have."""

    kind: str
    function: dict[str, Any]
    messages: list[dict[str, Any]]
    wanted: list[str]


def conversations() -> list[Asked]:
    """Those of tool_calls.json."""
    found = []
    for tool in json.loads((HERE / "tool_calls.json").read_text(encoding="utf-8")):
        function = tool["function"]
        found += [Asked("call", function, [_user(text)], wanted) for text, wanted in tool["calls"]]
        found += [Asked("plain", function, [_user(text)], []) for text in tool["plain"]]
        for result, (text, wanted) in zip(tool["results"], tool["calls"], strict=False):
            arguments = dict(zip(function["parameters"]["properties"], wanted, strict=False))
            call = {"type": "function", "function": {"name": function["name"], "arguments": arguments}}
            turn = [{"role": "assistant", "content": "", "tool_calls": [call]}, {"role": "tool", "content": result}]
            found.append(Asked("result", function, [_user(text), *turn], [result]))
    return found


def _user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


class Model:
    """The embedded model in the reference engine."""

    def __init__(self, temperature: float = 1.0, top_p: float = 1.0) -> None:
        """Read the weights; drawn answers are drawn so."""
        self._drawn = temperature, top_p
        folder = ensure_model_folder()
        self.tokenizer = Tokenizer.from_folder(folder)
        self._engine = ReferenceEngine(Llama(folder), Limits(2048, max_queue_size=100, kv_reuse_blocks=1000))

    def answers(self, prompts: Mapping[int, str], most: int) -> dict[int, str]:
        """The answers, of at most so many tokens, by the numbers of their prompts: of even ones greedy, else drawn."""
        ids: dict[Any, list[int]] = {}
        end, other = self.tokenizer.eos_ids
        ordered = sorted(prompts)
        for numbers in (ordered[:1], ordered[1:]):  # what all prompts begin with is computed once
            for number in numbers:
                temperature, top_p = self._drawn
                drawn = Sampling(temperature, top_p=top_p, seed=number)
                sampling = drawn if number % 2 else Sampling(top_k=1)
                prompt = self.tokenizer.encode(prompts[number])
                self._engine.submit(Request("", prompt, most, end, ((other,),), sampling, handle=number))
            while self._engine.busy:
                ids |= {response.request.handle: response.ids for response in self._engine.step()}
        return {number: self.tokenizer.decode(ids[number]) for number in prompts}


def read_by_family(text: str, function: dict[str, Any]) -> Any:
    """The arguments of the first call, as the gateway finds it; None where there is none."""
    family = FAMILIES["hermes"]
    plan = ToolPlan(tools=(Tool(function["name"], parameters=function["parameters"]),), choice="auto")
    parser = family.parser(plan, family.prepare(plan), "")
    events = [*parser.feed(text), *parser.finish(cut=False)]
    if not any(isinstance(event, CallStart) for event in events):
        return None
    return json.loads("".join(event.text for event in events if isinstance(event, CallArguments) and event.index == 0))


def read_kindly(text: str, function: dict[str, Any]) -> Any:
    """The arguments of a call that the text begins with, with tags and brackets or without."""
    begin = re.match(r"\s*(```json)?\s*(<tool_call>)?[\s\[]*(?=\{)", text)
    try:
        value = json.JSONDecoder().raw_decode(text, begin.end())[0] if begin else {}
    except ValueError:
        return None
    return value.get("arguments") if value.get("name") == function["name"] else None


def judged(way: str, asked: Asked, text: str) -> list[str]:
    """What an answer counts as."""
    arguments = (read_by_family if way == EMBEDDED else read_kindly)(text, asked.function)
    if asked.kind == "result":
        return ["called"] if arguments is not None else ["said"] if asked.wanted[0] in text else []
    if arguments is None:
        return []
    if not jsonschema.Draft202012Validator(asked.function["parameters"]).is_valid(arguments):
        return ["called"]
    given = json.dumps(arguments).lower()
    return ["called", "valid", *(["right"] if all(word.lower() in given for word in asked.wanted) else [])]


def measure(model: Model, way: str, *, show: bool) -> str:
    """A row of the table; its counts are of greedy and of drawn answers."""
    template = ChatTemplate(WAYS[way], model.tokenizer)
    counts: Counter[tuple[str, str, int]] = Counter()
    for _, group in groupby(conversations(), key=lambda asked: asked.function["name"]):
        listed = [asked for asked in group if way == EMBEDDED or asked.kind != "result"]
        tools = [{"type": "function", "function": listed[0].function}]
        prompts = {place: template.render(asked.messages, tools=tools) for place, asked in enumerate(listed)}
        texts = model.answers(prompts, MAX_TOKENS if way == EMBEDDED else BEGINNING)
        if way != EMBEDDED:  # what does not begin as a call is not waited for
            texts |= model.answers({place: prompts[place] for place in texts if CALL.match(texts[place])}, MAX_TOKENS)
        for place, asked in enumerate(listed):
            text = texts[place]
            found = judged(way, asked, text)
            counts.update((asked.kind, word, place % 2) for word in found)
            if show:
                print(f"{asked.kind} {found} {asked.messages[0]['content']} -> {text!r}", file=sys.stderr)

    def cell(kind: str, word: str) -> str:
        return f"{counts[kind, word, 0]} + {counts[kind, word, 1]}"

    cells = [cell("call", "valid"), cell("call", "right"), cell("plain", "called")]
    cells += [cell("result", "said"), cell("result", "called")] if way == EMBEDDED else ["", ""]
    return f"| {way} | {' | '.join(cells)} |"


def main() -> None:
    """Read the options and measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ways", nargs="*", default=list(WAYS), metavar="WAY", help="; ".join(WAYS))
    parser.add_argument("--show", action="store_true", help="every answer")
    parser.add_argument("--temperature", type=float, default=1.0, help="of the drawn answers")
    parser.add_argument("--top-p", type=float, default=1.0, help="of the drawn answers")
    options = parser.parse_args()
    model = Model(options.temperature, options.top_p)
    print("| way | valid calls, of 25 + 25 | right | calls, of 10 + 10 plain | results said, of 5 + 5 | again |")
    print("|---|---|---|---|---|---|")
    for way in options.ways:
        print(measure(model, way, show=options.show), flush=True)


if __name__ == "__main__":
    main()

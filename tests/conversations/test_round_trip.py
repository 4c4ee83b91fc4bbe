"""An answer that is sent back as history is taken and shown as the template shows it: whole, cut, with calls."""

from __future__ import annotations

import dataclasses
import functools
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, pre_tokenizers

from gateway.generation import EngineChunk, GenerationRequest
from gateway.serving.capabilities import capabilities
from gateway.text.families.family_choice import FamilyChoice
from gateway.text.families.family_table import FAMILIES
from gateway.text.prompt import ChatTemplate, PromptBuilder, TemplateAbilities, history
from tests.app.scripted import Step, write_tokenizer
from tests.conversations.clients import Answer, Chat, Client, Messages, Responses, headers, named
from tests.conversations.public_templates import public_templates
from tests.conversations.test_control_tokens import _COMMON, _LOOKS, harmless
from tests.families.harness import Case, all_cases, cases, families_recorded
from tests.openai.responses_harness import Engine, running
from tests.openai.tools_harness import GUIDED, UNGUIDED, guided_text, tool
from tests.prompt.traits import SHIPPED, TRAITS
from tests.rings import examples
from tests.tokens.build import FIXED

CASES = all_cases()
_SHIPPED = {path.stem: path.read_text() for path in SHIPPED.glob("*.jinja")}
_SHOWS_NO_SYSTEM = {"silent"}
NAMES = sorted({*_SHIPPED, *TRAITS})
CLIENTS: dict[str, Client] = {
    "chat": Chat(), "responses": Responses(), "messages": Messages(), "messages, unparsed": Messages(unparsed=True)
}  # fmt: skip
_MARKERS = sorted({marker for case in CASES for marker in case.markers}, key=lambda text: (-len(text), text))
_CUT_AT = re.compile(f"({'|'.join(map(re.escape, _MARKERS))})")
_LEGAL = re.compile("[a-zA-Z0-9_-]{1,64}")
_ASK = "ask1"
_CONTEXT = 65_536  # tokens, which are bytes


def source(name: str) -> str:
    return _SHIPPED.get(name) or TRAITS.get(name) or public_templates()[name]


def write_folder(path: Path) -> Path:
    """Bytes are tokens, and so are the control tokens of all families and templates."""
    write_tokenizer(path)
    tokenizer = Tokenizer.from_file(str(path / "tokenizer.json"))
    looks = {text for each in (*_SHIPPED.values(), *TRAITS.values()) for text in _LOOKS.findall(each)}
    texts = sorted({*looks, *_COMMON, *_MARKERS} - {text for text in looks if "{" in text})
    tokenizer.add_special_tokens([AddedToken(text, normalized=False) for text in texts])
    tokenizer.save(str(path / "tokenizer.json"))
    config = json.loads((path / "tokenizer_config.json").read_text())
    (path / "tokenizer_config.json").write_text(json.dumps(config | {"bos_token": "<s>"}))
    return path


class Talk:
    """A gateway that can serve each family with each template, and what its engine says."""

    def __init__(self, engine: Engine, gateway: Any, folder: Path) -> None:
        self.gateway = gateway
        self._engine = engine
        self._vocab = Tokenizer.from_file(str(folder / "tokenizer.json")).get_vocab()
        self._bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        self._ids: list[int] = []
        gateway.engine.script = self._script

    def serve(self, family: str, template: str) -> None:
        """Be a model of this family and template from now on."""
        model = self.gateway.model
        prompts = _prompts(template, model.parts.tokenizer)
        choice = FamilyChoice(FAMILIES[family], "the test")
        model._parts = dataclasses.replace(model.parts, prompts=prompts, choice=choice)
        model.reasons = choice.family.reasons
        model._capabilities = capabilities(model.backend.features, model._parts, model.settings)

    def say(self, text: str) -> int:
        """Have the engine answer this; returns its tokens."""
        self._ids = []
        for piece in _CUT_AT.split(text):
            own = [self._vocab[piece]] if piece in _MARKERS else map(self._vocab.__getitem__, self._of_bytes(piece))
            self._ids += own
        return len(self._ids)

    def post(self, client: Client, body: dict[str, Any], status: int = 200) -> httpx.Response:
        asked = self.gateway.client.post(client.path, json=body, headers=headers(client))
        response: httpx.Response = self._engine.loop.run_until_complete(asked)
        assert response.status_code == status, (response.text, json.dumps(body))
        return response

    @property
    def can_call(self) -> bool:
        """Whether calls may be left to the model."""
        return self.template.shows_tools and self.gateway.model.parts.family.name not in {"plain", "think"}

    @property
    def abilities(self) -> TemplateAbilities:
        return self.template.abilities(tools=self.template.shows_tools)

    @property
    def template(self) -> ChatTemplate:
        found: ChatTemplate = self.gateway.model.parts.prompts.template
        return found

    @property
    def prompt(self) -> Any:
        return self.gateway.engine.requests[-1].prompt

    def control_ids(self) -> list[int]:
        tokenizer = self.gateway.model.parts.tokenizer
        return [index for index in self.prompt.ids if tokenizer.is_special(index)]

    def _of_bytes(self, text: str) -> str:
        return "".join(piece for piece, _ in self._bytes.pre_tokenize_str(text))

    def _script(self, request: GenerationRequest) -> list[Step]:
        return [*(EngineChunk(ids=[index]) for index in self._ids[: request.max_tokens]), EngineChunk(final=True)]


@functools.cache
def _prompts(template: str, tokenizer: Any) -> PromptBuilder:
    return PromptBuilder(tokenizer, ChatTemplate(source(template), tokenizer))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_folder(tmp_path_factory.mktemp("round-trip"))


@pytest.fixture(scope="module")
def talk(folder: Path) -> Iterator[Talk]:
    with running(folder, dataclasses.replace(UNGUIDED, max_seq_len=_CONTEXT), _CONTEXT) as (engine, gateway):
        yield Talk(engine, gateway, folder)


@pytest.fixture(scope="module")
def guided(folder: Path) -> Iterator[Talk]:
    with running(folder, dataclasses.replace(GUIDED, max_seq_len=_CONTEXT), _CONTEXT) as (engine, gateway):
        yield Talk(engine, gateway, folder)


def tools_of(case: Case, *, plain: bool) -> list[dict[str, Any]]:
    """The tools of a case; ``plain`` ones are described as each template wants it, their values being strings."""
    found = []
    for each in case.turn.tools:
        parameters = each.parameters or {"type": "object"}
        if plain:
            names = parameters.get("properties") or {"place": {}}
            described = {name: {"type": "string", "description": "Some."} for name in names}
            parameters = {"type": "object", "properties": described, "required": []}
        function = {"name": each.name, "parameters": parameters} | ({"description": "Does."} if plain else {})
        if _LEGAL.fullmatch(each.name):
            found.append({"type": "function", "function": function})
    return found


def forms(text: str) -> set[str]:
    """A text as it is, and as it stands in JSON, or in JSON that is a text of JSON."""
    found = {text}
    for _ in range(2):
        found |= {json.dumps(each, ensure_ascii=plain)[1:-1] for each in found for plain in (True, False)}
    return found


def leaves(value: Any) -> Iterator[str]:
    """Keys and texts of a JSON value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, each in value.items():
            yield key
            yield from leaves(each)
    elif isinstance(value, list):
        for each in value:
            yield from leaves(each)


def pieces_of(arguments: str) -> list[str]:
    """What of the arguments must be shown: keys and texts of an object, else all of it."""
    try:
        found = json.loads(arguments)
    except ValueError:
        return [arguments]
    return list(leaves(found)) if isinstance(found, dict) else [arguments]


def check_is_shown(talk: Talk, answer: Answer, tools: Sequence[dict[str, Any]], *, asked_again: bool) -> None:
    prompt = talk.prompt.text
    wanted = [*answer.texts, *(call[1] for call in answer.calls)]
    wanted += [piece for call in answer.calls if call[2].strip() not in prompt for piece in pieces_of(call[2])]
    wanted += [f"result{place}" for place, _ in enumerate(answer.calls)]
    if answer.thoughts and shows_thoughts(talk, answer, tools, asked_again=asked_again):
        wanted += answer.thoughts
    missing = [each for each in wanted if not any(form.strip() in prompt for form in forms(each))]
    assert not missing, (missing, answer, prompt)


def shows_thoughts(talk: Talk, answer: Answer, tools: Sequence[dict[str, Any]], *, asked_again: bool) -> bool:
    """Whether the template shows reasoning in such a place."""
    turn: dict[str, Any] = {"role": "assistant", "content": "".join(answer.texts), "reasoning": "thought1"}
    results = []
    if answer.calls:
        turn["tool_calls"] = [
            {"id": each[0], "type": "function", "function": {"name": each[1], "arguments": each[2]}}
            for each in answer.calls
        ]
        results = [{"role": "tool", "tool_call_id": each[0], "content": "of"} for each in answer.calls]
    again = [{"role": "user", "content": "ask2"}] if asked_again else []
    messages = [{"role": "user", "content": _ASK}, turn, *results, *again]
    abilities = talk.template.abilities(tools=bool(tools))
    return "thought1" in talk.template.render(history(messages, abilities), tools=tools or None)


def check_names(talk: Talk, names: Sequence[str], answer: Answer) -> None:
    """Nothing is named but texts that stand elsewhere because the template has no other place."""
    abilities = talk.abilities
    moves = ("tool" in abilities.joins and answer.calls) or (
        abilities.text_with_calls == "previous" and answer.calls and answer.texts
    )
    assert not names or moves, names
    assert all(re.fullmatch(r"(?:messages|input)\[[1-9]\](?:\.content.*)?", name) for name in names), names


def take_back(
    talk: Talk, client: Client, tools: Sequence[dict[str, Any]], *, limit: int = 20_000, stream: bool = False,
    left: int | None = None, choice: str = "auto",
) -> Answer:  # fmt: skip
    """Ask, take the answer as the client does, send it back, and check what the model sees of it."""
    asked = [client.user(_ASK)]
    response = talk.post(client, client.body(asked, tools, limit, choice) | ({"stream": True} if stream else {}))
    answer = client.streamed(response.text, left) if stream else client.whole(response.json())
    said = talk.say("Good.")
    results = client.results(answer)
    again = [client.user("ask2")]
    later = tools if talk.can_call else []
    for more in [[*results, *again], results] if results else [again]:
        sent = [*asked, *answer.items, *more]
        check_names(talk, named(talk.post(client, client.body(sent, later, said, "auto"))), answer)
        check_is_shown(talk, answer, later, asked_again=more[-1:] == again)
        control = talk.control_ids()
        talk.post(client, client.body([*asked, *harmless(answer.items), *more], later, said, "auto"))
        assert control == talk.control_ids(), (answer, sent)
    return answer


@pytest.mark.parametrize("turn", [0, *(pytest.param(turn, marks=pytest.mark.long) for turn in range(1, 12))])
def test_an_answer_of_each_family_is_taken_back(talk: Talk, turn: int) -> None:
    """Each turn takes a third of the families; each family has each client once."""
    for place, family in enumerate(families_recorded()):
        if place % 3 != turn % 3:
            continue
        talk.serve(family, NAMES[(place + turn) % len(NAMES)])
        case = cases(family)[(place + turn) % len(cases(family))]
        talk.say(case.output)
        client = [*CLIENTS.values()][(place + turn // 3) % len(CLIENTS)]
        take_back(talk, client, tools_of(case, plain=False) if talk.can_call else [])


def check_cut(talk: Talk, data: st.DataObject, template: str, *, plain: bool = False) -> None:
    """Take back an answer that is cut by length, or of whose stream the client has read a part."""
    case = data.draw(st.sampled_from(CASES))
    talk.serve(case.family.name, template)
    count = talk.say(case.output)
    limit = data.draw(st.just(20_000) | st.integers(1, max(count, 1)))
    stream = data.draw(st.booleans())
    left = data.draw(st.none() | st.integers(1, 12)) if stream else None
    client = CLIENTS[data.draw(st.sampled_from(sorted(CLIENTS)))]
    tools = tools_of(case, plain=plain) if talk.can_call else []
    assume(tools or not template.endswith("-tool_use"))  # which fail without tools
    take_back(talk, client, tools, limit=limit, stream=stream, left=left)


@settings(FIXED, max_examples=examples(60))
@given(st.data())
def test_an_answer_that_is_cut_or_left_is_taken_back(talk: Talk, data: st.DataObject) -> None:
    check_cut(talk, data, data.draw(st.sampled_from(NAMES)))


@pytest.mark.long
@settings(FIXED, max_examples=examples(500))
@given(st.data())
def test_an_answer_that_is_cut_or_left_is_taken_back_by_public_templates(talk: Talk, data: st.DataObject) -> None:
    check_cut(talk, data, data.draw(st.sampled_from([*NAMES, *sorted(public_templates())])), plain=True)


@settings(FIXED, max_examples=examples(36))
@given(st.data())
def test_demanded_calls_that_are_cut_are_taken_back(guided: Talk, data: st.DataObject) -> None:
    """A guide makes each call whole but for the last one, whose arguments end anywhere."""
    texts = st.text('ab <>{}"\\é🙂', max_size=6)
    call = st.tuples(st.sampled_from(["weather", "time"]), st.dictionaries(texts, texts, max_size=2))
    calls = data.draw(st.lists(call, min_size=1, max_size=2))
    guided.serve("hermes", data.draw(st.sampled_from(NAMES)))
    count = guided.say(guided_text(*calls))
    stream = data.draw(st.booleans())
    client = CLIENTS[data.draw(st.sampled_from(sorted(CLIENTS)))]
    limit = data.draw(st.integers(1, count))
    take_back(guided, client, [tool("weather"), tool("time")], limit=limit, stream=stream, choice="required")

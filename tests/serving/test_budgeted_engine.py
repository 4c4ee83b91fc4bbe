"""A thought that has used its budget is ended: any budget, any chunks, markers of the model's own and broken calls."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.generation import EngineChunk, EngineFeatures, GenerationRequest, SamplingParams, SequenceAssembler
from gateway.generation.engine import ForcedChunk
from gateway.serving.answer_reader import AnswerReader, PreparedTurn, prepare
from gateway.serving.budgeted_engine import BudgetedEngine
from gateway.text.families import Content, Reasoning, Tool, ToolPlan
from gateway.text.families.family_table import FAMILIES
from gateway.text.families.model_family import ModelFamily
from gateway.text.prompt.prompt import Prompt
from gateway.text.tokens import Tokenizer
from tests.app.scripted import TOKENS, write_tokenizer
from tests.chat_templates.conversation import template

OPENED, FREE = "<|im_start|>assistant\n<think>\n", "<|im_start|>assistant\n"
END = "</think>\n\n"
GPT_OSS = template("gpt_oss").render([{"role": "user", "content": "Hi"}])


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return Tokenizer.from_folder(write_tokenizer(tmp_path_factory.mktemp("budgets")))


@dataclasses.dataclass
class Thinking:
    """An engine that says one text, and another one behind the end of a thought; its chunks have the sizes given."""

    tokenizer: Tokenizer
    thought: str
    answer: str
    sizes: list[int]
    end: str = END
    requests: list[GenerationRequest] = dataclasses.field(default_factory=list)
    closed: int = 0

    @property
    def features(self) -> EngineFeatures:
        return TOKENS

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[EngineChunk, None]:
        self.requests.append(request)
        text = self.answer if len(self.requests) > 1 or self._ended(request) else self.thought
        ids = self.tokenizer.encode(text)[: request.max_tokens]
        logprobs = [-0.5] * len(ids) if request.params.logprobs else None
        try:
            at = 0
            for size in (self.sizes * len(ids))[: len(ids)] or [1]:
                part = ids[at : at + size]
                at += size
                final = at >= len(ids)
                yield EngineChunk(
                    ids=part,
                    logprobs=None if logprobs is None else logprobs[: len(part)],
                    prompt_tokens=len(request.prompt.ids),
                    final=final,
                    cached_tokens=len(request.prompt.ids) if final else None,
                )
                if final:
                    break
        finally:
            self.closed += 1

    def _ended(self, request: GenerationRequest) -> bool:
        return self.tokenizer.decode(request.prompt.ids, skip_special_tokens=False).endswith(self.end)


class Run:
    """One answer, read to its end."""

    def __init__(
        self,
        engine: Thinking,
        prompt: str,
        budget: int,
        *,
        most: int = 500,
        name: str = "qwen3",
        logprobs: bool = False,
    ) -> None:
        self.engine = engine
        family = FAMILIES[name]
        assert isinstance(family, ModelFamily)
        tokenizer = engine.tokenizer
        turn = prepare(ToolPlan(), family, prompt, eager=False)
        params = SamplingParams(thinking_token_budget=budget, logprobs=logprobs, return_token_ids=True, min_tokens=1)
        params = turn.apply(params, tokenizer)
        self.request = GenerationRequest(
            "r",
            Prompt(prompt, tuple(tokenizer.encode(prompt))),
            most,
            params,
            end_ids=(257,),
            seed=7,
            cached_tokens=True,
        )
        self.reader = turn.reader(params)
        self.assembler = SequenceAssembler(self.request, tokenizer, self.reader)
        self.forced = 0
        self.entries = 0
        asyncio.run(self._read(turn, params))

    async def _read(self, turn: PreparedTurn, params: SamplingParams) -> None:
        budget = turn.thought_budget(params, self.engine.tokenizer)
        assert budget is not None
        async for chunk in BudgetedEngine(self.engine, budget, self.reader).generate(self.request):
            self.forced += isinstance(chunk, ForcedChunk)
            piece = self.assembler.feed(chunk)
            self.entries += len(piece.logprobs) if piece else 0
            if self.assembler.stopped or chunk.final:
                break
        piece = self.assembler.finish()
        self.entries += len(piece.logprobs) if piece else 0
        self.reader.close(cut=self.assembler.finish_reason == "length")
        events = self.reader.take()
        self.reasoning = "".join(event.text for event in events if isinstance(event, Reasoning))
        self.content = "".join(event.text for event in events if isinstance(event, Content))


sizes = st.lists(st.integers(1, 40), min_size=1, max_size=4)
words = st.text(st.sampled_from("ab <>/think\né"), min_size=1, max_size=20).filter(lambda text: "think>" not in text)


@given(words, st.integers(0, 60), sizes, st.booleans())
def test_a_thought_has_its_budget_and_no_more(
    tokenizer: Tokenizer, thought: str, budget: int, sizes: list[int], opened: bool
) -> None:
    own = f"{thought}</think>"
    before = "" if opened else "<think>"
    engine = Thinking(tokenizer, f"{before}{own}\n\nYes.", "Yes.", sizes)
    run = Run(engine, OPENED if opened else FREE, budget)
    needed = len(own.encode())
    assert run.content == "Yes."
    assert run.forced == (budget < needed)
    reasoned = own.encode()[:budget].decode(errors="replace") if run.forced else thought
    assert run.reasoning.replace("\ufffd", "") == reasoned.strip().replace("\ufffd", "")
    assert (run.reader.reasoning_tokens or 0) <= budget
    usage = run.assembler.usage
    spent = len(before) + (budget + len(END) if run.forced else needed + 2) + len("Yes.")
    assert (usage.completion_tokens, usage.prompt_tokens) == (spent, len(run.request.prompt.ids))
    assert len(run.assembler.token_ids) == spent
    assert run.assembler.finish_reason == "stop"
    # What the engine said of the prompt that was made longer is not told.
    assert usage.cached_tokens == (None if run.forced else len(run.request.prompt.ids))
    assert len(engine.requests) == engine.closed == 1 + (run.forced and (budget > 0 or not opened))


@given(st.integers(0, 30), st.integers(1, 60), sizes)
def test_all_limits_hold_together(tokenizer: Tokenizer, budget: int, most: int, sizes: list[int]) -> None:
    engine = Thinking(tokenizer, "x" * 100, "y" * 100, sizes)
    run = Run(engine, OPENED, budget, most=most)
    assert run.assembler.usage.completion_tokens == most
    assert run.assembler.finish_reason == "length"
    forced = budget + len(END) < most  # else there is no room for an answer
    assert run.forced == forced
    assert (run.reasoning, run.content) == (
        ("x" * budget, "y" * (most - budget - len(END))) if forced else ("x" * most, "")
    )


def test_the_second_request_goes_on_where_the_first_one_ended(tokenizer: Tokenizer) -> None:
    engine = Thinking(tokenizer, "x" * 100, "Yes.", [1])
    run = Run(engine, OPENED, 10)
    first, second = engine.requests
    assert second.prompt.ids == (*first.prompt.ids, *tokenizer.encode("x" * 10 + END))
    assert second.max_tokens == first.max_tokens - 10 - len(END)
    assert (first.params.min_tokens, second.params.min_tokens) == (1, 0)
    assert first.id != second.id
    assert first.seed != second.seed
    assert run.assembler.token_ids == tokenizer.encode("x" * 10 + END + "Yes.")
    again = Thinking(tokenizer, "x" * 100, "Yes.", [3])
    Run(again, OPENED, 10)
    assert [each.seed for each in again.requests] == [first.seed, second.seed]


def test_the_marker_has_no_log_probs(tokenizer: Tokenizer) -> None:
    run = Run(Thinking(tokenizer, "x" * 100, "Yes.", [2]), OPENED, 10, logprobs=True)
    assert run.entries == 10 + len("Yes.")


def test_a_prompt_without_a_thought_has_nothing_to_end(tokenizer: Tokenizer) -> None:
    engine = Thinking(tokenizer, "", "Yes.", [1])
    run = Run(engine, OPENED + "</think>\n\n", 0)
    assert (run.content, run.reasoning, run.forced, len(engine.requests)) == ("Yes.", "", 0, 1)


def test_an_answer_without_a_thought_has_nothing_to_end(tokenizer: Tokenizer) -> None:
    run = Run(Thinking(tokenizer, "No thought.", "", [4]), FREE, 0)
    assert (run.content, run.forced) == ("No thought.", 0)


def test_an_end_of_turn_within_the_thought_ends_the_answer(tokenizer: Tokenizer) -> None:
    engine = Thinking(tokenizer, "xx<|im_end|>xxxxxxxxxxxx", "Yes.", [20])
    run = Run(engine, OPENED, 10)
    assert (run.reasoning, run.content, run.forced, run.assembler.finish_reason) == ("xx", "", 0, "stop")


@pytest.mark.parametrize(
    "name", [name for name, family in FAMILIES.items() if isinstance(family, ModelFamily) and family.tags]
)
def test_every_family_with_tags_ends_its_thoughts(tokenizer: Tokenizer, name: str) -> None:
    family = FAMILIES[name]
    assert isinstance(family, ModelFamily)
    assert family.tags is not None
    run = Run(Thinking(tokenizer, "x" * 50, "Yes.", [3]), f"<|im_start|>assistant\n{family.tags.open}\n", 10, name=name)
    assert (run.reasoning, run.content, run.forced) == ("x" * 10, "Yes.", 1)


@pytest.mark.parametrize("name", ["qwen3", "harmony"])
@pytest.mark.parametrize("choice", ["auto", "required"])
def test_the_guide_behind_a_thought_has_no_other_one(name: str, choice: Any) -> None:
    family = FAMILIES[name]
    assert isinstance(family, ModelFamily)
    tool = Tool("f", None, {"type": "object", "properties": {}, "additionalProperties": False}, strict=True)
    kinds = frozenset({"json_schema", "structural_tag"})
    plan = ToolPlan((tool,), choice, guide_types=kinds)
    guide = family.prepare(plan, GPT_OSS if name == "harmony" else OPENED).guide
    assert guide is not None
    assert any(text in guide.text for text in ("</think>", "analysis"))
    end = family.thought_end(plan)
    assert end is not None
    assert end.guide is not None
    assert end.guide.kind == "structural_tag"
    assert not any(text in end.guide.text for text in ("</think>", "analysis"))


@pytest.mark.parametrize("opened", [False, True], ids=["free", "opened"])
@pytest.mark.parametrize("budget", [0, 1, 10])
def test_harmony_ends_its_analysis_and_says_the_answer(tokenizer: Tokenizer, budget: int, opened: bool) -> None:
    prompt, header = GPT_OSS, "<|channel|>analysis<|message|>"
    engine = Thinking(tokenizer, "x" * 50 if opened else header + "x" * 50, "Yes.", [3])
    engine.end = "<|start|>assistant<|channel|>final<|message|>"
    run = Run(engine, prompt + header if opened else prompt, budget, name="harmony")
    assert (run.reasoning, run.content, run.forced) == ("x" * budget, "Yes.", 1)


def test_a_reader_without_reasoning_never_thinks() -> None:
    family = FAMILIES["hermes"]
    turn = prepare(ToolPlan(), family, FREE, eager=False)
    reader: AnswerReader = turn.reader(SamplingParams())
    reader.push("<think>x")
    assert not reader.thinking

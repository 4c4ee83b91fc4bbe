"""Ids beyond the vocabulary stand for rows of the prompt table (p-tuning)."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from cpu_double.kv_cache import BLOCK
from cpu_double.llama import Chunk, Llama
from cpu_double.reference_engine import Limits, ReferenceEngine
from tests.engine.tensors import read
from wire.request import PromptTable, RejectedError, Request, Sampling

WORDS = [20, 21, 22, 23]


@pytest.fixture(scope="module")
def embedding(tiny_model_dir) -> NDArray[np.float32]:
    table: NDArray[np.float32] = load_file(tiny_model_dir / "model.safetensors")["model.embed_tokens.weight"]
    return table


@pytest.fixture(scope="module")
def rows(embedding) -> NDArray[np.float32]:
    """Three rows that are no token's embedding."""
    shape = (3, embedding.shape[1])
    return np.random.default_rng(1).normal(0, embedding.std() * 3, shape).astype(np.float16).astype(np.float32)


def test_a_row_that_is_a_token_s_embedding_is_that_token(generate, embedding, tiny) -> None:
    vocab = tiny.config.vocab
    table = PromptTable(embedding[[WORDS[2], WORDS[0]]])
    (plain,) = generate(Request("", WORDS, 12, log_probs=True))
    tuned_prompt = [vocab + 1, WORDS[1], vocab, WORDS[3]]
    (tuned,) = generate(Request("", tuned_prompt, 12, log_probs=True, prompt_table=table))
    assert tuned.ids == plain.ids
    assert tuned.log_probs == pytest.approx(plain.log_probs, abs=1e-4)


def test_rows_compute_what_a_larger_vocabulary_would(tiny_model_dir, tmp_path, tiny, rows) -> None:
    vocab = tiny.config.vocab
    prompt = [vocab, vocab + 1, *WORDS, vocab + 2]
    wider = Llama(_widened(tiny_model_dir, tmp_path / "wider", rows))
    expected = wider.forward([Chunk(prompt, wider.new_cache(), len(prompt))])[:, :vocab]
    chunks = [Chunk(WORDS, tiny.new_cache(), 0), Chunk(prompt, tiny.new_cache(), len(prompt), None, rows)]
    np.testing.assert_allclose(tiny.forward(chunks), expected, atol=1e-4)


def _widened(folder: Path, target: Path, rows: NDArray[np.float32]) -> Path:
    """The model with the rows as further tokens of its vocabulary."""
    shutil.copytree(folder, target)
    weights = load_file(folder / "model.safetensors")
    for name, more in (("model.embed_tokens.weight", rows), ("lm_head.weight", np.zeros_like(rows))):
        weights[name] = np.concatenate([weights[name], more])
    save_file(weights, target / "model.safetensors")
    config = json.loads((folder / "config.json").read_text())
    config["vocab_size"] += len(rows)
    (target / "config.json").write_text(json.dumps(config))
    return target


def test_another_table_is_another_answer(generate, rows, tiny) -> None:
    prompt = [tiny.config.vocab, tiny.config.vocab + 2, *WORDS]
    answers = {
        tuple(generate(Request("", prompt, 12, prompt_table=PromptTable(table)))[0].ids)
        for table in (rows, rows[::-1].copy(), -rows)
    }
    assert len(answers) == 3


def test_penalties_pass_over_virtual_ids(generate, rows, tiny) -> None:
    prompt = [tiny.config.vocab + 1, *WORDS]
    (answer,) = generate(
        Request("", prompt, 5, sampling=Sampling(frequency_penalty=0.1), prompt_table=PromptTable(rows))
    )
    assert len(answer.ids) == 5


def test_cached_blocks_are_not_shared_between_tables(tiny, generate, rows) -> None:
    prompt = [tiny.config.vocab, *[(11 * place) % 250 + 5 for place in range(2 * BLOCK)]]
    engine = ReferenceEngine(tiny, Limits(2048, kv_reuse_blocks=32))

    def ask(table: PromptTable) -> tuple[list[int], int | None]:
        (answer,) = generate(Request("", prompt, 8, perf_metrics=True, prompt_table=table), engine)
        return answer.ids, answer.perf.cached_tokens

    extra = (7, *[0] * (len(prompt) - 1))
    first, reused = ask(PromptTable(rows, extra))
    assert reused == 0
    assert ask(PromptTable(rows, extra)) == (first, 2 * BLOCK)
    assert ask(PromptTable(-rows, extra))[1] == 0
    assert ask(PromptTable(rows, (1,) * len(prompt)))[1] == 0
    prompt.append(9)
    assert ask(PromptTable(rows, (*extra, 0)))[1] == 2 * BLOCK
    with pytest.raises(RejectedError, match="extra ids must be provided"):
        ask(PromptTable(rows))


def test_what_does_not_fit_is_refused(generate, rows) -> None:
    for prompt, table, extra_ids, words in (
        ([270], rows, (), "input_ids must be within the vocabulary of 267 tokens and 3 rows"),
        ([267, 5], rows, (1,), "prompt_table_extra_ids must have 2 values"),
        ([267], rows[:, :60], (), r"prompt_embedding_table must have shape \[1, rows, 64\]"),
    ):
        with pytest.raises(RejectedError, match=words):
            generate(Request("", prompt, 1, prompt_table=PromptTable(table, extra_ids)))
    with pytest.raises(RejectedError, match="num_prompt_log_probs"):
        generate(Request("", [5, 267], 1, prompt_log_probs=0, prompt_table=PromptTable(rows)))


def test_the_tensors_are_read() -> None:
    request = read(
        {"prompt_table"},
        prompt_embedding_table=np.ones((1, 2, 4), np.float16),
        prompt_vocab_size=np.array([[2]], np.int32),
        prompt_table_extra_ids=np.array([[1, 2, 3]], np.uint64),
    )
    assert request.prompt_table.rows.shape == (2, 4)
    assert request.prompt_table.rows.dtype == np.float32
    assert request.prompt_table.extra_ids == (1, 2, 3)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"prompt_vocab_size": np.array([[2]], np.int32)}, "given together"),
        ({"prompt_embedding_table": np.ones((1, 2, 4), np.float16)}, "given together"),
        (
            {
                "prompt_embedding_table": np.ones((1, 2, 4), np.float16),
                "prompt_vocab_size": np.array([[3]], np.int32),
            },
            "prompt_vocab_size is 3, but prompt_embedding_table has 2 rows",
        ),
        (
            {
                "prompt_embedding_table": np.full((1, 2, 4), np.inf, np.float16),
                "prompt_vocab_size": np.array([[2]], np.int32),
            },
            "finite",
        ),
    ],
)
def test_incomplete_tensors_are_refused(given, words) -> None:
    with pytest.raises(RejectedError, match=words):
        read({"prompt_table"}, **given)

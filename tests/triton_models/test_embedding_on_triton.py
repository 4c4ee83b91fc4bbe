"""The model ``embedding`` on a real Triton: all-MiniLM-L6-v2 of the repository, and two tiny ones that are rendered."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tritonclient.grpc import InferenceServerClient, InferInput
from tritonclient.utils import InferenceServerException

from gateway_ops.local_stack.minilm import ensure_embedding_folder
from gateway_ops.local_stack.tritonserver import EMBEDDING, EMBEDDING_VARIABLE, TritonServer
from gateway_ops.repository.encoders import render_encoder
from gateway_ops.repository.rendered_files import write
from tests.triton_models.tiny_bert import HIDDEN, POSITIONS, Reference, write_tiny_bert

ENCODER, CROSS = "tiny-encoder", "tiny-cross-encoder"
LABELS = ("no", "yes", "maybe")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    base = tmp_path_factory.mktemp("encoders")
    return {ENCODER: write_tiny_bert(base / ENCODER), CROSS: write_tiny_bert(base / CROSS, labels=LABELS)}


@pytest.fixture(scope="module")
def client(
    folders: dict[str, Path], repository: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[InferenceServerClient]:
    base = tmp_path_factory.mktemp("embedding")
    shutil.copytree(repository / EMBEDDING, base / "repository" / EMBEDDING)
    for folder in folders.values():
        write(render_encoder(folder, repository), base / "repository", replace=True)
    env = {EMBEDDING_VARIABLE: str(ensure_embedding_folder())}
    with TritonServer(base / "repository", model_dir=None, env=env, log_path=base / "triton.log") as server:
        server.wait_ready([EMBEDDING, ENCODER, CROSS])
        connection = InferenceServerClient(server.grpc_url)
        yield connection
        connection.close()


def inputs(rows: list[Any]) -> list[InferInput]:
    is_pair = isinstance(rows[0], tuple)
    values = np.array(rows if is_pair else [[row] for row in rows], object)
    sent = InferInput("pair" if is_pair else "text", list(values.shape), "BYTES")
    sent.set_data_from_numpy(values)
    return [sent]


def ask(
    client: InferenceServerClient, model: str, rows: list[Any], **parameters: str
) -> tuple[NDArray[Any], list[int]]:
    result = client.infer(model, inputs(rows), parameters=parameters)
    output = result.as_numpy("logits" if isinstance(rows[0], tuple) else "embedding")
    return output, result.as_numpy("token_count").reshape(-1).tolist()


def test_close_texts_are_close_and_far_ones_far(client: InferenceServerClient) -> None:
    texts = [
        "How do I reset my password?", "I forgot my login credentials and need new ones.",
        "The recipe needs two eggs and some flour.", "Wie wird das Wetter morgen?",
    ]  # fmt: skip
    vectors, counts = ask(client, EMBEDDING, texts)
    assert vectors.shape == (4, 384)
    assert vectors.dtype == np.float32
    assert counts == [9, 13, 11, 12]
    likeness = vectors @ vectors.T
    np.testing.assert_allclose(np.diag(likeness), 1, atol=1e-6)
    assert likeness[0, 1] > 0.5
    assert max(likeness[0, 2], likeness[0, 3], likeness[2, 3]) < 0.15


def test_vectors_and_scores_are_the_folders_own(
    client: InferenceServerClient, folders: dict[str, Path], texts: ModuleType
) -> None:
    rows = ["the reading", "what is 42?", ""]
    vectors, counts = ask(client, ENCODER, rows)
    read = texts.TextsToTokens(folders[ENCODER], POSITIONS).read([[row] for row in rows], "NONE")
    assert counts == [len(ids) for ids, _ in read]
    np.testing.assert_allclose(vectors, [Reference(folders[ENCODER]).vector(*text) for text in read], atol=1e-5)
    assert vectors.shape == (3, HIDDEN)
    pairs = [("what is 42?", "the sum"), ("the sum", "what is 42?")]
    scores, counts = ask(client, CROSS, pairs)
    read = texts.TextsToTokens(folders[CROSS], POSITIONS).read(pairs, "NONE")
    assert counts == [len(ids) for ids, _ in read]
    np.testing.assert_allclose(scores, [Reference(folders[CROSS]).logits(*pair) for pair in read], atol=1e-5)
    assert scores.shape == (2, len(LABELS))


def test_a_batch_equals_its_texts_alone_in_requests_side_by_side(client: InferenceServerClient) -> None:
    rows = ["what is the reading of " + "a" * (number % 20) for number in range(64)]
    together, counts = ask(client, ENCODER, rows)
    with ThreadPoolExecutor(16) as pool:
        alone = list(pool.map(lambda row: ask(client, ENCODER, [row]), rows))
    np.testing.assert_allclose(together, [vectors[0] for vectors, _ in alone], atol=1e-6, rtol=0)
    assert counts == [count for _, (count,) in alone]


def test_a_text_that_is_too_long_fails_its_request_alone(client: InferenceServerClient) -> None:
    long = "a " * POSITIONS
    with ThreadPoolExecutor(16) as pool:
        asked = [pool.submit(ask, client, ENCODER, ["the", long] if index % 4 == 0 else ["the"]) for index in range(16)]
    for index, future in enumerate(asked):
        if index % 4:
            assert future.result()[1] == [3]
            continue
        with pytest.raises(InferenceServerException) as caught:
            future.result()
        assert "text 1 of the request has 50 tokens; the model reads at most 48: " in caught.value.message()
        assert caught.value.status() == "StatusCode.INVALID_ARGUMENT"


def test_a_text_is_cut_where_the_request_says(client: InferenceServerClient) -> None:
    long = "what " + "a " * POSITIONS + "is"
    for truncate, kept in (("END", "what " + "a " * 45), ("START", "a " * 45 + "is")):
        cut, counts = ask(client, ENCODER, [long], truncate=truncate)
        assert counts == [POSITIONS]
        np.testing.assert_allclose(cut, ask(client, ENCODER, [kept])[0], atol=1e-6)
    for rows, said in (([long], "truncate is 'MIDDLE'"), (["a"], "truncate is 'MIDDLE'")):
        with pytest.raises(InferenceServerException, match=said):
            ask(client, ENCODER, rows, truncate="MIDDLE")
    with pytest.raises(InferenceServerException, match="a text is not UTF-8"):
        ask(client, ENCODER, [b"\xff"])


def test_a_cancelled_request_is_not_computed(client: InferenceServerClient) -> None:
    def computed() -> int:
        ask(client, EMBEDDING, ["a"])  # what came before it is counted by now
        return int(client.get_inference_statistics(EMBEDDING).model_stats[0].inference_stats.compute_infer.ns)

    begun = computed()
    some = inputs(["a " * (POSITIONS - 2)] * 8)
    client.infer(EMBEDDING, some)
    alone = computed() - begun
    client.async_infer(EMBEDDING, some, callback=lambda **_: None)
    many = inputs(["a " * (POSITIONS - 2)] * 64)
    for call in [client.async_infer(EMBEDDING, many, callback=lambda **_: None) for _ in range(3)]:
        call.cancel()
    assert computed() - begun < 6 * alone  # not 26 times

"""The application over scripted encoders, one of each task, and a model that generates."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from gateway.app import create_app
from gateway.generation import Capability, EngineFeatures
from gateway.generation.encoder import EncodedItems, EncoderRequest
from gateway.settings import Settings
from gateway.text.tokens.encoder_tokenizer import EncoderInput
from tests.app.documented import DocumentedClient
from tests.app.harness import says
from tests.app.scripted import ScriptedBackend, ScriptedEngine, settings_for

MOST_TOKENS = 1200  # of one input
_IMPOSSIBLE = Capability("impossible", "Not by this one.")


def letters(item: EncoderInput) -> Sequence[float]:
    """Four numbers that tell texts from one another."""
    text = item.text or "".join(map(chr, item.ids))
    return len(text), sum(map(ord, text)) % 97, text.count("a") - 1, 2


def overlap(item: EncoderInput) -> Sequence[float]:
    """The part of a document's letters that the query has."""
    assert item.pair is not None
    return (sum(letter in item.text for letter in item.pair) / len(item.pair),)


def vowels(item: EncoderInput) -> Sequence[float]:
    """The probabilities that a text has vowels, and that it has none."""
    share = float(any(letter in item.text for letter in "aeiou"))
    return share * 0.75 + 0.125, 0.875 - share * 0.75


@dataclass
class ScriptedEncoder:
    """Encodes by a function, and remembers what it was sent.

    Attributes:
        values: of an input.
        features: what it says of itself.
        counts: whether it counts tokens: four of each input.
        requests: so far.
    """

    values: Callable[[EncoderInput], Sequence[float]]
    features: EngineFeatures
    counts: bool = False
    requests: list[EncoderRequest] = field(default_factory=list)

    async def encode(self, request: EncoderRequest) -> EncodedItems:
        self.requests.append(request)
        rows = np.array([self.values(item) for item in request.items], np.float32)
        return EncodedItems(rows, [4] * len(rows) if self.counts else None)

    def items(self) -> list[EncoderInput]:
        """All inputs so far."""
        return [item for request in self.requests for item in request.items]


def _features(task: Any, **changes: Any) -> EngineFeatures:
    how = {"input_type": _IMPOSSIBLE, "dimensions": _IMPOSSIBLE, **changes.pop("capabilities", {})}
    given = {"prompt_ids": True, "estimates": frozenset({"prompt_tokens"}), **changes}
    return EngineFeatures(
        path="encoder", reason="scripted", model="encoder", token_ids=False, logprobs=False, streams="whole",
        whole=True, task=task, most_items=64, capabilities=how, **given,
    )  # fmt: skip


@dataclass
class Encoders:
    """A running application.

    Attributes:
        client: an HTTP client of it.
        by_name: its encoders.
    """

    client: DocumentedClient
    by_name: dict[str, ScriptedEncoder]

    async def post(self, path: str, status: int = 200, **body: Any) -> Any:
        """The body of a response; ``x-ignored-parameters`` is not looked at."""
        answer = await self.client.post(path, json=body)
        assert answer.status_code == status, answer.text
        return answer.json()

    async def rejected(self, path: str, **body: Any) -> tuple[str | None, str | None, str]:
        """The parameter, the code and the message of a response with status 400."""
        error = (await self.post(path, 400, **body))["error"]
        return error["param"], error["code"], error["message"]


_EMULATED = {"dimensions": Capability("emulated", "By a cut."), "input_type": Capability("emulated", "By a prefix.")}
_MODELS: dict[str, tuple[Callable[[EncoderInput], Sequence[float]], EngineFeatures, dict[str, Any]]] = {
    "vectors": (letters, _features("embed"), {}),
    "cut": (
        letters,
        _features("embed", capabilities=_EMULATED),
        {"dimensions": True, "normalize": False, "input_types": {"query": {"prefix": "q: "}}, "token_ids": "own"},
    ),
    "native": (letters, _features("embed", capabilities={"dimensions": Capability("native", "By itself.")}), {}),
    "counting": (letters, _features("embed", prompt_ids=False, estimates=frozenset()), {}),
    "ranks": (overlap, _features("rerank"), {}),
    "one-query": (overlap, _features("rerank", one_query=True), {}),
    "odd-ranks": (lambda _: (1, 2, 3), _features("rerank"), {}),
    "classes": (vowels, _features("classify"), {"labels": ["sung", "mute"]}),
    "unnamed": (vowels, _features("classify"), {}),
}


@contextlib.asynccontextmanager
async def encoders(folder: Path) -> AsyncIterator[Encoders]:
    """The application over all of them; the model that generates is configured last.

    Args:
        folder: of a tokenizer with a token for each byte.
    """
    one = settings_for(folder).models[0].model_dump() | {"aliases": [], "max_seq_len": MOST_TOKENS}
    models = [
        {
            **one,
            "name": name,
            "task": features.task,
            "encoder": settings,
            "tokenizer": None if name == "counting" else folder,
        }
        for name, (_, features, settings) in _MODELS.items()
    ]
    made = {name: ScriptedEncoder(how, features, name == "counting") for name, (how, features, _) in _MODELS.items()}
    engines: dict[str, Any] = {**made, "words": ScriptedEngine(says(folder, "Hi"))}
    settings = Settings.model_validate({"models": [*models, {**one, "name": "words"}]})
    app = create_app(settings, backend_factory=lambda model: ScriptedBackend(engines[model.name]))
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
    client = DocumentedClient(False, base_url="http://localhost", transport=transport, timeout=20)
    async with app.router.lifespan_context(app), client:
        yield Encoders(client, made)

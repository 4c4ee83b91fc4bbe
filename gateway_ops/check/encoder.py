"""Proofs of an encoder: whether the gateway calls it as it wants to be called, and the settings that say how."""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Final, cast, get_args

import anyio
import numpy as np
import yaml
from numpy.typing import NDArray
from tritonclient.grpc import model_config_pb2

from gateway.generation import EngineError, ErrorKind
from gateway.generation.encoder import EncoderParams
from gateway.generation.route import RoutingHints
from gateway.serving.encoder_model import EncoderModel
from gateway.serving.served_model import ModelContext
from gateway.settings import ConfigError, ModelSettings, Task, TimeoutSettings
from gateway.settings.encoder_settings import EncoderSettings
from gateway.telemetry.metrics import Metrics
from gateway.text.tokens.encoder_tokenizer import EncoderInput, InputTooLongError
from gateway.triton import TritonBackend, hints
from gateway.triton.abilities import engine_options
from gateway.triton.access import triton_access
from gateway.triton.dialects.encoder import TritonEncoder
from gateway.triton.dialects.encoder_form import EncoderForm, read_form
from gateway.triton.dialects.registry import ENCODERS, find_dialect
from gateway.triton.inspection import DiscoveryError, read_configurations
from gateway.triton.model_view import ModelView
from gateway_ops.check.findings import Finding, Severity, sentence

Values = NDArray[np.float32]

_QUESTION = "How do I reset my password?"
_CLOSE = "To choose a new password, open the account settings and follow the link for a forgotten password."
_FAR = "Stir two eggs into the flour and bake the dough for forty minutes."
_TEXTS = (_QUESTION, _CLOSE, _FAR, "a", "The train to the coast leaves at noon from the second platform.")
_READY_S: Final = 15.0
_POLL_S: Final = 0.05
_SAME: Final = 1e-5  # of the largest number: results of a text that is read in the same way
_NEAR: Final = 0.01  # of the largest number: results of the same text in batches of other sizes
_PREFIXES: Final = {
    "e5": {"query": "query: ", "passage": "passage: "},
    "bge": {"query": "Represent this sentence for searching relevant passages: ", "passage": ""},
    "nomic": {"query": "search_query: ", "passage": "search_document: "},
}
"""Prefixes that families of embedding models were trained with, by a word in their names."""
_WITHOUT: Final = ("bge-m3", "bge_m3", "reranker")


@dataclass(frozen=True, slots=True)
class EncoderProof:
    """The result of the proofs of an encoder.

    Attributes:
        findings: faults of it, and the form of its results.
        settings: of a served model, as lines of YAML; empty where it cannot be served.
    """

    findings: Sequence[Finding]
    settings: Sequence[str] = ()


async def prove_encoder(settings: ModelSettings, url: str, where: str = "") -> EncoderProof:
    """Send a few short texts to an encoder as the gateway would, and compare what comes back.

    Args:
        settings: of the served model.
        url: of its Triton, ``host:port``.
        where: of the findings.
    """
    backend = TritonBackend(
        url, settings.triton.model, settings.path,
        options=engine_options(settings), access=triton_access(settings.triton),
    )  # fmt: skip
    context = ModelContext(TimeoutSettings(), Metrics())
    model = EncoderModel(settings, backend, "models[0]", context)
    proof = _Proof(model, where)
    found: list[Finding] = []
    try:
        await model.start()
        with anyio.move_on_after(_READY_S):
            while not backend.ready:  # noqa: ASYNC110 - no event tells
                await anyio.sleep(_POLL_S)
        route = await backend.find(RoutingHints())
        found += [each async for each in proof.findings()]
        form = cast("TritonEncoder", route.engine).form
    except (ConfigError, EngineError) as error:
        detail = getattr(error, "detail", "")
        return EncoderProof([*found, Finding(Severity.ERROR, where, sentence(str(error)), detail and sentence(detail))])
    finally:
        await model.close()
    return EncoderProof(found, _as_yaml(settings, form))


class _Proof:
    """The proofs of one encoder, one after the other."""

    def __init__(self, model: EncoderModel, where: str) -> None:
        self._model = model
        self._where = where
        self._pairs = model.task == "rerank"

    async def findings(self) -> AsyncIterator[Finding]:
        """Send texts and say what is wrong with the results, and at last what they are."""
        parts = [await self._encode([text]) for text in _TEXTS]
        whole = np.concatenate(parts)
        if not _near(await self._encode([_TEXTS[0]]), parts[0]):
            yield self._finding(Severity.ERROR, "The same text twice gives two results.")
        if all(np.array_equal(parts[0], other) for other in parts[1:]):
            what = "Different texts give the same result, so the model does not read the text that it is sent."
            yield self._finding(Severity.ERROR, what, "Name the input that takes the texts in encoder.tensors.")
        for findings in (self._batch(whole), self._relevance(), self._silent_cut()):
            async for each in findings:
                yield each
        if self._pairs and (whole.min() < 0 or whole.max() > 1):
            what = f"Scores of pairs are {whole.min():.3g} to {whole.max():.3g}, not within 0 to 1."
            yield self._finding(Severity.WARNING, what, "Set encoder.activation to sigmoid if they are logits.")
        if (missing := self._prefixes()) is not None:
            yield missing
        yield self._shape(whole)

    async def _batch(self, parts: Values) -> AsyncIterator[Finding]:
        """Whether the largest batch, and one text more, give the results of each text by itself."""
        most = self._model.features.most_items if self._model.features else 1
        texts = list(itertools.islice(itertools.cycle(_TEXTS), max(most, len(_TEXTS)) + 1))
        try:
            together = await self._encode(texts)
        except EngineError as error:
            what = f"A request of {len(texts)} texts, in batches of at most {most}, fails: {error.message}"
            yield self._finding(Severity.ERROR, what, "Set encoder.batch to as many texts as the model takes.")
            return
        if not _near(together, parts[np.arange(len(texts)) % len(parts)]):
            what = "A batch of texts gives other results than each text by itself."
            yield self._finding(Severity.ERROR, what, "Set encoder.batch to 1 if the model takes only one text.")

    async def _relevance(self) -> AsyncIterator[Finding]:
        """Whether a known close pair is closer than a known far one, of a query and passages by ``input_type``."""
        if self._model.task == "classify":
            return
        by_model = self._model.capabilities["input_type"].how == "native"
        types = tuple(self._model.settings.encoder.input_types) or (("query", "passage") if by_model else ())
        if not self._pairs and len(types) > 1:
            first, *others = [await self._encode([_QUESTION], name) for name in types]
            if all(_near(other, first, _SAME) for other in others):
                what = f"The input types {', '.join(types)} give the same result."
                yield self._finding(Severity.WARNING, what, "Check encoder.input_types and encoder.request_fields.")
        for asked, answered in [(name, name) for name in types or (None,)] if self._pairs else roles(types):
            answers = await self._encode([_CLOSE, _FAR], answered)
            close, far = answers[:, 0]
            if not self._pairs:
                [question] = await self._encode([_QUESTION], asked)
                close, far = answers @ question / np.linalg.norm(answers, axis=1)
            if not close > far:
                kind = f" as input type {asked}, with answers of {answered or 'the default'} type" if asked else ""
                what = f"A text about something else is closer to a question than its answer{kind}."
                yield self._finding(Severity.WARNING, what, "Check encoder.pooling, encoder.output and the tokenizer.")

    async def _silent_cut(self) -> AsyncIterator[Finding]:
        """Whether two texts whose last quarters differ are the same to the model from some length on."""
        for words in (64 << step for step in range(8)):  # 8,192 at most
            text = "and then " * (3 * words // 8)
            try:
                one, again, other = [await self._encode([text + end * (words // 4)]) for end in ("yes ", "yes ", "no ")]
            except InputTooLongError:
                return
            except EngineError as error:
                if error.kind is ErrorKind.CONTEXT_LENGTH:
                    return
                what = f"A text of {words} words fails: {error.message}"
                fix = "Set max_seq_len, so that a longer text is rejected as the client's mistake."
                yield self._finding(Severity.WARNING, what, fix)
                return
            noise = 2 * float(np.abs(one - again).max())
            if np.abs(one - other).max() <= max(noise, _SAME * float(np.abs(one).max())):
                what = f"The model cuts texts of {words} words without a word about it."
                fix = "Set max_seq_len and tokenizer, so that longer texts are rejected or cut as the request asks."
                yield self._finding(Severity.WARNING, what, fix)
                return

    def _prefixes(self) -> Finding | None:
        settings = self._model.settings
        names = f"{settings.triton.model} {self._model.tokenizer_folder or ''}".lower()
        family = next((each for each in _PREFIXES if each in names), None)
        known = self._model.capabilities["input_type"].how != "impossible"
        if family is None or known or self._model.task != "embed" or any(word in names for word in _WITHOUT):
            return None
        types = {name: {"prefix": prefix} for name, prefix in _PREFIXES[family].items()}
        fix = f"Set encoder.input_types unless the model adds them itself: {types}"
        return self._finding(Severity.WARNING, f"Models of the family {family} expect a prefix before each text.", fix)

    def _shape(self, values: Values) -> Finding:
        width = values.shape[1]
        if self._model.task != "embed":
            what = f"It returns {width} {'score' if width == 1 else 'scores'} of an input."
            return self._finding(Severity.INFO, what)
        lengths = np.linalg.norm(values, axis=1)
        unit = bool(np.allclose(lengths, 1, atol=_NEAR))
        length = "1" if unit else f"{lengths.min():.3g} to {lengths.max():.3g}"
        fix = "" if unit else "Set encoder.normalize to true if its users compare vectors by their dot product."
        return self._finding(Severity.INFO, f"Its vectors have {width} numbers and the length {length}.", fix)

    def _finding(self, severity: Severity, what: str, fix: str = "") -> Finding:
        return Finding(severity, self._where, what, fix)

    async def _encode(self, texts: Sequence[str], input_type: str | None = None) -> Values:
        inputs = [EncoderInput(_QUESTION, text) if self._pairs else EncoderInput(text) for text in texts]
        encoded = await self._model.encode(inputs, EncoderParams(input_type), "check", time.perf_counter())
        return encoded.values


def roles(types: Sequence[str]) -> list[tuple[str | None, str | None]]:
    """The input types of a question and of its answers: query and passage by their names, any other one of both."""
    query = next((name for name in sorted(types, key=len) if "query" in name.lower() or name == "q"), None)
    passage = next((name for name in types if re.search("passage|doc|^[pd]$", name.lower())), None)
    pair = [(query, passage)] if query or not types else []
    return [*pair, *((name, name) for name in types if not query or name not in (query, passage))]


def _near(one: Values, other: Values, share: float = _NEAR) -> bool:
    return one.shape == other.shape and np.allclose(one, other, rtol=0, atol=share * float(np.abs(other).max()))


async def find_task(url: str, model: str) -> Task:
    """Find the task of a Triton model in its configuration; ``generate`` where that cannot be read.

    Raises:
        DiscoveryError: its tensors do not tell the task.
    """
    try:
        config = (await read_configurations(url, [model])).get(model)
    except EngineError:  # whose reason the inspection of the model gives
        return "generate"
    view = ModelView.of(config or model_config_pb2.ModelConfig(name=model))
    if find_dialect(view) is not None or not ENCODERS.recognizes(view):
        return "generate"
    if (named := hints.parameter(view, "task")) in get_args(Task):  # as `gateway repo --model-dir` writes it
        return cast("Task", named)
    form = read_form(view, EncoderSettings())
    if form.input_kind in ("query", "pair") or (form.input_kind == "ids" and form.dimensions == 1):
        return "rerank"
    if form.hidden or "embed" in form.output.lower():
        return "embed"
    raise DiscoveryError(f"the tensors of model {model!r} do not tell its task")


def _as_yaml(settings: ModelSettings, form: EncoderForm) -> list[str]:
    """The settings of the model with all that was found, in place of what is found again at each start."""
    given = settings.model_dump(mode="json", exclude_unset=True, exclude_none=True)
    found = {"tensors": dict(form.tensors), "output": form.output, "batch": form.most_items, "count": form.count}
    found["pooling"] = settings.encoder.pooling if form.hidden else None
    known = {name: value for name, value in found.items() if value is not None}
    encoder = {**known, **given.pop("encoder", {})}
    models = {"models": [{**given, "encoder": encoder}]}
    return str(yaml.safe_dump(models, sort_keys=False, default_flow_style=None)).splitlines()

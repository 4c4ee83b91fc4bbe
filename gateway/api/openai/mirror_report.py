"""The report on a model's mirror, in the form of ``gateway compare``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import orjson
from fastapi import APIRouter
from fastapi.responses import JSONResponse
from starlette.requests import Request

from gateway.api.openai.errors import SERVER, OpenAIError
from gateway.api.openai.models.routes import capability_map, model_object
from gateway.api.openai.tokens.answer import tokenize
from gateway.api.openai.tokens.protocol import parse_tokenize_request
from gateway.generation import EngineError
from gateway.serving.comparison.facts import PROBE, TURNS, TargetFacts, compare_facts, facts_of, warnings_of
from gateway.serving.generator_model import GeneratorModel
from gateway.serving.mirror.link import MirrorLink
from gateway.serving.registry import Registry
from gateway.text.bad_request import BadRequestError

PATH: Final = "/mirror"
_VERSION: Final = 1


def mirror_router(registry: Registry, link: MirrorLink) -> APIRouter:
    """Make the route ``GET /mirror`` for the internal port; its report may have texts of requests.

    Args:
        registry: of served models, started.
        link: to the process that keeps the reports.
    """
    router = APIRouter()

    @router.get(PATH)
    async def report(request: Request) -> JSONResponse:
        """Report on the mirror of the model that the query names, or of the only one that has one."""
        a = _mirrored(registry, request.query_params.get("model"))
        mirror = a.settings.mirror
        assert mirror is not None  # noqa: S101 - as it was looked for
        found = await link.ask({"report": a.name})
        if not found:
            message = "The process for mirrored requests does not respond; it is restarted when it ends."
            raise OpenAIError(503, message, type=SERVER, code="service_unavailable")
        b = next((model for model in _generators(registry) if model is registry.get(mirror.to)), None)
        return JSONResponse({"version": _VERSION, **_introduced(a, b, found), **found})

    return router


def _mirrored(registry: Registry, name: str | None) -> GeneratorModel:
    mirrored = {model.name: model for model in _generators(registry) if model.settings.mirror is not None}
    if name is None and len(mirrored) == 1:
        return next(iter(mirrored.values()))
    if name not in mirrored:
        names = ", ".join(map(repr, sorted(mirrored))) or "none"
        what = "Name a model in 'model'" if name is None else f"The model {name[:256]!r} has no mirror"
        raise OpenAIError(404, f"{what}; models with a mirror: {names}.", code="model_not_found")
    return mirrored[name]


def _generators(registry: Registry) -> Iterator[GeneratorModel]:
    return (model for model in registry if isinstance(model, GeneratorModel))


def _introduced(a: GeneratorModel, b: GeneratorModel | None, found: Mapping[str, Any]) -> dict[str, Any]:
    """The introduction of a comparison: both targets, their features, and warnings."""
    facts = [] if b is None else compare_facts(_facts(a), _facts(b))
    warnings = list(warnings_of(facts))
    drawn, sent = found["mirror"]["drawn"], found["requests"]["sent"]
    if drawn:
        what = f"{drawn} of {sent} requests set neither temperature 0 nor a seed"
        warnings.append(f"{what}: only prompt usage, refusals and delays of their responses are compared.")
    names = {side: {"url": None, "model": model and model.name} for side, model in (("a", a), ("b", b))}
    return {**names, "facts": [fact.as_json() for fact in facts], "warnings": warnings}


def _facts(model: GeneratorModel) -> TargetFacts:
    entry: dict[str, Any] = {**model_object(model, model.name), "capabilities": capability_map(model)}
    return facts_of(entry, _ids(model, {"prompt": PROBE}), _ids(model, {"messages": TURNS}))


def _ids(model: GeneratorModel, what: Mapping[str, Any]) -> Any:
    try:
        asked = parse_tokenize_request({"model": model.name, **what})
        return orjson.loads(tokenize(asked, asked.source(), model))["tokens"]
    except (BadRequestError, EngineError, OpenAIError):
        return None

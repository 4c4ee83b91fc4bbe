"""The wishes of a completion request for an answer of one model: its form, and the names that errors use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gateway.openai.completions.protocol import CompletionRequest
from gateway.openai.guidance import Structure, structure
from gateway.serving.served_model import ServedModel


@dataclass(frozen=True, slots=True)
class CompletionPlan:
    """The answer that a request wants.

    Attributes:
        names: the request's names of parameters that errors of the engine call otherwise.
        structure: of the text.
        warnings: paths at which schemas leave OpenAI's strict subset though ``strict`` was asked for.
    """

    names: Mapping[str, str]
    structure: Structure
    warnings: Sequence[str] = ()


def completion_plan(request: CompletionRequest, model: ServedModel) -> CompletionPlan:
    """Decide how the answer to a request is made.

    Raises:
        BadRequestError: with the path of what cannot be enforced.
        EngineError: UNAVAILABLE while the engine is away.
    """
    wanted = request.forms[0] if request.forms else None
    form = structure(wanted, model.backend.features, validate=False)
    return CompletionPlan(request.names(wanted.path if wanted else None), form, wanted.deviations() if wanted else ())

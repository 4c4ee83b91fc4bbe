"""A chat request that stands for one of another API: the plan of its answer, and what it is served without."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from gateway.openai.chat.protocol import ChatCompletionRequest
from gateway.openai.chat.serving import ChatPlan, chat_plan
from gateway.openai.parameters.check import Ignored
from gateway.openai.translation import Translation
from gateway.serving.served_model import ServedModel

EXTENSIONS = frozenset(
    {
        "bad_words", "cache_salt", "chat_template", "chat_template_kwargs", "documents", "frequency_penalty",
        "guided_choice", "guided_grammar", "guided_json", "guided_regex", "ignore_eos", "include_stop_str_in_output",
        "logit_bias", "min_p", "min_tokens", "no_stop_trim", "num_draft_tokens", "presence_penalty", "prompt_table",
        "repetition_penalty", "seed", "skip_special_tokens", "stop", "stop_token_ids", "structured_outputs",
        "thinking_token_budget", "top_k", "truncate_prompt_tokens", "truncation_side",
    }
)  # fmt: skip
"""Fields of chat completions that are taken as they are, though the API that is translated does not have them."""


@dataclass(slots=True)
class TranslatedRequest:
    """A chat request that stands for one of another API; see ``gateway.openai.endpoint.Asked``.

    Attributes:
        chat: as the policies of the model let it pass.
        translation: of paths in errors.
        left_out: what the request is served without, as it is named to the client.
    """

    chat: ChatCompletionRequest
    translation: Translation
    left_out: tuple[str, ...]

    @property
    def model(self) -> str:
        """The name under which the client asks for the model, then that of the served model."""
        return self.chat.model

    @model.setter
    def model(self, name: str) -> None:
        self.chat.model = name

    @property
    def stream(self) -> bool:
        """Whether the answer is wanted as a stream."""
        return self.chat.stream

    def annotations(self) -> dict[str, Any]:
        """What the request says of itself; for the access log."""
        return self.chat.annotations()

    def ignored(self, of_chat: Ignored, more: Iterable[str] = ()) -> Ignored:
        """All that the request is served without, in the client's own names.

        Args:
            of_chat: what its chat request is served without.
            more: what else was left out, by the client's names.
        """
        left_out, path = (*self.left_out, *more), self.translation.path
        return Ignored(
            tuple(dict.fromkeys([*left_out, *map(path, of_chat.named)])),
            tuple(dict.fromkeys([*left_out, *map(path, of_chat.counted)])),
            of_chat.dropped,
        )


def translated_plan(request: TranslatedRequest, model: ServedModel) -> ChatPlan:
    """Decide how the answer is made and checked, in the client's own names; see ``chat_plan``."""
    translation = request.translation
    with translation.renaming():
        plan = chat_plan(request.chat, model)
    return dataclasses.replace(
        plan,
        names=translation.names(plan.names),
        structure=dataclasses.replace(plan.structure, field=translation.path(plan.structure.field)),
        warnings=[translation.path(path) for path in plan.warnings],
    )

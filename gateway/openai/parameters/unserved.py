"""Parameters that no engine here can serve: accepted with values that change nothing, else subject to policy."""

from __future__ import annotations

from typing import Any

from gateway.generation.engine import Capability
from gateway.openai.parameters.row import BOTH, CHAT, COMPLETIONS, Endpoint, Parameter, Source


def _row(
    name: str,
    form: str,
    does: str,
    why: str,
    *neutral: Any,
    endpoints: tuple[Endpoint, ...] = CHAT,
    source: Source = "OpenAI",
) -> Parameter:
    empty = form.startswith(("array", "object"))
    how = Capability("impossible", why)
    return Parameter(name, "impossible", form, does, endpoints, source, neutral, empty_is_neutral=empty, how=how)


_TEXT = "the model reads and writes text only."

_OPENAI = (
    _row("audio", "mapping of voice and format", "asks for speech", _TEXT),
    _row("modalities", "array of strings", "chooses text or speech", _TEXT, ["text"]),
    _row("moderation", "mapping", "asks for moderation", "there is no moderation model here."),
    _row("verbosity", "string: low, medium or high", "asks for length", "ask for a length in a message.", "medium"),
    _row("web_search_options", "mapping", "lets the model search the web", "there is no search here."),
    _row(
        "stream_options.include_obfuscation",
        "boolean",
        "pads chunks to one length",
        "chunks are never padded; send false, which is also the default here.",
        False,
        endpoints=BOTH,
    ),
    _row(
        "suffix",
        "string",
        "is the text after the answer",
        "the model does not fill in the middle by a general format; write its own into the prompt.",
        "",
        endpoints=COMPLETIONS,
    ),
)

_OTHERS = tuple(
    _row(name, form, does, why, *neutral, endpoints=BOTH, source="extension")
    for name, form, does, why, neutral in (
        ("priority", "integer", "orders the engine's queue", "the engine takes requests in turn.", (0,)),
        ("allowed_token_ids", "array of token ids", "are the only candidates", "use logit_bias.", ()),
        ("logits_processors", "array", "change logits by code", "no code of clients is run.", ()),
        ("truncate_prompt_tokens", "integer", "cuts the prompt", "shorten the messages.", ()),
        ("return_tokens_as_token_ids", "boolean", "writes tokens as ids", "use return_token_ids.", (False,)),
        (
            "spaces_between_special_tokens",
            "boolean",
            "puts spaces between them",
            "text is what ids decode to.",
            (True,),
        ),
        ("num_return_sequences", "integer", "is another name of `n`", "send n.", (1,)),
    )
)

UNSERVED: tuple[Parameter, ...] = (*_OPENAI, *_OTHERS)
"""What is refused, unless it says nothing or the operator's policy lets it pass."""

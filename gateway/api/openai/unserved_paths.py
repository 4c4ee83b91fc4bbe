"""Unserved paths of known APIs, with what serves the same need."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

_STATE: Final = "Use /v1/responses, and /v1/conversations for what is stored between requests."
_LIVE: Final = "Use 'stream' of /v1/responses or /v1/chat/completions; both accept and return text."
_FILES: Final = "Put the text of files into the messages of a request."
_ONE_BY_ONE: Final = "Send single requests, several at a time: the engine batches them."
_TEXT_ONLY: Final = "The served models accept and return text; use another server for this."
_AGENTS: Final = "Run the agent in your program, and send each of its turns to "
_SKILLS: Final = "Put the instructions of a skill into a system message."
_CHOICE: Final = "Use 'response_format' or 'structured_outputs' of /v1/chat/completions to choose among texts."
_BY_OPERATOR: Final = "The operator of the gateway does this with settings and commands."

_OPENAI: Final[Mapping[str, str]] = {
    **dict.fromkeys(("assistants", "chatkit", "threads"), _STATE),
    **dict.fromkeys(("live", "realtime"), _LIVE),
    **dict.fromkeys(("containers", "files", "uploads", "vector_stores"), _FILES),
    **dict.fromkeys(("audio", "images", "moderations", "videos"), _TEXT_ONLY),
    **dict.fromkeys(("evals", "fine_tuning", "organization", "projects", "vaults", "webhook_endpoints"), _BY_OPERATOR),
    "agents": f"{_AGENTS}/v1/responses.",
    "batches": _ONE_BY_ONE,
    "decisions": _CHOICE,
    "skills": _SKILLS,
}
_ANTHROPIC: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        ("agents", "deployments", "dreams", "environments", "memory_stores", "sessions"), f"{_AGENTS}/v1/messages."
    ),
    **dict.fromkeys(("organizations", "tunnels", "user_profiles", "vaults"), _BY_OPERATOR),
    "complete": "Use /v1/messages.",
    "files": _FILES,
    "skills": _SKILLS,
}
_OLLAMA: Final[Mapping[str, str]] = {
    **dict.fromkeys(("blobs", "copy", "create", "delete", "pull", "push"), _BY_OPERATOR),
    **dict.fromkeys(("embed", "embeddings"), "Use /v1/embeddings."),
    **dict.fromkeys(("ps", "show", "tags"), "Use GET /v1/models."),
    "chat": "Use /v1/chat/completions.",
    "generate": "Use /v1/completions.",
    "version": "Use GET /version.",
}
_STORED_CHAT: Final = re.compile(r"/v1/chat/completions(/(?!chat/)[^/]+(/messages)?)?/?")
_BATCHES: Final = re.compile(r"/v1/messages/batches(/|$)")
_FIRST: Final = re.compile(r"/(?:(api|v1)/)?([^/]+)")


def served_instead(path: str, *, anthropic: bool) -> str:
    """Explain an unserved path of a known API; empty for any other path.

    Args:
        path: of the request.
        anthropic: whether the client speaks Anthropic's API.
    """
    if _STORED_CHAT.fullmatch(path):
        return " This gateway does not store chat completions: /v1/responses stores responses and returns them by id."
    if _BATCHES.match(path):
        return _sentences("Anthropic", _ONE_BY_ONE)
    found = _FIRST.match(path)
    base, name = (found[1], found[2]) if found else (None, "")
    api = "Ollama" if base == "api" else "Anthropic" if anthropic else "OpenAI"
    table = {"Ollama": _OLLAMA, "Anthropic": _ANTHROPIC, "OpenAI": _OPENAI}[api]
    return _sentences(api, table[name]) if base in ("api", "v1") and name in table else ""


def _sentences(api: str, instead: str) -> str:
    return f" This endpoint of {api}'s API is not supported by this gateway. {instead}"

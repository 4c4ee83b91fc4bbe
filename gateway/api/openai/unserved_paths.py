"""Unserved paths of known APIs, with the endpoints that serve the same need."""

from __future__ import annotations

import re
from typing import Final

_AGENTS: Final = "Run the agent in your program, and send each of its turns to /v1/responses or /v1/messages."
_CHOICE: Final = "Use 'response_format' or 'structured_outputs' of /v1/chat/completions to choose among texts."
_OPERATOR: Final = "The operator of the gateway has settings, commands and an access log for this."
_TEXT_ONLY: Final = "The served models accept and return text; use another server for this."

# What a path begins with behind /v1, one or two of its segments, and what to use instead.
_ROWS: Final = (
    ("embed embeddings api/embed api/embeddings", "Use /v1/embeddings."),
    ("decisions", _CHOICE),
    ("audio content_provenance_checks images moderations videos", _TEXT_ONLY),
    ("assistants chatkit threads", "Use /v1/responses, and /v1/conversations for what is stored between requests."),
    ("live/sessions realtime", "Use 'stream' of /v1/responses or /v1/chat/completions; both accept and return text."),
    ("containers files uploads vector_stores", "Put the text of files into the messages of a request."),
    ("skills", "Put the instructions of a skill into a system message."),
    ("agents deployment_runs dreams environments memory_stores sessions vaults", _AGENTS),
    ("deployments", f"Azure's deployments are models: use GET /v1/models. {_AGENTS}"),
    ("compliance evals fine_tuning organization organizations projects safety tunnels user_profiles", _OPERATOR),
    ("api/blobs api/copy api/create api/delete api/me api/pull api/push api/signout", _OPERATOR),
    ("webhook_endpoints webhook_event_types", "Use 'stream' of /v1/responses, or GET /v1/responses/{id}."),
    ("batches messages/batches", "Send single requests, several at a time: the engine batches them."),
    ("complete", "Use /v1/messages."),
    ("api/chat", "Use /v1/chat/completions."),
    ("api/generate", "Use /v1/completions."),
    ("api/ps api/show api/tags", "Use GET /v1/models."),
    ("api/version", "Use GET /version."),
    ("api/web_fetch api/web_search", "Define a function in 'tools' that your program runs."),
)
_INSTEAD: Final = {name: instead for names, instead in _ROWS for name in names.split()}
_STORED_CHAT: Final = re.compile(r"/v1/chat/completions(/(?!chat/)[^/]+(/messages)?)?/?")
_BASE: Final = re.compile(r"/v[12](?=/)")


def served_instead(path: str) -> str:
    """Explain an unserved path of a known API; empty for any other path, and for the one that serves the need."""
    if _STORED_CHAT.fullmatch(path):
        return " This gateway does not store chat completions: /v1/responses stores responses and returns them by id."
    names = _BASE.split(path)[-1].strip("/").split("/")
    instead = _INSTEAD.get("/".join(names[:2])) or _INSTEAD.get(names[0])
    if not instead or path in instead.rstrip(".").split():  # another method of it is served
        return ""
    return f" This gateway does not support this endpoint. {instead}"

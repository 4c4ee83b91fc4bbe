"""Checks a running endpoint: a Triton or a gateway."""

from __future__ import annotations

import http
import http.client
import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import anyio.to_thread

from gateway.generation import EngineError
from gateway.generation.engine import Capability, EngineFeatures
from gateway.settings import ModelSettings, Task, TritonSettings
from gateway.triton.inspection import DiscoveryError, EngineOptions, NoTokenError, inspect_model
from gateway_ops.check.encoder import find_task, prove_encoder
from gateway_ops.check.findings import Finding, Severity, doubt_findings, loss_findings, sentence

_TIMEOUT_S = 10.0
_PROOF_S = 30.0
_SMALLEST: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "generate": ("/v1/completions", {"prompt": "a", "max_tokens": 1}),
    "embed": ("/v1/embeddings", {"input": "a"}),
    "rerank": ("/v1/rerank", {"query": "a", "documents": ["a"]}),
    "classify": ("/classify", {"input": "a"}),
}
"""The smallest request of each task: its path and its fields."""


@dataclass(frozen=True, slots=True)
class ServedDescription:
    """A description of how a model is served, or would be.

    Attributes:
        path: ``tokens`` or ``ensemble``; None when a gateway does not know it yet.
        reason: the reason for this path, or why the model is not ready.
        triton_model: the Triton model that is called.
        max_seq_len: prompt plus generated tokens, where it is known.
        capabilities: the way in which each request parameter is served.
        task: the model's task.
        settings: of a served model, as lines of YAML, where they were found out; else empty.
    """

    path: str | None
    reason: str | None
    triton_model: str | None
    max_seq_len: int | None = None
    capabilities: Mapping[str, Capability] = field(default_factory=dict)
    task: str | None = None
    settings: Sequence[str] = ()

    @staticmethod
    def of(features: EngineFeatures) -> ServedDescription:
        """Make the description from the features of an engine."""
        return ServedDescription(
            features.path,
            features.reason,
            features.model,
            features.max_seq_len,
            dict(features.capabilities),
            features.task,
        )


Outcome = tuple[list[Finding], dict[str, ServedDescription]]


async def describe_triton(url: str, model: str, task: Task | None = None, tokenizer: Path | None = None) -> Outcome:
    """Discover a Triton model as the gateway does.

    Args:
        url: host:port of Triton's gRPC endpoint.
        model: the Triton model.
        task: what it does; None where its configuration tells.
        tokenizer: folder of its tokenizer, for another task than to generate.
    """
    where = f"{url} {model}"
    known = task
    try:
        task = known or await find_task(url, model)
        features = await inspect_model(url, model, "auto", EngineOptions(task=task))
    except DiscoveryError as error:
        fix = "On this command line that is --model." if "triton.model" in str(error) else ""
        fix = fix or ("" if task or "encoder." in str(error) else "Write --task embed, rerank or classify.")
        return [Finding(Severity.ERROR, where, sentence(str(error)), fix)], {}
    except EngineError as error:
        fix = f"Is this Triton's gRPC port, and {model!r} the model?"
        if isinstance(error, NoTokenError):
            fix = "Triton's log has the reason; restart Triton if the process of a model has died."
            fix += "" if known else " If it generates no text, write its task, such as --task embed."
        return [Finding(Severity.ERROR, where, sentence(error.message), fix)], {}
    findings = [Finding(Severity.WARNING, where, sentence(words)) for words in features.warnings]
    findings += loss_findings(where, features.losses)
    if task != "generate":
        triton = TritonSettings(url=url, model=model)
        settings = ModelSettings(name=model, task=task, triton=triton, tokenizer=tokenizer)
        proof = await prove_encoder(settings, url, where)
        described = replace(ServedDescription.of(features), settings=proof.settings)
        return [*findings, *proof.findings], {model: described}
    what = "The tokenizer is not compared: only a settings file or a gateway names a tokenizer."
    findings.append(Finding(Severity.INFO, where, what))
    return findings, {model: ServedDescription.of(features)}


async def describe_gateway(url: str, api_key: str | None) -> Outcome:
    """Describe the models of a running gateway.

    Args:
        url: its base URL, with or without ``/v1``.
        api_key: a key, where the gateway needs one.
    """
    base = url.rstrip("/").removesuffix("/v1")
    try:
        listed = await anyio.to_thread.run_sync(_get, f"{base}/v1/models", api_key)
        # A model is listed under its aliases too.
        entries = {entry["id"]: entry for entry in listed["data"] if entry["gateway"]["model"] == entry["id"]}
        for name in entries:
            path = urllib.parse.quote(name, safe="")
            entries[name] = await anyio.to_thread.run_sync(_get, f"{base}/v1/models/{path}", api_key)
        return await _described(base, api_key, entries, await anyio.to_thread.run_sync(_reasons, base))
    except urllib.error.HTTPError as error:
        error.close()
        fix = "A URL must be the URL of a gateway; for Triton give host:port of its gRPC endpoint."
        if error.code in (401, 403):
            fix = "Give a key with --api-key or GATEWAY_API_KEY."
        return [Finding(Severity.ERROR, base, f"{error.url} responded with status {error.code}.", fix)], {}
    except (OSError, http.client.HTTPException) as error:
        return [Finding(Severity.ERROR, base, f"It is unreachable ({error}).", "Is it the gateway's address?")], {}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return [
            Finding(Severity.ERROR, base, "The response is not a response of this gateway.", "Is it the right URL?")
        ], {}


async def _described(base: str, api_key: str | None, entries: Mapping[str, Any], reasons: Mapping[str, str]) -> Outcome:
    findings = []
    models = {}
    for name, entry in entries.items():
        gateway = entry["gateway"]
        if not gateway.get("ready", True):
            reason = reasons.get(name) or gateway.get("reason") or "Not ready"
            findings.append(Finding(Severity.ERROR, f"{base} {name}", sentence(reason)))
        else:
            task = gateway.get("task") or "generate"
            findings += await anyio.to_thread.run_sync(_proof, base, name, task, api_key)
        tokenizer = (entry.get("capabilities") or {}).get("tokenizer") or {}
        if tokenizer.get("how") == "impossible":
            findings.append(Finding(Severity.INFO, f"{base} {name}", sentence(tokenizer["note"])))
        findings += doubt_findings(f"{base} {name}", gateway.get("family"), gateway.get("family_doubts") or {})
        if gateway.get("template_renders") is False:
            what = "Its chat template cannot render a user message."
            fix = "Chats that have only user messages are rejected; the gateway's log has the reason."
            findings.append(Finding(Severity.WARNING, f"{base} {name}", what, fix))
        losses = dict.fromkeys(gateway.get("losses") or (), "") | (gateway.get("cures") or {})
        findings += loss_findings(f"{base} {name}", losses)
        models[name] = ServedDescription(
            gateway.get("path"),
            gateway.get("path_reason") or reasons.get(name) or gateway.get("reason"),
            gateway.get("triton_model"),
            gateway.get("max_seq_len"),
            {key: _capability(value) for key, value in (entry.get("capabilities") or {}).items()},
            gateway.get("task"),
        )
    return findings, models


def _proof(base: str, model: str, task: str, api_key: str | None) -> list[Finding]:
    """Have a model do its task once, for one token; what is wrong where it does not."""
    path, fields = _SMALLEST[task]
    asked = "one token" if task == "generate" else "one short text"
    body = json.dumps({"model": model, **fields}).encode()
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {api_key}"} if api_key else {})
    request = urllib.request.Request(f"{base}{path}", body, headers)  # noqa: S310 - as for _get
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=_PROOF_S) as answer:
            json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            detail = error.read(2000).decode(errors="replace")
        limited = error.code == http.HTTPStatus.TOO_MANY_REQUESTS
        severity = Severity.WARNING if limited else Severity.ERROR
        what = f"A request for {asked} got status {error.code}: {detail.strip()}"
        return [Finding(severity, f"{base} {model}", sentence(what))]
    except (OSError, ValueError, http.client.HTTPException) as error:
        return [Finding(Severity.ERROR, f"{base} {model}", f"A request for {asked} got no response ({error}).")]
    return []


def _capability(value: Mapping[str, Any]) -> Capability:
    return Capability(value["how"], value["note"], value.get("limit"))


def _reasons(base: str) -> dict[str, str]:
    """Read the reason why each model is not ready; health gives more of it where the API is open."""
    try:
        health = _get(f"{base}/health/ready", None)
    except urllib.error.HTTPError as error:
        if error.code != 503:
            raise
        with error:
            health = json.load(error)
    return {name: model["reason"] for name, model in health["models"].items() if "reason" in model}


def _get(url: str, api_key: str | None) -> Any:
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    request = urllib.request.Request(url, headers=headers)  # noqa: S310 - the caller has checked the scheme
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # without the environment's proxy
    with opener.open(request, timeout=_TIMEOUT_S) as answer:
        return json.load(answer)

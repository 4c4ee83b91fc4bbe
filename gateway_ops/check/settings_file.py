"""Finds every mistake in a settings file and in the files that it names, with its line."""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import anyio.to_thread
import jinja2
import pydantic

from gateway.api.openai.state import cipher_of
from gateway.generation import EngineError
from gateway.generation.engine import EngineFeatures
from gateway.http.certificates import CertificateError
from gateway.serving.fleet.addresses import Addresses
from gateway.serving.fleet.common_features import common, conflict
from gateway.serving.loading import ModelParts, load_parts, needs_discovery
from gateway.serving.store import check_state
from gateway.serving.tokenizer_match import OVERRIDE, compared, tokenizer_mismatch, wide_engine
from gateway.settings import ConfigError, ModelSettings, Settings, StateSettings, TelemetrySettings, TritonSettings
from gateway.settings.gateway_settings import NO_MODEL
from gateway.settings.settings_validation import validate, validate_deployments, with_absolute_paths
from gateway.settings.yaml_file import Keys, SettingsDocument, dotted, read_document
from gateway.telemetry.exporting import check_telemetry
from gateway.text.prompt.chat_template import make_environment
from gateway.text.tokens import unreadable
from gateway.triton.abilities import engine_options
from gateway.triton.access import triton_access
from gateway.triton.inspection import DiscoveryError, NoTokenError, inspect_model
from gateway_ops.check.certificates import check_calling, check_listening
from gateway_ops.check.encoder import prove_encoder
from gateway_ops.check.endpoint import Outcome, ServedDescription
from gateway_ops.check.findings import STARTS_WITHOUT, Finding, Severity, doubt_findings, loss_findings, sentence
from gateway_ops.check.keys import check_keys
from gateway_ops.check.mirrors import check_mirrors
from gateway_ops.check.repository.built import as_finding, here
from gateway_ops.engines.verification import mismatches
from gateway_ops.repository.contradictions import contradictions, draft_contradictions


async def check_file(path: Path, *, offline: bool) -> Outcome:
    """Check a settings file, the files that it names, and its Tritons; the environment is ignored."""
    try:
        document = await anyio.to_thread.run_sync(read_document, path)
    except ConfigError as error:
        return [
            Finding(Severity.ERROR, _at(path, problem.line), _without(path, problem.what), problem.fix)
            for problem in error.problems
        ], {}
    settings, problems = validate(document, folder=path.parent)
    only_deployments = bool(document.data.get("deployments")) and not document.data.get("models")
    found = [
        (problem.line or 0, Finding(Severity.ERROR, _at(path, problem.line), problem.what, problem.fix))
        for problem in problems
        if not (only_deployments and problem.what.startswith(NO_MODEL))
    ]
    if only_deployments:
        what = "It has deployments but no models: it works for `gateway repo`, not for `gateway serve`."
        found.append((0, Finding(Severity.INFO, str(path), what)))
    if settings is not None:
        found += [_located(path, document, *item) for item in _check_gateway(settings)]
    models = list(_models(document, path.parent))
    found += [_located(path, document, *item) for item in _check_deployments(document, models)]
    outcomes = await asyncio.gather(*(_check_model(model, right=right, offline=offline) for _, model, right in models))
    described: dict[str, ServedDescription] = {}
    for (index, model, _), (findings, features) in zip(models, outcomes, strict=True):
        found += [_located(path, document, ("models", index, *keys), finding) for keys, finding in findings]
        if features is not None:
            described[model.name] = ServedDescription.of(features)
    if settings is not None:
        served = [(index, model, of[1]) for (index, model, _), of in zip(models, outcomes, strict=True)]
        mirrors = await anyio.to_thread.run_sync(lambda: list(check_mirrors(served, settings.server)))
        found += [_located(path, document, *item) for item in mirrors]
    found.sort(key=lambda item: item[0])
    return [finding for _, finding in found], described


Located = tuple[Keys, Finding]
Checked = tuple[int, ModelSettings, bool]


def _located(path: Path, document: SettingsDocument, keys: Keys, finding: Finding) -> tuple[int, Finding]:
    """Place a finding at the line of a key, unless it knows a better place, such as a template's line."""
    line = document.line(keys)
    where = finding.where or _at(path, line)
    return line or 0, Finding(finding.severity, where, finding.what, finding.fix)


def _at(path: Path, line: int | None) -> str:
    return f"{path}:{line}" if line is not None else str(path)


def _without(path: Path, what: str) -> str:
    return what.removeprefix(f"{path}: ")


def _check_gateway(settings: Settings) -> Iterator[Located]:
    """Find settings that are allowed but probably not meant."""
    if not settings.asks_for_keys and not _is_loopback(settings.server.host):
        what = f"Every client that reaches {settings.server.host} may use this gateway: API keys are not configured."
        fix = "Set GATEWAY_API_KEYS in the environment, or auth.keys_file."
        yield ("server", "host"), Finding(Severity.WARNING, "", what, fix)
    if settings.timeouts.first_token_s > settings.timeouts.total_s:
        what = "timeouts.first_token_s is longer than timeouts.total_s, so it has no effect."
        yield ("timeouts", "first_token_s"), Finding(Severity.WARNING, "", what)
    yield from check_listening(settings.server)
    yield from _check_state(settings.state)
    yield from check_keys(settings)
    yield from _check_telemetry(settings.telemetry)


def _check_state(settings: StateSettings) -> Iterator[Located]:
    """Find what would keep a gateway on this machine from keeping state, and from its keys."""
    found = {"path": _problem_of(check_state, settings), "keys_file": _problem_of(cipher_of, settings)}
    if found["path"] == found["keys_file"]:  # a missing package fails both
        del found["path"]
    for key, problem in found.items():
        if problem is not None:
            yield ("state", key), problem


def _check_telemetry(settings: TelemetrySettings) -> Iterator[Located]:
    try:
        check_telemetry(settings)
    except ConfigError as error:
        key = "traces" if settings.traces else "metrics"
        yield ("telemetry", key), Finding(Severity.ERROR, "", str(error))


def _problem_of(check: Callable[[StateSettings], object], settings: StateSettings) -> Finding | None:
    try:
        reason = check(settings)
    except ConfigError as error:
        return Finding(Severity.ERROR, "", str(error))
    return Finding(Severity.WARNING, "", sentence(reason)) if isinstance(reason, str) else None


def _check_deployments(document: SettingsDocument, models: Sequence[Checked]) -> Iterator[Located]:
    """Find contradictions within deployments without mistakes, and between them and the models."""
    deployments = validate_deployments(document)[0] if document.data.get("deployments") else ()
    known = [(index, model) for index, model, _ in models]
    for found in (*contradictions(deployments), *draft_contradictions(known, deployments)):
        yield found.keys, Finding(Severity.ERROR, "", f"{dotted(found.keys)}: {found.reason}.", found.fix)
    for index, deployment in enumerate(deployments):
        if not deployment.triton.decoupled:
            keys = ("deployments", index, "triton", "decoupled")
            what = f"{dotted(keys)}: with false a streamed answer arrives as one event at the end."
            yield keys, Finding(Severity.WARNING, "", what, "Leave it true.")
        for mismatch in mismatches(deployment, here() if Path(deployment.engine_dir or "").is_dir() else None):
            yield ("deployments", index, "engine_dir"), as_finding(mismatch, "")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _models(document: SettingsDocument, folder: Path) -> Iterator[Checked]:
    """Yield index and settings of each model, and whether they are valid; else those that can still be checked."""
    data: Any = with_absolute_paths(document.data, folder) if document.data.get("models") else {}
    models = data.get("models")
    for index, model in enumerate(models if isinstance(models, list) else ()):
        if not isinstance(model, dict):
            continue
        try:
            yield index, ModelSettings.model_validate(model), True
        except pydantic.ValidationError as error:
            wrong = {item["loc"][0] for item in error.errors()}
            right = {
                key: value for key, value in model.items() if key in ("tokenizer", "template") and key not in wrong
            }
            yield index, ModelSettings(name="wrong", triton=TritonSettings(url="nowhere:0"), **right), False


async def _check_model(
    settings: ModelSettings, *, right: bool, offline: bool
) -> tuple[list[Located], EngineFeatures | None]:
    found = await anyio.to_thread.run_sync(lambda: list(check_files(settings)))
    features = None
    if right and not offline:
        features, trouble, answering = await _discover(settings)
        found += trouble
    if right and settings.task != "generate":
        if features is not None:
            found += [(("triton", "model"), each) for each in (await prove_encoder(settings, answering)).findings]
    elif right and not any(finding.severity is Severity.ERROR for _, finding in found):
        found += await anyio.to_thread.run_sync(lambda: list(check_parts(settings, features)))
    return found, features


async def _discover(settings: ModelSettings) -> tuple[EngineFeatures | None, list[Located], str]:
    """Ask each endpoint.

    Returns:
        The features that all have which respond, what is wrong, and the first of those addresses; empty without one.
    """
    triton = settings.triton
    if triton.url is not None:
        return *await _discover_at(settings, triton.url, "url"), triton.url
    found: list[Located] = []
    addresses: list[str] = []
    source = Addresses(triton.endpoints, addresses.extend)
    await source.look()
    for entry, problem in source.complaints.items():
        what = f"{entry} has no address: {problem}."
        found.append((("triton", "endpoints"), Finding(Severity.WARNING, "", what, "The gateway retries the look-up.")))
    outcomes = await asyncio.gather(*(_discover_at(settings, each, "endpoints") for each in addresses))
    known: EngineFeatures | None = None
    first = next((address for address, (features, _) in zip(addresses, outcomes, strict=True) if features), "")
    for address, (features, findings) in zip(addresses, outcomes, strict=True):
        found += findings
        if known is not None and features is not None and (why := conflict(known, features)):
            what = f"The endpoint {address} gets no requests: {why}."
            found.append((("triton", "endpoints"), Finding(Severity.ERROR, "", what)))
        elif features is not None:
            known = features if known is None else common((known, features))
    return known, found, first


async def _discover_at(settings: ModelSettings, url: str, key: str) -> tuple[EngineFeatures | None, list[Located]]:
    triton = settings.triton
    try:
        access = triton_access(triton)
    except CertificateError:
        return None, []  # the check of the files says it
    try:
        features = await inspect_model(url, triton.model, settings.path, engine_options(settings), access)
    except DiscoveryError as error:
        where = "" if key == "url" else f" (Triton at {url})"
        return None, [(("triton", "model"), Finding(Severity.ERROR, "", sentence(f"{str(error).rstrip('.')}{where}")))]
    except EngineError as error:
        what = error.message.rstrip(".")
        what = f"{what}." if url in what else f"{what} (Triton at {url})."
        if isinstance(error, NoTokenError):
            return None, [(("triton", key), Finding(Severity.ERROR, "", what, "Triton's log has the reason."))]
        return None, [(("triton", key), Finding(Severity.WARNING, "", what, STARTS_WITHOUT))]
    warnings = [Finding(Severity.WARNING, "", sentence(words)) for words in features.warnings]
    return features, [(("triton", "model"), each) for each in (*warnings, *loss_findings("", features.losses))]


def check_files(settings: ModelSettings) -> Iterator[Located]:
    """Find mistakes in the tokenizer's folder and in the template.

    Yields:
        Key path within the model, and finding.
    """
    folder = settings.tokenizer
    if folder is not None and not folder.is_dir():
        what = f"The folder {folder} does not exist." if not folder.exists() else f"{folder} is not a folder."
        yield ("tokenizer",), Finding(Severity.ERROR, "", what, "Name the model's folder, which has tokenizer.json.")
    elif folder is not None and (trouble := unreadable(folder)):
        yield ("tokenizer",), Finding(Severity.ERROR, "", trouble)
    if settings.template is not None:
        yield from _check_template(settings.template)
    yield from check_calling(settings.triton)


def _check_template(path: Path) -> Iterator[Located]:
    try:
        make_environment().parse(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        yield ("template",), Finding(Severity.ERROR, "", f"The template cannot be read ({error}).")
    except jinja2.TemplateSyntaxError as error:
        what = f"The template does not parse: {error.message}."
        yield ("template",), Finding(Severity.ERROR, f"{path}:{error.lineno}", what)


def check_parts(settings: ModelSettings, features: EngineFeatures | None) -> Iterator[Located]:
    """Load tokenizer and template as the gateway does at its start, and compare them with the settings.

    Args:
        settings: the model's settings, without errors so far.
        features: features of the engine; None while Triton is unreachable.

    Yields:
        Key path within the model, and finding.
    """
    if features is None and needs_discovery(settings):
        missing = [key for key in ("tokenizer", "max_seq_len") if getattr(settings, key) is None]
        what = f"{' and '.join(missing)} must come from Triton's configuration, which was not read."
        yield (), Finding(Severity.WARNING, "", what)
        return
    try:
        parts = load_parts(settings, features, "")
    except ConfigError as error:
        key, _, what = str(error).removeprefix(".").partition(": ")
        yield tuple(key.partition(" ")[0].split(".")), Finding(Severity.ERROR, "", what)
        return
    yield from _check_loaded(parts)
    if features is not None:
        yield from _check_tokenizer(parts, features, settings)
    for bound, who in (
        (features.max_seq_len if features else None, "the engine has"),
        (parts.tokenizer.max_position_embeddings, "config.json allows"),
    ):
        if settings.max_seq_len is not None and bound is not None and settings.max_seq_len > bound:
            what = f"max_seq_len is {settings.max_seq_len}, but {who} {bound}."
            yield ("max_seq_len",), Finding(Severity.WARNING, "", what)
    most = settings.defaults.max_tokens
    if most is not None and most >= parts.max_seq_len:
        what = f"defaults.max_tokens is {most}, but the context is {parts.max_seq_len} tokens, including the prompt."
        yield ("defaults", "max_tokens"), Finding(Severity.WARNING, "", what)
    if settings.defaults.generation_config and not (parts.tokenizer_source / "generation_config.json").is_file():
        what = f"{parts.tokenizer_source} has no generation_config.json, so the defaults cannot come from it."
        yield ("defaults", "generation_config"), Finding(Severity.WARNING, "", what)


def _check_tokenizer(parts: ModelParts, features: EngineFeatures, settings: ModelSettings) -> Iterator[Located]:
    """Compare the tokenizer with the engine's."""
    found = tokenizer_mismatch(parts.tokenizer, parts.tokenizer_source, features)
    how, wide = compared(features), wide_engine(parts.tokenizer, features)
    if found is not None:
        severity = Severity.ERROR if settings.check_tokenizer else Severity.WARNING
        yield ("tokenizer",), Finding(severity, "", sentence(_capital(found)), sentence(_capital(OVERRIDE)))
    elif how.how == "impossible":
        yield ("tokenizer",), Finding(Severity.INFO, "", how.note)
    if wide is not None:
        yield ("tokenizer",), Finding(Severity.WARNING, "", sentence(_capital(wide)))


def _capital(words: str) -> str:
    return words[:1].upper() + words[1:]


def _check_loaded(parts: ModelParts) -> Iterator[Located]:
    for finding in doubt_findings("", parts.family.name, parts.choice.doubts):
        yield ("family",), finding
    fault = parts.template(tools=False).fault
    if fault is not None:
        what = f"The chat template cannot render a user message ({fault})."
        yield ("template",), Finding(Severity.WARNING, "", what, "Chats that have only user messages are rejected.")
    if parts.tokenizer.obstacle is not None:
        what = f"Each turn of a conversation tokenizes its whole prompt again, because {parts.tokenizer.obstacle}."
        yield ("tokenizer",), Finding(Severity.INFO, "", what)
    if not parts.end_ids:
        what = f"{parts.tokenizer_source} names no eos_token: answers end only at max_tokens or a stop string."
        fix = "Add eos_token_id to its generation_config.json."
        yield ("tokenizer",), Finding(Severity.WARNING, "", what, fix)

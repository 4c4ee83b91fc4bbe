"""Finds mistakes in named keys: expired keys, unknown models, files that every user may read."""

from __future__ import annotations

import datetime as dt
import stat
from collections.abc import Iterator
from pathlib import Path

from gateway.http.access.guard import check_packages
from gateway.http.access.key_ring import named_keys
from gateway.settings import AuthSettings, ConfigError, JwtSettings, KeySettings, Settings
from gateway.settings.settings_validation import validate_keys
from gateway.settings.yaml_file import Keys, read_document
from gateway_ops.check.findings import Finding, Severity


def check_keys(settings: Settings) -> Iterator[tuple[Keys, Finding]]:
    """Find mistakes in the keys of the settings and the key file, and in the source of tokens.

    Yields:
        Key path, and finding; findings in the key file have their place.
    """
    auth = settings.auth
    names = {name for model in settings.models for name in (model.name, *model.aliases)}
    try:
        check_packages(auth)
        usable = True
    except ConfigError as error:
        usable = False
        yield ("auth",), Finding(Severity.ERROR, "", str(error))
    for index, key in enumerate(auth.keys):
        for finding in _check_key(key, names, ""):
            yield ("auth", "keys", index), finding
    if auth.keys_file is not None:
        for finding in _check_file(auth, auth.keys_file, names):
            yield ("auth", "keys_file"), finding
    if auth.jwt is not None and usable:
        yield from _check_tokens(auth.jwt)


def _check_key(key: KeySettings, names: set[str], where: str) -> Iterator[Finding]:
    if key.expires is not None and key.expires <= dt.datetime.now(dt.timezone.utc):
        what = f"The key {key.name!r} has expired ({key.expires:%Y-%m-%d %H:%M} UTC)."
        yield Finding(Severity.WARNING, where, what, "Remove it, or generate a new key with `gateway key`.")
    for model in key.models or ():
        if model not in names:
            what = f"The key {key.name!r} names the model {model!r}, which is not served."
            yield Finding(Severity.WARNING, where, what)
    if key.models == ():
        yield Finding(
            Severity.WARNING,
            where,
            f"The key {key.name!r} cannot use any model.",
            "Remove `models` to allow all models.",
        )


def _check_file(auth: AuthSettings, path: Path, names: set[str]) -> Iterator[Finding]:
    try:
        document = read_document(path, "file of keys")
    except ConfigError as error:
        for problem in error.problems:
            where = _at(path, problem.line) if problem.line is not None else ""
            yield Finding(Severity.ERROR, where, problem.what, problem.fix)
        return
    keys, problems = validate_keys(document)
    for problem in problems:
        yield Finding(Severity.ERROR, _at(path, problem.line), problem.what, problem.fix)
    if path.stat().st_mode & stat.S_IROTH:
        what = "Every user of this machine can read the keys file, which has names, models and hashes of keys."
        yield Finding(Severity.WARNING, str(path), what, f"chmod 640 {path}")
    for index, key in enumerate(keys):
        yield from _check_key(key, names, _at(path, document.line(("keys", index))))
    if not problems:
        yield from _check_together(auth, path)


def _check_together(auth: AuthSettings, path: Path) -> Iterator[Finding]:
    try:
        named_keys(auth)
    except ConfigError as error:
        yield Finding(Severity.ERROR, str(path), str(error).removeprefix(f"{path}: "))


def _check_tokens(jwt: JwtSettings) -> Iterator[tuple[Keys, Finding]]:
    if jwt.jwks_url is not None and jwt.jwks_url.startswith("http://"):
        what = "The identity provider's keys are fetched without TLS: an attacker on the network can replace them."
        yield ("auth", "jwt", "jwks_url"), Finding(Severity.WARNING, "", what, "Write https://.")
    if jwt.jwks_file is not None:
        from gateway.http.access.jwks import parse_keys  # noqa: PLC0415 - an extra

        try:
            found = parse_keys(jwt.jwks_file.read_bytes())
        except (OSError, ValueError) as error:
            what = f"The file of the identity provider's keys is unusable ({error})."
            yield ("auth", "jwt", "jwks_file"), Finding(Severity.ERROR, "", what)
        else:
            if not found:
                what = "The file of the identity provider's keys has no key that verifies signatures."
                yield ("auth", "jwt", "jwks_file"), Finding(Severity.ERROR, "", what)


def _at(path: Path, line: int | None) -> str:
    return f"{path}:{line}" if line is not None else str(path)

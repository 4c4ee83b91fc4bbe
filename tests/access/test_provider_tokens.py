"""Tokens of an identity provider on the application: which are taken, and for what."""

from __future__ import annotations

import base64
import hmac
import http.server
import json
import logging
import math
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import httpx
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.algorithms import get_default_algorithms

from gateway.http.access import jwks
from gateway.http.access.jwks import JwksSource, parse_keys
from gateway.http.access.tokens import TokenChecker, TokenError
from gateway.settings import JwtSettings
from tests.app.harness import USER, Gateway, gateway
from tests.app.scripted import MODEL
from tests.handler_server import HandlerServer

ISSUER, AUDIENCE = "https://issuer.example", "gateway"


class SigningKey:
    """A private key with its id."""

    def __init__(self, kid: str, algorithm: str = "ES256") -> None:
        self.kid = kid
        self.algorithm = algorithm
        made: Any
        if algorithm.startswith("ES"):
            made = ec.generate_private_key(ec.SECP256R1())
        elif algorithm == "EdDSA":
            made = ed25519.Ed25519PrivateKey.generate()
        else:
            made = rsa.generate_private_key(65537, 2048)
        self.private = made

    @property
    def public(self) -> dict[str, Any]:
        """The public key as the provider gives it."""
        algorithm: Any = get_default_algorithms()[self.algorithm]
        return {**algorithm.to_jwk(self.private.public_key(), as_dict=True), "kid": self.kid, "use": "sig"}

    def token(self, headers: dict[str, Any] | None = None, **claims: Any) -> str:
        """A token with these claims; those that are None are left out."""
        now = time.time()
        usual = {"iss": ISSUER, "aud": AUDIENCE, "sub": "alice", "iat": now, "exp": now + 600}
        given = {name: value for name, value in (usual | claims).items() if value is not None}
        return jwt.encode(given, self.private, self.algorithm, headers={"kid": self.kid, **(headers or {})})


class Provider(HandlerServer):
    """A server of public keys on a port of its own.

    Attributes:
        keys: that it gives now.
        asked: how often it was asked.
        answer: what it answers; None for the keys.
    """

    def __init__(self, *keys: SigningKey) -> None:
        self.keys = list(keys)
        self.asked = 0
        self.answer: Callable[[BaseHTTPRequestHandler], None] | None = None
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                provider.asked += 1
                if provider.answer is not None:
                    provider.answer(self)
                    return
                body = json.dumps({"keys": [key.public for key in provider.keys]}).encode()
                self.send_response(200)
                self.end_headers()
                self.wfile.write(body)

        super().__init__(Handler)
        self.url += "/keys"

    def settings(self, **changes: Any) -> dict[str, Any]:
        return {"issuer": ISSUER, "audience": [AUDIENCE], "jwks_url": self.url, **changes}


OWN, RSA = SigningKey("own"), SigningKey("rsa", "RS256")


@pytest.fixture
def provider() -> Iterator[Provider]:
    with Provider(OWN, RSA) as running:
        yield running


async def ask(gateway: Gateway, token: str) -> httpx.Response:
    return await gateway.client.get("/v1/models", headers={"Authorization": f"Bearer {token}"})


def _segment(value: Any) -> str:
    text = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(text).rstrip(b"=").decode()


def _claims(**claims: Any) -> dict[str, Any]:
    return {"iss": ISSUER, "aud": AUDIENCE, "sub": "alice", "exp": time.time() + 600, **claims}


def _unsigned(algorithm: str) -> str:
    return f"{_segment({'alg': algorithm, 'kid': 'own'})}.{_segment(_claims())}."


def _signed_with_the_public_key(key: SigningKey) -> str:
    """A token signed with HMAC, whose secret is the public key as everyone knows it."""
    secret = key.private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    signed = f"{_segment({'alg': 'HS256', 'kid': key.kid, 'typ': 'JWT'})}.{_segment(_claims())}"
    return f"{signed}.{_segment(hmac.digest(secret, signed.encode(), 'sha256'))}"


def _signed_as_written(claim: str, number: str) -> str:
    """A token with a number that Python writes otherwise."""
    text = json.dumps(_claims(**{claim: "here"})).replace('"here"', number)
    return str(jwt.PyJWS().encode(text.encode(), OWN.private, OWN.algorithm, headers={"kid": OWN.kid}))


def _forged(token: str) -> str:
    """The token of another user, with the signature of this one."""
    head, _, signature = token.split(".")
    return f"{head}.{_segment(_claims(sub='admin'))}.{signature}"


async def test_only_good_tokens_of_the_provider_open(folder: Path, provider: Provider) -> None:
    now = time.time()
    foreign = SigningKey("own")  # another key under the id of a known one
    bad = {
        "none": _unsigned("none"),
        "None": _unsigned("None"),
        "public key as secret": _signed_with_the_public_key(RSA),
        "public EC key as secret": _signed_with_the_public_key(OWN),
        "signed by others": foreign.token(),
        "forged": _forged(OWN.token()),
        "algorithm not taken": SigningKey("own", "EdDSA").token(),
        "key id of another algorithm": RSA.token(headers={"kid": "own"}),
        "other issuer": OWN.token(iss="https://other.example"),
        "no issuer": OWN.token(iss=None),
        "other audience": OWN.token(aud="other"),
        "no audience": OWN.token(aud=None),
        "expired": OWN.token(exp=now - 31),
        "without an end": OWN.token(exp=None),
        "not yet valid": OWN.token(nbf=now + 300),
        "issued later": OWN.token(iat=now + 300),
        **{f"{claim} of 400 digits": OWN.token(**{claim: 10**399}) for claim in ("exp", "nbf", "iat")},
        "expired: exp of 400 digits below 0": OWN.token(exp=-(10**399)),
        **{f"infinite {claim}": OWN.token(**{claim: math.inf}) for claim in ("exp", "nbf", "iat")},
        **{f"{claim} of 1e400": _signed_as_written(claim, "1e400") for claim in ("exp", "nbf", "iat")},
        "exp of 400 digits in a string": OWN.token(exp="9" * 400),
        "no name": OWN.token(sub=None),
        "empty name": OWN.token(sub=""),
        "name with a line": OWN.token(sub="a\nb"),
        "long name": OWN.token(sub="a" * 129),
        "number as name": OWN.token(role=7, sub=None),
        "long": OWN.token(more="x" * 20_000),
        "critical extension": OWN.token(headers={"crit": ["x"], "x": 1}),
        "two parts": "a.b",
        "three parts": "a.b.c",
        "not text": "\u00e4.\u00f6.\u00fc",
        "deep head": f"{_segment(b'[' * 9000)}.{_segment({})}.",
        "deep claims": f"{_segment({'alg': 'ES256', 'kid': 'own'})}.{_segment(b'[' * 9000)}.AA",
        "head is a list": f"{_segment([])}.{_segment({})}.",
        "kid is a list": f"{_segment({'alg': 'ES256', 'kid': [1]})}.{_segment(_claims())}.AA",
    }
    async with gateway(folder, auth={"jwt": provider.settings()}) as one:
        for good in (OWN.token(), RSA.token(), OWN.token(aud=["x", AUDIENCE]), OWN.token(exp=now - 5), OWN.token()):
            assert (await ask(one, good)).status_code == 200
        for why, token in bad.items():
            headers = {b"Authorization": b"Bearer " + token.encode()}
            answer = await one.client.get("/v1/models", headers=headers)  # type: ignore[arg-type]
            assert answer.status_code == 401, why
            error = answer.json()["error"]
            assert error["code"] == "invalid_api_key"
            told = "The token has expired." if why.startswith("expired") else "Incorrect API key provided."
            assert error["message"] == told
        body = {"model": MODEL, "messages": USER, "max_tokens": 1}
        answer = await one.client.post("/v1/messages", json=body, headers={"x-api-key": OWN.token()})
        assert answer.status_code == 200
        answer = await one.client.post("/v1/messages", json=body, headers={"x-api-key": foreign.token()})
        assert answer.json()["error"]["type"] == "authentication_error"


async def test_claims_name_models_and_limits(
    folder: Path, provider: Provider, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    claims = {"name_claim": "email", "models_claim": "models", "limits_claim": "limits"}
    auth = {"jwt": provider.settings(**claims, models=["none"], limits={"requests_per_minute": 5})}
    async with gateway(folder, auth=auth) as one:

        async def chat(**claims: Any) -> httpx.Response:
            headers = {"Authorization": f"Bearer {OWN.token(email='al@example.com', **claims)}"}
            return await one.client.post(
                "/v1/chat/completions", json={"model": MODEL, "messages": USER}, headers=headers
            )

        assert (await chat()).status_code == 404
        for models in ([MODEL], f"other {MODEL}"):
            answer = await chat(models=models)
            assert (answer.status_code, answer.headers["x-ratelimit-limit-requests"]) == (200, "5")
        assert (await chat(models=[MODEL], limits={"requests_per_minute": 1})).status_code == 200
        assert (await chat(models=[MODEL], limits={"requests_per_minute": 1})).status_code == 429
        for wrong in ({"models": 5}, {"models": [1]}, {"limits": {"rpm": 5}}, {"limits": {"in_flight": 0}}):
            assert (await chat(**{"models": [MODEL], **wrong})).status_code == 401
        assert 'gateway_key_requests_total{key="al@example.com"}' in (await one.client.get("/metrics")).text
    assert {getattr(line, "key", None) for line in caplog.records if line.name == "gateway.access"} >= {
        "al@example.com"
    }


async def test_metrics_have_a_bounded_number_of_names(folder: Path, provider: Provider) -> None:
    async with gateway(folder, auth={"jwt": provider.settings()}) as one:
        for number in range(103):
            headers = {"Authorization": f"Bearer {OWN.token(sub=f'user-{number}')}", "content-type": "text/plain"}
            await one.client.post("/tokenize", content=b"", headers=headers)
        text = (await one.client.get("/metrics")).text
        assert text.count("gateway_key_requests_total{") == 101
        assert 'gateway_key_requests_total{key="other"} 3.0' in text


async def test_keys_go_on_beside_tokens(folder: Path, provider: Provider) -> None:
    async with gateway(folder, auth={"jwt": provider.settings()}, server={"api_keys": ["flat"]}) as one:
        assert (await ask(one, "flat")).status_code == 200
        assert (await ask(one, "wrong")).status_code == 401
        assert (await one.client.get("/v1/models")).status_code == 401


def checker(provider: Provider, again_s: float = 0.0, **changes: Any) -> TokenChecker:
    return TokenChecker(JwtSettings.model_validate(provider.settings(**changes)), again_s)


async def test_a_new_key_is_found_when_a_token_has_it(provider: Provider) -> None:
    tokens = checker(provider)
    await tokens.check(OWN.token().encode())
    assert provider.asked == 1
    new = SigningKey("new")
    provider.keys = [new]
    assert (await tokens.check(new.token().encode())).caller.name == "alice"
    assert provider.asked == 2
    with pytest.raises(TokenError):  # the former one is gone
        await tokens.check(OWN.token().encode())


async def test_strangers_cannot_have_the_provider_asked_at_will(provider: Provider) -> None:
    tokens = checker(provider, again_s=60)
    for number in range(20):
        with pytest.raises(TokenError):
            await tokens.check(SigningKey(f"strange-{number}").token().encode())
    assert provider.asked == 1
    await tokens.check(OWN.token().encode())


async def test_keys_stay_while_the_provider_is_away(provider: Provider, caplog: pytest.LogCaptureFixture) -> None:
    tokens = checker(provider)
    await tokens.check(OWN.token().encode())

    def answers(status: int, body: bytes = b"", **headers: str) -> Callable[[http.server.BaseHTTPRequestHandler], None]:
        def answer(handler: http.server.BaseHTTPRequestHandler) -> None:
            handler.send_response(status)
            for name, value in headers.items():
                handler.send_header(name, value)
            handler.end_headers()
            handler.wfile.write(body)

        return answer

    redirects, large = answers(302, Location="file:///etc/hostname"), answers(200, b" " * (jwks._MOST_BYTES + 1))
    for answer in (answers(500), large, redirects, answers(200, b"[]")):
        provider.answer = answer
        await tokens.source.look()
        assert set(tokens.source.keys) == {"own", "rsa"}
    assert caplog.text.count("cannot be read, the previous keys stay in use") == 1  # said once
    assert (await tokens.check(OWN.token(sub="bob").encode())).caller.name == "bob"
    provider.answer = None
    await tokens.source.look()
    assert "can be read again" in caplog.text


async def test_a_provider_that_is_slow_holds_no_look_up(provider: Provider, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jwks, "_TIMEOUT_S", 0.2)

    def drips(handler: http.server.BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.end_headers()
        end = time.monotonic() + 10
        try:
            while time.monotonic() < end:
                handler.wfile.write(b" ")
                time.sleep(0.01)
        except OSError:
            return

    provider.answer = drips
    begun = time.monotonic()
    with pytest.raises(TokenError):
        await checker(provider).check(OWN.token().encode())
    assert time.monotonic() - begun < 5


async def test_keys_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "jwks.json"
    file.write_text(json.dumps({"keys": [OWN.public]}))
    source = JwksSource(None, file, 300, again_s=0)
    assert await source.find("own") is not None
    assert await source.find(None) is not None  # the only one
    file.write_text(json.dumps({"keys": [OWN.public, RSA.public]}))
    assert await source.find("rsa") is not None
    assert await source.find(None) is None


def test_secrets_and_what_is_no_signing_key_are_left_out() -> None:
    secret = {"kty": "oct", "kid": "secret", "k": "c2VjcmV0", "alg": "HS256"}
    other = {**RSA.public, "kid": "enc", "use": "enc"}
    broken = {"kty": "EC", "kid": "broken", "crv": "P-256", "x": "AA", "y": "AA"}
    keys = parse_keys(json.dumps({"keys": [secret, other, broken, OWN.public, 5]}).encode())
    assert set(keys) == {"own"}
    for text in (b"5", b"{}", b'{"keys": {}}', json.dumps({"keys": [OWN.public] * 300}).encode(), b"\xff", b"[" * 5000):
        with pytest.raises(ValueError, match=r".*"):
            parse_keys(text)

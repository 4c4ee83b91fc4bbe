"""An identity provider: keys that are made here, tokens signed by them, and a server that gives the public ones."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import get_default_algorithms

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

"""Settings of TLS for clients and for Triton."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, model_validator

from gateway.settings.section import Section, split_commas

_METADATA_NAME = re.compile(r"[a-z0-9_.-]+")
_METADATA_VALUE = re.compile(r"[\x20-\x7e]*")
# Those of the protocol itself; the last one makes tritonserver crash (docs/contributing/decisions.md).
_RESERVED = ("content-type", "te", "user-agent", "host", "connection", "triton_grpc_error")


class ServerTlsSettings(Section):
    """TLS for clients. Files are PEM and are reloaded when they change.

    Attributes:
        certificate: the gateway's certificate, followed by intermediate certificates.
        key: private key of the certificate, not encrypted.
        client_ca: CA certificates for client certificates.
        client_certificates: ``required`` rejects connections without a client certificate, ``optional`` verifies a
            certificate if the client sends one.
        minimum_version: lowest accepted TLS version.
    """

    certificate: Path
    key: Path
    client_ca: Path | None = None
    client_certificates: Literal["none", "optional", "required"] = "none"
    minimum_version: Literal["1.2", "1.3"] = "1.2"

    @model_validator(mode="after")
    def _together(self) -> ServerTlsSettings:
        if self.client_ca is None and self.client_certificates != "none":
            raise ValueError("client_certificates requires client_ca, the CA certificates for client certificates")
        if self.client_ca is not None and self.client_certificates == "none":
            raise ValueError("client_ca requires client_certificates: required or optional")
        return self


class TritonTlsSettings(Section):
    """TLS to Triton; an empty section (``{}``) enables it. Files are reloaded when they change.

    Attributes:
        ca: CA certificates for Triton's certificate; None: those that the machine trusts.
        certificate: the gateway's client certificate if Triton requires one, followed by intermediate certificates.
        key: private key of the certificate, not encrypted.
        server_name: the name in Triton's certificate; None: the host of each endpoint.
    """

    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    server_name: str | None = Field(default=None, min_length=1)

    @model_validator(mode="after")
    def _together(self) -> TritonTlsSettings:
        if (self.certificate is None) != (self.key is None):
            raise ValueError("certificate and key must be set together")
        return self


def _split_pairs(value: object) -> object:
    """Read ``name=value`` pairs between commas, as an environment variable holds them."""
    if not isinstance(value, str):
        return value
    pairs = [str(each).partition("=") for each in split_commas(value)]  # type: ignore[attr-defined]
    if not all(sign for _, sign, _ in pairs):
        raise ValueError("must be name=value pairs, separated by commas")
    return {name.strip(): given.strip() for name, _, given in pairs}


def _carried(value: dict[str, SecretStr]) -> dict[str, SecretStr]:
    """Reject names and values that gRPC does not carry."""
    for name, given in value.items():
        if not _METADATA_NAME.fullmatch(name):
            raise ValueError(f"{name!r} must be a gRPC metadata name of a-z, 0-9, _, - and .")
        if name in _RESERVED or name.startswith("grpc-") or name.endswith("-bin"):
            raise ValueError(f"{name!r} is reserved for the protocol and cannot be set")
        if not _METADATA_VALUE.fullmatch(given.get_secret_value()):
            raise ValueError(f"the value of {name!r} must be printable ASCII")
    return value


Metadata = Annotated[dict[str, SecretStr], BeforeValidator(_split_pairs), AfterValidator(_carried)]
"""Headers of RPCs by their names."""

"""Certificates for tests, made on the spot."""

from __future__ import annotations

import datetime as dt
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LOOPBACK = ("localhost", "127.0.0.1")


@dataclass(frozen=True)
class Pair:
    """Files of a certificate and its key."""

    certificate: Path
    key: Path

    def replace_by(self, other: Pair) -> None:
        """Put another pair in its place, each file at once."""
        for mine, theirs in ((self.certificate, other.certificate), (self.key, other.key)):
            new = mine.with_suffix(".new")
            new.write_bytes(theirs.read_bytes())
            new.replace(mine)


class Authority:
    """One that signs certificates.

    Attributes:
        path: file with its own.
    """

    def __init__(self, folder: Path, name: str = "Tests") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(name)
        made = _builder(self._name, self._name, self._key, days=30)
        made = made.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        made = made.add_extension(x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False)
        made = made.add_extension(_usage(authority=True), critical=True)
        self._certificate = made.sign(self._key, hashes.SHA256())
        self.path = folder / f"{name}-ca.crt"
        self.path.write_bytes(self._certificate.public_bytes(serialization.Encoding.PEM))

    def issue(
        self, name: str, *, hosts: tuple[str, ...] = LOOPBACK, days: float = 30, password: bytes | None = None
    ) -> Pair:
        """A certificate for server and client, and its key.

        Args:
            name: of its subject and its files.
            hosts: names and addresses in it.
            days: that it is valid from now on; negative: since when it has been expired.
            password: that encrypts the key.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        made = _builder(_name(name), self._name, key, days)
        names = x509.SubjectAlternativeName([_host(each) for each in hosts])
        uses = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
        made = made.add_extension(names, critical=False).add_extension(uses, critical=False)
        made = made.add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False
        )
        signed = made.add_extension(_usage(authority=False), critical=True).sign(self._key, hashes.SHA256())
        pair = Pair(self._folder / f"{name}.crt", self._folder / f"{name}.key")
        pair.certificate.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
        secret: serialization.KeySerializationEncryption = serialization.NoEncryption()
        if password is not None:
            secret = serialization.BestAvailableEncryption(password)
        encoded = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, secret)
        pair.key.write_bytes(encoded)
        return pair


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, days: float
) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.timezone.utc)
    end = now + dt.timedelta(days=days)
    begin = min(now, end) - dt.timedelta(days=1)
    made = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key.public_key())
    return made.serial_number(x509.random_serial_number()).not_valid_before(begin).not_valid_after(end)


def _usage(*, authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=authority,
        crl_sign=authority,
        encipher_only=False,
        decipher_only=False,
    )


def _host(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)

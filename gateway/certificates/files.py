"""The PEM files of one side of TLS."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

Stamp = tuple[tuple[str, int, int, int] | None, ...]


class CertificateError(Exception):
    """Files that cannot be used; the message is one sentence for the operator, without its full stop."""


@dataclass(frozen=True, slots=True)
class CertificateFiles:
    """Names of files.

    Attributes:
        certificate: shown to the other side, with those between it and its authority behind it; None shows none.
        key: of the certificate.
        authorities: that vouch for the other side; None where others do, or nobody has to.
    """

    certificate: Path | None = None
    key: Path | None = None
    authorities: Path | None = None

    def stamp(self) -> Stamp:
        """Identity of each file, which changes when it does: also where a symbolic link above it is switched."""
        return tuple(_identity(path) for path in (self.certificate, self.key, self.authorities) if path is not None)


def read_pem(path: Path) -> bytes:
    """The content of a file.

    Raises:
        CertificateError: it cannot be read, or is no PEM.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise CertificateError(f"{path} cannot be read ({error.strerror})") from None
    if b"-----BEGIN " not in content:
        raise CertificateError(f"{path} is no PEM file: it has no line that begins with -----BEGIN")
    return content


def _identity(path: Path) -> tuple[str, int, int, int] | None:
    # A volume of Kubernetes changes all its files at once by a link to another folder.
    real = os.path.realpath(path)
    try:
        found = Path(real).stat()
    except OSError:
        return None
    return real, found.st_mtime_ns, found.st_size, found.st_ino

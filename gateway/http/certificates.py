"""TLS certificates from files: verified before use, and reloaded when the files change."""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
import os
import re
import ssl
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Generic, TypeVar

from gateway.telemetry.supervision import end_tasks, keep_running

Stamp = tuple[tuple[str, int, int, int] | None, ...]

_FIRST = re.compile(rb"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)
_STEPS = 10  # more turns than any handshake takes
_EXPIRED = 10  # X509_V_ERR_CERT_HAS_EXPIRED
_NOT_YET = 9  # X509_V_ERR_CERT_NOT_YET_VALID
_PURPOSE = 26  # X509_V_ERR_INVALID_PURPOSE

_log = logging.getLogger(__name__)
_LOOK_S: Final = 2.0

T = TypeVar("T")


class CertificateError(Exception):
    """Files that cannot be used; the message is one sentence for the operator, without its full stop."""


@dataclass(frozen=True, slots=True)
class CertificateFiles:
    """The files of a certificate, its key, and trusted authorities.

    Attributes:
        certificate: certificate chain that the other side gets; None sends none.
        key: private key of the certificate.
        authorities: authorities that sign the other side's certificate; None for the default ones or none.
    """

    certificate: Path | None = None
    key: Path | None = None
    authorities: Path | None = None

    def stamp(self) -> Stamp:
        """The identity of each file, which changes with the file or a symbolic link in its path."""
        return tuple(_identity(path) for path in (self.certificate, self.key, self.authorities) if path is not None)


def read_pem(path: Path) -> bytes:
    """Return the content of a PEM file.

    Raises:
        CertificateError: the file cannot be read, or is not PEM.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise CertificateError(f"{path} cannot be read ({error.strerror})") from None
    if b"-----BEGIN " not in content:
        raise CertificateError(f"{path} is not a PEM file: no line begins with -----BEGIN")
    return content


def _identity(path: Path) -> tuple[str, int, int, int] | None:
    # A volume of Kubernetes changes all its files together, by a link to another folder.
    real = os.path.realpath(path)
    try:
        found = Path(real).stat()
    except OSError:
        return None
    return real, found.st_mtime_ns, found.st_size, found.st_ino


def load_pair(context: ssl.SSLContext, certificate: Path, key: Path) -> None:
    """Load a certificate and its key into a context.

    Raises:
        CertificateError: the files are not a certificate and its key.
    """
    _leaf(certificate)
    read_pem(key)
    try:
        # Without a password at hand OpenSSL would ask the terminal for it.
        context.load_cert_chain(certificate, key, password=_no_password)
    except _EncryptedError:
        raise CertificateError(f"the key in {key} is encrypted; it must not have a password") from None
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise CertificateError(f"the key in {key} does not match the certificate in {certificate}") from None
        raise CertificateError(f"{certificate} with {key} cannot be used ({_words(error)})") from None
    except OSError as error:
        raise CertificateError(f"{certificate} or {key} cannot be read ({error.strerror})") from None


def load_authorities(context: ssl.SSLContext, path: Path) -> None:
    """Load trusted authorities into a context.

    Raises:
        CertificateError: the file has none.
    """
    read_pem(path)
    try:
        context.load_verify_locations(path)
    except ssl.SSLError as error:
        raise CertificateError(f"{path} contains no CA certificates ({_words(error)})") from None


def expiry_of(certificate: Path, key: Path, *, client: bool) -> dt.datetime:
    """Verify a certificate and its key by a handshake in memory; returns the time of expiry.

    Args:
        certificate: file of the certificate.
        key: file of its key.
        client: whether the connecting side uses the certificate.

    Raises:
        CertificateError: the files are not a pair, or the other side will reject the certificate.
    """
    listening, connecting = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    connecting.check_hostname = False
    connecting.verify_mode = ssl.CERT_NONE
    load_pair(listening, certificate, key)
    load_pair(connecting, certificate, key)
    verifying = listening if client else connecting
    verifying.verify_mode = ssl.CERT_REQUIRED
    verifying.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # trusted for itself: who vouches for it is not asked
    verifying.load_verify_locations(cadata=_leaf(certificate))
    try:
        shown = _shake_hands(listening, connecting, listens=client)
    except ssl.SSLCertVerificationError as error:
        raise CertificateError(_why_not(certificate, error, client=client)) from None
    except ssl.SSLError as error:
        raise CertificateError(f"{certificate} with {key} cannot be used ({_words(error)})") from None
    return dt.datetime.fromtimestamp(ssl.cert_time_to_seconds(str(shown["notAfter"])), dt.timezone.utc)


def _why_not(certificate: Path, error: ssl.SSLCertVerificationError, *, client: bool) -> str:
    if error.verify_code == _EXPIRED:
        return f"the certificate in {certificate} has expired"
    if error.verify_code == _NOT_YET:
        return f"the certificate in {certificate} is not valid yet"
    if error.verify_code == _PURPOSE:
        side = "a client" if client else "a server"
        return f"the certificate in {certificate} is not for {side} (extended key usage)"
    return f"the certificate in {certificate} is not accepted ({error.verify_message})"


def _shake_hands(listening: ssl.SSLContext, connecting: ssl.SSLContext, *, listens: bool) -> dict[str, object]:
    """Connect two contexts; the certificate that the listening or else the connecting side has seen."""
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = listening.wrap_bio(up, down, server_side=True)
    client = connecting.wrap_bio(down, up)
    for _ in range(_STEPS):
        if _goes_on(client) + _goes_on(server) == 2:
            break
    return dict((server if listens else client).getpeercert() or {})


def _goes_on(side: ssl.SSLObject) -> bool:
    """Go on with its handshake; whether that is done."""
    try:
        side.do_handshake()
    except ssl.SSLWantReadError:
        return False
    return True


def _leaf(certificate: Path) -> bytes:
    """The first certificate of a file, as DER."""
    found = _FIRST.search(read_pem(certificate))
    try:
        return ssl.PEM_cert_to_DER_cert(found[0].decode("ascii") if found else "")
    except ValueError:
        raise CertificateError(f"{certificate} contains no certificate") from None


class _EncryptedError(Exception):
    """A key needs a password."""


def _no_password() -> str:
    raise _EncryptedError


def _words(error: ssl.SSLError) -> str:
    return (error.reason or str(error)).replace("_", " ").lower()


class FileBackedValue(Generic[T]):
    """A value made from files, such as a TLS context; it stays while new files cannot be used.

    Args:
        files: the watched files.
        load: makes the value; raises ``CertificateError`` where the files cannot be used.
        name: name of the setting, for the log.

    Attributes:
        value: the current value.
        on_change: called after a new value was made.

    Raises:
        CertificateError: the files cannot be used at the start.
    """

    def __init__(self, files: CertificateFiles, load: Callable[[], T], name: str) -> None:
        self._files = files
        self._load = load
        self._name = name
        self._used = self._last_look = files.stamp()
        self._rejected = False
        self.on_change: list[Callable[[], None]] = []
        self.value = load()

    async def look(self, *, now: bool = False) -> None:
        """Reload the value where the files have changed.

        Args:
            now: do not wait until two calls in a row find the same files, which tells that a change is complete.
        """
        if await asyncio.to_thread(self._follow, now):
            for tell in self.on_change:
                tell()

    def _follow(self, now: bool) -> bool:
        stamp = self._files.stamp()
        settled, self._last_look = stamp == self._last_look, stamp
        if not (now or settled) or (stamp == self._used and not (now and self._rejected)):
            return False
        try:
            value = self._load()
        except CertificateError as error:
            if self._files.stamp() == stamp:  # else they are being changed: the next look sees them whole
                self._used, self._rejected = stamp, True
                _log.error(
                    "%s: %s; the previous certificates stay in use",
                    self._name,
                    error,
                    extra={"event": "certificates_refused"},
                )
            return False
        if self._files.stamp() != stamp:
            return False
        self.value, self._used, self._rejected = value, stamp, False
        _log.info(
            "%s: the files have changed; new connections use the new certificates",
            self._name,
            extra={"event": "certificates_reloaded"},
        )
        return True


class CertificateWatch:
    """Looks for changes of certificate files every few seconds while its context is open."""

    def __init__(self) -> None:
        self._followed: weakref.WeakSet[FileBackedValue[Any]] = weakref.WeakSet()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> CertificateWatch:
        self._task = asyncio.create_task(keep_running("the certificate watcher", self._run))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await end_tasks(self._task)

    def follow(self, reloading: FileBackedValue[T]) -> FileBackedValue[T]:
        """Watch the files of a value from now on."""
        self._followed.add(reloading)
        return reloading

    async def look(self) -> None:
        """Look for changes of all files now."""
        for each in list(self._followed):
            await each.look(now=True)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_S)
            for each in list(self._followed):
                await each.look()

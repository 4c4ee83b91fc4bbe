"""Certificates of TLS from files: verified before they are used, and followed as the files change."""

from gateway.certificates.files import CertificateError, CertificateFiles
from gateway.certificates.pair import expiry_of, load_authorities, load_pair
from gateway.certificates.reloading import CertificateWatch, Reloading

__all__ = [
    "CertificateError",
    "CertificateFiles",
    "CertificateWatch",
    "Reloading",
    "expiry_of",
    "load_authorities",
    "load_pair",
]

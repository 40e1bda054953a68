"""Certificates for tests: a CA, a server for localhost, a server with another name, a client.

They have every extension that Python 3.13 asks for, which checks certificates strictly by RFC 5280.
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePrivateKey, generate_private_key
from cryptography.x509.oid import NameOID

Names = list[x509.GeneralName]
PASSWORD = "open sesame"
NAMES: dict[str, Names] = {
    "server": [x509.DNSName("localhost"), x509.IPAddress(ip_address("127.0.0.1"))],
    "stranger": [x509.DNSName("elsewhere.example")],
    "client": [x509.DNSName("client")],
}
USAGES = (
    *("digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement"),
    *("key_cert_sign", "crl_sign", "encipher_only", "decipher_only"),
)


@dataclass(frozen=True)
class Certificates:
    ca: str
    server: str
    server_key: str
    stranger: str
    stranger_key: str
    client: str
    client_key: str
    locked_key: str
    """The client's key again, encrypted with `PASSWORD`."""


def _write(folder: Path, name: str, key: EllipticCurvePrivateKey, certificate: x509.Certificate) -> None:
    (folder / f"{name}.crt").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    ways = {"key": serialization.NoEncryption(), "locked": serialization.BestAvailableEncryption(PASSWORD.encode())}
    for ending, way in ways.items():
        data = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, way)
        (folder / f"{name}.{ending}").write_bytes(data)


def _sign(name: str, names: Names, key: EllipticCurvePrivateKey, ca: x509.Name, ca_key: EllipticCurvePrivateKey) -> x509.Certificate:
    """A certificate of two days; that of the CA itself where no names are given."""
    begin = datetime.datetime.now(datetime.UTC) - datetime.timedelta(hours=1)
    usage = dict.fromkeys(USAGES, False)
    usage |= {"digital_signature": True} if names else {"key_cert_sign": True, "crl_sign": True}
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(ca)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(begin + datetime.timedelta(days=2))
        .add_extension(x509.BasicConstraints(ca=not names, path_length=None), critical=True)
        .add_extension(x509.KeyUsage(**usage), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False)
    )
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return builder.sign(ca_key, hashes.SHA256())


def make(folder: Path) -> Certificates:
    """Write them into `folder`."""
    ca_key = generate_private_key(SECP256R1())
    ca = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test CA")])
    _write(folder, "ca", ca_key, _sign("test CA", [], ca_key, ca, ca_key))
    for name, names in NAMES.items():
        key = generate_private_key(SECP256R1())
        _write(folder, name, key, _sign(name, names, key, ca, ca_key))
    parts = ("ca.crt", "server.crt", "server.key", "stranger.crt", "stranger.key", "client.crt", "client.key", "client.locked")
    return Certificates(*(str(folder / part) for part in parts))

"""Certificates for tests, made by the openssl command: a CA, a server for localhost, a server with another name, a client.

They have every extension that Python 3.13 asks for, which checks certificates strictly by RFC 5280.
"""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Certificates:
    ca: str
    server: str
    server_key: str
    stranger: str
    stranger_key: str
    client: str
    client_key: str


def _run(folder: Path, *arguments: str) -> None:
    subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)


def make(folder: Path) -> Certificates:
    """Write them into `folder`."""
    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2")
    usage = ("-addext", "keyUsage=critical,keyCertSign,cRLSign")
    _run(folder, "req", "-x509", *curve, "-keyout", "ca.key", "-out", "ca.crt", "-subj", "/CN=test CA", *usage)
    names = {"server": "DNS:localhost,IP:127.0.0.1", "stranger": "DNS:elsewhere.example", "client": "DNS:client"}
    for name, alternatives in names.items():
        (folder / f"{name}.ext").write_text(
            f"subjectAltName={alternatives}\nsubjectKeyIdentifier=hash\nauthorityKeyIdentifier=keyid\nbasicConstraints=CA:FALSE\n"
        )
        _run(folder, "req", *curve, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        signing = ("-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", f"{name}.ext")
        _run(folder, "x509", "-req", "-in", f"{name}.csr", "-out", f"{name}.crt", *signing)
    parts = ("ca.crt", "server.crt", "server.key", "stranger.crt", "stranger.key", "client.crt", "client.key")
    return Certificates(*(str(folder / part) for part in parts))

"""Test certificates as PEM files, made once by the JDK's keytool: a CA, a server's, a client's, and a stranger's CA that signed nothing.

keytool writes a PKCS12 store that only Java reads without further packages, so a few lines of Java print it as PEM. Kept in
``.cache/certs`` and made anew when older than 100 days (they are valid for 365). For tests only: the keys are no secret.
"""

from __future__ import annotations

import fcntl
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from .maven import SHORT_LIVED, cache_folder, quick_tool, tool

_PASSWORD = "wireproto-tests"
_DAYS = "365"
_EXPORT = """
import java.nio.file.*; import java.security.*; import java.security.cert.Certificate; import java.util.*;
public class Export {
    static String pem(String kind, byte[] der) {
        String body = Base64.getMimeEncoder(64, new byte[] {10}).encodeToString(der);
        return "-----BEGIN " + kind + "-----\\n" + body + "\\n-----END " + kind + "-----\\n";
    }
    public static void main(String[] a) throws Exception {
        KeyStore store = KeyStore.getInstance(Path.of(a[0]).toFile(), a[1].toCharArray());
        for (String alias : Collections.list(store.aliases())) {
            StringBuilder chain = new StringBuilder();
            for (Certificate c : store.getCertificateChain(alias)) chain.append(pem("CERTIFICATE", c.getEncoded()));
            String key = pem("PRIVATE KEY", store.getKey(alias, a[1].toCharArray()).getEncoded());
            Files.writeString(Path.of(a[2], alias + ".crt"), chain);
            Files.writeString(Path.of(a[2], alias + ".key"), key);
            Files.writeString(Path.of(a[2], alias + ".pem"), key + chain);
        }
    }
}
"""


@dataclass(frozen=True)
class Certificates:
    """Paths of the PEM files.

    Attributes:
        ca: the CA's certificate, what a client trusts.
        server, server_key: chain and key for ``localhost`` and ``127.0.0.1``; `server_pem` holds both in one file.
        client, client_key, client_pem: the same for a client, CN=client.
        stranger: another CA's certificate, which did not sign any of these.
    """

    folder: Path

    @property
    def ca(self) -> Path:
        return self.folder / "ca.crt"

    @property
    def server(self) -> Path:
        return self.folder / "server.crt"

    @property
    def server_key(self) -> Path:
        return self.folder / "server.key"

    @property
    def server_pem(self) -> Path:
        return self.folder / "server.pem"

    @property
    def client(self) -> Path:
        return self.folder / "client.crt"

    @property
    def client_key(self) -> Path:
        return self.folder / "client.key"

    @property
    def client_pem(self) -> Path:
        return self.folder / "client.pem"

    @property
    def stranger(self) -> Path:
        return self.folder / "stranger.crt"


def certificates() -> Certificates:
    """The certificates, made when there are none yet."""
    folder = cache_folder("certs")
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        mark = folder / "complete"
        if not mark.exists() or time.time() - mark.stat().st_mtime > 100 * 86400:
            mark.unlink(missing_ok=True)
            _make(folder)
            mark.touch()
    return Certificates(folder)


def _make(folder: Path) -> None:
    store = folder / "store.p12"
    store.unlink(missing_ok=True)
    common = ["-storetype", "PKCS12", "-keystore", str(store), "-storepass", _PASSWORD]

    def pair(alias: str, *extra: str) -> None:
        name = f"CN={alias}, O=wireproto tests"
        command = [*quick_tool("keytool"), "-genkeypair", "-alias", alias, "-keyalg", "RSA", "-keysize", "2048", "-dname", name]
        _run([*command, "-validity", _DAYS, *extra, *common])

    authority = ("-ext", "bc:c=ca:true", "-ext", "ku:c=keyCertSign,cRLSign")
    pair("ca", *authority)
    pair("stranger", *authority)
    pair("server", "-signer", "ca", "-ext", "san=dns:localhost,ip:127.0.0.1", "-ext", "eku=serverAuth,clientAuth")
    pair("client", "-signer", "ca", "-ext", "san=dns:client", "-ext", "eku=clientAuth")
    source = folder / "Export.java"
    source.write_text(_EXPORT)
    _run([tool("java"), *SHORT_LIVED, str(source), str(store), _PASSWORD, str(folder)])


def _run(command: list[str]) -> None:
    run = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)
    if run.returncode:
        raise RuntimeError(f"{command[0]} failed:\n{run.stdout}{run.stderr}")

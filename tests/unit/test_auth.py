"""Mechanisms against the vectors of their RFCs and against kafka-python's implementation; secrets that are never shown."""

from __future__ import annotations

import base64
import pickle
import warnings
from pathlib import Path

import pytest

from wireproto.auth.oauth import OAuthBearer
from wireproto.auth.plain import Plain
from wireproto.auth.scram import Scram
from wireproto.auth.secrets import Secret
from wireproto.auth.token import Basic, Token
from wireproto.errors import AuthError, OptionError

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from kafka.net.sasl.oauth import AbstractTokenProvider, SaslMechanismOAuth
    from kafka.net.sasl.scram import ScramClient

NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_NONCE = NONCE + "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
SERVER_FIRST = f"r={SERVER_NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode()


def rfc() -> Scram:
    return Scram("sha256", "user", Secret("pencil"), NONCE)


def test_scram_sha_256_by_rfc_7677() -> None:
    scram = rfc()
    assert scram.start() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    assert scram.step(SERVER_FIRST) == f"c=biws,r={SERVER_NONCE},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=".encode()
    assert not scram.done
    assert scram.step(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=") == b""
    assert scram.done


@pytest.mark.parametrize("algorithm", ["sha256", "sha512"])
@pytest.mark.parametrize("password", ["pencil", "pässwörd ™", "x" * 300])
def test_scram_agrees_with_kafka_python(algorithm: str, password: str) -> None:
    theirs = ScramClient("alice", password, "SCRAM-SHA-" + algorithm[3:])
    ours = Scram(algorithm, "alice", Secret(password), theirs.nonce.decode())
    assert ours.start() == theirs.first_message()
    server_first = f"r={theirs.nonce.decode()}more,s={base64.b64encode(bytes(range(16))).decode()},i=8192".encode()
    theirs.process_server_first_message(server_first)
    assert ours.step(server_first) == theirs.final_message()
    ours.step(b"v=" + base64.b64encode(theirs.server_signature))
    assert ours.done


@pytest.mark.parametrize(
    ("challenge", "text"),
    [
        (SERVER_FIRST.replace(NONCE.encode(), b"another"), "nonce"),
        (f"r={NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode(), "nonce"),
        (SERVER_FIRST.replace(b"4096", b"4095"), "iterations"),
        (SERVER_FIRST.replace(b"4096", b"99999999"), "iterations"),
        (SERVER_FIRST.replace(b"4096", b"-1"), "iterations"),
        (SERVER_FIRST.replace(b"W22Z", b"*"), "base64"),
        (b"m=ext," + SERVER_FIRST, "extension"),
        (b"\xff", "UTF-8"),
        (b"", "malformed"),
        (b"e=unknown-user", "refused: unknown-user"),
    ],
)
def test_scram_refuses_a_server_that_cheats(challenge: bytes, text: str) -> None:
    scram = rfc()
    scram.start()
    with pytest.raises(AuthError, match=text):
        scram.step(challenge)


def test_scram_refuses_a_server_that_does_not_know_the_password() -> None:
    for final, text in ((b"v=AAAA", "signature is wrong"), (b"e=invalid-proof", "invalid-proof"), (b"x=1", "signature is wrong")):
        scram = rfc()
        scram.start()
        scram.step(SERVER_FIRST)
        with pytest.raises(AuthError, match=text):
            scram.step(final)
        assert not scram.done


def test_scram_escapes_the_user_and_sends_extensions() -> None:
    scram = Scram("sha512", "a=b,c", Secret("p"), "abc", (("tokenauth", "true"),))
    assert scram.start() == b"n,,n=a=3Db=2Cc,r=abc,tokenauth=true"
    with pytest.raises(OptionError):
        Scram("sha512", "a", Secret("p"), "a,b")


def test_plain_by_rfc_4616() -> None:
    plain = Plain("tim", Secret("tanstaaftanstaaf"))
    assert plain.start() == b"\0tim\0tanstaaftanstaaf"
    assert plain.done
    assert Plain("Kurt", Secret("xipj3plmq"), "Ursel").start() == b"Ursel\0Kurt\0xipj3plmq"
    with pytest.raises(OptionError):
        Plain("a\0b", Secret("c")).start()


def test_oauthbearer_agrees_with_kafka_python() -> None:
    class Provider(AbstractTokenProvider):  # type: ignore[misc]
        def token(self) -> str:
            return "vF9dft4qmTc2Nvb3RlckBhbHRhdmlzdGEuY29tCg=="

        def extensions(self) -> dict[str, str]:
            return {"logicalCluster": "lkc-1", "identityPoolId": "pool"}

    provider = Provider()
    theirs = SaslMechanismOAuth(sasl_oauth_token_provider=provider)
    assert OAuthBearer(Secret(provider.token), provider.extensions()).start() == theirs.auth_bytes()
    assert OAuthBearer(Secret("t"), authorize_as="user@example.com").start() == b"n,a=user@example.com,\x01auth=Bearer t\x01\x01"


def test_oauthbearer_failures_are_told_and_tokens_are_not() -> None:
    mechanism = OAuthBearer(Secret("t"))
    assert not mechanism.done
    mechanism.start()
    assert mechanism.done, "there is no more to say, whatever comes"
    with pytest.raises(AuthError, match="status invalid_token, scope example_scope"):
        mechanism.step(b'{"status":"invalid_token","scope":"example_scope"}')
    with pytest.raises(OptionError) as caught:
        OAuthBearer(Secret("bad\x01token")).start()
    assert "bad" not in str(caught.value)
    with pytest.raises(OptionError):
        OAuthBearer(Secret("t"), {"auth": "x"})


def test_tokens_are_read_anew_for_each_challenge() -> None:
    tokens = iter(["first", "second"])
    token = Token(Secret(lambda: next(tokens)))
    assert token.start() == b"first"
    assert token.step(b"challenge") == b"second"
    assert Basic("u", Secret("p:w")).start() == b"u:p:w"


def test_secrets_come_from_everywhere_and_are_never_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "secret").write_text("from a file\n")
    monkeypatch.setenv("THE_SECRET", "from the environment")
    assert Secret(f"file:{tmp_path}/secret").text() == "from a file"
    assert Secret("env:THE_SECRET").reveal() == b"from the environment"
    assert Secret(lambda: b"from a callable").text() == "from a callable"
    assert Secret("value:env:x").text() == "env:x"
    assert Secret("with:colon").text() == "with:colon"
    for secret in (Secret("hunter2"), Secret(b"hunter2"), Secret("value:hunter2"), Secret(Secret("hunter2"))):
        assert "hunter2" not in repr(secret) + str(secret) + f"{secret!r}"
        assert secret.text().endswith("hunter2")
    assert pickle.loads(pickle.dumps(Secret("x"))) == Secret("x")
    with pytest.raises(OptionError, match="NOT_THERE"):
        Secret("env:NOT_THERE").text()
    with pytest.raises(OptionError, match="cannot read"):
        Secret("file:/nonexistent").text()

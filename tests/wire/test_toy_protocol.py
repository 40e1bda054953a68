"""A protocol that other people bring: a folder and an entry point, and all of the house uses it; nothing under src/ knows it.

`tests/toy` speaks lines where the four speak lengths. It is copied into a temporary folder beside an entry point, as an installer would do.
"""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import wireproto
from wireproto import EARLIEST, LATEST, LogOffset, protocols, wire
from wireproto.devbroker import DevBroker
from wireproto.errors import Disconnected, FrameTooLarge, OptionError, RoleUnsupported, TimedOut
from wireproto.url import parse

TESTS = Path(__file__).resolve().parents[1]
CAME = 30.0


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder where the toy lies; on the path of imports."""
    folder = tmp_path_factory.mktemp("site")
    shutil.copytree(TESTS / "toy", folder / "toy", ignore=shutil.ignore_patterns("__pycache__"))
    facts = folder / "wireproto_toy-0.1.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: wireproto-toy\nVersion: 0.1\n")
    (facts / "entry_points.txt").write_text(f"[{protocols.GROUP}]\ntoy = toy:PROTOCOL\n")
    sys.path.insert(0, str(folder))
    yield folder
    sys.path.remove(str(folder))
    for name in [name for name in sys.modules if name.partition(".")[0] == "toy"]:
        del sys.modules[name]


@pytest.fixture(scope="module")
def broker(installed: Path) -> Iterator[DevBroker]:
    with DevBroker(["toy"]) as broker:
        yield broker


@pytest.fixture
def client(broker: DevBroker) -> Iterator[Any]:
    with wireproto.connect(broker.url("toy")) as client:
        yield client


def command(installed: Path, *words: str, stdin: bytes = b"") -> str:
    """What the command line prints."""
    paths = os.pathsep.join([str(installed), str(TESTS.parent / "src")])
    environment = {**os.environ, "PYTHONPATH": paths}
    done = subprocess.run([sys.executable, "-m", "wireproto.cli", *words], input=stdin, capture_output=True, timeout=120, env=environment)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


def test_nothing_in_the_package_names_it() -> None:
    for path in (TESTS.parent / "src").rglob("*.py*"):
        if path.suffix in (".py", ".pyi", ".pyx", ".pxd"):
            assert "toy" not in path.read_text(encoding="utf-8").replace("history", "").split(), path


def test_its_urls_have_its_ports(installed: Path) -> None:
    assert parse("toy://h/t").addresses == (("h", 7777),)
    assert parse("toys://h").addresses == parse("toy+tls://h").addresses == (("h", 7778),)
    assert "toy" in protocols.names()
    assert set(protocols.ours()) == {"kafka", "pulsar", "rocketmq", "zookeeper"}


def test_records_go_there_and_come_back(client: Any) -> None:
    client.admin().create_topic("there")
    with client.producer("there") as out:
        places = [out.send(value).position(CAME) for value in (b"one", b"", b"\n\x00three")]
    assert places == [LogOffset("there", 0, n) for n in range(3)]
    with client.reader("there", start=EARLIEST, stop=LATEST, pace=2) as reader:
        batches = [batch.values() for batch in reader]
    assert batches == [[b"one", b""], [b"\n\x00three"]]
    assert client.request("END there") == "3"


def test_options_and_roles_are_told_as_everywhere(broker: DevBroker, client: Any) -> None:
    with pytest.raises(OptionError, match="no option 'pase'; did you mean pace"):
        wireproto.connect(broker.url("toy", "?pase=3"))
    with pytest.raises(OptionError, match="a producer has no option 'pace'; it is an option of a reader"):
        client.producer("there", pace=3)
    with pytest.raises(RoleUnsupported):
        client.consumer("there", "g")


def test_answers_come_in_order_of_many_requests(client: Any) -> None:
    """Lines have no numbers: the oldest request is answered."""
    client.admin().create_topic("order")
    with client.producer("order") as out:
        for n in range(300):
            out.send(b"%d" % n)
    conn = client.cluster.pool.get(client.cluster.addresses[0], deadline=client.deadline())
    calls = [conn.submit(conn.next_token(), b"GET order %d" % n) for n in range(300)]

    assert [int(base64.b64decode(call.result(client.deadline()))) for call in calls] == list(range(300))


def test_a_line_of_any_length_up_to_the_most_that_is_taken(broker: DevBroker, client: Any) -> None:
    client.admin().create_topic("long")
    with client.producer("long") as out:
        for size in (1, 16000, 30000, 44990):
            out.send(bytes(size)).position(CAME)
        with client.reader("long", stop=LATEST) as reader:
            assert [len(value) for batch in reader for value in batch.values()] == [1, 16000, 30000, 44990]
        out.send(bytes(45100)).position(CAME)
        with client.reader("long", start=LogOffset("long", 0, 4)) as reader, pytest.raises((FrameTooLarge, Disconnected)):
            reader.poll(CAME)


def test_the_dev_broker_does_wrong_what_it_is_told_to(broker: DevBroker, client: Any) -> None:
    client.admin().create_topic("wrong")
    with client.producer("wrong") as out:
        broker.faults("toy").lose_reply("PUT")
        with pytest.raises(Disconnected):
            out.send(b"lost")
        assert out.send(b"after").position(CAME).offset == 1
        broker.faults("toy").stall("PUT")
        with pytest.raises(TimedOut):
            out.send(b"silence", timeout=0.2)


def test_its_frames_are_recorded(broker: DevBroker) -> None:
    seen = broker.record("toy")
    with wireproto.connect(broker.url("toy")) as client:
        client.admin().create_topic("kept")
        client.producer("kept").send(b"v").position(CAME)
    (put,) = seen.requests("Put")
    assert put.message == {"topic": "kept", "value": "dg=="}
    assert [reply.message for reply in seen.replies("Put")] == ["0"]


def test_its_messages_are_known_by_name(installed: Path) -> None:
    assert wire.names("toy")["Put"] == (0, 0)
    assert wire.decode("toy", "Put", 0, b"PUT t dg==") == {"topic": "t", "value": "dg=="}
    assert wire.encode("toy", "Get", 0, {"topic": "t", "offset": 5}) == b"GET t 5"
    assert [line.value for line in wire.explain("toy", "End", 0, b"END t")] == ["END", "t"]


def test_the_command_line_speaks_it(installed: Path, broker: DevBroker) -> None:
    url = broker.url("toy", "shell")
    command(installed, "topics", broker.url("toy"), "create", "shell")
    command(installed, "produce", url, "--format", "lines", stdin=b"a\nb\n")
    rows = [json.loads(line) for line in command(installed, "consume", url, "--to", "latest").splitlines()]
    assert [row["value"] for row in rows] == ["a", "b"]
    assert "shell" in command(installed, "topics", broker.url("toy"))
    assert command(installed, "positions", url, "--at", "latest") == "0=2\n"
    assert "Put" in command(installed, "messages", "toy")
    assert json.loads(command(installed, "decode", "toy", "Put", "--raw", stdin=b"PUT t dg==")) == {"topic": "t", "value": "dg=="}


def test_its_options_fill_a_page_of_the_docs(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.util

    spec = importlib.util.spec_from_file_location("docs_build", TESTS.parent / "docs" / "build.py")
    assert spec is not None
    assert spec.loader is not None
    build = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(build)
    page = build.filled("<!-- options:toy -->\n<!-- end -->")
    assert "| `pace` | `100` | records of one batch. |" in page


def test_the_conformance_suite_holds_it_to_its_features(installed: Path) -> None:
    """What its folder says of it is what the suite proves; on the dev broker, in a process of its own."""
    files = [f"tests/conformance/{name}.py" for name in ("test_records", "test_refusals")]
    chosen = "edges or order_and_count or role_that_is_not_there or topics_come or use_after_close or shared_by_threads or unknown_options"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *files, "--protocol", "toy", "--broker", "dev", "-k", chosen],
        cwd=TESTS.parent,
        capture_output=True,
        timeout=300,
        env={**os.environ, "PYTHONPATH": str(installed)},
    )
    assert done.returncode == 0, done.stdout.decode()[-4000:]
    passed = re.search(r"(\d+) passed", done.stdout.decode())
    assert passed is not None
    assert int(passed[1]) >= 20


def test_an_entry_point_that_is_no_descriptor_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    facts = tmp_path / "wrong-0.1.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: wrong\nVersion: 0.1\n")
    (facts / "entry_points.txt").write_text(f"[{protocols.GROUP}]\nwrong = json:loads\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(OptionError, match="no descriptor of a protocol 'wrong'"):
        wireproto.connect("wrong://h")
    with pytest.raises(OptionError, match="no protocol 'kafak': there are kafka, pulsar"):
        wireproto.connect("kafak://localhost")  # a port that is left out is not what is wrong
    with pytest.raises(OptionError, match="no protocol 'nowhere': there are kafka, pulsar"):
        wireproto.connect("nowhere://h:1")


def test_each_of_ours_is_told_truly() -> None:
    for found in map(protocols.find, protocols.ours()):
        client = protocols.part(found.client)
        assert callable(client)
        roles = set(found.option_class().ROLES)
        assert roles == set(found.roles) - {"admin", "tree"}, found.name
        assert found.side_class().protocol == found.name
        assert found.all_forms()
        assert callable(found.frame_reader())

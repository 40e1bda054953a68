"""The texts of the command line: JSON lines, templates, places, and the line protocol of decode and encode."""

from __future__ import annotations

import io
import json
import logging
import sys
from typing import Any

import pytest

from patience import until
from wireproto._codec import ColumnsBuilder
from wireproto.cli import main
from wireproto.cli.lines import Template, from_json, read_bytes, to_json, write_bytes
from wireproto.cli.log import Lines
from wireproto.cli.where import parse_place, server_of, topic_of
from wireproto.errors import OptionError
from wireproto.position import EARLIEST, LATEST, AtTime, LogOffset


@pytest.mark.parametrize("data", [None, b"", b"text", "ü🛫".encode(), b"\xff\x00", b"\xed\xa0\x80", b'{"base64": "x"}'])
def test_bytes_as_json_come_back(data: bytes | None) -> None:
    assert read_bytes(json.loads(json.dumps(write_bytes(data))), "here") == data


@pytest.mark.parametrize("value", [5, [], {}, {"base64": 5}, {"base64": "%%"}, {"base64": "YQ"}, {"base64": "YQ==", "x": 1}, "\ud800"])
def test_what_is_no_bytes_is_refused_by_name(value: Any) -> None:
    with pytest.raises(OptionError, match="here"):
        read_bytes(value, "here")


def test_a_record_line_reads_back_as_it_was() -> None:
    builder = ColumnsBuilder("offset")
    builder.append(None, key=b"\xff", headers=[("a", b"1"), ("a", None)], timestamp=1357034400000, position=7)
    line = to_json(builder.finish().record(0, "t", 3))
    assert json.loads(line)["position"] == "7"
    row = from_json(line, 1)
    assert (row.value, row.key, row.headers, row.timestamp, row.partition) == (None, b"\xff", (("a", b"1"), ("a", None)), 1357034400000, 3)


def test_templates_go_both_ways() -> None:
    template = Template("{key}\\t{value}|{{x}}")
    builder = ColumnsBuilder("offset")
    builder.append(b"v\xff", key=b"k", position=0)
    line = template.write(builder.finish().record(0, "t", 0))
    assert line == b"k\tv\xff|{x}"
    assert (template.read(line, 1).key, template.read(line, 1).value) == (b"k", b"v\xff")
    for wrong in (b"k v|{x}", b"k\tv"):
        with pytest.raises(OptionError, match="line 9"):
            template.read(wrong, 9)
    with pytest.raises(OptionError, match="colour"):
        Template("{colour}")


def test_places_and_topics() -> None:
    assert (parse_place("earliest", "t"), parse_place("LATEST", "t"), parse_place("@5", "t")) == (EARLIEST, LATEST, AtTime(5))
    assert parse_place("2013-01-01T10:00:00+00:00", "t") == AtTime(1357034400000) == parse_place("2013-01-01T10:00:00Z", "t")
    assert parse_place("2013-01-01T10:00:00", "t") == AtTime(1357034400000)
    assert parse_place("2013-01-01", "t") == AtTime(1356998400000)
    for wrong in ("2013-13-01", "yesterday", "0=", ""):
        with pytest.raises(OptionError):
            parse_place(wrong, "t")
    with pytest.raises(OptionError, match=r"looks like milliseconds since 1970: write @1357034400000 for a time, or 0=1357034400000"):
        parse_place("1357034400000", "t")
    assert parse_place("0=1357034400000", "t") == {("t", 0): LogOffset("t", 0, 1357034400000)}
    assert topic_of("kafka://h/t?x=1") == "t"
    assert server_of("kafka://h/t?x=1") == "kafka://h/t?x=1"
    assert topic_of("zookeeper://h,i/a/b?x=1") == "/a/b"
    assert server_of("zookeeper+tls://h,i/a/b?x=1") == "zookeeper+tls://h,i?x=1"


def lines(monkeypatch: pytest.MonkeyPatch, capsys: Any, command: str, *requests: Any) -> list[dict[str, Any]]:
    text = b"".join((item if isinstance(item, bytes) else json.dumps(item).encode()) + b"\n" for item in requests)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))
    assert main([command, "--jsonl"]) == 0
    out: str = capsys.readouterr().out
    assert out.isascii()
    return [json.loads(line) for line in out.splitlines()]


def test_jsonl_answers_every_line_in_order(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    good = {"protocol": "kafka", "message": "MetadataRequest", "version": 1}
    found = lines(
        monkeypatch, capsys, "decode",
        {**good, "hex": "00000001000174"}, {**good, "hex": "0000000100"}, {**good, "hex": "0000000100017400"}, {**good, "hex": "0"},
        {**good, "message": "Nothing", "hex": ""}, {**good, "version": 99, "hex": ""}, {**good, "protocol": "smtp", "hex": ""}, b"{", b"7",
        {"protocol": "kafka"}, {**good, "hex": "000000010003eda080"}, {**good, "protocol": None, "hex": ""},
        {"protocol": "rocketmq", "message": "Frame", "hex": "ffffffff"},
    )  # fmt: skip
    assert found[0] == {"message": {"topics": [{"name": "t"}]}}
    assert found[10] == {"message": {"topics": [{"name": "\ud800"}]}}
    kinds = ["Truncated", "Malformed", "Malformed", "UnknownMessage", "UnsupportedVersion", "UnknownMessage", "OptionError", "OptionError"]
    assert [item["kind"] for item in found[1:9]] == kinds
    assert [item["kind"] for item in found[9:10] + found[11:]] == ["OptionError", "OptionError", "FrameTooLarge"]
    back = [{**good, "fields": found[index]["message"]} for index in (0, 10)]
    again = lines(monkeypatch, capsys, "encode", *back, good)
    assert [item.get("hex") for item in again] == ["00000001000174", "000000010003eda080", None]


def test_decode_takes_raw_and_hex_and_explains(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    data = bytes.fromhex("00000001000174")
    for given in (data, b"00000001 000174\n", b"0000000100\n0174"):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given)))
        assert main(["decode", "kafka", "MetadataRequest", "1"]) == 0
        assert json.loads(capsys.readouterr().out) == {"topics": [{"name": "t"}]}
    assert main(["decode", "kafka", "MetadataRequest", "1", "--explain", "--hex", "0000000100017402"]) == 1
    shown = capsys.readouterr()
    assert [line.split()[0] for line in shown.out.splitlines()] == ["0", "4"]
    assert "1 bytes left over" in shown.err
    assert main(["decode", "kafka", "MetadataRequest", "--hex", "00"]) == 1
    assert "which version" in capsys.readouterr().err
    assert main(["decode", "kafka"]) == 1
    assert main(["messages", "zookeeper"]) == 0
    assert "MultiResponse" in capsys.readouterr().out
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"[")))
    assert main(["encode", "zookeeper", "Stat"]) == 1
    assert "not JSON" in capsys.readouterr().err


def test_warnings_are_lines_of_the_command_and_what_an_error_says_as_well_is_left_to_it(capsys: pytest.CaptureFixture[str]) -> None:
    logger = logging.Logger("wireproto.kafka")
    lines = Lines(3600.0)
    logger.addHandler(lines)
    logger.info("connected")
    logger.warning("t[0]: skipped at %d: %s", 7, "no record")
    logger.warning("h:1: no connection: %s", "refused")
    assert capsys.readouterr().err == ""
    lines.end("refused")
    assert capsys.readouterr().err == "wireproto: t[0]: skipped at 7: no record\n"
    logger.warning("the next")
    lines.end()
    assert capsys.readouterr().err == "wireproto: the next\n"


def test_a_warning_that_no_error_follows_is_printed_soon(capsys: pytest.CaptureFixture[str]) -> None:
    logger = logging.Logger("wireproto.kafka")
    logger.addHandler(Lines(0.01))
    logger.warning("nobody there")
    printed: list[str] = []
    until(lambda: printed.append(capsys.readouterr().err) or "".join(printed) == "wireproto: nobody there\n")

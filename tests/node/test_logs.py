"""Log lines: their two formats, one line a record, and fields that survive anything."""

import io
import json
import logging
import re
from collections.abc import Iterator

import pytest

from moorline.node import logs

log = logging.getLogger("moorline.catalog.pool")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _undo() -> Iterator[None]:
    root, ours = logging.getLogger(), logging.getLogger("moorline")
    before = (list(root.handlers), root.level, ours.level)
    yield
    root.handlers[:] = before[0]
    root.setLevel(before[1])
    ours.setLevel(before[2])


def stream(log_format: str, level: str = "info") -> io.StringIO:
    out = io.StringIO()
    logs.setup(log_format, level, out)
    return out


def test_a_line_for_people() -> None:
    out = stream("text")
    log.info("ready", extra={"in_ms": 412, "folder": "a b", "is_new": True, "note": ""})
    log.warning("slow %s", "disk")
    first, second = out.getvalue().splitlines()
    assert re.fullmatch(
        r'\d\d:\d\d:\d\d info  catalog: ready  in_ms=412  folder="a b"  is_new=true  note=""', first
    )
    assert re.fullmatch(r"\d\d:\d\d:\d\d warn  catalog: slow disk", second)


def test_a_line_for_programs() -> None:
    out = stream("json")
    log.error("lost", extra={"in_ms": 412, "level": 3, "peers": ["a"], "raw": object})
    line = json.loads(out.getvalue())
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line.pop("ts"))
    assert line == {
        "level": "error",
        "room": "catalog",
        "event": "lost",
        "in_ms": 412,
        "field_level": 3,
        "peers": ["a"],
        "raw": "<class 'object'>",
    }


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_a_record_is_one_line_whatever_is_in_it(log_format: str) -> None:
    out = stream(log_format)
    log.info("a\nb\x1b[2J", extra={"text": "c\r\nd", "broken": "\udcff", "k\n": {1: {2}}})
    assert out.getvalue().count("\n") == 1
    assert out.getvalue()[:-1].isprintable()


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_an_exception_is_one_field(log_format: str) -> None:
    out = stream(log_format)
    try:
        raise ValueError("bad\nluck")
    except ValueError:
        log.exception("failed", extra={"n": 1})
    line = out.getvalue()
    assert line.count("\n") == 1
    if log_format == "json":
        assert json.loads(line)["exception"].startswith("Traceback")
    else:
        assert re.search(
            r'failed  n=1  exception="ValueError: bad\\x0aluck \(at test_logs\.py:\d+ test_', line
        )


def test_levels_and_libraries() -> None:
    out = stream("text", "debug")
    log.debug("shown")
    logging.getLogger("asyncio").info("not shown")
    logging.getLogger("asyncio").warning("slow callback")
    assert [line[9:] for line in out.getvalue().splitlines()] == [
        "debug catalog: shown",
        "warn  asyncio: slow callback",
    ]
    quiet = stream("text", "error")
    log.warning("not shown")
    assert quiet.getvalue() == ""


def test_a_wrong_placeholder_does_not_cost_the_line() -> None:
    record = logging.LogRecord("asyncio", logging.INFO, "", 0, "wrong %d", ("x",), None)
    assert logs.TextLines(is_coloured=False).format(record).endswith("asyncio: wrong %d ('x',)")


def test_a_second_setup_replaces_the_first() -> None:
    first = stream("text")
    second = stream("text")
    log.info("once")
    assert first.getvalue() == ""
    assert second.getvalue().count("\n") == 1


def test_colour_is_for_terminals_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    terminal = Terminal()
    logs.setup("text", "info", terminal)
    log.error("red")
    assert "\x1b[31merror\x1b[0m catalog: red" in terminal.getvalue()
    monkeypatch.setenv("NO_COLOR", "1")
    plain = Terminal()
    logs.setup("text", "info", plain)
    log.error("red")
    assert "\x1b" not in plain.getvalue()

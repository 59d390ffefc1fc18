"""Room: node. Log lines, for people or for programs, on top of the standard library's logging.

    log = logging.getLogger("moorline.catalog")
    log.info("ready", extra={"in_ms": 412})

    text    20:14:03 info  catalog: ready  in_ms=412
    json    {"ts":"2025-11-15T20:14:03.123Z","level":"info","room":"catalog","event":"ready","in_ms":412}

A record is one line whatever is in it: text from outside cannot forge a second one.
"""

import json
import logging
import os
import sys
import traceback
from datetime import UTC, datetime
from typing import TextIO

import msgspec

from moorline.config.shown import escaped

LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}

_NAMES = {
    logging.DEBUG: "debug",
    logging.INFO: "info",
    logging.WARNING: "warning",
    logging.ERROR: "error",
    logging.CRITICAL: "error",
}
_COLOURS = {"debug": "2", "info": "32", "warning": "33", "error": "31"}
_FRAMES_SHOWN_MAX = 4
"""Frames of an exception in a line for people; the JSON line has the whole traceback."""

# What every record carries by itself; the rest of its attributes came in through `extra`.
_OWN = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}


def setup(log_format: str, level: str, stream: TextIO | None = None) -> None:
    """Send what the whole process logs to `stream` (stderr); called again, it replaces itself."""
    assert log_format in ("text", "json"), log_format
    stream = stream or sys.stderr
    handler = _Handler(stream)
    handler.setFormatter(JsonLines() if log_format == "json" else TextLines(_is_coloured(stream)))
    root = logging.getLogger()
    for old in [one for one in root.handlers if isinstance(one, _Handler)]:
        root.removeHandler(old)
    root.addHandler(handler)
    # Libraries speak only of trouble: their debug lines would drown ours.
    root.setLevel(max(LEVELS[level], logging.WARNING))
    logging.getLogger("moorline").setLevel(LEVELS[level])


class TextLines(logging.Formatter):
    def __init__(self, is_coloured: bool) -> None:
        super().__init__()
        self._is_coloured = is_coloured

    def format(self, record: logging.LogRecord) -> str:
        clock = datetime.fromtimestamp(record.created).strftime("%H:%M:%S")  # people's own time
        level = _level(record)
        shown_level = f"{'warn' if level == 'warning' else level:<5}"
        if self._is_coloured:
            shown_level = f"\x1b[{_COLOURS[level]}m{shown_level}\x1b[0m"
        fields = _fields(record)
        if record.exc_info and record.exc_info[1] is not None:
            fields["exception"] = _in_brief(record.exc_info[1])
        line = f"{clock} {shown_level} {escaped(_room(record))}: {escaped(_event(record))}"
        return "  ".join([line, *(f"{escaped(name)}={_word(v)}" for name, v in fields.items())])


class JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created, UTC)
        line: dict[str, object] = {
            "ts": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": _level(record),
            "room": _room(record),
            "event": _event(record),
        }
        for name, value in _fields(record).items():
            line[f"field_{name}" if name in line else name] = value
        if record.exc_info and record.exc_info[1] is not None:
            line["exception"] = "".join(traceback.format_exception(record.exc_info[1]))
        try:
            return msgspec.json.encode(line, enc_hook=str).decode()
        except (TypeError, ValueError, RecursionError):
            # A lone surrogate, a key that is no text, a loop: a line with less is better than none.
            return json.dumps({name: escaped(str(value)) for name, value in line.items()})


class _Handler(logging.StreamHandler[TextIO]):
    """Its own type, so that a second `setup` finds and replaces the first one's."""


def _is_coloured(stream: TextIO) -> bool:
    wanted = "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"
    return wanted and stream.isatty()


def _level(record: logging.LogRecord) -> str:
    return _NAMES.get(record.levelno, "info")


def _room(record: logging.LogRecord) -> str:
    """`moorline.catalog.pool` speaks for the room catalog; other loggers for themselves."""
    return record.name.removeprefix("moorline.").partition(".")[0]


def _event(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception:
        # A library's wrong placeholder must not cost us the line.
        return f"{record.msg} {record.args}"


def _fields(record: logging.LogRecord) -> dict[str, object]:
    return {name: value for name, value in record.__dict__.items() if name not in _OWN}


def _word(value: object) -> str:
    """A field's value without blanks, or in quotes."""
    if isinstance(value, bool):
        return "true" if value else "false"
    text = escaped(value if isinstance(value, str) else str(value))
    is_plain = text and not any(char in ' "=' for char in text)
    return text if is_plain else '"' + text.replace('"', '\\"') + '"'


def _in_brief(error: BaseException) -> str:
    """The exception and where it came from, innermost frame first, on one line."""
    frames = traceback.extract_tb(error.__traceback__)[-_FRAMES_SHOWN_MAX:]
    places = " < ".join(
        f"{os.path.basename(frame.filename)}:{frame.lineno} {frame.name}"
        for frame in reversed(frames)
    )
    what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return f"{what} (at {places})" if places else what

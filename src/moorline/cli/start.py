"""Room: cli. Where a reader or a group begins, as a person writes it.

now, beginning, a time as 2026-11-15T22:15 (UTC where it names no zone), offset:NUMBER
"""

from datetime import UTC, datetime

import typer

FORMS = "now, beginning, a time as 2026-11-15T22:15, or offset:NUMBER"
HELP = f"Where to begin: {FORMS}."


def start_of(text: str) -> str | int | datetime:
    """What `moor.subscribe` takes as its start."""
    if text in ("now", "beginning"):
        return text
    kind, _, rest = text.partition(":")
    if kind == "offset" and rest.isascii() and rest.isdecimal():
        return int(rest)
    try:
        time = datetime.fromisoformat(rest if kind == "time" else text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is no place to begin at; accepted: {FORMS}") from None
    time = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
    if time.timestamp() < 0:
        raise typer.BadParameter(f"{text!r} is before 1970, and so is no message")
    return time

"""Room: topics. Where a subscription or a group begins: now, at the beginning, at a time, at an offset."""

from typing import NamedTuple

from moorline.errors import BadStart

FORMS = "now, beginning, time:MICROSECONDS since 1970, or offset:NUMBER"


class Start(NamedTuple):
    """`time_us` 0 is the beginning; `offset` goes before it where it is given."""

    is_now: bool
    time_us: int = 0
    offset: int | None = None

    def kept_us(self, now_us: int) -> int:
        """The time that is kept with the group, for streams that cannot be looked up now.

        Of an offset it is the time of the start too: one that is beyond the end means that end, and what is
        published after it is not passed over.
        """
        return now_us if self.is_now or self.offset is not None else self.time_us


def start_of(text: str) -> Start:
    if text == "now":
        return Start(True)
    if text == "beginning":
        return Start(False)
    kind, _, number = text.partition(":")
    if number.isascii() and number.isdecimal() and int(number) < 1 << 63:
        if kind == "time":
            return Start(False, int(number))
        if kind == "offset":
            return Start(False, 0, int(number))
    raise BadStart(f"{text!r} is no start; accepted: {FORMS}")

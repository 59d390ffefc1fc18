"""Room: core/access. From when to when a certificate is valid, read from its DER without a library.

    Certificate     SEQUENCE of
      to be signed  SEQUENCE of [0] version, if it is not the first; INTEGER serial; SEQUENCE algorithm;
                    SEQUENCE issuer; SEQUENCE of notBefore and notAfter: UTCTime or GeneralizedTime; …

A client reads its own certificate, to say which of two causes a refusal had. Nothing is decided by it.
"""

from datetime import UTC, datetime
from typing import Final, NamedTuple

SEQUENCE: Final = 0x30
INTEGER: Final = 0x02
VERSION: Final = 0xA0
UTC_TIME: Final = 0x17
GENERALIZED_TIME: Final = 0x18

_LONG: Final = 0x80
_CENTURY_TURN: Final = 50
"""Years of two digits below it are of this century (RFC 5280, 4.1.2.5.1)."""


class Validity(NamedTuple):
    not_before_ms: int
    not_after_ms: int


def validity_of(encoded: bytes) -> Validity | None:
    """None if these bytes are no certificate that we can read."""
    try:
        return _validity(encoded)
    except (IndexError, ValueError, OverflowError):
        return None


def _validity(encoded: bytes) -> Validity:
    whole, _ = _content(encoded, SEQUENCE)
    signed, _ = _content(whole, SEQUENCE)
    # Left out where it is the first version, as DER wants defaults to be.
    if signed[0] == VERSION:
        _, signed = _content(signed, VERSION)
    _, rest = _content(signed, INTEGER)
    _, rest = _content(rest, SEQUENCE)
    _, rest = _content(rest, SEQUENCE)
    times, _ = _content(rest, SEQUENCE)
    begin, times = _time(times)
    end, _ = _time(times)
    return Validity(begin, end)


def _content(data: bytes, tag: int) -> tuple[bytes, bytes]:
    """Of the first element, which must have that tag; and what is behind it."""
    if data[0] != tag:
        raise ValueError("another tag")
    length, at = data[1], 2
    if length & _LONG:
        at += length & ~_LONG
        length = int.from_bytes(data[2:at])
    # A slice would be shorter without a word, and times would be read from what is not all of it.
    if at + length > len(data):
        raise ValueError("cut short")
    return data[at : at + length], data[at + length :]


def _time(data: bytes) -> tuple[int, bytes]:
    # Either kind may stand there, whatever the year is: issuers do not all keep to the rule.
    content, rest = _content(data, data[0])
    text = content.decode("ascii")
    if data[0] == UTC_TIME:
        text = f"{'20' if int(text[:2]) < _CENTURY_TURN else '19'}{text}"
    elif data[0] != GENERALIZED_TIME:
        raise ValueError("no time")
    moment = datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)
    return round(moment.timestamp() * 1_000), rest

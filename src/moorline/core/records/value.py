"""Room: core/records. Values of scope columns and keys, in the one form in which they are compared.

    type                          form                         accepted in a filter (JSON)
    smallint, integer, bigint     int                          whole number, or its digits as text
    boolean                       bool                         true or false
    numeric                       Decimal, or NAN              number, or its digits as text
    double precision              float, or NAN                number, or text: "NaN", "Infinity"
    text, character varying       str                          text
    uuid                          str, lower case              text, as Postgres writes it or without "-"
    date                          int, days since 1970         "2024-02-29", "infinity", "-infinity"
    timestamp without time zone   int, microseconds of that    "2024-02-29T12:00:00.5"
    timestamp with time zone      int, microseconds in UTC     "2024-02-29T12:00:00.5Z", "…+02:00"

What is equal in Postgres is equal here, and has the same order: 1.0 is 1, NaN is NaN and above all, -0.0 is
0.0. So a filter takes the same rows in a scan, by Postgres, and live, by the node. What cannot be held to
that is refused: char(n), whose spaces count here and not there; real, whose digits are not those that were
written; json, arrays.

Rows come as asyncpg gives them, or as texts of Postgres (the JSON of a notification). asyncpg gives the last
day of the year 9999 for infinity: columns that may hold both are read as text.
"""

import re
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any, Final
from uuid import UUID

from moorline.core.records.table import NAN, Column, NotANumber, ScopeValue
from moorline.errors import BadFilter
from moorline.limits import RECORD_KEY_CHARACTERS_MAX, RECORD_VALUE_CHARACTERS_MAX

WHOLE_BITS: Final = {"smallint": 16, "integer": 32, "bigint": 64}
TEXTS: Final = frozenset({"text", "character varying"})
INSTANTS: Final = {"timestamp without time zone": False, "timestamp with time zone": True}
"""Whether they have a zone."""

SCOPE_TYPES: Final = frozenset(
    {*WHOLE_BITS, *TEXTS, *INSTANTS, "boolean", "numeric", "double precision", "uuid", "date"}
)
KEY_TYPES: Final = frozenset({*WHOLE_BITS, *TEXTS, "uuid", "date"})

ENDLESS: Final = 1 << 64
"""The form of `infinity`, and less of `-infinity`: beyond all days, and microseconds since 1970."""

DAY_US: Final = 86_400_000_000

ACCEPTED: Final = {
    **{name: f"a whole number of {bits} bits" for name, bits in WHOLE_BITS.items()},
    **dict.fromkeys(TEXTS, f"text of at most {RECORD_VALUE_CHARACTERS_MAX} characters"),
    "boolean": "true or false",
    "numeric": 'a number, or its digits as text, or "NaN", "Infinity", "-Infinity"',
    "double precision": 'a number, or "NaN", "Infinity", "-Infinity"',
    "uuid": 'text such as "c0ffee00-0000-4000-8000-000000000001"',
    "date": 'text such as "2024-02-29", or "infinity", "-infinity"',
    "timestamp without time zone": 'text such as "2024-02-29T12:00:00.5", without a zone',
    "timestamp with time zone": 'text such as "2024-02-29T12:00:00.5Z", with its zone',
}

# [0-9] and not \d, which takes the digits of every script.
_WHOLE = re.compile(r"-?[0-9]{1,20}")
_DECIMAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,6})?")
_UUID = re.compile(r"[0-9a-f]{8}-?([0-9a-f]{4}-?){3}[0-9a-f]{12}")
_DATE = re.compile(r"([0-9]{4,7})-([0-9]{2})-([0-9]{2})( BC)?")
_INSTANT = re.compile(
    r"([0-9]{4,6}-[0-9]{2}-[0-9]{2})[T ]([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\.([0-9]{1,6}))?)?"
    r"(Z|[+-][0-9]{2}(?::?[0-9]{2})?(?::[0-9]{2})?)?( BC)?"
)

# What Postgres has in a numeric: digits before and behind the point.
_NUMERIC_BEFORE, _NUMERIC_BEHIND = 131_072, 16_383
_PLAIN_EXPONENT = 40
_INSTANT_DAYS = (-2_440_588, 106_762_939)
"""From 4714 BC to 294276 AD, which is what Postgres has."""
_DATE_DAYS = (-2_440_588, 2_145_042_905)


def base_of(type_: str) -> str:
    """A type without its modifier: `numeric(10,2)` is numeric, `timestamp(3) with time zone` one too."""
    return re.sub(r"\([0-9, -]*\)", "", type_)


def is_scope_type(column: Column) -> bool:
    return base_of(column.type) in SCOPE_TYPES


def is_key_type(column: Column) -> bool:
    return base_of(column.type) in KEY_TYPES


def has_order(column: Column) -> bool:
    """Whether a range of it is the same for Postgres and here: of text only by its bytes."""
    base = base_of(column.type)
    return base in SCOPE_TYPES and (base not in TEXTS or column.has_c_collation)


def cast_of(column: Column) -> str:
    """The type that the text of a filter's value is cast to: without the modifier, which would round it."""
    base = base_of(column.type)
    return "text" if base in TEXTS else base


# --- from rows ------------------------------------------------------------------------------------


def value_of(column: Column, given: Any) -> ScopeValue:
    """The form of what Postgres gave, by way of asyncpg or as text. ValueError if it cannot have."""
    if given is None:
        return None
    base = base_of(column.type)
    match given:
        case bool():
            # Before int, which it is one of.
            fits = base == "boolean"
        case int():
            # The JSON of a notification has 1 for the numeric 1.0 too.
            if base == "numeric":
                return Decimal(given)
            if base == "double precision":
                return float(given)
            fits = base in WHOLE_BITS
        case float():
            if base == "numeric":
                return _of_decimal(Decimal(repr(given)))
            return _of_float(given)
        case Decimal():
            return _of_decimal(given)
        case UUID():
            return str(given)
        case datetime():
            return _of_datetime(given)
        case date():
            return _of_date(given)
        case str():
            return given if base in TEXTS else _parsed(base, given)
        case _:
            fits = False
    if not fits:
        raise ValueError(f"{type(given).__name__} for {column.name}, which is {column.type}")
    return given  # type: ignore[no-any-return]


def _of_float(given: float) -> ScopeValue:
    if given != given:
        return NAN
    return given + 0.0  # which makes 0.0 of -0.0


def _of_decimal(given: Decimal) -> ScopeValue:
    return NAN if given.is_nan() else given


def _of_date(given: date) -> int:
    if given == date.max:
        return ENDLESS
    if given == date.min:
        return -ENDLESS
    return given.toordinal() - date(1970, 1, 1).toordinal()


def _of_datetime(given: datetime) -> int:
    plain = (
        given.replace(tzinfo=None)
        if given.tzinfo is None
        else given.astimezone(UTC).replace(tzinfo=None)
    )
    if plain == datetime.max:
        return ENDLESS
    if plain == datetime.min:
        return -ENDLESS
    # By whole numbers: a float of seconds has not all microseconds.
    since = plain - datetime(1970, 1, 1)
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


# --- from texts -----------------------------------------------------------------------------------


def _parsed(base: str, text: str) -> ScopeValue:
    """The form of a text of Postgres. ValueError if it is none."""
    if base in WHOLE_BITS:
        return _parse_whole(base, text)
    if base == "boolean":
        return {"true": True, "false": False, "t": True, "f": False}[text]
    if base == "uuid":
        return _parse_uuid(text)
    if base == "date":
        return _parse_date(text)
    if base in INSTANTS:
        return _parse_instant(text, has_zone=INSTANTS[base])
    if base == "numeric":
        return _parse_decimal(text)
    if base == "double precision":
        return _parse_float(text)
    raise ValueError(f"nothing is compared as {base}")


def _parse_whole(base: str, text: str) -> int:
    if not _WHOLE.fullmatch(text):
        raise ValueError("no whole number")
    return _within(base, int(text))


def _within(base: str, number: int) -> int:
    limit = 1 << (WHOLE_BITS[base] - 1)
    if not -limit <= number < limit:
        raise ValueError(f"beyond {WHOLE_BITS[base]} bits")
    return number


_ENDS: Final = {"infinity": 1, "+infinity": 1, "inf": 1, "+inf": 1, "-infinity": -1, "-inf": -1}


def _parse_decimal(text: str) -> ScopeValue:
    folded = text.lower()
    if folded == "nan":
        return NAN
    if (sign := _ENDS.get(folded)) is not None:
        return Decimal("Infinity") * sign
    if not _DECIMAL.fullmatch(text):
        raise ValueError("no number")
    return _checked_decimal(Decimal(text))


def _checked_decimal(number: Decimal) -> Decimal:
    exponent = number.as_tuple().exponent
    assert isinstance(exponent, int), "a finite one"
    if (number and number.adjusted() >= _NUMERIC_BEFORE) or -exponent > _NUMERIC_BEHIND:
        raise ValueError("more digits than a numeric has")
    # A zero with an exponent is a zero; its text would be refused by Postgres.
    return number if number else Decimal(0)


def _parse_float(text: str) -> ScopeValue:
    folded = text.lower()
    if folded == "nan":
        return NAN
    if (sign := _ENDS.get(folded)) is not None:
        return float("inf") * sign
    if not _DECIMAL.fullmatch(text):
        raise ValueError("no number")
    number = float(text)
    if number in (float("inf"), float("-inf")):
        raise ValueError("beyond what a double has")  # Postgres refuses it too
    return number + 0.0


def _parse_uuid(text: str) -> str:
    folded = text.lower()
    if not _UUID.fullmatch(folded):
        raise ValueError("no uuid")
    return str(UUID(folded))


def _parse_date(text: str) -> int:
    if (sign := _ENDS.get(text.lower())) is not None:
        return sign * ENDLESS
    if (found := _DATE.fullmatch(text)) is None:
        raise ValueError("no date")
    year, month, day = (int(part) for part in found.groups()[:3])
    days = _days(year, month, day, is_bc=found[4] is not None)
    if not _DATE_DAYS[0] <= days <= _DATE_DAYS[1]:
        raise ValueError("a date that Postgres does not have")
    return days


def _days(year: int, month: int, day: int, *, is_bc: bool) -> int:
    """Days since 1970 in the calendar of Postgres, which goes beyond that of Python."""
    if year == 0:
        raise ValueError("there is no year 0")
    if is_bc:
        year = 1 - year
    # In eras of 400 years the calendar repeats: Python counts within one of them.
    eras, within = divmod(year - 2000, 400)
    return (
        date(2000 + within, month, day).toordinal() - date(1970, 1, 1).toordinal() + eras * 146_097
    )


def _parse_instant(text: str, *, has_zone: bool) -> int:
    if (sign := _ENDS.get(text.lower())) is not None:
        return sign * ENDLESS
    if (found := _INSTANT.fullmatch(text)) is None:
        raise ValueError("no time")
    day, hours, minutes, seconds, fraction, zone, is_bc = found.groups()
    if (zone is not None) != has_zone:
        # Postgres would take the zone of the session, or drop the one that is said: nobody means that.
        raise ValueError("its zone is missing" if has_zone else "it has a zone")
    year, month, day_of = (int(part) for part in day.split("-"))
    days = _days(year, month, day_of, is_bc=is_bc is not None)
    hour, minute, second = int(hours), int(minutes), int(seconds or 0)
    if hour > 23 or minute > 59 or second > 59:
        raise ValueError("no time of a day")
    us = ((hour * 60 + minute) * 60 + second) * 1_000_000 + int((fraction or "").ljust(6, "0"))
    us += days * DAY_US - _offset_s(zone or "Z") * 1_000_000
    if not _INSTANT_DAYS[0] * DAY_US <= us < (_INSTANT_DAYS[1] + 1) * DAY_US:
        raise ValueError("a time that Postgres does not have")
    return us


def _offset_s(zone: str) -> int:
    if zone == "Z":
        return 0
    digits = zone[1:].replace(":", "").ljust(6, "0")
    hours, minutes, seconds = int(digits[:2]), int(digits[2:4]), int(digits[4:6])
    if hours > 15 or minutes > 59 or seconds > 59:
        raise ValueError("no zone")
    return (hours * 3_600 + minutes * 60 + seconds) * (-1 if zone[0] == "-" else 1)


# --- from filters ---------------------------------------------------------------------------------


def asked_value(column: Column, given: Any) -> ScopeValue:
    """The form of a value in a client's filter; BadFilter names what is accepted instead."""
    if given is None:
        return None
    base = base_of(column.type)
    if base not in SCOPE_TYPES:
        raise BadFilter(f"{column.name} is {column.type}, by which nothing is filtered")
    try:
        return _asked(base, given)
    except (ValueError, KeyError, OverflowError, InvalidOperation):
        shown = repr(given)[:64]
        raise BadFilter(f"{column.name} cannot be {shown}: accepted is {ACCEPTED[base]}") from None


def _asked(base: str, given: Any) -> ScopeValue:
    match given:
        case bool():
            if base != "boolean":
                raise ValueError("a truth value")
            return given
        case int():
            if base in WHOLE_BITS:
                return _within(base, given)
            if base == "numeric":
                return _checked_decimal(Decimal(given))
            if base == "double precision":
                # As Postgres reads its digits; a number beyond a double is refused by OverflowError.
                return float(given)
        case float() if given - given == 0:
            if base == "numeric":
                # The shortest digits that are this number: what was written, up to 15 of them.
                return _checked_decimal(Decimal(repr(given)))
            if base == "double precision":
                return given + 0.0
        case str() if len(given) <= RECORD_VALUE_CHARACTERS_MAX:
            if base in TEXTS:
                _check_text(given)
                return given
            if base != "boolean":
                return _parsed(base, given)
        case _:
            pass
    raise ValueError("of another kind")


def _check_text(text: str) -> None:
    if "\0" in text:
        raise ValueError("Postgres has no zero character")
    # Halves of characters have no bytes: UnicodeEncodeError is a ValueError.
    text.encode()


# --- back to texts --------------------------------------------------------------------------------


def text_of(column: Column, value: ScopeValue) -> str:
    """Such that Postgres, casting it to `cast_of`, has this value; and one text for equal values."""
    assert value is not None, "null has no text"
    base = base_of(column.type)
    match value:
        case NotANumber():
            return "NaN"
        case bool():
            return "true" if value else "false"
        case Decimal():
            return _decimal_text(value)
        case float():
            return {"inf": "Infinity", "-inf": "-Infinity"}.get(repr(value), repr(value))
        case int() if base == "date":
            return _date_text(value)
        case int() if base in INSTANTS:
            return _instant_text(value) + (
                "+00" if INSTANTS[base] and abs(value) != ENDLESS else ""
            )
        case _:
            return str(value)


def _decimal_text(number: Decimal) -> str:
    if number.is_infinite():
        return "Infinity" if number > 0 else "-Infinity"
    sign, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int), "finite"
    # Not `normalize`, which rounds to 28 digits.
    text = "".join(map(str, digits)).lstrip("0")
    stripped = text.rstrip("0")
    if not stripped:
        return "0"
    exponent += len(text) - len(stripped)
    plain = Decimal((sign, tuple(map(int, stripped)), exponent))
    # As people write it, since it may be a level of a path; the far ends would be long.
    return f"{plain:f}" if abs(exponent) <= _PLAIN_EXPONENT else f"{plain:E}"


def _date_text(days: int) -> str:
    if abs(days) == ENDLESS:
        return "infinity" if days > 0 else "-infinity"
    eras, within = divmod(
        days + date(1970, 1, 1).toordinal() - date(2000, 1, 1).toordinal(), 146_097
    )
    day = date.fromordinal(date(2000, 1, 1).toordinal() + within)
    year = day.year + 400 * eras
    if year > 0:
        return f"{year:04}-{day.month:02}-{day.day:02}"
    return f"{1 - year:04}-{day.month:02}-{day.day:02} BC"


def _instant_text(us: int) -> str:
    if abs(us) == ENDLESS:
        return _date_text(us)
    days, within = divmod(us, DAY_US)
    seconds, fraction = divmod(within, 1_000_000)
    time = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{fraction:06}"
    day, _, bc = _date_text(days).partition(" ")
    # The zone comes before BC, which text_of cannot know: Postgres takes BC behind the date as well.
    return f"{day}{' BC' if bc else ''} {time}"


# --- keys -----------------------------------------------------------------------------------------


def key_text(column: Column, given: Any) -> str:
    """The text of a key column as Postgres writes it; BadFilter for what cannot be in one."""
    base = base_of(column.type)
    if base not in KEY_TYPES:
        raise BadFilter(f"{column.name} is {column.type}, which is no key")
    if isinstance(given, UUID | date) and not isinstance(given, datetime):
        given = text_of(column, value_of(column, given))
    value = None if given is None else asked_value(column, given)
    if value is None or len(text := text_of(column, value)) > RECORD_KEY_CHARACTERS_MAX:
        raise BadFilter(f"{column.name} of a key is {ACCEPTED[base]}")
    return text

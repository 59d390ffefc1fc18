"""Room: config. What may be shown of a value: passwords masked, control characters escaped.

Everything that reaches a terminal or a log goes through `escaped`: text from a peer, a file or the
environment must not move the cursor, forge a line or turn around the reading direction.
"""

import re

import msgspec

MASK = "***"

# Greedy up to the last @: a password that holds an unescaped @ or / must not leak its tail.
# In front of the scheme there may be a name, as in records.databases, where a file was meant.
_URL_PASSWORD = re.compile(
    r"^(\s*(?:[A-Za-z0-9_-]+=)?(?:[A-Za-z][A-Za-z0-9+.-]*://)?[^:/@\s]*):(?!//).*@", re.DOTALL
)
_NAMED_PASSWORD = re.compile(r"(password\s*=\s*)('[^']*'|[^&\s]+)", re.IGNORECASE)


def escaped(text: str) -> str:
    r"""The text with characters that are not printable written as \x1b, \u202e or \U000e0001."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else _escape(ord(char)) for char in text)


def masked(text: str) -> str:
    """The text with the password of a URL or of `password=` replaced by stars."""
    text = _NAMED_PASSWORD.sub(rf"\1{MASK}", text)
    return _URL_PASSWORD.sub(rf"\1:{MASK}@", text)


def shown(value: object) -> str:
    """A value as an error names it: text in quotes, so that an empty one and a blank are seen."""
    match value:
        case str():
            return f'"{escaped(masked(value))}"'
        case bool():
            return "true" if value else "false"
        case list():
            return "[" + ", ".join(shown(item) for item in value) + "]"
        case dict():
            return "a table"
        case _:
            return escaped(str(value))


def masked_value(value: object) -> object:
    """The same value for `config show`: texts masked, everything else as it is."""
    match value:
        case str():
            return masked(value)
        case list():
            return [masked_value(item) for item in value]
        case msgspec.Struct():
            return {key: masked_value(item) for key, item in msgspec.structs.asdict(value).items()}
        case _:
            return value


def _escape(point: int) -> str:
    if point <= 0xFF:
        return f"\\x{point:02x}"
    if point <= 0xFFFF:
        return f"\\u{point:04x}"
    return f"\\U{point:08x}"

"""Room: core/access. The rights: a letter each, and a bit of a whole number.

bits_of("slw")    SUBSCRIBE | LIST | WRITE
letters_of(bits)  the same as a text again, always in one order

Bits are plain numbers: verdicts are found on hot paths, where an enum would cost more than the question.
"""

from collections.abc import Mapping
from typing import Final

from moorline.errors import BadGrant

SUBSCRIBE: Final = 1
"""Read messages, rows and values; join a group."""
LIST: Final = 2
"""Names, counts and places."""
WRITE: Final = 4
"""Publish a message, send, write back to a value."""
PUBLISH: Final = 8
"""Make a name: a queue, a service, a group, a session, a value."""
DEFAULT: Final = 16
"""Publish a whole subtree on demand."""
ADMINISTER: Final = 32
"""Delete, block, seek, kick, mend, recompute, confirm."""
GRANT: Final = 64
"""Change rows, users and quotas."""

NOTHING: Final = 0
EVERYTHING: Final = 127
OWNERS: Final = SUBSCRIBE | WRITE | LIST | ADMINISTER
"""What an owner has on what it made, whatever the rows say."""

# In the order in which they are shown, so that two texts of the same rights are equal.
LETTERS: Mapping[str, int] = {
    "s": SUBSCRIBE,
    "l": LIST,
    "w": WRITE,
    "p": PUBLISH,
    "d": DEFAULT,
    "a": ADMINISTER,
    "g": GRANT,
}
NAMES: Mapping[int, str] = {
    SUBSCRIBE: "subscribe",
    LIST: "list",
    WRITE: "write",
    PUBLISH: "publish",
    DEFAULT: "default",
    ADMINISTER: "administer",
    GRANT: "grant",
}

# All 128 of them, made once: lines of audits and lists of rows show thousands.
_SHOWN = tuple(
    "".join(letter for letter, bit in LETTERS.items() if bits & bit)
    for bits in range(EVERYTHING + 1)
)


def bits_of(letters: str) -> int:
    """The rights of a text of letters, in any order; each may stand once."""
    bits = NOTHING
    for letter in letters:
        bit = LETTERS.get(letter)
        if bit is None:
            known = ", ".join(f"{letter} ({NAMES[bit]})" for letter, bit in LETTERS.items())
            raise BadGrant(f"{letter!r} is no right; accepted: {known}")
        # Refused, since "ss" is a slip of "sl" as likely as not, and a right too few or too many is found
        # late.
        if bits & bit:
            raise BadGrant(f"{letters!r} has the right {letter} twice: once is enough")
        bits |= bit
    return bits


def letters_of(bits: int) -> str:
    """In the order of `LETTERS`, which the catalog and the audit trail keep."""
    return _SHOWN[bits]

"""Room: net. What went wrong with Kerberos, in words: by the numbers of its library, for either end.

The numbers are those of RFC 4120 and of MIT's library. What is not known here is told in the library's words.
"""

from typing import Final

_BASE: Final = -1765328384
"""Where the library's numbers begin: those of RFC 4120 are added to it."""

_CLOCKS: Final = (
    "the clocks of the two machines differ by more than krb5.conf's clockskew: set them"
)
_EXPIRED: Final = "the ticket has expired: get another one with kinit, or name a keytab"

OF_INITIATOR: Final[dict[int, str]] = {
    6: "the realm does not know our principal: is it spelled right, and in the KDC's database?",
    7: "the realm does not know the service: is there a principal for that address in the KDC's database? "
    "another one can be named with service",
    18: "our principal is locked or has expired: ask whoever runs the KDC",
    23: "the password or key of our principal has expired: ask whoever runs the KDC",
    24: "the KDC does not take the key of our keytab: was it renewed since? get the keytab anew (ktadd)",
    31: "the KDC's answer does not fit the key of our keytab: was the key renewed since? get the keytab anew "
    "(ktadd)",
    32: _EXPIRED,
    33: f"the ticket is not valid yet: {_CLOCKS}",
    37: _CLOCKS,
    156: "no KDC of the realm answers: is it running, and does krb5.conf name it?",
    220: "the name of the KDC in krb5.conf has no address: is it spelled right?",
    154: "nobody knows where the KDC of the realm is: does krb5.conf name it?",
    181: "the keytab has no key for our principal: look at it with `moor keytab show`",
    195: "there is no ticket cache: run kinit, or name a keytab or another cache",
    141: "the ticket cache has no ticket for us: run kinit",
}

_NO_KEY: Final = OF_INITIATOR[181]
OF_KEYTAB: Final[dict[int, str]] = {**OF_INITIATOR, 141: _NO_KEY, 195: _NO_KEY}
"""The library looks for tickets first, and says no more than that there are none."""

OF_ACCEPTOR: Final[dict[int, str]] = {
    31: "the ticket cannot be opened with the key of this service: was the key renewed since it was issued? "
    "get a new ticket, or let the operator renew the keytab",
    32: _EXPIRED,
    33: f"the ticket is not valid yet: {_CLOCKS}",
    34: "this request was seen before: a new one must be made for every connection",
    35: "the ticket is for another service: name this one with service",
    36: "the ticket is for another one than who shows it",
    37: _CLOCKS,
    41: "the request was changed on its way",
    44: "the ticket is for a key that the keytab of this service does not have: let the operator renew the "
    "keytab, or get a new ticket",
    45: "the keytab of this service has no key for the ticket: let the operator look with `moor keytab "
    "check`",
    181: "the keytab of this service has no key for the ticket: it is for another service, or the keytab is "
    "old",
    230: "the keytab of this service has another version of the key than the ticket: let the operator renew "
    "the keytab, or get a new ticket",
}


UNKNOWN: Final = "the token is none that this service can use"


def number_of(error: Exception) -> int:
    """The number of the library's error above its base; -1 if it is another one's."""
    code = int(getattr(error, "min_code", 0) or 0)
    if code >= 1 << 31:
        code -= 1 << 32
    number = code - _BASE
    return number if 0 <= number < 512 else -1


def words_of(error: Exception, known: dict[int, str]) -> str:
    """What it means, with the library's own words where they say more."""
    said = library_words(error)
    meant = known.get(number_of(error), "")
    if not meant:
        # Numbers that two mechanisms share are given new ones by the library: the words stay.
        meant = next((text for sign, text in _BY_WORDS if sign in said), "")
    if not meant:
        return UNKNOWN if known is OF_ACCEPTOR else said
    # What the library says here may name what is there: that is not for whoever comes.
    return meant if known is OF_ACCEPTOR else f"{meant} ({said})"


_BY_WORDS: Final = (
    ("No key table entry found", OF_INITIATOR[181]),
    ("Principal in credential cache does not match", "the ticket cache is of another principal"),
    ("not found in keytab", OF_ACCEPTOR[181]),
    ("Cannot find key for", OF_ACCEPTOR[181]),
)


def library_words(error: Exception) -> str:
    """Without its numbers; one line."""
    text = str(error).replace("\n", " ")
    minor = text.rpartition("Minor (")[2].partition("): ")[2] if "Minor (" in text else text
    if minor in ("", "Unknown error", "Success") and "Major (" in text:
        minor = text.partition("): ")[2].partition(", Minor")[0]
    return minor[:300] or type(error).__name__

"""Room: core/records. The owners whose rows somebody may see: all but some, or none but some.

    /records/experiments         @staff +s            permit of a member of staff:  all but {9}
    └── 9                        @staff -s            permit of carol:              none but {3}
    └── 3                        carol  +s

It comes from the tree of grants, by the verdict at the table and those one level below that differ from
it. A level is the text of an owner, with everything but letters, digits, and `.`, `_`, `-` in the middle
written as `=XX`, byte by byte; the empty text is `=`. So each owner has one level and each level one
owner, at most: `a/b` is `a=2Fb`, `..` is `=2E=2E`, `%u` is `=25u`, and none of them opens anything else.
A row of rights at `%u` is for the owner whose text is the principal.

Rows without an owner are seen by whoever may see the table itself, which is "all but some".
"""

import hashlib
import re
from typing import Final

import msgspec

from moorline.core.access.grants import Grants
from moorline.core.access.right import SUBSCRIBE
from moorline.core.access.row import Subjects
from moorline.core.records.table import Column, ScopeValue, Table
from moorline.core.records.value import asked_value, text_of
from moorline.errors import BadFilter, LimitReached
from moorline.limits import RECORD_PERMIT_OWNERS_MAX

HASH_BYTES: Final = 16
EMPTY_LEVEL: Final = "="
ROOT: Final = "/records"

_ESCAPED = re.compile(r"=([0-9A-F]{2})")


class Permit(msgspec.Struct, frozen=True):
    """A value: equal ones see the same rows."""

    is_all: bool
    owners: frozenset[ScopeValue] = frozenset()
    """The exceptions."""
    hash: bytes = b""

    def matches(self, owner: ScopeValue) -> bool:
        if owner is None:
            return self.is_all
        return (owner in self.owners) != self.is_all

    @property
    def is_nothing(self) -> bool:
        return not self.is_all and not self.owners

    @property
    def is_everything(self) -> bool:
        """Then no scan needs to look at owners."""
        return self.is_all and not self.owners

    def texts(self, column: Column) -> list[str]:
        """The exceptions as SQL needs them, to be cast."""
        return sorted(text_of(column, owner) for owner in self.owners)


def permit_of(grants: Grants, subjects: Subjects, table: Table) -> Permit:
    """What these subjects may see of a table, at this version of rights."""
    column = owner_column(table)
    own = msgspec.structs.replace(subjects)
    # `%u` is a level of principals, which are written otherwise there: a principal called `a=2Fb` would open
    # the owner `a/b`.
    msgspec.structs.force_setattr(own, "level", level_of_owner(subjects.principal))
    is_all, levels = grants.split(own, SUBSCRIBE, f"{ROOT}/{table.name}")
    owners: set[ScopeValue] = set()
    for level in levels if column is not None else ():
        assert column is not None
        owner = owner_of_level(column, level)
        if owner is not None:
            owners.add(owner)
    if len(owners) > RECORD_PERMIT_OWNERS_MAX:
        raise LimitReached(
            f"{subjects.principal} has rights at {len(owners)} owners of {table.name}: more than "
            f"{RECORD_PERMIT_OWNERS_MAX} are granted at the table, and denied where they do not hold"
        )
    return make_permit(column, is_all=is_all, owners=frozenset(owners))


def make_permit(
    column: Column | None, *, is_all: bool, owners: frozenset[ScopeValue] = frozenset()
) -> Permit:
    texts = [] if column is None else sorted(text_of(column, owner) for owner in owners)
    said = msgspec.msgpack.encode([is_all, texts])
    return Permit(is_all, owners, hashlib.blake2b(said, digest_size=HASH_BYTES).digest())


def owner_column(table: Table) -> Column | None:
    if not table.has_owner:
        return None
    return next(column for column in table.columns if column.name == table.scopes[0])


def level_of_owner(text: str) -> str:
    """The text of an owner as one level of a path; no two have the same."""
    if not text:
        return EMPTY_LEVEL
    last = len(text) - 1
    return "".join(
        sign
        if sign.isascii() and (sign.isalnum() or (sign in "._-" and 0 < place < last))
        else "".join(f"={byte:02X}" for byte in sign.encode())
        for place, sign in enumerate(text)
    )


def owner_of_level(column: Column, level: str) -> ScopeValue:
    """The owner whose level this is; None if there is none."""
    if level == EMPTY_LEVEL:
        text = ""
    else:
        plain = _ESCAPED.sub(lambda found: chr(int(found[1], 16)), level)
        try:
            # What was escaped is bytes; what was not is ASCII, or the level is nobody's.
            text = plain.encode("latin-1").decode()
        except UnicodeError:
            return None
    try:
        owner = asked_value(column, text == "true" if _is_truth(column, text) else text)
    except BadFilter:
        return None
    # Only in the one way in which it is written: `01` is no level of the owner 1, or two rows of rights that
    # look like different owners would be about one.
    is_its_own = owner is not None and level_of_owner(text_of(column, owner)) == level
    return owner if is_its_own else None


def _is_truth(column: Column, text: str) -> bool:
    return column.type == "boolean" and text in ("true", "false")

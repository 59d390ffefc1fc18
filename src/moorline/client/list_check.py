"""Room: client. What a check of a service's list found: each part against its own ids, hashed anew."""

from collections.abc import Iterable

import msgspec
import numpy as np

from moorline.core.sets.id_set import IdSet


class PartCheck(msgspec.Struct, frozen=True):
    """A part against its own ids, hashed anew."""

    own: IdSet
    is_digest_right: bool
    is_doubtful: bool
    node: bytes = b""
    """The id of the node that had the home when it was last heard of."""
    name: str = ""
    """What the home was called."""

    @property
    def is_empty(self) -> bool:
        """Nothing is in it, and nothing says that something was."""
        return not len(self.own) and self.is_digest_right and not self.is_doubtful


NO_PART = PartCheck(IdSet.empty(), is_digest_right=True, is_doubtful=False)


class ListCheck(msgspec.Struct, frozen=True):
    """A list against its own ids, hashed anew: the set of these, and what is stored that is not true."""

    parts: dict[bytes, PartCheck]
    """By the numbers of homes; also of such as have nothing any more."""
    wrong_hashes: int
    set_aside: int
    """Rows that are kept beside the list: refused by the node, or damaged."""

    @property
    def own(self) -> IdSet:
        return joined(part.own for part in self.parts.values())

    @property
    def is_digest_right(self) -> bool:
        return all(part.is_digest_right for part in self.parts.values())

    @property
    def is_doubtful(self) -> bool:
        return any(part.is_doubtful for part in self.parts.values())

    @property
    def is_empty(self) -> bool:
        return all(part.is_empty for part in self.parts.values())

    def part(self, *homes: bytes) -> PartCheck:
        """Of one home; or of several, which are one part from now on."""
        found = [self.parts[home] for home in homes if home in self.parts]
        if not found:
            return NO_PART
        return PartCheck(
            joined(part.own for part in found),
            all(part.is_digest_right for part in found),
            any(part.is_doubtful for part in found),
            found[0].node,
            found[0].name,
        )


def joined(sets: Iterable[IdSet]) -> IdSet:
    pieces = [(one.high, one.low) for one in sets]
    if len(pieces) == 1:
        return IdSet(*pieces[0])
    highs, lows = zip(*pieces, strict=True) if pieces else ((), ())
    return IdSet(
        np.concatenate([np.empty(0, np.uint64), *highs]),
        np.concatenate([np.empty(0, np.uint64), *lows]),
    )

"""Room: client/records. The rows that a copy holds, and the sync that is about to change them.

    begin(how)  ─►  put, delete, …  ─►  end()       all of it at once: rows are those of one moment
                                    └─►  abandon()  the link broke: what was long in coming is kept

What a sync brings waits beside the rows until its end. The digest goes along with both: that of the rows, and
that of the rows as they will be. Membership decides before XOR does.

A sync of `full`, `ids` or `digest` that breaks may have brought a million rows. These are taken over, and what
the copy then is belongs to no cursor: it comes back by its digest. One of `replay` or `live` is dropped: the
rows are those of the cursor still.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from moorline.core.records.row_hash import RowDigest, row_hashes
from moorline.core.records.table import Key
from moorline.core.sets.digest import Digest
from moorline.core.sets.id_set import IdSet
from moorline.errors import Malformed

FULL: Final = "full"
DIGEST: Final = "digest"
LIVE: Final = "live"
HOWS: Final = frozenset({FULL, DIGEST, "ids", "replay", LIVE})
_LONG: Final = frozenset({FULL, DIGEST, "ids"})

Row = dict[str, Any]
PublicKey = Any
"""The value of the key's column; of several columns a tuple."""


class Held(NamedTuple):
    seq: int
    row: Row


class Applied(NamedTuple):
    """What became of one key; without `held` it is gone."""

    key: Key
    held: Held | None
    before: Held | None


class Facts(NamedTuple):
    """What a node tells of a table: the columns of its key, and all columns with their types."""

    key: tuple[str, ...]
    columns: tuple[tuple[str, str], ...]


class HeldRows:
    """Rows by the texts of their keys."""

    def __init__(self, facts: Facts, salt: int) -> None:
        self.facts = facts
        self.rows: dict[Key, Held] = {}
        self._digest = RowDigest(salt)
        self._next = self._digest
        self._pending: dict[Key, Held | None] = {}
        self._how: str | None = None
        self._wide = _wide(facts)

    @property
    def salt(self) -> int:
        return self._digest.salt

    @property
    def how(self) -> str | None:
        """Of the sync that is under way."""
        return self._how

    @property
    def pending(self) -> int:
        """Keys that the sync under way has told of."""
        return len(self._pending)

    def digest(self) -> Digest:
        """Of the rows as they are."""
        return self._digest.digest()

    def describe(self, facts: Facts, salt: int) -> None:
        """The table as the node knows it now; with another salt every row has another hash."""
        self.facts, self._wide = facts, _wide(facts)
        if salt != self.salt:
            self._digest = RowDigest(salt)
            for key, held in self.rows.items():
                self._digest.enter(key, held.seq)

    def fill(self, rows: Mapping[Key, Held]) -> None:
        """From a cache, before anything else."""
        assert not self.rows, "rows are there already"
        for key, held in rows.items():
            self._digest.enter(key, held.seq)
        self.rows.update(rows)

    # --- a sync -----------------------------------------------------------------------------------

    def begin(self, how: str) -> None:
        assert how in HOWS, how
        self._how = how
        self._pending = {}
        # Of `full` nothing is known to stay: what is not told again goes at its end.
        self._next = RowDigest(self.salt, None if how == FULL else self.digest())

    def put(self, seq: int, row: Row) -> None:
        assert self._how is not None, "outside of a sync"
        for name in self._wide:
            # A number that a browser would round comes as text; here all of a column is of one type.
            if isinstance(value := row.get(name), str):
                row[name] = _whole(name, value)
        key = self.key_of(row)
        self._leave(key)
        self._next.enter(key, seq)
        self._pending[key] = Held(seq, row)

    def delete(self, key: Key) -> None:
        assert self._how is not None, "outside of a sync"
        self._leave(key)
        self._pending[key] = None

    def end(self) -> list[Applied]:
        """What the sync changed, deletions first; a row that came as it was is no change."""
        if self._how == FULL:
            for key in self.rows.keys() - self._pending.keys():
                self._pending[key] = None
        applied = self._apply()
        self._digest = self._next
        self._reset()
        return applied

    def abandon(self) -> list[Applied]:
        """The sync will not end. What is kept of it belongs to no cursor."""
        applied: list[Applied] = []
        if self._how in _LONG and self._pending:
            applied = self._apply()
            for key, held, before in applied:
                if before is not None:
                    self._digest.leave(key, before.seq)
                if held is not None:
                    self._digest.enter(key, held.seq)
        self._reset()
        return applied

    def clear(self) -> list[Applied]:
        """Nothing of it may be seen any more."""
        applied = [Applied(key, None, held) for key, held in self.rows.items()]
        self.rows.clear()
        self._digest = RowDigest(self.salt)
        self._reset()
        return applied

    def _leave(self, key: Key) -> None:
        if key in self._pending:
            before = self._pending[key]
        else:
            before = None if self._how == FULL else self.rows.get(key)
        if before is not None:
            self._next.leave(key, before.seq)

    def _apply(self) -> list[Applied]:
        gone: list[Applied] = []
        came: list[Applied] = []
        for key, held in self._pending.items():
            before = self.rows.get(key)
            if held is None:
                if before is not None:
                    del self.rows[key]
                    gone.append(Applied(key, None, before))
            elif held != before:
                self.rows[key] = held
                came.append(Applied(key, held, before))
        return gone + came

    def _reset(self) -> None:
        self._how = None
        self._pending = {}
        self._next = self._digest

    # --- for a reconciliation ---------------------------------------------------------------------

    def frozen(self) -> "FrozenRows":
        """The keys as they are now: cheap, and what is costly about it is left to a thread."""
        return FrozenRows(self.salt, [(key, held.seq) for key, held in self.rows.items()])

    # --- keys -------------------------------------------------------------------------------------

    def key_of(self, row: Row) -> Key:
        try:
            return tuple([key_text(row[name]) for name in self.facts.key])
        except KeyError as error:
            raise Malformed(f"a record without its key {error}") from None

    def public_key(self, held: Held) -> PublicKey:
        values = tuple(held.row[name] for name in self.facts.key)
        return values[0] if len(values) == 1 else values

    def check(self) -> None:
        """Asserts that the digest is that of the rows."""
        anew = RowDigest(self.salt)
        for key, held in self.rows.items():
            anew.enter(key, held.seq)
        assert anew.digest() == self.digest(), "a digest of other rows"


class FrozenRows:
    """Keys and seqs at one moment. `id_set` is for a thread; `having` finds the keys again."""

    def __init__(self, salt: int, rows: list[tuple[Key, int]]) -> None:
        self._salt = salt
        self._rows = rows

    def id_set(self) -> IdSet:
        hashes = row_hashes(self._salt, self._rows)
        return IdSet(hashes[:, 0], hashes[:, 1])

    def at(self, places: list[int]) -> list[Key]:
        return [self._rows[place][0] for place in places]


class Rows(Mapping[PublicKey, Row]):
    """The rows as programs see them: by the value of the key, or by a tuple of values. They are not copies."""

    def __init__(self, held: HeldRows) -> None:
        self._held = held

    def __getitem__(self, key: PublicKey) -> Row:
        texts = tuple(map(str, key)) if isinstance(key, tuple) else (str(key),)
        return self._held.rows[texts].row

    def __contains__(self, key: object) -> bool:
        texts = tuple(map(str, key)) if isinstance(key, tuple) else (str(key),)
        return texts in self._held.rows

    def __iter__(self) -> Iterator[PublicKey]:
        return map(self._held.public_key, self._held.rows.values())

    def __len__(self) -> int:
        return len(self._held.rows)

    def __repr__(self) -> str:
        return f"<{len(self)} rows>"


def key_text(value: Any) -> str:
    """As Postgres writes it, which JSON does for all types that a key may have."""
    if isinstance(value, str):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    raise Malformed(f"{type(value).__name__} in a key")


def _wide(facts: Facts) -> tuple[str, ...]:
    return tuple(name for name, type_ in facts.columns if type_ == "bigint")


def _whole(name: str, value: str) -> int:
    try:
        return int(value)
    except ValueError:
        raise Malformed(f"{name} is bigint, and came as {value[:40]!r}") from None

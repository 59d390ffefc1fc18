"""Room: client/records. Rows as they come, and as programs see them.

A copy keeps the bytes of a row, which are a fifth of its objects: it is read when somebody looks at it.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from moorline.core.records.table import Key
from moorline.errors import Malformed

Row = dict[str, Any]
PublicKey = Any
"""The value of the key's column; of several columns a tuple."""

HeldRows = Mapping[Key, tuple[int, bytes]]
"""By the texts of the key: seq, and the row in msgpack."""


class Facts(msgspec.Struct, frozen=True):
    """What a node tells of a table: the columns of its key, and all columns with their types."""

    key: tuple[str, ...] = ()
    columns: tuple[tuple[str, str], ...] = ()

    def read(self, data: bytes) -> Row:
        try:
            row = msgspec.msgpack.decode(data)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise Malformed(f"a row that is none: {error}") from error
        if not isinstance(row, dict):
            raise Malformed(f"a row that is {type(row).__name__}")
        for name, type_ in self.columns:
            # A number that a browser would round comes as text; here all of a column is of one type.
            if type_ == "bigint" and isinstance(value := row.get(name), str):
                row[name] = _whole(name, value)
        return row

    def key_of(self, row: Row) -> Key:
        try:
            return tuple([_key_text(row[name]) for name in self.key])
        except KeyError as error:
            raise Malformed(f"a record without its key {error}") from None

    def public_key(self, row: Row) -> PublicKey:
        values = tuple([row[name] for name in self.key])
        return values[0] if len(values) == 1 else values


class Rows(Mapping[PublicKey, Row]):
    """By the value of the key, or by a tuple of values. Each look gives a dict of its own."""

    def __init__(self, held: Callable[[], HeldRows], facts: Callable[[], Facts]) -> None:
        self._held = held
        self._facts = facts

    def __getitem__(self, key: PublicKey) -> Row:
        found = self._held().get(_texts(key))
        if found is None:
            raise KeyError(key)
        return self._facts().read(found[1])

    def __contains__(self, key: object) -> bool:
        return _texts(key) in self._held()

    def __iter__(self) -> Iterator[PublicKey]:
        facts = self._facts()
        # A list: the copy may change while somebody goes through it.
        for _, data in list(self._held().values()):
            yield facts.public_key(facts.read(data))

    def __len__(self) -> int:
        return len(self._held())

    def seq(self, key: PublicKey) -> int:
        """The version of a row: it is another one behind each change."""
        found = self._held().get(_texts(key))
        if found is None:
            raise KeyError(key)
        return found[0]

    def __repr__(self) -> str:
        return f"<{len(self)} rows>"


def _texts(key: PublicKey) -> Key:
    return tuple(map(str, key)) if isinstance(key, tuple) else (str(key),)


def _key_text(value: Any) -> str:
    """As Postgres writes it, which JSON does for all types that a key may have."""
    if isinstance(value, str):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    raise Malformed(f"{type(value).__name__} in a key")


def _whole(name: str, value: str) -> int:
    try:
        return int(value)
    except ValueError:
        raise Malformed(f"{name} is bigint, and came as {value[:40]!r}") from None

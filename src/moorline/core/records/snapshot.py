"""Room: core/records. A snapshot of Postgres, and what is behind it.

    snapshot = Snapshot.parse("100:104:101,103")
    snapshot.is_behind(101)      True: 101 was still open when it was taken
    snapshot.is_behind(102)      False: it had committed or failed
    snapshot.is_behind(104)      True: it had not begun

A change that is behind a snapshot is one that whoever read at it has not seen. Transactions are numbered in
64 bits and the numbers never come again within one epoch of a table.
"""

import msgspec


class Snapshot(msgspec.Struct, frozen=True):
    """The transactions below `xmin` are over, those from `xmax` on had not begun.

    `open` are those between that had not ended.
    """

    xmin: int
    xmax: int
    open: tuple[int, ...] = ()

    @staticmethod
    def parse(text: str) -> "Snapshot":
        """The inverse of `str(snapshot)`: the text of `pg_snapshot`. ValueError for anything else."""
        xmin, xmax, open_ = text.split(":")
        snapshot = Snapshot(
            int(xmin), int(xmax), tuple(int(one) for one in open_.split(",") if one)
        )
        # Postgres gives them in this order; a text that has another one is not from there.
        is_ordered = all(a < b for a, b in zip(snapshot.open, snapshot.open[1:], strict=False))
        is_within = all(snapshot.xmin <= one < snapshot.xmax for one in snapshot.open)
        if not (0 < snapshot.xmin <= snapshot.xmax and is_ordered and is_within):
            raise ValueError(f"not a snapshot: {text[:64]}")
        return snapshot

    def is_behind(self, xid: int) -> bool:
        return xid >= self.xmax or xid in self.open

    def __str__(self) -> str:
        return f"{self.xmin}:{self.xmax}:{','.join(map(str, self.open))}"

"""What every benchmark prints: a table for people, or one JSON object a line.

    {"bench": "wire", "case": "batched 100", "metric": "messages_per_s", "value": 1.0, "unit": "1/s"}

Where a peer ran in the same run the row also has `peer`, `peer_value` and `ratio`: ours over theirs for
what should be high, theirs over ours for bytes, rounds, memory and latency, so that more is better.
"""

import argparse
import gc
import json
import sys
import tempfile
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import TracebackType
from typing import Any

import uvloop
from rich.console import Console
from rich.table import Table

LESS_IS_BETTER = frozenset({"B", "us", "ms", "s", "rounds", "cpu_s", "KiB", "MiB"})


class Report:
    """Collects rows; prints each as it comes with JSON, all at the end without."""

    def __init__(self, bench: str, *, as_json: bool) -> None:
        self.bench = bench
        self.rows: list[dict[str, object]] = []
        self._as_json = as_json

    def row(
        self,
        case: str,
        metric: str,
        value: float,
        unit: str,
        *,
        peer: str = "",
        peer_value: float = 0.0,
    ) -> None:
        row: dict[str, object] = {
            "bench": self.bench,
            "case": case,
            "metric": metric,
            "value": round(value, 4),
            "unit": unit,
        }
        if peer:
            ratio = peer_value / value if unit in LESS_IS_BETTER else value / peer_value
            row |= {"peer": peer, "peer_value": round(peer_value, 4), "ratio": round(ratio, 3)}
        self.rows.append(row)
        if self._as_json:
            print(json.dumps(row), flush=True)

    def __enter__(self) -> "Report":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._as_json or not self.rows:
            return
        table = Table("case", "metric", "value", "unit", "peer", "peer value", "ratio")
        for row in self.rows:
            table.add_row(
                str(row["case"]),
                str(row["metric"]),
                _number(row["value"]),
                str(row["unit"]),
                str(row.get("peer", "")),
                _number(row.get("peer_value", "")),
                _number(row.get("ratio", "")),
            )
        Console().print(table)


def tell(text: str) -> None:
    """What is going on, for whoever waits; the figures go to stdout."""
    print(text, file=sys.stderr, flush=True)


def run_bench(
    name: str,
    description: str | None,
    run: Callable[[Report, Path, bool], Coroutine[Any, Any, None]],
) -> None:
    """A benchmark as a program: `run` gets where to report to, an empty folder, and whether to be quick."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--quick", action="store_true", help="done within 50 s")
    parser.add_argument("--json", action="store_true", help="one object a line")
    options = parser.parse_args()
    # The client makes no cycles worth looking for, and a pause of its own would be taken for a server's.
    gc.disable()
    with (
        tempfile.TemporaryDirectory(prefix="moorline-bench-", ignore_cleanup_errors=True) as folder,
        Report(name, as_json=options.json) as report,
    ):
        uvloop.run(run(report, Path(folder), options.quick))


def _number(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1_000 else f"{value:,.3g}"
    return str(value)

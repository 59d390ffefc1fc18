"""Two checkouts side by side: what one benchmark costs in CPU before a change and after it.

    python -m bench.compare BEFORE AFTER BENCH [--rounds 7] [--quick] [--json]
    python -m bench.compare ../before . drift --quick

Each checkout has its own `.venv` and runs its own `bench/BENCH.py`. Rounds are interleaved as ABBA, so that
what the machine does meanwhile falls on both. Only CPU is compared, of node or client, and only what both
checkouts report; the medians are told, and how much more the second one costs (above 1: dearer).
"""

import argparse
import json
import re
import statistics
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

Costs = dict[tuple[str, str], float]
"""CPU by case and metric; the unit is that of the benchmark, or seconds for a million."""

PEERS = re.compile(r"redis|nats|mosquitto|kafka|parquet|negentropy", re.IGNORECASE)
"""Cases of theirs alone: they did not change. A case of ours that is beside one has it in `peer`."""
WARM_UP = 1
"""Rounds of each checkout that count for neither: they compile what is imported."""


def costs_of(rows: list[dict[str, object]]) -> Costs:
    """What these rows say of CPU, as costs: a rate for each CPU second is turned over."""
    found: Costs = {}
    for row in rows:
        case, metric, value = str(row["case"]), str(row["metric"]), row["value"]
        assert isinstance(value, int | float)
        if "cpu" not in metric or PEERS.match(case):
            continue
        if metric.endswith("_per_cpu_s"):
            what = metric.removesuffix("_per_cpu_s")
            found[case, f"cpu_s_per_million_{what}"] = 1e6 / value
        else:
            found[case, metric] = float(value)
    return found


def run(checkout: Path, bench: str, *, quick: bool) -> Costs:
    python = checkout / ".venv/bin/python"
    command = [str(python), "-m", f"bench.{bench}", "--json", *(["--quick"] if quick else [])]
    done = subprocess.run(command, cwd=checkout, capture_output=True, text=True)
    if done.returncode:
        sys.stderr.write(done.stderr)
        raise SystemExit(f"compare: bench.{bench} failed with {done.returncode} in {checkout}")
    return costs_of([json.loads(line) for line in done.stdout.splitlines()])


def compared(before: list[Costs], after: list[Costs]) -> list[dict[str, object]]:
    """One row for each case that every round of both has; a ratio of 0 where nothing was measured."""
    series: dict[tuple[str, str], tuple[list[float], list[float]]] = defaultdict(lambda: ([], []))
    for side, rounds in enumerate((before, after)):
        for costs in rounds:
            for known, value in costs.items():
                series[known][side].append(value)
    rows: list[dict[str, object]] = []
    for (case, metric), sides in series.items():
        if [len(values) for values in sides] != [len(before), len(after)]:
            continue
        first, second = map(statistics.median, sides)
        rows.append(
            {
                "case": case,
                "metric": metric,
                "before": round(first, 4),
                "after": round(second, 4),
                "ratio": round(second / first, 3) if first else 0.0,
                "rounds": len(before),
                "before_range": [round(min(sides[0]), 4), round(max(sides[0]), 4)],
                "after_range": [round(min(sides[1]), 4), round(max(sides[1]), 4)],
            }
        )
    return rows


def show(rows: list[dict[str, object]]) -> None:
    table = Table("case", "metric", "before", "after", "ratio")
    for row in rows:
        numbers = (f"{row[name]:,.4g}" for name in ("before", "after"))
        table.add_row(str(row["case"]), str(row["metric"]), *numbers, f"{row['ratio']:.2f}")
    Console().print(table)


def checkout_of(text: str) -> Path:
    path = Path(text).resolve()
    if not (path / ".venv/bin/python").exists():
        raise argparse.ArgumentTypeError(f"{text}: no checkout with a .venv: run make setup there")
    return path


def rounds_of(text: str) -> int:
    if not text.isdigit() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r}: a whole number above 0")
    return int(text)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("before", type=checkout_of, metavar="BEFORE", help="a checkout")
    parser.add_argument("after", type=checkout_of, metavar="AFTER", help="another one")
    parser.add_argument("bench", metavar="BENCH", help="a benchmark that both have, such as drift")
    parser.add_argument("--rounds", type=rounds_of, default=7, help="of each; default: 7")
    parser.add_argument("--quick", action="store_true", help="the quick form of the benchmark")
    parser.add_argument("--json", action="store_true", help="one object a line, with the ranges")
    options = parser.parse_args()
    sides = (options.before, options.after)
    for side in sides:
        if not (side / f"bench/{options.bench}.py").exists():
            parser.error(f"{side} has no benchmark {options.bench}")
    counted: tuple[list[Costs], list[Costs]] = ([], [])
    for number in range(WARM_UP + options.rounds):
        for place in (0, 1) if number % 2 else (1, 0):
            costs = run(sides[place], options.bench, quick=options.quick)
            if number >= WARM_UP:
                counted[place].append(costs)
        print(f"{options.bench}: round {number} of {options.rounds}", file=sys.stderr, flush=True)
    rows = compared(*counted)
    if not rows:
        raise SystemExit(f"compare: bench.{options.bench} tells no CPU that both checkouts have")
    if options.json:
        for row in rows:
            print(json.dumps({"bench": options.bench, **row}), flush=True)
    else:
        show(rows)


if __name__ == "__main__":
    main()

"""Runs the simulation of groups from seed to seed, for minutes: `make sim`.

python -m tests.core.group.long_run --minutes 5 --first 1000
python -m tests.core.group.long_run --runs queue fair_queue --first 0 --count 100
"""

import argparse
import sys
import time
from collections.abc import Callable

from tests.core.group.group_simulation import (
    GroupSimulation,
    fair,
    fair_queue,
    queue,
    rough,
    uneven_rough,
)
from tests.core.group.operator_simulation import operated, operated_queue, stopped_somewhere

from moorline.testing import SimulationFailed

RUNS: dict[str, Callable[[int], GroupSimulation]] = {
    "rough": rough,
    "queue": queue,
    "fair": fair,
    "fair_queue": fair_queue,
    "uneven": uneven_rough,
    "operated": operated,
    "operated_queue": operated_queue,
    "stopped": stopped_somewhere,
}


def main() -> int:
    parser = argparse.ArgumentParser(description="Simulates groups, seed after seed.")
    parser.add_argument("--minutes", type=float, default=5.0, help="how long (default 5)")
    parser.add_argument("--first", type=int, default=1_000, help="the first seed (default 1000)")
    parser.add_argument(
        "--count", type=int, default=0, help="how many seeds; 0 is what time allows"
    )
    parser.add_argument("--runs", nargs="*", choices=RUNS, default=list(RUNS), help="which runs")
    options = parser.parse_args()
    failed: list[str] = []
    ends = time.monotonic() + options.minutes * 60
    seed, steps = options.first, 0
    while time.monotonic() < ends and not 0 < options.count <= seed - options.first:
        for name in options.runs:
            try:
                steps += RUNS[name](seed).simulator.steps
            except SimulationFailed as error:
                failed.append(f'python -c "{error.replay}"')
                sys.stderr.write(f"\n{name}({seed}): {error}\n")
        seed += 1
        left_s = max(0, round(ends - time.monotonic()))
        sys.stderr.write(f"\rseed {seed}, {steps:,} steps, {len(failed)} failed, {left_s} s left ")
        sys.stderr.flush()
    sys.stderr.write("\n")
    print(f"seeds {options.first} to {seed - 1}, {steps:,} steps, {len(failed)} failed")  # noqa: T201
    for line in failed:
        print(f"replay: {line}")  # noqa: T201
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

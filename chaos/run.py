"""`make chaos`: real nodes under load and faults, and a checker that knows every answered call.

    python -m chaos.run --minutes 5 --seed 7
    python -m chaos.run --quick
    python -m chaos.run --rounds 3 --seed 7 --only "kill -9" --json

It ends with 0 if every promise was kept, and with 1 otherwise. Everything happens on loopback in a temporary
folder, which is gone at the end, as all processes are; also after Ctrl-C.
"""

import argparse
import asyncio
import contextlib
import json
import signal
import sys
import tempfile
import time
from pathlib import Path

from chaos.campaign import Campaign, Options, Outcome, Told
from chaos.checker import Violation
from chaos.damage import EXHAUSTIVE, at_every_byte
from chaos.faults import FAULTS
from chaos.summary import show, write

MINUTES = 5.0


def options_of(given: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m chaos.run",
        description="Faults under load, and a checker that knows every answered call.",
        epilog='Example: make chaos CHAOS="--minutes 30 --seed 7"',
    )
    parser.add_argument("--minutes", type=float, default=MINUTES, help="of rounds (default 5)")
    parser.add_argument("--seed", type=int, default=0, help="of all chance; 0 draws one")
    parser.add_argument("--rounds", type=int, default=0, help="at most; 0 is what time allows")
    parser.add_argument("--quick", action="store_true", help="about 40 s, without an archive")
    parser.add_argument("--only", action="append", choices=FAULTS, help="draw these faults only")
    parser.add_argument("--no-archive", action="store_true", help="without Spark")
    parser.add_argument("--no-damage", action="store_true", help=f"without {EXHAUSTIVE}")
    parser.add_argument("--keep", type=Path, help="keep the folders of nodes, and their logs, here")
    parser.add_argument("--document", type=Path, help="put the table into docs/reliability.md")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    return parser.parse_args(given)


async def played(folder: Path, options: Options, *, as_json: bool, damage: bool) -> Outcome:
    def tell(told: Told) -> None:
        if as_json:
            line = json.dumps({"round": told.round, "s": round(told.seconds, 1), "what": told.what})
            print(line, flush=True)
        else:
            print(f"{told.seconds:7.1f} s  round {told.round:3}  {told.what}", flush=True)

    async def both() -> Outcome:
        async with at_every_byte(wanted=damage) as harmed:
            outcome = await Campaign(folder, options, tell).run()
            if (found := await harmed()) is not None:
                outcome.every_byte = found.line
                outcome.verdict.violations += [Violation("lost", one) for one in found.failures]
            return outcome

    campaign = asyncio.create_task(both())
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, campaign.cancel)
    return await campaign


def _repeated(given: argparse.Namespace, seed: int) -> str:
    """The options that lead to the same faults."""
    words = [f"--seed {seed}"]
    if given.quick:
        words.append("--quick")
    elif given.minutes != MINUTES:
        words.append(f"--minutes {given.minutes:g}")
    if given.rounds:
        words.append(f"--rounds {given.rounds}")
    words += [f"--only '{name}'" for name in given.only or ()]
    words += ["--no-archive"] if given.no_archive else []
    words += ["--no-damage"] if given.no_damage else []
    return " ".join(words)


def main() -> int:
    given = options_of()
    seed = given.seed or int(time.time())
    options = Options(
        seed,
        0.4 if given.quick else given.minutes,
        given.rounds,
        archive=not (given.quick or given.no_archive),
        names=tuple(given.only or ()),
    )
    if not given.json:
        print(f'chaos: repeat with make chaos CHAOS="{_repeated(given, seed)}"', flush=True)
    with contextlib.ExitStack() as stack:
        folder = given.keep
        if folder is None:
            folder = Path(
                stack.enter_context(tempfile.TemporaryDirectory(prefix="moorline-chaos-"))
            )
        folder.mkdir(exist_ok=True)
        try:
            damage = not (given.quick or given.no_damage)
            outcome = asyncio.run(played(folder, options, as_json=given.json, damage=damage))
        except asyncio.CancelledError:
            print("chaos: stopped; nothing is left behind", file=sys.stderr)
            return 130
    show(outcome, as_json=given.json)
    if given.document is not None:
        write(outcome, given.document)
    return 1 if outcome.verdict.violations else 0


if __name__ == "__main__":
    sys.exit(main())

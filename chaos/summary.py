"""The summary of a campaign: a table for people, one object a line for programs, rows for the document."""

import json
from pathlib import Path

from rich.console import Console
from rich.table import Table

from chaos.campaign import Outcome
from chaos.checker import KINDS
from chaos.history import Acked, Delivered, Got, Operated, Proof, Published, Sent
from chaos.history import Outcome as Known

SHOWN = 20
BEGIN, END = "<!-- chaos -->", "<!-- /chaos -->"


def rows(outcome: Outcome) -> list[tuple[str, str]]:
    """What and how many, in the order of the document."""
    events = outcome.history.events

    def answered(kind: type[Sent | Acked | Published | Operated]) -> int:
        return sum(isinstance(one, kind) and one.outcome is Known.ANSWERED for one in events)

    found = [
        ("seed", str(outcome.seed)),
        ("rounds", f"{outcome.rounds:,}"),
        ("minutes", f"{outcome.seconds / 60:.1f}"),
    ]
    found += [(f"fault: {name}", f"{count:,}") for name, count in sorted(outcome.faults.items())]
    found += [(f"fault not made: {name}", why) for name, why in outcome.not_made.items()]
    found += [
        ("answered sends to queues", f"{answered(Sent):,}"),
        ("answered acknowledgements of queues", f"{answered(Acked):,}"),
        ("answered messages to topics", f"{answered(Published):,}"),
        ("answered calls of an operator", f"{answered(Operated):,}"),
        ("calls without an answer", f"{_unknown(outcome):,}"),
        ("deliveries of queues", f"{sum(isinstance(one, Delivered) for one in events):,}"),
        ("deliveries of topics", f"{sum(isinstance(one, Got) for one in events):,}"),
        ("proofs that said equal", f"{_proofs(outcome, equal=True):,}"),
        ("proofs that found a difference", f"{_proofs(outcome, equal=False):,}"),
        ("came again, as promised", f"{outcome.verdict.counts.again:,}"),
        ("gone by harm to files, and reported", f"{outcome.verdict.counts.reported:,}"),
    ]
    if outcome.every_byte:
        found.append(("a journal harmed at every byte", outcome.every_byte))
    return found + [(kind, f"{outcome.verdict.of_kind(kind):,}") for kind in KINDS]


def write(outcome: Outcome, document: Path) -> None:
    """Puts the rows between the two marks of the document."""
    before, _, rest = document.read_text().partition(BEGIN)
    _, _, behind = rest.partition(END)
    table = [
        "| what | how many |",
        "|---|---|",
        *(f"| {what} | {count} |" for what, count in rows(outcome)),
    ]
    document.write_text(before + BEGIN + "\n" + "\n".join(table) + "\n" + END + behind)


def _proofs(outcome: Outcome, *, equal: bool) -> int:
    return sum(isinstance(one, Proof) and one.said_equal is equal for one in outcome.history.events)


def _unknown(outcome: Outcome) -> int:
    return sum(
        isinstance(one, Sent | Acked | Published | Operated) and one.outcome is Known.UNKNOWN
        for one in outcome.history.events
    )


def show(outcome: Outcome, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps({"summary": dict(rows(outcome))}))
        for one in outcome.verdict.violations[:SHOWN]:
            print(json.dumps({"violation": one.kind, "text": one.text}))
        return
    table = Table("what", "how many", title="What the campaign did and found")
    for what, count in rows(outcome):
        table.add_row(what, count)
    Console().print(table)
    for one in outcome.verdict.violations[:SHOWN]:
        print(f"chaos: {one.kind}: {one.text}")
    if len(outcome.verdict.violations) > SHOWN:
        print(f"chaos: … and {len(outcome.verdict.violations) - SHOWN} more")

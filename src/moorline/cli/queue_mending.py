"""Room: cli. `moor queue check` and `moor queue repair`: one queue of a node that runs."""

import msgspec

from moorline.cli import output
from moorline.cli.endpoint import Endpoint, with_node
from moorline.cli.queue import AsJson, QueueName, app, queue_id_of, run
from moorline.client.moor import Moor
from moorline.errors import JournalDamaged
from moorline.wire.queue import QueueChecked

__all__ = ["app"]
"""The commands of `moor queue` with those of this file."""


@app.command(epilog="Example: moor queue check QUEUE --json")
@with_node
def check(endpoint: Endpoint, queue: QueueName, as_json: AsJson = False) -> None:
    """Read all files of a queue and say what is wrong; nothing is changed. The operator's.

    The node goes on; calls about this queue wait until it is done. Ends with 0 if nothing is wrong and
    with 15 otherwise.
    """
    queue_id = queue_id_of(queue)

    async def work(moor: Moor) -> None:
        found = await moor.queue(queue_id).check()
        _show(found, as_json=as_json, verb="can be saved")
        if not found.is_clean:
            problems = output.counted(found.problems_total, "problem")
            raise JournalDamaged(
                f"{problems} found: `moor queue repair {queue}` saves what can be read"
            )

    run(endpoint, work)


@app.command(epilog="Example: moor queue repair QUEUE")
@with_node
def repair(endpoint: Endpoint, queue: QueueName, as_json: AsJson = False) -> None:
    """Put right what is wrong with a queue, and save what can be read of it. The operator's.

    Also of one that the node has set aside: it serves again afterwards. The node goes on. Ends with 0 if
    nothing is wrong any more and with 15 otherwise.
    """
    queue_id = queue_id_of(queue)

    async def work(moor: Moor) -> None:
        found = await moor.queue(queue_id).repair()
        _show(found, as_json=as_json, verb="were saved")
        if not found.is_clean:
            raise JournalDamaged(
                f"problems are left behind the repair: `moor queue check {queue}` names them"
            )

    run(endpoint, work)


def _show(found: QueueChecked, *, as_json: bool, verb: str) -> None:
    facts = {name: value for name, value in msgspec.structs.asdict(found).items() if name != "call"}
    facts["problems"] = [msgspec.structs.asdict(problem) for problem in found.problems]
    output.emit(as_json, facts, lambda: _table(found, verb))


def _table(found: QueueChecked, verb: str) -> None:
    if not found.problems_total:
        output.line(f"{found.messages} messages: nothing is wrong")
        return
    rows = [(problem.kind, problem.lost, problem.text) for problem in found.problems]
    output.table(("kind", "lost", "what"), rows)
    problems = output.counted(found.problems_total, "problem")
    output.line(
        f"{found.messages} messages; {problems}, {found.saved} messages of damaged files {verb}, "
        f"{found.lost} are lost"
    )

"""Writers, nodes, clients, rights and faults at once, by chance: at the end every copy is its table."""

import asyncio
from collections import Counter
from pathlib import Path
from typing import Literal

import pytest
from tests.catalog.databases import empty_database, new_database
from tests.records.trial import Client, Trial

from moorline.catalog import EmbeddedPostgres

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(600)]

Capture = Literal["log", "notify"]
ROUNDS = (
    ("rights", "rights"),
    ("kill one", "rights", "start one"),
    ("rights", "kill two", "start two"),
    ("rights", "rights"),
)


def some_clients(folder: Path) -> list[Client]:
    """Different filters, different rights; two of them keep what they have on disk."""
    return [
        Client("all", {}, "true", None),
        Client("some", {}, "true", {1, 2}, folder / "some.cache"),
        Client("states", {"state": ["NEW", "DONE"]}, "state in ('NEW', 'DONE')", None),
        Client(
            "range",
            {"workspace_id": {">=": 2, "<": 5}},
            "workspace_id >= 2 and workspace_id < 5",
            {2, 3, 4},
        ),
        Client("nobody", {"workspace_id": None}, "workspace_id is null", None),
        Client("both", {"state": "RUN"}, "state = 'RUN'", {0, 1, 3, 5}, folder / "both.cache"),
    ]


@pytest.mark.parametrize(
    ("seed", "capture"),
    [
        (1, "log"),
        *(pytest.param(seed, "log", marks=pytest.mark.long) for seed in range(2, 6)),
        *(pytest.param(seed, "notify", marks=pytest.mark.long) for seed in range(6, 8)),
    ],
)
async def test_t2_every_copy_is_its_table_and_the_control_misses_rows(
    postgres: EmbeddedPostgres, tmp_path: Path, seed: int, capture: Capture
) -> None:
    catalog, users = await new_database(postgres), await empty_database(postgres)
    await check_trial(catalog, users, tmp_path, seed, capture)


async def check_trial(catalog: str, users: str, folder: Path, seed: int, capture: Capture) -> None:
    """8 writers, two nodes that are killed, six clients; the control must miss what they do not."""
    heard: Counter[str] = Counter()
    hows: Counter[str] = Counter()
    made = Trial(catalog, users, folder, seed, capture)
    async with made.open(some_clients(folder)) as trial:
        looking = asyncio.create_task(trial.control.run())
        for faults in ROUNDS:
            await trial.round(*faults)
        looking.cancel()
        await asyncio.wait([looking])
        await trial.late_commit()
        missed = await trial.missed_by_control()
        assert any(key == 9001 for key, _ in missed), "`seq > last` is not enough"
        for client in trial.clients:
            await trial.check_equal(client)
            heard += client.heard
            hows += client.hows
        assert trial.killed == 2
        assert min(writer.committed for writer in trial.writers) > 0
        assert sum(writer.rolled_back for writer in trial.writers) > 0
    trial.check_logs()
    # A copy that differed and healed is a mistake of the node or of the copy, although it ended well.
    drifted = [client for client in trial.clients if client.heard["drifted"]]
    assert not drifted, [(client.name, client.story) for client in drifted]
    assert hows["replay" if capture == "log" else "digest"], hows

"""Every command × every kind of caller on a real node, compared with docs/access-table.md."""

import asyncio
from pathlib import Path

import pytest
from tests.access.every_command import KINDS
from tests.access.every_command_table import (
    CALLERS,
    DENIED,
    DOCUMENT,
    Found,
    Table,
    found_tables,
    node_in,
    written,
)

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]

FOR_STRANGERS = frozenset(
    {
        # The same for all, or about the caller alone.
        "Echo", "Describe", "WhoAmI", "MakePass", "EndPasses", "CheckGrant", "ExplainGrant", "DescribeQuotas",
        # Who knows the id of a queue may send to it.
        "Send",
        # These name what the connection holds, and a stranger's holds nothing.
        "CloseService", "UnsubscribeTopic", "TakeMessages", "AckMessages", "RejectMessage", "GiveBack",
        "ConfirmLost", "StageRows", "CloseStage", "AbortStaged", "CommitStaged",
        "UnwatchPaths", "PublishPaths", "UnpublishPaths", "UnpublishHashes", "Heartbeat", "AskEntryRanges",
        "AskEntryLists", "JudgeHolders", "ClosePublisher", "AgreementTold", "UnsubscribeValues",
        # Each path is judged by itself; what the cluster publishes of itself is open to all who are let in.
        "ResolvePaths", "ListPaths", "MatchPaths", "WatchPaths", "FindHome",
        # So is each table: of one that a stranger may not see not even its name is told.
        "RecordMessages", "ResumeRecords",
    }
)  # fmt: skip
"""What docs/design/access.md lets everybody call, and no more."""
FOR_USERS = FOR_STRANGERS | {
    # `p` at /queues, /services and /sessions; the rest acts for the service that it has opened itself.
    "NewQueue", "OpenService", "Associate", "Dissociate", "SubscribeService", "AskRanges", "AskLists",
    "ListServices", "OpenSession", "SubscribeView",
    # `w` in its own subtree of topics: each chunk is judged by its own.
    "OpenStage",
    # `p` in its own subtree of values. It has the address dialled, and tells nothing of what is there.
    "OpenPublisher",
}  # fmt: skip
"""The same for a user who owns nothing of what is named."""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Found:
    with node_in(tmp_path_factory.mktemp("table")) as node:
        found = asyncio.run(found_tables(node))
        assert "Traceback" not in node.errors
        return found


@pytest.fixture(scope="module")
def table(found: Found) -> Table:
    return found.native


def _not_denied(table: Table, who: str) -> set[str]:
    return {label.split("`")[1] for label, cells in table.items() if cells[who] != DENIED}


def test_the_document_says_what_a_node_does(found: Found) -> None:
    assert written(found) == DOCUMENT.read_text(encoding="utf-8"), (
        "look at what changed, then run: python -m tests.access.every_command_table"
    )


def test_a_stranger_and_another_user_may_do_what_the_design_says_and_no_more(
    table: Table,
) -> None:
    assert _not_denied(table, "anonymous") == FOR_STRANGERS
    assert _not_denied(table, "another") == FOR_USERS


def test_by_mqtt_strangers_and_other_users_have_nothing_of_the_owners(found: Found) -> None:
    for who, granted in (
        ("anonymous", {"CONNECT of a new client"}),
        ("another", {"CONNECT of a new client", "CONNECT of a session that lasts"}),
    ):
        assert {row for row, cells in found.mqtt.items() if cells[who] != DENIED} == granted, who
    assert all(cells["operator"] == DENIED for row, cells in found.mqtt.items() if "`$" in row), (
        "not even an operator writes what is reserved"
    )


def test_over_http_nobody_has_more_than_another_but_by_what_it_asks(found: Found) -> None:
    for row, cells in found.http.items():
        assert len({status for who, status in cells.items() if who != "node"}) == 1, row


def test_no_command_is_a_mistake_of_ours(table: Table) -> None:
    assert not [label for label, cells in table.items() if "`INTERNAL`" in cells.values()]


def test_every_command_is_in_the_table(table: Table) -> None:
    names = [f"`{kind.__name__}`" for kind in KINDS]
    assert [name for name in names if set(table.get(name, ())) != set(CALLERS)] == []


def test_the_document_is_linked() -> None:
    security = Path(DOCUMENT.parent / "security.md").read_text(encoding="utf-8")
    assert f"({DOCUMENT.name})" in security

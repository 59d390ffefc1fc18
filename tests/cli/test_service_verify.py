"""`moor service verify` and `recompute`, also at a node's start: what is kept is compared and put right."""

import json
from pathlib import Path

import pytest
from tests.cli.service_node import EXIT_DRIFT, EXIT_USAGE, Client, Moorline, Shell
from tests.process.nodes import NodeProcess
from tests.waiting import eventually

from moorline.cli.main import run

pytestmark = pytest.mark.process


# --- comparing ------------------------------------------------------------------------------------


def test_verify_says_equal(moorline: Moorline, moor: Shell) -> None:
    client = Client(moorline, "equal", 20)
    facts = moor.json("verify", "equal", "--client-file", client.list)
    assert facts["is_equal"]
    assert [row["verdict"] for row in facts["comparisons"]] == ["equal"] * 6
    assert moor("verify", "equal") == 0
    assert moor.out.splitlines()[1].split()[-1] == "equal"


@pytest.mark.parametrize(
    ("node_loses", "client_loses", "verdict"), [(2, 5, "more"), (5, 2, "fewer"), (4, 4, "other")]
)
def test_d16_verify_says_more_fewer_or_other(
    moorline: Moorline, moor: Shell, node_loses: int, client_loses: int, verdict: str
) -> None:
    """D16: each is reported as what it is."""
    client = Client(moorline, f"is-{verdict}", 400)
    client.drop(client.queues[:node_loses])
    client.forget(client.queues[-client_loses:])
    before = client.list.read_bytes()
    words = ("verify", client.name, "--client-file", client.list)
    facts = moor.json(*words, code=EXIT_DRIFT)
    verdicts = [row["verdict"] for row in facts["comparisons"]]
    assert verdicts == ["equal"] * 5 + [verdict]
    assert (facts["missing"], facts["extra"]) == (node_loses, client_loses)
    assert f"lacks {node_loses} queues and has {client_loses} too many" in moor.err
    assert "decide first which of the two is right: `moor service repair`" in moor.err
    assert client.list.read_bytes() == before


# --- digests that are wrong -----------------------------------------------------------------------


def test_verify_sees_that_a_kept_digest_is_wrong_and_recompute_puts_it_right(
    moorline: Moorline, moor: Shell
) -> None:
    client = Client(moorline, "tampered", 50)
    client.lose(client.queues[:3])
    facts = moor.json("verify", "tampered", code=EXIT_DRIFT)
    row, *others = facts["comparisons"]
    assert [other["verdict"] for other in others] == ["equal", "equal"]
    assert (row["has"], row["which_has"], row["verdict"]) == (50, 47, "more")
    assert "moor service recompute" in moor.err
    shown = moor.json("show", "tampered")
    assert not shown["is_digest_right"]
    assert 1 <= len(shown["wrong_buckets"]) <= 3
    told = moor.json("recompute", "tampered")
    assert (told["was_wrong"], told["kept_queues"], told["queues"]) == (True, 50, 47)
    assert not moor.json("recompute", "tampered")["was_wrong"]
    assert moor("verify", "tampered") == 0


def test_errors_that_hide_each_other_in_the_sum_are_found(moorline: Moorline, moor: Shell) -> None:
    Client(moorline, "balanced", 300)
    # Ids are drawn by chance: these two have a queue in any case.
    buckets = [n for n, count in enumerate(moor.json("show", "balanced")["buckets"]) if count]
    one, other = buckets[0], buckets[-1]
    moorline.sql(
        "update moorline.service_bucket b set count = b.count + case when b.bucket = $1 then 1 else -1 end "
        "from moorline.service s where s.number = b.service and s.name = 'balanced' and b.bucket in ($1, $2)",
        one,
        other,
    )
    shown = moor.json("show", "balanced")
    assert shown["queues"] == 300, "the sum says nothing"
    assert len(shown["wrong_buckets"]) == 2
    facts = moor.json("verify", "balanced", code=EXIT_DRIFT)
    assert facts["comparisons"][0]["verdict"] == "other"
    assert moor.json("recompute", "balanced")["wrong_buckets"] == 2
    assert moor("verify", "balanced") == 0


def test_d25_recompute_all_also_resets_a_service_without_queues(
    moorline: Moorline, moor: Shell
) -> None:
    """D25: recompute also resets a service that has no queues."""
    Client(moorline, "hollow", 0)
    Client(moorline, "sound", 5)
    moorline.sql(
        "insert into moorline.service_bucket select number, 9, 4, 123, 456 from moorline.service "
        "where name = 'hollow'"
    )
    assert moor.json("show", "hollow")["queues"] == 4
    assert moor("recompute", "--all", "--json") == 0
    told = {one["service"]: one for one in map(json.loads, moor.out.splitlines())}
    assert told["hollow"]["was_wrong"]
    assert told["hollow"]["queues"] == 0
    assert not told["sound"]["was_wrong"]
    facts = moor.json("show", "hollow")
    assert (facts["queues"], facts["hash"]) == (0, "0" * 32)
    assert moor("recompute", "--all") == 0
    assert moor.out.splitlines()[0].split()[:2] == ["service", "queues"]
    assert moor("recompute") == EXIT_USAGE
    assert moor("recompute", "sound", "--all") == EXIT_USAGE


def test_serve_recompute_digests_puts_all_right_before_the_node_is_ready(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    moorline = Moorline(tmp_path)
    with moorline.node:
        Client(moorline, "hollow", 0)
        client = Client(moorline, "tampered", 20)
        Client(moorline, "sound", 5)
        client.lose(client.queues[:2])
        moorline.sql(
            "insert into moorline.service_bucket select number, 9, 4, 123, 456 "
            "from moorline.service where name = 'hollow'"
        )
    with NodeProcess(moorline.node.data, "--recompute-digests") as node:
        eventually(lambda: "digests recomputed" in node.errors)
        log = [line for line in node.errors.splitlines() if "digest" in line]
        assert sum("was wrong, and is put right" in line for line in log) == 2
        assert sum("the digest of a service is right" in line for line in log) == 1
        assert "wrong=2" in log[-1] or '"wrong": 2' in log[-1] or '"wrong":2' in log[-1]
        ready = [line for line in node.errors.splitlines() if "ready" in line]
        assert node.errors.index(log[-1]) < node.errors.index(ready[-1])
        capsys.readouterr()
        assert run(["service", "recompute", "--all", "--json", "--address", node.address]) == 0
        told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert [(one["service"], one["queues"], one["was_wrong"]) for one in told] == [
            ("hollow", 0, False),
            ("sound", 5, False),
            ("tampered", 18, False),
        ]

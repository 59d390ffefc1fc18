"""`moor service` against one real node: an operator sees, compares, repairs and switches services."""

import asyncio
import json
import re
import shlex
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import asyncpg
import pytest
import trustme
from tests.process.nodes import NodeProcess, eventually

from moorline.catalog.datafolder import SUPERUSER
from moorline.catalog.socket_folder import PORT
from moorline.cli.main import run
from moorline.client.associations import Associations
from moorline.client.moor import Connecting, connect
from moorline.errors import Refused, ServiceDisabled
from moorline.ids import text_of

pytestmark = pytest.mark.process

EXIT_USAGE, EXIT_FILE, EXIT_REFUSED, EXIT_DRIFT = 2, 6, 12, 17


class Moorline:
    """A node with a TLS port, its authority, and a door behind its back."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = trustme.CA()
        self.ca = folder / "ca.pem"
        self.authority.cert_pem.write_to_path(str(self.ca))
        server = folder / "server.pem"
        issued = self.authority.issue_cert("127.0.0.1")
        issued.private_key_and_cert_chain_pem.write_to_path(str(server))
        self.node = NodeProcess(
            folder / "data",
            "--listen=tls://127.0.0.1:0",
            f"--tls-certificate={server}",
            f"--tls-key={server}",
            f"--tls-client-ca={self.ca}",
            "--set=queues.operators=olga",
        )
        found = re.search(r"tls://\S+", self.node.ready_line)
        assert found is not None
        self.tls = found[0]

    def papers(self, name: str, file: str = "") -> Path:
        """A certificate with its key, of a service or an operator."""
        path = self.folder / f"{file or name}.pem"
        issued = self.authority.issue_cert("client@example.org", common_name=name)
        issued.private_key_and_cert_chain_pem.write_to_path(str(path))
        return path

    def connect(self, papers: Path) -> Connecting:
        return connect(self.tls, ca=self.ca, certificate=papers, key=papers)

    def flags(self, papers: Path) -> list[str]:
        return [
            *("--address", self.tls, "--ca", str(self.ca)),
            *("--certificate", str(papers), "--key", str(papers)),
        ]

    def sql(self, statement: str, *values: object) -> list[Any]:
        async def fetch() -> list[Any]:
            host = (self.node.data / "run").resolve()
            dsn = f"postgresql://{SUPERUSER}@/{SUPERUSER}?host={host}&port={PORT}"
            connection = await asyncpg.connect(dsn)
            try:
                return list(await connection.fetch(statement, *values))
            finally:
                await connection.close()

        return asyncio.run(fetch())


class Client:
    """A service with its queues: a certificate, a list, and ids."""

    def __init__(self, moorline: Moorline, name: str, queues: int, file: str = "") -> None:
        self.moorline = moorline
        self.name = name
        self.papers = moorline.papers(name, file)
        self.list = moorline.folder / f"{file or name}.sqlite"
        self.queues: list[bytes] = asyncio.run(self._made(queues))

    async def _made(self, count: int) -> list[bytes]:
        async with self.connect() as moor:
            made = [queue.id for queue in await moor.create_queues(count)]
            async with moor.service(self.list) as service:
                assert await service.associate(made) == []
            return made

    def connect(self) -> Connecting:
        return self.moorline.connect(self.papers)

    def lose(self, queues: Sequence[bytes]) -> None:
        """Associations vanish behind the node's back, and the kept digest is not told."""
        self.moorline.sql("delete from moorline.association where queue = any ($1)", list(queues))

    def drop(self, queues: Sequence[bytes]) -> None:
        """The node forgets associations as it should, and the client is not told."""
        self.moorline.sql("select * from moorline.dissociate($1)", list(queues))

    def forget(self, queues: Sequence[bytes]) -> None:
        """The client's list loses queues that the node keeps."""
        own = Associations(self.list)
        own.remove(queues)
        own.close()

    def listed(self) -> int:
        own = Associations(self.list)
        try:
            return len(own)
        finally:
            own.close()


@pytest.fixture(scope="module")
def moorline(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Moorline]:
    moorline = Moorline(tmp_path_factory.mktemp("services"))
    with moorline.node:
        yield moorline


class Shell:
    """Runs `moor` here, and keeps what it printed."""

    def __init__(self, moorline: Moorline, capsys: pytest.CaptureFixture[str]) -> None:
        self._moorline = moorline
        self._capsys = capsys
        self.out = self.err = ""

    def __call__(self, *words: object, papers: Path | None = None) -> int:
        flags = ["--address", self._moorline.node.address]
        if papers is not None:
            flags = self._moorline.flags(papers)
        code = run(["service", *map(str, words), *flags])
        self.out, self.err = self._capsys.readouterr()
        assert self.err.count("\n") == (code != 0), "an error is one line"
        return code

    def json(self, *words: object, papers: Path | None = None, code: int = 0) -> Any:
        """The one JSON object that the command prints."""
        assert self(*words, "--json", papers=papers) == code, self.err
        return json.loads(self.out)


@pytest.fixture
def moor(moorline: Moorline, capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(moorline, capsys)


# --- looking --------------------------------------------------------------------------------------


def test_list_shows_services_in_a_table_and_as_json(moorline: Moorline, moor: Shell) -> None:
    Client(moorline, "listed", 3)
    assert moor("list") == 0
    head, *rows = moor.out.splitlines()
    assert head.split() == [
        *("name", "id", "fingerprint", "queues", "hash", "enabled", "subscribed")
    ]
    (row,) = [row.split() for row in rows if row.startswith("listed ")]
    assert len(row[1]) == 32
    assert (row[3], row[5:]) == ("3", ["yes", "no"])
    assert moor("list", "--json") == 0
    (facts,) = [one for one in map(json.loads, moor.out.splitlines()) if one["name"] == "listed"]
    assert len(row[2]) == 16
    assert facts["fingerprint"].startswith(row[2])
    assert (facts["id"], facts["queues"], facts["hash"]) == (row[1], 3, row[4])


def test_more_services_than_a_page_are_listed_once_each(moorline: Moorline, moor: Shell) -> None:
    moorline.sql(
        "insert into moorline.service (id, fingerprint, name, salt) "
        "select decode(repeat(lpad(to_hex(n), 2, '0'), 24), 'hex'), "
        "decode(repeat(lpad(to_hex(n), 2, '0'), 32), 'hex'), 'many-' || n, decode(repeat('00', 16), 'hex') "
        "from generate_series(1, 150) n"
    )
    assert moor("list", "--json") == 0
    names = [json.loads(line)["name"] for line in moor.out.splitlines()]
    assert len(names) == len(set(names))
    assert {f"many-{n}" for n in range(1, 151)} <= set(names)
    moorline.sql("delete from moorline.service where name like 'many-%'")


def test_show_finds_a_service_by_name_id_and_fingerprint(moorline: Moorline, moor: Shell) -> None:
    Client(moorline, "shown", 600)
    facts = moor.json("show", "shown")
    assert facts["queues"] == facts["recomputed_queues"] == sum(facts["buckets"]) == 600
    assert facts["hash"] == facts["recomputed_hash"]
    assert facts["is_digest_right"]
    for name in (facts["id"], facts["fingerprint"], facts["fingerprint"][:12].upper()):
        assert moor.json("show", name) == facts
    assert moor("show", "shown") == 0
    assert re.search(r"^buckets +256 with \d+ to \d+ queues, \d+ of them empty$", moor.out, re.M)


def test_a_name_that_is_nobodys_or_several_services_is_refused(
    moorline: Moorline, moor: Shell
) -> None:
    Client(moorline, "twin", 1, "twin-1")
    Client(moorline, "twin", 2, "twin-2")
    assert moor("show", "nobody") == EXIT_REFUSED
    assert "there is no service 'nobody'" in moor.err
    for command in ("show", "queues", "verify", "recompute", "disable"):
        assert moor(command, "twin") == EXIT_REFUSED
        assert "is 2 services: twin " in moor.err
    fingerprints = re.findall(r"twin ([0-9a-f]{16})", moor.err)
    assert {moor.json("show", one)["queues"] for one in fingerprints} == {1, 2}
    assert moor("show", "") == EXIT_USAGE
    assert moor("show", "x" * 300) == EXIT_USAGE
    assert moor("show", "\udcff") == EXIT_USAGE


def test_queues_are_listed_page_by_page(moorline: Moorline, moor: Shell) -> None:
    client = Client(moorline, "paged", 1_500)
    assert moor("queues", "paged") == 0
    lines = moor.out.splitlines()
    assert len(lines) == 1_500
    assert set(lines) == {text_of(queue) for queue in client.queues}
    assert moor("queues", "paged", "--limit", 700) == 0
    assert moor.out.splitlines() == lines[:700]
    assert moor("queues", "paged", "--limit", 2, "--json") == 0
    assert [json.loads(one)["queue"] for one in moor.out.splitlines()] == lines[:2]


def test_text_from_the_node_is_escaped(moorline: Moorline, moor: Shell) -> None:
    client = Client(moorline, "hostile", 1)
    name = "evil\x1b[2J\nforged"
    moorline.sql("update moorline.service set name = $1 where name = 'hostile'", name)
    assert moor("list") == 0
    assert "evil\\x1b[2J\\x0aforged" in moor.out
    assert moor("list", "--json") == 0
    assert "\x1b" not in moor.out
    (facts,) = [one for one in map(json.loads, moor.out.splitlines()) if one["name"] == name]
    assert moor("show", facts["id"]) == 0
    assert "\x1b" not in moor.out
    asyncio.run(_open(client))  # brings the certificate's own name back


async def _open(client: Client) -> None:
    async with client.connect() as moor, moor.service(client.list):
        pass


# --- comparing ------------------------------------------------------------------------------------


def test_verify_says_equal(moorline: Moorline, moor: Shell) -> None:
    client = Client(moorline, "equal", 20)
    facts = moor.json("verify", "equal", "--client-file", client.list)
    assert facts["is_equal"]
    assert [row["verdict"] for row in facts["comparisons"]] == ["equal"] * 3
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
    assert verdicts == ["equal", "equal", verdict]
    assert (facts["missing"], facts["extra"]) == (node_loses, client_loses)
    assert f"lacks {node_loses} queues and has {client_loses} too many" in moor.err
    assert "`moor service repair`" in moor.err
    assert client.list.read_bytes() == before


def test_verify_sees_that_a_kept_digest_is_wrong_and_recompute_puts_it_right(
    moorline: Moorline, moor: Shell
) -> None:
    client = Client(moorline, "tampered", 50)
    client.lose(client.queues[:3])
    facts = moor.json("verify", "tampered", code=EXIT_DRIFT)
    (row,) = facts["comparisons"]
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
    moorline.sql(
        "update moorline.service_bucket b set count = b.count + case when b.bucket = 7 then 1 else -1 end "
        "from moorline.service s where s.number = b.service and s.name = 'balanced' and b.bucket in (7, 8)"
    )
    wrong = moor.json("show", "balanced")["wrong_buckets"]
    if len(wrong) == 2:  # chance may have left one of the buckets without a row
        facts = moor.json("verify", "balanced", code=EXIT_DRIFT)
        assert facts["comparisons"][0]["verdict"] == "other"
    assert moor.json("recompute", "balanced")["wrong_buckets"] == len(wrong)


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


# --- repairing ------------------------------------------------------------------------------------


def test_an_operator_repairs_what_a_dry_run_has_said(moorline: Moorline, moor: Shell) -> None:
    client = Client(moorline, "mended", 2_000)
    client.drop(client.queues[:30])
    client.lose(client.queues[30:40])
    client.forget(client.queues[-7:])
    before = client.list.read_bytes()
    words = ("repair", "mended", "--client-file", client.list)
    plan = moor.json(*words, "--dry-run")
    assert plan["is_dry_run"]
    assert (plan["added"], plan["removed"], plan["refused"]) == (40, 7, [])
    assert moor.json("show", "mended")["recomputed_queues"] == 1_960
    done = moor.json(*words)
    assert (done["added"], done["removed"], done["refused"]) == (40, 7, [])
    assert done["is_digest_put_right"]
    assert done["rounds"] > 1
    assert 0 < done["bytes_received"] < 24 * 2_000, "in proportion to the difference"
    assert client.list.read_bytes() == before
    assert moor("verify", "mended", "--client-file", client.list) == 0
    again = moor.json(*words)
    assert (again["added"], again["removed"]) == (0, 0)
    assert not again["is_digest_put_right"]


@pytest.mark.parametrize("lost", [300, 299, 150])
def test_a_repair_when_most_or_all_is_gone(moorline: Moorline, moor: Shell, lost: int) -> None:
    client = Client(moorline, f"gone-{lost}", 300)
    client.drop(client.queues[:lost])
    done = moor.json("repair", client.name, "--client-file", client.list)
    assert (done["added"], done["removed"]) == (lost, 0)


def test_a_list_without_queues_takes_all_away_and_the_dry_run_says_so(
    moorline: Moorline, moor: Shell
) -> None:
    client = Client(moorline, "emptied", 12)
    client.forget(client.queues)
    words = ("repair", "emptied", "--client-file", client.list)
    assert moor.json(*words, "--dry-run")["removed"] == 12
    assert moor.json(*words)["removed"] == 12
    assert moor.json("show", "emptied")["queues"] == 0


def test_what_the_node_refuses_is_named_and_stays_in_the_clients_file(
    moorline: Moorline, moor: Shell
) -> None:
    client = Client(moorline, "refused", 10)
    gone = client.queues[0]

    async def delete() -> None:
        async with client.connect() as connected:
            await connected.queue(gone).delete()

    asyncio.run(delete())
    stranger = Client(moorline, "stranger", 1).queues[0]
    own = Associations(client.list)
    own.add([stranger])
    own.close()
    client.drop(client.queues[1:3])
    done = moor.json("repair", "refused", "--client-file", client.list)
    assert done["added"] == 2
    assert set(done["refused"]) == {text_of(gone), text_of(stranger)}
    assert client.listed() == 11
    assert moor.json("show", "stranger")["queues"] == 1


def test_a_service_repairs_itself_with_its_own_certificate(moorline: Moorline, moor: Shell) -> None:
    client = Client(moorline, "selfish", 100)
    client.drop(client.queues[:5])
    client.forget(client.queues[-2:])

    async def delete() -> None:
        async with client.connect() as connected:
            await connected.queue(client.queues[0]).delete()

    asyncio.run(delete())
    words = ("repair", "selfish", "--client-file", client.list)
    plan = moor.json(*words, "--dry-run", papers=client.papers)
    assert (plan["added"], plan["removed"]) == (5, 2)
    assert client.listed() == 98
    done = moor.json(*words, papers=client.papers)
    assert (done["added"], done["removed"]) == (4, 2)
    assert done["refused"] == [text_of(client.queues[0])]
    assert client.listed() == 97
    facts = moor.json("verify", "selfish", "--client-file", client.list, papers=client.papers)
    assert facts["is_equal"]


def test_a_service_that_the_node_has_forgotten_repairs_itself_by_its_fingerprint(
    moorline: Moorline, moor: Shell
) -> None:
    """D13: the service is gone on the server, and everything is associated again."""
    client = Client(moorline, "forgotten", 40)
    fingerprint = moor.json("show", "forgotten")["fingerprint"]
    moorline.sql("delete from moorline.service where name = 'forgotten'")
    words = ("--client-file", client.list)
    assert moor("repair", "forgotten", *words, papers=client.papers) == EXIT_REFUSED
    assert moor.json("repair", fingerprint, *words, papers=client.papers)["added"] == 40


def test_a_repair_feeds_the_session_that_is_subscribed_and_does_not_end_it(
    moorline: Moorline, moor: Shell
) -> None:
    client = Client(moorline, "running", 10)
    words = ("repair", "running", "--client-file", client.list)

    async def work() -> None:
        async with client.connect() as connected, connected.service(client.list) as service:
            messages = aiter(service)
            client_queue = client.queues[3]
            await asyncio.to_thread(client.drop, [client_queue])
            await asyncio.sleep(0)
            facts = await asyncio.to_thread(moor.json, "show", "running")
            assert (facts["is_subscribed"], facts["sessions"]) == (True, 1)
            for flags in (["--dry-run"], []):
                done = await asyncio.to_thread(moor.json, *words, *flags)
                assert done["added"] == 1
            await connected.send(client_queue, b"after the repair")
            async with asyncio.timeout(20):
                message = await anext(messages)
            assert message.body == b"after the repair"
            plan = await asyncio.to_thread(moor.json, *words, "--dry-run", papers=client.papers)
            assert plan["added"] == 0
            await connected.send(client.queues[4], b"still subscribed")
            async with asyncio.timeout(20):
                assert (await anext(messages)).body == b"still subscribed"

    asyncio.run(work())


def test_a_message_that_waits_in_a_lost_queue_comes_with_the_repair(
    moorline: Moorline, moor: Shell
) -> None:
    client = Client(moorline, "waiting", 6)
    client.drop(client.queues[:1])

    async def work() -> None:
        shorter = client.list.with_name("shorter.sqlite")
        own = Associations(shorter)
        own.add(client.queues[1:])
        own.close()
        async with client.connect() as connected, connected.service(shorter) as service:
            await connected.send(client.queues[0], b"waited")
            await asyncio.to_thread(moor.json, "repair", "waiting", "--client-file", client.list)
            async with asyncio.timeout(20):
                assert (await anext(aiter(service))).body == b"waited"

    asyncio.run(work())


def test_a_file_that_is_no_list_is_refused_and_nothing_is_made(
    moorline: Moorline, moor: Shell, tmp_path: Path
) -> None:
    Client(moorline, "guarded", 4)
    missing = tmp_path / "typo.sqlite"
    other = tmp_path / "other.sqlite"
    sqlite3.connect(other).close()
    text = tmp_path / "text"
    text.write_text("not a database, but long enough to look at" * 100)
    for command in ("verify", "repair"):
        assert moor(command, "guarded", "--client-file", missing) == EXIT_USAGE
        for path in (other, text):
            assert moor(command, "guarded", "--client-file", path) == EXIT_FILE
            assert "is not the list of a service" in moor.err
    assert not missing.exists()
    assert moor("repair", "guarded") == EXIT_USAGE
    assert moor.json("show", "guarded")["queues"] == 4


# --- switching ------------------------------------------------------------------------------------


def test_a_disabled_service_is_ended_and_refused_until_it_is_enabled(
    moorline: Moorline, moor: Shell
) -> None:
    client = Client(moorline, "paused", 3)

    async def work() -> None:
        async with client.connect() as connected, connected.service(client.list) as service:
            told = await asyncio.to_thread(moor.json, "disable", "paused")
            assert told["was_changed"]
            assert told["sessions_ended"] == 1
            async with asyncio.timeout(20):
                with pytest.raises(Refused, match="DISABLED"):
                    await anext(aiter(service))
        async with client.connect() as connected:
            with pytest.raises(ServiceDisabled):
                await connected.service(client.list).agree()

    asyncio.run(work())
    words = ("repair", "paused", "--client-file", client.list)
    assert moor(*words, papers=client.papers) == EXIT_REFUSED
    assert "disabled" in moor.err
    assert not moor.json("show", "paused")["is_enabled"]
    assert not moor.json("disable", "paused")["was_changed"]
    assert moor("enable", "paused") == 0
    assert re.search(r"^was changed +yes$", moor.out, re.M)
    asyncio.run(_open(client))
    assert moor.json("show", "paused")["queues"] == 3


# --- who may ---------------------------------------------------------------------------------------


def test_whoever_is_no_operator_is_refused(moorline: Moorline, moor: Shell) -> None:
    client = Client(moorline, "private", 2)
    mallory = moorline.papers("mallory")
    name, file = client.name, ["--client-file", client.list]
    for words in (
        ["list"],
        ["show", name],
        ["show", "nobody"],
        ["queues", name],
        ["verify", name],
        ["verify", name, *file],
        ["repair", name, *file],
        ["repair", name, *file, "--dry-run"],
        ["recompute", name],
        ["recompute", "--all"],
        ["disable", name],
        ["enable", name],
    ):
        assert moor(*words, papers=mallory) == EXIT_REFUSED
        assert "only an operator may do this" in moor.err
        assert moor.out == ""


def test_a_service_sees_itself_and_changes_nothing_as_an_operator(
    moorline: Moorline, moor: Shell
) -> None:
    client = Client(moorline, "modest", 2)
    assert moor.json("show", "modest", papers=client.papers)["queues"] == 2
    for command in ("queues", "recompute", "disable"):
        assert moor(command, "modest", papers=client.papers) == EXIT_REFUSED


def test_an_operator_by_name_comes_from_anywhere(moorline: Moorline, moor: Shell) -> None:
    client = Client(moorline, "remote", 30)
    client.drop(client.queues[:4])
    olga = moorline.papers("olga")
    words = ("repair", "remote", "--client-file", client.list)
    assert moor.json(*words, papers=olga)["added"] == 4
    assert moor("verify", "remote", "--client-file", client.list, papers=olga) == 0


def test_a_node_that_is_not_there_is_one_line(
    moorline: Moorline, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["service", "list", "--address", "tcp://127.0.0.1:1"]) == 10
    assert "is the node running" in capsys.readouterr().err
    assert run(["service", "list", "--address", "udp://x"]) == 3
    assert moorline.node.process.poll() is None


# --- the user's guide ------------------------------------------------------------------------------


def test_every_example_of_the_guide_works(
    moorline: Moorline, monkeypatch: pytest.MonkeyPatch
) -> None:
    guide = (Path(__file__).parents[2] / "docs/services.md").read_text(encoding="utf-8")
    guide = guide.replace("tls://127.0.0.1:7413", moorline.tls)
    monkeypatch.chdir(moorline.folder)
    monkeypatch.setenv("MOOR_ADDRESS", moorline.node.address)
    moorline.papers("billing")
    programs = re.findall(r"^```python\n(.*?)^```", guide, re.M | re.S)
    printed = [
        subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
        ).stdout
        for program in programs
    ]
    assert printed == ["b'an invoice'\n", "0 added, 0 removed, 2 rounds\n"]
    commands = re.findall(r"^\$ moor (.*)$", guide, re.M)
    assert len(commands) == 14
    for command in commands:
        assert run(shlex.split(command)) == 0, command


# --- at the start ---------------------------------------------------------------------------------


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

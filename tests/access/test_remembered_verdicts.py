"""What is remembered of rights is what the rows say, whatever was changed meanwhile and whoever asked."""

import random
from collections.abc import Iterable

import pytest
from tests.access.world import STALE_MS, World

from moorline.access import rights_table
from moorline.access.guard import Guard, GuardedHandler, needs_each, unless_denied
from moorline.access.rights import Rights
from moorline.access.rights_table import RightsTable
from moorline.core.access.principal import Proof
from moorline.core.access.right import LIST, WRITE
from moorline.core.access.row import Row
from moorline.errors import CatalogUnreachable
from moorline.net.session_rights import ALL
from moorline.wire.message import Answer, Failed
from moorline.wire.node import Echo, Echoed

NAMES = ("a", "a/x", "a/x/y", "b", "b/x", "alice", "alice/x", "bob/x")
PATHS = ("/", "/topics", "/topics/%u", *(f"/topics/{name}" for name in NAMES))
SUBJECTS = ("alice", "bob", "@team", "@everyone", "@authenticated")


class Session:
    allowance = None

    def __init__(self, rights: Rights) -> None:
        self.rights = rights


class Node:
    """Handlers behind a guard, connections that stay, and a table that is changed at random."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.world = World(Row("/topics", "@everyone", grants=WRITE))
        guard = Guard(self)
        self.granted = guard.guarded({Echo: needs_each(WRITE, names_of, answer, below="/topics")})[
            Echo
        ]
        self.undenied = guard.guarded(
            {Echo: unless_denied(WRITE, name_of, path_of, owner_of, answer, below="/topics")}
        )[Echo]
        self.who = [("alice", Proof.PASSWORD), ("alice", Proof.TOKEN), ("bob", Proof.PASSWORD)]
        self.who += [("anonymous", Proof.NOTHING), ("$node/n1", Proof.NODE)]
        self.sessions = [Session(rights_in(self.world.table, *one)) for one in self.who]
        self.rows: set[tuple[str, str]] = {("/topics", "@everyone")}
        self.members: set[str] = set()

    def refused(self, *_: object) -> None:
        pass

    async def change(self) -> None:
        """One row, or one membership, or nothing that is known any more."""
        chance, source = self.chance, self.world.source
        match chance.randrange(6):
            case 0 if self.rows:
                gone = chance.choice(sorted(self.rows))
                self.rows.discard(gone)
                source.remove(Row(*gone))
            case 1:
                name = chance.choice(["alice", "bob"])
                leaves = name in self.members
                (source.remove_member if leaves else source.add_member)("@team", name)
                self.members ^= {name}
            case 2 if chance.random() < 0.3:
                source.is_away = not source.is_away
                self.world.pass_ms(STALE_MS + 1)
            case _:
                at = chance.choice(PATHS), chance.choice(SUBJECTS)
                self.rows.add(at)
                bits = chance.choice([WRITE, WRITE | LIST])
                is_grant = chance.random() < 0.5
                source.put(Row(*at, grants=bits) if is_grant else Row(*at, denies=bits))
        if source.is_away:
            with pytest.raises(CatalogUnreachable):
                await self.world.table.refresh()
        else:
            await self.world.table.refresh()

    def evaluated(self) -> RightsTable:
        """One that has the same rows, and remembers nothing."""
        fresh = RightsTable(
            self.world.source, revocation_ms=1, stale_ms=1, is_embedded=False, now_ms=lambda: 0
        )
        fresh._contents, fresh.freshness = self.world.table._contents, self.world.table.freshness
        return fresh

    def ask(self) -> None:
        """A run of calls by one of the connections, judged as each of them would be by itself."""
        chance, number = self.chance, self.chance.randrange(len(self.who))
        calls = [
            Echo(at, " ".join(chance.choices(NAMES, k=chance.randint(1, 3))).encode())
            for at in range(chance.randint(1, 6))
        ]
        rights = rights_in(self.evaluated(), *self.who[number])
        wanted = [
            all(rights.at(f"/topics/{name}") & WRITE for name in names_of([call])) for call in calls
        ]
        assert passed(self.granted, self.sessions[number], calls) == wanted
        single = [Echo(at, chance.choice(NAMES).encode()) for at in range(len(calls))]
        wanted = [not rights.denied(WRITE, path_of(call.body)) for call in single]
        assert passed(self.undenied, self.sessions[number], single) == wanted


def rights_in(table: RightsTable, name: str, proof: Proof) -> Rights:
    return table.rights(name, proof, is_local=False)


def names_of(calls: list[Echo]) -> list[str]:
    return [name for call in calls for name in call.body.decode().split()]


def name_of(call: Echo) -> bytes:
    return call.body


def path_of(name: bytes) -> str:
    return f"/topics/{name.decode()}"


def owner_of(_: Echo) -> None:
    return None


def answer(_: Session, calls: list[Echo]) -> Iterable[Answer]:
    return [Echoed(call.call, call.body) for call in calls]


def passed(handler: GuardedHandler, session: Session, calls: list[Echo]) -> list[bool]:
    answers = sorted(handler(session, calls), key=lambda one: one.call)
    return [not isinstance(one, Failed) for one in answers]


@pytest.mark.parametrize("seed", range(30))
async def test_a_remembered_verdict_is_the_evaluated_one(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if seed % 2:  # what is too much to be remembered is forgotten in the midst of a run
        monkeypatch.setattr(rights_table, "VERDICTS_KEPT_MAX", 5)
        monkeypatch.setattr(rights_table, "VERDICTS_OF_ALL_MAX", 16)
    node = Node(random.Random(seed))
    await node.world.table.refresh()
    for _ in range(60):
        for _ in range(6):
            node.ask()
        await node.change()


async def test_what_was_found_is_one_look_until_the_rows_change() -> None:
    world = await World.loaded(Row("/topics/a", "alice", grants=WRITE))
    alice, other = world.user(), world.user()
    wanted = WRITE, "/topics"
    assert alice.passing.get(wanted) is None
    assert alice.all_granted(WRITE, "/topics", ["a"])
    assert alice.passing[wanted] == {"a"}
    assert other.passing[wanted] is alice.passing[wanted], "of all connections of a principal"
    assert world.user("bob").passing.get(wanted) is None
    world.source.put(Row("/topics/b", "bob", grants=WRITE))
    held = alice.passing
    await world.table.refresh()
    assert not held, "emptied, and not only let go: nobody asks whether it is still so"


async def test_what_was_emptied_is_not_filled_again() -> None:
    """Nobody would empty it at the next change."""
    world = await World.loaded(Row("/topics", "alice", grants=WRITE))
    alice = world.user()
    assert alice.all_granted(WRITE, "/topics", ["a"])
    held = alice.passing
    assert held == {(WRITE, "/topics"): ALL}
    world.table._forget_verdicts()
    alice._pass((WRITE, "/topics"), ALL)
    assert not held
    assert alice.all_granted(WRITE, "/topics", ["a"])
    assert alice.passing == {(WRITE, "/topics"): ALL}
    assert alice.passing is not held

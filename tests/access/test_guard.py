"""The guard: no handler hears of a call that is not granted, and a refusal tells nothing of what exists."""

from collections.abc import Iterable
from typing import Any

import pytest
from tests.access.world import STALE_MS, World

from moorline.access.guard import (
    Declared,
    Guard,
    anybody,
    demand,
    needs,
    nodes_only,
    own,
    owner_or,
    unless_denied,
)
from moorline.access.rights import Rights
from moorline.core.access.right import ADMINISTER, EVERYTHING, GRANT, SUBSCRIBE, WRITE
from moorline.core.access.row import Row
from moorline.errors import Denied, RightsUnknown
from moorline.wire.message import Answer, Call, CallsGivenUp, Failed, Message
from moorline.wire.node import Echo, Echoed


class Session:
    """One that counts how often it is asked who it is."""

    def __init__(self, rights: Rights) -> None:
        self._rights = rights
        self.asked = 0

    @property
    def rights(self) -> Rights:
        self.asked += 1
        return self._rights


class Scene:
    """Handlers that remember the runs they got, behind a guard; the body of an Echo names a topic."""

    def __init__(self) -> None:
        self.runs: list[list[str]] = []
        self.lines: list[tuple[str, str, str]] = []
        self.owners: dict[str, str] = {}

    def refused(self, _: Session, act: str, path: str, code: str) -> None:
        self.lines.append((act, path, code))

    def answer(self, _: Session, calls: list[Echo]) -> list[Answer]:
        self.runs.append([call.body.decode() for call in calls])
        return [Echoed(call.call, call.body) for call in calls]

    def one_by_one(self, session: Session, calls: list[Echo]) -> Iterable[Answer]:
        yield from self.answer(session, calls)

    def owner_of(self, call: Echo) -> str | None:
        return self.owners.get(call.body.decode())

    def asks(self, declared: Declared, rights: Rights, *topics: str) -> list[str]:
        """What each call is answered: its own body, or a code."""
        (handler,) = Guard(self).guarded({Echo: declared}).values()
        calls = [Echo(number, topic.encode()) for number, topic in enumerate(topics)]
        answers = sorted(handler(Session(rights), calls), key=lambda answer: answer.call)
        assert [answer.call for answer in answers] == [call.call for call in calls]
        return [
            answer.code if isinstance(answer, Failed) else answer.body.decode()
            for answer in answers
            if isinstance(answer, (Failed, Echoed))
        ]


def path_of(call: Echo) -> str:
    return f"/topics/{call.body.decode()}"


def body_of(call: Echo) -> bytes:
    return call.body


def topic_of(name: bytes) -> str:
    return f"/topics/{name.decode()}"


def paths_of(call: Echo) -> list[str]:
    return [f"/topics/{topic}" for topic in call.body.decode().split()]


@pytest.fixture
def scene() -> Scene:
    return Scene()


async def test_granted_calls_are_one_run_and_the_others_are_refused(scene: Scene) -> None:
    world = await World.loaded(Row("/topics/a", "alice", grants=WRITE))
    for handler in (scene.answer, scene.one_by_one):
        scene.runs.clear()
        scene.lines.clear()
        declared = needs(WRITE, paths_of, handler, below="/topics")
        found = scene.asks(declared, world.user(), "a/1", "b", "a/2", "a b", "a")
        assert found == ["a/1", "DENIED", "a/2", "DENIED", "a"]
        assert scene.runs == [["a/1", "a/2", "a"]]
        assert scene.lines == [("Echo", "/topics/b", "DENIED"), ("Echo", "/topics/b", "DENIED")]


async def test_a_handler_is_not_called_for_nothing(scene: Scene) -> None:
    world = await World.loaded()
    assert (
        scene.asks(needs(WRITE, paths_of, scene.answer), world.user(), "a", "b") == ["DENIED"] * 2
    )
    assert scene.runs == []


async def test_where_everything_is_granted_no_path_is_made(scene: Scene) -> None:
    world = await World.loaded(Row("/topics", "@everyone", grants=WRITE))

    def never(_: Echo) -> list[str]:
        raise AssertionError("nothing is to be asked")

    declared = needs(WRITE, never, scene.answer, below="/topics")
    (handler,) = Guard(scene).guarded({Echo: declared}).values()
    session, calls = Session(world.user()), [Echo(number, b"a") for number in range(100)]
    answers = handler(session, calls)
    assert len(list(answers)) == 100
    assert session.asked == 1
    # A denial below it, and each call is looked at again.
    world.source.put(Row("/topics/secret", "alice", denies=WRITE))
    await world.table.refresh()
    with pytest.raises(AssertionError, match="nothing is to be asked"):
        handler(session, calls)


async def test_a_right_that_is_taken_away_counts_for_the_next_call(scene: Scene) -> None:
    world = await World.loaded(Row("/topics", "alice", grants=WRITE))
    declared, alice = needs(WRITE, paths_of, scene.answer, below="/topics"), world.user()
    assert scene.asks(declared, alice, "a") == ["a"]
    world.source.put(Row("/topics/a", "@everyone", denies=WRITE))
    await world.table.refresh()
    assert scene.asks(declared, alice, "a", "b") == ["DENIED", "b"]


async def test_a_filter_is_a_path(scene: Scene) -> None:
    world = await World.loaded(
        Row("/topics", "alice", grants=SUBSCRIBE), Row("/topics/a/x", "alice", denies=SUBSCRIBE)
    )
    declared = needs(SUBSCRIBE, paths_of, scene.answer, below="/topics")
    found = scene.asks(declared, world.user(), "#", "a/+", "b/#", "a/y/#", "+/x")
    assert found == ["DENIED", "DENIED", "b/#", "a/y/#", "DENIED"]


async def test_the_owner_needs_no_row_for_what_owners_may(scene: Scene) -> None:
    world = await World.loaded(Row("/topics/open", "@everyone", grants=ADMINISTER))
    scene.owners = {"mine": "alice", "his": "bob", "nobodys": "", "old": "cafe"}
    declared = owner_or(ADMINISTER, path_of, scene.owner_of, scene.answer)
    asked = ("mine", "his", "nobodys", "open", "old", "none")
    denied = "DENIED"
    assert scene.asks(declared, world.user(), *asked) == [
        "mine",
        denied,
        denied,
        "open",
        denied,
        denied,
    ]
    world.source.map_owner("cafe", "alice")
    await world.table.refresh()
    assert scene.asks(declared, world.user(), "old") == ["old"]
    # To own something is not to give it away.
    granting = owner_or(GRANT, path_of, scene.owner_of, scene.answer)
    assert scene.asks(granting, world.user(), "mine") == [denied]
    scene.owners["anonymous"] = "anonymous"
    assert scene.asks(declared, world.stranger(), "anonymous") == [denied]


async def test_a29_what_is_known_is_granted_unless_a_row_denies_it(scene: Scene) -> None:
    """A29: by its name alone; closed for one thing, for all, and open again deeper; the owner always may."""
    world = await World.loaded()
    scene.owners = {"closed": "bob"}
    declared = unless_denied(
        WRITE, body_of, topic_of, scene.owner_of, scene.answer, below="/topics"
    )
    alice, asked = world.user(), ("open", "closed", "closed/deep")
    assert scene.asks(declared, alice, *asked) == list(asked)
    assert scene.runs == [list(asked)]
    world.source.put(Row("/topics/closed", "@everyone", denies=WRITE))
    await world.table.refresh()
    assert scene.asks(declared, alice, *asked) == ["open", "DENIED", "DENIED"]
    assert scene.asks(declared, world.user("bob"), *asked) == ["open", "closed", "DENIED"]
    world.source.put(Row("/", "@authenticated", denies=WRITE))
    world.source.put(Row("/topics/closed/deep", "alice", grants=WRITE))
    await world.table.refresh()
    assert scene.asks(declared, alice, *asked) == ["DENIED", "DENIED", "closed/deep"]
    assert scene.asks(declared, world.stranger(), *asked) == ["open", "DENIED", "DENIED"]
    assert scene.asks(declared, world.node(), *asked) == list(asked)
    world.source.is_away = True
    world.pass_ms(STALE_MS + 1)
    assert scene.asks(declared, alice, "open") == [RightsUnknown.code]


async def test_a_run_costs_one_look_while_nothing_in_it_is_denied(scene: Scene) -> None:
    world = await World.loaded(Row("/topics/closed", "bob", denies=WRITE))
    declared = unless_denied(
        WRITE, body_of, topic_of, scene.owner_of, scene.answer, below="/topics"
    )
    (handler,) = Guard(scene).guarded({Echo: declared}).values()
    # To bob something else is denied: what is named is looked up, once for all of the run.
    for name, body, looks in (("alice", b"open", 1), ("bob", b"open", 1), ("bob", b"closed", 2)):
        session = Session(world.user(name))
        assert len(list(handler(session, [Echo(n, body) for n in range(100)]))) == 100
        assert session.asked == looks


async def test_a_refusal_is_the_same_for_what_exists_and_what_does_not(scene: Scene) -> None:
    world = await World.loaded()
    declared = owner_or(ADMINISTER, path_of, scene.owner_of, scene.answer)
    (handler,) = Guard(scene).guarded({Echo: declared}).values()
    call = [Echo(1, b"thing")]
    before = list(handler(Session(world.user()), call))
    scene.owners["thing"] = "bob"
    assert list(handler(Session(world.user()), call)) == before
    text = "the right a (administer) is not granted at /topics/thing"
    assert before == [Failed(1, "DENIED", text)]


async def test_what_is_for_nodes_is_for_nobody_else(scene: Scene) -> None:
    world = await World.loaded(
        Row("/", "@everyone", grants=EVERYTHING), Row("/", "@loopback", grants=EVERYTHING)
    )
    declared = nodes_only(scene.answer)
    assert scene.asks(declared, world.node(), "a") == ["a"]
    for rights in (world.user(), world.stranger()):
        assert scene.asks(declared, rights, "a") == ["DENIED"]


async def test_what_needs_nothing_is_the_handler_itself(scene: Scene) -> None:
    for declared in (anybody(scene.answer), own(scene.answer)):
        (handler,) = Guard(scene).guarded({Echo: declared}).values()
        assert handler == scene.answer


async def test_without_the_catalog_the_answer_is_another(scene: Scene) -> None:
    world = await World.loaded(Row("/topics", "alice", grants=EVERYTHING))
    alice = world.user()
    scene.owners = {"mine": "alice"}
    world.pass_ms(STALE_MS + 1)
    for declared in (
        needs(WRITE, paths_of, scene.answer, below="/topics"),
        owner_or(ADMINISTER, path_of, scene.owner_of, scene.answer),
    ):
        assert scene.asks(declared, alice, "mine") == ["UNAVAILABLE"]
    assert scene.runs == []
    with pytest.raises(RightsUnknown):
        demand(alice, WRITE, "/topics/mine", "alice")


async def test_a_message_without_an_answer_is_dropped_and_told(scene: Scene) -> None:
    world = await World.loaded()
    heard: list[Message] = []

    def note(_: Session, messages: list[Message]) -> Iterable[Answer]:
        heard.extend(messages)
        return ()

    assert not issubclass(CallsGivenUp, Call)
    declared = needs(WRITE, lambda _: ["/topics/a"], note)
    (handler,) = Guard(scene).guarded({CallsGivenUp: declared}).values()
    assert list(handler(Session(world.user()), [CallsGivenUp(1, 1)])) == []
    assert heard == []
    assert scene.lines == [("CallsGivenUp", "/topics/a", "DENIED")]


async def test_a_handler_that_does_not_say_what_it_needs_ends_the_start(scene: Scene) -> None:
    undeclared: Any = {Echo: scene.answer}
    with pytest.raises(AssertionError, match="Echo does not say what it needs"):
        Guard(scene).guarded(undeclared)


async def test_a_handler_that_asks_later_is_told_the_same() -> None:
    world = await World.loaded(Row("/groups/g", "alice", grants=SUBSCRIBE))
    demand(world.user(), SUBSCRIBE, "/groups/g")
    demand(world.user("bob"), SUBSCRIBE, "/groups/g", owner="bob")
    for owner in (None, "", "alice"):
        with pytest.raises(Denied, match=r"the right s \(subscribe\) is not granted at /groups/g"):
            demand(world.user("bob"), SUBSCRIBE, "/groups/g", owner)

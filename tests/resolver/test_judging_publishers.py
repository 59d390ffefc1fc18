"""What a publisher may not publish any more is not found any more, whether it is honest or not."""

from tests.access.world import STALE_MS
from tests.resolver.publishing import WirePublisher, codes
from tests.resolver.server import OPEN_TO_ALL, ResolverServer
from tests.waiting import until

from moorline.core.access.right import DEFAULT as MAKE_DEFAULT
from moorline.core.access.right import PUBLISH
from moorline.core.access.row import Row
from moorline.core.directory.path import DEFAULT
from moorline.limits import SUBTREES_JUDGED_MAX
from moorline.resolver.holders import holder_of
from moorline.wire.message import Message
from moorline.wire.resolver import PathsChanged, PathsWatched, RightsChanged, WatchPaths

BOB = Row("/bob", "bob", grants=PUBLISH | MAKE_DEFAULT)
NOTHING = Row("/bob", "bob")


def paths_of(server: ResolverServer) -> set[str]:
    return set(server.broker.registry.tree)


async def test_what_may_not_be_published_any_more_leaves_and_all_else_stays() -> None:
    async with ResolverServer.open(OPEN_TO_ALL, BOB) as server:
        mine = {f"/bob/{place}/{number}" for place in range(3) for number in range(100)}
        publisher = await server.publisher(*mine, principal="bob")
        other = await server.publisher("/bob/0/0", "/x")
        heard: list[Message] = []
        publisher.caller.pushed = heard.extend
        reader = await server.caller()
        changes: list[Message] = []
        reader.pushed = changes.extend
        await reader.call(lambda call: WatchPaths(call, "/bob/**"), PathsWatched)
        await server.change_rights(Row("/bob/1", "bob", denies=PUBLISH))
        left = {path for path in mine if not path.startswith("/bob/1/")}
        await until(lambda: paths_of(server) == left | {"/x"})
        await server.change_rights(NOTHING)
        await until(lambda: paths_of(server) == {"/bob/0/0", "/x"})
        assert await codes(reader, "/bob/0/0", "/bob/2/0") == ["", "NOT_FOUND"]
        await until(lambda: any(isinstance(one, RightsChanged) for one in heard))

        def told_gone() -> set[str]:
            gone = (one.removed for one in changes if isinstance(one, PathsChanged))
            return {path for some in gone for path in some}

        await until(lambda: told_gone() == mine - {"/bob/0/0"})
        server.broker.registry.check(0, 0)
        # It says that it lives, and that brings nothing back.
        assert (await publisher.publish("/bob/2/0")).refused == [(0, "DENIED")]
        await server.change_rights(BOB)
        assert (await publisher.publish("/bob/2/0")).refused == []
        assert other.opened is not None


async def test_a_default_needs_its_own_right() -> None:
    async with ResolverServer.open(OPEN_TO_ALL, BOB) as server:
        publisher = await server.publisher("/bob/a", principal="bob")
        await publisher.publish("/bob/made", flags=DEFAULT)
        await server.change_rights(Row("/bob", "bob", grants=PUBLISH))
        await until(lambda: paths_of(server) == {"/bob/a"})


async def test_rows_for_single_paths_count_in_whatever_number_of_subtrees() -> None:
    rows = [Row(f"/{number}/a", "bob", grants=PUBLISH) for number in range(200)]
    async with ResolverServer.open(OPEN_TO_ALL, BOB, *rows) as server:
        publisher = await server.publisher(principal="bob")
        many = [f"/bob/{number}/x" for number in range(SUBTREES_JUDGED_MAX + 100)]
        for start in range(0, len(many), 1_000):
            await publisher.publish(*many[start : start + 1_000])
        await publisher.publish(*(row.path for row in rows))
        await server.change_rights(Row("/7/a", "bob"), Row("/bob/5", "bob", denies=PUBLISH))
        wanted = {*many, *(row.path for row in rows)} - {"/7/a", "/bob/5/x"}
        await until(lambda: paths_of(server) == wanted)


async def test_while_rights_are_unknown_nothing_is_taken_away() -> None:
    async with ResolverServer.open(OPEN_TO_ALL, BOB) as server:
        await server.publisher("/bob/a", principal="bob")
        server.world.source.is_away = True
        server.world.pass_ms(STALE_MS + 1)
        server.broker.judge_soon()
        await until(lambda: not server.broker._judging.is_at_work)
        assert paths_of(server) == {"/bob/a"}


async def test_what_was_published_from_this_machine_is_judged_by_who_comes_back() -> None:
    """Its instance is told to every subscriber: who takes its address comes back with less than it had."""
    async with ResolverServer.open(OPEN_TO_ALL) as server:
        first = await server.publisher("/a")
        first.caller.abandon()
        (registration,) = server.broker.registry
        server.is_far = True
        again = WirePublisher(await server.caller(), first.listener, first.instance)
        await server.change_rights(Row("/else", "@everyone", grants=PUBLISH))
        opened = await again.open()
        assert (opened.count, paths_of(server)) == (0, set())
        assert registration.is_found


async def test_who_proved_itself_by_what_is_not_taken_any_more_is_gone() -> None:
    async with ResolverServer.open(OPEN_TO_ALL, BOB) as server:
        source = server.world.source
        version = source.put_user("bob")
        await server.world.table.refresh()
        server.user_version = version
        await server.publisher("/bob/a", principal="bob")
        await server.change_rights()
        source.put_user("somebody")
        await server.world.table.refresh()
        server.broker.judge_soon()
        await until(lambda: not server.broker._judging.is_at_work)
        assert paths_of(server) == {"/bob/a"}
        source.put_user("bob", is_disabled=True)
        await server.world.table.refresh()
        server.broker.judge_soon()
        await until(lambda: paths_of(server) == set())
        assert not len(server.broker.registry)
        assert server.session is not None
        assert holder_of(server.session).mark == version.to_bytes(8, "big") + bytes(8)

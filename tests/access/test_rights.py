"""The table in a node's memory: changes reach connections, and rights that are too old are nobody's."""

import asyncio

import pytest
from tests.access.world import STALE_MS, Rows, World
from tests.waiting import until

from moorline.access.rights_table import RightsTable
from moorline.core.access.freshness import Freshness
from moorline.core.access.right import ADMINISTER, EVERYTHING, LIST, SUBSCRIBE, WRITE
from moorline.core.access.row import Row
from moorline.errors import CatalogUnreachable, RightsUnknown
from moorline.limits import (
    ACCESS_CHANGES_AT_ONCE_MAX,
    VERDICTS_KEPT_MAX,
    VERDICTS_OF_ALL_MAX,
)

ORDERS = Row("/topics/orders", "alice", grants=SUBSCRIBE | LIST)


async def test_before_the_first_load_nothing_is_known() -> None:
    world = World(ORDERS, is_embedded=True)
    for rights in (world.user(), world.stranger()):
        assert not rights.is_known
        assert rights.at("/topics/orders") == 0
    await world.table.refresh()
    assert world.user().at("/topics/orders") == SUBSCRIBE | LIST


async def test_a_change_reaches_a_connection_that_is_there() -> None:
    world = await World.loaded(ORDERS)
    alice, heard = world.user(), []
    world.table.on_change(lambda: heard.append(alice.allows(WRITE, "/topics/orders")))
    assert not alice.allows(WRITE, "/topics/orders")
    world.source.put(Row("/topics/orders", "@authenticated", grants=WRITE))
    assert not alice.allows(WRITE, "/topics/orders")
    await world.table.refresh()
    assert alice.allows(WRITE, "/topics/orders")
    world.source.remove(ORDERS)
    world.source.put(Row("/topics/orders", "@authenticated", denies=WRITE))
    await world.table.refresh()
    assert alice.at("/topics/orders") == 0
    assert heard == [True, False]
    assert world.source.loads == [True, False, False]


async def test_without_a_change_nothing_is_loaded_and_nobody_hears() -> None:
    world = await World.loaded(ORDERS)
    generation, heard = world.table.generation, []
    end = world.table.on_change(lambda: heard.append(1))
    await world.table.refresh()
    assert (world.table.generation, heard) == (generation, [])
    end()
    world.source.put(Row("/a", "bob", grants=LIST))
    await world.table.refresh()
    assert heard == []


async def test_a_listener_that_fails_keeps_nobody_from_hearing() -> None:
    world = await World.loaded()
    heard = []
    world.table.on_change(lambda: [][0])
    world.table.on_change(lambda: heard.append(1))
    world.source.put(ORDERS)
    await world.table.refresh()
    assert heard == [1]


async def test_groups_of_users_come_and_go_while_a_connection_is_there() -> None:
    world = await World.loaded(Row("/topics", "@sales", grants=WRITE))
    alice = world.user()
    assert alice.groups == {"@everyone", "@authenticated"}
    world.source.add_member("@sales", "alice")
    await world.table.refresh()
    assert "@sales" in alice.groups
    assert alice.everywhere("/topics") == WRITE
    world.source.remove_member("@sales", "alice")
    await world.table.refresh()
    assert alice.groups == {"@everyone", "@authenticated"}
    assert alice.everywhere("/topics") == 0


async def test_a_table_that_went_back_is_loaded_whole() -> None:
    world = await World.loaded(ORDERS)
    alice = world.user()
    world.source.put(Row("/topics", "alice", grants=WRITE))
    await world.table.refresh()
    assert alice.everywhere("/topics/x") == WRITE
    world.source.remove(Row("/topics", "alice"))
    world.source.forget_versions()
    await world.table.refresh()
    assert world.source.loads == [True, False, True]
    assert alice.at("/topics/x") == 0
    assert alice.at("/topics/orders") == SUBSCRIBE | LIST


async def test_many_changes_are_a_table_of_their_own() -> None:
    world = await World.loaded(ORDERS)
    for number in range(ACCESS_CHANGES_AT_ONCE_MAX + 1):
        world.source.put(Row(f"/topics/{number}", "alice", grants=WRITE))
    alice = world.user()
    await world.table.refresh()
    assert world.source.loads == [True, False, True]
    assert alice.allows(WRITE, "/topics/7")


async def test_everywhere_is_what_no_row_takes_away_below() -> None:
    world = await World.loaded(
        Row("/", "@loopback", grants=EVERYTHING),
        Row("/topics/secret", "@everyone", denies=SUBSCRIBE),
    )
    stranger = world.stranger()
    assert stranger.everywhere("/queues") == EVERYTHING
    assert stranger.everywhere("/topics") == EVERYTHING & ~SUBSCRIBE
    assert stranger.everywhere("/topics/secret") == EVERYTHING & ~SUBSCRIBE
    assert world.stranger(is_local=False).everywhere("/topics") == 0
    assert world.user().everywhere("/topics") == 0


async def test_nodes_have_everything_and_others_need_rows() -> None:
    world = await World.loaded()
    assert world.node().at("/topics/$SYS/x") == EVERYTHING
    assert world.node().everywhere("/") == EVERYTHING
    assert world.user().at("/topics/x") == 0


async def test_who_owns_what() -> None:
    world = await World.loaded()
    world.source.map_owner("cafe", "alice")
    await world.table.refresh()
    assert world.user().owns("alice")
    assert world.user().owns("cafe")
    assert not world.user("bob").owns("cafe")
    assert not world.user().owns("")
    # Everybody could be that one.
    assert not world.stranger().owns("anonymous")


# --- what is remembered ---------------------------------------------------------------------------


async def test_verdicts_are_bounded_for_one_and_for_all() -> None:
    world = await World.loaded(ORDERS)
    alice = world.user()
    for number in range(VERDICTS_KEPT_MAX + 10):
        alice.at(f"/topics/{number}")
    assert len(alice._verdicts) <= VERDICTS_KEPT_MAX
    for principal in range(VERDICTS_OF_ALL_MAX // 1_000 + 2):
        other = world.user(f"user-{principal}")
        for number in range(1_000):
            other.at(f"/topics/{number}")
    kept = sum(len(verdicts) + 1 for verdicts in world.table._verdicts.values())
    assert kept <= VERDICTS_OF_ALL_MAX
    assert alice.at("/topics/orders") == SUBSCRIBE | LIST


async def test_two_connections_of_one_principal_remember_together() -> None:
    world = await World.loaded(ORDERS)
    one, other = world.user(), world.user()
    one.at("/topics/orders")
    assert other._verdicts == {"/topics/orders": SUBSCRIBE | LIST}
    assert world.user("bob")._verdicts == {}


# --- without the catalog --------------------------------------------------------------------------


async def test_known_rights_go_on_for_their_time_and_come_back() -> None:
    """A27."""
    world = await World.loaded(ORDERS)
    alice, heard = world.user(), []
    world.table.on_change(lambda: heard.append(alice.at("/topics/orders")))
    world.source.is_away = True
    for _ in range(STALE_MS // 1_000):
        world.pass_ms(1_000)
        with pytest.raises(CatalogUnreachable):
            await world.table.refresh()
        assert alice.allows(SUBSCRIBE, "/topics/orders")
    assert world.freshness() is Freshness.STALE
    assert heard == []
    world.pass_ms(1)
    assert world.freshness() is Freshness.EXPIRED
    assert alice.at("/topics/orders") == 0
    assert alice.everywhere("/topics/orders") == 0
    with pytest.raises(RightsUnknown):
        alice.check_known()
    assert heard == [0]
    world.source.is_away = False
    await world.table.refresh()
    assert heard == [0, SUBSCRIBE | LIST]
    alice.check_known()
    assert world.freshness() is Freshness.FRESH


@pytest.mark.parametrize("is_embedded", [True, False])
async def test_on_the_machine_of_an_embedded_catalog_somebody_can_still_look(
    is_embedded: bool,
) -> None:
    world = await World.loaded(
        Row("/", "@loopback", grants=EVERYTHING), ORDERS, is_embedded=is_embedded
    )
    world.pass_ms(STALE_MS + 1)
    assert world.stranger().allows(ADMINISTER, "/admin/clock") == is_embedded
    assert not world.stranger(is_local=False).is_known
    assert world.user().at("/topics/orders") == 0
    assert world.node().at("/topics/x") == EVERYTHING


async def test_an_answer_is_as_old_as_its_question() -> None:
    world = await World.loaded(ORDERS)

    def takes_long() -> None:
        world.now_ms += STALE_MS + 1

    world.source.asked = takes_long
    await world.table.refresh()
    assert world.table.freshness is Freshness.EXPIRED


async def test_it_looks_again_by_itself_also_after_a_failure() -> None:
    source = Rows(ORDERS)
    table = RightsTable(source, revocation_ms=20, stale_ms=60_000, is_embedded=False)
    world = World()
    world.table = table
    async with table.running():
        alice = world.user()
        source.is_away = True
        await asyncio.sleep(0)
        await until(lambda: table.freshness is Freshness.STALE)
        source.put(Row("/topics/orders", "alice", grants=WRITE))
        assert alice.allows(SUBSCRIBE, "/topics/orders")
        source.is_away = False
        await until(lambda: alice.allows(WRITE, "/topics/orders"))
        # On a busy machine its next word may be late again by then.
        await until(lambda: table.freshness is Freshness.FRESH)


async def test_names_of_a_batch_are_judged_as_each_by_itself_and_forgotten_at_a_change() -> None:
    paths = [f"/topics/{number}" for number in range(4)]
    world = await World.loaded(*(Row(path, "alice", grants=WRITE) for path in paths))
    alice, names = world.user(), ["0", "1", "2", "0", "1"]
    for _ in range(2):  # found, and then remembered
        assert alice.first_lacking(WRITE, "/topics", names) is None
        assert alice.first_lacking(WRITE, "/topics", [*names, "x", "y"]) == "/topics/x"
        assert alice.first_lacking(SUBSCRIBE, "/topics", names) == "/topics/0", "another right"
        assert alice.first_lacking(WRITE, "/queues", names) == "/queues/0", "another place"
    # As a filter: all that it could match.
    assert alice.first_lacking(WRITE, "/topics", ["0", "#"]) == "/topics/#"
    assert world.user("bob").first_lacking(WRITE, "/topics", names) == "/topics/0"
    world.source.remove(Row("/topics/1", "alice"))
    await world.table.refresh()
    assert alice.first_lacking(WRITE, "/topics", names) == "/topics/1"
    assert alice.first_lacking(WRITE, "/topics", ["0", "2"]) is None


async def test_what_nobody_knows_any_more_is_not_granted_by_what_was_remembered() -> None:
    world = await World.loaded(Row("/topics/a", "alice", grants=WRITE))
    alice = world.user()
    assert alice.first_lacking(WRITE, "/topics", ["a"]) is None
    world.table.freshness = Freshness.EXPIRED
    world.table._next_generation()
    assert alice.first_lacking(WRITE, "/topics", ["a"]) == "/topics/a"


async def test_names_that_are_remembered_are_bounded_for_one_and_for_all() -> None:
    world = await World.loaded(Row("/topics", "@authenticated", grants=WRITE))
    alice = world.user()
    for start in range(0, VERDICTS_KEPT_MAX + 1_000, 1_000):
        batch = [str(number) for number in range(start, start + 1_000)]
        assert alice.first_lacking(WRITE, "/topics", batch) is None
    assert all(len(names) <= VERDICTS_KEPT_MAX for names in world.table._granted.values())
    names = [str(number) for number in range(1_000)]
    for principal in range(VERDICTS_OF_ALL_MAX // 2_000 + 2):
        assert world.user(f"user-{principal}").first_lacking(WRITE, "/topics", names) is None
        kept = sum(map(len, world.table._granted.values()))
        kept += sum(map(len, world.table._verdicts.values()))
        assert kept <= VERDICTS_OF_ALL_MAX
    assert alice.first_lacking(WRITE, "/topics", ["7"]) is None


async def test_what_is_denied_at_one_queue_is_looked_up_once_for_all_others() -> None:
    world = await World.loaded(Row("/queues/0a", "@everyone", denies=WRITE))
    alice = world.user()
    asked: list[bytes] = []

    def path_of(name: bytes) -> str:
        asked.append(name)
        return f"/queues/{name.hex()}"

    assert alice.denied_within(WRITE, "/queues")
    assert alice.none_denied(WRITE, "/queues", [b"\x01", b"\x02", b"\x01"], path_of)
    assert asked == [b"\x01", b"\x02"]
    assert alice.none_denied(WRITE, "/queues", [b"\x02", b"\x01"], path_of)
    assert len(asked) == 2, "by one look"
    assert not alice.none_denied(WRITE, "/queues", [b"\x01", b"\x0a"], path_of)
    assert world.user().none_denied(WRITE, "/queues", [b"\x02"], path_of), "for all of a principal"
    # Another table, another verdict.
    world.source.put(Row("/queues/02", "alice", denies=WRITE))
    await world.table.refresh()
    assert not alice.none_denied(WRITE, "/queues", [b"\x02"], path_of)
    world.pass_ms(STALE_MS + 1)
    assert not alice.none_denied(WRITE, "/queues", [b"\x01"], path_of), "nobody's rights are known"

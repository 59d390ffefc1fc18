"""Rights in a real Postgres: the first rows, one version, what is newer, and a catalog that was restored."""

import asyncio
from collections.abc import AsyncIterator

import asyncpg
import pytest
from tests.catalog.losing import lost_at

from moorline.catalog import Catalog, migrate
from moorline.catalog.access import AccessCatalog, Loaded, Removal, UserState, Version
from moorline.catalog.groups import Groups
from moorline.catalog.migration import MIGRATIONS
from moorline.catalog.sessions import Sessions
from moorline.catalog.users import PasswordHash, Users
from moorline.core.access.first_rows import purpose_of
from moorline.core.access.right import EVERYTHING, LIST, SUBSCRIBE, WRITE, bits_of, letters_of
from moorline.core.access.row import Row
from moorline.core.topic import shared_name
from moorline.errors import (
    AlreadyThere,
    BadGrant,
    IdentityTaken,
    LimitReached,
    NotFound,
    OutcomeUnknown,
)
from moorline.limits import ACCESS_LOG_ROWS_MAX, GROUPS_PER_PRINCIPAL_MAX

pytestmark = pytest.mark.process

HASH = PasswordHash(2, 8, 1, b"salt", b"hash")
BEFORE = [migration for migration in MIGRATIONS if migration.name != "access"]


@pytest.fixture
async def catalog(dsn: str) -> AsyncIterator[Catalog]:
    async with Catalog.open(dsn) as catalog:
        yield catalog


@pytest.fixture
async def access(catalog: Catalog) -> Users:
    return Users(catalog)


async def loaded(access: AccessCatalog, known: Version | None = None) -> Loaded:
    found = await access.load(known)
    assert found is not None
    return found


async def shown(access: AccessCatalog) -> set[str]:
    return {
        f"{row.path} {row.subject} {letters_of(row.grants)}"
        for row in (await loaded(access)).grants()
    }


# --- the first rows -------------------------------------------------------------------------------


async def test_the_first_rows_of_a_fresh_catalog(access: Users) -> None:
    assert await shown(access) == {
        "/ @loopback slwpdag",
        "/%u @authenticated slwpd",
    }
    assert await access.upgraded_rows() == 0
    assert await access.carry_operators(["ops"]) == []
    for entry in await access.grants("/", "", ("", ""), 100):
        assert purpose_of(entry.row.path, entry.row.subject, entry.made_by), "moor grant list says"


@pytest.mark.parametrize(
    "used",
    [
        "insert into moorline.node values ('n', 'id', '{}', '{}', null, '1', now(), now(), 'n')",
        "insert into moorline.shared_group (mode, name, filter, deliveries_max, start_us) "
        "values ('shared', 'g', '#', 5, 0)",
        "insert into moorline.session (name, owner, epoch, epoch_first, expiry_s, node) "
        "values ('s', 'o', 1, 1, 1, 'n')",
        "insert into moorline.service (id, fingerprint, name, salt) values ('i', 'f', 'n', 's')",
    ],
)
async def test_an_upgraded_catalog_keeps_what_was_allowed(dsn: str, used: str) -> None:
    connection = await asyncpg.connect(dsn)
    await migrate(connection, [one for one in BEFORE if one.number < 6])
    await connection.execute(used)
    await connection.close()
    async with Catalog.open(dsn) as catalog:
        access = AccessCatalog(catalog)
        assert await shown(access) == {
            "/ @loopback slwpdag",
            "/queues @authenticated p",
            "/services @authenticated p",
            "/sessions @authenticated p",
            "/topics @authenticated slw",
            "/groups @authenticated slp",
        }
        assert await access.upgraded_rows() == 6
        for entry in await access.grants("/", "", ("", ""), 100):
            assert purpose_of(entry.row.path, entry.row.subject, entry.made_by)
        # The operators of a node's settings: once, and those that could be proven.
        assert await access.carry_operators(["ops", "anonymous", "ops"]) == ["ops"]
        assert "/ ops slwpdag" in await shown(access)
        await access.remove_grant("/", "ops", EVERYTHING, made_by="root")
        assert await access.carry_operators(["ops", "other"]) == ["other"]
        assert await access.upgraded_rows() == 7
        assert await access.keep_upgraded_rows() == 7
        assert await access.upgraded_rows() == 0


async def test_rows_that_an_operator_removed_are_not_warned_about(dsn: str) -> None:
    connection = await asyncpg.connect(dsn)
    await migrate(connection, [one for one in BEFORE if one.number < 6])
    await connection.execute(
        "insert into moorline.service (id, fingerprint, name, salt) values ('i', 'f', 'n', 's')"
    )
    await connection.close()
    async with Catalog.open(dsn) as catalog:
        access = AccessCatalog(catalog)
        for row in (await loaded(access)).grants():
            await access.remove_grant(row.path, row.subject, EVERYTHING, made_by="root")
        assert await access.upgraded_rows() == 0


async def test_the_secret_is_drawn_once_for_a_catalog(access: Users, catalog: Catalog) -> None:
    secret = (await access.secrets()).current
    assert len(secret) == 32
    assert secret == (await Users(catalog).secrets()).current
    assert len(set(secret)) > 8


# --- one version ----------------------------------------------------------------------------------


async def test_every_change_has_a_version_of_its_own_and_comes_alone(access: Users) -> None:
    async def changes() -> None:
        await access.add_grant(Row("/topics/a", "@sales", grants=SUBSCRIBE), made_by="root")
        await access.add_member("@sales", "alice")
        await access.set_quota("alice", "queues", 7)
        await access.add_user("alice", HASH)
        await access.change_user("alice", is_disabled=True)
        await access.add_token("alice", "spark", bytes(32), None)
        await access.map_owner("cafe", "alice")

    known = (await loaded(access)).version
    assert await access.load(known) is None
    await changes()
    newer = await loaded(access, known)
    assert newer.version.number == known.number + 7
    assert not newer.is_whole
    assert newer.removed == []
    assert list(newer.grants()) == [Row("/topics/a", "@sales", grants=SUBSCRIBE)]
    assert newer.members == [("@sales", "alice")]
    assert newer.quotas == [("alice", "queues", 7)]
    assert newer.users == [("alice", UserState(known.number + 5, True))]
    assert [(one, row.owner) for one, row in newer.tokens] == [(bytes(32), "alice")]
    assert newer.owners == [("cafe", "alice")]
    assert await access.version() == newer.version


async def test_what_is_gone_is_told_and_what_came_back_too(access: Users) -> None:
    await access.add_grant(Row("/a", "x", grants=LIST), made_by="root")
    await access.add_member("@g", "x")
    await access.set_quota("x", "queues", 1)
    await access.add_user("x", None)
    await access.add_token("x", "t", bytes(32), 60)
    known = (await loaded(access)).version
    await access.remove_grant("/a", "x", EVERYTHING, made_by="root")
    await access.remove_member("@g", "x")
    await access.set_quota("x", "queues", None)
    await access.remove_user("x")
    await access.add_grant(Row("/a", "x", grants=WRITE), made_by="root")
    newer = await loaded(access, known)
    assert newer.removed == [
        Removal("grant", "/a", "x"),
        Removal("member", "@g", "x"),
        Removal("quota", "x", "queues"),
        Removal("token", "x", bytes(32).hex()),
        Removal("user", "x", ""),
    ]
    assert list(newer.grants()) == [Row("/a", "x", grants=WRITE)]


async def test_a_refused_change_raises_no_version(access: Users) -> None:
    version = await access.version()
    with pytest.raises(BadGrant):
        await access.add_grant(Row("topics", "x", grants=LIST), made_by="root")
    with pytest.raises(BadGrant):
        await access.add_member("@everyone", "x")
    with pytest.raises(BadGrant):
        await access.set_quota("x", "beer", 1)
    with pytest.raises(NotFound):
        await access.remove_user("x")
    assert not await access.remove_member("@g", "x")
    assert await access.remove_grant("/a", "x", LIST, made_by="root") is None
    assert not await access.set_quota("x", "queues", None)
    assert not await access.remove_token("x", "t")
    assert await access.version() == version


async def test_changes_at_once_are_one_behind_the_other(access: Users) -> None:
    before = await access.version()
    await asyncio.gather(
        *(
            access.add_grant(Row("/a", "x", grants=1 << place % 7), made_by="root")
            for place in range(20)
        )
    )
    (entry,) = await access.grants("/a", "", ("", ""), 10)
    assert entry.row.grants == EVERYTHING
    # Those that found their letter there changed nothing.
    assert (await access.version()).number == before.number + 7


async def test_a_restored_catalog_is_noticed_also_when_it_has_gone_on(
    access: Users, catalog: Catalog
) -> None:
    await access.add_grant(Row("/old", "x", grants=LIST), made_by="root")
    backup = await catalog.fetchrow("select version, mark from moorline.access_state")
    await access.add_grant(Row("/lost", "x", grants=LIST), made_by="root")
    await access.add_grant(Row("/lost2", "x", grants=LIST), made_by="root")
    known = (await loaded(access)).version
    # As a restored backup has it.
    await catalog.execute("delete from moorline.access_grant where version > $1", backup["version"])
    await catalog.execute(
        "delete from moorline.access_change where version > $1", backup["version"]
    )
    await catalog.execute("update moorline.access_state set version = $1, mark = $2", *backup)
    went_back = await loaded(access, known)
    assert went_back.is_whole
    assert {row.path for row in went_back.grants()} >= {"/", "/old"}
    assert not {row.path for row in went_back.grants()} & {"/lost", "/lost2"}
    for path in ("/new", "/new2", "/new3"):
        await access.add_grant(Row(path, "x", grants=LIST), made_by="root")
    assert (await access.version()).number > known.number
    assert (await loaded(access, known)).is_whole
    assert not (await loaded(access, went_back.version)).is_whole


async def test_who_missed_more_than_is_remembered_loads_everything(
    access: Users, catalog: Catalog
) -> None:
    known = (await loaded(access)).version
    await catalog.execute(
        "update moorline.access_state set version = version + $1", ACCESS_LOG_ROWS_MAX
    )
    await access.add_member("@g", "x")
    assert (await loaded(access, known)).is_whole
    assert await catalog.fetchval("select count(*) from moorline.access_change") == 1


async def test_a_process_that_lost_its_identity_changes_nothing(
    access: Users, catalog: Catalog
) -> None:
    version = await access.version()
    catalog.acting_as = (b"somebody", b"gone")
    with pytest.raises(IdentityTaken):
        await access.add_grant(Row("/a", "x", grants=LIST), made_by="root")
    assert await access.version() == version


async def test_a_change_that_postgres_did_not_answer_is_not_called_failed(
    access: Users, dsn: str
) -> None:
    version = await access.version()
    async with lost_at(dsn, "access_grant"):
        with pytest.raises(OutcomeUnknown):
            await access.add_grant(Row("/a", "x", grants=LIST), made_by="root")
    assert await access.version() == version


# --- rows -----------------------------------------------------------------------------------------


async def test_letters_are_added_to_a_row_and_taken_out_again(access: Users) -> None:
    async def added(grants: str = "", denies: str = "") -> tuple[str, str]:
        row = Row("/topics/a", "bob", bits_of(grants), bits_of(denies))
        after = await access.add_grant(row, made_by="root")
        return letters_of(after.grants), letters_of(after.denies)

    assert await added("sl") == ("sl", "")
    assert await added("w", "s") == ("lw", "s")
    assert await added("s") == ("slw", "")
    assert await added("d", "d") == ("slw", "d")
    left = await access.remove_grant("/topics/a", "bob", bits_of("sd"), made_by="eve")
    assert left == Row("/topics/a", "bob", bits_of("lw"))
    (entry,) = await access.grants("/topics", "bob", ("", ""), 10)
    assert (entry.row, entry.made_by) == (left, "eve")
    assert entry.made_us > 0
    assert await access.remove_grant("/topics/a", "bob", EVERYTHING, made_by="eve") is None
    assert await access.grants("/topics", "bob", ("", ""), 10) == []


async def test_rows_are_listed_in_pages_below_a_path(access: Users) -> None:
    wanted = [("/x", "a"), ("/x", "b"), ("/x/1", "a"), ("/x/1/2", "a"), ("/x/ä", "a")]
    for path, subject in [*reversed(wanted), ("/x2", "a"), ("/y", "a")]:
        await access.add_grant(Row(path, subject, grants=LIST), made_by="root")
    found: list[tuple[str, str]] = []
    place = ("", "")
    while page := await access.grants("/x", "", place, 2):
        found += [(entry.row.path, entry.row.subject) for entry in page]
        place = found[-1]
    assert found == wanted
    assert len(await access.grants("/", "a", ("", ""), 100)) == 6


# --- users, tokens, groups of users ---------------------------------------------------------------


async def test_a_user_from_the_first_to_the_last_day(access: Users) -> None:
    await access.add_user("alice", HASH)
    with pytest.raises(AlreadyThere):
        await access.add_user("alice", None)
    with pytest.raises(BadGrant):
        await access.add_user("anonymous", None)
    row = await access.find_user("alice")
    assert row is not None
    assert (row.password, row.is_disabled) == (HASH, False)
    await access.change_user("alice", has_no_password=True, is_disabled=True)
    changed = await access.find_user("alice")
    assert changed is not None
    assert (changed.password, changed.is_disabled) == (None, True)
    assert changed.version > row.version
    await access.add_member("@sales", "alice")
    assert await access.add_token("alice", "spark", bytes(32), None) is None
    (entry,) = await access.users("", 10)
    assert (entry.name, entry.groups, entry.tokens) == ("alice", ["@sales"], ["spark"])
    assert not entry.has_password
    await access.set_quota("alice", "queues", 1)
    left = await access.remove_user("alice")
    assert (left.memberships, left.grants, left.quotas) == (1, 0, 1)
    assert await access.find_user("alice") is None
    assert await access.find_token(bytes(32)) is None
    with pytest.raises(NotFound):
        await access.change_user("alice", is_disabled=False)


async def test_tokens(access: Users) -> None:
    await access.add_user("alice", None)
    assert await access.add_token("alice", "a", b"a" * 32, 3_600) is not None
    await access.add_token("alice", "b", b"b" * 32, -1)
    with pytest.raises(AlreadyThere):
        await access.add_token("alice", "a", b"c" * 32, None)
    with pytest.raises(NotFound):
        await access.add_token("bob", "a", b"c" * 32, None)
    fresh, over = await access.find_token(b"a" * 32), await access.find_token(b"b" * 32)
    assert fresh is not None
    assert over is not None
    assert (fresh.owner, fresh.label, fresh.is_expired) == ("alice", "a", False)
    assert over.is_expired
    assert await access.remove_token("alice", "a")
    assert not await access.remove_token("alice", "a")
    assert await access.find_token(b"a" * 32) is None


async def test_a_principal_is_in_so_many_groups_of_users(access: Users) -> None:
    for number in range(GROUPS_PER_PRINCIPAL_MAX):
        assert await access.add_member(f"@{number}", "alice")
    assert not await access.add_member("@0", "alice")
    with pytest.raises(LimitReached):
        await access.add_member("@more", "alice")
    page = await access.members("", ("", ""), 3)
    assert page == [("@0", "alice"), ("@1", "alice"), ("@10", "alice")]
    assert await access.members("@0", ("", ""), 3) == [("@0", "alice")]


# --- owners ---------------------------------------------------------------------------------------


async def test_an_owner_gets_a_principal(access: Users, catalog: Catalog) -> None:
    await Sessions(catalog).open("till", "cafe", "alpha", 60)
    name = shared_name("$share/g/#")
    assert name is not None
    group, _ = await Groups(catalog).declare(name, deliveries_max=5, start_us=0, owner="cafe")
    assert group.owner == "cafe"
    (entry,) = await access.owners("", 10)
    assert (entry.name, entry.principal, entry.sessions, entry.groups) == ("cafe", "", 1, 1)
    assert await access.map_owner("cafe", "shop") == (1, 1)
    found = await Groups(catalog).find(name)
    assert found is not None
    assert found.owner == "shop"
    entries = {entry.name: entry for entry in await access.owners("", 10)}
    assert entries["cafe"].principal == "shop"
    assert (entries["shop"].sessions, entries["shop"].groups) == (1, 1)


async def test_who_declares_a_group_again_does_not_own_it(catalog: Catalog) -> None:
    name = shared_name("$share/g/#")
    assert name is not None
    groups = Groups(catalog)
    await groups.declare(name, deliveries_max=5, start_us=0, owner="alice")
    again, is_created = await groups.declare(name, deliveries_max=5, start_us=0, owner="mallory")
    assert (again.owner, is_created) == ("alice", False)

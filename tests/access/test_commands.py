"""What is asked about rights over the wire, by the client and by the commands of `moor`."""

import asyncio
import io
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.access.server import Server
from tests.catalog.databases import new_database
from tests.catalog.losing import lost_at

from moorline.access.passwords import StoredPassword
from moorline.access.tokens import token_hash
from moorline.catalog import EmbeddedPostgres
from moorline.catalog.users import PasswordHash
from moorline.cli.main import run
from moorline.errors import (
    AlreadyThere,
    BadGrant,
    Denied,
    NotFound,
    OutcomeUnknown,
)

pytestmark = pytest.mark.process


@pytest.fixture
async def server(postgres: EmbeddedPostgres) -> AsyncIterator[Server]:
    async with Server.open(await new_database(postgres)) as server:
        yield server


# --- who may ask ----------------------------------------------------------------------------------


async def test_who_am_i(server: Server) -> None:
    async with server.connect() as moor:
        found = await moor.access.who_am_i()
    assert (found.principal, found.proof) == ("anonymous", "nothing")
    assert found.groups == ("@everyone", "@loopback")
    assert {row.path: (row.at, row.everywhere) for row in found.rights}["/topics"] == (
        "slwpdag",
        "slwpdag",
    )
    async with server.connect("alice") as moor:
        found = await moor.access.who_am_i()
    assert (found.principal, found.proof, found.expires_us) == ("alice", "password", 7)
    assert {row.path: row.at for row in found.rights}["/queues"] == "p"
    assert {row.path: row.at for row in found.rights}["/topics"] == ""


async def test_a_table_without_rows_denies_all(server: Server) -> None:
    """A21, T14: also to whoever emptied it."""
    async with server.connect() as operator, server.connect("alice") as alice:
        rows = await operator.access.grants()
        for row in sorted(rows, key=lambda row: row.path == "/"):  # the one that allows it last
            await operator.access.remove_grant(row.path, row.subject)
        for moor in (operator, alice):
            found = await moor.access.who_am_i()
            assert {row.at + row.everywhere for row in found.rights} == {""}
            for asked in (moor.access.grants(), moor.access.add_grant("/", "alice", "g")):
                with pytest.raises(Denied):
                    await asked
    assert (await server.users.grants("/", "", ("", ""), 10)) == []


async def test_nobody_changes_what_it_has_no_right_to(server: Server) -> None:
    version = await server.users.version()
    async with server.connect("mallory") as moor:
        access = moor.access
        for asked in (
            access.add_grant("/topics", "mallory", "s"),
            access.add_grant("/topics/%u", "mallory", "g"),
            access.add_grant("/", "mallory", "g"),
            access.remove_grant("/", "@loopback"),
            access.grants(),
            access.keep_grants(),
            access.check("s", "/topics/x", "alice"),
            access.explain("s", "/topics/x", "alice"),
            access.add_user("x", b"y"),
            access.change_user("x", is_disabled=True),
            access.remove_user("x"),
            access.users(),
            access.add_token("x", "y"),
            access.revoke_token("x", "y"),
            access.add_member("@x", "mallory"),
            access.remove_member("@x", "mallory"),
            access.members(),
            access.set_quota("mallory", "queues", 10**9),
            access.quotas(),
            access.owners(),
            access.map_owner("cafe", "mallory"),
        ):
            with pytest.raises(Denied, match="is not granted at"):
                await asked
        # What it may do itself it may know.
        assert not await access.check("s", "/topics/x")
        assert await access.check("s", "/topics/mallory/x")
    assert await server.users.version() == version
    assert len(server.lines) == 21


async def test_who_may_grant_below_a_path_may_do_so_there_only(server: Server) -> None:
    async with server.connect() as moor:
        await moor.access.add_grant("/topics/shop", "boss", "gs")
    async with server.connect("boss") as moor:
        await moor.access.add_grant("/topics/shop/till", "clerk", "sw")
        assert [row.subject for row in await moor.access.grants("/topics/shop")] == [
            "boss",
            "clerk",
        ]
        for path in ("/topics", "/topics/shop2", "/"):
            with pytest.raises(Denied):
                await moor.access.add_grant(path, "boss", "s")
    async with server.connect() as moor:
        await moor.access.add_grant("/topics/shop/till", "boss", denies="g")
    async with server.connect("boss") as moor:
        # Everybody's own level there would be the till's too.
        with pytest.raises(Denied):
            await moor.access.add_grant("/topics/shop/%u", "@everyone", "s")


# --- changes --------------------------------------------------------------------------------------


async def test_a_change_is_in_force_when_it_is_answered(server: Server) -> None:
    async with server.connect("alice") as alice, server.connect() as root:
        assert not await alice.access.check("w", "/topics/orders")
        done = await root.access.add_grant("/topics/orders", "alice", "ws")
        assert (done.grants, done.denies) == ("sw", "")
        assert await alice.access.check("w", "/topics/orders/#")
        await root.access.add_grant("/topics/orders/x", "@everyone", denies="w")
        found = await alice.access.explain("w", "/topics/orders/#")
        assert not found.is_granted
        assert found.path == "/topics/orders/x"
        assert [(row.path, row.subject) for row in found.decided] == [
            ("/topics/orders/x", "@everyone")
        ]
        await root.access.remove_grant("/topics/orders", "alice", "w")
        assert not await alice.access.check("w", "/topics/orders")
        assert await alice.access.check("s", "/topics/orders")
    assert ("anonymous", "AddGrant", "/topics/orders", "alice +sw") in server.lines


async def test_mistakes_are_named_and_change_nothing(server: Server) -> None:
    version = await server.users.version()
    async with server.connect() as moor:
        access = moor.access
        for asked, error, why in (
            (access.add_grant("/a", "x", "z"), BadGrant, "'z' is no right; accepted: s"),
            (access.add_grant("/a/", "x", "s"), BadGrant, "leave it out"),
            (access.add_grant("/a/#", "x", "s"), BadGrant, "wildcard"),
            (access.add_grant("/a", "$x", "s"), BadGrant, "no principal"),
            (access.add_grant("/a", "x"), BadGrant, "at least one"),
            (access.check("z", "/a"), BadGrant, "is no right"),
            (access.add_user("@x"), BadGrant, "no principal"),
            (access.change_user("x", is_disabled=True), NotFound, "no user 'x'"),
            (access.change_user("x"), BadGrant, "nothing to change"),
            (access.revoke_token("x", "y"), NotFound, "no token 'y'"),
            (access.add_member("@everyone", "x"), BadGrant, "built in"),
            (access.set_quota("x", "beer", 1), BadGrant, "accepted: connections"),
            (access.map_owner("x", "x"), BadGrant, "another name"),
        ):
            with pytest.raises(error, match=why):
                await asked
    assert await server.users.version() == version


async def test_a_change_that_the_catalog_did_not_answer_is_not_called_failed(
    server: Server,
) -> None:
    async with server.connect() as moor:
        async with lost_at(server.dsn, "access_grant"):
            with pytest.raises(OutcomeUnknown):
                await moor.access.add_grant("/a", "x", "s")
        await moor.access.add_grant("/a", "x", "s")


def is_password(typed: str, stored: PasswordHash) -> bool:
    found = StoredPassword.of(stored.n, stored.r, stored.p, stored.salt, stored.hash)
    assert found is not None
    return found.matches(typed)


async def test_users_and_tokens(server: Server) -> None:
    async with server.connect() as moor:
        access = moor.access
        await access.add_user("alice", b"secret")
        with pytest.raises(AlreadyThere):
            await access.add_user("alice")
        row = await server.users.find_user("alice")
        assert row is not None
        assert row.password is not None
        assert is_password("secret", row.password)
        assert not is_password("Secret", row.password)
        await access.change_user("alice", password=b"", is_disabled=True)
        made = await access.add_token("alice", "spark", expires_s=60)
        found = await server.users.find_token(token_hash(made.token) or b"")
        assert found is not None
        assert (found.owner, found.expires_us) == ("alice", made.expires_us)
        await access.add_member("@sales", "alice")
        (user,) = await access.users()
        assert (user.name, user.is_disabled, user.has_password) == ("alice", True, False)
        assert (user.groups, user.tokens) == (("@sales",), ("spark",))
        await access.revoke_token("alice", "spark")
        assert await server.users.find_token(token_hash(made.token) or b"") is None
        left = await access.remove_user("alice")
        assert left.memberships == 1
        assert await access.users() == []
    assert not [line for line in server.lines if "secret" in str(line) or made.token in str(line)]


async def test_lists_have_pages(server: Server) -> None:
    for number in range(300):
        await server.users.add_member(f"@{number % 30:02}", f"user-{number:03}")
        await server.users.set_quota(f"user-{number:03}", "queues", number)
    async with server.connect() as moor:
        assert len(await moor.access.members()) == 300
        assert len(await moor.access.members("@07")) == 10
        quotas = await moor.access.quotas()
        assert [one.amount for one in quotas] == list(range(300))
        assert [one.amount for one in await moor.access.quotas("user-007")] == [7]
        assert await moor.access.owners() == []
        assert len(await moor.access.grants()) == 2


# --- the commands ---------------------------------------------------------------------------------


class Commands:
    def __init__(self, server: Server, capsys: pytest.CaptureFixture[str]) -> None:
        self._server = server
        self._capsys = capsys

    async def __call__(self, *words: str, code: int = 0) -> str:
        """What it printed, or the one line of its error."""
        given = [*words, f"--address={self._server.address}"]
        assert await asyncio.to_thread(run, given) == code
        printed = self._capsys.readouterr()
        return (printed.err if code else printed.out).strip()

    async def json(self, *words: str) -> list[dict[str, object]]:
        found = json.loads(await self(*words, "--json"))
        assert isinstance(found, list)
        return found


@pytest.fixture
def moor(server: Server, capsys: pytest.CaptureFixture[str]) -> Commands:
    return Commands(server, capsys)


async def test_grants_by_commands(moor: Commands) -> None:
    """A26: explain names the row that decided, and says where there is none."""
    assert await moor("grant", "add", "/topics/a", "@sales", "sl") == "/topics/a @sales +sl"
    assert await moor("grant", "add", "/topics/a", "@sales", "w", "--deny") == (
        "/topics/a @sales +sl -w"
    )
    (row,) = await moor.json("grant", "list", "/topics/a")
    assert (row["grants"], row["denies"], row["made_by"]) == ("sl", "w", "anonymous")
    assert "/topics/a" in await moor("grant", "list")
    assert await moor("grant", "check", "s", "/topics/a", "--subject=@sales") == "granted"
    assert await moor("grant", "check", "s", "/topics/b", "--subject=@sales") == "denied"
    assert (
        await moor("grant", "explain", "w", "/topics/a/b", "--subject=@sales")
    ).splitlines() == [
        "denied: w at /topics/a/b",
        "by /topics/a @sales +sl -w",
    ]
    assert "no row says" in await moor("grant", "explain", "w", "/x", "--subject=bob")
    assert await moor("grant", "remove", "/topics/a", "@sales") == (
        "no row is about @sales at /topics/a"
    )
    assert await moor("grant", "keep") == "kept: 0 rows of the upgrade"
    assert "is no right" in await moor("grant", "add", "/a", "x", "z", code=12)


async def test_users_by_commands(
    moor: Commands, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "password"
    file.write_text("from a file\nand no more\n")
    assert await moor("user", "add", "alice", f"--new-password-file={file}") == "added: alice"
    row = await server.users.find_user("alice")
    assert row is not None
    assert row.password is not None
    assert is_password("from a file", row.password)
    monkeypatch.setattr("sys.stdin", io.StringIO("typed\n"))
    assert await moor("user", "change", "alice", "--new-password-file=-") == "changed: alice"
    row = await server.users.find_user("alice")
    assert row is not None
    assert row.password is not None
    assert is_password("typed", row.password)
    await moor("user", "add", "spark", "--no-password")
    token = await moor("user", "token", "spark", "nightly")
    assert await server.users.find_token(token_hash(token) or b"") is not None
    assert await moor("user", "join", "@sales", "alice") == "alice is in @sales"
    assert "@sales  alice" in await moor("user", "members")
    users = {user["name"]: user for user in await moor.json("user", "list")}
    assert users["alice"]["groups"] == ["@sales"]
    assert users["spark"]["tokens"] == ["nightly"]
    assert await moor("user", "change", "alice", "--disable") == "changed: alice"
    assert await moor("user", "revoke", "spark", "nightly", "--yes") == "revoked: spark nightly"
    assert (await moor("user", "remove", "alice", "--yes")).splitlines() == [
        "removed: alice",
        "left for whoever proves to be alice: 1 membership",
    ]
    assert await moor("user", "leave", "@sales", "alice") == "alice is not in @sales"
    assert "there is a user 'spark'" in await moor("user", "add", "spark", "--no-password", code=12)
    assert "nothing to change" in await moor("user", "change", "spark", code=2)
    missing = f"--new-password-file={tmp_path / 'none'}"
    assert "cannot be read" in await moor("user", "add", "bob", missing, code=2)


async def test_quotas_owners_and_who_by_commands(moor: Commands, server: Server) -> None:
    """A09: `moor owner map` and `list`."""
    assert await moor("quota", "set", "alice", "queues", "7") == "alice queues 7"
    assert await moor.json("quota", "list") == [{"subject": "alice", "kind": "queues", "amount": 7}]
    assert await moor("quota", "remove", "alice", "queues") == "alice has no queues of its own"
    assert "accepted: connections" in await moor("quota", "set", "alice", "beer", "7", code=12)
    assert (
        await moor("owner", "map", "cafe", "alice", "--yes")
        == "alice owns 0 sessions and 0 groups more"
    )
    assert await moor.json("owner", "list") == [
        {"name": "cafe", "principal": "alice", "sessions": 0, "groups": 0, "queues": 0}
    ]
    assert (await moor("whoami")).splitlines()[0] == "anonymous, proven by nothing"
    server.become("alice")
    assert json.loads(await moor("whoami", "--json"))["principal"] == "alice"
    assert "is not granted at /admin/users" in await moor("user", "list", code=12)

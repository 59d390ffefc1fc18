"""What readers get: every path by itself, with its publishers, rights and tokens."""

import asyncio
from functools import partial

import pytest
from tests.core.directory.made_tokens import token_of
from tests.resolver.publishing import WirePublisher, codes, digest_of, resolve
from tests.resolver.server import OPEN_TO_ALL, ResolverServer

from moorline.core.access.right import EVERYTHING, LIST, PUBLISH, SUBSCRIBE, WRITE
from moorline.core.access.row import Row
from moorline.core.directory.path import DEFAULT, WRITABLE
from moorline.core.directory.token import Claim
from moorline.errors import AddressNotProven, BadAddress, NotReady, PublisherGone
from moorline.wire.resolver import ListPaths, MatchPaths, PathsListed, PathsMatched


async def test_a_path_is_found_with_its_publisher_its_rights_and_a_token() -> None:
    async with ResolverServer.open() as server:
        publisher = await server.publisher("/a/b", flags=WRITABLE)
        reader = await server.caller()
        answer = await resolve(reader, "/a/b", "/a/c")
        found, missing = answer.found
        assert (found.code, found.permissions, found.flags) == ("", EVERYTHING, WRITABLE)
        assert missing.code == "NOT_FOUND"
        (facts,) = answer.publishers
        assert (facts.address, facts.instance) == (publisher.listener.address, publisher.instance)
        assert publisher.opened is not None
        claim = Claim(
            answer.resolver,
            publisher.instance,
            answer.holder.principal,
            answer.holder.proof,
            answer.holder.is_local,
            answer.expires_s,
            "/a/b",
            found.permissions,
        )
        assert found.publishers == [(0, token_of(publisher.opened.secret, claim))]


async def test_t2_one_denied_path_of_a_thousand_fails_no_other() -> None:
    rows = (OPEN_TO_ALL, Row("/a/7", "@loopback", denies=SUBSCRIBE | WRITE))
    async with ResolverServer.open(*rows) as server:
        paths = [f"/a/{number}" for number in range(1_000)]
        await server.publisher(*paths)
        reader = await server.caller()
        found = await codes(reader, *paths)
        assert found[7] == "DENIED"
        assert [code for code in found if code] == ["DENIED"]
        # It is denied whether it is there or not, and the audit hears of it once a call.
        assert server.refusals == [("ResolvePaths", "/a/7", "DENIED")]
        assert await codes(reader, "/a/7/x", "/b", "no path") == ["DENIED", "NOT_FOUND", "BAD_PATH"]


async def test_a_publisher_that_takes_other_proofs_gets_no_token() -> None:
    async with ResolverServer.open() as server:
        publisher = await server.publisher()
        await publisher.open(mechanisms=("gssapi",))
        await publisher.publish("/a")
        reader = await server.caller()
        (found,) = (await resolve(reader, "/a")).found
        assert (found.code, found.publishers) == ("", [(0, b"")])


async def test_the_nearest_default_makes_a_path() -> None:
    async with ResolverServer.open() as server:
        far = await server.publisher("/a", flags=DEFAULT)
        near = await server.publisher("/a/b", flags=DEFAULT)
        await server.publisher("/a-b", "/a.b", "/a/b-c")
        reader = await server.caller()

        async def address_of(path: str) -> str:
            answer = await resolve(reader, path)
            if answer.found[0].code:
                return answer.found[0].code
            return answer.publishers[0].address

        assert await address_of("/a/b/x/y") == near.listener.address
        assert await address_of("/a/c") == far.listener.address
        assert await address_of("/ab") == "NOT_FOUND"
        assert await address_of("/a-b/x") == "NOT_FOUND"


async def test_t8_lists_and_matches_follow_two_publishers_and_empty_branches_vanish() -> None:
    async with ResolverServer.open() as server:
        one = await server.publisher("/a/b/c", "/a/d")
        two = await server.publisher("/a/b/c")
        reader = await server.caller()

        async def listed(path: str) -> list[tuple[str, bool, bool]]:
            answer = await reader.call(lambda call: ListPaths(call, path), PathsListed)
            assert answer.next == ""
            return answer.children

        async def matched(glob: str) -> list[str]:
            answer = await reader.call(lambda call: MatchPaths(call, glob), PathsMatched)
            assert answer.next == ""
            return answer.paths

        assert await listed("/") == [("/a", False, True)]
        assert await listed("/a") == [("/a/b", False, True), ("/a/d", True, False)]
        assert await matched("/a/**") == ["/a/b/c", "/a/d"]
        await one.unpublish("/a/b/c", "/a/d")
        assert await listed("/a") == [("/a/b", False, True)]
        assert await matched("/**") == ["/a/b/c"]
        await two.unpublish("/a/b/c")
        assert await listed("/") == []
        assert await matched("/**") == []


async def test_pages_have_every_path_once() -> None:
    async with ResolverServer.open() as server:
        wanted = [f"/a/{number:04}/x" for number in range(250)]
        await server.publisher(*wanted)
        reader = await server.caller()
        children: list[str] = []
        paths: list[str] = []
        after = ""
        while True:
            page = await reader.call(
                partial(ListPaths, path="/a", after=after, count=60), PathsListed
            )
            children += [name for name, _, _ in page.children]
            if not (after := page.next):
                break
        while True:
            match = await reader.call(
                partial(MatchPaths, glob="/a/*/x", after=after, count=60), PathsMatched
            )
            paths += match.paths
            if not (after := match.next):
                break
        assert children == [path.removesuffix("/x") for path in wanted]
        assert paths == wanted


async def test_who_may_not_list_a_path_does_not_see_it() -> None:
    rows = (
        Row("/", "publisher", grants=EVERYTHING),
        Row("/a", "alice", grants=LIST),
        Row("/a/secret", "alice", denies=LIST),
    )
    async with ResolverServer.open(*rows) as server:
        await server.publisher("/a/b", "/a/secret", "/c", principal="publisher")
        alice = await server.caller("alice")
        listed = await alice.call(lambda call: ListPaths(call, "/a"), PathsListed)
        assert [name for name, _, _ in listed.children] == ["/a/b"]
        matched = await alice.call(lambda call: MatchPaths(call, "/**"), PathsMatched)
        assert matched.paths == ["/a/b"]


async def test_t14_deny_beats_grant_and_deeper_beats_higher() -> None:
    rows = (
        Row("/", "publisher", grants=EVERYTHING),
        Row("/a", "@staff", grants=SUBSCRIBE),
        Row("/a", "alice", denies=SUBSCRIBE),
        Row("/a/deep", "@staff", grants=SUBSCRIBE),
        Row("/own/%u", "@authenticated", grants=SUBSCRIBE | PUBLISH),
    )
    async with ResolverServer.open(*rows) as server:
        server.world.source.add_member("@staff", "alice")
        server.world.source.add_member("@staff", "bob")
        await server.world.table.refresh()
        paths = ("/a/x", "/a/deep/x", "/own/alice/x", "/own/bob/x", "/b")
        await server.publisher(*paths, principal="publisher")
        alice, bob = await server.caller("alice"), await server.caller("bob")
        no = "DENIED"
        assert await codes(alice, *paths) == [no, "", "", no, no]
        assert await codes(bob, *paths) == ["", "", no, "", no]
        stranger = await server.caller()
        assert set(await codes(stranger, *paths)) == {no}
        own = WirePublisher(alice, await server.listener())
        await own.open()
        answer = await own.publish("/own/alice/y", "/own/bob/y", "/nodes/z")
        assert answer.refused == [(1, no), (2, no)]
    async with ResolverServer.open(Row("/x", "nobody", grants=LIST)) as server:
        reader = await server.caller()
        assert await codes(reader, "/a", "/") == [no, "BAD_PATH"]


@pytest.mark.slow
async def test_t16_who_claims_anothers_address_fails_and_the_others_entries_stay() -> None:
    async with ResolverServer.open(proof_timeout_ms=2_000, ttl_ms=600_000) as server:
        victim = await server.publisher("/a")
        reader = await server.caller()
        thief = WirePublisher(await server.caller(), await server.listener(), victim.instance)
        with pytest.raises(AddressNotProven):
            await thief.open(victim.listener.address)
        with pytest.raises(PublisherGone):
            await thief.publish("/a")
        answer = await resolve(reader, "/a")
        assert [one.address for one in answer.publishers] == [victim.listener.address]
        # Its secret is the one it had, and it goes on.
        assert (await victim.publish("/b")).refused == []
        # The same instance at an address of one's own is another publisher.
        assert (await thief.open()).count == 0
        assert [one.address for one in (await resolve(reader, "/a")).publishers] == [
            victim.listener.address
        ]


@pytest.mark.parametrize(
    "address",
    [
        "tcp://0.0.0.0:7411",
        "tcp://224.0.0.1:7411",
        "tcp://169.254.1.1:7411",
        "tcp://255.255.255.255:7411",
        "tcp://240.0.0.1:7411",
        "tcp://0.0.0.1:7411",
        "tcp://[::ffff:0.1.2.3]:7411",
        "tcp://[::]:7411",
        "tcp://[fe80::1]:7411",
        "tcp://[64:ff9b::127.0.0.1]:7411",
        "tcp://[64:ff9b::10.0.0.1]:7411",
        "tcp://[64:ff9b:1::127.0.0.1]:7411",
        "tcp://[2002:7f00:1::]:7411",
        "tcp://[2001::ffff:8000]:7411",
        "tcp://[::127.0.0.1]:7411",
        "tcp://127.0.0.1:0",
        "nonsense",
    ],
)
async def test_an_address_that_nobody_could_reach_is_not_dialled(address: str) -> None:
    async with ResolverServer.open() as server:
        publisher = WirePublisher(await server.caller(), await server.listener())
        with pytest.raises(BadAddress):
            await publisher.open(address)
        assert server.broker.dials.failed == 0


@pytest.mark.slow
async def test_all_failures_of_a_proof_say_the_same() -> None:
    async with ResolverServer.open(proof_timeout_ms=2_000) as server:
        listener = await server.listener()
        publisher = WirePublisher(await server.caller(), listener)
        texts = set()
        with pytest.raises(AddressNotProven) as wrong:
            await publisher.open(key=b"x" * 32)
        texts.add(str(wrong.value))
        listener.is_silent = True
        with pytest.raises(AddressNotProven) as silent:
            await publisher.open()
        texts.add(str(silent.value))
        assert len(texts) == 1
        assert (listener.dials, server.broker.dials.failed) == (2, 2)


async def test_a_publisher_that_comes_back_goes_on_with_its_entries() -> None:
    async with ResolverServer.open() as server:
        before = await server.publisher("/a", "/b")
        before.caller.abandon()
        again = WirePublisher(await server.caller(), before.listener, before.instance)
        opened = await again.open()
        assert (opened.count, opened.hash) == (2, digest_of("/a", "/b").hash)
        assert before.opened is not None
        assert opened.secret != before.opened.secret
        # Another process at the same address: the entries of the dead one go.
        other = WirePublisher(await server.caller(), before.listener)
        assert (await other.open()).count == 0
        reader = await server.caller()
        assert await codes(reader, "/a", "/b") == ["NOT_FOUND", "NOT_FOUND"]
        with pytest.raises(PublisherGone):
            await again.publish("/a")


async def test_who_is_silent_for_the_ttl_is_gone() -> None:
    async with ResolverServer.open(ttl_ms=400) as server:
        publisher = await server.publisher("/a")
        lively = await server.publisher("/b")
        reader = await server.caller()
        while (await codes(reader, "/a")) == [""]:
            await lively.beat(digest_of("/b"))
            await asyncio.sleep(0.02)
        assert await codes(reader, "/a", "/b") == ["NOT_FOUND", ""]
        with pytest.raises(PublisherGone):
            await publisher.beat(digest_of("/a"))
        await publisher.open()
        await publisher.publish("/a")
        assert await codes(reader, "/a") == [""]


async def test_before_it_is_ready_nothing_is_not_found() -> None:
    async with ResolverServer.open(is_new=False, ttl_ms=2_000) as server:
        await server.publisher("/a")
        reader = await server.caller()
        assert await codes(reader, "/a", "/b") == ["", "NOT_READY"]
        with pytest.raises(NotReady):
            await reader.call(lambda call: MatchPaths(call, "/**"), PathsMatched)
        with pytest.raises(NotReady):
            await reader.call(lambda call: ListPaths(call, "/"), PathsListed)
        assert (
            await reader.call(lambda call: MatchPaths(call, "/nodes/*"), PathsMatched)
        ).paths == []
        server.broker.registry.ready_at_ms = 0
        assert await codes(reader, "/a", "/b") == ["", "NOT_FOUND"]


async def test_delegated_paths_are_referred_for_reading_and_publishing() -> None:
    delegations = ["/eu=tcp://h1:7411,tcp://h2:7411"]
    async with ResolverServer.open(delegations=delegations) as server:
        publisher = await server.publisher("/eu-west", "/us")
        reader = await server.caller()
        answer = await resolve(reader, "/eu/x", "/eu", "/eu-west", "/us")
        assert [found.code for found in answer.found] == ["REFERRED", "REFERRED", "", ""]
        (referral,) = answer.referrals
        assert (referral.path, referral.addresses) == ("/eu", ("tcp://h1:7411", "tcp://h2:7411"))
        told = await publisher.publish("/eu/y", "/us/y")
        assert (told.refused, told.referrals) == ([(0, "REFERRED")], [referral])
        listed = await reader.call(lambda call: ListPaths(call, "/"), PathsListed)
        assert [name for name, _, _ in listed.children] == ["/eu", "/eu-west", "/us"]
        assert listed.referrals == [referral]


async def test_bounds_refuse_what_is_too_much_and_keep_what_is_there() -> None:
    async with ResolverServer.open(publisher_paths_max=2, paths_max=3, publishers_max=2) as server:
        one = await server.publisher("/a", "/b")
        assert (await one.publish("/a", "/c")).refused == [(1, "LIMIT")]
        two = await server.publisher("/d")
        assert (await two.publish("/e")).refused == [(0, "LIMIT")]
        three = WirePublisher(await server.caller(), await server.listener())
        with pytest.raises(Exception, match="publishers_max"):
            await three.open()


async def test_a_path_that_several_publish_counts_for_each() -> None:
    async with ResolverServer.open(paths_max=3) as server:
        one = await server.publisher("/a", "/b")
        two = await server.publisher("/a")
        assert (await two.publish("/b")).refused == [(0, "LIMIT")]
        await one.unpublish("/b")
        assert (await two.publish("/b")).refused == []


async def test_where_there_are_too_many_publishers_the_best_are_told_by_chance(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("moorline.resolver.finding.RESOLVED_TOKENS_MAX", 2)
    async with ResolverServer.open() as server:
        addresses = []
        for priority in (1, 0, 0, 0, 2):
            publisher = WirePublisher(await server.caller(), await server.listener())
            await publisher.open(priority=priority)
            await publisher.publish("/a")
            if not priority:
                addresses.append(publisher.listener.address)
        reader = await server.caller()
        told: set[str] = set()
        while told != set(addresses):
            answer = await resolve(reader, "/a")
            assert len(answer.publishers) == 2
            told.update(one.address for one in answer.publishers)
            assert told <= set(addresses)

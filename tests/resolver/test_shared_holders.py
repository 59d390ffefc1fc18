"""Paths of one answer that have the same holders: each is judged and signed as if it were asked alone."""

from tests.core.directory.made_tokens import token_of
from tests.resolver.publishing import WirePublisher, resolve
from tests.resolver.server import OPEN_TO_ALL, ResolverServer

from moorline.core.access.right import SUBSCRIBE, WRITE
from moorline.core.access.row import Row
from moorline.core.directory.path import WRITABLE
from moorline.core.directory.token import Claim
from moorline.net.clock import monotonic_ms
from moorline.net.slices import done
from moorline.wire.resolver import PathsResolved, ResolvedPath, ResolvePaths

PATHS = [f"/a/{number}" for number in range(200)]
"""Several steps of an answer."""


def check_signed(
    answer: PathsResolved, path: str, found: ResolvedPath, *publishers: WirePublisher
) -> None:
    """It is at these publishers, in any order, with the token that each of them expects."""
    wanted = set()
    for one in publishers:
        assert one.opened is not None
        claim = Claim(
            answer.resolver,
            one.instance,
            answer.holder.principal,
            answer.holder.proof,
            answer.holder.is_local,
            answer.expires_s,
            path,
            found.permissions,
        )
        wanted.add((one.instance, token_of(one.opened.secret, claim)))
    had = {(answer.publishers[place].instance, token) for place, token in found.publishers}
    assert had == wanted, path


async def test_holders_that_change_within_an_answer_are_told_as_they_are_then() -> None:
    async with ResolverServer.open() as server:
        first = await server.publisher(*PATHS)
        second = await server.publisher()
        await server.caller()
        assert server.session is not None
        steps = server.broker.finder.resolving(
            server.session, ResolvePaths(1, PATHS), monotonic_ms()
        )
        next(steps)
        # The answer has met the first publisher alone; between two of its steps others come and go.
        await second.publish(PATHS[100], PATHS[104])
        await first.unpublish(PATHS[101])
        await first.publish(PATHS[102], flags=WRITABLE)
        await first.unpublish(PATHS[103])
        await second.publish(PATHS[103])
        answer = done(steps)
        assert len(answer.found) == len(PATHS)
        for place, (path, found) in enumerate(zip(PATHS, answer.found, strict=True)):
            match place:
                case 100 | 104:
                    check_signed(answer, path, found, first, second)
                case 101:
                    assert (found.code, found.publishers) == ("NOT_FOUND", [])
                case 103:
                    check_signed(answer, path, found, second)
                case _:
                    assert found.flags == (WRITABLE if place == 102 else 0)
                    check_signed(answer, path, found, first)


async def test_a_publisher_that_has_gone_is_not_found_by_the_next_answer() -> None:
    async with ResolverServer.open() as server:
        publisher = await server.publisher(*PATHS)
        reader = await server.caller()
        assert not any(found.code for found in (await resolve(reader, *PATHS)).found)
        await publisher.close()
        codes = {found.code for found in (await resolve(reader, *PATHS)).found}
        assert codes == {"NOT_FOUND"}


async def test_a_row_below_others_is_judged_although_the_holders_are_known() -> None:
    """Who has everything but at one path is nobody who has everything."""
    rows = (
        OPEN_TO_ALL,
        Row("/a/7", "@loopback", denies=WRITE),
        Row("/a/8", "@loopback", denies=SUBSCRIBE | WRITE),
    )
    async with ResolverServer.open(*rows) as server:
        publisher = await server.publisher(*PATHS)
        answer = await resolve(await server.caller(), *PATHS)
        permissions = {found.permissions for found in answer.found[9:]}
        assert len(permissions) == 1
        assert answer.found[7].permissions == permissions.pop() & ~WRITE
        assert (answer.found[8].code, answer.found[8].publishers) == ("DENIED", [])
        for place in (0, 7, 9, 199):
            check_signed(answer, PATHS[place], answer.found[place], publisher)


async def test_a_delegated_path_is_referred_although_its_neighbours_are_held() -> None:
    delegations = ["/a/eu=tcp://127.0.0.1:7411"]
    async with ResolverServer.open(delegations=delegations) as server:
        publisher = await server.publisher(*PATHS)
        paths = [*PATHS[:50], "/a/eu/x", "/a/eu", *PATHS[50:]]
        answer = await resolve(await server.caller(), *paths)
        for path, found in zip(paths, answer.found, strict=True):
            if path.startswith("/a/eu"):
                assert (found.code, found.publishers) == ("REFERRED", [])
            else:
                check_signed(answer, path, found, publisher)


async def test_reserved_paths_are_not_of_the_publisher_beside_them() -> None:
    async with ResolverServer.open() as server:
        publisher = await server.publisher(*PATHS)
        refused = await publisher.publish("/nodes/mine")
        assert [code for _, code in refused.refused] == ["DENIED"]
        paths = [PATHS[0], "/nodes/mine", "/shards/x/1", PATHS[1], "no path", PATHS[2]]
        answer = await resolve(await server.caller(), *paths)
        codes = [found.code for found in answer.found]
        assert codes == ["", "NOT_FOUND", "NOT_FOUND", "", "BAD_PATH", ""]
        for place in (0, 3, 5):
            check_signed(answer, paths[place], answer.found[place], publisher)

"""Room: client. The steps of a subscription: where a path is, which publisher is taken, the connection.

What a resolver gave is kept from one step to the next, and no longer. There is one connection to each
publisher, however many wait for it.
"""

import asyncio
import secrets
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from random import Random
from typing import TypeVar

from moorline.client.resolution import FoundPublisher, Grant, Resolution
from moorline.client.resolver import Resolver
from moorline.client.values.link import (
    EndedHere,
    HeldHere,
    LinkSettings,
    LostHere,
    PublisherLink,
    Updated,
)
from moorline.config.addresses import listen_address
from moorline.core.values.choice import Candidate, Failures, Turns, choose_in_turn
from moorline.errors import ConnectionLost, MoorlineError, NoSuchValue, Unreachable
from moorline.net.clock import monotonic_ms
from moorline.wire.value import SubscribedValue

Found = TypeVar("Found")
IsIdle = Callable[[PublisherLink], bool]


class SubscriptionSteps:
    """What the subscriptions of one subscriber share."""

    def __init__(
        self,
        resolver: Resolver,
        settings: LinkSettings,
        failures: Failures,
        *,
        updated: Updated,
        ended: EndedHere,
        lost: LostHere,
        is_held: HeldHere,
    ) -> None:
        self._resolver = resolver
        self._settings = settings
        self._failures = failures
        self._turns = Turns()
        """Of those that go through the flow once; durable ones keep their own."""
        self._chance = Random(secrets.randbits(64))
        self._updated, self._ended, self._lost = updated, ended, lost
        self._is_held = is_held
        self._links: dict[bytes, asyncio.Task[PublisherLink]] = {}
        self._users: Counter[bytes] = Counter()
        """Of connections: who asks for something there now."""
        self._grants: dict[str, dict[bytes, Grant]] = {}
        """Of paths that are being tried: what the last answer gave."""
        self._found: dict[bytes, FoundPublisher] = {}
        """Their publishers, by instance."""

    @property
    def links(self) -> int:
        """Connections that are open, or being opened."""
        return len(self._links)

    def address_of(self, instance: bytes) -> str:
        found = self._found.get(instance)
        return found.address if found is not None else ""

    # --- where it is ------------------------------------------------------------------------------

    async def candidates(self, paths: Sequence[str]) -> dict[str, Sequence[Candidate] | str]:
        """For each path its publishers, or why there are none."""
        found = await self._resolved(paths)
        return {path: one if isinstance(one, list) else str(one) for path, one in found.items()}

    async def choose(
        self, paths: Sequence[str]
    ) -> tuple[dict[bytes, list[str]], dict[str, MoorlineError]]:
        """Paths by the publisher that is taken for them; and the errors of those that have none."""
        chosen: dict[bytes, list[str]] = {}
        errors: dict[str, MoorlineError] = {}
        for path, found in (await self._resolved(paths)).items():
            if isinstance(found, MoorlineError):
                errors[path] = found
            else:
                now_ms = monotonic_ms()
                tried = self._turns.of(path, now_ms)
                one = choose_in_turn(found, tried, self._failures, self._chance, now_ms)
                chosen.setdefault(one.instance, []).append(path)
        return chosen, errors

    def tried(self, path: str, instance: bytes, *, has_failed: bool) -> None:
        """What came of a choice."""
        if has_failed:
            self._turns.failed(path, instance, monotonic_ms())
        else:
            self._turns.found(path)

    async def _resolved(self, paths: Sequence[str]) -> dict[str, list[Candidate] | MoorlineError]:
        answers = await self._resolver.resolve_all(paths) if paths else []
        self._forget_publishers()
        found: dict[str, list[Candidate] | MoorlineError] = {}
        for path, answer in zip(paths, answers, strict=True):
            found[path] = answer if isinstance(answer, MoorlineError) else self._kept(path, answer)
        return found

    def _kept(self, path: str, answer: Resolution) -> list[Candidate]:
        self._grants[path] = {one.instance: one.grant for one in answer.publishers}
        self._found.update((one.instance, one) for one in answer.publishers)
        return [Candidate(one.instance, one.priority) for one in answer.publishers]

    def _forget_publishers(self) -> None:
        """Of publishers come and gone for months nothing is kept."""
        if not self._grants:
            self._found = {name: one for name, one in self._found.items() if name in self._links}

    def give_up(self, path: str) -> None:
        """Nobody wants it any more."""
        self._grants.pop(path, None)

    # --- there ------------------------------------------------------------------------------------

    @asynccontextmanager
    async def link_to(self, instance: bytes, is_idle: IsIdle) -> AsyncIterator[PublisherLink]:
        """The connection to that publisher, kept at least until the end of the block."""
        self._users[instance] += 1
        link: PublisherLink | None = None
        try:
            link = await done_or_closed(self._links.get(instance) or self._begin(instance))
            yield link
        finally:
            self._users[instance] -= 1
            if not self._users[instance]:
                del self._users[instance]
            if link is not None:
                # Where everything was refused nobody else would end it.
                self.leave(link, is_idle)

    async def subscribe(self, link: PublisherLink, paths: Sequence[str]) -> list[SubscribedValue]:
        """By what the resolver gave for these paths; the answers in their order."""
        found = {path: self._grants.pop(path, {}).get(link.instance) for path in paths}
        # Given up meanwhile, a path has no grant: then nobody waits for its answer either.
        asked = [(path, grant) for path, grant in found.items() if grant is not None]
        told = dict(zip((path for path, _ in asked), await link.subscribe(asked), strict=True))
        return [told.get(path) or SubscribedValue(NoSuchValue.code) for path in paths]

    def _begin(self, instance: bytes) -> "asyncio.Task[PublisherLink]":
        found = self._found.get(instance)
        if found is None:
            # It was there when the path was resolved, and has been lost and forgotten since.
            raise ConnectionLost("its publisher was lost: resolve again")
        try:
            address = listen_address(found.address)
        except ValueError as error:
            raise Unreachable(f"a publisher at {found.address!r}: {error}") from error
        opening = asyncio.create_task(
            PublisherLink.open(
                address,
                instance,
                self._settings,
                updated=self._updated,
                ended=self._ended,
                lost=self._lost,
                is_held=self._is_held,
                service=found.service,
            )
        )
        self._links[instance] = opening
        opening.add_done_callback(lambda task: self._opened(instance, task))
        return opening

    def _opened(self, instance: bytes, opening: "asyncio.Task[PublisherLink]") -> None:
        if opening.cancelled() or opening.exception() is not None:
            self._links.pop(instance, None)

    def forget(self, link: PublisherLink) -> None:
        """It is over."""
        self._links.pop(link.instance, None)

    def leave(self, link: PublisherLink, is_idle: IsIdle) -> None:
        """Ends a connection where nothing is subscribed, and nobody is about to."""
        if link.instance in self._users or link.is_over or not is_idle(link):
            return
        self._links.pop(link.instance, None)
        link.close()

    def close(self) -> None:
        for opening in self._links.values():
            if opening.done() and not opening.cancelled() and opening.exception() is None:
                opening.result().close()
            else:
                opening.cancel()
        self._links.clear()


async def done_or_closed(work: "asyncio.Task[Found]") -> Found:
    """Waits for what several wait for: who is cancelled does not take it from the others, and who is not
    hears of the end as of an error."""
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        if work.cancelled():
            raise ConnectionLost("the subscriber was closed meanwhile") from None
        raise


def said(code: str) -> str:
    words = {
        NoSuchValue.code: "the publisher does not have it",
        "DENIED": "the publisher does not take the token: resolve again",
        "UNPUBLISHED": "it is not published there any more",
        "EXPIRED": "no resolver has confirmed the right to it for too long",
    }
    return f"{code}: {words[code]}" if code in words else code

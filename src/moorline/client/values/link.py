"""Room: client. A subscriber's one connection to one publisher, shared by all that it is subscribed to there.

Updates come by ids. The latest value of each is in one map, which a whole batch changes at once: whoever
looks between two batches sees the one or the other. A publisher that says nothing for the dead interval is
lost, whatever its link says: its kernel may answer for a process that hangs.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import msgspec

from moorline.client.credentials import (
    NO_PROOF,
    NOBODY,
    ClientIdentity,
    ClientProof,
    KerberosCredentials,
    prepared,
)
from moorline.client.resolution import Grant
from moorline.config.addresses import Address
from moorline.errors import CallFailed, Malformed
from moorline.limits import CLAIMS_PER_CALL_MAX, VALUE_BATCH_UPDATES_MAX, VALUE_LAST_LOOK_MS
from moorline.net.caller import Caller, open_caller
from moorline.net.clock import monotonic_ms
from moorline.net.native import Tongue
from moorline.version import SOFTWARE
from moorline.wire.message import Answer, Failed, Message
from moorline.wire.resolver import Holder
from moorline.wire.value import (
    AGAIN,
    SubscribedValue,
    SubscribeValues,
    UnsubscribeValues,
    ValuesChanged,
    ValuesEnded,
    ValuesSubscribed,
    ValueWritten,
    WriteValue,
    publisher_decoder,
    subscriber_decoder,
)

OF_PUBLISHERS: Final = Tongue(subscriber_decoder, publisher_decoder)


class LinkSettings(msgspec.Struct, frozen=True):
    """How a subscriber connects to publishers."""

    timeout_ms: int
    keepalive_ms: int
    dead_ms: int
    identity: ClientIdentity = NOBODY
    conflate: bool = False


Updated = Callable[["PublisherLink", Sequence[int], Sequence[Any]], None]
EndedHere = Callable[["PublisherLink", Sequence[int], str], None]
LostHere = Callable[["PublisherLink", str], None]
HeldHere = Callable[["PublisherLink", int], bool]
"""Whether somebody has the value of that id."""


Group = tuple[bytes, int, Holder]
"""What one call has in common: the resolver that signed, until when, and for whom."""
Cut = tuple[Group, list[int]]
"""A call in the making: the places of its grants."""


class PublisherLink:
    """One connection, from its welcome to its end."""

    def __init__(
        self,
        instance: bytes,
        caller: Caller,
        settings: LinkSettings,
        *,
        updated: Updated,
        ended: EndedHere,
        lost: LostHere,
        is_held: HeldHere = lambda *_: False,
    ) -> None:
        self.instance = instance
        self.latest: dict[int, Any] = {}
        """By ids: the values of the last whole batch."""
        self._caller = caller
        self._settings = settings
        self._updated, self._ended, self._lost = updated, ended, lost
        self._is_held = is_held
        self._asking: dict[int, list[str]] = {}
        """Paths of calls without an answer, given up or not."""
        self._given_up: set[int] = set()
        self._came_late: dict[str, int] = {}
        """Ids of paths that were subscribed for a call that was given up, while others ask for them too."""
        self._held: set[int] = set()
        """Ids that are subscribed, as far as was heard."""
        self._ids: list[int] = []
        self._values: list[Any] = []
        self._heard_ms = monotonic_ms()
        self._is_over = False
        caller.pushed = self._pushed
        caller.lost.add_done_callback(lambda lost: self._end(str(lost.result())))
        self._watching = asyncio.create_task(self._watch())

    @staticmethod
    async def open(
        address: Address,
        instance: bytes,
        settings: LinkSettings,
        *,
        updated: Updated,
        ended: EndedHere,
        lost: LostHere,
        is_held: HeldHere = lambda *_: False,
        service: str = "",
    ) -> "PublisherLink":
        """`service` is the name of the publisher in Kerberos, as its resolver told it."""
        credentials = await prepared(proof_for(settings.identity.proof, service), address)
        caller = await open_caller(
            address,
            lambda: Caller(
                f"{SOFTWARE} subscriber",
                hello_timeout_ms=settings.timeout_ms,
                keepalive_ms=settings.keepalive_ms,
                credentials=credentials,
                tongue=OF_PUBLISHERS,
            ),
            timeout_ms=settings.timeout_ms,
            **settings.identity.files(),
        )
        return PublisherLink(
            instance, caller, settings, updated=updated, ended=ended, lost=lost, is_held=is_held
        )

    @property
    def is_over(self) -> bool:
        return self._is_over

    def holds(self, one: int) -> bool:
        """Whether it is still subscribed: its end may have come right behind its value."""
        return one in self._held and not self._is_over

    async def subscribe(self, grants: Sequence[tuple[str, Grant]]) -> list[SubscribedValue]:
        """For each path its id and value, or why not; in their order."""
        groups: dict[Group, list[int]] = {}
        for place, (_, grant) in enumerate(grants):
            groups.setdefault((grant.resolver, grant.expires_s, grant.holder), []).append(place)
        cuts = [
            (group, places[start : start + CLAIMS_PER_CALL_MAX])
            for group, places in groups.items()
            for start in range(0, len(places), CLAIMS_PER_CALL_MAX)
        ]
        found: list[SubscribedValue | None] = [None] * len(grants)
        while cuts:
            cuts = await self._asked_once(grants, cuts, found)
        return [one for one in found if one is not None]

    async def _asked_once(
        self,
        grants: Sequence[tuple[str, Grant]],
        cuts: Sequence[Cut],
        found: list[SubscribedValue | None],
    ) -> list[Cut]:
        """Puts what is answered at its places; what is to be asked again, since its answer was full."""
        calls: list[int] = []
        makes = [
            partial(self._asked, calls, group, [grants[at] for at in places])
            for group, places in cuts
        ]
        try:
            async with asyncio.timeout(self._settings.timeout_ms / 1_000):
                # Heard in their order among what is pushed: between a value and its updates is no gap.
                answers = await self._caller.call_all(makes, heard=self._subscribed)
        except (TimeoutError, asyncio.CancelledError):
            self._given_up.update(call for call in calls if call in self._asking)
            raise
        again: list[Cut] = []
        for (group, places), answer in zip(cuts, answers, strict=True):
            if isinstance(answer, Failed):
                raise CallFailed.of(answer.code, answer.text)
            if not isinstance(answer, ValuesSubscribed) or len(answer.values) != len(places):
                raise Malformed("an answer that is none to a subscription")
            left: list[int] = []
            for at, value in zip(places, answer.values, strict=True):
                if value.code == AGAIN:
                    left.append(at)
                else:
                    found[at] = value
            if len(left) == len(places):
                raise Malformed("an answer to a subscription that answers nothing")
            # Large values: about as many fit the next answer as did this one.
            fitting = len(places) - len(left)
            again += [
                (group, left[start : start + fitting]) for start in range(0, len(left), fitting)
            ]
        return again

    def _asked(
        self, calls: list[int], group: Group, grants: Sequence[tuple[str, Grant]], call: int
    ) -> SubscribeValues:
        calls.append(call)
        self._asking[call] = [path for path, _ in grants]
        resolver, expires_s, holder = group
        claims = [(path, grant.permissions, grant.token) for path, grant in grants]
        return SubscribeValues(call, resolver, holder, expires_s, claims, self._settings.conflate)

    def _subscribed(self, answer: Answer) -> None:
        paths = self._asking.pop(answer.call, [])
        is_late = answer.call in self._given_up
        self._given_up.discard(answer.call)
        if isinstance(answer, ValuesSubscribed):
            came = {value.id: value.value for value in answer.values if not value.code}
            self._held.update(came)
            self.latest.update(came)
            for path, value in zip(paths, answer.values, strict=False):
                if not value.code and is_late:
                    self._came_late[path] = value.id
                elif not value.code:
                    self._came_late.pop(path, None)  # whoever asked has it, or leaves it
        if self._came_late:
            self._leave_late(paths)

    def _leave_late(self, paths: Sequence[str]) -> None:
        """What came when nobody waited any more is not wanted, unless somebody has it or asks for it again:
        then that answer tells, and to end it now would end the other one."""
        asked = {path for others in self._asking.values() for path in others}
        late = {
            path: self._came_late.pop(path)
            for path in paths
            if path in self._came_late and path not in asked
        }
        if left := [one for one in late.values() if not self._is_held(self, one)]:
            self.unsubscribe(left)

    def unsubscribe(self, ids: Sequence[int]) -> None:
        self._forget(ids)
        if not self._is_over:
            self._caller.cast(lambda call: UnsubscribeValues(call, list(ids)))

    async def write(self, one: int, value: Any, *, wants_receipt: bool) -> Any:
        answer = await self._caller.call(
            lambda call: WriteValue(call, one, value, wants_receipt), ValueWritten
        )
        return answer.value

    def close(self) -> None:
        self._is_over = True
        self._watching.cancel()
        self._caller.close("DONE", "the subscriber is done")

    # --- what is heard ----------------------------------------------------------------------------

    def _pushed(self, messages: list[Message]) -> None:
        self._heard_ms = monotonic_ms()
        for message in messages:
            match message:
                case ValuesChanged(ids, values, is_end):
                    if len(ids) != len(values):
                        self._caller.close("MALFORMED", "a value for each id")
                        return
                    self._changed(ids, values, is_end=is_end)
                case ValuesEnded(ids, code):
                    # First, so that whoever held them keeps the last value that there was.
                    self._ended(self, ids, code)
                    self._forget(ids)
                case _:
                    pass

    def _changed(self, ids: list[int], values: list[Any], *, is_end: bool) -> None:
        if not is_end or self._ids:
            self._ids += ids
            self._values += values
            if len(self._ids) > VALUE_BATCH_UPDATES_MAX:
                self._caller.close("MALFORMED", "a batch without an end")
                return
            if not is_end:
                return
            ids, values = self._ids, self._values
            self._ids, self._values = [], []
        self.latest.update(zip(ids, values, strict=True))
        if len(self.latest) > len(self._held):
            # On their way when they were given up. Ids are never given twice: they would stay for good.
            for one in self.latest.keys() - self._held:
                del self.latest[one]
        self._updated(self, ids, values)

    def _forget(self, ids: Sequence[int]) -> None:
        self._held.difference_update(ids)
        for one in ids:
            self.latest.pop(one, None)

    async def _watch(self) -> None:
        """Loses a publisher that says nothing. Whoever is behind in reading has heard it all the same."""
        dead_ms = self._settings.dead_ms
        while True:
            silent_ms = monotonic_ms() - self._heard_ms
            if silent_ms < dead_ms:
                await asyncio.sleep(max(1, dead_ms - silent_ms) / 1_000)
                continue
            # It may have been ourselves who stood still: what has come meanwhile is read first.
            await asyncio.sleep(VALUE_LAST_LOOK_MS / 1_000)
            if monotonic_ms() - self._heard_ms >= dead_ms:
                self._caller.abort()
                self._end(f"the publisher said nothing for {silent_ms} ms")
                return

    def _end(self, why: str) -> None:
        if self._is_over:
            return
        self._is_over = True
        self._watching.cancel()
        self._lost(self, why)


def proof_for(proof: ClientProof, service: str) -> ClientProof:
    """What proves us at a publisher: a ticket is of one service; passwords and tokens are for nodes alone."""
    given = proof.credentials
    if isinstance(given, KerberosCredentials) and service:
        return ClientProof(credentials=msgspec.structs.replace(given, service=service))
    return NO_PROOF

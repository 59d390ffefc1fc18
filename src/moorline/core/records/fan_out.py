"""Room: core/records. What a step's changes are for its audiences, while it is being read.

    fan_out.fan(changes)                 effects: one message for each audience that they are for
    fan_out.end(), fan_out.fail()        the step is over, or is read again

Rows are sent before their step has ended. If it fails, a row that was sent may be in no step at all, when
the next one is read: it came and went in between. So what rows became is remembered until then, and
whoever saw one that the next step does not bring is told its deletion.

Invariant, looked at by `check`:

    FO1  those who are sent to are the LIVE ones of their audience
"""

from collections.abc import Mapping, Sequence

from moorline.core.effects import Effect
from moorline.core.records.audience import Audience, Audiences, Outcome
from moorline.core.records.feed_events import How, SendRows, StartSync
from moorline.core.records.subscription import Standing, Subscription
from moorline.core.records.table import After, Change, Key
from moorline.limits import RECORD_UNSETTLED_MAX


class FanOut:
    def __init__(self, audiences: Audiences, subscriptions: Mapping[int, Subscription]) -> None:
        self._audiences = audiences
        self._subscriptions = subscriptions
        self._live: dict[int, tuple[int, ...]] = {}
        """LIVE subscriptions of each audience: made once, and anew where they change."""
        self._begun: set[int] = set()
        """Audiences that were sent something of the step that is being read."""
        self._rolled: dict[int, Audience] = {}
        """Those whose digest it has changed."""
        self._read: list[Change] = []
        self._unsettled: dict[Key, list[Change]] = {}
        """What rows became in steps that have failed, until the next one that ends."""

    # --- to whom ----------------------------------------------------------------------------------

    def live_of(self, audience: Audience) -> tuple[int, ...]:
        found = self._live.get(audience.number)
        if found is None:
            found = self._live[audience.number] = self._found_live(audience)
        return found

    def _found_live(self, audience: Audience) -> tuple[int, ...]:
        members = sorted(audience.members)
        is_live = [self._subscriptions[one].standing is Standing.LIVE for one in members]
        return tuple(one for one, live in zip(members, is_live, strict=True) if live)

    def moved(self, audience: Audience) -> None:
        """Somebody of it became LIVE, or is not any more."""
        self._live.pop(audience.number, None)

    def forget(self, audience: Audience) -> None:
        """Nobody of it is left."""
        self.moved(audience)
        self._begun.discard(audience.number)
        self._rolled.pop(audience.number, None)

    def has_begun(self, audience: Audience) -> bool:
        return audience.number in self._begun

    @property
    def is_unsettled(self) -> bool:
        return bool(self._unsettled)

    # --- the step that is being read --------------------------------------------------------------

    def fan(self, changes: Sequence[Change]) -> list[Effect]:
        deletions: dict[int, list[Key]] = {}
        records: dict[int, list[tuple[Key, After]]] = {}
        for change in changes:
            for audience in self._audiences.touched(change):
                outcome = audience.roll(change)
                if outcome is Outcome.NOTHING:
                    continue
                self._rolled[audience.number] = audience
                if outcome is Outcome.DELETION:
                    deletions.setdefault(audience.number, []).append(change.key)
                elif change.after is not None:
                    records.setdefault(audience.number, []).append((change.key, change.after))
            for audience in self._saw_unsettled(change.key):
                if audience.outcome(change) is Outcome.NOTHING:
                    deletions.setdefault(audience.number, []).append(change.key)
            if change.after is not None and len(self._read) <= RECORD_UNSETTLED_MAX:
                # Without its row, and not all of a step that brings a million.
                self._read.append(change._replace(after=change.after._replace(row=b"")))
        effects: list[Effect] = []
        for number in {**deletions, **records}:
            effects += self._send(number, deletions.get(number, []), records.get(number, []))
        return effects

    def _send(
        self, number: int, deletions: list[Key], records: list[tuple[Key, After]]
    ) -> list[Effect]:
        to = self.live_of(self._audiences[number])
        if not to:
            return []
        effects: list[Effect] = []
        if number not in self._begun:
            self._begun.add(number)
            effects.append(StartSync(to, How.LIVE))
        return [*effects, SendRows(to, number, tuple(deletions), tuple(records))]

    def _saw_unsettled(self, key: Key) -> list[Audience]:
        """Those that were sent a row in a step that failed; asked once, when it is settled."""
        found: dict[int, Audience] = {}
        for change in self._unsettled.pop(key, ()):
            for audience in self._audiences.touched(change):
                if audience.outcome(change) is Outcome.RECORD:
                    found[audience.number] = audience
        return list(found.values())

    def settle(self) -> list[Effect]:
        """The step was read to its end: what failed ones sent and it did not bring is not there."""
        deletions: dict[int, list[Key]] = {}
        for key in list(self._unsettled):
            for audience in self._saw_unsettled(key):
                deletions.setdefault(audience.number, []).append(key)
        return [
            effect for number, keys in deletions.items() for effect in self._send(number, keys, [])
        ]

    def end(self) -> set[int]:
        """The audiences that were sent something; their digests are those of the step from now on."""
        for audience in self._rolled.values():
            audience.settle()
        begun, self._begun = self._begun, set()
        self._rolled, self._read, self._unsettled = {}, [], {}
        return begun

    def fail(self) -> bool:
        """The step is read again. False: it sent more than is remembered, and only scans can tell."""
        for audience in self._rolled.values():
            audience.settle(has_failed=True)
        for change in self._read:
            self._unsettled.setdefault(change.key, []).append(change)
        self._rolled, self._read, self._begun = {}, [], set()
        if len(self._unsettled) <= RECORD_UNSETTLED_MAX:
            return True
        self._unsettled = {}
        return False

    def drop(self) -> None:
        """Everybody is synced anew: nothing of what was sent matters."""
        self.fail()
        self._unsettled = {}

    def check(self) -> None:
        for number, to in self._live.items():
            assert number in self._audiences, f"FO1: {number} is gone"
            right = self._found_live(self._audiences[number])
            assert to == right, f"FO1: sent to {to} in place of {right}"

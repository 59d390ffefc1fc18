"""Room: console. Views: what changes while somebody looks, pushed to all who look at the same.

    views.serve("groups", ViewSource(look, VIEW_GROUP_MS))
    views.changed("groups", "$shared/crew/#")       something moved: look at it soon

A view is a value on a board, as a publisher has one (core/values/board.py), and its followers are sessions.
It is there while somebody follows it: one task looks at it now and then, in the name of one of them, and what
differs from before is encoded once for all that speak alike. Nothing is computed where nobody looks, and what
takes long to find is looked at less often.

Whoever begins is judged by a look of its own, and all are judged again by one behind each change of rights:
until then nothing is pushed to them. To one that does not read nothing is pushed either, and then the latest.
"""

import asyncio
import logging
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from moorline.access.demands import Demands
from moorline.access.guard import Declarations, Declared, heavy, own
from moorline.access.quotas import account_of
from moorline.core.values.batch import Batch
from moorline.core.values.board import Board
from moorline.errors import Denied, LimitReached, MoorlineError, NotFound, RightsUnknown
from moorline.limits import (
    VIEW_BYTES_MAX,
    VIEW_PUSH_MS_MIN,
    VIEW_REST_MS_MAX,
    VIEW_REST_TIMES,
    VIEWS_MAX,
    VIEWS_PER_PRINCIPAL_MAX,
    VIEWS_PER_SESSION_MAX,
)
from moorline.net.clock import monotonic_ms
from moorline.net.session import Session
from moorline.net.tasks import Tasks
from moorline.net.turns import Turns
from moorline.wire.message import Answer, Message
from moorline.wire.value import (
    SubscribedValue,
    UnsubscribeValues,
    ValuesChanged,
    ValuesEnded,
    ValuesSubscribed,
    ValuesUnsubscribed,
)
from moorline.wire.view import SubscribeView

log = logging.getLogger("moorline.console")

TOO_LARGE: Final = "TOO_LARGE"


class Seen(NamedTuple):
    """What a look has found."""

    name: str
    """Its one name: two that ask by different names look at the same, and two that are answered differently
    do not."""
    value: Any
    """Without what changes though nothing happens."""


class ViewSource(NamedTuple):
    """Where the views of a kind come from."""

    look: Callable[[Session, str], Awaitable[Seen]]
    """What a session is answered that asks for the view of that name; raises what it is refused with."""
    every_ms: int


class View:
    """One that somebody follows."""

    def __init__(self, path: str, name: str, source: ViewSource) -> None:
        self.path, self.name, self.source = path, name, source
        self.id = 0
        self.judged: dict[Session, int] = {}
        """Who follows, and behind which change of rights each was judged."""
        self.moved = asyncio.Event()
        self.task: asyncio.Task[None] | None = None


class Views:
    """Answers `SubscribeView`; the node adds where its views come from."""

    def __init__(self, demands: Demands) -> None:
        self._demands = demands
        self._sources: dict[str, ViewSource] = {}
        self._board = Board[Session]()
        self._views: dict[str, View] = {}
        self._by_id: dict[int, View] = {}
        self._of_session: dict[Session, set[int]] = {}
        self._of_account: defaultdict[str, Counter[int]] = defaultdict(Counter)
        """What each principal follows, and in how many windows."""
        self._owed: dict[Session, set[int]] = {}
        """What changed while they did not read."""
        self._rights_changed = 0
        self._turns = Turns()
        self._tasks = Tasks("a view failed")
        self.looks = 0

    def serve(self, kind: str, source: ViewSource) -> None:
        self._sources[kind] = source

    def declared(self) -> Declarations:
        # What a look refuses is a refusal of this call, whatever it looks at.
        told = self._demands.telling(self._subscribe, lambda call: f"/{call.view}")
        subscribe: Declared = heavy(own(self._turns.spawned(told)))
        return {SubscribeView: subscribe, UnsubscribeValues: own(self._unsubscribe)}

    def close(self) -> None:
        self._turns.close()
        self._tasks.cancel()

    def __len__(self) -> int:
        return len(self._views)

    def changed(self, kind: str, name: str) -> None:
        view = self._views.get(f"{kind}/{name}")
        if view is not None:
            view.moved.set()

    def stirred(self, kind: str, name: object) -> None:
        """The same where it happens often, and the name costs something."""
        if self._views:
            self.changed(kind, str(name))

    def changed_within(self, prefix: str) -> None:
        """All whose kind and name begin so."""
        for path, view in self._views.items():
            if path.startswith(prefix):
                view.moved.set()

    def judge_soon(self) -> None:
        """Behind a change of rights: nobody is told more before it was judged anew."""
        self._rights_changed += 1
        for view in self._views.values():
            view.moved.set()

    # --- who follows ------------------------------------------------------------------------------

    async def _subscribe(self, session: Session, call: SubscribeView) -> Answer:
        kind, _, asked = call.view.partition("/")
        source = self._sources.get(kind)
        if source is None:
            raise NotFound(
                f"there is no view {kind!r}: there are {', '.join(sorted(self._sources))}"
            )
        self._check_session(session)
        version = self._rights_changed
        name, value = await source.look(session, asked)
        self._check_session(session)
        if not session.is_open:
            return ValuesSubscribed(call.call, [])
        path = f"{kind}/{name}" if name else kind
        self._check_room(session, path)
        view = self._view(path, name, source)
        if session not in self._of_session:
            self._of_session[session] = set()
            session.at_end(lambda: self._gone(session))
        if view.id not in self._of_session[session]:
            self._of_session[session].add(view.id)
            self._of_account[_account_of(session)][view.id] += 1
        self._board.follow(session, [view.id])
        view.judged[session] = version
        if version != self._rights_changed:
            view.moved.set()
        self._put(view, value, but=session)
        return ValuesSubscribed(call.call, [SubscribedValue("", view.id, value)])

    def _check_session(self, session: Session) -> None:
        if len(self._of_session.get(session, ())) >= VIEWS_PER_SESSION_MAX:
            raise LimitReached(f"a session has {VIEWS_PER_SESSION_MAX} views at most: give some up")

    def _check_room(self, session: Session, path: str) -> None:
        """One that somebody watches already costs nobody anything more."""
        view = self._views.get(path)
        own = self._of_account.get(_account_of(session), Counter[int]())
        if len(own) >= VIEWS_PER_PRINCIPAL_MAX and (view is None or view.id not in own):
            raise LimitReached(
                f"a principal has {VIEWS_PER_PRINCIPAL_MAX} views of a node at most, in all of its windows: "
                "give some up"
            )
        if view is None and len(self._views) >= VIEWS_MAX:
            raise LimitReached(f"a node has {VIEWS_MAX} views at most: try again later")

    def _view(self, path: str, name: str, source: ViewSource) -> View:
        view = self._views.get(path)
        if view is None:
            view = self._views[path] = View(path, name, source)
            view.id = self._board.publish(path, None)
            self._by_id[view.id] = view
            view.task = self._tasks.spawn(self._keep(view))
        return view

    def _unsubscribe(
        self, session: Session, calls: list[UnsubscribeValues]
    ) -> Iterable[ValuesUnsubscribed]:
        for call in calls:
            for one in call.ids:
                self._leave(session, one)
        return [ValuesUnsubscribed(call.call) for call in calls]

    def _gone(self, session: Session) -> None:
        for one in list(self._of_session.get(session, ())):
            self._leave(session, one)
        self._of_session.pop(session, None)
        self._owed.pop(session, None)

    def _leave(self, session: Session, one: int) -> None:
        held = self._of_session.get(session, set())
        if one not in held:
            return
        held.discard(one)
        self._give_up(_account_of(session), one)
        self._owed.get(session, set()).discard(one)
        view = self._by_id[one]
        self._board.unfollow(session, [one])
        del view.judged[session]
        if not view.judged:
            self._board.unpublish(one)
            del self._views[view.path], self._by_id[one]
            assert view.task is not None
            view.task.cancel()

    def _give_up(self, account: str, one: int) -> None:
        own = self._of_account[account]
        own[one] -= 1
        if not own[one]:
            del own[one]
        if not own:
            del self._of_account[account]

    # --- one view ---------------------------------------------------------------------------------

    async def _keep(self, view: View) -> None:
        while True:
            try:
                async with asyncio.timeout(view.source.every_ms / 1_000):
                    await view.moved.wait()
            except TimeoutError:
                pass
            view.moved.clear()
            began_ms = monotonic_ms()
            await self._look(view)
            # However fast it moves: what comes meanwhile is seen together.
            rest_ms = min(VIEW_REST_MS_MAX, VIEW_REST_TIMES * (monotonic_ms() - began_ms))
            await asyncio.sleep(max(VIEW_PUSH_MS_MIN, rest_ms) / 1_000)

    async def _look(self, view: View) -> None:
        """Once for all of them, in the name of the first; and once for each that is to be judged anew."""
        found: Seen | None = None
        for session, judged in list(view.judged.items()):
            version = self._rights_changed
            if found is not None and judged == version:
                continue
            try:
                self.looks += 1
                now = await view.source.look(session, view.name)
                if now.name != view.name:
                    raise NotFound("that name means another one by now")
            except (Denied, RightsUnknown) as error:
                self._end(view, [session], error.code)
                continue
            except MoorlineError as error:
                # No other would be answered anything else.
                self._end(view, list(view.judged), error.code)
                return
            except Exception:
                log.exception("a view was not found", extra={"view": view.path})
                self._end(view, list(view.judged), "INTERNAL")
                return
            if session in view.judged:
                view.judged[session] = version
                found = now
        if found is not None and view.judged:
            self._put(view, found.value)

    def _put(self, view: View, value: Any, *, but: Session | None = None) -> None:
        """Tells all who follow it, but one that is told by its answer."""
        if value == self._board.value_of(view.id):
            return
        self._board.update(view.id, value)
        batch = self._board.commit()
        assert batch is not None, "an update was made"
        made: dict[object, Sequence[bytes | bytearray]] = {}
        for followers, part in self._board.parts(batch):
            for session in followers:
                if session is but:
                    continue
                if view.judged.get(session) != self._rights_changed or not session.writable:
                    self._owe(session, view)
                    continue
                self._push(session, view, part, made)

    def _push(
        self,
        session: Session,
        view: View,
        batch: Batch,
        made: dict[object, Sequence[bytes | bytearray]],
    ) -> None:
        frames = made.get(session.encode)
        if frames is None:
            # One for all who speak alike.
            frames, unsendable = session.encode([ValuesChanged(batch.ids, batch.values)])
            if unsendable or sum(map(len, frames)) > VIEW_BYTES_MAX:
                frames = ()
            made[session.encode] = frames
        if frames:
            session.send_frames(frames)
        else:
            self._end(view, [session], TOO_LARGE)

    # --- who is behind ----------------------------------------------------------------------------

    def _owe(self, session: Session, view: View) -> None:
        if view.judged.get(session) != self._rights_changed:
            # Judged by the next look, which finds what it was not told.
            view.moved.set()
        is_first = session not in self._owed
        self._owed.setdefault(session, set()).add(view.id)
        if is_first:
            self._tasks.spawn(self._tell_latest(session))

    async def _tell_latest(self, session: Session) -> None:
        """When it reads again, or was judged: what is so now, and nothing of what was so meanwhile."""
        try:
            while session.is_open and self._owed.get(session):
                await session.room_to_write()
                for one in list(self._owed.get(session, ())):
                    view = self._by_id.get(one)
                    if view is None or not session.writable or session not in view.judged:
                        continue
                    if view.judged[session] == self._rights_changed:
                        self._owed[session].discard(one)
                        value = self._board.value_of(one)
                        self._push(session, view, Batch([one], [value]), {})
                if self._owed.get(session):
                    await asyncio.sleep(VIEW_PUSH_MS_MIN / 1_000)
        finally:
            self._owed.pop(session, None)

    def _end(self, view: View, sessions: list[Session], code: str) -> None:
        for session in sessions:
            if session in view.judged:
                self._leave(session, view.id)
                told: Message = ValuesEnded([view.id], code)
                session.send(told)


def _account_of(session: Session) -> str:
    return account_of(session.identity.principal, session.is_local)


def unnumbered(found: Any, **changes: Any) -> Any:
    """An answer as a value: it answers nobody's call."""
    return msgspec.structs.replace(found, call=0, **changes)

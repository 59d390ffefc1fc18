"""Room: access. What each message needs, checked in one place before its handler hears of it.

    declared = {
        Publish: needs_each(WRITE, topics_published, self._publish, below="/topics"),
        Acknowledge: own(self._acknowledge),
        DeleteQueue: owner_or(ADMINISTER, path_of_queue, owner_of_queue, self._delete),
        ReadStream: nodes_only(self._read),
        Describe: anybody(self._describe),
    }
    handlers = Guard(trail, trail).guarded(declared)

A handler gets those calls of a run that are granted, in one run as before; each of the others is answered
by `Failed("DENIED")`, and the audit hears of it. The text of a refusal is made from the call and the right
alone: nothing in it tells what exists. Where a principal has a right at everything below a path, a whole run
costs one look.

What is done by the right `a`, and not by an owner, is an operator's act: it is in the audit before its
handler hears of it. So is a look of another than the owner into what somebody owns (`is_look`), added up.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from itertools import chain
from typing import Any, Final, NamedTuple, NoReturn, Protocol, cast

from moorline.access.rights import UNKNOWN
from moorline.core.access.quota import Quota
from moorline.core.access.right import ADMINISTER, NAMES, OWNERS, letters_of
from moorline.errors import Denied, OverQuota, RightsUnknown
from moorline.net.session_rights import (
    ALL,
    SessionAllowance,
    SessionRights,
    Wanted,
    undenied_at,
)
from moorline.net.turns import Turns
from moorline.wire.message import Answer, Call, Failed, Message

HEAVY: Final = (Quota.HEAVY_CALLS_PER_S, 1)

NODES_ONLY = "only the nodes of the cluster may ask for this"


class Guarded(Protocol):
    """What the guard asks of a session."""

    @property
    def rights(self) -> SessionRights: ...

    @property
    def allowance(self) -> SessionAllowance | None: ...


class Refusals(Protocol):
    """Who hears of refusals: the audit."""

    def refused(self, session: Any, /, act: str, path: str, code: str) -> None: ...


class Operating(Protocol):
    """Who hears of operators' acts before they are done: the audit too."""

    async def operating(self, session: Any, /, act: str, path: str) -> None:
        """Returns when it is written down; what it raises, the calls are answered."""

    async def looking(self, session: Any, /, act: str, path: str) -> None:
        """The same of a look at what is there, of which many are added up."""


GuardedHandler = Callable[[Any, list[Any]], Iterable[Answer]]
PathsOfCall = Callable[[Any], Iterable[str]]
PathOfCall = Callable[[Any], str]
OwnerOf = Callable[[Any], str | None]
"""Of a call: who owns what it names, found in memory; None or empty where nobody does or nothing is there."""


class Refusal(NamedTuple):
    code: str
    text: str
    path: str


Check = Callable[[SessionRights, Any], Refusal | None]
"""Why a call is refused; None if it is granted."""


AuditedPath = Callable[[SessionRights, Any], str | None]
"""The path under which the audit has a call that is an operator's act; None where it is none."""


class PassingRun(NamedTuple):
    """What comes with every message: a run of calls is let pass by one look at what was found before."""

    wanted: Wanted
    names_of_calls: Callable[[list[Any]], Iterable[Any]]
    """What is looked at in `rights.passing`."""
    finds: Callable[[SessionRights, list[Any]], bool]
    """Whether each of these names is granted; remembers it there."""


class Declared(NamedTuple):
    """A handler with what its calls need. There is no handler without."""

    handler: GuardedHandler
    check: Check | None = None
    right: int = 0
    below: str = ""
    """Whoever has the right at everything below this path needs no check."""
    audited_path: AuditedPath | None = None
    passing: PassingRun | None = None
    """How a whole run is let pass without a check of its calls one by one."""
    is_heavy: bool = False
    """Each call counts by `heavy_calls_per_s`."""
    is_look: bool = False
    """What is audited of it changes nothing, and is added up where it is alike."""


Declarations = Mapping[type[Message], Declared]
"""What a room answers, and what each of it needs."""


def heavy(declared: Declared) -> Declared:
    """What costs far more than its frame: walks over much of what is there, reads of files, questions to the
    catalog about whole sets."""
    return declared._replace(is_heavy=True)


def anybody(handler: GuardedHandler) -> Declared:
    """Answers the same to everybody."""
    return Declared(handler)


def own(handler: GuardedHandler) -> Declared:
    """Names only what this session holds by a right that it has, as an acknowledgement does."""
    return Declared(handler)


def nodes_only(handler: GuardedHandler) -> Declared:
    """What nodes say to each other."""

    def check(rights: SessionRights, _: Any) -> Refusal | None:
        return None if rights.is_node else Refusal(Denied.code, NODES_ONLY, "")

    return Declared(handler, check)


def demanded(handler: GuardedHandler) -> Declared:
    """What it needs depends on what the catalog says of the thing it names: the handler asks `demand`, and
    the audit hears of it by `Demands`."""
    return Declared(handler)


def each_by_itself(handler: GuardedHandler) -> Declared:
    """Names many paths, each judged by itself: the answer has a code for each, and what is not granted fails
    nothing else. The handler tells the audit."""
    return Declared(handler)


def needs_everything(right: int, subtree: str, handler: GuardedHandler) -> Declared:
    """The right at a path and at all that is below it, what a wildcard does not match included."""

    def check(rights: SessionRights, _: Any) -> Refusal | None:
        return None if rights.everywhere(subtree) & right else _refusal(rights, right, subtree)

    return Declared(handler, check, right, subtree)


def needs_somewhere(right: int, apart: frozenset[str], handler: GuardedHandler) -> Declared:
    """The right at some path at least, below other first levels than those: what comes behind it is judged
    path by path."""

    def check(rights: SessionRights, _: Any) -> Refusal | None:
        return None if rights.somewhere(right, "/", apart) else _refusal(rights, right, "/")

    return Declared(handler, check, right, "/")


def needs(
    right: int, paths_of_call: PathsOfCall, handler: GuardedHandler, *, below: str = ""
) -> Declared:
    """The right at each path that a call names; a path may be a filter.

    `below` is a path that all of them are below. What is reserved for nodes is not looked at where a
    principal has the right everywhere: a handler that publishes refuses that itself.
    """

    def check(rights: SessionRights, call: Any) -> Refusal | None:
        for path in paths_of_call(call):
            if not rights.at(path) & right:
                return _refusal(rights, right, path)
        return None

    def audited_path(_: SessionRights, call: Any) -> str | None:
        return next(iter(paths_of_call(call)), None)

    return Declared(handler, check, right, below, audited_path if right & ADMINISTER else None)


def needs_each(
    right: int,
    names_of_calls: Callable[[list[Any]], list[str]],
    handler: GuardedHandler,
    *,
    below: str,
) -> Declared:
    """The right at `below/NAME` for each name of a call, of which there may be hundreds: what was granted
    before is one look for all of a run. What `needs` says of `below` holds here too."""

    def check(rights: SessionRights, call: Any) -> Refusal | None:
        lacking = rights.first_lacking(right, below, names_of_calls([call]))
        return None if lacking is None else _refusal(rights, right, lacking)

    def finds(rights: SessionRights, names: list[str]) -> bool:
        return rights.all_granted(right, below, names)

    return Declared(handler, check, passing=PassingRun((right, below), names_of_calls, finds))


def owner_or(
    right: int,
    path_of_call: PathOfCall,
    owner_of: OwnerOf,
    handler: GuardedHandler,
    *,
    below: str = "",
    is_look: bool = False,
) -> Declared:
    """The right at the path, or to be the owner of what is there. With `is_look` the audit has each look of
    somebody else's into what somebody owns."""

    def check(rights: SessionRights, call: Any) -> Refusal | None:
        # The rows first: what an owner may do without them it may do whatever they say.
        path = path_of_call(call)
        if rights.at(path) & right or is_owners(rights, right, owner_of(call)):
            return None
        return _refusal(rights, right, path)

    def audited_path(rights: SessionRights, call: Any) -> str | None:
        owner = owner_of(call)
        is_nobodys = is_look and not owner
        return None if is_nobodys or is_owners(rights, right, owner) else path_of_call(call)

    is_audited = is_look or right & ADMINISTER
    path = audited_path if is_audited else None
    return Declared(handler, check, right, below, path, is_look=is_look)


def unless_denied(
    right: int,
    id_of_call: Callable[[Any], bytes],
    path_of: Callable[[bytes], str],
    owner_of: OwnerOf,
    handler: GuardedHandler,
    *,
    below: str,
) -> Declared:
    """Whoever can name what is there has the right, if no row at the path or above denies it; the owner
    has it always. While no row below `below` denies it to somebody, a whole run of theirs costs one look; and
    else one for all the ids where that was looked up before."""

    def check(rights: SessionRights, call: Any) -> Refusal | None:
        path = path_of(id_of_call(call))
        if not rights.denied(right, path) or is_owners(rights, right, owner_of(call)):
            return None
        return _refusal(rights, right, path)

    def ids_of_calls(calls: list[Any]) -> Iterable[bytes]:
        return map(id_of_call, calls)

    def finds(rights: SessionRights, ids: list[bytes]) -> bool:
        return rights.all_undenied(right, below, ids, path_of)

    passing = PassingRun((right, undenied_at(below)), ids_of_calls, finds)
    return Declared(handler, check, right, passing=passing)


def demand(rights: SessionRights, right: int, path: str, owner: str | None = None) -> None:
    """For handlers that have to ask the catalog first; raises what a guarded call would be answered with."""
    if not rights.at(path) & right and not is_owners(rights, right, owner):
        _refuse(rights, right, path)


def demand_everything(rights: SessionRights, right: int, subtree: str) -> None:
    """The same for `needs_everything`: behind a wait, in which the right may have been taken away."""
    if not rights.everywhere(subtree) & right:
        _refuse(rights, right, subtree)


def demand_somewhere(rights: SessionRights, right: int, below: str) -> None:
    """The right at some path at or below one: for what begins before it is known which path is meant."""
    if not rights.somewhere(right, below):
        _refuse(rights, right, below)


def demand_unless_denied(
    rights: SessionRights, right: int, path: str, owner: str | None = None
) -> None:
    """The same for `unless_denied`."""
    if rights.denied(right, path) and not is_owners(rights, right, owner):
        _refuse(rights, right, path)


def _refuse(rights: SessionRights, right: int, path: str) -> NoReturn:
    try:
        rights.check_known()
    except RightsUnknown as error:
        error.path = path
        raise
    raise denied(right, path)


def denied(right: int, path: str) -> Denied:
    """What to raise where a right is missing."""
    error = Denied(text_of(right, path))
    error.path = path
    return error


def is_owners(rights: SessionRights, right: int, owner: str | None) -> bool:
    return bool(right & OWNERS and owner and rights.is_known and rights.owns(owner))


def text_of(right: int, path: str) -> str:
    """The same for what is not there and for what is not allowed."""
    return f"the right {letters_of(right)} ({NAMES[right]}) is not granted at {path}"


class Guard:
    """Puts the check before the handler."""

    def __init__(self, refusals: Refusals, operating: Operating | None = None) -> None:
        """Without `operating` no act is written down: for tests of rights alone."""
        self._refusals = refusals
        self._operating = operating
        self._turns = Turns()

    def close(self) -> None:
        self._turns.close()

    def guarded(self, declared: Declarations) -> dict[type[Message], GuardedHandler]:
        """The handlers of a node. One that does not say what it needs is our mistake: no node starts."""
        for kind, one in declared.items():
            assert isinstance(one, Declared), f"{kind.__name__} does not say what it needs"
        return {kind: self._guarded(kind, one) for kind, one in declared.items()}

    def _guarded(self, kind: type[Message], declared: Declared) -> GuardedHandler:
        if declared.is_heavy:
            # Behind the rights: who has none is told so, and pays nothing.
            declared = declared._replace(
                handler=self._rated(kind, declared.handler), is_heavy=False
            )
        handler, check, right, below, audited_path, passing, _, is_look = declared
        if check is None:
            return handler
        checked = self._checked(kind, handler, check)
        if passing is not None:
            return _let_pass(passing, handler, checked)
        if audited_path is not None and self._operating is not None:
            # While a line is written rights may change: they are looked at again behind it.
            operating = self._operating
            write = operating.looking if is_look else operating.operating
            handler = self._audited(kind, checked, audited_path, write)
            checked = self._checked(kind, handler, check)
        if not below:
            return checked

        def handle(session: Guarded, calls: list[Any]) -> Iterable[Answer]:
            if session.rights.everywhere(below) & right:
                return handler(session, calls)
            return checked(session, calls)

        return handle

    def _audited(
        self,
        kind: type[Message],
        handler: GuardedHandler,
        audited_path: AuditedPath,
        write: Callable[..., Awaitable[None]],
    ) -> GuardedHandler:
        """Calls that are granted, of which some are an operator's acts: those wait for their lines."""
        assert issubclass(kind, Call), f"{kind.__name__} is done without an answer"
        act = kind.__name__

        async def record(session: Any, calls: list[Any]) -> list[Answer]:
            paths = [
                path for call in calls if (path := audited_path(session.rights, call)) is not None
            ]
            await asyncio.gather(*(write(session, act, path) for path in paths))
            return list(handler(session, calls))

        recorded = self._turns.together(record)

        def handle(session: Guarded, calls: list[Any]) -> Iterable[Answer]:
            if all(audited_path(session.rights, call) is None for call in calls):
                return handler(session, calls)
            return recorded(cast("Any", session), calls)

        return handle

    def _rated(self, kind: type[Message], handler: GuardedHandler) -> GuardedHandler:
        refusals, act = self._refusals, kind.__name__

        def handle(session: Guarded, calls: list[Any]) -> Iterable[Answer]:
            allowance = session.allowance
            if allowance is None:
                return handler(session, calls)
            given: list[Any] = []
            answers: list[Answer] = []
            for call in calls:
                try:
                    allowance.take(HEAVY)
                except OverQuota as error:
                    refusals.refused(session, act, error.path, error.code)
                    answers.append(Failed.of(call.call, error))
                else:
                    given.append(call)
            return _and_those_of(answers, handler, session, given)

        return handle

    def _checked(
        self, kind: type[Message], handler: GuardedHandler, check: Check
    ) -> GuardedHandler:
        refusals, act, has_answer = self._refusals, kind.__name__, issubclass(kind, Call)

        def handle(session: Guarded, calls: list[Any]) -> Iterable[Answer]:
            rights = session.rights
            granted: list[Any] = []
            answers: list[Answer] = []
            is_refused = False
            for call in calls:
                refusal = check(rights, call)
                if refusal is None:
                    granted.append(call)
                    continue
                is_refused = True
                refusals.refused(session, act, refusal.path, refusal.code)
                if has_answer:
                    answers.append(Failed(call.call, refusal.code, refusal.text))
            if not is_refused:
                return handler(session, calls)
            return _and_those_of(answers, handler, session, granted)

        return handle


def _let_pass(
    passing: PassingRun, handler: GuardedHandler, checked: GuardedHandler
) -> GuardedHandler:
    wanted, names_of_calls, finds = passing

    def handle(session: Guarded, calls: list[Any]) -> Iterable[Answer]:
        # Written out: this is what rights cost a message.
        rights = session.rights
        found = rights.passing.get(wanted)
        if found is ALL:
            return handler(session, calls)
        if found is not None and found.issuperset(names_of_calls(calls)):
            return handler(session, calls)
        if finds(rights, list(names_of_calls(calls))):
            return handler(session, calls)
        return checked(session, calls)

    return handle


def _and_those_of(
    answers: list[Answer], handler: GuardedHandler, session: Guarded, calls: list[Any]
) -> Iterable[Answer]:
    """Answers that are known, and what the handler says of the other calls."""
    if not calls:
        return answers
    given = handler(session, calls)
    if not answers:
        return given
    if isinstance(given, (list, tuple)):
        return [*answers, *given]
    return chain(answers, given)


def _refusal(rights: SessionRights, right: int, path: str) -> Refusal:
    if not rights.is_known:
        return Refusal(RightsUnknown.code, UNKNOWN, path)
    return Refusal(Denied.code, text_of(right, path), path)

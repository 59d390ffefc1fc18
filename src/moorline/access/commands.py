"""Room: access. Answers what is asked about rights, users, quotas and owners.

A change is one transaction of the catalog (`catalog/access.py`): answered by `Failed` it was not made, and
will not be. It is in the audit before it is made; before it is answered this node has it in force, and the
others follow within their `access.revocation_ms`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, Protocol

import msgspec

from moorline.access.guard import Declared, GuardedHandler, Refusals, anybody, heavy, needs
from moorline.access.owner_page import OldOwner, owner_page
from moorline.access.passwords import is_too_long, store_password
from moorline.access.rights import Rights
from moorline.access.rights_table import RightsTable
from moorline.access.tokens import new_token, token_hash
from moorline.catalog.access import GrantEntry, check_quota
from moorline.catalog.users import PasswordHash, Users
from moorline.core.access.audit import NO_DETAIL, Detail
from moorline.core.access.principal import ANONYMOUS, EVERYONE, Proof, check_subject, level_of
from moorline.core.access.right import EVERYTHING, GRANT, LETTERS, bits_of, letters_of
from moorline.core.access.row import OWN, OWN_PATH, OWN_PLACES, Row, Subjects, check_row
from moorline.errors import BadGrant, MoorlineError, NotFound
from moorline.limits import (
    PASSWORD_BYTES_MAX,
    PASSWORD_HASHES_AT_ONCE,
    USERS_PAGE_BYTES_MAX,
)
from moorline.net.session import Session, each
from moorline.net.turns import Turns
from moorline.wire import access as wire
from moorline.wire.message import Answer, Message
from moorline.wire.queue import Done

USERS = "/admin/users"
"""Who has `g` here may do anything: set a password, or join a group of users."""

SUBTREES = (
    "/",
    "/topics",
    "/queues",
    "/services",
    "/groups",
    "/sessions",
    "/records",
    "/values",
    "/admin",
)


class Changes(Refusals, Protocol):
    """Who hears of changes, before they are made, and of refusals: the audit."""

    async def changing(self, session: Session, /, act: str, path: str, detail: Detail) -> None:
        """Returns when it is written down; what it raises, the caller is answered."""


class AccessBroker:
    def __init__(
        self,
        users: Users,
        table: RightsTable,
        audit: Changes,
        expires_us: Callable[[Any], int] = lambda _: 0,
    ) -> None:
        """`expires_us` says of a session when its proof ends."""
        self.old_owners: Callable[[], Mapping[str, OldOwner]] = dict
        """Certificates that have queues here, by their fingerprints in hex."""
        self._users = users
        self._table = table
        self._audit = audit
        self._expires_us = expires_us
        self._hashing = asyncio.Semaphore(PASSWORD_HASHES_AT_ONCE)
        self._turns = Turns()

    def declared(self) -> Mapping[type[Message], Declared]:
        """Each message with what it needs."""

        def later(handle: Callable[[Any, Any], Awaitable[Answer]]) -> GuardedHandler:
            async def checked(session: Session, call: Any) -> Answer:
                _check_texts(call)
                return await handle(session, call)

            return self._turns.later(checked)

        return {
            wire.WhoAmI: anybody(each(self._who_am_i)),
            wire.CheckGrant: heavy(needs(GRANT, _of_another, each(self._check))),
            wire.ExplainGrant: heavy(needs(GRANT, _of_another, each(self._explain))),
            wire.AddGrant: needs(GRANT, _rows_changed, later(self._add_grant)),
            wire.RemoveGrant: needs(GRANT, _rows_changed, later(self._remove_grant)),
            wire.ListGrants: heavy(needs(GRANT, _rows_changed, later(self._list_grants))),
            wire.KeepGrants: needs(GRANT, lambda _: ("/",), later(self._keep_grants)),
            wire.AddUser: _for_users(later(self._add_user)),
            wire.ChangeUser: _for_users(later(self._change_user)),
            wire.RemoveUser: _for_users(later(self._remove_user)),
            wire.ListUsers: heavy(_for_users(later(self._list_users))),
            wire.AddToken: _for_users(later(self._add_token)),
            wire.RevokeToken: _for_users(later(self._revoke_token)),
            wire.AddMember: _for_users(later(self._add_member)),
            wire.RemoveMember: _for_users(later(self._remove_member)),
            wire.ListMembers: heavy(_for_users(later(self._list_members))),
            wire.SetQuota: _for_users(later(self._set_quota)),
            wire.ListQuotas: heavy(_for_users(later(self._list_quotas))),
            wire.ListOwners: heavy(_for_users(later(self._list_owners))),
            wire.MapOwner: _for_users(later(self._map_owner)),
        }

    def close(self) -> None:
        self._turns.close()

    # --- verdicts ---------------------------------------------------------------------------------

    def _who_am_i(self, session: Session, call: wire.WhoAmI) -> Answer:
        rights = _own_rights(session)
        return wire.Identified(
            call.call,
            rights.principal,
            rights.proof.value,
            tuple(sorted(rights.groups)),
            tuple(
                wire.RightsFacts(
                    path, letters_of(rights.at(path)), letters_of(rights.everywhere(path))
                )
                for path in SUBTREES
            ),
            self._expires_us(session),
            session.identity.proven_name,
        )

    def _check(self, session: Session, call: wire.CheckGrant) -> Answer:
        rights = self._rights_of(session, call.subject)
        return wire.GrantChecked(call.call, rights.allows(_right(call.right), call.path))

    def _explain(self, session: Session, call: wire.ExplainGrant) -> Answer:
        found = self._rights_of(session, call.subject).explain(_right(call.right), call.path)
        decided = tuple(_facts(row) for row in found.decided)
        return wire.GrantExplained(call.call, found.is_granted, found.path, decided)

    def _rights_of(self, session: Session, subject: str) -> "Rights | _Supposed":
        """Of the connection itself, or of somebody as if it had logged on."""
        if not subject:
            rights = _own_rights(session)
            rights.check_known()
            return rights
        check_subject(subject)
        if subject.startswith("@"):
            return _Supposed(self._table, Subjects(ANONYMOUS, frozenset({EVERYONE, subject})))
        proof = Proof.NOTHING if subject == ANONYMOUS else Proof.PASSWORD
        return self._table.rights(subject, proof, is_local=False)

    # --- rows -------------------------------------------------------------------------------------

    async def _add_grant(self, session: Session, call: wire.AddGrant) -> Answer:
        row = Row(call.path, call.subject, bits_of(call.grants), bits_of(call.denies))
        check_row(row)
        for sign, letters in (("+", row.grants), ("-", row.denies)):
            if letters:
                detail = Detail(subject=call.subject, letters=sign + letters_of(letters))
                await self._changing(session, call, call.path, detail)
        after = await self._users.add_grant(row, made_by=session.rights.principal)
        await self._in_force()
        return wire.GrantChanged(call.call, letters_of(after.grants), letters_of(after.denies))

    async def _remove_grant(self, session: Session, call: wire.RemoveGrant) -> Answer:
        letters = bits_of(call.letters) or EVERYTHING
        made_by = session.rights.principal
        detail = Detail(subject=call.subject, letters=letters_of(letters))
        await self._changing(session, call, call.path, detail)
        after = await self._users.remove_grant(call.path, call.subject, letters, made_by=made_by)
        await self._in_force()
        row = after or Row(call.path, call.subject)
        return wire.GrantChanged(call.call, letters_of(row.grants), letters_of(row.denies))

    async def _list_grants(self, _: Session, call: wire.ListGrants) -> Answer:
        place = call.after_path, call.after_subject
        found = await self._users.grants(call.path, call.subject, place, call.count)
        return wire.GrantsListed(call.call, tuple(_entry_facts(entry) for entry in found))

    async def _keep_grants(self, session: Session, call: wire.KeepGrants) -> Answer:
        await self._changing(session, call, "/")
        rows = await self._users.keep_upgraded_rows()
        await self._in_force()
        return wire.GrantsKept(call.call, rows)

    # --- users ------------------------------------------------------------------------------------

    async def _add_user(self, session: Session, call: wire.AddUser) -> Answer:
        password = await self._hashed(call.password) if call.password else None
        await self._changing(session, call, _user(call.name))
        await self._users.add_user(call.name, password)
        return await self._done(call)

    async def _change_user(self, session: Session, call: wire.ChangeUser) -> Answer:
        if call.password is None and call.is_disabled is None:
            raise BadGrant("nothing to change: name a password, or whether it is disabled")
        password = await self._hashed(call.password) if call.password else None
        await self._changing(session, call, _user(call.name))
        await self._users.change_user(
            call.name,
            password=password,
            has_no_password=call.password == b"",
            is_disabled=call.is_disabled,
        )
        return await self._done(call)

    async def _remove_user(self, session: Session, call: wire.RemoveUser) -> Answer:
        await self._changing(session, call, _user(call.name))
        left = await self._users.remove_user(call.name)
        await self._in_force()
        return wire.UserRemoved(call.call, left.memberships, left.grants, left.quotas)

    async def _list_users(self, _: Session, call: wire.ListUsers) -> Answer:
        page: list[wire.UserFacts] = []
        size = 0
        for user in await self._users.users(call.after, call.count):
            facts = wire.UserFacts(
                user.name,
                user.is_disabled,
                user.has_password,
                user.created_us,
                tuple(user.groups),
                tuple(user.tokens),
            )
            size += len(msgspec.msgpack.encode(facts))
            if page and size > USERS_PAGE_BYTES_MAX:
                break
            page.append(facts)
        return wire.UsersListed(call.call, tuple(page))

    async def _add_token(self, session: Session, call: wire.AddToken) -> Answer:
        token = new_token()
        digest = token_hash(token)
        assert digest is not None, "what was made is one"
        await self._changing(session, call, _user(call.name))
        expires_us = await self._users.add_token(
            call.name, call.label, digest, call.expires_s or None
        )
        await self._in_force()
        return wire.TokenAdded(call.call, token, expires_us or 0)

    async def _revoke_token(self, session: Session, call: wire.RevokeToken) -> Answer:
        await self._changing(session, call, _user(call.name))
        if not await self._users.remove_token(call.name, call.label):
            raise NotFound(f"{call.name!r} has no token {call.label!r}")
        return await self._done(call)

    async def _add_member(self, session: Session, call: wire.AddMember) -> Answer:
        await self._changing(session, call, _user(call.group), Detail(subject=call.member))
        is_changed = await self._users.add_member(call.group, call.member)
        await self._in_force()
        return wire.AccessChanged(call.call, is_changed)

    async def _remove_member(self, session: Session, call: wire.RemoveMember) -> Answer:
        await self._changing(session, call, _user(call.group), Detail(subject=call.member))
        is_changed = await self._users.remove_member(call.group, call.member)
        await self._in_force()
        return wire.AccessChanged(call.call, is_changed)

    async def _list_members(self, _: Session, call: wire.ListMembers) -> Answer:
        place = call.after_group, call.after_member
        found = await self._users.members(call.group, place, call.count)
        return wire.MembersListed(call.call, tuple(wire.MemberFacts(*one) for one in found))

    # --- quotas and owners ------------------------------------------------------------------------

    async def _set_quota(self, session: Session, call: wire.SetQuota) -> Answer:
        check_quota(call.subject, call.kind)
        detail = Detail(subject=call.subject, quota=call.kind, bound=call.amount or 0)
        await self._changing(session, call, USERS, detail)
        is_changed = await self._users.set_quota(call.subject, call.kind, call.amount)
        await self._in_force()
        return wire.AccessChanged(call.call, is_changed)

    async def _list_quotas(self, _: Session, call: wire.ListQuotas) -> Answer:
        place = call.after_subject, call.after_kind
        found = await self._users.quotas(call.subject, place, call.count)
        return wire.QuotasListed(call.call, tuple(wire.QuotaFacts(*one) for one in found))

    async def _list_owners(self, _: Session, call: wire.ListOwners) -> Answer:
        found = await self._users.owners(call.after, call.count)
        page = owner_page(found, self.old_owners(), call.after, call.count)
        return wire.OwnersListed(call.call, page)

    async def _map_owner(self, session: Session, call: wire.MapOwner) -> Answer:
        await self._changing(session, call, _user(call.known_as), Detail(subject=call.principal))
        sessions, groups = await self._users.map_owner(call.known_as, call.principal)
        await self._in_force()
        return wire.OwnerMapped(call.call, sessions, groups)

    # --- all of them ------------------------------------------------------------------------------

    async def _changing(
        self, session: Session, call: Any, path: str, detail: Detail = NO_DETAIL
    ) -> None:
        """A line about a change that is then refused by the catalog stays; no change is without one."""
        await self._audit.changing(session, type(call).__name__, path, detail)

    async def _done(self, call: Any) -> Answer:
        await self._in_force()
        return Done(call.call)

    async def _in_force(self) -> None:
        """The change is made, and this node has it before the answer leaves."""
        with suppress(MoorlineError):  # the next look finds it; the change itself is not in doubt
            await self._table.refresh()

    async def _hashed(self, password: bytes) -> PasswordHash:
        try:
            text = password.decode()
        except UnicodeDecodeError:
            raise BadGrant("a password is a text in UTF-8") from None
        if is_too_long(text) or "\0" in text:
            raise BadGrant(
                f"a password has at most {PASSWORD_BYTES_MAX:,} bytes, and no zero character"
            )
        async with self._hashing:
            stored = await asyncio.to_thread(store_password, text)
        cost = stored.cost
        return PasswordHash(1 << cost.cost, cost.block, cost.lanes, stored.salt, stored.hash)


class _Supposed:
    """The rights of a group of users by itself, which nobody has as a connection."""

    def __init__(self, table: RightsTable, subjects: Subjects) -> None:
        self._table = table
        self._subjects = subjects

    def allows(self, right: int, path: str) -> bool:
        return self._table.explain(self._subjects, right, path).is_granted

    def explain(self, right: int, path: str) -> Any:
        return self._table.explain(self._subjects, right, path)


def _user(name: str) -> str:
    return f"{USERS}/{level_of(name)}"


def _for_users(handler: Any) -> Declared:
    return needs(GRANT, lambda _: (USERS,), handler)


def _of_another(call: wire.CheckGrant | wire.ExplainGrant) -> Iterable[str]:
    """What somebody may do itself it may know; of others only whoever manages users."""
    return (USERS,) if call.subject else ()


def _check_texts(call: Message) -> None:
    """Refuses what the catalog cannot keep in a text: of a name that cannot be there nothing is asked."""
    texts = [value for value in msgspec.structs.astuple(call) if isinstance(value, str)]
    if any("\0" in text for text in texts):
        raise BadGrant("a text with a zero character names nothing: leave it out")


def _rows_changed(call: wire.AddGrant | wire.RemoveGrant | wire.ListGrants) -> Iterable[str]:
    """A row for everybody's own level is one for each of them; and one for all that is somebody's own is
    one at each of its places."""
    if call.path == OWN_PATH:
        return [_for_everybody("/" + "/".join(levels)) for levels, _ in OWN_PLACES]
    return (_for_everybody(call.path),)


def _for_everybody(path: str) -> str:
    return "/".join("+" if level == OWN else level for level in path.split("/"))


def _own_rights(session: Session) -> Rights:
    """As the table gave them; other rooms need less of them, and see `SessionRights`."""
    rights = session.rights
    assert isinstance(rights, Rights)
    return rights


def _right(letter: str) -> int:
    if letter not in LETTERS:
        bits_of(letter)  # says which there are
    return LETTERS[letter]


def _facts(row: Row) -> wire.GrantFacts:
    return wire.GrantFacts(row.path, row.subject, letters_of(row.grants), letters_of(row.denies))


def _entry_facts(entry: GrantEntry) -> wire.GrantFacts:
    facts = _facts(entry.row)
    return wire.GrantFacts(
        facts.path, facts.subject, facts.grants, facts.denies, entry.made_by, entry.made_us
    )

"""Room: wire. The messages about rights: who am I, rows, users, tokens, groups of users, quotas, owners.

A change that is answered by `Failed` was not made and will not be, except after OUTCOME_UNKNOWN. Pages begin
behind the last entry of the page before; an empty one is the end.
"""

from typing import Annotated

import msgspec
from msgspec import Meta

from moorline.limits import (
    ACCESS_PAGE_ROWS,
    EXPLAINED_ROWS_MAX,
    GRANT_PATH_BYTES_MAX,
    GROUPS_PER_PRINCIPAL_MAX,
    PASS_LIFE_S,
    PASSWORD_BYTES_MAX,
    PRINCIPAL_CHARACTERS_MAX,
    TEXT_LENGTH_MAX,
    TOKEN_LABEL_CHARACTERS_MAX,
    TOKENS_PER_USER_MAX,
)
from moorline.wire.bounds import Code
from moorline.wire.message import Answer, Call

# Postgres takes no NUL in a text.
PathText = Annotated[str, Meta(max_length=GRANT_PATH_BYTES_MAX, pattern=r"^/[^\x00]*$")]
AfterPath = Annotated[str, Meta(max_length=GRANT_PATH_BYTES_MAX, pattern=r"^[^\x00]*$")]
AskedPath = Annotated[str, Meta(max_length=TEXT_LENGTH_MAX, pattern=r"^/[^\x00]*$")]
"""Of a call or a filter, and not of a row: as long as the names in it."""
ShownPath = Annotated[str, Meta(max_length=TEXT_LENGTH_MAX)]
NameText = Annotated[
    str, Meta(min_length=1, max_length=PRINCIPAL_CHARACTERS_MAX, pattern=r"^[^\x00]*$")
]
"""A principal, or a group of users."""
AnyName = Annotated[str, Meta(max_length=PRINCIPAL_CHARACTERS_MAX, pattern=r"^[^\x00]*$")]
"""The same, or empty for none, or for all."""
LettersText = Annotated[str, Meta(max_length=7)]
OneLetter = Annotated[str, Meta(min_length=1, max_length=1)]
LabelText = Annotated[
    str, Meta(min_length=1, max_length=TOKEN_LABEL_CHARACTERS_MAX, pattern=r"^[^\x00]*$")
]
PasswordBytes = Annotated[bytes, Meta(max_length=PASSWORD_BYTES_MAX)]
TokenText = Annotated[str, Meta(max_length=128)]
OwnerName = Annotated[str, Meta(min_length=1, max_length=1_024, pattern=r"^[^\x00]*$")]
"""What an owner is known as: a principal, or the fingerprint of a certificate in hex."""
AnyOwner = Annotated[str, Meta(max_length=1_024, pattern=r"^[^\x00]*$")]
PageRows = Annotated[int, Meta(ge=1, le=ACCESS_PAGE_ROWS)]
PageMax = Meta(max_length=ACCESS_PAGE_ROWS)
Groups = Annotated[tuple[NameText, ...], Meta(max_length=GROUPS_PER_PRINCIPAL_MAX + 4)]
"""Those of the catalog, and the built-in ones."""


class GrantFacts(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A row: what a subject is granted and denied at a path and below it."""

    path: PathText
    subject: NameText
    grants: LettersText
    denies: LettersText
    made_by: AnyName = ""
    made_us: int = 0


class RightsFacts(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What may be done at a path, and at everything below it too."""

    path: PathText
    at: LettersText
    everywhere: LettersText


class UserFacts(msgspec.Struct, frozen=True, array_like=True):
    name: NameText
    is_disabled: bool
    has_password: bool
    created_us: int
    groups: Groups
    tokens: Annotated[tuple[LabelText, ...], Meta(max_length=TOKENS_PER_USER_MAX)]
    """Their labels."""


class MemberFacts(msgspec.Struct, frozen=True, array_like=True, gc=False):
    group: NameText
    member: NameText


class QuotaFacts(msgspec.Struct, frozen=True, array_like=True, gc=False):
    subject: NameText
    kind: Code
    amount: int


class OwnerFacts(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Somebody who owns something in the catalog; `principal` if it was known by another name."""

    name: AnyOwner
    principal: AnyName
    sessions: int
    groups: int
    queues: int = 0
    """At this node, of the certificate whose fingerprint is the name."""


# --- who am I -------------------------------------------------------------------------------------


class WhoAmI(Call, frozen=True, gc=False, tag=200):
    """Asks whom the node takes this connection for."""


class Identified(Answer, frozen=True, tag=201):
    """`expires_us` is when the proof ends, 0 if it does not by itself."""

    principal: NameText
    proof: Code
    groups: Groups
    rights: Annotated[tuple[RightsFacts, ...], Meta(max_length=16)]
    expires_us: int = 0
    proven_name: AnyName = ""
    """What Kerberos calls it, where the principal was made of that; empty by another proof."""


# --- rows -----------------------------------------------------------------------------------------


class AddGrant(Call, frozen=True, gc=False, tag=202):
    """Adds these letters to the row of a path and a subject; the other letters of it stay."""

    path: PathText
    subject: NameText
    grants: LettersText = ""
    denies: LettersText = ""


class RemoveGrant(Call, frozen=True, gc=False, tag=203):
    """Takes these letters out of a row, granted or denied; all of them if none is named."""

    path: PathText
    subject: NameText
    letters: LettersText = ""


class GrantChanged(Answer, frozen=True, gc=False, tag=204):
    """The row as it is now: without letters if there is none."""

    grants: LettersText
    denies: LettersText


class ListGrants(Call, frozen=True, gc=False, tag=205):
    """A page of the rows at and below a path, of one subject or of all."""

    path: PathText = "/"
    subject: AnyName = ""
    after_path: AfterPath = ""
    after_subject: AnyName = ""
    count: PageRows = ACCESS_PAGE_ROWS


class GrantsListed(Answer, frozen=True, tag=206):
    grants: Annotated[tuple[GrantFacts, ...], PageMax]


class CheckGrant(Call, frozen=True, gc=False, tag=207):
    """Whether a right is granted at a path, or for a filter; to this connection where nobody is named."""

    right: OneLetter
    path: AskedPath
    subject: AnyName = ""


class GrantChecked(Answer, frozen=True, gc=False, tag=208):
    is_granted: bool


class ExplainGrant(Call, frozen=True, gc=False, tag=209):
    """The same, with the rows that decided."""

    right: OneLetter
    path: AskedPath
    subject: AnyName = ""


class GrantExplained(Answer, frozen=True, tag=210):
    """`path` is what was judged: of a filter that is denied, a topic that it takes and that is denied."""

    is_granted: bool
    path: ShownPath
    decided: Annotated[tuple[GrantFacts, ...], Meta(max_length=EXPLAINED_ROWS_MAX)]


class KeepGrants(Call, frozen=True, gc=False, tag=211):
    """Says yes to the rows that an upgrade made to keep what was allowed before."""


class GrantsKept(Answer, frozen=True, gc=False, tag=212):
    rows: int


# --- users ----------------------------------------------------------------------------------------


class AddUser(Call, frozen=True, gc=False, tag=213):
    """Without a password a user has only tokens."""

    name: NameText
    password: PasswordBytes = b""


class ChangeUser(Call, frozen=True, gc=False, tag=214):
    """None leaves a thing as it is; an empty password takes it away. Its connections log on again."""

    name: NameText
    password: PasswordBytes | None = None
    is_disabled: bool | None = None


class RemoveUser(Call, frozen=True, gc=False, tag=215):
    """With its password and its tokens; rows, memberships and quotas are its principal's, and stay."""

    name: NameText


class UserRemoved(Answer, frozen=True, gc=False, tag=216):
    """What is left of its principal."""

    memberships: int
    grants: int
    quotas: int


class ListUsers(Call, frozen=True, gc=False, tag=217):
    after: AnyName = ""
    count: PageRows = ACCESS_PAGE_ROWS


class UsersListed(Answer, frozen=True, tag=218):
    users: Annotated[tuple[UserFacts, ...], PageMax]


class AddToken(Call, frozen=True, gc=False, tag=219):
    """`expires_s` from now; 0 is never."""

    name: NameText
    label: LabelText
    expires_s: Annotated[int, Meta(ge=0, le=10**10)] = 0


class TokenAdded(Answer, frozen=True, gc=False, tag=220):
    """The token, which nobody can be told again."""

    token: TokenText
    expires_us: int


class RevokeToken(Call, frozen=True, gc=False, tag=221):
    name: NameText
    label: LabelText


class AddMember(Call, frozen=True, gc=False, tag=222):
    group: NameText
    member: NameText


class RemoveMember(Call, frozen=True, gc=False, tag=223):
    group: NameText
    member: NameText


class AccessChanged(Answer, frozen=True, gc=False, tag=224):
    """It is as was asked; False if it was so before."""

    is_changed: bool


class ListMembers(Call, frozen=True, gc=False, tag=225):
    """Of one group of users, or of all."""

    group: AnyName = ""
    after_group: AnyName = ""
    after_member: AnyName = ""
    count: PageRows = ACCESS_PAGE_ROWS


class MembersListed(Answer, frozen=True, tag=226):
    members: Annotated[tuple[MemberFacts, ...], PageMax]


# --- quotas and owners ----------------------------------------------------------------------------


class SetQuota(Call, frozen=True, gc=False, tag=227):
    """None takes the row away, and the next one counts: of a group of users, or the default."""

    subject: NameText
    kind: Code
    amount: Annotated[int, Meta(ge=0, le=1 << 60)] | None


class ListQuotas(Call, frozen=True, gc=False, tag=228):
    """Of one subject, or of all."""

    subject: AnyName = ""
    after_subject: AnyName = ""
    after_kind: Code = ""
    count: PageRows = ACCESS_PAGE_ROWS


class QuotasListed(Answer, frozen=True, tag=229):
    quotas: Annotated[tuple[QuotaFacts, ...], PageMax]


class QuotaUsage(msgspec.Struct, frozen=True, array_like=True, gc=False):
    quota: Code
    used: int
    """Of a rate: what was taken of the present second."""
    bound: int | None = None


class DescribeQuotas(Call, frozen=True, gc=False, tag=234):
    """What a principal has at this node; empty for oneself."""

    principal: AnyName = ""


class QuotasDescribed(Answer, frozen=True, tag=235):
    principal: NameText
    usage: Annotated[tuple[QuotaUsage, ...], PageMax]


class ListOwners(Call, frozen=True, gc=False, tag=230):
    after: AnyOwner = ""
    count: PageRows = ACCESS_PAGE_ROWS


class OwnersListed(Answer, frozen=True, tag=231):
    owners: Annotated[tuple[OwnerFacts, ...], PageMax]


class MapOwner(Call, frozen=True, gc=False, tag=232):
    """What belongs to that name belongs to the principal from now on."""

    known_as: OwnerName
    principal: NameText


class OwnerMapped(Answer, frozen=True, gc=False, tag=233):
    """How many sessions and groups changed their owner; queues are found by the name."""

    sessions: int
    groups: int


class MakePass(Call, frozen=True, gc=False, tag=242):
    """Asks for a pass, by which a page in a browser acts as whoever asks, for that many seconds at most; 0 is
    the node's own time."""

    life_s: Annotated[int, Meta(ge=0, le=PASS_LIFE_S)] = 0


class PassMade(Answer, frozen=True, gc=False, tag=243):
    text: TokenText
    expires_us: int


class EndPasses(Call, frozen=True, gc=False, tag=624):
    """Logs out: that pass of whoever asks ends, or all of its passes, and with them every page that came in
    by one, or asked for one."""

    text: TokenText = ""
    """Nothing is all of them."""


class PassesEnded(Answer, frozen=True, gc=False, tag=625):
    count: int


COMMANDS = (
    WhoAmI
    | MakePass
    | EndPasses
    | AddGrant
    | RemoveGrant
    | ListGrants
    | CheckGrant
    | ExplainGrant
    | KeepGrants
    | AddUser
    | ChangeUser
    | RemoveUser
    | ListUsers
    | AddToken
    | RevokeToken
    | AddMember
    | RemoveMember
    | ListMembers
    | SetQuota
    | ListQuotas
    | DescribeQuotas
    | ListOwners
    | MapOwner
)
EVENTS = (
    Identified
    | PassMade
    | PassesEnded
    | GrantChanged
    | GrantsListed
    | GrantChecked
    | GrantExplained
    | GrantsKept
    | UserRemoved
    | UsersListed
    | TokenAdded
    | AccessChanged
    | MembersListed
    | QuotasListed
    | QuotasDescribed
    | OwnersListed
    | OwnerMapped
)

"""Room: core/access. Whom the claims of an ID token make of somebody: a principal, and groups of users.

    ClaimRules.parsed(["email:*@example.org={}"], ["groups:moor-*=@{}"]).principal_of(claims)

A rule is `CLAIM:PATTERN=NAME`; `*` in the pattern is `{}` in the name. A claim within others is named with
dots (`realm_access.roles`), one with a colon in its name stands in quotes (`"cognito:groups"`). Nothing is
guessed: without a rule nobody is anybody, and a token that could be read as two people is refused.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from moorline.core.access.principal import BUILT_IN, check_group, check_provable
from moorline.core.access.star_pattern import StarPattern
from moorline.errors import BadGrant
from moorline.limits import OIDC_GROUPS_MAX, OIDC_VALUES_MAX

PRINCIPAL_FORM: Final = "CLAIM:PATTERN=PRINCIPAL"
GROUP_FORM: Final = "CLAIM:PATTERN=@GROUP"

_EMAIL: Final = "email"
_EMAIL_VERIFIED: Final = "email_verified"

Claims = Mapping[str, Any]


class ClaimRule(NamedTuple):
    claim: str
    pattern: StarPattern
    name: str

    @classmethod
    def principal(cls, text: str) -> "ClaimRule":
        """ValueError says what is wrong with it."""
        rule = cls._parsed(text, PRINCIPAL_FORM)
        try:
            check_provable(rule.name.replace("{}", "x"))
        except BadGrant as error:
            raise ValueError(str(error)) from None
        return rule

    @classmethod
    def group(cls, text: str) -> "ClaimRule":
        rule = cls._parsed(text, GROUP_FORM)
        try:
            check_claimed_group(rule.name.replace("{}", "x"))
        except BadGrant as error:
            raise ValueError(str(error)) from None
        return rule

    @classmethod
    def _parsed(cls, text: str, form: str) -> "ClaimRule":
        if text.startswith('"'):
            claim, quote, rest = text[1:].partition('"')
            colon, rest = rest[:1], rest[1:]
        else:
            claim, quote, colon = text.partition(":")[0], '"', ":" if ":" in text else ""
            rest = text.partition(":")[2]
        pattern, equals, name = rest.rpartition("=")
        if not claim or not quote or colon != ":" or not equals:
            raise ValueError(f"accepted: {form}")
        parsed = StarPattern.parsed(pattern)
        parsed.check_name(name, "name")
        return cls(claim, parsed, name)

    def names_of(self, claims: Claims) -> set[str]:
        return {
            self.name.replace("{}", taken)
            for value in _values(claims, self.claim)
            if (taken := self._taken(value)) is not None
        }

    def _taken(self, value: str) -> str | None:
        taken = self.pattern.taken(value)
        # `*@example.org` is somebody of that domain: of `a@evil.example@example.org` nobody can say.
        is_doubtful = taken is not None and "@" in self.pattern.after and "@" in taken
        return None if is_doubtful else taken


class ClaimRules:
    def __init__(self, principals: Sequence[ClaimRule], groups: Sequence[ClaimRule]) -> None:
        self._principals, self._groups = tuple(principals), tuple(groups)

    @classmethod
    def parsed(cls, principals: Iterable[str], groups: Iterable[str]) -> "ClaimRules":
        return cls(
            [ClaimRule.principal(text) for text in principals],
            [ClaimRule.group(text) for text in groups],
        )

    def principal_of(self, claims: Claims) -> str:
        """By the first rule that matches; ValueError says why it is nobody."""
        for rule in self._principals:
            found = rule.names_of(claims)
            if len(found) > 1:
                raise ValueError(f"several values of {rule.claim} match one rule")
            for principal in found:
                try:
                    check_provable(principal)
                except BadGrant as error:
                    raise ValueError(str(error)) from None
                return principal
        raise ValueError("no rule of oidc.principals matches its claims")

    def groups_of(self, claims: Claims) -> frozenset[str]:
        """By all rules. A value that gives no name of a group gives none; too many are refused, since which
        of them count would be chance."""
        found: set[str] = set()
        for rule in self._groups:
            for group in rule.names_of(claims):
                try:
                    check_claimed_group(group)
                except BadGrant:
                    continue
                found.add(group)
        if len(found) > OIDC_GROUPS_MAX:
            raise ValueError(
                f"its claims give more than {OIDC_GROUPS_MAX} groups: narrow oidc.groups"
            )
        return frozenset(found)


def check_claimed_group(text: str) -> None:
    """Refuses what no issuer may put anybody in: the groups that are made by how somebody came."""
    check_group(text)
    if text in BUILT_IN:
        raise BadGrant(
            f"{text!r} is no group of users that a claim can give: the node knows who is in it"
        )


def _values(claims: Claims, claim: str) -> list[str]:
    """Texts alone: a number or a truth value that looks like a name is none."""
    # An address that nobody has looked at is whatever its owner typed.
    if claim == _EMAIL and claims.get(_EMAIL_VERIFIED) is not True:
        return []
    found = claims.get(claim)
    if found is None:
        found = _within(claims, claim)
    if isinstance(found, str):
        return [found]
    if isinstance(found, list):
        if len(found) > OIDC_VALUES_MAX:
            raise ValueError(f"the claim {claim} has more than {OIDC_VALUES_MAX} values")
        return [value for value in found if isinstance(value, str)]
    return []


def _within(claims: Claims, path: str) -> Any:
    found: Any = claims
    for level in path.split("."):
        if not isinstance(found, dict):
            return None
        found = found.get(level)
    return found

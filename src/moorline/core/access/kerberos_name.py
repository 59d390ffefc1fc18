"""Room: core/access. Names of Kerberos, and the principal that one proves.

    KerberosRules.parsed(["*@EXAMPLE.ORG={}", "host/*@EXAMPLE.ORG=host-{}"]).principal_of("alice@EXAMPLE.ORG")

Without rules the whole name is the principal: `alice@EXAMPLE.ORG` is nobody else, whatever users there are
and whatever krb5.conf calls the default realm. A rule that strips the realm says that both are one.
Nothing is guessed: a name that could be read in two ways is refused.
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from moorline.core.access.principal import check_provable
from moorline.core.access.star_pattern import StarPattern
from moorline.errors import BadGrant
from moorline.limits import PRINCIPAL_CHARACTERS_MAX

RULE_FORM: Final = "PATTERN=PRINCIPAL with PATTERN as user@REALM or service/host@REALM"
PATTERN_FORM: Final = "service/host@REALM, with one * at most"

_WELL_KNOWN: Final = "WELLKNOWN/"
"""Before the names of principals that nobody is, such as an anonymous one (RFC 6111)."""


class Pattern(NamedTuple):
    """A name with one `*` at most, which stands for one character or more, and never for `/` or `@`."""

    star: StarPattern

    @classmethod
    def parsed(cls, text: str) -> "Pattern":
        """ValueError says what is wrong with it."""
        star = StarPattern.parsed(text)
        name, _, realm = text.rpartition("@")
        if not name or not realm or "@" in name or "*" in realm or "\\" in text:
            # A realm that anybody may name is nobody's proof: realms that trust each other are many.
            raise ValueError(f"accepted: {PATTERN_FORM}, the realm in full")
        return cls(star)

    def taken(self, name: str) -> str | None:
        """What `*` takes; empty without one; None if the name does not match."""
        taken = self.star.taken(name)
        return None if taken is None or "/" in taken or "@" in taken else taken


class KerberosRule(NamedTuple):
    """`PATTERN=PRINCIPAL`; `*` in the pattern is `{}` in the principal."""

    pattern: Pattern
    principal: str

    @classmethod
    def parsed(cls, text: str) -> "KerberosRule":
        pattern, equals, principal = text.rpartition("=")
        if not equals:
            raise ValueError(f"accepted: {RULE_FORM}")
        parsed = Pattern.parsed(pattern)
        parsed.star.check_name(principal, "principal")
        try:
            check_provable(principal.replace("{}", "x"))
        except BadGrant as error:
            raise ValueError(str(error)) from None
        return cls(parsed, principal)


class KerberosRules:
    """The rules of `access.kerberos`: tried in order, the first that matches wins."""

    def __init__(self, rules: Sequence[KerberosRule] = ()) -> None:
        self._rules = tuple(rules)

    @classmethod
    def parsed(cls, texts: Iterable[str]) -> "KerberosRules":
        return cls([KerberosRule.parsed(text) for text in texts])

    def principal_of(self, name: str) -> str:
        """Whom it proves; ValueError says why that is nobody."""
        check_name(name)
        if not self._rules:
            return _provable(name)
        for rule in self._rules:
            taken = rule.pattern.taken(name)
            if taken is not None:
                return _provable(rule.principal.replace("{}", taken))
        raise ValueError("no rule of access.kerberos matches your name")


def check_name(name: str) -> None:
    """Refuses what is no `user@REALM`, or could be read in two ways."""
    if len(name) > PRINCIPAL_CHARACTERS_MAX:
        raise ValueError(f"your name has more than {PRINCIPAL_CHARACTERS_MAX} characters")
    plain, at, realm = name.partition("@")
    # A backslash hides a sign that parts names: `alice\\@A@B` is of the realm B.
    if not plain or not at or not realm or "@" in realm or "\\" in name:
        raise ValueError("your name is not of the form user@REALM")
    if plain.startswith(_WELL_KNOWN):
        raise ValueError("your name is one that nobody is")
    if not all(plain.split("/")):
        raise ValueError("your name has an empty part")


def _provable(principal: str) -> str:
    try:
        check_provable(principal)
    except BadGrant as error:
        raise ValueError(str(error)) from None
    return principal

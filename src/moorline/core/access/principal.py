"""Room: core/access. Who acts: principals, groups of users, and the principal that a certificate proves.

check_principal("alice")                 refuses what cannot be one
level_of("host/x@REALM")                 host%2Fx@REALM: one level of a path
built_in_groups(Proof.PASSWORD, …)       @everyone, @authenticated
CertificateRules.parsed(["san:dns:*.example.org=host/{}"]).principal_of(certificate)

A certificate comes here as a plain description. Nothing is guessed: what is not clear is refused.
"""

from collections.abc import Iterable, Sequence
from enum import Enum
from typing import Final, NamedTuple
from unicodedata import category

import msgspec

from moorline.core.access.star_pattern import StarPattern
from moorline.errors import BadGrant
from moorline.limits import PRINCIPAL_CHARACTERS_MAX

ANONYMOUS: Final = "anonymous"
"""Whoever proved nothing. Nobody can prove to be that."""

EVERYONE: Final = "@everyone"
AUTHENTICATED: Final = "@authenticated"
LOOPBACK: Final = "@loopback"
NODES: Final = "@nodes"
BUILT_IN: Final = frozenset({EVERYONE, AUTHENTICATED, LOOPBACK, NODES})

NODE_PREFIX: Final = "$node/"
# @ is a group of users, $ is of the nodes, % is an old owner or a level of its own: a person of such a name
# would be taken for one of these.
_RESERVED_BEGINNINGS = ("@", "$", "%")
_UNCLEAN = frozenset({"Cc", "Cs", "Zl", "Zp"})
"""Control characters, halves of characters, and the two that break a line."""
_TURNING = frozenset(map(chr, (*range(0x202A, 0x202F), *range(0x2066, 0x206A))))
"""What turns the direction of text, of which paths of values have none either: a line of a log or of a list
would show its end as a part of another name."""


class Proof(Enum):
    """How a connection showed its principal."""

    CERTIFICATE = "certificate"
    PASSWORD = "password"  # noqa: S105  a name of a mechanism
    TOKEN = "token"  # noqa: S105
    NODE = "node"
    KERBEROS = "gssapi"
    OIDC = "oidc"
    NOTHING = "nothing"


def check_principal(text: str) -> None:
    """Refuses what cannot be a principal of a person or program. `anonymous` can be one."""
    if (why := _fault(text)) is not None:
        raise BadGrant(f"{text[:PRINCIPAL_CHARACTERS_MAX]!r} is no principal: {why}")
    if text.startswith(_RESERVED_BEGINNINGS):
        raise BadGrant(f"{text!r} is no principal: it begins with {text[0]}, which is reserved")


def check_provable(text: str) -> None:
    """Refuses what nobody can prove to be."""
    check_principal(text)
    # In any case: who reads a list takes `Anonymous` for whoever proves nothing.
    if text.strip().casefold() == ANONYMOUS:
        raise BadGrant(f"{ANONYMOUS!r} is whoever proves nothing: choose another name")


def check_group(text: str) -> None:
    """Refuses what cannot be a group of users: `@` and a name."""
    if not text.startswith("@") or len(text) < 2:
        raise BadGrant(f"{text[:PRINCIPAL_CHARACTERS_MAX]!r} is no group of users: those are @NAME")
    if (why := _fault(text)) is not None:
        raise BadGrant(f"{text[:PRINCIPAL_CHARACTERS_MAX]!r} is no group of users: {why}")
    if text[1] in "@$%":
        raise BadGrant(f"{text!r} is no group of users: a name does not begin with @, $ or %")


def check_subject(text: str) -> None:
    """Refuses what a row cannot be about: a principal, or a group of users."""
    if text.startswith("@"):
        check_group(text)
    else:
        check_principal(text)


def node_principal(home: str) -> str:
    return NODE_PREFIX + home


def level_of(principal: str) -> str:
    """The principal as one level of a path. Two principals never have the same."""
    # The sign of the encoding itself first, or what follows would be encoded twice.
    for sign in "%/+#":
        principal = principal.replace(sign, f"%{ord(sign):02X}")
    return principal


# Made once: each connection has one of them for as long as it lasts.
_OF_NODES: Final = frozenset({EVERYONE, NODES})
_OF_AUTHENTICATED: Final = frozenset({EVERYONE, AUTHENTICATED})
_OF_LOOPBACK: Final = frozenset({EVERYONE, LOOPBACK})
_OF_EVERYONE: Final = frozenset({EVERYONE})


def built_in_groups(principal: str, proof: Proof, *, is_local: bool) -> frozenset[str]:
    """`is_local`: it comes from a loopback address, on a listener that no proxy stands before."""
    if proof is Proof.NODE:
        # Not among the authenticated: what is granted to people is not granted to nodes by that.
        return _OF_NODES
    if proof is not Proof.NOTHING:
        return _OF_AUTHENTICATED
    # By the address, and only where nothing was proven: whoever proves who it is has the rights of that
    # one, also at home.
    if is_local and principal == ANONYMOUS:
        return _OF_LOOPBACK
    return _OF_EVERYONE


def _fault(text: str) -> str | None:
    if not 1 <= len(text) <= PRINCIPAL_CHARACTERS_MAX:
        return f"it has {len(text)} characters, and 1 to {PRINCIPAL_CHARACTERS_MAX} are taken"
    if has_control_character(text):
        return "it has a control character"
    return None


def has_control_character(text: str) -> bool:
    """One would end a line of a log or of the audit trail in the middle, and the rest would look like
    another."""
    if text.isascii() and text.isprintable():
        return False
    return any(category(character) in _UNCLEAN or character in _TURNING for character in text)


# --- certificates ---------------------------------------------------------------------------------


class Certificate(msgspec.Struct, frozen=True):
    """What of a certificate can say who it is. Its fingerprint is not among it: that is never an identity."""

    common_names: tuple[str, ...] = ()
    dns: tuple[str, ...] = ()
    emails: tuple[str, ...] = ()
    uris: tuple[str, ...] = ()
    issuer: str = ""
    """The common name of the authority that signed it."""


FIELDS: Final = ("cn", "san:dns", "san:email", "san:uri", "issuer")
RULE_FORM: Final = f"FIELD:PATTERN=PRINCIPAL with FIELD one of {', '.join(FIELDS)}"


class Rule(NamedTuple):
    """`FIELD:PATTERN=PRINCIPAL`; `*` in the pattern is `{}` in the principal."""

    field: str
    pattern: StarPattern
    principal: str

    @classmethod
    def parsed(cls, text: str) -> "Rule":
        """ValueError says what is wrong with it."""
        field = next((field for field in FIELDS if text.startswith(field + ":")), None)
        # From the right: the name of an authority may have an equals sign, a principal of ours need not.
        pattern, equals, principal = text.rpartition("=")
        if field is None or not equals:
            raise ValueError(f"accepted: {RULE_FORM}")
        parsed = StarPattern.parsed(pattern[len(field) + 1 :])
        parsed.check_name(principal, "principal")
        try:
            # Now, and not when the first certificate comes: a rule that can prove nobody is a mistake in
            # the settings.
            check_provable(principal.replace("{}", "x"))
        except BadGrant as error:
            raise ValueError(str(error)) from None
        return cls(field, parsed, principal)

    def principals_of(self, certificate: Certificate) -> set[str]:
        return {
            self.principal.replace("{}", taken)
            for value in _values(certificate, self.field)
            if (taken := self._taken(value)) is not None
        }

    def _taken(self, value: str) -> str | None:
        # Names of hosts alone are the same in capitals (RFC 5280, 7.2); of all others two spellings are
        # two.
        if self.field == "san:dns":
            return self.pattern.lowered().taken(value.lower())
        return self.pattern.taken(value)


class CertificateRules:
    """The rules of `access.certificates`: tried in order, the first that matches wins."""

    def __init__(self, rules: Sequence[Rule] = ()) -> None:
        self._rules = tuple(rules)

    @classmethod
    def parsed(cls, texts: Iterable[str]) -> "CertificateRules":
        return cls([Rule.parsed(text) for text in texts])

    def principal_of(self, certificate: Certificate) -> str:
        """Whom it proves; ValueError says for the log why that is nobody, or not clear."""
        # Looked at whatever the rules say: a certificate that could be read in two ways proves nobody.
        own = _common_name(certificate)
        if not self._rules:
            return own
        for rule in self._rules:
            found = rule.principals_of(certificate)
            # Which of them counts would depend on the order in its bytes, and that is its owner's to
            # choose.
            if len(found) > 1:
                raise ValueError(f"several of its names match the rule for {rule.field}")
            for principal in found:
                return _provable(principal)
        raise ValueError("no rule of access.certificates matches it")

    def homes_of(self, certificate: Certificate) -> frozenset[str]:
        """The homes that a certificate of the nodes' own authority names. Nodes may share one that names
        them all: which of them it is then is what the cluster's secret proves. ValueError as above."""
        own = _common_name(certificate)
        if not self._rules:
            return frozenset({own})
        for rule in self._rules:
            if found := rule.principals_of(certificate):
                return frozenset(map(_provable, found))
        raise ValueError("no rule of access.node_certificates matches it")


def _common_name(certificate: Certificate) -> str:
    """The only one there is. One that could be read in two ways is refused, whatever the rules say."""
    if len(certificate.common_names) != 1:
        raise ValueError(f"it has {len(certificate.common_names)} common names, and one is taken")
    (name,) = certificate.common_names
    if "/" in name:
        raise ValueError("its common name has a /")
    return _provable(name)


def _provable(principal: str) -> str:
    try:
        check_provable(principal)
    except BadGrant as error:
        raise ValueError(str(error)) from None
    return principal


def _values(certificate: Certificate, field: str) -> tuple[str, ...]:
    if field == "cn":
        return certificate.common_names
    if field == "san:dns":
        return certificate.dns
    if field == "san:email":
        return certificate.emails
    if field == "san:uri":
        return certificate.uris
    assert field == "issuer", field
    return (certificate.issuer,) if certificate.issuer else ()

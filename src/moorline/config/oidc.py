"""Room: config. The section `[oidc]`: who logs in to the console by an issuer of OpenID Connect, and as
whom."""

from collections.abc import Iterator
from typing import Annotated

import msgspec
from msgspec import Meta

from moorline import limits
from moorline.config.problem import Problem, text_setting
from moorline.core.access.claims import GROUP_FORM, PRINCIPAL_FORM, ClaimRule, ClaimRules
from moorline.core.access.id_token import ALGORITHMS, BY_DEFAULT, check_algorithms
from moorline.core.access.web_url import Url

ISSUER_FORM = (
    "https://HOST[:PORT][/PATH], as the issuer calls itself; http:// on this machine alone"
)


class Oidc(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The section `[oidc]`."""

    issuer: Annotated[
        str,
        text_setting(
            "Issuer of OpenID Connect by which people log in to the console; empty is none.",
            ISSUER_FORM,
        ),
    ] = ""
    client_id: Annotated[str, Meta(description="What the issuer calls this node.")] = ""
    client_secret_file: Annotated[
        str,
        Meta(
            description="File with the secret that the issuer gave for it, read at each login; empty for a "
            "client that has none."
        ),
    ] = ""
    ca: Annotated[
        str,
        Meta(description="PEM file of the CAs of the issuer, in place of those of the system."),
    ] = ""
    principals: Annotated[
        list[str],
        text_setting(
            "Rules by which the claims of an ID token are a principal, tried in order; * in the pattern is "
            '{} in the principal, as in "email:*@example.org={}". Without a rule nobody is anybody. email '
            "counts only where email_verified is true.",
            f"a list of {PRINCIPAL_FORM}",
        ),
        Meta(max_length=limits.OIDC_RULES_MAX),
    ] = msgspec.field(default_factory=list)
    groups: Annotated[
        list[str],
        text_setting(
            'Rules by which they put somebody into groups of users, all of them, as in "groups:moor-*=@{}".',
            f"a list of {GROUP_FORM}",
        ),
        Meta(max_length=limits.OIDC_RULES_MAX),
    ] = msgspec.field(default_factory=list)
    scopes: Annotated[
        list[str],
        Meta(
            max_length=limits.OIDC_RULES_MAX,
            description="What is asked of the issuer besides openid: profile, email, groups, as it calls "
            "them.",
        ),
    ] = msgspec.field(default_factory=list)
    algorithms: Annotated[
        list[str],
        text_setting(
            "With which its tokens may be signed. There is none with a shared secret.",
            f"a list of {', '.join(ALGORITHMS)}",
        ),
        Meta(min_length=1),
    ] = msgspec.field(default_factory=lambda: list(BY_DEFAULT))
    timeout_ms: Annotated[
        int,
        Meta(ge=100, le=limits.HTTP_LOGIN_MS // 3, description="Time of each call to the issuer."),
    ] = 5_000

    def claim_rules(self) -> ClaimRules:
        return ClaimRules.parsed(self.principals, self.groups)

    def problems(self) -> Iterator[Problem]:
        for setting, parsed in (("principals", ClaimRule.principal), ("groups", ClaimRule.group)):
            for text in getattr(self, setting):
                try:
                    parsed(text)
                except ValueError as error:
                    yield Problem((setting,), f'"{text}": {error}')
        try:
            check_algorithms(self.algorithms)
        except ValueError as error:
            yield Problem(("algorithms",), str(error))
        for scope in self.scopes:
            # RFC 6749, 3.3.
            if not scope or not all("!" <= sign <= "~" and sign not in '"\\' for sign in scope):
                yield Problem(("scopes",), f'"{scope}" is no name of a scope')
        if not self.issuer:
            for setting in ("client_id", "client_secret_file", "ca", "principals", "groups"):
                if getattr(self, setting):
                    yield Problem((setting, "issuer"), "it needs oidc.issuer beside it")
            return
        try:
            if "?" in self.issuer:
                raise ValueError("it has a query")
            Url.parsed(self.issuer)
        except ValueError as error:
            yield Problem(("issuer",), f'"{self.issuer}": {error}; accepted: {ISSUER_FORM}')
        if not self.client_id:
            yield Problem(("issuer", "client_id"), "it needs oidc.client_id beside it")
        if not self.principals:
            yield Problem(
                ("issuer", "principals"),
                'nobody could log in: say in oidc.principals who is who, as "sub:*={}"',
            )

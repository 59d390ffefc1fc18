"""Room: access. An issuer of OpenID Connect, as a node calls it: its description, its keys, and what it gives
for a code.

Description and keys are kept for OIDC_KNOWN_MS. A token that names a key which is not among them has them
asked for anew, at once and at most every OIDC_KEYS_AGAIN_MS: so new keys are known when they are first used.
Several logins at a time cost one call.
"""

import asyncio
import base64
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar
from urllib.parse import quote_plus, urlencode

import msgspec

from moorline.config.oidc import Oidc
from moorline.core.access.id_token import Key, Keys
from moorline.core.access.web_url import Url
from moorline.limits import (
    OIDC_CALLS_AT_ONCE_MAX,
    OIDC_KEYS_AGAIN_MS,
    OIDC_KEYS_MAX,
    OIDC_KNOWN_MS,
)
from moorline.net.clock import monotonic_ms
from moorline.net.credentials import read_secret
from moorline.net.outgoing import CallFailed, Outgoing, Refused
from moorline.net.tls import client_context

T = TypeVar("T")

WELL_KNOWN: Final = "/.well-known/openid-configuration"
FORM: Final = "application/x-www-form-urlencoded"
BASIC: Final = "client_secret_basic"
POST: Final = "client_secret_post"


class IssuerFailed(Exception):
    """It does not answer as it should; the text is for the log and the audit."""


class Description(msgspec.Struct, frozen=True):
    """What an issuer says of itself (OpenID Connect Discovery, 3), as far as it matters here."""

    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str
    end_session_endpoint: str = ""
    token_endpoint_auth_methods_supported: list[str] = msgspec.field(
        default_factory=lambda: [BASIC]
    )
    code_challenge_methods_supported: list[str] | None = None
    authorization_response_iss_parameter_supported: bool = False


class _Tokens(msgspec.Struct, frozen=True):
    id_token: str


class _Kept(msgspec.Struct, frozen=True):
    description: Description
    keys: list[Key]
    asked_ms: int


class Issuer:
    def __init__(self, settings: Oidc, *, now_ms: Callable[[], int] = monotonic_ms) -> None:
        """`ConfigError` where a file that is named is not as it should be."""
        self._settings = settings
        self._now_ms = now_ms
        self._outgoing = Outgoing(
            _context(settings.ca),
            timeout_ms=settings.timeout_ms,
            at_once_max=OIDC_CALLS_AT_ONCE_MAX,
        )
        self._kept: _Kept | None = None
        self._asking: asyncio.Task[_Kept] | None = None
        if settings.client_secret_file:
            self._secret()

    async def close(self) -> None:
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)
        await self._outgoing.close()

    async def description(self) -> Description:
        return (await self._known()).description

    async def keys(self, *, newer_than: list[Key] | None = None) -> list[Key]:
        """`newer_than` are those among which one was missed; the same again if there can be no newer ones."""
        kept = await self._known()
        is_fresh = self._now_ms() - kept.asked_ms < OIDC_KEYS_AGAIN_MS
        if newer_than is None or kept.keys is not newer_than or is_fresh:
            return kept.keys
        return (await self._ask_again()).keys

    async def id_token(self, code: str, redirect: str, verifier: str) -> str:
        """What the issuer gives for the code that a browser brought."""
        described = await self.description()
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": redirect,
            "code_verifier": verifier,
        }
        headers = {"content-type": FORM}
        methods = described.token_endpoint_auth_methods_supported
        if not self._settings.client_secret_file:
            form["client_id"] = self._settings.client_id
        elif BASIC in methods or POST not in methods:
            # Each part is a form's before it is base64 (RFC 6749, 2.3.1).
            pair = f"{quote_plus(self._settings.client_id)}:{quote_plus(self._secret())}"
            headers["authorization"] = "Basic " + base64.b64encode(pair.encode()).decode()
        else:
            form |= {"client_id": self._settings.client_id, "client_secret": self._secret()}
        try:
            answer = await self._outgoing.post(
                described.token_endpoint, urlencode(form).encode(), headers
            )
        except Refused as error:
            raise IssuerFailed(
                f"the issuer does not take the code of this login: {error}"
            ) from None
        except CallFailed as error:
            raise IssuerFailed(str(error)) from None
        return _decoded(answer, _Tokens, "the token endpoint").id_token

    # --- what it says of itself -------------------------------------------------------------------

    async def _known(self) -> _Kept:
        kept = self._kept
        if kept is not None and self._now_ms() - kept.asked_ms < OIDC_KNOWN_MS:
            return kept
        return await self._ask_again()

    async def _ask_again(self) -> _Kept:
        """One call for all that wait; whoever of them goes away ends none of the others."""
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._asked())
            self._asking.add_done_callback(_forget)
        return await asyncio.shield(self._asking)

    async def _asked(self) -> _Kept:
        issuer = self._settings.issuer
        asked_ms = self._now_ms()
        try:
            answer = await self._outgoing.get(issuer.rstrip("/") + WELL_KNOWN)
            described = _decoded(answer, Description, "the description of the issuer")
            # Another one's description would send its browsers and our secret elsewhere (Discovery, 4.3).
            if described.issuer != issuer:
                raise IssuerFailed(f"the issuer calls itself {described.issuer[:200]!r}")
            methods = described.code_challenge_methods_supported
            if methods is not None and "S256" not in methods:
                raise IssuerFailed("the issuer takes no PKCE with S256")
            _check_endpoints(described)
            answer = await self._outgoing.get(described.jwks_uri)
        except CallFailed as error:
            raise IssuerFailed(str(error)) from None
        found = _decoded(answer, Keys, "the keys of the issuer")
        if len(found.keys) > OIDC_KEYS_MAX:
            raise IssuerFailed(f"the issuer has more than {OIDC_KEYS_MAX} keys")
        self._kept = _Kept(described, found.usable(), asked_ms)
        return self._kept

    def _secret(self) -> str:
        return read_secret("oidc.client_secret_file", Path(self._settings.client_secret_file))


def _check_endpoints(described: Description) -> None:
    """An issuer over https has no part in clear; a browser is sent nowhere else either."""
    is_secure = described.issuer.startswith("https://")
    for url in (
        described.authorization_endpoint,
        described.token_endpoint,
        described.jwks_uri,
        *([described.end_session_endpoint] if described.end_session_endpoint else []),
    ):
        try:
            parsed = Url.parsed(url)
        except ValueError as error:
            raise IssuerFailed(f"the issuer names {url[:200]!r}: {error}") from None
        if is_secure and parsed.scheme != "https":
            raise IssuerFailed(f"the issuer names {url[:200]!r}, which is not https")


def _context(ca: str) -> ssl.SSLContext:
    context = client_context(Path(ca) if ca else None, None, None)
    context.set_alpn_protocols(["http/1.1"])
    return context


def _decoded(data: bytes, kind: type[T], what: str) -> T:
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise IssuerFailed(f"{what} cannot be read") from None


def _forget(asking: "asyncio.Task[_Kept]") -> None:
    """Whoever asked may be gone by then."""
    if not asking.cancelled():
        asking.exception()

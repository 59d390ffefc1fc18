"""Room: access. Logins to the console by an issuer of OpenID Connect: the code flow, with PKCE.

    page                         node                              issuer
    Hello(oidc)           ──►    Challenge: the address there, and what the page keeps
    goes to that address  ─────────────────────────────────────►   asks who it is
    comes back with a code and the state, in its address
    Hello(oidc, answer)   ──►    is it ours? (core/access/oidc_flow.py)
                                 the code, the verifier     ──►    an ID token
                                 whose is it? (core/access/id_token.py, access/signatures.py)
                          ◄──    Welcome

No cookie is set: what binds the answer to its browser lies in the window that began. Design:
docs/design/console-login.md.
"""

import contextlib
import logging
import secrets
from collections.abc import Callable, Iterator
from urllib.parse import urlencode, urlsplit

import msgspec

from moorline.access.issuer import Description, Issuer, IssuerFailed
from moorline.access.signatures import check_signature
from moorline.config.oidc import Oidc
from moorline.core.access.id_token import BadToken, Expected, IdToken
from moorline.core.access.oidc_flow import Answer, Begun, Flows, NotOurs
from moorline.core.access.principal import Proof, has_control_character
from moorline.errors import ConfigError, NotAuthorized
from moorline.limits import (
    NONCE_BYTES,
    OIDC_LOGINS_PER_ADDRESS_MAX,
    OIDC_LOGINS_WAITING_MAX,
    OIDC_SESSION_S_MAX,
    PRINCIPAL_CHARACTERS_MAX,
)
from moorline.net.clock import wall_ms
from moorline.net.tls import Identity

log = logging.getLogger("moorline.access")

AWAY = "the issuer cannot be asked now; the node's log says why: try again later"
WRONG = "the issuer's word for you is not taken; the node's log says why"
BUSY = "too many log in at once: try again in a few seconds"


class Challenge(msgspec.Struct, frozen=True):
    """What a page is told: where to go, what to keep, and where to go when somebody has logged out."""

    go: str
    flow: str
    state: str
    leave: str
    """Empty where the issuer has no such place."""


class OidcLogins:
    def __init__(
        self,
        settings: Oidc,
        *,
        redirect_path: str,
        now_ms: Callable[[], int] = wall_ms,
        issuer: Issuer | None = None,
    ) -> None:
        """`redirect_path` is that of the page, behind the origin by which its node is called."""
        self._settings = settings
        self._rules = settings.claim_rules()
        self._redirect_path = redirect_path
        self._now_ms = now_ms
        self._issuer = issuer or Issuer(settings)
        self._flows = Flows(secrets.token_bytes(NONCE_BYTES))
        self._waiting: dict[str, int] = {}
        """Logins that the issuer is being asked about, by the address they came from."""

    @property
    def host(self) -> str:
        """The issuer's, for people to read."""
        return urlsplit(self._settings.issuer).netloc

    async def close(self) -> None:
        await self._issuer.close()

    async def begin(self, origin: str) -> bytes:
        """A `Challenge`, for a page of that origin. `NotAuthorized` says why there is none."""
        try:
            described = await self._issuer.description()
        except IssuerFailed as error:
            log.warning("the issuer cannot be asked", extra={"error": str(error)})
            raise NotAuthorized(AWAY) from None
        redirect = origin + self._redirect_path
        begun = self._flows.begin(
            redirect, self._now_ms() // 1_000, secrets.token_bytes(NONCE_BYTES)
        )
        return msgspec.json.encode(
            Challenge(
                self._address(described, begun, redirect),
                begun.flow,
                begun.state,
                self._leaving(described, redirect),
            )
        )

    async def finish(self, said: bytes, origin: str, address: str) -> Identity:
        """Who it is; `NotAuthorized` says why it is nobody."""
        with self._place(address):
            return await self._finished(said, origin)

    async def _finished(self, said: bytes, origin: str) -> Identity:
        redirect = origin + self._redirect_path
        try:
            answer = msgspec.json.decode(said, type=Answer)
            begun = self._flows.take(answer, redirect, self._now_ms() // 1_000)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            raise NotAuthorized("this is no answer of an issuer: begin again") from None
        except NotOurs as error:
            raise NotAuthorized(str(error)) from None
        is_done = False
        try:
            identity = await self._proven(answer, begun, redirect)
            is_done = True
        finally:
            self._flows.check()
            if not is_done:
                self._flows.give_back(answer.flow)
        return identity

    # --- inside -----------------------------------------------------------------------------------

    def _address(self, described: Description, begun: Begun, redirect: str) -> str:
        asked = {
            "response_type": "code",
            "client_id": self._settings.client_id,
            "redirect_uri": redirect,
            "scope": " ".join(dict.fromkeys(["openid", *self._settings.scopes])),
            "state": begun.state,
            "nonce": begun.nonce,
            "code_challenge": begun.challenge,
            "code_challenge_method": "S256",
        }
        where = described.authorization_endpoint
        return f"{where}{'&' if '?' in where else '?'}{urlencode(asked)}"

    def _leaving(self, described: Description, redirect: str) -> str:
        ends = described.end_session_endpoint
        if not ends:
            return ""
        back = {"client_id": self._settings.client_id, "post_logout_redirect_uri": redirect}
        return f"{ends}{'&' if '?' in ends else '?'}{urlencode(back)}"

    @contextlib.contextmanager
    def _place(self, address: str) -> Iterator[None]:
        """One of few for each address: a stranger with codes that are none holds up its own logins alone."""
        held = self._waiting.get(address, 0)
        total = sum(self._waiting.values())
        if held >= OIDC_LOGINS_PER_ADDRESS_MAX or total >= OIDC_LOGINS_WAITING_MAX:
            raise NotAuthorized(BUSY)
        self._waiting[address] = held + 1
        try:
            yield
        finally:
            self._waiting[address] -= 1
            if not self._waiting[address]:
                del self._waiting[address]

    async def _proven(self, answer: Answer, begun: Begun, redirect: str) -> Identity:
        try:
            described = await self._issuer.description()
            # Of another issuer than the one that was asked (RFC 9207).
            if answer.iss != described.issuer and (
                answer.iss or described.authorization_response_iss_parameter_supported
            ):
                raise BadToken("the answer is of another issuer")
            text = await self._issuer.id_token(answer.code, redirect, begun.verifier)
            return await self._identity(text, begun.nonce)
        except IssuerFailed as error:
            log.warning("the issuer does not prove a login", extra={"error": str(error)})
            raise NotAuthorized(AWAY) from None
        except ConfigError as error:
            log.error("the secret of oidc cannot be read", extra={"error": str(error)})
            raise NotAuthorized(AWAY) from None
        except ValueError as error:  # BadToken is one
            log.warning("an ID token is not taken", extra={"error": str(error)})
            raise NotAuthorized(WRONG) from None

    async def _identity(self, text: str, nonce: str) -> Identity:
        token = IdToken.parsed(text, self._settings.algorithms)
        keys = await self._issuer.keys()
        key = token.key_of(keys)
        if key is None:
            key = token.key_of(await self._issuer.keys(newer_than=keys))
        if key is None:
            raise BadToken("the issuer has no key of that name and kind")
        check_signature(token, key)
        now_s = self._now_ms() / 1_000
        expected = Expected(self._settings.issuer, self._settings.client_id, nonce)
        ends_s = min(token.check(expected, now_s), now_s + OIDC_SESSION_S_MAX)
        subject = str(token.claims["sub"])
        return Identity(
            self._rules.principal_of(token.claims),
            Proof.OIDC,
            int(ends_s * 1_000),
            proven_name=""
            if has_control_character(subject)
            else subject[:PRINCIPAL_CHARACTERS_MAX],
            groups=self._rules.groups_of(token.claims),
        )

"""Room: access. A pass for a ticket of Kerberos that a browser shows (Negotiate).

What comes of it is a pass, and nothing else: whoever reads the answer may log in by it, and a page of another
origin that caused the request may not read it. So nothing is done in the name of somebody by a proof that a
browser shows by itself.
"""

from collections.abc import Callable

from moorline.access.passes import MadePass, Passes
from moorline.core.access.kerberos_name import KerberosRules
from moorline.core.access.principal import Proof
from moorline.errors import NotAuthorized
from moorline.net.clock import wall_ms
from moorline.net.http.logins import is_private
from moorline.net.http.peer import Peer
from moorline.net.kerberos import MECHANISM
from moorline.net.listener import LoginRefused
from moorline.net.negotiate import NegotiatedService
from moorline.net.tls import Identity


class NegotiateLogins:
    def __init__(
        self,
        service: NegotiatedService,
        rules: KerberosRules,
        passes: Passes,
        refused: Callable[[LoginRefused], None],
    ) -> None:
        self._service = service
        self._rules = rules
        self._passes = passes
        self._refused = refused

    async def take(self, peer: Peer, token: bytes) -> tuple[MadePass, bytes]:
        """The pass, and what proves the node; `NotAuthorized` says why there is none."""
        claimed = ""
        try:
            if not is_private(peer):
                raise NotAuthorized(
                    "a ticket is not taken over a connection that others can read: use https"
                )
            ticket = await self._service.take(token)
            claimed = ticket.name
            identity = self._identity(ticket.name, ticket.left_ms)
        except NotAuthorized as error:
            self._refused(LoginRefused(peer.peer_address, MECHANISM, claimed, str(error)))
            raise
        return self._passes.give(identity), ticket.answer

    def _identity(self, name: str, left_ms: int) -> Identity:
        try:
            principal = self._rules.principal_of(name)
        except ValueError as error:
            raise NotAuthorized(f"Kerberos: {error}") from None
        return Identity(principal, Proof.KERBEROS, wall_ms() + left_ms, proven_name=name)

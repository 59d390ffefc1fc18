"""Room: net. Kerberos as browsers bring it: one token in a header, wrapped by SPNEGO, and one in the answer
(RFC 4559).

    ticket = await NegotiatedService(keytab, "HTTP/HOST@REALM").take(token)
    ticket.name, ticket.left_ms, ticket.answer

Nothing is wrapped behind it, as it is on a link of ours (net/kerberos.py): what protects the rest is TLS, or
that nobody else is on this machine. So a token that was seen before must not be taken: the library's own
cache of replays sees to that.
"""

from typing import Any, Final, NamedTuple

from moorline.errors import NotAuthorized
from moorline.limits import KERBEROS_STEP_MS_MAX
from moorline.net.kerberos import ACCEPTING, KerberosService, library
from moorline.net.kerberos_errors import OF_ACCEPTOR, words_of
from moorline.net.steps import Hangs

_SPNEGO: Final = "1.3.6.1.5.5.2"


class Ticket(NamedTuple):
    """What was proven."""

    name: str
    """`user@REALM`."""
    left_ms: int
    answer: bytes
    """By which the node proves itself."""


class NegotiatedService(KerberosService):
    def mechanisms(self) -> list[Any]:
        gssapi = library()
        return [gssapi.OID.from_int_seq(_SPNEGO), gssapi.MechType.kerberos]

    async def take(self, token: bytes) -> Ticket:
        """`NotAuthorized` says why it proves nobody."""
        try:
            return await ACCEPTING.run(lambda: self._taken(token), KERBEROS_STEP_MS_MAX)
        except library().exceptions.GSSError as error:
            raise NotAuthorized(f"Kerberos: {words_of(error, OF_ACCEPTOR)}") from None
        except Hangs:
            raise NotAuthorized("Kerberos: it cannot be checked now: try again later") from None

    def _taken(self, token: bytes) -> Ticket:
        gssapi = library()
        context = self.context()
        answer = bytes(context.step(token) or b"")
        # There is one step: two would have to be kept for a connection, and a ticket needs no second.
        if not context.complete:
            raise NotAuthorized("Kerberos: the browser has shown no ticket of this realm")
        if gssapi.RequirementFlag.anonymity in context.actual_flags:
            raise NotAuthorized("Kerberos: the ticket names nobody")
        left_ms = (int(context.lifetime) - self.clock_skew_s) * 1_000
        if left_ms <= 0:
            raise NotAuthorized(f"Kerberos: {OF_ACCEPTOR[32]}")
        return Ticket(str(context.initiator_name), left_ms, answer)

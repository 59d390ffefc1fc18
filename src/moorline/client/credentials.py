"""Room: client. What a user of the library proves itself with: a file with a secret, or an object with it.

    ClientProof("alice", password_file=Path("alice.password"))
    ClientProof(token_file=Path("spark.token"))
    ClientProof(credentials=PasswordCredentials("alice", asked_for))
    ClientProof(credentials=KerberosCredentials(keytab=Path("alice.keytab"), principal="alice@REALM"))

A proof names files and holds no secret: it can be printed, pickled and sent to another machine. The file is
read when a connection is opened, there where it is opened, so a new token is in use from the next one on.
"""

from pathlib import Path
from typing import Protocol, TypedDict

import msgspec

from moorline.config.addresses import Address
from moorline.errors import ConfigError, KerberosError
from moorline.limits import KERBEROS_KDC_MS_MAX
from moorline.net.authentication import Credentials
from moorline.net.credentials import PasswordCredentials, TokenCredentials, check_privacy
from moorline.net.kerberos import KerberosCall, service_at


class PrivateCredentials(Credentials, Protocol):
    """Credentials that say whether others may hear them."""

    @property
    def needs_privacy(self) -> bool: ...


class KerberosCredentials(msgspec.Struct, frozen=True, kw_only=True):
    """Kerberos: which file has the ticket, or the key for one. It names files, and holds no secret.

    Without files it is the default ticket cache of this process (KRB5CCNAME, as kinit fills it). With a
    `keytab` tickets are got as they are needed; `principal` says whose, where it has several. `service` is
    the principal of the node; without it that is moorline/HOST, with the host of the address.
    """

    ccache: Path | str | None = None
    keytab: Path | str | None = None
    principal: str = ""
    service: str = ""
    timeout_ms: int = KERBEROS_KDC_MS_MAX
    """For a ticket, beside the time for the connection: a KDC may hang."""

    def call_to(self, address: Address) -> KerberosCall:
        """For one connection, which is opened with it at once."""
        return KerberosCall(
            service_at(address.host, self.service),
            principal=self.principal,
            keytab=Path(self.keytab) if self.keytab else None,
            ccache=str(self.ccache) if self.ccache else "",
            timeout_ms=self.timeout_ms,
        )


class ClientProof(msgspec.Struct, frozen=True):
    """One of these proofs, or none: then it is the certificate, or nobody."""

    user: str = ""
    password_file: Path | None = None
    token_file: Path | None = None
    credentials: PrivateCredentials | KerberosCredentials | None = None

    def __post_init__(self) -> None:
        given = [name for name in self.__struct_fields__ if getattr(self, name)]
        if given in ([], ["user", "password_file"], ["token_file"], ["credentials"]):
            return
        if given == ["user"]:
            raise ConfigError(f"user {self.user!r}: give its password_file too")
        if given == ["password_file"]:
            raise ConfigError("password_file: whose password is it? give the user too")
        raise ConfigError(
            f"{' and '.join(given)}: give one proof: user with password_file, or token_file, or credentials"
        )

    def opened(self, address: Address) -> PrivateCredentials | None:
        """What is shown at that address; refuses to say aloud what must not be heard."""
        given = self.credentials
        found = given.call_to(address) if isinstance(given, KerberosCredentials) else given
        if self.password_file is not None:
            found = PasswordCredentials.of_file(self.user, self.password_file)
        elif self.token_file is not None:
            found = TokenCredentials.of_file(self.token_file)
        if found is not None:
            check_privacy(found, address)
        return found


async def prepared(proof: ClientProof, address: Address) -> PrivateCredentials | None:
    """What is shown at that address, with all that takes time and needs no node: the ticket of Kerberos."""
    found = proof.opened(address)
    if isinstance(found, KerberosCall):
        try:
            await found.prepare()
        except KerberosError as error:
            raise KerberosError(error.reason, f"{address}: {error.text}") from None
    return found


NO_PROOF = ClientProof()


class IdentityOptions(TypedDict, total=False):
    """The fields of `ClientIdentity`, as users of the library name them."""

    proof: ClientProof
    ca: Path | None
    certificate: Path | None
    key: Path | None


class ClientIdentity(msgspec.Struct, frozen=True):
    """Who we are at the other end, and whose certificates we trust there. It names files: see above."""

    proof: ClientProof = NO_PROOF
    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None

    def files(self) -> dict[str, Path | None]:
        """Those of TLS, as a link is opened with them."""
        return {"ca": self.ca, "certificate": self.certificate, "key": self.key}


NOBODY = ClientIdentity()

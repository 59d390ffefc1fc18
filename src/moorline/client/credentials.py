"""Room: client. What a user of the library proves itself with: a file with a secret, or an object with it.

    ClientProof("alice", password_file=Path("alice.password"))
    ClientProof(token_file=Path("spark.token"))
    ClientProof(credentials=PasswordCredentials("alice", asked_for))

A proof names files and holds no secret: it can be printed, pickled and sent to another machine. The file is
read when a connection is opened, there where it is opened, so a new token is in use from the next one on.
"""

from pathlib import Path
from typing import Protocol

import msgspec

from moorline.config.addresses import Address
from moorline.errors import ConfigError
from moorline.net.authentication import Credentials
from moorline.net.credentials import PasswordCredentials, TokenCredentials, check_privacy


class PrivateCredentials(Credentials, Protocol):
    """Credentials that say whether others may hear them."""

    @property
    def needs_privacy(self) -> bool: ...


class ClientProof(msgspec.Struct, frozen=True):
    """One of these proofs, or none: then it is the certificate, or nobody."""

    user: str = ""
    password_file: Path | None = None
    token_file: Path | None = None
    credentials: PrivateCredentials | None = None

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
        found: PrivateCredentials | None = self.credentials
        if self.password_file is not None:
            found = PasswordCredentials.of_file(self.user, self.password_file)
        elif self.token_file is not None:
            found = TokenCredentials.of_file(self.token_file)
        if found is not None:
            check_privacy(found, address)
        return found


NO_PROOF = ClientProof()

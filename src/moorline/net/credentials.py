"""Room: net. What the calling end shows in its hello, and where it has it from.

A secret comes from a file or from a prompt, never from an argument or the environment: both are shown to
other programs of the machine. No text and no repr has it.

    first()              the proof that goes with the hello
    answer(challenge)    what the node asks then; raises `Untrusted` if it is not the one that is meant
    is_content           whether a welcome may come now
"""

import getpass
import secrets
import stat
from pathlib import Path
from typing import Protocol

from moorline.config.addresses import Address
from moorline.core.access import node_proof
from moorline.core.access.node_proof import NodeCall
from moorline.errors import ConfigError, Untrusted
from moorline.limits import NONCE_BYTES, SECRET_FILE_BYTES_MAX
from moorline.net.kerberos import KerberosCall, Keys


class Secret(Protocol):
    """What `check_privacy` wants to know of credentials."""

    @property
    def mechanism(self) -> str: ...

    @property
    def needs_privacy(self) -> bool:
        """Whoever reads it on its way has it too."""
        ...


class PasswordCredentials:
    """A name and its password."""

    mechanism = "password"
    needs_privacy = True
    is_content = True
    """A welcome may come at once: the node's certificate is its proof."""

    def __init__(self, name: str, password: str) -> None:
        if not name or "\0" in name:
            raise ConfigError("the name of the user is empty or has a NUL in it: give another one")
        if not password:
            raise ConfigError(f"the password of {name!r} is empty: give one")
        self.name = name
        self._password = password

    def __repr__(self) -> str:
        return f"PasswordCredentials({self.name!r}, …)"

    @staticmethod
    def of_file(name: str, path: Path) -> "PasswordCredentials":
        return PasswordCredentials(name, read_secret("the password file", path))

    @staticmethod
    def of_prompt(name: str) -> "PasswordCredentials":
        """Asks at the terminal, without showing what is typed."""
        try:
            typed = getpass.getpass(f"Password of {name}: ")
        except EOFError:
            raise ConfigError(
                "there is nobody to type a password: give a file that holds it"
            ) from None
        return PasswordCredentials(name, typed)

    async def first(self) -> bytes:
        return f"{self.name}\0{self._password}".encode()

    async def answer(self, challenge: bytes, /) -> bytes:  # noqa: ARG002
        raise Untrusted("the node asked more than a password: it is none, or a newer one")


class TokenCredentials:
    """A token, made by `moor user token`."""

    mechanism = "token"
    needs_privacy = True
    is_content = True

    def __init__(self, token: str) -> None:
        if not token.startswith("moor_"):
            raise ConfigError(
                "that is no token: one begins with moor_, and `moor user token` makes it"
            )
        self._token = token

    def __repr__(self) -> str:
        return "TokenCredentials(…)"

    @staticmethod
    def of_file(path: Path) -> "TokenCredentials":
        return TokenCredentials(read_secret("the token file", path))

    async def first(self) -> bytes:
        return self._token.encode()

    async def answer(self, challenge: bytes, /) -> bytes:  # noqa: ARG002
        raise Untrusted("the node asked more than a token: it is none, or a newer one")


class NodeCredentials:
    """The cluster's secret, between two nodes that both know it: the one that is called proves itself
    first."""

    mechanism = "node"
    needs_privacy = False

    def __init__(
        self, secret: bytes, own_home: str, other_home: str, *, before: bytes = b""
    ) -> None:
        """`before` is the one that a node may prove itself by which has yet to hear of the new one."""
        assert secret, "an empty secret is known to everybody"
        self._secrets = (secret, before) if before else (secret,)
        self.mark = b""
        """Of the secret by which the other end has proven itself."""
        self._homes = own_home, other_home
        self._call: NodeCall | None = None
        self.is_content = False
        """A node that welcomes us before it has proven itself is not believed."""

    def __repr__(self) -> str:
        return f"NodeCredentials({self._homes[0]!r} to {self._homes[1]!r}, …)"

    async def first(self) -> bytes:
        self.is_content = False
        self._call = NodeCall(*self._homes, secrets.token_bytes(NONCE_BYTES))
        return node_proof.encoded(self._call)

    async def answer(self, challenge: bytes, /) -> bytes:
        call, self._call = self._call, None  # what was asked once is answered once
        found = node_proof.decode_challenge(challenge)
        if call is None or found is None:
            raise Untrusted("what answers there does not speak as a node of this cluster does")
        for secret in self._secrets:
            wanted = node_proof.acceptor_proof(secret, call, found.nonce)
            if node_proof.is_same(found.proof, wanted):
                self.is_content, self.mark = True, node_proof.mark_of(secret)
                return node_proof.caller_proof(secret, call, found.nonce)
        raise Untrusted(
            f"what answers there is not the node {call.acceptor} of this cluster: it does not know the "
            "cluster's secret"
        )


class KerberosNodeCredentials:
    """A node that shows its keytab first and then, wrapped, the cluster's secret. It wraps (`Wraps`)."""

    mechanism = "gssapi"
    needs_privacy = False

    def __init__(self, call: KerberosCall, node: NodeCredentials) -> None:
        self._call, self._node = call, node

    def __repr__(self) -> str:
        return f"KerberosNodeCredentials({self._call!r}, {self._node!r})"

    @property
    def is_content(self) -> bool:
        return self._call.is_content and self._node.is_content

    def has_keys(self) -> bool:
        return self._call.has_keys()

    def wrapping(self) -> Keys:
        return self._call.wrapping()

    async def prepare(self) -> None:
        await self._call.prepare()

    async def first(self) -> bytes:
        return await self._call.first()

    async def answer(self, challenge: bytes, /) -> bytes:
        if self._call.has_keys():
            return await self._node.answer(challenge)
        answer = await self._call.answer(challenge)
        if not self._call.has_keys():
            return answer
        return node_proof.AS_NODE + await self._node.first()


def check_privacy(credentials: Secret, address: Address) -> None:
    """Refuses to say aloud what must not be heard: asked before anything is sent."""
    if credentials.needs_privacy and address.scheme != "tls" and not address.is_loopback:
        raise ConfigError(
            f"{address}: a {credentials.mechanism} would be sent for everybody between to read: use tls://"
        )


def read_secret(what: str, path: Path) -> str:
    """One line of text, of a file that not everybody on the machine may read."""
    try:
        with path.open("rb") as file:
            mode = stat.S_IMODE(path.stat().st_mode)
            text = file.read(SECRET_FILE_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(
            f"{what} {str(path)!r}: {error.strerror}: give one that can be read"
        ) from error
    if mode & 0o007:
        raise ConfigError(f"{what} {str(path)!r}: every user may use it: chmod 600 it")
    try:
        line = text.decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        line = "\n"
    if not line or len(text) > SECRET_FILE_BYTES_MAX or "\n" in line or "\0" in line:
        raise ConfigError(f"{what} {str(path)!r}: it must hold one line of text")
    return line

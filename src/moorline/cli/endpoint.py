"""Room: cli. How a command reaches a node: one definition of the flags for all that call one.

    @app.command()
    @with_node
    def status(endpoint: Endpoint, …own flags…) -> None: …

Which node that is, by the first of these that is given:

    --address, --data          a flag; both together are refused
    MOOR_ADDRESS               a variable
    data                       a setting, from MOOR_DATA, --config, MOOR_CONFIG or ./moorline.toml
    nothing                    the node of ./moorline-data, or else the one at the default address

Who we are there, by the first of these that is given:

    --token-file                   a flag
    --user, --password-file        flags; without a file the password is asked for
    MOOR_TOKEN_FILE                a variable
    MOOR_USER, MOOR_PASSWORD_FILE  variables
    nothing                        whom --certificate names, or nobody

Of a data folder the note is read that its node leaves there. A folder that was named and has no node that
runs is an error: a command must never reach another node than the one that was meant.
"""

import fcntl
import functools
import inspect
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Concatenate, ParamSpec, TypeVar

import msgspec
import typer

from moorline.config.addresses import DEFAULT_ADDRESS
from moorline.config.load import load
from moorline.config.shown import escaped
from moorline.errors import Unreachable

if TYPE_CHECKING:
    from moorline.client.credentials import ClientProof
    from moorline.client.moor import Connecting

P = ParamSpec("P")
R = TypeVar("R")

PANEL = "Reaching the node"
NOTE = "node.json"
LOCK = "lock"
TLS_FLAGS = {
    "ca": "the CA of a TLS certificate",
    "certificate": "our TLS certificate",
    "key": "the private key of a TLS certificate",
}
"""Flags that only mean something with TLS, and what they name."""

WHO_FLAGS = ("user", "user_password_file", "user_token_file")
"""By the names of their parameters: a command may have a password file of its own, of whom it makes."""


class Endpoint(msgspec.Struct, frozen=True):
    """An address and what proves us there. It names files, and holds no secret."""

    address: str
    ca: Path | None
    certificate: Path | None
    key: Path | None
    user: str = ""
    password_file: Path | None = None
    token_file: Path | None = None

    def connect(self) -> "Connecting":
        # Here: `moor --help`, `moor config` and `moor serve` need no client.
        from moorline.client.moor import connect

        proof = self.proof()
        return connect(
            self.address,
            ca=self.ca,
            certificate=self.certificate,
            key=self.key,
            user=proof.user,
            password_file=proof.password_file,
            token_file=proof.token_file,
            credentials=proof.credentials,
        )

    def proof(self) -> "ClientProof":
        """What is shown to the node; asks for a password where no file has it."""
        from moorline.client.credentials import ClientProof
        from moorline.net.credentials import PasswordCredentials

        if self.user and self.password_file is None:
            return ClientProof(credentials=PasswordCredentials.of_prompt(self.user))
        return ClientProof(self.user, self.password_file, self.token_file)


def with_node(command: Callable[Concatenate[Endpoint, P], R]) -> Callable[..., R]:
    """Gives a command `--address`, `--data` and the TLS flags, and calls it with what they mean."""

    @functools.wraps(command)
    def with_flags(*args: Any, **options: Any) -> R:
        needs_node = options.get("path") is None  # a job that reads a folder calls nobody
        address = _address(
            options.pop("address"), options.pop("data"), options.pop("config_file"), needs_node
        )
        endpoint = Endpoint(
            address,
            options.pop("ca"),
            options.pop("certificate"),
            options.pop("key"),
            *_who(*(options.pop(name) for name in WHO_FLAGS)),
        )
        _check_tls_flags(endpoint, of_messages="key_text" in options)
        return command(endpoint, *args, **options)

    own = list(inspect.signature(command, eval_str=True).parameters.values())[1:]
    parameters = [*own, *_options()]
    with_flags.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    with_flags.__annotations__ = {one.name: one.annotation for one in parameters}
    del with_flags.__wrapped__
    return with_flags


def _address(
    address: str | None, data: Path | None, config_file: Path | None, needs_node: bool
) -> str:
    if address is not None and data is not None:
        raise typer.BadParameter("--address and --data each name a node: give one of them")
    loaded = load({} if data is None else {"data": str(data)}, os.environ, config_file)
    # Here and not by typer, which would not tell a variable from a flag.
    address = address or (os.environ.get("MOOR_ADDRESS") if data is None else None)
    if address or not needs_node:
        return address or DEFAULT_ADDRESS
    folder, source = Path(loaded.config.data), loaded.sources["data"]
    if source != "default":
        return _noted(folder, source)
    return _noted(folder, source) if _runs(folder) else DEFAULT_ADDRESS


def _who(
    user: str | None, password_file: Path | None, token_file: Path | None
) -> tuple[str, Path | None, Path | None]:
    """User, password file and token file; what a flag says goes before every variable."""
    of_flags = (user, password_file, token_file)
    names = ("--user", "--password-file", "--token-file")
    if of_flags == (None, None, None):
        names = ("MOOR_USER", "MOOR_PASSWORD_FILE", "MOOR_TOKEN_FILE")
        found = [os.environ.get(name) or None for name in names]
        user = found[0]
        password_file, token_file = (Path(one) if one else None for one in found[1:])
    elif password_file is not None and user is None:
        user = os.environ.get("MOOR_USER") or None
    if token_file is not None and (user or password_file):
        other = names[0] if user else names[1]
        raise typer.BadParameter(f"{other} and {names[2]} each say who we are: give one of them")
    if password_file is not None and not user:
        raise typer.BadParameter(f"{names[1]}: whose password is it? give {names[0]} too")
    if user == "":
        raise typer.BadParameter("--user: give the name of a user")
    return user or "", password_file, token_file


def _noted(folder: Path, source: str) -> str:
    """The first address in the note of the node that runs on that folder."""
    named = f"the data folder {escaped(str(folder))} (from {source})"
    if not _runs(folder):
        raise Unreachable(
            f"no node runs on {named}: start it with moor serve, or name another with --address or --data"
        )
    try:
        note = msgspec.json.decode((folder / NOTE).read_bytes())
        return str(note["addresses"][0])
    except (OSError, msgspec.DecodeError, LookupError, TypeError) as error:
        raise Unreachable(
            f"{named} does not tell where its node listens: try again if it is starting, or give --address"
        ) from error


def _runs(folder: Path) -> bool:
    """Whether a node holds the folder. One that was killed leaves its note, but not its lock."""
    try:
        with (folder / LOCK).open("rb") as file:
            if Path("/proc", file.read(20).decode("ascii", "replace").strip() or "none").exists():
                return True
            # Nobody of that number here: a node in another container would hold the lock all the same.
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return True
    except OSError:
        return False
    return False


def _check_tls_flags(endpoint: Endpoint, *, of_messages: bool) -> None:
    """Refuses files of TLS where there is none: nobody would look at them, nor say so."""
    if not endpoint.address.startswith("tcp://"):
        return
    for name, what in TLS_FLAGS.items():
        if getattr(endpoint, name) is not None:
            text = f"--{name} is {what}, and {endpoint.address} is not TLS"
            if name == "key" and of_messages:
                raise typer.BadParameter(f"{text}; the key of a message is --message-key")
            raise typer.BadParameter(f"{text}: give --address tls://HOST:PORT, or leave it out")


def _options() -> list[inspect.Parameter]:
    return [
        _option(
            "address",
            str,
            "--address",
            "Address of the node, as tcp:// or tls://, in place of MOOR_ADDRESS.",
        ),
        _option("data", Path, "--data", "Data folder of a node on this machine."),
        _option("config_file", Path, "--config", "The configuration file that names its folder."),
        _option("ca", Path, "--ca", "PEM file of the CA that the node's certificate is from."),
        _option("certificate", Path, "--certificate", "PEM file of our own certificate."),
        _option("key", Path, "--key", "PEM file of its private key."),
        _option(
            "user",
            str,
            "--user",
            "User whom we are there, in place of MOOR_USER; its password is asked for.",
        ),
        _option(
            "user_password_file",
            Path,
            "--password-file",
            "File with the password of --user, in place of the question.",
        ),
        _option("user_token_file", Path, "--token-file", "File with a token, in place of --user."),
    ]


def _option(name: str, kind: Any, flag: str, help_text: str) -> inspect.Parameter:
    option = typer.Option(flag, help=help_text, show_default=False, rich_help_panel=PANEL)
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[kind | None, option],
    )

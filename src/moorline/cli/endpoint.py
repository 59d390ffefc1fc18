"""Room: cli. How a command reaches a node: one definition of the flags for all that call one.

    @app.command()
    @with_node
    def status(endpoint: Endpoint, …own flags…) -> None: …

Which node that is, by the first of these that is given:

    --address, --data, --context  a flag; two of them are refused
    MOOR_ADDRESS, MOOR_CONTEXT    a variable; both are refused
    data                          a setting, from MOOR_DATA, --config, MOOR_CONFIG or ./moorline.toml
    moor context use              what was chosen; refused where ./moorline-data has a node too
    nothing                       the node of ./moorline-data, or else the one at the default address

Who we are there, by the first of these that is given:

    --kerberos, --keytab, --ccache flags; the first is the default ticket cache of this user
    --token-file                   a flag
    --user, --password-file        flags; without a file the password is asked for
    MOOR_KERBEROS, MOOR_KEYTAB, MOOR_CCACHE  variables
    MOOR_TOKEN_FILE                a variable
    MOOR_USER, MOOR_PASSWORD_FILE  variables
    nothing                        whom --certificate names, or nobody

A context (`cli/contexts.py`) says both where the node is and who we are there; a flag that is given as well
is stronger.

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

from moorline.cli import contexts
from moorline.cli.who import KERBEROS_FLAGS, WHO_FLAGS, KerberosFiles, shown_by
from moorline.config.addresses import DEFAULT_ADDRESS
from moorline.config.load import load
from moorline.config.shown import escaped
from moorline.errors import Unreachable

if TYPE_CHECKING:
    from moorline.client.connecting import Connecting
    from moorline.client.credentials import ClientProof

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

WHERE_FLAGS = ("address", "data", "config_file", "context")

ACROSS_FLAGS = {
    "ca": "--ca",
    "certificate": "--certificate",
    "key": "--key",
    "user": "--user",
    "user_password_file": "--password-file",
    "user_token_file": "--token-file",
    "kerberos": "--kerberos",
    "keytab": "--keytab",
    "ccache": "--ccache",
    "kerberos_principal": "--kerberos-principal",
    "kerberos_service": "--kerberos-service",
}
"""Flags that mean nothing where no node is called."""


class Endpoint(msgspec.Struct, frozen=True):
    """An address and what proves us there. It names files, and holds no secret."""

    address: str
    ca: Path | None
    certificate: Path | None
    key: Path | None
    user: str = ""
    password_file: Path | None = None
    token_file: Path | None = None
    kerberos: KerberosFiles | None = None

    def connect(self) -> "Connecting":
        # Here: `moor --help`, `moor config` and `moor serve` need no client.
        from moorline.client.connecting import connect

        proof = self.proof()
        return connect(
            self.address,
            # A command that cannot go on says so, and whoever gave it decides.
            reconnect=False,
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

        if self.kerberos is not None:
            from moorline.client.credentials import KerberosCredentials

            files = self.kerberos
            return ClientProof(
                credentials=KerberosCredentials(
                    ccache=files.ccache,
                    keytab=files.keytab,
                    principal=files.principal,
                    service=files.service,
                )
            )
        if self.user and self.password_file is None:
            return ClientProof(credentials=PasswordCredentials.of_prompt(self.user))
        return ClientProof(self.user, self.password_file, self.token_file)


def with_node(command: Callable[Concatenate[Endpoint, P], R]) -> Callable[..., R]:
    """Gives a command `--address`, `--data` and the TLS flags, and calls it with what they mean."""

    def with_endpoint(*args: Any, **options: Any) -> R:
        # A job that reads a folder calls nobody; other commands have paths of the tree under that name.
        needs_node = not isinstance(options.get("path"), Path)
        address = _address(options, needs_node)
        return command(_endpoint(address, options), *args, **options)

    return _with_flags(command, with_endpoint)


def with_reaching_flags(command: Callable[Concatenate[dict[str, Any], P], R]) -> Callable[..., R]:
    """The same flags for a command that calls nobody: it gets what was given, by parameter."""

    def with_given(*args: Any, **options: Any) -> R:
        for name in ("data", "config_file", "context"):
            if options.pop(name) is not None:
                raise typer.BadParameter("give the address of a node: --address")
        given = {name: options.pop(name) for name in ("address", *ACROSS_FLAGS)}
        if given["address"]:
            # Refused now and not at its first use.
            _endpoint(given["address"], dict(given))
        return command(given, *args, **options)

    return _with_flags(command, with_given)


def with_node_or_folder(
    command: Callable[Concatenate[Endpoint | Path, P], R],
) -> Callable[..., R]:
    """The same flags for a command that also reads a data folder by itself: it calls a node only if its
    address is named, and gets the folder otherwise."""

    def with_source(*args: Any, **options: Any) -> R:
        by_flag = options["address"] is not None or options["context"] is not None
        # What `moor context use` chose is no reason to leave the folder that a command is about.
        if by_flag or (options["data"] is None and any(_of_variables())):
            return command(_endpoint(_address(options, True), options), *args, **options)
        _, data, file, _ = (options.pop(name) for name in WHERE_FLAGS)
        for name, flag in ACROSS_FLAGS.items():
            if options.pop(name) is not None:
                raise typer.BadParameter(f"{flag} is for a node: name it with --address")
        loaded = load({} if data is None else {"data": str(data)}, os.environ, file)
        return command(Path(loaded.config.data), *args, **options)

    return _with_flags(command, with_source)


def _endpoint(address: str, options: dict[str, Any]) -> Endpoint:
    """Out of the flags of a command, which are taken from its options."""
    endpoint = Endpoint(
        address,
        options.pop("ca"),
        options.pop("certificate"),
        options.pop("key"),
        *shown_by(options),
    )
    _check_tls_flags(endpoint, of_messages="key_text" in options)
    return endpoint


def _with_flags(command: Callable[..., R], called: Callable[..., R]) -> Callable[..., R]:
    @functools.wraps(command)
    def with_flags(*args: Any, **options: Any) -> R:
        return called(*args, **options)

    own = list(inspect.signature(command, eval_str=True).parameters.values())[1:]
    parameters = [*own, *_options()]
    with_flags.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    with_flags.__annotations__ = {one.name: one.annotation for one in parameters}
    del with_flags.__wrapped__
    return with_flags


def _address(options: dict[str, Any], needs_node: bool) -> str:
    """Takes the flags that say where from the options; a context puts what it says of us into them."""
    address: str | None
    context: str | None
    address, data, file, context = (options.pop(name) for name in WHERE_FLAGS)
    if sum(one is not None for one in (address, data, context)) > 1:
        raise typer.BadParameter(
            "--address, --data and --context each name a node: give one of them"
        )
    loaded = load({} if data is None else {"data": str(data)}, os.environ, file)
    # Here and not by typer, which would not tell a variable from a flag.
    if data is None and context is None and address is None:
        address, context = _of_variables()
    if address:
        return address
    if context:
        return _of_context(contexts.named(context), options)
    if not needs_node:
        return DEFAULT_ADDRESS
    folder, source = Path(loaded.config.data), loaded.sources["data"]
    if source != "default":
        return _noted(folder, source)
    chosen = contexts.current()
    if chosen is None:
        return _noted(folder, source) if is_running(folder) else DEFAULT_ADDRESS
    if is_running(folder):
        raise typer.BadParameter(
            f"a node runs on {escaped(str(folder))}, and the context {chosen[0]} is chosen: say which one is "
            f"meant by --data {escaped(str(folder))} or --context {chosen[0]}"
        )
    return _of_context(chosen[1], options)


def _of_variables() -> tuple[str | None, str | None]:
    address, context = (os.environ.get(name) or None for name in ("MOOR_ADDRESS", "MOOR_CONTEXT"))
    if address and context:
        raise typer.BadParameter(
            "MOOR_ADDRESS and MOOR_CONTEXT each name a node: set one of them, or give a flag"
        )
    return address, context


def _of_context(context: contexts.Context, options: dict[str, Any]) -> str:
    """Its address. What it says of us counts where no flag says who we are, and each file where none does."""
    proves = any(options[name] is not None for name in (*WHO_FLAGS, *KERBEROS_FLAGS))
    for name, value in context.flags().items():
        if options[name] is None and not (proves and name in (*WHO_FLAGS, *KERBEROS_FLAGS)):
            options[name] = value
    return context.address


def _noted(folder: Path, source: str) -> str:
    """The first address in the note of the node that runs on that folder."""
    named = f"the data folder {escaped(str(folder))} (from {source})"
    if not is_running(folder):
        raise Unreachable(
            f"no node runs on {named}: start it with moor serve, or name another with --address or --data"
        )
    try:
        note = msgspec.json.decode((folder / NOTE).read_bytes())
        return str(note["addresses"][0])
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, LookupError, TypeError) as error:
        raise Unreachable(
            f"{named} does not tell where its node listens: try again if it is starting, or give --address"
        ) from error


def is_running(folder: Path) -> bool:
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
    if not endpoint.address.startswith(("tcp://", "moor://")):
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
            "Address of the node, as tcp:// or tls://, or resolvers that know one, as moor://HOST,HOST or "
            "moors://HOST,HOST; in place of MOOR_ADDRESS.",
        ),
        _option("data", Path, "--data", "Data folder of a node on this machine."),
        _option("config_file", Path, "--config", "The configuration file that names its folder."),
        _option(
            "context",
            str,
            "--context",
            "A name that `moor context add` gave, in place of MOOR_CONTEXT.",
        ),
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
        _option(
            "kerberos",
            bool,
            "--kerberos",
            "Be whom the ticket of kinit names, in place of --user.",
        ),
        _option("keytab", Path, "--keytab", "Keytab to get a ticket with, in place of kinit."),
        _option("ccache", Path, "--ccache", "Ticket cache, in place of the default one."),
        _option(
            "kerberos_principal",
            str,
            "--kerberos-principal",
            "Whose key of the keytab is used, if it has several.",
        ),
        _option(
            "kerberos_service",
            str,
            "--kerberos-service",
            "Principal of the node, if it is not moorline/HOST.",
        ),
    ]


def _option(name: str, kind: Any, flag: str, help_text: str) -> inspect.Parameter:
    option = typer.Option(flag, help=help_text, show_default=False, rich_help_panel=PANEL)
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[kind | None, option],
    )

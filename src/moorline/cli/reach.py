"""Room: cli. How a command reaches a node: one definition of the flags for all that call one.

    @app.command()
    @with_node
    def status(reach: Reach, …own flags…) -> None: …

Where no address is given, the note that a node leaves in its data folder is read, and where there is
none, the default address is tried.
"""

import functools
import inspect
import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Concatenate, ParamSpec, TypeVar

import msgspec
import typer

from moorline.client.moor import DEFAULT_ADDRESS, Connecting, connect
from moorline.config.settings import Config

P = ParamSpec("P")
R = TypeVar("R")

PANEL = "Reaching the node"
PAPERS = {
    "ca": "the CA of a TLS certificate",
    "certificate": "our TLS certificate",
    "key": "the private key of a TLS certificate",
}
"""Flags that only mean something with TLS, and what they name."""


class Reach(msgspec.Struct, frozen=True):
    """An address and what proves us there."""

    address: str
    ca: Path | None
    certificate: Path | None
    key: Path | None

    def connect(self) -> Connecting:
        return connect(self.address, ca=self.ca, certificate=self.certificate, key=self.key)


def with_node(command: Callable[Concatenate[Reach, P], R]) -> Callable[..., R]:
    """Gives a command `--address`, `--data` and the TLS flags, and calls it with what they mean."""

    @functools.wraps(command)
    def with_flags(*args: Any, **options: Any) -> R:
        data: Path | None = options.pop("data")
        address: str | None = options.pop("address")
        reach = Reach(
            address or _noted(data) or DEFAULT_ADDRESS,
            options.pop("ca"),
            options.pop("certificate"),
            options.pop("key"),
        )
        _check_papers(reach, of_messages="key_text" in options)
        return command(reach, *args, **options)

    own = list(inspect.signature(command, eval_str=True).parameters.values())[1:]
    parameters = [*own, *_options()]
    with_flags.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    with_flags.__annotations__ = {one.name: one.annotation for one in parameters}
    del with_flags.__wrapped__
    return with_flags


def _noted(data: Path | None) -> str | None:
    """The first address in the note of the node that runs on that folder."""
    folder = data or Path(os.environ.get("MOOR_DATA") or Config().data)
    try:
        note = msgspec.json.decode((folder / "node.json").read_bytes())
        return str(note["addresses"][0])
    except (OSError, msgspec.DecodeError, LookupError, TypeError):
        return None


def _check_papers(reach: Reach, *, of_messages: bool) -> None:
    """Refuses files of TLS where there is none: nobody would look at them, nor say so."""
    if not reach.address.startswith("tcp://"):
        return
    for name, what in PAPERS.items():
        if getattr(reach, name) is not None:
            text = f"--{name} is {what}, and {reach.address} is not TLS"
            if name == "key" and of_messages:
                raise typer.BadParameter(f"{text}; the key of a message is --message-key")
            raise typer.BadParameter(f"{text}: give --address tls://HOST:PORT, or leave it out")


def _options() -> list[inspect.Parameter]:
    return [
        _option("address", str, "--address", "Address of the node, as tcp:// or tls://."),
        _option("data", Path, "--data", "Data folder of a node on this machine."),
        _option("ca", Path, "--ca", "PEM file of the CA that the node's certificate is from."),
        _option("certificate", Path, "--certificate", "PEM file of our own certificate."),
        _option("key", Path, "--key", "PEM file of its private key."),
    ]


def _option(name: str, kind: Any, flag: str, help_text: str) -> inspect.Parameter:
    environment = "MOOR_ADDRESS" if name == "address" else None
    option = typer.Option(
        flag, help=help_text, envvar=environment, show_default=False, rich_help_panel=PANEL
    )
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[kind | None, option],
    )

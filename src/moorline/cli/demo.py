"""Room: cli. `moor demo`: what Moorline promises, shown and measured on this machine in a minute or two."""

from typing import Annotated

import msgspec
import typer

from moorline.cli import output
from moorline.cli.installed import need_server
from moorline.errors import ConfigError


def demo(
    serve: Annotated[
        bool,
        typer.Option("--serve", help="No acts: a node with traffic and its page, until Ctrl-C."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The claims as JSON.")] = False,
) -> None:
    """Play one story on a node of its own, and prove each claim with a number.

    Everything happens on loopback, in a temporary folder that is gone at the end.
    """
    need_server("moor demo")
    if serve and as_json:
        raise ConfigError("--serve has no JSON: give one of the two")
    from moorline.demo import run

    if serve:
        run.serve()
        return
    played = run.play_all()
    output.emit(as_json, msgspec.to_builtins(played), lambda: run.show_claims(played))

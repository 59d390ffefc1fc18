"""Room: cli. `moor serve`: a node in this process, until it is told to stop."""

from typing import Annotated

import typer

from moorline.cli import output
from moorline.cli.flags import with_settings
from moorline.cli.installed import need_server
from moorline.config.load import Loaded
from moorline.config.settings import Config


@with_settings
def serve(
    settings: Loaded[Config],
    recompute_digests: Annotated[
        bool,
        typer.Option(
            "--recompute-digests",
            help="Check the kept digest of every service first, and put wrong ones right.",
        ),
    ] = False,
) -> None:
    """Start a node: the roles it is given (all, if none are named), in its data folder.

    When it is ready it prints one line with its addresses. SIGTERM or Ctrl-C stops it, and its embedded
    Postgres with it. Exit codes: docs/exit-codes.md.
    """
    need_server("moor serve")
    import uvloop

    from moorline.node.logs import setup
    from moorline.node.serving import serve as run_node

    config = settings.config
    setup(config.log_format, config.log_level)
    uvloop.run(
        run_node(
            config,
            output.line,
            recompute_digests=recompute_digests,
            read_again=lambda: settings.read_again().config,
        )
    )

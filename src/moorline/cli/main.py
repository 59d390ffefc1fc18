"""Room: cli. The entry of `moor`: its commands, and how a command that fails ends.

A command module keeps heavy imports (asyncpg, the embedded Postgres, numpy, pyarrow) inside its
functions: `moor --help` imports every module, and must be quick.
"""

import os
import sys
import traceback
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from moorline.cli import (
    clock,
    config,
    group,
    journal,
    output,
    pipeline,
    queue_mending,
    service,
    topic,
)
from moorline.cli.serve import serve
from moorline.cli.status import status
from moorline.errors import ConfigError, MoorlineError
from moorline.version import __version__

EXIT_INTERNAL = 1
EXIT_INTERRUPTED = 130
EXIT_OUTPUT_CLOSED = 141
"""As a shell reports a program that SIGPIPE ended."""


class _Moor(TyperGroup):
    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Typer prints its help itself, and so meets a stdout that is full or that nobody reads."""
        try:
            return super().main(*args, **kwargs)
        except OSError:
            # What stdout did not take is still to be written, and fails as ours does.
            output.write("")
            raise

    def invoke(self, ctx: Any) -> Any:
        """Typer ends silently on any broken pipe; only that of stdout is nobody's mistake."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            output.write("")  # raises OutputClosed where it was stdout
            raise RuntimeError("a broken pipe that is not that of stdout") from error


app = typer.Typer(
    name="moor",
    cls=_Moor,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    epilog="Example: moor serve --data ./moorline-data",
)
app.command("serve", epilog="Example: moor serve --data ./moorline-data --log-format json")(serve)
app.command("status", epilog="Example: moor status --address tcp://127.0.0.1:7411 --json")(status)
app.add_typer(config.app, name="config")
app.add_typer(queue_mending.app, name="queue")
app.add_typer(service.app, name="service")
app.add_typer(topic.app, name="topic")
app.add_typer(group.app, name="group")
app.add_typer(journal.app, name="journal")
app.add_typer(pipeline.app, name="pipeline")
app.add_typer(clock.app, name="clock")


def main() -> None:
    """What the installed program `moor` calls."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run one command; its exit code. Nothing but a mistake of ours leaves as an exception."""
    output.prepare()
    try:
        # Typer answers with the code of a typer.Exit, or with what the command returned.
        answer = app(args=list(arguments), prog_name="moor", standalone_mode=False)
        output.write("")  # flushes, so that a closed pipe is met here and not at Python's end
        return answer if isinstance(answer, int) else 0
    except output.OutputClosed:
        output.close_stdout()
        return EXIT_OUTPUT_CLOSED
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except typer.Abort:
        output.error("stopped")
        return EXIT_INTERNAL
    except typer.TyperException as error:
        return _usage(error)
    except MoorlineError as error:
        _traceback()
        # The lines of a ConfigError are our own, one for each mistake, with the values escaped. Any
        # other text may quote a peer and is one line, whatever it holds.
        lines = str(error).split("\n") if isinstance(error, ConfigError) else [str(error)]
        for text in lines:
            output.error(text or type(error).__name__)
        if isinstance(error, output.OutputFailed):
            output.close_stdout()
        return error.exit_code
    except Exception as error:
        what = f"internal error: {type(error).__name__}: {error}"
        hint = "" if _traceback() else " (set MOOR_DEBUG=1 for the traceback)"
        output.error(what + hint)
        return EXIT_INTERNAL


def _print_version(wanted: bool) -> None:
    if wanted:
        output.line(f"moor {__version__}")
        raise typer.Exit


@app.callback()
def moor(
    _version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version.", is_eager=True, callback=_print_version
        ),
    ] = False,
) -> None:
    """A subscription server whose two ends can prove that they agree."""


def _usage(error: typer.TyperException) -> int:
    """A wrong command line: one line, like every other error."""
    context: typer.Context | None = getattr(error, "ctx", None)
    text = error.format_message()
    hint = f" (see {context.command_path} --help)" if context else ""
    if text:  # `moor` or `moor config` alone has printed its help and has no more to say
        output.error(text.rstrip(".") + hint)
    return error.exit_code


def _traceback() -> bool:
    wanted = os.environ.get("MOOR_DEBUG", "") not in ("", "0")
    if wanted:
        traceback.print_exc()
    return wanted


if __name__ == "__main__":
    main()

"""Room: cli. `moor doctor`: whether a node works on this machine, in this folder, and what to do if not."""

from typing import Annotated

import msgspec
import typer

from moorline.cli import output
from moorline.cli.flags import with_settings
from moorline.config.load import Loaded
from moorline.config.settings import Config
from moorline.errors import Unfit


@with_settings
def doctor(
    settings: Loaded[Config],
    quick: Annotated[
        bool, typer.Option("--quick", help="Do not read the files of queues and streams.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON list, an object for each finding.")
    ] = False,
) -> None:
    """Look at a machine and a node, running or not, and say what is wrong and what to do about it.

    Java, packages, clock, file limits, ports, disk, certificates, catalog, the data folder, damaged files.
    The settings are those that a start with the same flags, variables and file would have. Nothing is
    changed. Ends with 0 if a node works here, and with 26 otherwise.
    """
    from moorline.cli.examining import LOOKS, OF_FILES, State, examined

    findings = list(examined(settings.config, LOOKS if quick else (*LOOKS, *OF_FILES)))
    rows = [(one.what, str(one.state), one.said, one.remedy or None) for one in findings]
    output.emit(
        as_json,
        [msgspec.to_builtins(one) for one in findings],
        lambda: output.table(("what", "", "found", "what to do"), rows),
    )
    wrong = sum(one.state is State.WRONG for one in findings)
    if wrong:
        raise Unfit(
            f"{output.counted(wrong, 'thing')} would keep a node from working here: what to do "
            "stands beside each"
        )

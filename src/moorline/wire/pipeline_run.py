"""Room: wire. Runs of the pipeline: what a job says of itself, and what people see of all of them.

A job runs in Spark's processes, beside the nodes. It tells a node how far it is and what it has proven; the
catalog keeps that, so that every node of the cluster can show it.
"""

from enum import Enum
from typing import Annotated

import msgspec
from msgspec import Meta

from moorline.limits import (
    PIPELINE_RUN_NAME_CHARACTERS_MAX,
    PIPELINE_RUNS_PER_PAGE,
    PRINCIPAL_CHARACTERS_MAX,
)
from moorline.wire.bounds import Code, Name, Words
from moorline.wire.message import Answer, Call
from moorline.wire.topic import Number

RunName = Annotated[
    str, Meta(min_length=1, max_length=PIPELINE_RUN_NAME_CHARACTERS_MAX, pattern=r"^[\w\-]+$")
]
# Postgres takes no NUL in a text.
Text = Annotated[str, Meta(max_length=1_024, pattern=r"^[^\x00]*$")]
Kind = Annotated[str, Meta(min_length=1, max_length=32, pattern=r"^[a-z ]+$")]


class RunState(Enum):
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    SILENT = "silent"
    """Only shown: it was running, and has said nothing for long."""


class TellRun(Call, frozen=True, gc=False, tag=614):
    """How a run is, from its own process; answered by `Done`. What was told last counts, and an end stays."""

    run: RunName
    kind: Kind
    """Which job: archive, verify, …"""
    what: Text
    """What it works on."""
    state: Code
    """One of `RunState`."""
    done: Number = 0
    total: Number = 0
    """0 where nobody knows."""
    is_proven: bool | None = None
    """None: nothing was compared."""
    proof: Text = ""
    """In a sentence: what was compared with what."""
    why: Text = ""
    """Of a run that failed."""


class RunFacts(msgspec.Struct, frozen=True, array_like=True, gc=False):
    run: Name
    kind: Code
    what: Words
    state: Code
    done: int
    total: int
    is_proven: bool | None
    proof: Words
    why: Words
    principal: Annotated[str, Meta(max_length=PRINCIPAL_CHARACTERS_MAX)]
    """As whom it told."""
    started_us: int
    told_us: int
    """When it said something last, by the catalog's clock; of one that has ended, its end."""


class ListRuns(Call, frozen=True, gc=False, tag=615):
    """The newest runs, or those that began before that time."""

    before_us: Number = 0
    count: Annotated[int, Meta(ge=1, le=PIPELINE_RUNS_PER_PAGE)] = PIPELINE_RUNS_PER_PAGE


class RunsListed(Answer, frozen=True, gc=False, tag=616):
    """The newest first."""

    runs: Annotated[list[RunFacts], Meta(max_length=PIPELINE_RUNS_PER_PAGE)]
    is_last: bool


COMMANDS = TellRun | ListRuns
EVENTS = RunsListed

"""What all tests share: patience, one Postgres a worker, and how workers share the tests (`sharing.py`)."""

import asyncio
import functools
import gc
import inspect
import re
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
import pytest_asyncio
from hypothesis import HealthCheck, settings
from tests.catalog.databases import shared_postgres
from tests.sharing import (
    LENGTHS,
    GroupScheduling,
    cores,
    file_of,
    groups_of_tests,
    lengths_text,
    read_lengths,
)
from xdist.remote import Producer

from moorline.catalog import EmbeddedPostgres

BRIEF = "brief"
"""What `make fast` draws: fewer examples of each rule, and the first seeds of each simulation."""
SEEDS_BRIEF = 3

# A test is about what happens, and not about when: this machine may have other work.
settings.register_profile(
    "patient", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.register_profile(BRIEF, settings.get_profile("patient"), max_examples=15)
settings.load_profile("patient")

LEFT_OUT = re.compile(r"(?<!or )\bnot (\w+)")
OF_A_FILE = re.compile(r"^pytestmark = (\[[^]]*\]|.*)$", re.MULTILINE)
MARK = re.compile(r"\bpytest\.mark\.(\w+)")

SHOWN_FILES = 15
TOOK_S: dict[str, float] = {}
"""By file, in the process that gathers what workers report."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--write-lengths",
        action="store_true",
        help="Writes how long files took to tests/lengths.txt.",
    )


def pytest_configure(config: pytest.Config) -> None:
    """A shell ignores SIGINT for what it starts in the background, and children inherit that."""
    config.pluginmanager.register(Servers())
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """`-n auto` is one more than there are cores: who waits for a lease or a disk needs none."""
    return cores() + (1 if config.option.numprocesses == "auto" else 0)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """A file that is left out whole is not even imported: a third of them, in every worker."""
    if not config.option.markexpr or collection_path.suffix != ".py":
        return None
    left_out = set(LEFT_OUT.findall(config.option.markexpr))
    marks = {
        mark
        for line in OF_A_FILE.findall(collection_path.read_text(encoding="utf-8"))
        for mark in MARK.findall(line)
    }
    return True if left_out & marks else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection() -> None:
    """What is imported and collected stays for the whole run: nothing is won by walking over it again and
    again, while it grows and later."""
    gc.disable()


def pytest_collection_finish() -> None:
    gc.enable()
    gc.collect()
    gc.freeze()


class Servers:
    """Before markers choose: who stands on a real Postgres or node has started one, whatever a file says."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in items:
            if isinstance(item, pytest.Function) and (
                "postgres" in item.fixturenames or starts_a_node(item)
            ):
                item.add_marker(pytest.mark.process)


def starts_a_node(item: pytest.Function) -> bool:
    """Whether the test, or a fixture that it asks for, makes a `NodeProcess`."""
    fixtures = item._fixtureinfo.name2fixturedefs.values()
    functions = [item.obj, *(fixture.func for several in fixtures for fixture in several)]
    codes = (getattr(inspect.unwrap(one), "__code__", None) for one in functions)
    return any(code is not None and "NodeProcess" in code.co_names for code in codes)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest groups first, of `make fast` few seeds of a test. The same in every worker."""
    if settings.get_current_profile_name() == BRIEF:
        items[:] = [item for item in items if number_of_seed(item) < SEEDS_BRIEF]
    for item in items:
        if isinstance(item, pytest.Function) and inspect.iscoroutinefunction(item.obj):
            item.obj = ended_in_time(item.obj, limit_s(item))
    places = {file: place for place, file in enumerate(groups_of_tests())}
    items.sort(key=lambda item: places[file_of(item.nodeid)])


def limit_s(item: pytest.Item) -> float:
    """How long a test may take, a little less: pytest-timeout comes behind, for those that hold the loop."""
    marker = item.get_closest_marker("timeout")
    limit = marker.args[0] if marker and marker.args else item.config.getini("timeout")
    return max(0.5 * float(limit), float(limit) - 10)


def ended_in_time(
    test: Callable[..., Awaitable[None]], limit_s: float
) -> Callable[..., Awaitable[None]]:
    """The test, ended by its loop: uvloop swallows what pytest-timeout raises, and waits on for ever."""

    @functools.wraps(test)
    async def within(**fixtures: object) -> None:
        async with asyncio.timeout(limit_s):
            await test(**fixtures)

    return within


SEED_NAMES = ("seed", "block")


def number_of_seed(item: pytest.Item) -> int:
    """Of a test that runs for one seed, or block of seeds, behind the other; 0 for all that do not."""
    called = getattr(item, "callspec", None)
    return max(called.indices.get(name, 0) for name in SEED_NAMES) if called else 0


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> GroupScheduling | None:
    return GroupScheduling(config, log) if config.option.dist == "loadscope" else None


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    file = file_of(report.nodeid)
    TOOK_S[file] = TOOK_S.get(file, 0.0) + report.duration


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    if config.option.durations is not None:
        terminalreporter.section(f"slowest {SHOWN_FILES} files")
        for took_s, file in sorted(((s, file) for file, s in TOOK_S.items()), reverse=True)[
            :SHOWN_FILES
        ]:
            terminalreporter.write_line(f"{took_s:.2f}s {file}")
    if config.option.write_lengths:
        LENGTHS.write_text(lengths_text(read_lengths(LENGTHS.read_text()) | TOOK_S))


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def postgres(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[EmbeddedPostgres]:
    """One real Postgres for all tests of a worker; each has a database of its own in it."""
    async with shared_postgres(tmp_path_factory.mktemp("postgres") / "catalog") as postgres:
        yield postgres

"""Whether the catalog answers: told while a question is open, and until an answer comes."""

import asyncio
import json
import os
import signal
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from tests.process.nodes import NodeProcess
from tests.process.test_serve import fetch

from moorline.errors import CatalogUnreachable
from moorline.limits import CATALOG_COMMAND_MS_MAX, CATALOG_SILENT_MS
from moorline.node.catalog_watch import CatalogWatch


def watching(ask: Callable[[], Awaitable[object]]) -> tuple[CatalogWatch, list[int]]:
    now = [0]
    return CatalogWatch(ask, lambda: now[0]), now


async def test_a_question_that_is_open_for_long_is_a_problem_until_it_is_answered() -> None:
    answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    watch, now = watching(lambda: answer)
    looking = asyncio.create_task(watch.look())
    await asyncio.sleep(0)
    now[0] = CATALOG_SILENT_MS - 1
    assert watch.silent() == ""
    now[0] = CATALOG_SILENT_MS
    assert "the catalog does not answer" in watch.silent()
    answer.set_result(1)
    await looking
    assert watch.silent() == ""
    now[0] += 10 * CATALOG_SILENT_MS
    assert watch.silent() == "", "between two questions nobody waits"


async def test_a_question_that_fails_is_a_problem_until_one_is_answered() -> None:
    errors: list[Exception] = [CatalogUnreachable("gone"), RuntimeError("a mistake of ours")]

    async def ask() -> None:
        if errors:
            raise errors.pop()

    watch, _ = watching(ask)
    await watch.look()
    assert watch.silent()
    await watch.look()
    assert watch.silent()
    await watch.look()
    assert watch.silent() == ""


@pytest.mark.process
def test_a_catalog_that_is_stopped_is_told_long_before_its_statements_are_given_up(
    tmp_path: Path,
) -> None:
    with NodeProcess(tmp_path / "data") as node:
        first = int((tmp_path / "data" / "catalog" / "postmaster.pid").read_text().split()[0])
        children = Path(f"/proc/{first}/task/{first}/children")
        stopped = [first]
        os.kill(first, signal.SIGSTOP)
        try:
            stopped += [int(word) for word in children.read_text().split()]
            for pid in stopped[1:]:
                os.kill(pid, signal.SIGSTOP)
            began = time.monotonic()
            while fetch(f"{node.http}/healthz")[0] == 200:
                took_ms = (time.monotonic() - began) * 1_000
                assert took_ms < CATALOG_COMMAND_MS_MAX / 2, "as late as whoever asked it something"
            status, body = fetch(f"{node.http}/healthz")
            assert (status, json.loads(body)["ok"]) == (503, False)
            assert "the catalog does not answer" in body
            assert fetch(f"{node.http}/livez")[0] == 200
        finally:
            for pid in stopped:
                os.kill(pid, signal.SIGCONT)
        began = time.monotonic()
        while fetch(f"{node.http}/healthz")[0] != 200:
            assert time.monotonic() - began < 60, "the catalog is back"

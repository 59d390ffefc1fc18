"""Steps that hang: whoever waits hears it in time, others go on, and a process may end."""

import asyncio
import os
import subprocess
import sys
import threading

import pytest

from moorline.net.steps import Hangs, Steps


async def test_a_step_returns_what_it_returns_and_raises_what_it_raises() -> None:
    steps = Steps("test", 2)
    assert await steps.run(lambda: 7, 30_000) == 7
    with pytest.raises(ZeroDivisionError):
        await steps.run(lambda: 1 // 0, 30_000)
    found = await asyncio.gather(*(steps.run(lambda n=n: n, 30_000) for n in range(200)))  # type: ignore[misc]
    assert found == list(range(200))


async def test_no_more_run_at_once_than_may_and_one_that_hangs_keeps_its_place() -> None:
    steps, go_on = Steps("test", 2), threading.Event()
    running: list[int] = []

    def hang(number: int) -> int:
        running.append(number)
        go_on.wait(60)
        return number

    try:
        both = [asyncio.create_task(steps.run(lambda n=n: hang(n), 60_000)) for n in range(2)]  # type: ignore[misc]
        while len(running) < 2:
            await asyncio.sleep(0.005)
        with pytest.raises(Hangs):
            await steps.run(lambda: hang(9), 50)
        assert running == [0, 1] or running == [1, 0]
    finally:
        go_on.set()
    assert await asyncio.gather(*both) == [0, 1]
    # The one that was given up before its turn never begins.
    assert await steps.run(lambda: 5, 30_000) == 5
    assert 9 not in running


async def test_threads_are_made_as_they_are_needed_and_used_again() -> None:
    name = f"test-again-{id(asyncio.get_running_loop())}"
    steps = Steps(name, 16)
    for _ in range(50):
        assert await steps.run(lambda: threading.current_thread().name, 30_000) == name
    assert sum(thread.name == name for thread in threading.enumerate()) == 1


def test_a_process_ends_while_a_step_hangs_and_a_fork_has_threads_of_its_own() -> None:
    code = """
import asyncio, os, sys, time
from moorline.net.steps import Hangs, Steps
steps = Steps("x", 1)
async def main():
    try:
        await steps.run(lambda: time.sleep(600), 50)
    except Hangs:
        print("hangs", flush=True)
asyncio.run(main())
child = os.fork()
if child == 0:
    print("fork", asyncio.run(steps.run(lambda: 3, 30_000)), flush=True)
    os._exit(0)
os.waitpid(child, 0)
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        env=dict(os.environ),
        check=False,
    )
    assert done.stdout.split() == ["hangs", "fork", "3"], done.stderr

"""Whether the loop that runs here is the one that something was made on."""

import asyncio
import os
import threading

import pytest
import uvloop

from moorline.net.own_loop import OwnLoop


async def made() -> OwnLoop:
    own = OwnLoop()
    assert own.is_here
    return own


async def is_here(own: OwnLoop) -> bool:
    return own.is_here


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_it_is_known_on_its_loop_and_on_no_other(new_loop: type[asyncio.AbstractEventLoop]) -> None:
    first, second = new_loop(), new_loop()
    try:
        own = first.run_until_complete(made())
        assert not own.is_here, "nothing runs"
        assert not second.run_until_complete(is_here(own)), "another one runs in the same thread"
        assert first.run_until_complete(is_here(own)), "it runs again"
    finally:
        first.close()
        second.close()


def test_another_thread_may_run_it_later_and_while_it_runs_no_other_is_it() -> None:
    loop = asyncio.new_event_loop()
    own = loop.run_until_complete(made())
    found: list[bool] = []

    def run_it() -> None:
        found.append(loop.run_until_complete(is_here(own)))

    thread = threading.Thread(target=run_it)
    thread.start()
    thread.join()
    loop.close()
    assert found == [True]

    async def while_it_runs() -> bool:
        here = OwnLoop()
        return await asyncio.to_thread(lambda: asyncio.run(is_here(here)))

    assert not asyncio.run(while_it_runs())


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
async def test_in_a_forked_child_it_is_another_one() -> None:
    own = OwnLoop()
    child = os.fork()
    if not child:
        os._exit(1 if own.is_here else 0)
    _, status = await asyncio.to_thread(os.waitpid, child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert own.is_here

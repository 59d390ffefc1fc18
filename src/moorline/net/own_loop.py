"""Room: net. The event loop that something belongs to, and whether it is the one that runs here.

`asyncio.get_running_loop` asks the kernel for the process each time, in Python 3.11: that is more than most
of what a call of a client costs. A thread runs one loop at a time: ours runs here if it runs and this is its
thread.
"""

import asyncio
import os
import threading


class OwnLoop:
    """Made on that loop."""

    __slots__ = ("_loop", "_process", "_thread")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._process = _process

    @property
    def is_here(self) -> bool:
        if (
            threading.get_ident() == self._thread
            and self._loop.is_running()
            and self._process is _process
        ):
            return True
        # A loop may be run in another thread later on; and in a child, what runs is another one.
        try:
            return asyncio.get_running_loop() is self._loop
        except RuntimeError:
            return False


_process = object()
"""Another one in each child that is forked: there our loop looks as if it ran."""


def _forked() -> None:
    global _process
    _process = object()


os.register_at_fork(after_in_child=_forked)

"""Room: client. The one thread that works on a service's list, so that whoever is cancelled leaves it whole.

A task that is cancelled goes on at once, but the thread that works for it does not. If another thread took
over, it would change the list in the middle of the other's transaction, or close the file that the other
reads. So all work on a list is done by one thread, in the order in which it was asked for, and closing is
the last of it.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from moorline.client.associations import Associations
from moorline.errors import ConfigError

Result = TypeVar("Result")


class ListThread:
    """Works on one list. The thread begins with the first work and ends with `close`."""

    def __init__(self, listed: Associations) -> None:
        self._listed = listed
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="moorline-list")
        self._closed: Future[None] | None = None

    async def run(self, work: Callable[..., Result], *values: Any) -> Result:
        """Does the work after all that was asked for before.

        If the caller is cancelled, work that has not begun never does, and work that has is finished.
        """
        if self._closed is not None:
            raise ConfigError("this service is closed: enter it again with moor.service(…)")
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._executor, partial(work, *values))

    def close(self) -> None:
        """Nothing more is taken; the file is closed when what was asked for is done."""
        if self._closed is None:
            self._closed = Future()
            # From now on nobody can cancel it: a waiter that gives up must not keep the file open.
            self._closed.set_running_or_notify_cancel()
            self._executor.submit(self._close)
            self._executor.shutdown(wait=False)

    async def closed(self) -> None:
        """Waits for the end of `close`; whoever is cancelled here leaves it to finish."""
        assert self._closed is not None
        await asyncio.wrap_future(self._closed)

    def _close(self) -> None:
        assert self._closed is not None
        try:
            self._listed.close()
        except BaseException as error:
            self._closed.set_exception(error)
        else:
            self._closed.set_result(None)

"""Room: client. `RoleDial`: one more connection like a client's own, to a node that runs a role.

Of several addresses some may be of nodes without it: these are passed over. The first time the order is the
program's; later it is of chance, so that those that one node cut do not all go to the same next one.
"""

import random
from collections.abc import Awaitable, Callable, Sequence

from moorline.config.addresses import Address
from moorline.errors import MoorlineError, Unsupported
from moorline.net.caller import Caller

Dial = Callable[[], Awaitable[tuple[Caller, Address]]]
"""Opens a connection like those that a client has."""


class RoleDial:
    """Called for each connection; they are the caller's to close."""

    def __init__(self, dials: Sequence[Dial], role: str) -> None:
        self._dials = list(dials)
        self._role = role

    async def __call__(self) -> tuple[Caller, Address]:
        lacking: Unsupported | None = None
        failed: MoorlineError | None = None
        for dial in list(self._dials):
            try:
                caller, address = await dial()
            except MoorlineError as error:
                failed = error
                continue
            node = caller.node
            if node is None or not node.roles or self._role in node.roles:
                random.shuffle(self._dials)
                return caller, address
            caller.close("DONE", "a node with another role was meant")
            lacking = Unsupported(f"the node {node.node!r} does not run the role `{self._role}`")
        # Who cannot be reached may have it, and be back in a moment.
        why = failed or lacking
        assert why is not None, "no address at all"
        raise why

"""Moorline: a subscription server whose two ends can prove that they agree.

The public names are few; everything else is behind them. They are loaded when they are first used, so
that a command line that needs none of them starts quickly.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from moorline.client.moor import Moor, connect
    from moorline.client.queue import Message, Queue
    from moorline.client.service import Service
    from moorline.errors import (
        CallFailed,
        ConfigError,
        ConnectionLost,
        Drifting,
        MoorlineError,
        NodeDiskFull,
        NoMessage,
        NotAuthorized,
        NotFound,
        QueueBlocked,
        QueueDamaged,
        QueueOff,
        QuotaExceeded,
        Refused,
        ServiceDisabled,
        SubscriptionEnded,
        TooLarge,
        Unreachable,
    )

__all__ = [
    "CallFailed",
    "ConfigError",
    "ConnectionLost",
    "Drifting",
    "Message",
    "Moor",
    "MoorlineError",
    "NoMessage",
    "NodeDiskFull",
    "NotAuthorized",
    "NotFound",
    "Queue",
    "QueueBlocked",
    "QueueDamaged",
    "QueueOff",
    "QuotaExceeded",
    "Refused",
    "Service",
    "ServiceDisabled",
    "SubscriptionEnded",
    "TooLarge",
    "Unreachable",
    "connect",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'moorline' has no name {name!r}")
    if name in {"Moor", "connect", "Message", "Queue"}:
        from moorline.client import moor

        return getattr(moor, name)
    if name == "Service":
        from moorline.client.service import Service

        return Service
    from moorline import errors

    return getattr(errors, name)

"""Moorline: a subscription server whose two ends can prove that they agree.

The public names are few; everything else is behind them. They are loaded when they are first used, so
that a command line that needs none of them starts quickly.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from moorline.client.moor import Moor, connect
    from moorline.client.queue import Message, Queue
    from moorline.client.service import Service
    from moorline.client.topic import Batch, Subscription, TopicMessage, record
    from moorline.errors import (
        BadStart,
        BadTopic,
        CallFailed,
        ConfigError,
        ConnectionLost,
        Drifting,
        LimitReached,
        MoorlineError,
        NodeDiskFull,
        NoMessage,
        NotAuthorized,
        NotFound,
        OutcomeUnknown,
        QueueBlocked,
        QueueDamaged,
        QueueInRepair,
        QueueOff,
        QuotaExceeded,
        Refused,
        ServiceDisabled,
        SessionTaken,
        SubscriptionEnded,
        TooLarge,
        Unreachable,
        Untrusted,
        WrongLoop,
        WrongNode,
    )
    from moorline.net.credentials import PasswordCredentials, TokenCredentials

__all__ = [
    "BadStart",
    "BadTopic",
    "Batch",
    "CallFailed",
    "ConfigError",
    "ConnectionLost",
    "Drifting",
    "LimitReached",
    "Message",
    "Moor",
    "MoorlineError",
    "NoMessage",
    "NodeDiskFull",
    "NotAuthorized",
    "NotFound",
    "OutcomeUnknown",
    "PasswordCredentials",
    "Queue",
    "QueueBlocked",
    "QueueDamaged",
    "QueueInRepair",
    "QueueOff",
    "QuotaExceeded",
    "Refused",
    "Service",
    "ServiceDisabled",
    "SessionTaken",
    "Subscription",
    "SubscriptionEnded",
    "TokenCredentials",
    "TooLarge",
    "TopicMessage",
    "Unreachable",
    "Untrusted",
    "WrongLoop",
    "WrongNode",
    "connect",
    "record",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'moorline' has no name {name!r}")
    if name in {"Moor", "connect", "Message", "Queue"}:
        from moorline.client import moor

        return getattr(moor, name)
    if name in {"Batch", "Subscription", "TopicMessage", "record"}:
        from moorline.client import topic

        return getattr(topic, name)
    if name == "Service":
        from moorline.client.service import Service

        return Service
    if name in {"PasswordCredentials", "TokenCredentials"}:
        from moorline.net import credentials

        return getattr(credentials, name)
    from moorline import errors

    return getattr(errors, name)

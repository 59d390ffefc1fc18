"""Moorline: a subscription server whose two ends can prove that they agree.

The public names are few; everything else is behind them. They are loaded when they are first used, so
that a command line that needs none of them starts quickly.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from moorline.client.connecting import connect
    from moorline.client.credentials import KerberosCredentials
    from moorline.client.deadline import deadline
    from moorline.client.events import ClientEvent, EventKind
    from moorline.client.moor import Moor
    from moorline.client.queue import Message, Queue
    from moorline.client.records.changes import ChangeKind, RecordChange
    from moorline.client.records.settings import RecordSettings
    from moorline.client.records.table import RecordTable
    from moorline.client.resolver import Resolver
    from moorline.client.service import Service
    from moorline.client.topic import Batch, Subscription, TopicMessage, record
    from moorline.client.values.publisher import PublishedValue, Publisher
    from moorline.client.values.subscriber import Subscriber
    from moorline.client.values.subscription import ValueEvent, ValueSubscription
    from moorline.errors import (
        BadFilter,
        BadPath,
        BadStart,
        BadTopic,
        CallFailed,
        CertificateRefused,
        ConfigError,
        ConnectionLost,
        Denied,
        Drifting,
        Elsewhere,
        Expired,
        HomeAway,
        KerberosError,
        LimitReached,
        MoorlineError,
        NodeDiskFull,
        NoMessage,
        NoSuchColumn,
        NoSuchTable,
        NotAuthorized,
        NotFound,
        NotReady,
        OutcomeUnknown,
        QueueBlocked,
        QueueDamaged,
        QueueInRepair,
        QueueOff,
        QuotaExceeded,
        Refused,
        RowTooLarge,
        ServiceDisabled,
        SessionTaken,
        Stale,
        SubscriptionEnded,
        TableChanged,
        TableGone,
        TlsError,
        TooLarge,
        Unreachable,
        Untrusted,
        WrongLoop,
        WrongNode,
    )
    from moorline.net.credentials import PasswordCredentials, TokenCredentials

_OF_VALUES = {
    "PublishedValue": "publisher",
    "Publisher": "publisher",
    "Subscriber": "subscriber",
    "ValueEvent": "subscription",
    "ValueSubscription": "subscription",
}

_OF_RECORDS = {
    "ChangeKind": "changes",
    "RecordChange": "changes",
    "RecordSettings": "settings",
    "RecordTable": "table",
}

__all__ = [
    "BadFilter",
    "BadPath",
    "BadStart",
    "BadTopic",
    "Batch",
    "CallFailed",
    "CertificateRefused",
    "ChangeKind",
    "ClientEvent",
    "ConfigError",
    "ConnectionLost",
    "Denied",
    "Drifting",
    "Elsewhere",
    "EventKind",
    "Expired",
    "HomeAway",
    "KerberosCredentials",
    "KerberosError",
    "LimitReached",
    "Message",
    "Moor",
    "MoorlineError",
    "NoMessage",
    "NoSuchColumn",
    "NoSuchTable",
    "NodeDiskFull",
    "NotAuthorized",
    "NotFound",
    "NotReady",
    "OutcomeUnknown",
    "PasswordCredentials",
    "PublishedValue",
    "Publisher",
    "Queue",
    "QueueBlocked",
    "QueueDamaged",
    "QueueInRepair",
    "QueueOff",
    "QuotaExceeded",
    "RecordChange",
    "RecordSettings",
    "RecordTable",
    "Refused",
    "Resolver",
    "RowTooLarge",
    "Service",
    "ServiceDisabled",
    "SessionTaken",
    "Stale",
    "Subscriber",
    "Subscription",
    "SubscriptionEnded",
    "TableChanged",
    "TableGone",
    "TlsError",
    "TokenCredentials",
    "TooLarge",
    "TopicMessage",
    "Unreachable",
    "Untrusted",
    "ValueEvent",
    "ValueSubscription",
    "WrongLoop",
    "WrongNode",
    "connect",
    "deadline",
    "record",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'moorline' has no name {name!r}")
    if name == "connect":
        from moorline.client.connecting import connect

        return connect
    if name == "sync":
        return importlib.import_module("moorline.sync")
    if name == "deadline":
        from moorline.client.deadline import deadline

        return deadline
    if name in {"ClientEvent", "EventKind"}:
        from moorline.client import events

        return getattr(events, name)
    if name in {"Moor", "Message", "Queue"}:
        from moorline.client import moor

        return getattr(moor, name)
    if name in _OF_VALUES:
        module = importlib.import_module(f"moorline.client.values.{_OF_VALUES[name]}")
        return getattr(module, name)
    if name in _OF_RECORDS:
        module = importlib.import_module(f"moorline.client.records.{_OF_RECORDS[name]}")
        return getattr(module, name)
    if name in {"Batch", "Subscription", "TopicMessage", "record"}:
        from moorline.client import topic

        return getattr(topic, name)
    if name == "Service":
        from moorline.client.service import Service

        return Service
    if name == "Resolver":
        from moorline.client.resolver import Resolver

        return Resolver
    if name in {"PasswordCredentials", "TokenCredentials"}:
        from moorline.net import credentials

        return getattr(credentials, name)
    if name == "KerberosCredentials":
        from moorline.client.credentials import KerberosCredentials

        return KerberosCredentials
    from moorline import errors

    return getattr(errors, name)

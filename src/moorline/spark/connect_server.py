"""Room: spark. A Spark Connect server that is far away: found, or not; waited for, but not for ever.

Spark's own client waits ten minutes for a server that is not there, without a word. A server that is started
again knows nothing of the sessions before: so there is nothing to wait for but a network that stumbles.
"""

import threading
from typing import TYPE_CHECKING, Any

from moorline.errors import ConfigError, Unreachable
from moorline.limits import (
    SPARK_CHANNEL_CLOSE_MS_MAX,
    SPARK_CONNECT_MS_MAX,
    SPARK_CONNECT_PAUSE_MS,
    SPARK_CONNECT_TRIES,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def is_far(remote: str | None) -> bool:
    """Whether it is a server of somebody else's, and not one that the session starts itself."""
    return bool(remote) and not str(remote).startswith("local")


def find_server(remote: str) -> None:
    """Returns when a server speaks gRPC there; raises if none does in time, or if it is no address."""
    import grpc  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException
    from pyspark.sql.connect.client import DefaultChannelBuilder

    # The address may carry a token: what is shown is host and port.
    try:
        builder = DefaultChannelBuilder(remote)
        endpoint = builder.endpoint
    except (PySparkException, ValueError):
        raise ConfigError(
            "remote: this is no address of a Spark Connect server; accepted: sc://HOST:PORT, or local"
        ) from None
    channel = builder.toChannel()
    before = set(threading.enumerate())
    ready = grpc.channel_ready_future(channel)
    try:
        ready.result(timeout=SPARK_CONNECT_MS_MAX / 1_000)
    except grpc.FutureTimeoutError:
        raise Unreachable(
            f"no Spark Connect server answers at {endpoint}, {SPARK_CONNECT_MS_MAX // 1_000} seconds "
            "long: is it running?"
        ) from None
    finally:
        ready.cancel()
        _close(channel, set(threading.enumerate()) - before)


def _close(channel: Any, watching: set[threading.Thread]) -> None:
    """Closes a channel when nobody looks at it any more: a thread of gRPC's that still does, some tenths of a
    second behind the last who asked, would say so on stderr."""
    for thread in watching:
        thread.join(SPARK_CHANNEL_CLOSE_MS_MAX / 1_000)
    if not any(thread.is_alive() for thread in watching):
        channel.close()


def bound_patience(spark: "SparkSession") -> None:
    """From now on a server that went away is asked again for some seconds, and then no more."""
    from pyspark.sql.connect.client.retries import DefaultPolicy

    policy = DefaultPolicy(
        max_retries=SPARK_CONNECT_TRIES,
        initial_backoff=SPARK_CONNECT_PAUSE_MS,
        max_backoff=SPARK_CONNECT_PAUSE_MS,
        jitter=0,
        max_server_retry_delay=SPARK_CONNECT_PAUSE_MS,
    )
    _client(spark).set_retry_policies([policy])


def end_patience(spark: "SparkSession | None") -> None:
    """Whatever is being asked again is given up; calls that are said from now on are said once."""
    for policy in _client(spark).get_retry_policies() if spark is not None else []:
        policy.max_retries = 0


def is_server_gone(error: BaseException) -> bool:
    """Whether a call failed because nobody answers there any more."""
    code: Any = getattr(error, "getGrpcStatusCode", None)
    return callable(code) and getattr(code(), "name", "") == "UNAVAILABLE"


def _client(spark: "SparkSession") -> Any:
    return spark.client  # a session of Spark Connect has one

"""Room: config. The settings of the subjects: `[queues]`, `[streams]` and `[groups]`."""

from collections.abc import Iterator
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from moorline import limits
from moorline.config.problem import Problem


class Queues(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The section `[queues]`."""

    sync: Annotated[
        Literal["power", "process"],
        Meta(
            description="What an acknowledged change survives: a power cut, or a crash of the node."
        ),
    ] = "power"
    max_queue_messages: Annotated[
        int,
        Meta(ge=1, le=1_000_000, description="Messages that wait in a queue before it is full."),
    ] = 128
    max_file_messages: Annotated[
        int, Meta(ge=2, le=2_000_000, description="Messages in a message file before a new one.")
    ] = 256
    message_bytes_max: Annotated[
        int, Meta(ge=1, le=512 * limits.KIB, description="Largest body of a message.")
    ] = 16 * limits.KIB
    ttl_s: Annotated[
        int, Meta(ge=0, le=10**10, description="Age at which a message expires; 0 is never.")
    ] = 21 * 86_400
    expire_interval_s: Annotated[
        int, Meta(ge=1, le=10**7, description="Time between two looks for expired messages.")
    ] = 2 * 3_600
    expire_on_send: Annotated[
        bool, Meta(description="Whether a send removes what has expired in its queue.")
    ] = True
    folder_levels: Annotated[
        int, Meta(ge=0, le=8, description="Levels of two characters above a queue's folder.")
    ] = 4
    log_bytes_max: Annotated[
        int,
        Meta(
            ge=limits.MIB,
            le=1 << 40,
            description="Size of the write-ahead log. A checkpoint begins at half of it; senders are slowed "
            "down so that it ends before the log is full.",
        ),
    ] = 256 * limits.MIB
    operators: Annotated[
        list[str],
        Meta(
            description="No setting any more: in a catalog that is older than rights each of these gets "
            "a row once. Use `moor grant`."
        ),
    ] = msgspec.field(default_factory=list)

    def problems(self) -> Iterator[Problem]:
        if self.max_queue_messages >= self.max_file_messages:
            yield Problem(
                ("max_queue_messages", "max_file_messages"),
                f"it must be below queues.max_file_messages ({self.max_file_messages}), so that a "
                "queue never needs a third message file",
            )


class Streams(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The section `[streams]`."""

    sync: Annotated[
        Literal["power", "process"],
        Meta(description="What a published message survives: a power cut, or a crash of the node."),
    ] = "power"
    shards: Annotated[
        int,
        Meta(
            ge=1,
            le=limits.STREAM_SHARDS_MAX,
            description="Shards that this node writes to at once. Change it while nobody publishes: a "
            "publish that is tried again behind the change may be stored twice. A write of Spark that "
            "was cut short is finished with the number before; the first start behind its end takes this.",
        ),
    ] = 8
    message_bytes_max: Annotated[
        int, Meta(ge=1, le=512 * limits.KIB, description="Largest body of a message.")
    ] = 256 * limits.KIB
    generation_s: Annotated[
        int, Meta(ge=1, le=10**9, description="Age at which a generation is sealed.")
    ] = 3_600
    generation_bytes_max: Annotated[
        int,
        Meta(ge=4_096, le=1 << 40, description="Size at which a generation is sealed."),
    ] = 256 * limits.MIB
    retention_s: Annotated[
        int,
        Meta(ge=0, le=10**10, description="Age at which a generation is dropped; 0 is never."),
    ] = 7 * 86_400
    retention_bytes: Annotated[
        int,
        Meta(
            ge=0,
            le=1 << 60,
            description="Size of all streams above which the oldest generations are dropped; 0 is none.",
        ),
    ] = 0


class Groups(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The section `[groups]`."""

    lease_ms: Annotated[
        int,
        Meta(ge=200, le=600_000, description="Time after which a Leader that is gone is replaced."),
    ] = 5_000
    ping_ms: Annotated[
        int, Meta(ge=20, le=60_000, description="Time between two signs of life of a member.")
    ] = 1_000
    member_timeout_ms: Annotated[
        int,
        Meta(ge=50, le=600_000, description="Silence after which a member's streams are others'."),
    ] = 5_000
    revoke_ms: Annotated[
        int,
        Meta(
            ge=50,
            le=3_600_000,
            description="Time a member has to finish what it holds of a stream that moves.",
        ),
    ] = 30_000
    rebalance_ms: Annotated[
        int, Meta(ge=0, le=60_000, description="Wait for more joins and leaves before a new plan.")
    ] = 50
    commit_ms: Annotated[
        int, Meta(ge=0, le=60_000, description="Pause between two commits of a group's progress.")
    ] = 100
    idle_ms: Annotated[
        int, Meta(ge=100, le=10**9, description="Time after which a Leader without members ends.")
    ] = 30_000
    lock_ms: Annotated[
        int,
        Meta(
            ge=50,
            le=10**9,
            description="Time a member of a $queue group has for a message before others get it.",
        ),
    ] = 30_000
    load_ms: Annotated[
        int,
        Meta(
            ge=0,
            le=3_600_000,
            description=(
                "Time between two looks at what the streams of a $shared group carry, after which members "
                "may exchange some; 0 shares them by number alone."
            ),
        ),
    ] = 10_000
    window: Annotated[
        int,
        Meta(
            ge=1,
            le=limits.TOPIC_WINDOW_MAX,
            description="Unacknowledged messages of a subscription that a session comes back with.",
        ),
    ] = limits.TOPIC_WINDOW
    deliveries_max: Annotated[
        int,
        Meta(
            ge=0,
            le=1_000_000,
            description="Failed deliveries before a message goes to $dead; 0 is never. For new groups.",
        ),
    ] = 5
    operators: Annotated[
        list[str],
        Meta(description="No setting any more, as queues.operators."),
    ] = msgspec.field(default_factory=list)

    def problems(self) -> Iterator[Problem]:
        if self.member_timeout_ms <= 2 * self.ping_ms:
            yield Problem(
                ("member_timeout_ms", "ping_ms"),
                f"it must be above twice groups.ping_ms ({self.ping_ms}), so that one lost sign of "
                "life costs nobody its streams",
            )

"""Room: config. Lines of quotas in the settings: what counts where the catalog says nothing.

"@authenticated queues 100_000"                  each one who proved somebody
"alice messages_per_s 5000"                      one principal
"tls://0.0.0.0:7411 connections 2000"            all together who come by that address of `listen`
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from moorline.core.access.quota import SHARED, Bounds, Quota

LINE_FORM: Final = (
    "a list of SUBJECT QUOTA BOUND with SUBJECT a principal, a @group of users or an address of listen, "
    f"QUOTA one of {', '.join(Quota)}, and BOUND a number"
)

DEFAULTS: Final = (
    "@authenticated connections 1_000",
    "@authenticated queues 100_000",
    "@authenticated topics 100_000",
    "@authenticated groups 1_000",
    "@authenticated subscriptions 10_000",
    "@authenticated stages 1_000",
    "@authenticated sessions 100_000",
    "@authenticated paths 2_000_000",
    "@authenticated stored_bytes 17_179_869_184",
    "@authenticated topic_bytes 1_099_511_627_776",
    "@authenticated heavy_calls_per_s 1_000",
)
"""Far above what a program needs, and far below what harms a node. Who is on this machine and proves nothing
is the owner of the folder, and bounds itself."""


class QuotaLine(NamedTuple):
    subject: str
    quota: Quota
    bound: int

    @property
    def is_listeners(self) -> bool:
        return "://" in self.subject


def parsed(text: str) -> QuotaLine:
    """`ValueError` says what is wrong with it."""
    words = text.split()
    if len(words) != 3:
        raise ValueError(f"accepted: {LINE_FORM}")
    subject, quota, bound = words
    if quota not in list(Quota):
        raise ValueError(f"there is no quota {quota}; accepted: one of {', '.join(Quota)}")
    line = QuotaLine(subject, Quota(quota), _number(bound))
    if line.is_listeners and line.quota not in SHARED:
        shared = ", ".join(sorted(SHARED))
        raise ValueError(f"a listener has no {quota} of its own; accepted: one of {shared}")
    return line


def _number(text: str) -> int:
    if not text.replace("_", "").isdecimal() or int(text) >= 1 << 60:
        raise ValueError(f"{text} is no bound; accepted: a number from 0 on")
    return int(text)


def bounds_by_subject(lines: Iterable[QuotaLine]) -> Mapping[str, Bounds]:
    """Of several lines about the same the last one counts."""
    found: dict[str, dict[str, int]] = {}
    for line in lines:
        found.setdefault(line.subject, {})[line.quota.value] = line.bound
    return {subject: Bounds(**bounds) for subject, bounds in found.items()}

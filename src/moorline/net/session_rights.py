"""Room: net. What a session may do and may take, as the rooms see it that judge by it.

Who gives it to a session is in the room above: access/rights.py and access/quotas.py.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Final, Protocol

from moorline.core.access.principal import Proof
from moorline.core.access.quota import Quota

Wanted = tuple[int, str]
"""A right, and the path below which it is wanted."""

Name = str | bytes
"""Of something below a path, as its callers have it: a topic, or the id of a queue."""

Passing = set[Name] | frozenset[Name]
"""Names below a path that a run of calls may have, all of them."""

ALL: Final[Passing] = frozenset({"#"})
"""In place of names: whatever they are. To be compared by `is`."""


def undenied_at(below: str) -> str:
    """In place of a path in `Wanted`: names at which nothing takes the right away."""
    return f"-{below}"


class SessionRights(Protocol):
    """What a session may do: `access.rights.Rights`, as the rooms see it that judge by it.

    Rights are bits of `core.access.right`, at a path or of a filter.
    """

    @property
    def principal(self) -> str: ...
    @property
    def is_node(self) -> bool: ...
    @property
    def proof(self) -> Proof:
        """With `is_local` and `claimed` all that another node needs to know, beside the principal, to judge
        the same."""

    @property
    def is_local(self) -> bool: ...
    @property
    def claimed(self) -> frozenset[str]:
        """Groups of users that its proof gives, beside those of the catalog."""

    @property
    def is_known(self) -> bool:
        """False if the node has not heard from the catalog for too long: then nothing is allowed."""

    @property
    def passing(self) -> Mapping[Wanted, Passing]:
        """What each message needs, as it was found before: one look for a run of calls. Nothing of it is
        older than the rows."""

    def all_granted(self, right: int, below: str, names: list[str]) -> bool:
        """Whether there is a right at each of many names below a path; `passing` has it then."""

    def all_undenied(
        self, right: int, below: str, names: list[bytes], path_of: Callable[[bytes], str]
    ) -> bool:
        """Whether nothing takes it away at any of many ids below a path; `passing` has it then, by
        `undenied_at(below)`."""

    def at(self, path: str) -> int: ...
    def everywhere(self, subtree: str) -> int:
        """At a path and at everything below it."""

    def first_lacking(self, right: int, below: str, names: list[str]) -> str | None:
        """The path of the first of many names below a path that lacks a right."""

    def somewhere(self, right: int, below: str, apart: frozenset[str] = frozenset()) -> bool:
        """Whether it has the right at any path at all at or below one, that does not begin with one of those
        levels."""

    def denied(self, right: int, path: str) -> bool:
        """Whether rows take away what one has without any, as by knowing a queue's id."""

    def denied_within(self, right: int, subtree: str) -> bool:
        """Whether that is so anywhere at or below a path."""

    def owns(self, owner: str) -> bool: ...
    def check_known(self) -> None: ...


class SessionAllowance(Protocol):
    """What a session may take of each quota: `access.quotas.Allowance`, as the rooms see it."""

    @property
    def is_rate_bounded(self) -> bool:
        """Whether messages or bytes a second are bounded: who publishes looks at this first."""

    @property
    def is_publishing_bounded(self) -> bool:
        """Whether they, or topics, are."""

    def bound(self, quota: Quota) -> int: ...

    def is_bounded(self, quota: Quota) -> bool:
        """Of its principal, or of the listener that it came by."""

    @property
    def topic_bytes_max(self) -> int:
        """What its principal may have in the streams of a node."""

    def check_room(self, quota: Quota, held: int, amount: int = 1) -> None:
        """Of what is counted elsewhere, where there are `held` of it: `OverQuota` if that is too much."""

    def take_topics(self, topics: Collection[str]) -> None:
        """Names that it brings up: all of them, or `OverQuota`."""

    def take_published(
        self, messages: int, size_bytes: int, kept_as: Quota = Quota.TOPIC_BYTES
    ) -> None:
        """What a publish needs of its rates, or `OverQuota`; `kept_as` is what its bytes count as."""

    def take_run(
        self, messages: int, size_bytes: int, now_ms: int, kept_as: Quota = Quota.TOPIC_BYTES
    ) -> bool:
        """The same for a whole run of calls, at the time of its turn. False and nothing taken where it is too
        much by then: a part of it may fit, or it is later, which `take_published` looks at."""

    def take_made(self, quota: Quota, amount: int = 1) -> None:
        """Of what stays, the part that the listener bounds by which it came: or `OverQuota`."""

    def take(self, *wanted: tuple[Quota, int]) -> None:
        """All of it, or `OverQuota` and nothing."""

    def give_back(self, *given: tuple[Quota, int]) -> None: ...

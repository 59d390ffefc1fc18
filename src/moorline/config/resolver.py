"""Room: config. The section `[resolver]`: how long publishers live unheard, and what is another cluster's."""

from collections.abc import Iterator
from typing import Annotated, Final, NamedTuple

import msgspec
from msgspec import Meta

from moorline import limits
from moorline.config.addresses import listen_address
from moorline.config.problem import Problem, text_setting
from moorline.core.directory.path import is_path, is_reserved

DELEGATION_FORM: Final = "PATH=ADDRESS,ADDRESS with addresses as in listen"


class Delegation(NamedTuple):
    """A subtree that another cluster answers for."""

    path: str
    addresses: tuple[str, ...]

    @staticmethod
    def parsed(text: str) -> "Delegation":
        """ValueError says what is wrong with it."""
        path, sign, listed = text.partition("=")
        addresses = tuple(one.strip() for one in listed.split(",") if one.strip())
        if not sign or not addresses:
            raise ValueError(f"it is not {DELEGATION_FORM}")
        if not is_path(path):
            raise ValueError(f"{path!r} is no path")
        if is_reserved(path):
            raise ValueError(f"{path!r} is the cluster's own")
        if len(addresses) > limits.REFERRAL_ADDRESSES_MAX:
            raise ValueError(f"it has more than {limits.REFERRAL_ADDRESSES_MAX} addresses")
        for one in addresses:
            listen_address(one)
        return Delegation(path, addresses)


class Resolver(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The section `[resolver]`."""

    ttl_ms: Annotated[
        int,
        Meta(
            ge=100,
            le=3_600_000,
            description="Silence after which a publisher is gone. They say something every half of it, and a "
            "resolver that has just started waits for them for half of it and a second.",
        ),
    ] = 30_000
    token_life_ms: Annotated[
        int,
        Meta(
            ge=1_000,
            le=86_400_000,
            description="Time for which a token proves to a publisher what a subscriber was granted.",
        ),
    ] = 300_000
    proof_timeout_ms: Annotated[
        int,
        Meta(
            ge=50,
            le=60_000,
            description="Time that a publisher has to answer at the address that it claims. A login that "
            "fails hears of it then, and never before a second.",
        ),
    ] = 3_000
    paths_max: Annotated[
        int,
        Meta(
            ge=0,
            le=1 << 32,
            description="Paths that this node keeps of all publishers; one that several publish counts for "
            "each.",
        ),
    ] = 10_000_000
    publisher_paths_max: Annotated[
        int, Meta(ge=0, le=1 << 32, description="Paths that this node keeps of one publisher.")
    ] = 2_000_000
    publishers_max: Annotated[
        int, Meta(ge=0, le=1_000_000, description="Publishers that this node knows at once.")
    ] = 4_096
    principal_publishers_max: Annotated[
        int,
        Meta(
            ge=0,
            le=1_000_000,
            description="Publishers of one principal that this node knows at once; strangers are counted by "
            "the address that they come from.",
        ),
    ] = 1_024
    delegations: Annotated[
        list[str],
        text_setting(
            "Subtrees that other clusters answer for: whoever asks for a path there is sent to them.",
            f"a list of {DELEGATION_FORM}",
        ),
    ] = msgspec.field(default_factory=list)

    def parsed_delegations(self) -> list[Delegation]:
        return [Delegation.parsed(text) for text in self.delegations]

    def problems(self) -> Iterator[Problem]:
        seen: set[str] = set()
        for text in self.delegations:
            try:
                path = Delegation.parsed(text).path
            except ValueError as error:
                yield Problem(("delegations",), f'"{text}": {error}')
                continue
            if path in seen:
                yield Problem(("delegations",), f'"{text}": {path} is delegated twice')
            seen.add(path)

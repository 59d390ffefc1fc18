"""Room: cli. What `moor service verify` and `repair` found, in words: what differs, and what mends it.

The table "What can be wrong" in docs/design/services.md has the same states; a test goes through it.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from moorline.core.sets.digest import Digest
from moorline.core.standing import standing
from moorline.errors import WrongNode
from moorline.wire.service import PartFacts
from moorline.wire.service_operator import ServiceDescribed

if TYPE_CHECKING:
    from moorline.client.list_check import ListCheck

Row = dict[str, Any]

MENDED = "stop the client and `moor service repair` with its certificate, or enter it: it is mended"

HINTS = {
    "hashes": "`moor service recompute` hashes them anew; then verify again",
    "client's hashes": MENDED,
    "client's digest": MENDED,
    "associations": "decide first which of the two is right: "
    "`moor service repair` makes the node's equal to the list",
    "kept digest": "`moor service recompute` puts it right",
    "queues": "this node does not have all of the queues: they are another node's, or lost; entering the "
    "service at their node names those that are lost",
}
"""By what they compare, in the order in which they help."""

NOTHING = (
    "nothing was proven: the service has no queues; if it should have some, `moor service repair` with the "
    "client's list brings them back"
)


class Known(NamedTuple):
    """A home of the cluster, and the node that has it."""

    number: bytes
    node_id: bytes


def of_node(found: ServiceDescribed) -> list[Row]:
    """What is kept at the node, against the ids that are there."""
    kept = Digest(found.facts.count, found.facts.hash)
    true = Digest(found.recomputed_count, found.recomputed_hash)
    row = compared("kept digest", kept, "associations", true)
    if found.wrong_buckets and kept == true:
        row["verdict"] = "other"  # the errors of two buckets hide each other in the sum
    here = _counted("queues", true.count, found.absent, "associations")
    return [row, _counted("hashes", true.count, found.wrong_hashes, "ids"), here]


def of_list(kept: Digest, check: "ListCheck", found: ServiceDescribed) -> list[Row]:
    """The client's list against itself, and the node's associations against it."""
    listed = check.own.digest()
    true = Digest(found.recomputed_count, found.recomputed_hash)
    return [
        compared("client's digest", kept, "client's list", listed),
        _counted("client's hashes", listed.count, check.wrong_hashes, "ids"),
        compared("associations", true, "client's list", listed),
    ]


def compared(what: str, one: Digest, against: str, other: Digest) -> Row:
    verdict = "equal" if one == other else "other"
    if one.count != other.count:
        verdict = "more" if one.count > other.count else "fewer"
    elif one == Digest.empty() == other:
        verdict = "empty"
    return _row(what, one.count, against, other.count, verdict)


def _counted(what: str, count: int, wrong: int, against: str) -> Row:
    """So many of `count` are wrong."""
    verdict = "other" if wrong else "equal" if count else "empty"
    return _row(what, count - wrong, against, count, verdict)


def _row(what: str, has: int, against: str, which_has: int, verdict: str) -> Row:
    return {
        "what": what,
        "has": has,
        "against": against,
        "which_has": which_has,
        "verdict": verdict,
    }


def check_homes(path: Path, check: "ListCheck", parts: Sequence[PartFacts]) -> None:
    """Equal sets prove nothing in a cluster that does not have the queues."""
    known = {part.home: Known(part.home, part.node_id) for part in parts if part.name}
    for home, part in check.parts.items():
        if home in known or part.is_empty:
            continue
        if home or standing(part.node, known.values(), is_empty=False) is None:
            raise WrongNode(
                f"{path} has queues of {part.name or home.hex()!r}, which is no home of this cluster: verify "
                "it where that is; if they were moved here, `moor service repair … --bind` makes them queues "
                "of this node"
            )


def advice(facts: dict[str, Any]) -> str:
    """What differs and what to do about it, in one line."""
    rows = [row for row in facts["comparisons"] if row["verdict"] not in ("equal", "empty")]
    if not rows:
        return NOTHING
    texts = [
        f"the {row['what']} ({row['has']}) and the {row['against']} ({row['which_has']}) differ"
        for row in rows
    ]
    if "missing" in facts:
        texts.append(f"the node lacks {facts['missing']} queues and has {facts['extra']} too many")
    first = next(what for what in HINTS if any(row["what"] == what for row in rows))
    return f"{'; '.join(texts)}: {HINTS[first]}"


def left(refused: int, away: Sequence[str], is_file_damaged: bool, *, is_own: bool) -> str:
    """What a repair has left undone; nothing, if it has not."""
    texts = []
    if away:
        texts.append(
            f"away, and not proven: {', '.join(away)}; repair again when their nodes are back"
        )
    if refused:
        what = (
            "they have left the list, and are set aside in it"
            if is_own
            else "they are in the list still"
        )
        texts.append(
            f"the node refused {refused} queues, which are deleted, blocked, or not the service's: {what}"
        )
    if is_file_damaged:
        texts.append(
            "the client's file fails its own check and was only read: stop the client and repair with its "
            "certificate, which mends the file"
        )
    return "; ".join(texts)

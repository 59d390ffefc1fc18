"""What a client writes as known ids."""

from collections.abc import Iterable


def ranges_text(ids: Iterable[int]) -> str:
    """The text of ids that rise."""
    runs: list[list[int]] = []
    for one in ids:
        if runs and runs[-1][1] == one - 1:
            runs[-1][1] = one
        else:
            runs.append([one, one])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)

"""How much of what is drawn at random a run looks at: all in `make test`, a part in `make fast`."""

from hypothesis import settings

PATIENT_EXAMPLES = 100
EXAMPLES_MIN = 5


def examples(number: int) -> int:
    """So many, or as many fewer as the profile of this run draws fewer than `make test`."""
    profile = settings().max_examples
    return max(EXAMPLES_MIN, number * profile // PATIENT_EXAMPLES)

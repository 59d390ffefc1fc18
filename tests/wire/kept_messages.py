"""Messages as a release wrote them: `python -m tests.wire.kept_messages` keeps those of this one.

    tests/vectors/wire-0.2.0.json    by end and name of the message, some payloads in hexadecimal

They are drawn from a seed by the types of the fields, and never made anew once the version is out.
"""

import json
import random
from pathlib import Path
from typing import Any, get_args

import msgspec
from tests.wire.any_message import Drawing

from moorline.version import __version__
from moorline.wire.message import Message
from moorline.wire.protocol import HeardByClient, HeardByNode
from moorline.wire.value import HeardByPublisher, HeardBySubscriber

VECTORS = Path(__file__).parents[1] / "vectors"
ENDS: dict[str, Any] = {
    "node": HeardByNode,
    "client": HeardByClient,
    "publisher": HeardByPublisher,
    "subscriber": HeardBySubscriber,
}
SEED = 20_261_119
DRAWN, KEPT = 6, 2
"""Of so many the shortest are kept: what matters is each field, not how much is in it."""


def kept_of(kind: type[Message], drawing: Drawing) -> list[str]:
    drawn = {msgspec.msgpack.encode([drawing.message(kind)]).hex() for _ in range(DRAWN)}
    return sorted(drawn, key=lambda text: (len(text), text))[-KEPT - 1 : -1] or list(drawn)


def main() -> None:
    drawing = Drawing(random.Random(SEED), {})
    kept = {
        end: {
            kind.__name__: kept_of(kind, drawing)
            for kind in sorted(get_args(heard), key=lambda one: one.__name__)
        }
        for end, heard in ENDS.items()
    }
    target = VECTORS / f"wire-{__version__}.json"
    target.write_text(json.dumps(kept, indent=0) + "\n")


if __name__ == "__main__":
    main()

"""Room: core. A piece of a stream on its way to its readers: a block of frames."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

FramePlaces = npt.NDArray[np.uint32]


class Block(NamedTuple):
    """Frames of one stream as they lie on disk, `first` to before `upto`, none missing.

    `positions[i]` is where frame i begins in `data`; `names[topics[i]]` is its topic. Blocks are shared by
    all who read: nobody changes one.
    """

    first: int
    upto: int
    data: bytes
    positions: FramePlaces
    names: list[str]
    topics: npt.NDArray[np.uint32]

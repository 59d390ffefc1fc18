"""Room: spark. Errors of links, with what a user of Spark has to know: which node, and whose papers."""

import contextlib
from collections.abc import Iterator

from moorline.errors import ConnectionLost, Unreachable
from moorline.spark.options import Reach


@contextlib.contextmanager
def reaching(reach: Reach) -> Iterator[None]:
    """A link that ends says no more than that. With TLS 1.3 this is also how a client learns that a node
    does not take its certificate: the handshake is over for the client before the node has looked at it."""
    try:
        yield
    except Unreachable:
        raise  # it names the address, and what is wrong with it
    except ConnectionLost as error:
        text = f"{reach.address}: {error}"
        if reach.certificate:
            text += f"; if that stays so, does the node trust the CA of {reach.certificate}?"
        raise ConnectionLost(text) from None

"""Room: spark. Errors of links, with what a user of Spark has to know: which node, and whose certificates."""

import contextlib
from collections.abc import Iterator

from moorline.errors import ConnectionLost, Unreachable
from moorline.spark.options import Endpoint


@contextlib.contextmanager
def naming_endpoint(endpoint: Endpoint) -> Iterator[None]:
    """A link that ends says no more than that. With TLS 1.3 this is also how a client learns that a node
    does not take its certificate: the handshake is over for the client before the node has looked at it."""
    try:
        yield
    except Unreachable:
        raise  # it names the address, and what is wrong with it
    except ConnectionLost as error:
        text = f"{endpoint.address}: {error}"
        if endpoint.certificate:
            text += f"; if that stays so, does the node trust the CA of {endpoint.certificate}?"
        raise ConnectionLost(text) from None

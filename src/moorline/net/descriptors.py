"""Room: net. The file descriptors of this process: what the system allows, shared out by core.descriptors."""

import logging
import os
import resource

from moorline.core.descriptors import Descriptors, TooFew, Use, shared_out
from moorline.errors import StartError

log = logging.getLogger("moorline.net")

_UNLIMITED = 1 << 20
"""What we count with where the system sets no limit."""


def raised_limit() -> int:
    """Raises the soft limit of open files to the hard one, if the system lets us; the limit in force."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError) as error:
            log.warning("the limit of open files stays", extra={"at": soft, "error": str(error)})
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _UNLIMITED if soft == resource.RLIM_INFINITY else soft


def of_process(connections_wanted: int, shards: int, *, parts: int = 1) -> Descriptors:
    """The account of a node: of all that this process may open, or of one of so many parts of it. An error if
    that is too little to work with."""
    limit = raised_limit() // parts
    try:
        shares = shared_out(limit, connections_wanted, shards)
    except TooFew as error:
        raise StartError(
            f"this process may open {error.limit} files, and a node with these settings needs "
            f"{error.needed}: raise the limit (ulimit -n, or LimitNOFILE= of its unit), or lower "
            "streams.shards"
        ) from error
    allowed = shares.most[Use.CONNECTIONS]
    if allowed < connections_wanted:
        log.warning(
            "the open-files limit lowers the number of connections",
            extra={"files": limit, "asked": connections_wanted, "allowed": allowed},
        )
    return Descriptors(shares)


def in_use() -> int:
    """Descriptors that are open now, whoever opened them; 0 where the system does not say."""
    try:
        return len(os.listdir("/dev/fd")) - 1  # the one that lists them
    except OSError:
        return 0

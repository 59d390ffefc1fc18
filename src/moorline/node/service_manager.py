"""Room: node. What a node tells the service manager that started it: that it serves, reads anew, or stops.

    READY=1                     all doors are open, and the ready line is out
    RELOADING=1, then READY=1   SIGHUP: the configuration is read
    STOPPING=1                  it was asked to end, or must

One datagram each to the unix socket that NOTIFY_SOCKET names (sd_notify, systemd 183 and later); a name that
begins with @ is one without a file. Who started us otherwise has set none, and nothing is sent.
"""

import os
import socket
import time

VARIABLE = "NOTIFY_SOCKET"


def tell_ready(line: str) -> None:
    _tell("READY=1", f"STATUS={line}", f"MAINPID={os.getpid()}")


def tell_reloading() -> None:
    # systemd takes the time by its own clock, so that an answer from before is not taken for this one's.
    _tell("RELOADING=1", f"MONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1_000}")


def tell_reloaded(status: str) -> None:
    _tell("READY=1", f"STATUS={status}")


def tell_stopping(why: str) -> None:
    _tell("STOPPING=1", f"STATUS={why}")


def _tell(*facts: str) -> None:
    """Nobody who is away, or full, keeps a node from its work."""
    path = os.environ.get(VARIABLE, "")
    if not path.startswith(("/", "@")):
        return
    address = "\0" + path[1:] if path.startswith("@") else path
    # A status is one line, whatever it holds.
    message = "\n".join(" ".join(fact.split()) for fact in facts)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
        try:
            sender.setblocking(False)
            sender.sendto(message.encode(), address)
        except OSError:
            return

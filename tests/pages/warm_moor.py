"""`.venv/bin/moor` of the pages' tests: has a fork that imported the program run the command (`warm.py`).

It is run by a Python without packages: stdin, stdout and stderr are handed on, and so are signals.
"""

import json
import os
import signal
import socket
import struct
import sys

NUMBER = struct.Struct("i")


def main() -> int:
    arguments = sys.argv[1:]
    commands, nodes = map(int, os.environ["WARM"].split(","))
    channel = socket.socket(fileno=nodes if arguments[:1] == ["serve"] else commands)
    ours, given = os.pipe()
    request = {"arguments": arguments, "environment": dict(os.environ), "cwd": os.getcwd()}
    socket.send_fds(channel, [json.dumps(request).encode()], [0, 1, 2, given])
    channel.detach()
    os.close(given)
    process = NUMBER.unpack(os.read(ours, NUMBER.size))[0]
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: os.kill(process, number))
    code = os.waitstatus_to_exitcode(NUMBER.unpack(os.read(ours, NUMBER.size))[0])
    return code if code >= 0 else 128 - code


sys.exit(main())

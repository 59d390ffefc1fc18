"""An environment without gssapi: all else works, and whoever wants Kerberos is told what is missing."""

from tests.environments import run_without


def test_whoever_wants_kerberos_is_told_what_to_install() -> None:
    code = """
import asyncio
from pathlib import Path
from moorline import KerberosCredentials, connect
from moorline.errors import NotInstalled
from moorline.net.kerberos import KerberosService

async def tried(what):
    try:
        await what
    except NotInstalled as error:
        print(error.code, "python3-gssapi" in str(error), "kerberos" in str(error))

asyncio.run(tried(connect("tcp://127.0.0.1:1", credentials=KerberosCredentials())._connect()))
asyncio.run(tried(KerberosService(Path("/dev/null"), "moorline/x@A").check()))
"""
    done = run_without(["gssapi"], code)
    assert done.stdout.split("\n")[:2] == ["NOT_INSTALLED True True"] * 2, done.stderr

"""Who a command is at a node: by flags, by variables, by what is typed; and what does not go together."""

import asyncio
import getpass
import json
import os
from pathlib import Path

import pytest
from tests.client.proving_node import PASSWORD, TOKEN, WRONG, ProvingNode, secret_file

from moorline.cli.main import run

USAGE = 2
CONFIG = 3
REFUSED = 11


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith("MOOR_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def password(tmp_path: Path) -> str:
    return str(secret_file(tmp_path / "password", PASSWORD))


@pytest.fixture
def token(tmp_path: Path) -> str:
    return str(secret_file(tmp_path / "token", TOKEN))


class Command:
    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    async def who(self, *flags: str) -> str:
        async with ProvingNode("password", "token", "anonymous").open() as address:
            code = await asyncio.to_thread(
                run, ["whoami", f"--address={address}", "--json", *flags]
            )
        captured = self._capsys.readouterr()
        assert code == 0, captured.err
        return str(json.loads(captured.out)["principal"])

    async def error(self, code: int, *flags: str) -> str:
        async with ProvingNode("password", "token", "anonymous").open() as address:
            found = await asyncio.to_thread(run, ["whoami", f"--address={address}", *flags])
        captured = self._capsys.readouterr()
        assert (found, captured.out) == (code, ""), captured.err
        (line,) = captured.err.splitlines()
        assert PASSWORD not in line
        assert TOKEN not in line
        return line


@pytest.fixture
def moor(capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(capsys)


async def test_flags_say_who_we_are(moor: Command, password: str, token: str) -> None:
    assert await moor.who() == "anonymous"
    assert await moor.who("--user=alice", f"--password-file={password}") == "alice"
    assert await moor.who(f"--token-file={token}") == "spark"


async def test_variables_say_who_we_are_and_flags_go_before_them(
    moor: Command, password: str, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MOOR_USER", "alice")
    monkeypatch.setenv("MOOR_PASSWORD_FILE", password)
    assert await moor.who() == "alice"
    assert await moor.who(f"--token-file={token}") == "spark"
    monkeypatch.delenv("MOOR_PASSWORD_FILE")
    assert await moor.who(f"--password-file={password}") == "alice"
    monkeypatch.delenv("MOOR_USER")
    monkeypatch.setenv("MOOR_TOKEN_FILE", token)
    assert await moor.who() == "spark"
    assert await moor.who("--user=alice", f"--password-file={password}") == "alice"


async def test_a_password_is_asked_for_where_no_file_has_it(
    moor: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def typed(prompt: str) -> str:
        asked.append(prompt)
        return PASSWORD

    monkeypatch.setattr(getpass, "getpass", typed)
    assert await moor.who("--user=alice") == "alice"
    monkeypatch.setenv("MOOR_USER", "alice")
    assert await moor.who() == "alice"
    assert asked == ["Password of alice: "] * 2


async def test_what_does_not_go_together_is_refused_by_name(
    moor: Command, password: str, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for flags, said in (
        (("--user=a", f"--token-file={token}"), "--user and --token-file each say who we are"),
        (
            (f"--password-file={password}", f"--token-file={token}"),
            "--password-file and --token-file each say who we are",
        ),
        ((f"--password-file={password}",), "--password-file: whose password is it? give --user"),
        (("--user=",), "--user: give the name of a user"),
        (("--kerberos", "--user=a"), "give one kind"),
        (("--keytab=k", f"--token-file={token}"), "give one kind"),
        (("--kerberos-principal=a",), "belong to --kerberos, --keytab or --ccache"),
    ):
        assert said in await moor.error(USAGE, *flags)
    monkeypatch.setenv("MOOR_USER", "alice")
    monkeypatch.setenv("MOOR_TOKEN_FILE", token)
    assert "MOOR_USER and MOOR_TOKEN_FILE each say" in await moor.error(USAGE)
    monkeypatch.setenv("MOOR_KERBEROS", "1")
    assert "MOOR_TOKEN_FILE: set one kind" in await moor.error(USAGE)
    monkeypatch.delenv("MOOR_USER")
    assert await moor.who(f"--token-file={token}") == "spark"


async def test_what_is_refused_says_why(moor: Command, tmp_path: Path, password: str) -> None:
    guessed = secret_file(tmp_path / "guessed", "guessed")
    line = await moor.error(REFUSED, "--user=alice", f"--password-file={guessed}")
    assert f"AUTH: {WRONG}" in line
    assert "cannot" not in line
    os.chmod(password, 0o644)
    line = await moor.error(CONFIG, "--user=alice", f"--password-file={password}")
    assert "every user may use it: chmod 600 it" in line
    line = await moor.error(CONFIG, f"--token-file={tmp_path / 'none'}")
    assert "give one that can be read" in line


def test_a_secret_is_not_said_aloud(capsys: pytest.CaptureFixture[str], token: str) -> None:
    assert run(["whoami", "--address=tcp://192.0.2.1:7411", f"--token-file={token}"]) == CONFIG
    assert "use tls://" in capsys.readouterr().err

"""What the calling end shows, and the files that it has it from."""

import os
import sys
from pathlib import Path

import pytest

from moorline.config.addresses import listen_address
from moorline.errors import ConfigError, Untrusted
from moorline.net.credentials import (
    NodeCredentials,
    PasswordCredentials,
    Secret,
    TokenCredentials,
    check_privacy,
)

TOKEN = "moor_" + "t" * 43


def written(folder: Path, text: bytes, mode: int = 0o600) -> Path:
    file = folder / "secret"
    file.write_bytes(text)
    file.chmod(mode)
    return file


@pytest.mark.parametrize("text", [b"open sesame", b"open sesame\n", b"open sesame\r\n"])
async def test_a_password_of_a_file_is_its_line(tmp_path: Path, text: bytes) -> None:
    found = PasswordCredentials.of_file("alice", written(tmp_path, text, 0o640))
    assert (found.mechanism, await found.first()) == ("password", b"alice\0open sesame")


async def test_a_token_of_a_file(tmp_path: Path) -> None:
    found = TokenCredentials.of_file(written(tmp_path, TOKEN.encode() + b"\n"))
    assert (found.mechanism, await found.first()) == ("token", TOKEN.encode())


@pytest.mark.parametrize(
    ("text", "mode", "said"),
    [
        (b"", 0o600, "one line of text"),
        (b"\n", 0o600, "one line of text"),
        (b"one\ntwo\n", 0o600, "one line of text"),
        (b"a\0b", 0o600, "one line of text"),
        (b"\xff", 0o600, "one line of text"),
        (b"x" * 5_000, 0o600, "one line of text"),
        (b"secret", 0o644, "chmod 600 it"),
        (b"secret", 0o602, "chmod 600 it"),
    ],
)
def test_a_file_that_holds_no_secret_or_hides_none(
    tmp_path: Path, text: bytes, mode: int, said: str
) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        PasswordCredentials.of_file("alice", written(tmp_path, text, mode))
    assert "secret'" in str(caught.value)  # the file's name
    assert "one\n" not in str(caught.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"the token file '.*none': No such file"):
        TokenCredentials.of_file(tmp_path / "none")


def test_no_repr_has_the_secret() -> None:
    shown: list[Secret] = [
        PasswordCredentials("alice", "secret"),
        TokenCredentials(TOKEN),
        NodeCredentials(b"secret", "home-1", "home-2"),
    ]
    for one in shown:
        assert "secret" not in repr(one)
        assert "ttt" not in repr(one)


@pytest.mark.parametrize(("name", "password"), [("", "x"), ("a\0b", "x"), ("alice", "")])
def test_an_empty_name_or_password_is_refused_before_it_is_sent(name: str, password: str) -> None:
    with pytest.raises(ConfigError):
        PasswordCredentials(name, password)


def test_what_is_no_token_is_refused_and_not_shown() -> None:
    with pytest.raises(ConfigError, match="begins with moor_") as caught:
        TokenCredentials("hunter2")
    assert "hunter2" not in str(caught.value)


async def test_a_node_that_asks_more_is_not_answered() -> None:
    for one in (PasswordCredentials("alice", "x"), TokenCredentials(TOKEN)):
        with pytest.raises(Untrusted):
            await one.answer(b"and your card number?")


@pytest.mark.parametrize(
    ("address", "is_private"),
    [
        ("tls://node.example:7411", True),
        ("tcp://127.0.0.1:7411", True),
        ("tcp://[::1]:7411", True),
        ("tcp://node.example:7411", False),
        ("tcp://192.0.2.1:7411", False),
    ],
)
def test_a_password_is_not_sent_for_all_to_read(address: str, is_private: bool) -> None:
    where = listen_address(address)
    check_privacy(NodeCredentials(b"s", "home-1", "home-2"), where)
    for one in (PasswordCredentials("alice", "x"), TokenCredentials(TOKEN)):
        if is_private:
            check_privacy(one, where)
        else:
            with pytest.raises(ConfigError, match=r"use tls://"):
                check_privacy(one, where)


def test_a_prompt_shows_nothing_of_what_is_typed() -> None:
    """At a terminal of its own: the name is asked for, and the password does not come back."""
    code = (
        "from moorline.net.credentials import PasswordCredentials as P;"
        "import asyncio;print('begin', len(asyncio.run(P.of_prompt('alice').first())))"
    )
    process, terminal = os.forkpty()
    if process == 0:
        os.execv(sys.executable, [sys.executable, "-c", code])
    seen = b""
    while b"alice: " not in seen:
        seen += os.read(terminal, 1_024)
    os.write(terminal, b"hidden\n")
    while b"begin 12" not in seen:
        seen += os.read(terminal, 1_024)
    os.waitpid(process, 0)
    os.close(terminal)
    assert b"hidden" not in seen

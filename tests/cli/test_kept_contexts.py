"""The file of contexts as a release wrote it, and what this one makes of it."""

from pathlib import Path

import pytest

from moorline.cli.contexts import Context, Contexts, keep, kept
from moorline.errors import ConfigError, FormatTooNew

VECTORS = Path(__file__).parents[1] / "vectors"
FILES = sorted(VECTORS.glob("contexts-*.toml"))
EVERY_KEY = Contexts(
    current="harbour",
    contexts={
        "harbour": Context("moors://harbour-1.example,harbour-2.example", ca="/home/a/ca.pem"),
        "every.key": Context(
            address="tcp://127.0.0.1:7411",
            ca="/a/ca",
            certificate="/a/certificate",
            key="/a/key",
            user="anna",
            user_password_file="/a/password",
            user_token_file="/a/token",
            kerberos=True,
            keytab="/a/keytab",
            ccache="/a/ccache",
            kerberos_principal="anna@EXAMPLE",
            kerberos_service="moor",
        ),
    },
)


@pytest.fixture(autouse=True)
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "contexts.toml"
    monkeypatch.setenv("MOOR_CONTEXTS", str(path))
    return path


def test_the_example_has_every_key() -> None:
    every = EVERY_KEY.contexts["every.key"]
    assert all(getattr(every, name) is not None for name in Context.__struct_fields__)


@pytest.mark.parametrize("written", FILES, ids=lambda one: one.stem)
def test_the_file_of_a_release_is_read_as_ever(written: Path, file: Path) -> None:
    file.write_bytes(written.read_bytes())
    assert kept() == EVERY_KEY


def test_this_release_writes_what_was_kept_of_it(file: Path) -> None:
    keep(EVERY_KEY)
    assert file.read_bytes() == FILES[-1].read_bytes()


def test_a_file_without_a_version_is_of_before_there_was_one(file: Path) -> None:
    file.write_text('current = "a"\n[contexts.a]\naddress = "tcp://h"\n')
    assert kept() == Contexts(current="a", contexts={"a": Context("tcp://h")})


def test_a_newer_file_is_named_so_and_not_taken_for_damage(file: Path) -> None:
    file.write_text('version = 2\nclusters = ["x"]\n')
    with pytest.raises(FormatTooNew, match="newer Moorline"):
        kept()
    file.write_text('version = "x"\n')
    with pytest.raises(ConfigError):
        kept()

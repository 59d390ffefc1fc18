"""The file that `moor config init` writes: a node reads it as no file at all, and each line of it is true."""

import re
import tomllib
from pathlib import Path

import pytest

from moorline.config.keys import keys_of
from moorline.config.load import load
from moorline.config.settings import Config
from moorline.config.template import template


def test_as_written_it_changes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "moorline.toml"
    file.write_text(template())
    assert load({}, {}, file).config == load({}, {}, Path("/dev/null")).config


def test_every_comment_taken_away_is_the_default(tmp_path: Path) -> None:
    """Each setting is there, under its own table, and what it says is what a node does without it."""
    text = re.sub(r"(?m)^#(?=[a-z_]+ = )", "", template())
    read = tomllib.loads(text)
    for name, key in keys_of(Config).items():
        value: object = read
        for part in name.split("."):
            assert isinstance(value, dict), name
            value = value[part]
        default = list(key.default) if isinstance(key.default, tuple) else key.default
        assert value == default, name
    file = tmp_path / "moorline.toml"
    file.write_text(text)
    loaded = load({}, {}, file)
    assert loaded.config == load({}, {}, Path("/dev/null")).config
    assert set(loaded.sources.values()) == {f"file {file}"}


def test_lines_fit_a_terminal() -> None:
    # A default may be as long as it is.
    comments = [line for line in template().splitlines() if line.startswith("# ")]
    assert len(comments) > 2 * 50
    assert max(map(len, comments)) <= 110


@pytest.mark.parametrize("section", ["queues", "streams", "records"])
def test_tables_come_once(section: str) -> None:
    assert template().count(f"\n[{section}]\n") == 1

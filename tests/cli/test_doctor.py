"""`moor doctor`: what keeps a node from working is found, and each finding says what to do."""

import json
import socket
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trustme
from tests.journal.queues.stores import contents, filled, flip, folder_of, message_file, tree
from tests.process.nodes import MOOR, NodeProcess, clean_environment, run_moor

from moorline.cli import examining
from moorline.cli.examining import Finding, Look, State, examined
from moorline.config.settings import Config
from moorline.errors import Unfit
from moorline.journal.disk import FileDisk


def config(data: Path, **others: object) -> Config:
    free = {"listen": ["tcp://127.0.0.1:0"], "http": "127.0.0.1:0", "mqtt": []}
    return Config(data=str(data), **{**free, **others})  # type: ignore[arg-type]


def found(look: Look, settings: Config) -> list[Finding]:
    return list(examined(settings, (look,)))


def only(look: Look, settings: Config) -> Finding:
    (finding,) = found(look, settings)
    return finding


def test_each_thing_that_is_wrong_or_wants_care_says_what_to_do(tmp_path: Path) -> None:
    for finding in examined(config(tmp_path / "data"), examining.LOOKS):
        assert finding.said
        if finding.state in {State.WRONG, State.CARE}:
            assert finding.remedy, finding


def test_an_address_that_is_taken_is_named(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        finding = only(examining.ports, config(tmp_path, listen=[f"tcp://127.0.0.1:{port}"]))
    assert finding.state is State.WRONG
    assert f"tcp://127.0.0.1:{port}" in finding.said
    assert f"sport = {port}" in finding.remedy
    assert only(examining.ports, config(tmp_path)).state is State.GOOD


def test_a_certificate_that_ended_and_one_that_ends_soon(tmp_path: Path) -> None:
    ca = trustme.CA()
    states = []
    for left in (timedelta(days=-1), timedelta(days=3), timedelta(days=300)):
        issued = ca.issue_cert("localhost", not_after=datetime.now(UTC) + left)
        certificate, key = tmp_path / "c.pem", tmp_path / "k.pem"
        issued.private_key_pem.write_to_path(str(key))
        certificate.write_bytes(b"".join(one.bytes() for one in issued.cert_chain_pems))
        settings = config(tmp_path, tls_certificate=str(certificate), tls_key=str(key))
        finding = only(examining.certificates, settings)
        states.append(finding.state)
        assert finding.state is State.GOOD or "renew it" in finding.remedy
    assert states == [State.WRONG, State.CARE, State.GOOD]
    settings = config(tmp_path, tls_certificate=str(tmp_path / "none"), tls_key=str(key))
    assert only(examining.certificates, settings).state is State.WRONG


def test_a_catalog_that_does_not_answer_is_named_without_its_password(tmp_path: Path) -> None:
    settings = config(tmp_path, catalog="postgresql://moor:secret@127.0.0.1:1/moorline")
    finding = only(examining.catalog, settings)
    assert finding.state is State.WRONG
    assert "secret" not in finding.said + finding.remedy
    assert "127.0.0.1:1" in finding.said


def test_a_folder_of_a_newer_version_or_that_lost_a_store(tmp_path: Path) -> None:
    assert only(examining.folder_format, config(tmp_path / "new")).state is State.SKIPPED
    (tmp_path / "format").write_text("moorline-data 999\n")
    finding = only(examining.folder_format, config(tmp_path))
    assert finding.state is State.WRONG
    assert "newer Moorline" in finding.said
    (tmp_path / "format").unlink()
    (tmp_path / "node.stores").write_text("streams\n")
    finding = only(examining.folder_format, config(tmp_path))
    assert finding.state is State.WRONG
    assert "streams" in finding.said


def test_a_file_in_the_place_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("")
    states = {one.state for one in examined(config(tmp_path / "data"), examining.LOOKS)}
    assert State.WRONG in states


def test_it_leaves_nothing_behind(tmp_path: Path) -> None:
    list(examined(config(tmp_path), examining.LOOKS))
    assert list(tmp_path.iterdir()) == []


def test_a_look_that_lacks_a_package_is_skipped(tmp_path: Path) -> None:
    def lacking(_: Config):  # type: ignore[no-untyped-def]
        raise ModuleNotFoundError(name="cryptography")
        yield

    finding = only(lacking, config(tmp_path))
    assert finding.state is State.SKIPPED
    assert "cryptography" in finding.said


@pytest.mark.process
def test_too_few_files_are_told_with_how_many_would_do(tmp_path: Path) -> None:
    done = subprocess.run(
        ["sh", "-c", 'ulimit -n 64; exec "$0" "$@"', *MOOR,
         "doctor", "--quick", "--json", f"--data={tmp_path}"],
        capture_output=True, env=clean_environment(), check=False,
    )  # fmt: skip
    findings = {one["what"]: one for one in json.loads(done.stdout)}
    assert findings["file limit"]["state"] == "wrong"
    assert done.returncode == Unfit.exit_code


def test_damaged_files_are_found_and_left_as_they_are(tmp_path: Path) -> None:
    filled(FileDisk(tmp_path / "queues"))
    finding = only(examining.damaged_files, config(tmp_path))
    assert (finding.state, finding.said) == (
        State.GOOD,
        "4 queues, 20 messages: nothing is damaged",
    )
    victim = min(contents(FileDisk(tmp_path / "queues")))
    flip(message_file(folder_of(tmp_path / "queues", victim)), 300)
    # It has our number in it, and we run: the next look is that of another process.
    (tmp_path / "lock").unlink()
    before = tree(tmp_path / "queues")
    finding = found(examining.damaged_files, config(tmp_path))[0]
    assert finding.state is State.WRONG
    assert "moor journal check" in finding.remedy
    assert tree(tmp_path / "queues") == before


@pytest.mark.process
def test_a_node_on_which_nothing_is_has_nothing_that_is_whole(tmp_path: Path) -> None:
    with NodeProcess(tmp_path / "data") as node:
        assert node.stop() == 0
    done = run_moor("doctor", f"--data={tmp_path / 'data'}", "--json", "--listen=tcp://127.0.0.1:0")
    (files,) = [one for one in json.loads(done.stdout) if one["what"] == "files"]
    assert files["state"] == "skipped"
    assert "nothing to check" in files["said"]


@pytest.mark.process
def test_a_node_that_runs_is_asked(tmp_path: Path) -> None:
    where = f"--data={tmp_path / 'data'}"
    with NodeProcess(tmp_path / "data") as node:
        assert run_moor("topic", "publish", "t", "something", where).returncode == 0
        done = run_moor("doctor", where, "--json")
        findings = {one["what"]: one["state"] for one in json.loads(done.stdout)}
        assert (findings["node"], findings["files"], findings["ports"]) == (
            "good",
            "skipped",
            "skipped",
        )
        assert node.stop() == 0
    done = run_moor("doctor", where, "--json", "--listen=tcp://127.0.0.1:0")
    findings = {one["what"]: one["state"] for one in json.loads(done.stdout)}
    assert (findings["node"], findings["files"]) == ("skipped", "good")

"""Real nodes and commands that prove themselves by Kerberos, each in a process of its own."""

import asyncio
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.catalog.databases import new_database
from tests.cluster.running import links_of
from tests.kerberos.realm import Realm, free_port
from tests.process.nodes import NodeProcess, run_moor
from tests.waiting import until

import moorline
from moorline import KerberosCredentials, KerberosError, Refused
from moorline.catalog import EmbeddedPostgres
from moorline.config.addresses import listen_address
from moorline.net.caller import Caller, open_caller
from moorline.net.credentials import NodeCredentials

pytestmark = pytest.mark.process

SERVICE = "moorline/127.0.0.1@MOOR.TEST"
KERBEROS = 23
REFUSED = 11


def of_kerberos(realm: Realm, host: str = "127.0.0.1", *more: str) -> list[str]:
    settings = {
        "access.mechanisms": "gssapi",
        "kerberos.keytab": str(realm.keytab(f"moorline/{host}")),
        "kerberos.service": f"moorline/{host}@MOOR.TEST",
    }
    return [*(f"--set={name}={text}" for name, text in settings.items()), *more]


def whoami(node: NodeProcess, *flags: str) -> subprocess.CompletedProcess[str]:
    return run_moor("whoami", f"--address={node.address}", *flags)


def test_a_command_is_whom_its_ticket_names(realm: Realm, tmp_path: Path) -> None:
    keytab = realm.keytab("alice")
    cache = realm.log_in("alice", keytab, cache="of-a-command")
    rule = "--set=access.kerberos=*@MOOR.TEST={}"
    with NodeProcess(tmp_path / "node", *of_kerberos(realm, "127.0.0.1", rule)) as node:
        for flags in ([f"--keytab={keytab}"], [f"--ccache={cache}"]):
            done = whoami(node, "--json", *flags)
            assert done.returncode == 0, done.stderr
            found: dict[str, Any] = json.loads(done.stdout)
            assert found["principal"] == "alice"
            assert found["proof"] == "gssapi"
            assert found["proven_name"] == "alice@MOOR.TEST"
            assert found["expires_us"] > 0
            assert "@authenticated" in found["groups"]
        shown = whoami(node, f"--keytab={keytab}").stdout
        assert "alice, proven by gssapi" in shown
        assert "Kerberos calls it: alice@MOOR.TEST" in shown
        assert "until: " in shown
        anonymous = whoami(node)
        assert anonymous.returncode == REFUSED
        assert "prove who you are" in anonymous.stderr
        other = whoami(node, f"--keytab={keytab}", "--kerberos-service=nobody/x@MOOR.TEST")
        assert other.returncode == KERBEROS
        assert f"{node.address}: Kerberos: " in other.stderr
        assert "does not know the service" in other.stderr
        host = whoami(node, f"--keytab={realm.keytab('host/pier')}")
        assert host.returncode == KERBEROS
        assert f"{node.address}: Kerberos: no rule of access.kerberos" in host.stderr


async def test_the_library_comes_by_a_keytab_and_publishes(realm: Realm, tmp_path: Path) -> None:
    credentials = KerberosCredentials(keytab=realm.keytab("alice"), principal="alice")
    with NodeProcess(tmp_path / "node", *of_kerberos(realm)) as node:
        async with moorline.connect(node.address, credentials=credentials, reconnect=False) as moor:
            # Its own subtree is that of the whole name: nobody else has one of that.
            topic = "alice@MOOR.TEST/news"
            await moor.publish_all([moorline.record(topic, b"x" * 500) for _ in range(3_000)])
            subscription = await moor.subscribe(topic, start="beginning")
            assert (await anext(subscription)).body == b"x" * 500
        with pytest.raises(KerberosError, match="no ticket cache"):
            await moorline.connect(
                node.address,
                credentials=KerberosCredentials(ccache=tmp_path / "none"),
                reconnect=False,
            )


def test_a_node_without_a_keytab_that_fits_does_not_start(realm: Realm, tmp_path: Path) -> None:
    flags = [
        "--set=access.mechanisms=gssapi",
        f"--set=kerberos.keytab={realm.keytab('alice')}",
        f"--set=kerberos.service={SERVICE}",
    ]
    done = run_moor(
        "serve", f"--data={tmp_path / 'node'}", "--listen=tcp://127.0.0.1:0", "--http=off", *flags
    )
    assert done.returncode == 3
    assert f"it cannot be used for {SERVICE}" in done.stderr


async def test_nodes_prove_themselves_to_each_other_by_their_keytabs(
    realm: Realm, postgres: EmbeddedPostgres, tmp_path: Path
) -> None:
    dsn = await new_database(postgres)

    def started(name: str, host: str, whose: str, nodes: str) -> NodeProcess:
        port = free_port()
        settings = {
            "access.mechanisms": "gssapi",
            "kerberos.keytab": realm.keytab(f"{whose}/{host}"),
            "kerberos.service": f"{whose}/{host}@MOOR.TEST",
            "kerberos.nodes": f"{nodes}/*@MOOR.TEST",
            "advertise": f"tcp://{host}:{port}",
        }
        return NodeProcess(
            tmp_path / name,
            f"--node={name}",
            f"--catalog={dsn}",
            f"--listen=tcp://127.0.0.1:{port}",
            *(f"--set={key}={value}" for key, value in settings.items()),
        )

    # Each has a name of its own in Kerberos, by the host at which it is reached.
    with (
        started("a", "127.0.0.1", "moorline", "moorline") as a,
        started("b", "localhost", "moorline", "moorline") as b,
    ):
        await until(lambda: "b" in links_of(a.errors) and "a" in links_of(b.errors))
        # One that has the catalog and its secret, and a keytab that is none of theirs.
        realm.keytab("other/localhost")
        with started("c", "127.0.0.1", "other", "other") as c:
            await until(lambda: re.search(r"no link +node=a .*Kerberos", c.errors) is not None)
            await until(lambda: re.search(r"no link +node=c .*Kerberos", a.errors) is not None)
            assert links_of(c.errors) == set()
            assert links_of(a.errors) == {"b"}
        # And by the secret alone nobody comes in.
        async with asyncio.timeout(30):
            with pytest.raises(Refused, match="it takes gssapi"):
                await open_caller(
                    listen_address(a.address),
                    lambda: Caller(
                        "test",
                        hello_timeout_ms=9_000,
                        keepalive_ms=9_000,
                        credentials=NodeCredentials(b"secret", "x", "a"),
                    ),
                    timeout_ms=9_000,
                )


# --- moor keytab ----------------------------------------------------------------------------------


def test_a_keytab_is_shown_without_its_keys(realm: Realm, tmp_path: Path) -> None:
    keytab = realm.keytab("moorline/127.0.0.1")
    done = run_moor("keytab", "show", str(keytab), "--json")
    assert done.returncode == 0, done.stderr
    entries = json.loads(done.stdout)["entries"]
    assert {entry["principal"] for entry in entries} == {SERVICE}
    assert "aes256-cts-hmac-sha1-96" in {entry["encryption"] for entry in entries}
    assert all(entry["kvno"] == 1 and not entry["is_weak"] for entry in entries)
    assert "moorline/127.0.0.1@MOOR.TEST" in run_moor("keytab", "show", str(keytab)).stdout
    for name, content in (("text", b"no keytab"), ("cut", keytab.read_bytes()[:-3])):
        bad = tmp_path / name
        bad.write_bytes(content)
        bad.chmod(0o600)
        done = run_moor("keytab", "show", str(bad))
        assert done.returncode == 3
        assert "keytab" in done.stderr
    assert run_moor("keytab", "show", str(tmp_path / "none")).returncode == 3


def test_a_keytab_is_tried_with_the_kdc(own_realm: Realm) -> None:
    realm = own_realm
    service, alice = realm.keytab("moorline/127.0.0.1"), realm.keytab("alice")
    done = run_moor("keytab", "check", str(alice), "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["principal"] == "alice@MOOR.TEST"
    done = run_moor("keytab", "check", str(service), f"--service={SERVICE}")
    assert done.returncode == 0, done.stderr
    assert "can be opened with this keytab" in done.stdout
    other = run_moor("keytab", "check", str(alice), f"--service={SERVICE}")
    assert other.returncode == 3
    assert "has no key for" in other.stderr
    realm.renew("moorline/127.0.0.1")
    old = run_moor("keytab", "check", str(service), f"--service={SERVICE}")
    assert old.returncode == KERBEROS
    assert "renewed" in old.stderr
    realm.stop()
    away = run_moor("keytab", "check", str(alice))
    assert away.returncode == KERBEROS
    assert "no KDC of the realm answers" in away.stderr


# --- Spark ----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_job_of_spark_reads_with_a_keytab_in_its_own_processes(
    realm: Realm, tmp_path: Path
) -> None:
    keytab, port = realm.keytab("alice"), free_port()
    # The operator is on this machine; whoever comes to the other address has a ticket.
    flags = [flag for flag in of_kerberos(realm) if "mechanisms" not in flag] + [
        f"--set=access.mechanisms=anonymous,gssapi@tcp://127.0.0.1:{port}",
        "--set=access.kerberos=*@MOOR.TEST={}",
        f"--listen=tcp://127.0.0.1:{port}",
    ]
    with NodeProcess(tmp_path / "node", *flags) as node:
        address = f"tcp://127.0.0.1:{port}"
        granted = run_moor("grant", "add", "/topics", "alice", "slw", f"--address={node.address}")
        assert granted.returncode == 0, granted.stderr

        async def publish() -> None:
            credentials = KerberosCredentials(keytab=keytab)
            async with moorline.connect(address, credentials=credentials, reconnect=False) as moor:
                await moor.publish_all([moorline.record("alice/n", bytes([n])) for n in range(50)])

        asyncio.run(publish())
        reading = [f"--address={address}", f"--keytab={keytab}", "--json"]
        done = run_moor(
            "pipeline",
            "archive",
            str(tmp_path / "kept"),
            "--topics=alice/#",
            *reading,
            timeout_s=100,
        )
        assert done.returncode == 0, done.stderr
        refused = run_moor(
            "pipeline", "archive", str(tmp_path / "none"), reading[0], "--kerberos", timeout_s=100
        )
        assert refused.returncode == 2
        assert "do not have your ticket cache" in refused.stderr

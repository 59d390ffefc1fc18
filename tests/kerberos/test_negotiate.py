"""A browser shows a ticket of Kerberos to the page of a node, and gets a pass: with a real KDC."""

import base64
import contextlib
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.console.looking import has
from tests.console.talking import IDENTIFIED, WHO_AM_I, hear, logged_in, say
from tests.kerberos.realm import Realm
from tests.process.nodes import NodeProcess, run_moor
from tests.records.browser.chromium import Chromium, Tab, chromium, why_not
from tests.waiting import eventually

pytestmark = pytest.mark.process

AT = "/console/login/negotiate"


@contextlib.contextmanager
def serving(realm: Realm, folder: Path) -> Iterator[NodeProcess]:
    keytab = realm.keytab(f"moorline/{folder.name}")
    realm.add_to(keytab, "HTTP/127.0.0.1")
    flags = [
        "--set=access.kerberos=*@MOOR.TEST={}",
        f"--set=kerberos.keytab={keytab}",
        f"--set=kerberos.service=moorline/{folder.name}@MOOR.TEST",
        "--set=kerberos.http_service=HTTP/127.0.0.1@MOOR.TEST",
    ]
    with NodeProcess(folder / "node", *flags) as node:
        yield node


def asked(node: NodeProcess, cache: Path | None, *more: str) -> tuple[int, dict[str, Any], str]:
    """What curl is answered that shows a ticket, or none: status, body, headers."""
    environment = [f"KRB5CCNAME=FILE:{cache}"] if cache else ["KRB5CCNAME=FILE:/nothing"]
    command = ["curl", "--silent", "--include", "--negotiate", "--user", ":", "--request", "POST"]
    done = subprocess.run(
        ["env", *environment, *command, *more, f"{node.http}{AT}"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    head, _, body = done.stdout.replace("\r", "").rpartition("\n\n")
    last = head.split("\n\n")[-1]
    return int(last.split()[1]), json.loads(body), last.lower()


async def test_a_ticket_is_a_pass_of_its_principal(realm: Realm, tmp_path: Path) -> None:
    cache = realm.log_in("alice", realm.keytab("alice"))
    with serving(realm, tmp_path) as node:
        status, said, headers = asked(node, cache)
        assert status == 200, said
        assert "www-authenticate: negotiate " in headers, "the node proves itself too"
        assert "cache-control: no-store" in headers
        async with logged_in(node, proof=said["text"]) as socket:
            await say(socket, [WHO_AM_I, 1])
            assert (await hear(socket))[0][:4] == [IDENTIFIED, 1, "alice", "gssapi"]


def test_who_shows_none_is_asked_for_one_and_nothing_else_asks(
    realm: Realm, tmp_path: Path
) -> None:
    with serving(realm, tmp_path) as node:
        status, said, headers = asked(node, None)
        assert (status, said["code"]) == (401, "AUTH")
        assert "www-authenticate: negotiate" in headers
        for path in ("/console/", "/console/socket", "/metrics", "/records"):
            done = subprocess.run(
                ["curl", "--silent", "--include", f"{node.http}{path}"],
                capture_output=True,
                text=True,
                check=True,
            )
            assert "negotiate" not in done.stdout.partition("\r\n\r\n")[0].lower(), path


def test_a_ticket_is_taken_once_and_not_from_another_page(realm: Realm, tmp_path: Path) -> None:
    import gssapi

    cache = realm.log_in("alice", realm.keytab("alice"))
    with serving(realm, tmp_path) as node:
        status, said, _ = asked(node, cache, "--header", "Origin: https://evil.example")
        assert (status, said["code"]) == (403, "OTHER_ORIGIN")
        store = {"ccache": f"FILE:{cache}"}
        context = gssapi.SecurityContext(
            name=gssapi.Name("HTTP@127.0.0.1", gssapi.NameType.hostbased_service),
            creds=gssapi.Credentials(usage="initiate", store=store),
            mech=gssapi.OID.from_int_seq("1.3.6.1.5.5.2"),
            usage="initiate",
        )
        token = base64.b64encode(context.step()).decode()
        shown = ("--header", f"Authorization: Negotiate {token}")
        found = [_plain(node, *shown) for _ in range(2)]
        assert [status for status, _ in found] == [200, 403], found
        assert _plain(node, "--header", "Authorization: Negotiate AAAA")[0] == 403
        assert _plain(node, "--header", "Authorization: Negotiate ?")[0] == 400


def _plain(node: NodeProcess, *more: str) -> tuple[int, dict[str, Any]]:
    done = subprocess.run(
        [
            "curl",
            "--silent",
            "--write-out",
            "\n%{http_code}",
            "-X",
            "POST",
            *more,
            f"{node.http}{AT}",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    body, _, status = done.stdout.rpartition("\n")
    return int(status), json.loads(body)


def test_who_no_rule_knows_is_refused_and_the_audit_hears_of_it(
    realm: Realm, tmp_path: Path
) -> None:
    name = f"service/{tmp_path.name}"
    cache = realm.log_in(name, realm.keytab(name))
    with serving(realm, tmp_path) as node:
        status, said, _ = asked(node, cache)
        assert (status, said["code"]) == (403, "AUTH")
        assert "no rule of access.kerberos" in said["text"]
        shown = ("audit", "show", "--json", f"--address={node.address}")
        # A refusal is written down behind its answer.
        eventually(lambda: name.replace("/", "%2F") in run_moor(*shown).stdout)


async def test_a_browser_logs_in_by_a_click(
    realm: Realm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if (why := why_not()) is not None:
        pytest.skip(why)
    cache = realm.log_in("alice", realm.keytab("alice"))
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{cache}")
    with serving(realm, tmp_path) as node:
        folder = that_has_met_tickets(tmp_path / "one")
        async with chromium(folder, "--auth-server-allowlist=127.0.0.1") as browser:
            tab = await clicked(browser, node)
            await tab.until("document.querySelector('.leave summary')?.textContent === 'alice'")
            # Its other requests show nothing, as long as nobody clicks.
            await tab.reload()
            await tab.until("document.querySelector('.leave summary')?.textContent === 'alice'")
        # One that is not told to trust the node shows nothing, and the page says so.
        async with chromium(that_has_met_tickets(tmp_path / "other")) as browser:
            await (await clicked(browser, node)).until(has("this browser has shown no ticket"))


def that_has_met_tickets(folder: Path) -> Path:
    """Chromium loads its library of Kerberos only at the start that follows the first question for one."""
    folder.mkdir()
    state = {"net": {"received_http_auth_negotiate_headers": True}}
    (folder / "Local State").write_text(json.dumps(state))
    return folder


async def clicked(browser: Chromium, node: NodeProcess) -> Tab:
    tab = await browser.tab(None, "about:blank")
    await tab.say("Page.navigate", url=f"{node.http}/console/")
    button = (
        "[...document.querySelectorAll('button')].find(one => one.textContent.includes('Kerberos'))"
    )
    await tab.until(f"{button} !== undefined && ({button}.click(), true)")
    return tab

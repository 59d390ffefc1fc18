"""Logins to the page in a real Chromium: by an issuer, behind a real nginx below a path, and out again."""

import asyncio
import contextlib
import json
import ssl
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
from tests.console import axe
from tests.console.looking import shot
from tests.console.nginx import Nginx, location
from tests.console.nginx import why_not as why_no_nginx
from tests.net.authority import Authority
from tests.oidc.process import IssuerProcess
from tests.process.nodes import NodeProcess, run_moor
from tests.records.browser.chromium import Chromium, Tab, chromium, why_not
from tests.waiting import until

import moorline

pytestmark = [pytest.mark.process, pytest.mark.asyncio(loop_scope="session")]

TEXT = "(document.querySelector('main')?.innerText ?? '')"
LOGIN = "[...document.querySelectorAll('main button')].find(one => /^Log in with/.test(one.textContent))"
WHO = "document.querySelector('details.leave summary')?.textContent"
IS_IN = "document.querySelector('details.leave')?.hidden === false"
OUT = "[...document.querySelectorAll('details.leave button')]"
KEPT = "JSON.stringify({...sessionStorage}) + JSON.stringify({...localStorage}) + document.cookie"


def has(text: str) -> str:
    return f"{TEXT}.includes({json.dumps(text)})"


@pytest.fixture(scope="module")
def issuer() -> Iterator[IssuerProcess]:
    with IssuerProcess() as process:
        yield process


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def browser(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Chromium]:
    why = why_not()
    if why is not None:
        pytest.skip(why)
    async with chromium(tmp_path_factory.mktemp("profile")) as browser:
        yield browser


@pytest.fixture(scope="module")
def node(issuer: IssuerProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    folder = tmp_path_factory.mktemp("node")
    flags = issuer.flags(folder, "--set=http_proxy_sources=127.0.0.9/32")
    with NodeProcess(folder / "data", *flags) as node:
        yield node


@pytest_asyncio.fixture(loop_scope="session")
async def tab(browser: Chromium, issuer: IssuerProcess) -> AsyncIterator[Tab]:
    """A window of somebody who was never here, that notes what its policy forbids."""
    issuer.reset()
    profile = await browser.profile()
    tab = await browser.tab(profile, "about:blank")
    await tab.say("Security.setIgnoreCertificateErrors", ignore=True)
    await tab.say(
        "Page.addScriptToEvaluateOnNewDocument",
        source="window.broken = []; document.addEventListener('securitypolicyviolation',"
        " event => window.broken.push(event.violatedDirective + ' ' + event.blockedURI))",
    )
    await tab.say("Page.enable")
    yield tab
    with contextlib.suppress(Exception):
        await browser.forget(profile)


async def log_in(tab: Tab, url: str) -> None:
    await tab.say("Page.navigate", url=url)
    await tab.until(f"{LOGIN} !== undefined")
    await tab.run(f"{LOGIN}.click()")
    await tab.until(IS_IN)


def audited(node: NodeProcess) -> str:
    done = run_moor("audit", "show", "--address", node.address, "--json")
    assert done.returncode == 0, done.stderr
    return done.stdout


async def test_somebody_logs_in_by_the_issuer_and_out_again(
    node: NodeProcess, issuer: IssuerProcess, tab: Tab
) -> None:
    await log_in(tab, f"{node.http}/console/#/access")
    await tab.until(f"{WHO} === 'oidc-anna-7'")
    await tab.until(has("oidc-anna-7"))
    assert "@readers" in await tab.run(TEXT)
    assert await tab.run("location.search") == "", "the code is not left in the address"
    assert await tab.run("location.hash") == "#/access"
    await tab.until("sessionStorage.getItem('moorline-proof') !== null")
    kept = json.loads(await tab.run("sessionStorage.getItem('moorline-proof')"))
    assert kept["mechanism"] == "pass"
    assert await tab.run("document.cookie") == ""
    assert await tab.run("sessionStorage.getItem('moorline-going')") is None
    await tab.reload()
    await tab.until(f"{WHO} === 'oidc-anna-7'")
    issuer.control()
    await tab.run(f"{OUT}[0].click()")
    # To the issuer, and back to a page that knows nobody.
    await tab.until(f"{LOGIN} !== undefined")
    assert "/leave" in issuer.control()
    assert kept["proof"] not in await tab.run(KEPT)
    await tab.say("Page.navigate", url=f"{node.http}/console/#pass={kept['proof']}")
    await tab.until(has("this pass is not known here"))
    assert await tab.run("window.broken") == []
    # Logins are in the trail within a second.
    await until(
        lambda: any(
            (line["proof"], line["principal"]) == ("oidc", "oidc-anna-7")
            for line in map(json.loads, audited(node).splitlines())
        ),
        what="the login in the audit trail",
    )


async def test_rights_are_those_of_the_groups_that_the_claims_give(
    node: NodeProcess, tab: Tab
) -> None:
    async with moorline.connect(node.address) as moor:
        await moor.access.add_grant("/topics/open", "@readers", "sl")
        await moor.publish("open/here", b"x")
    await log_in(tab, f"{node.http}/console/#/access")
    await tab.until(has("@readers"))


async def test_the_end_of_the_token_ends_the_session(
    node: NodeProcess, issuer: IssuerProcess, tab: Tab
) -> None:
    issuer.control(life_s=3)
    await log_in(tab, f"{node.http}/console/")
    await tab.until(has("has ended"))
    assert await tab.run(f"{LOGIN} !== undefined")
    assert await tab.run("sessionStorage.getItem('moorline-proof')") is None


async def test_logging_out_everywhere_ends_the_other_windows_too(
    node: NodeProcess, browser: Chromium, tab: Tab
) -> None:
    await log_in(tab, f"{node.http}/console/")
    other = await browser.tab(await browser.profile(), "about:blank")
    await log_in(other, f"{node.http}/console/")
    for one in (tab, other):
        await one.until("sessionStorage.getItem('moorline-proof') !== null")
    await other.run(f"{OUT}[1].click()")
    await tab.until(has("you have logged out in another window"))
    assert await tab.run("sessionStorage.getItem('moorline-proof')") is None


async def test_a_user_that_is_disabled_is_cut_and_does_not_come_back(
    node: NodeProcess, issuer: IssuerProcess, tab: Tab
) -> None:
    issuer.control(user={"sub": "gone", "groups": []})
    async with moorline.connect(node.address) as moor:
        await moor.access.add_user("oidc-gone", b"swordfish")
        await log_in(tab, f"{node.http}/console/")
        await tab.until(f"{WHO} === 'oidc-gone'")
        await moor.access.change_user("oidc-gone", is_disabled=True)
        await tab.until(has("this user is disabled"))
        await tab.run("window.isOld = true")
        await tab.run(f"{LOGIN}.click()")
        await tab.until(f"window.isOld === undefined && {has('this user is disabled')}")


async def test_what_an_issuer_refuses_is_told_as_text(node: NodeProcess, tab: Tab) -> None:
    url = f"{node.http}/console/?error=access_denied&state=x&error_description=%3Cimg%20src=x%3E"
    await tab.say("Page.navigate", url=url)
    await tab.until(has("did not begin in this window"))
    await tab.run(
        "sessionStorage.setItem('moorline-going', JSON.stringify({flow: 'f', state: 'x', hash: ''}))"
    )
    await tab.say("Page.navigate", url=url)
    await tab.until(has("<img src=x>"))
    assert await tab.run("document.querySelectorAll('main img').length") == 0
    assert await tab.run("location.search") == ""


async def test_an_answer_that_somebody_else_began_logs_nobody_in(
    node: NodeProcess, issuer: IssuerProcess, tab: Tab
) -> None:
    """Somebody sends a link with a code of its own: whoever opens it is not made that one."""
    await tab.say("Page.navigate", url=f"{node.http}/console/?code=theirs&state={'s' * 43}")
    await tab.until(has("did not begin in this window"))
    assert "/token" not in issuer.control()
    # Also in a window that has begun a login of its own.
    await tab.run(
        "sessionStorage.setItem('moorline-going', JSON.stringify({flow: 'f', state: 'mine', hash: ''}))"
    )
    await tab.say("Page.navigate", url=f"{node.http}/console/?code=theirs&state=other")
    await tab.until(has("did not begin in this window"))
    assert await tab.run("sessionStorage.getItem('moorline-going')") is None
    assert "/token" not in issuer.control()


async def test_a_password_is_not_kept(node: NodeProcess, tab: Tab) -> None:
    async with moorline.connect(node.address) as moor:
        await moor.access.add_user("wilma", b"swordfish")
    await tab.say("Page.navigate", url=f"{node.http}/console/")
    await tab.until("document.querySelector('form.login') !== null")
    await tab.run(
        "document.querySelector('[name=user]').value = 'wilma';"
        "document.querySelector('[name=secret]').value = 'swordfish';"
        "document.querySelector('form.login').requestSubmit()"
    )
    await tab.until(f"{WHO} === 'wilma'")
    await tab.until("sessionStorage.getItem('moorline-proof') !== null")
    assert "swordfish" not in await tab.run(KEPT)
    await tab.reload()
    await tab.until(f"{WHO} === 'wilma'")


VIEWS = ("", "queues", "services", "topics", "messages", "groups", "paths", "access", "access/rows")


async def test_the_page_needs_nothing_that_its_policy_forbids(node: NodeProcess, tab: Tab) -> None:
    done = await asyncio.to_thread(run_moor, "console", "--address", node.address, "--json")
    await tab.say("Page.navigate", url=json.loads(done.stdout)["url"])
    await tab.until(IS_IN)
    for name in VIEWS:
        await tab.run(f"location.hash = {json.dumps('#/' + name)}")
        await tab.until("document.querySelector('main h1') !== null")
        assert "A mistake in this page" not in await tab.run(TEXT)
    assert await tab.run("window.broken") == []
    # The policy is there: what it forbids does not happen.
    for attack in (
        "document.body.innerHTML = '<b>x</b>'",
        "eval('1')",
        "new Function('1')()",
        "document.body.insertAdjacentHTML('beforeend', '<b>x</b>')",
    ):
        # As a script of the page would: DevTools' own are not held to it.
        found = await tab.run(
            f"(() => {{ try {{ {attack}; return 'done' }} catch {{ return 'held' }} }})()"
        )
        assert found == "held" or "Function" in attack or "eval" in attack, attack
    assert await tab.run("fetch('https://example.org/').then(() => 'done', () => 'held')") == "held"


def headers_of(url: str) -> dict[str, str]:
    with urllib.request.urlopen(url, timeout=30) as answer:
        return {key.lower(): value for key, value in answer.headers.items()}


async def test_the_files_of_the_page_have_their_headers(node: NodeProcess) -> None:
    for name in ("", "app.js", "login.json", "shapes.json", "console.css"):
        headers = await asyncio.to_thread(headers_of, f"{node.http}/console/{name}")
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "*" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cross-origin-opener-policy"] == "same-origin"
        assert headers["cross-origin-resource-policy"] == "same-origin"
        assert "geolocation=()" in headers["permissions-policy"]
        assert "set-cookie" not in headers


async def test_keys_that_the_issuer_changes_end_no_session_and_let_the_next_one_in(
    node: NodeProcess, issuer: IssuerProcess, browser: Chromium, tab: Tab
) -> None:
    await log_in(tab, f"{node.http}/console/")
    await tab.until(f"{WHO} === 'oidc-anna-7'")
    issuer.control(rotate=["RS256", "rotated"])
    other = await browser.tab(await browser.profile(), f"{node.http}/console/")
    # Keys are asked for at most every ten seconds: until then it is refused, and may be tried again.
    async with asyncio.timeout(60):
        while not await other.run(IS_IN):
            await other.run("window.isOld = true")
            await other.until(f"{LOGIN} !== undefined")
            await other.run(f"{LOGIN}.click()")
            await other.until(f"window.isOld === undefined && ({IS_IN} || {LOGIN} !== undefined)")
    await other.until(f"{WHO} === 'oidc-anna-7'")
    await tab.run("location.hash = '#/access'")
    await tab.until(has("oidc-anna-7"))


@pytest.mark.parametrize("width", [1_360, 390])
async def test_the_way_in_and_out_is_accessible_and_fits(
    node: NodeProcess, tab: Tab, width: int, tmp_path: Path
) -> None:
    program = await axe.source(tmp_path / "axe")
    size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 500}
    await tab.say("Emulation.setDeviceMetricsOverride", **size)
    await tab.say("Page.navigate", url=f"{node.http}/console/")
    for step in ("asked", "in", "menu"):
        if step == "asked":
            await tab.until(f"{LOGIN} !== undefined")
        elif step == "in":
            await log_in(tab, f"{node.http}/console/")
            await tab.until(
                f"{WHO} === 'oidc-anna-7' && document.querySelector('main h1') !== null"
            )
        else:
            # By keyboard alone.
            await tab.run("document.querySelector('details.leave summary').focus()")
            for kind in ("keyDown", "keyUp"):
                await tab.say(
                    "Input.dispatchKeyEvent", type=kind, key="Enter", code="Enter", text="\r"
                )
            await tab.until("document.querySelector('details.leave').open")
        assert await tab.run("document.documentElement.scrollWidth <= innerWidth"), step
        if program is not None:
            assert not await axe.problems(tab, program), step
        await shot(tab, tmp_path / f"{step}-{width}.png")


# --- behind a proxy -------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=["http", "https"])
def scheme(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module", params=["keeps the path", "takes it away"])
def proxied(
    request: pytest.FixtureRequest,
    scheme: str,
    issuer: IssuerProcess,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[NodeProcess, Nginx]]:
    why = why_no_nginx()
    if why is not None:
        pytest.skip(why)
    folder = tmp_path_factory.mktemp("proxied")
    flags = issuer.flags(folder, "--base-path=/deep/moor", "--set=http_proxy_sources=127.0.0.1/32")
    pem = None
    if scheme == "https":
        pem = Authority("proxies").issue_node("proxy").write(folder / "proxy.pem")
    with NodeProcess(folder / "data", *flags) as node:
        upstream = node.http if request.param == "keeps the path" else f"{node.http}/"
        with Nginx(folder / "nginx", location("/deep/moor/", upstream), pem=pem) as proxy:
            yield node, proxy


async def test_below_a_path_of_a_proxy_the_page_is_whole(
    proxied: tuple[NodeProcess, Nginx], scheme: str, tab: Tab
) -> None:
    node, proxy = proxied
    async with moorline.connect(node.address) as moor:
        with contextlib.suppress(moorline.CallFailed):
            await moor.access.add_user("wilma", b"swordfish")
    url = f"{proxy.url}/deep/moor/console/"
    if scheme == "http":
        # In clear on the way to the proxy nothing is said that others must not hear.
        await tab.say("Page.navigate", url=url)
        await tab.until(f"{LOGIN} !== undefined")
        await tab.run(f"{LOGIN}.click()")
        await tab.until(has("use https"))
        return
    await log_in(tab, url)
    await tab.until(f"{WHO} === 'oidc-anna-7'")
    assert await tab.run("location.pathname") == "/deep/moor/console/"
    await tab.run("location.hash = '#/access'")
    await tab.until(has("oidc-anna-7"))
    await tab.reload()
    await tab.until(f"{WHO} === 'oidc-anna-7'")
    await tab.run(f"{OUT}[0].click()")
    await tab.until("document.querySelector('form.login') !== null")
    assert await tab.run("location.pathname") == "/deep/moor/console/"
    await tab.run(
        "document.querySelector('[name=user]').value = 'wilma';"
        "document.querySelector('[name=secret]').value = 'swordfish';"
        "document.querySelector('form.login').requestSubmit()"
    )
    await tab.until(f"{WHO} === 'wilma'")
    assert await tab.run("window.broken") == []
    assert "/deep/moor/console/socket" in proxy.said
    said = proxy.said
    assert "swordfish" not in said
    assert "pass=" not in said


async def test_what_a_client_writes_itself_does_not_pass_the_proxy(
    proxied: tuple[NodeProcess, Nginx], scheme: str
) -> None:
    node, proxy = proxied
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE

    def ask(path: str, data: bytes | None = None, **headers: str) -> int:
        said = {name.replace("_", "-"): value for name, value in headers.items()}
        request = urllib.request.Request(f"{proxy.url}{path}", data, headers=said)
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
        )
        try:
            with opener.open(request, timeout=30) as found:
                return int(found.status)
        except urllib.error.HTTPError as refused:
            return refused.code

    other = "http" if scheme == "https" else "https"
    wilma = {"Authorization": "Basic d2lsbWE6c3dvcmRmaXNo"}
    async with moorline.connect(node.address) as moor:
        with contextlib.suppress(moorline.CallFailed):
            await moor.access.add_user("wilma", b"swordfish")
    is_private = scheme == "https"
    headers: dict[str, str]
    for headers, wanted in (
        ({}, 401),
        ({"Forwarded": "for=127.0.0.1;proto=https"}, 401),
        ({"X_Forwarded_For": "127.0.0.1"}, 401),
        ({"X_Real_IP": "127.0.0.1"}, 401),
        (wilma, 400 if is_private else 401),  # 400: it is in, and asks for nothing
        # What it says of its own scheme is not what the proxy says.
        ({**wilma, "X_Forwarded_Proto": other}, 400 if is_private else 401),
        ({**wilma, "Forwarded": f"for=1.2.3.4;proto={other}"}, 400 if is_private else 401),
        ({"X_Forwarded_Host": "evil.example"}, 401),
        ({"Host": "evil.example"}, 421),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": f"{other}://127.0.0.1:{proxy.port}"}, 403),
    ):
        found = await asyncio.to_thread(ask, "/deep/moor/records/poll", b"", **headers)
        assert found == wanted, headers
    for path, wanted in (
        ("/deep/moor/console/", 200),
        ("/deep/moor/livez", 200),
        ("/deep/moor/../livez", 404),
        ("/deep/moor/%2e%2e/livez", 404),
        ("/deep/moor/console/../../../livez", 404),
        ("/deep/moor/console/%2e%2e%2f%2e%2e%2flivez", 404),
        ("/deep/moor/console/..%2flogin.json", 404),
        ("/deep/moorings/console/", 404),
        ("/console/", 404),
        ("/livez", 404),
    ):
        assert await asyncio.to_thread(ask, path) == wanted, path

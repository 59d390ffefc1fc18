"""Who comes in at a real node and what it may do: proofs that are taken, refused, changed and taken back."""

import asyncio
import signal
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
from tests.net.authority import Authority, Issued
from tests.net.proving import Raw, hello
from tests.process.nodes import NodeProcess
from tests.process.proving import audited, over, proven, read_audit, who
from tests.waiting import until

import moorline
from moorline.client.moor import Moor
from moorline.config.addresses import listen_address
from moorline.core.group.message import Invalidate, LeaderWanted
from moorline.errors import (
    CertificateOfNobody,
    Denied,
    MoorlineError,
    OverQuota,
    Refused,
    Untrusted,
)
from moorline.net.credentials import NodeCredentials, PasswordCredentials, TokenCredentials
from moorline.wire.group import (
    AskLeader,
    FindRetained,
    ForBorrower,
    ForLeader,
    Originator,
    RetainedFound,
    SeekGroup,
    StreamsSeen,
    WatchStreams,
)
from moorline.wire.link import Goodbye, Welcome
from moorline.wire.message import Answer, Call
from moorline.wire.node import ClockConfirmed, ConfirmClock, Describe, Described
from moorline.wire.queue import Done

pytestmark = pytest.mark.process

USERS = Authority("users")
REVOCATION_MS = 400
FLAGS = (
    "--set=streams.sync=process",
    "--set=queues.sync=process",
    "--set=streams.shards=2",
    f"--set=access.revocation_ms={REVOCATION_MS}",
)
TLS = "tls://127.0.0.1:0"


def tls_address(node: NodeProcess) -> str:
    return node._found(r"(tls://\S+)")


class Files:
    """The TLS files of a node, and certificates of its users."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self.ca = USERS.write(folder / "ca.pem")
        self.node = USERS.issue_node().write(folder / "node.pem")

    @property
    def flags(self) -> list[str]:
        return [
            f"--listen={TLS}",
            f"--tls-certificate={self.node}",
            f"--tls-key={self.node}",
            f"--tls-client-ca={self.ca}",
        ]

    def of(self, issued: Issued) -> Path:
        return issued.write(self.folder / f"{issued.certificate.serial_number}.pem")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return Files(tmp_path_factory.mktemp("access") / "tls")


@pytest.fixture(scope="module")
def node(files: Files) -> Iterator[NodeProcess]:
    with NodeProcess(files.folder.parent / "data", *FLAGS, *files.flags) as node:
        yield node


@pytest.fixture
async def operator(node: NodeProcess) -> AsyncIterator[Moor]:
    """Anonymous on this machine, who may do everything."""
    async with moorline.connect(node.address, reconnect=False) as moor:
        yield moor


# --- who comes in ---------------------------------------------------------------------------------


async def test_a01_anonymous_on_this_machine_has_its_row_over_tls_too(
    node: NodeProcess, files: Files
) -> None:
    """A01: its groups are the same on both addresses, and so is what they may do."""
    for address, ca in ((node.address, None), (tls_address(node), files.ca)):
        async with proven(address, ca=ca) as caller:
            found = await who(caller)
            assert (found.principal, found.proof) == ("anonymous", "nothing")
            assert found.groups == ("@everyone", "@loopback")
            assert await caller.call(ConfirmClock, ClockConfirmed)


def test_the_log_says_that_everybody_on_this_machine_may_do_everything(node: NodeProcess) -> None:
    assert node.errors.count("the row of @loopback at / says so") == 1


async def test_a01_behind_a_proxy_nobody_is_on_this_machine(tmp_path: Path) -> None:
    """A01: what comes through a proxy comes from another address, and is refused."""
    flags = ("--listen=tcp://localhost:0", "--set=access.proxied=tcp://localhost:0")
    with NodeProcess(tmp_path / "data", *FLAGS, *flags) as node:
        addresses = [word for word in node.ready_line.split() if word.startswith("tcp://")]
        async with proven(addresses[0]) as caller:
            assert "@loopback" in (await who(caller)).groups
        for address in addresses[1:]:
            with pytest.raises(Refused, match="AUTH: anonymous clients are not taken from here"):
                async with proven(address) as caller:
                    await who(caller)
        lines = [line for line in audited(node) if line["kind"] == "login"]
        assert {(line["principal"], line["path"], line["verdict"]) for line in lines} <= {
            ("anonymous", "/admin/users", "denied")
        }


async def test_a02_a_renewed_certificate_is_the_same_principal(
    node: NodeProcess, files: Files
) -> None:
    """A02: with the same groups and rights."""
    for _ in range(2):
        shown = files.of(USERS.issue("billing"))
        async with proven(tls_address(node), ca=files.ca, certificate=shown) as caller:
            found = await who(caller)
            assert (found.principal, found.proof) == ("billing", "certificate")
            assert found.groups == ("@authenticated", "@everyone")
            assert found.expires_us > 0
            with pytest.raises(Denied):
                await caller.call(ConfirmClock, ClockConfirmed)


async def test_a04_a_certificate_that_could_be_nobodys_is_refused_and_the_log_says_why(
    node: NodeProcess, files: Files
) -> None:
    """A04: each with its own reason."""
    for names, why in (
        (("a", "b"), "it has 2 common names"),
        (("",), "it names nobody"),
        (("anonymous",), "which nobody can prove to be"),
        (("a/b",), "has a / in it"),
        (("a\nb",), "a control character or a newline"),
        (("a\0b",), "a control character or a newline"),
    ):
        with pytest.raises(CertificateOfNobody, match="the node refused your certificate"):
            async with proven(
                tls_address(node), ca=files.ca, certificate=files.of(USERS.issue(*names))
            ) as caller:
                await who(caller)
        assert why in node.errors


async def test_a05_a_certificate_of_another_authority_is_refused_and_told(
    node: NodeProcess, files: Files
) -> None:
    shown = files.of(Authority("others").issue("stranger"))
    with pytest.raises(MoorlineError):
        async with proven(tls_address(node), ca=files.ca, certificate=shown) as caller:
            await who(caller)
    await until(lambda: any(line["proof"] == "certificate" for line in audited(node)))


# --- passwords and tokens -------------------------------------------------------------------------


async def test_a06_a_password_right_wrong_and_changed_while_connected(
    node: NodeProcess, operator: Moor
) -> None:
    """A06: a change ends the session, and the trail has the wrong one without a word of it."""
    await operator.access.add_user("olga", b"swordfish")
    with pytest.raises(Refused, match="AUTH: the name or the password is wrong"):
        async with proven(node.address, PasswordCredentials("olga", "wrong")):
            pass
    right = PasswordCredentials("olga", "swordfish")
    async with proven(node.address, right) as caller:
        found = await who(caller)
        assert (found.principal, found.proof) == ("olga", "password")
        await operator.access.change_user("olga", password=b"another")
        assert "EXPIRED: this user was changed" in await over(caller)
    with pytest.raises(Refused, match="the name or the password is wrong"):
        async with proven(node.address, right):
            pass
    async with proven(node.address, PasswordCredentials("olga", "another")) as caller:
        await operator.access.change_user("olga", is_disabled=True)
        assert "EXPIRED: this user was changed" in await over(caller)
    await until(lambda: _has_login(node, "anonymous", "/admin/users/olga", "denied"))
    assert _has_login(node, "olga", "/", "granted")
    assert "swordfish" not in str(audited(node)) + node.errors


def _has_login(node: NodeProcess, principal: str, path: str, verdict: str) -> bool:
    return any(
        (line["principal"], line["path"], line["verdict"]) == (principal, path, verdict)
        for line in audited(node)
        if line["kind"] == "login"
    )


async def test_a06_many_wrong_passwords_are_slowed_and_others_are_not(
    node: NodeProcess, operator: Moor
) -> None:
    """A06: for each name apart."""
    await operator.access.add_user("victim", b"right")
    await operator.access.add_user("other", b"right")
    async with proven(node.address, PasswordCredentials("other", "right")):
        pass

    async def guess(number: int) -> str:
        try:
            async with proven(node.address, PasswordCredentials("victim", f"guess {number}")):
                return "in"
        except Refused as error:
            return str(error)

    said = await asyncio.gather(*(guess(number) for number in range(60)))
    assert sum("is wrong" in text for text in said) <= 12
    assert sum("too many wrong tries" in text for text in said) >= 40
    async with proven(node.address, PasswordCredentials("other", "right")) as caller:
        assert (await who(caller)).principal == "other"


async def test_a_token_is_its_user_until_it_is_taken_back_or_ends(
    node: NodeProcess, operator: Moor
) -> None:
    await operator.access.add_user("robot")
    made = await operator.access.add_token("robot", "nightly")
    ending = await operator.access.add_token("robot", "brief", expires_s=3)
    async with (
        proven(node.address, TokenCredentials(made.token)) as caller,
        proven(node.address, TokenCredentials(ending.token)) as brief,
    ):
        found = await who(caller)
        assert (found.principal, found.proof, found.expires_us) == ("robot", "token", 0)
        assert (await who(brief)).expires_us > 0
        assert "EXPIRED: your proof has expired" in await over(brief)
        assert (await who(caller)).principal == "robot"
        await operator.access.revoke_token("robot", "nightly")
        assert "EXPIRED: this token was taken back" in await over(caller)
    with pytest.raises(Refused, match="the token is wrong, has ended or was taken back"):
        async with proven(node.address, TokenCredentials(made.token)):
            pass
    assert made.token not in str(audited(node)) + node.errors


# --- files that change ----------------------------------------------------------------------------


async def test_a07_sighup_with_a_new_certificate_a_broken_one_and_a_new_authority(
    tmp_path: Path,
) -> None:
    """A07: old links stay until their proof ends."""
    own = Files(tmp_path / "tls")
    shown = own.of(USERS.issue("billing"))
    with NodeProcess(tmp_path / "data", *FLAGS, *own.flags) as node:
        async with proven(tls_address(node), ca=own.ca, certificate=shown) as old:
            others = Authority("others")
            trusted = others.write(own.folder / "others.pem")
            others.issue_node().write(own.node)
            node.signal(signal.SIGHUP)
            await until(lambda: "TLS files are loaded" in node.errors)
            with pytest.raises(Untrusted):
                async with proven(tls_address(node), ca=own.ca):
                    pass
            own.node.write_text("broken")
            node.signal(signal.SIGHUP)
            await until(lambda: "TLS files are not taken" in node.errors)
            assert "tls_certificate" in await asyncio.to_thread(_health, node)
            async with proven(tls_address(node), ca=trusted) as caller:
                assert (await who(caller)).principal == "anonymous"
            assert (await who(old)).principal == "billing"
            others.issue_node().write(own.node)
            others.write(own.ca)
            node.signal(signal.SIGHUP)
            assert "EXPIRED: the authority of the certificate" in await over(old)


def _health(node: NodeProcess) -> str:
    try:
        with urllib.request.urlopen(f"{node.http}/healthz", timeout=5) as answer:
            return str(answer.read().decode())
    except urllib.error.HTTPError as error:
        return error.read().decode()


async def test_a08_an_address_takes_what_it_names_and_nothing_weaker(
    tmp_path: Path, files: Files
) -> None:
    """A08: no plain hello where TLS is named, nobody anonymous where a proof is."""
    flags = (f"--set=access.mechanisms=anonymous,password@{TLS}",)
    with NodeProcess(tmp_path / "data", *FLAGS, *files.flags, *flags) as node:
        async with moorline.connect(node.address, reconnect=False) as moor:
            await moor.access.add_user("olga", b"swordfish")
        olga = PasswordCredentials("olga", "swordfish")
        async with proven(tls_address(node), olga, ca=files.ca) as caller:
            assert (await who(caller)).principal == "olga"
        with pytest.raises(Refused, match="AUTH: prove who you are: this address takes password"):
            async with proven(tls_address(node), ca=files.ca):
                pass
        shown = files.of(USERS.issue("billing"))
        with pytest.raises(Refused, match="AUTH: prove who you are: this address takes password"):
            async with proven(tls_address(node), ca=files.ca, certificate=shown):
                pass
        with pytest.raises(Refused, match="AUTH: 'password' is not taken at this address"):
            async with proven(node.address, olga):
                pass
        plain = f"tcp://127.0.0.1:{listen_address(tls_address(node)).port}"
        with pytest.raises(MoorlineError):
            async with proven(plain, olga):
                pass


def said_of(node: NodeProcess) -> set[tuple[str, str]]:
    """Whom the audit names with which act."""
    return {(line["principal"], line["act"]) for line in audited(node)}


# --- what they may do -----------------------------------------------------------------------------


async def test_a10_what_nodes_say_to_each_other_is_refused_from_everybody_else(
    node: NodeProcess, operator: Moor
) -> None:
    """A10: also from who may do everything; calls that are passed on among them, with a forged originator."""
    await operator.access.add_user("mallory", b"x")
    await operator.access.add_grant("/", "mallory", "slwpdag")
    forged = Originator("anonymous", "nothing", is_local=True)
    work = SeekGroup(0, "$shared/g/orders/#", "now")
    calls: list[tuple[Callable[[int], Call], type[Answer]]] = [
        (WatchStreams, StreamsSeen),
        (lambda n: FindRetained(n, "#"), RetainedFound),
        (lambda n: AskLeader(n, 1, 1, 1, "x", work, forged), Done),
    ]
    for credentials in (None, PasswordCredentials("mallory", "x")):
        async with proven(node.address, credentials) as caller:
            for call, answer in calls:
                with pytest.raises(Denied, match="only the nodes of the cluster"):
                    await caller.call(call, answer)
            caller.cast(lambda _: ForLeader(1, LeaderWanted("forged", "forged", 256)))
            assert await caller.call(Describe, Described)
    acts = {"WatchStreams", "FindRetained", "AskLeader", "ForLeader"}
    wanted = {(who, act) for who in ("anonymous", "mallory") for act in acts}
    await until(lambda: wanted <= said_of(node))
    # What a Leader says is heard on links that the node opened itself, and nowhere else.
    raw = await Raw.to(listen_address(node.address))
    assert isinstance(await raw.say(hello()).hear(), Welcome)
    raw.say(ForBorrower(Invalidate("forged", 1, "GONE")))
    said = await raw.hear()
    assert isinstance(said, Goodbye)
    assert said.code == "MALFORMED"
    raw.close()
    await until(lambda: ("anonymous", "Malformed") in said_of(node))
    assert await operator.echo(b"alive") == b"alive"


async def test_a11_a_node_of_another_cluster_is_refused(node: NodeProcess) -> None:
    """A11: it does not know the secret."""
    async with proven(node.address) as caller:
        assert caller.node is not None
        home = caller.node.home
    with pytest.raises(Refused, match="does not know the cluster's secret"):
        async with proven(node.address, NodeCredentials(b"s" * 32, "node-2", home)):
            pass


async def test_a25_a_right_that_is_given_and_taken_works_without_a_reconnect(
    node: NodeProcess, operator: Moor
) -> None:
    """A25: and the trail has both changes."""
    await operator.access.add_user("anna", b"x")
    async with proven(node.address, PasswordCredentials("anna", "x")) as caller:
        with pytest.raises(Denied, match=r"the right l .list. is not granted at /admin/audit"):
            await read_audit(caller)
        described = await caller.call(Describe, Described)
        assert (described.addresses, described.catalog, described.warnings) == ((), "", ())
        await operator.access.add_grant("/admin", "anna", "l")
        assert (await read_audit(caller)).lines
        described = await caller.call(Describe, Described)
        assert described.catalog == "embedded"
        assert described.addresses
        await operator.access.remove_grant("/admin", "anna", "l")
        with pytest.raises(Denied):
            await read_audit(caller)
        assert (await who(caller)).principal == "anna"
    acts = [
        (line["act"], line["path"], line["detail"]["subject"], line["detail"]["letters"])
        for line in audited(node)
        if line["kind"] == "grant" and line.get("detail", {}).get("subject") == "anna"
    ]
    assert acts == [("AddGrant", "/admin", "anna", "+l"), ("RemoveGrant", "/admin", "anna", "l")]


async def test_an_operators_act_is_written_down_before_it_is_done(
    node: NodeProcess, operator: Moor
) -> None:
    async with proven(node.address) as caller:
        await caller.call(ConfirmClock, ClockConfirmed)
        lines = [line for line in audited(node) if line["kind"] == "operator"]
        assert (lines[-1]["act"], lines[-1]["path"]) == ("ConfirmClock", "/admin/clock")
    async with asyncio.timeout(30):
        subscription = await operator.subscribe("$SYS/audit/#", start="beginning")
        async for message in subscription:
            # Others were refused the same act, and that is told under another topic.
            if message.topic == "$SYS/audit/operator" and b"ConfirmClock" in message.body:
                break


async def test_connections_of_a_principal_are_bounded_and_come_back(
    node: NodeProcess, operator: Moor
) -> None:
    """A30: connections, and others notice nothing."""
    await operator.access.add_user("bound", b"x")
    await operator.access.set_quota("bound", "connections", 2)
    credentials = PasswordCredentials("bound", "x")
    async with proven(node.address, credentials) as first, proven(node.address, credentials):
        with pytest.raises(OverQuota, match="quota connections is 2") as raised:
            async with proven(node.address, credentials) as third:
                await who(third)
        assert isinstance(raised.value, Refused), "there is no link"
        assert (raised.value.quota, raised.value.exit_code) == ("connections", 12)
        assert (await who(first)).principal == "bound"
    async with proven(node.address, credentials) as again:
        assert (await who(again)).principal == "bound"

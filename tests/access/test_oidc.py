"""Logins by an issuer of OpenID Connect: a real one, as a process with keys that it rotates, and all that it
can do wrong."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.net.authority import Authority
from tests.oidc.issuer import CLIENT, SECRET, WELL_KNOWN
from tests.oidc.process import IssuerProcess

from moorline.access.issuer import Issuer
from moorline.access.oidc import AWAY, BUSY, WRONG, Challenge, OidcLogins
from moorline.config.oidc import Oidc
from moorline.core.access.id_token import ALGORITHMS
from moorline.core.access.oidc_flow import Answer
from moorline.core.access.principal import Proof
from moorline.errors import ConfigError, NotAuthorized
from moorline.limits import (
    OIDC_FLOW_S_MAX,
    OIDC_KEYS_AGAIN_MS,
    OIDC_KNOWN_MS,
    OIDC_LOGINS_PER_ADDRESS_MAX,
    OIDC_SESSION_S_MAX,
)
from moorline.net.clock import wall_ms
from moorline.net.tls import Identity

pytestmark = [pytest.mark.process]

ORIGIN = "https://moor.example"
PATH = "/deep/console/"
TIMEOUT_MS = 1_000


@pytest.fixture(scope="module")
def process() -> Iterator[IssuerProcess]:
    with IssuerProcess() as process:
        yield process


@pytest.fixture
def issuer(process: IssuerProcess) -> IssuerProcess:
    process.reset()
    process.control(rotate=["ES256", "first"])
    return process


class Node:
    """The part of a node that takes the word of an issuer, with clocks that are moved by hand."""

    def __init__(self, url: str, folder: Path, **other: Any) -> None:
        secret = folder / "secret"
        secret.write_text(SECRET)
        secret.chmod(0o600)
        self.settings = Oidc(
            **{
                "issuer": url,
                "client_id": CLIENT,
                "client_secret_file": str(secret),
                "principals": ["sub:*={}"],
                "groups": ["groups:moor-*=@{}"],
                "timeout_ms": TIMEOUT_MS,
                **other,
            }
        )
        assert list(self.settings.problems()) == []
        self.ahead_ms = 0
        self.known_ms = 0
        self.logins = OidcLogins(
            self.settings,
            redirect_path=PATH,
            now_ms=lambda: wall_ms() + self.ahead_ms,
            issuer=Issuer(self.settings, now_ms=lambda: self.known_ms),
        )

    async def begin(self) -> Challenge:
        return msgspec.json.decode(await self.logins.begin(ORIGIN), type=Challenge)

    async def finish(self, begun: Challenge, **said: str) -> Identity:
        answer = {"flow": begun.flow, "state": said.get("state", ""), "code": "c"} | said
        return await self.logins.finish(msgspec.json.encode(answer), ORIGIN, "192.0.2.1")

    async def login(self, issuer: IssuerProcess) -> Identity:
        begun = await self.begin()
        where, said = await asyncio.to_thread(issuer.visit, begun.go)
        assert where == ORIGIN + PATH
        assert said["state"] == begun.state
        return await self.finish(begun, **said)


@contextlib.asynccontextmanager
async def node(issuer: IssuerProcess, folder: Path, **other: Any) -> AsyncIterator[Node]:
    made = Node(issuer.url, folder, **other)
    try:
        yield made
    finally:
        await made.logins.close()


async def refused(login: Any) -> str:
    with pytest.raises(NotAuthorized) as error:
        await login
    return str(error.value)


async def test_whoever_the_issuer_names_is_that_and_in_those_groups(
    issuer: IssuerProcess, tmp_path: Path
) -> None:
    async with node(issuer, tmp_path) as one:
        found = await one.login(issuer)
        assert (found.principal, found.proof, found.proven_name) == ("anna-7", Proof.OIDC, "anna-7")
        assert found.groups == {"@readers"}
        assert found.expires_ms is not None
        assert 290_000 < found.expires_ms - wall_ms() <= 300_000
        begun = await one.begin()
        assert begun.leave.startswith(f"{issuer.url}/leave?client_id=moor%2F1&post_logout")


@pytest.mark.parametrize("alg", ["RS256", "PS256", "ES256", "EdDSA"])
async def test_each_algorithm_that_is_taken(
    issuer: IssuerProcess, tmp_path: Path, alg: str
) -> None:
    issuer.control(rotate=[alg, "k"])
    async with node(issuer, tmp_path) as one:
        assert (await one.login(issuer)).principal == "anna-7"
    left = [name for name in ALGORITHMS if name != alg]
    async with node(issuer, tmp_path, algorithms=left) as one:
        assert await refused(one.login(issuer)) == WRONG


# --- keys -----------------------------------------------------------------------------------------


async def test_keys_are_asked_for_once_and_again_when_one_is_new(
    issuer: IssuerProcess, tmp_path: Path
) -> None:
    async with node(issuer, tmp_path) as one:
        for _ in range(3):
            await one.login(issuer)
        assert issuer.control().count("/keys") == 1
        issuer.control(rotate=["RS256", "second"], keep=True)
        one.known_ms += OIDC_KEYS_AGAIN_MS
        await one.login(issuer)
        assert issuer.control().count("/keys") == 1
        # One that is withdrawn is not taken for longer than what is kept of it.
        issuer.control(rotate=["ES256", "third"])
        one.known_ms += OIDC_KNOWN_MS
        await one.login(issuer)
        assert issuer.control().count("/keys") == 1


async def test_names_of_keys_that_there_are_none_of_are_no_reason_to_ask_often(
    issuer: IssuerProcess, tmp_path: Path
) -> None:
    async with node(issuer, tmp_path) as one:
        issuer.control(faults={"forgery": "unknown key"})
        for _ in range(5):
            assert await refused(one.login(issuer)) == WRONG
        assert issuer.control().count("/keys") == 1
        one.known_ms += OIDC_KEYS_AGAIN_MS
        for _ in range(5):
            assert await refused(one.login(issuer)) == WRONG
        assert issuer.control().count("/keys") == 1


async def test_many_that_log_in_at_once_cost_one_look(
    issuer: IssuerProcess, tmp_path: Path
) -> None:
    async with node(issuer, tmp_path) as one:
        async with asyncio.timeout(30):
            await asyncio.gather(*(one.begin() for _ in range(50)))
        assert issuer.control().count(WELL_KNOWN) == 1


async def test_one_that_goes_away_ends_no_look_of_others(
    issuer: IssuerProcess, tmp_path: Path
) -> None:
    async with node(issuer, tmp_path) as one:
        first, second = (asyncio.create_task(one.begin()) for _ in range(2))
        await asyncio.sleep(0)
        first.cancel()
        assert (await second).flow


# --- forgeries ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "forgery",
    ["none", "stranger", "own key", "unknown key", "shared", "shared as", "cut", "changed"],
)
@pytest.mark.parametrize("alg", ["ES256", "RS256"])
async def test_a_token_that_the_issuer_did_not_sign_is_nobodys(
    issuer: IssuerProcess, tmp_path: Path, forgery: str, alg: str
) -> None:
    issuer.control(rotate=[alg, "k"], faults={"forgery": forgery})
    async with node(issuer, tmp_path) as one:
        assert await refused(one.login(issuer)) == WRONG


@pytest.mark.parametrize(
    "claims",
    [
        {"iss": "https://evil.example"},
        {"aud": "another"},
        {"aud": ["another"]},
        {"aud": [CLIENT, "another"]},
        {"azp": "another"},
        {"nonce": "another"},
        {"nonce": None},
        {"exp": 1},
        {"exp": None},
        {"iat": 4_000_000_000},
        {"nbf": 4_000_000_000},
        {"sub": None},
        {"sub": "anonymous"},
        {"sub": "$node/node-1"},
        {"sub": "@loopback"},
        {"sub": "a\nb"},
        {"groups": [f"moor-{number}" for number in range(1_000)]},
    ],
)
async def test_a_token_that_says_the_wrong_things_is_nobodys(
    issuer: IssuerProcess, tmp_path: Path, claims: dict[str, Any]
) -> None:
    issuer.control(faults={"claims": claims})
    async with node(issuer, tmp_path) as one:
        assert await refused(one.login(issuer)) == WRONG


async def test_a_key_of_a_shared_secret_among_the_issuers_is_not_taken(
    issuer: IssuerProcess, tmp_path: Path
) -> None:
    issuer.control(faults={"keys": [{"kty": "oct", "kid": "first", "k": "AAAA"}]})
    async with node(issuer, tmp_path) as one:
        assert (await one.login(issuer)).principal == "anna-7"


async def test_nobody_comes_in_by_a_group_that_the_node_knows_itself(
    issuer: IssuerProcess, tmp_path: Path
) -> None:
    issuer.control(user={"sub": "eve", "groups": ["moor-loopback", "moor-nodes", "moor-fine"]})
    async with node(issuer, tmp_path) as one:
        assert (await one.login(issuer)).groups == {"@fine"}


# --- whose answer it is ---------------------------------------------------------------------------


async def test_a_code_and_a_state_are_good_once(issuer: IssuerProcess, tmp_path: Path) -> None:
    async with node(issuer, tmp_path) as one:
        begun = await one.begin()
        _, said = await asyncio.to_thread(issuer.visit, begun.go)
        await one.finish(begun, **said)
        assert "done already" in await refused(one.finish(begun, **said))
        # The same code in a login that is under way: the verifier of that one is another.
        again = await one.begin()
        assert await refused(one.finish(again, **{**said, "state": again.state})) == AWAY


async def test_two_that_bring_the_same_answer_at_once_are_one(
    issuer: IssuerProcess, tmp_path: Path
) -> None:
    async with node(issuer, tmp_path) as one:
        begun = await one.begin()
        _, said = await asyncio.to_thread(issuer.visit, begun.go)
        found = await asyncio.gather(
            *(one.finish(begun, **said) for _ in range(5)), return_exceptions=True
        )
        assert sum(isinstance(each, Identity) for each in found) == 1
        assert issuer.control().count("/token") == 1


async def test_an_answer_that_somebody_slipped_in_is_not_taken(
    issuer: IssuerProcess, tmp_path: Path
) -> None:
    async with node(issuer, tmp_path) as one:
        ours, theirs = await one.begin(), await one.begin()
        _, said = await asyncio.to_thread(issuer.visit, theirs.go)
        assert "this window" in await refused(one.finish(ours, **said))
        assert "this window" in await refused(one.finish(ours, **{**said, "state": ""}))
        assert "this window" in await refused(
            one.logins.finish(
                msgspec.json.encode({"flow": theirs.flow, **said}), "https://other.example", "a"
            )
        )


async def test_an_answer_of_another_issuer_is_not_taken(
    issuer: IssuerProcess, tmp_path: Path
) -> None:
    async with node(issuer, tmp_path) as one:
        for iss in ("https://evil.example", ""):
            issuer.control(faults={"back": {"iss": iss}})
            assert await refused(one.login(issuer)) == WRONG
        assert "/token" not in issuer.control(), "no code of ours goes on"


async def test_a_login_takes_no_longer_than_it_may(issuer: IssuerProcess, tmp_path: Path) -> None:
    async with node(issuer, tmp_path) as one:
        begun = await one.begin()
        _, said = await asyncio.to_thread(issuer.visit, begun.go)
        one.ahead_ms = OIDC_FLOW_S_MAX * 1_000
        assert "too long" in await refused(one.finish(begun, **said))


async def test_it_lasts_no_longer_than_its_token_and_than_a_day_of_work(
    issuer: IssuerProcess, tmp_path: Path
) -> None:
    async with node(issuer, tmp_path) as one:
        issuer.control(life_s=10**6)
        found = await one.login(issuer)
        assert found.expires_ms is not None
        assert found.expires_ms <= wall_ms() + OIDC_SESSION_S_MAX * 1_000


@pytest.mark.parametrize(
    "said",
    [
        *(b"", b"{}", b"[]", b"null", b"\xff", b'{"flow": 1}', b"{" * 9_999),
        b'{"flow": "\xff", "state": "s", "code": "c"}',
        b'{"x": ' + b"[" * 9_999,
    ],
)
async def test_what_is_no_answer(issuer: IssuerProcess, tmp_path: Path, said: bytes) -> None:
    async with node(issuer, tmp_path) as one:
        assert "no answer" in await refused(one.logins.finish(said, ORIGIN, "192.0.2.1"))
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(msgspec.json.encode(Answer("f" * 65, "s", "c")), type=Answer)


# --- an issuer that is away or does not behave ----------------------------------------------------

ANSWERS = ["hang", "drip", "drip body", "huge", "huge head", "huge chunks", "elsewhere", "text"]
ANSWERS += ["deep", "packed", "half", "nothing"]


@pytest.mark.parametrize("where", [WELL_KNOWN, "/keys", "/token"])
@pytest.mark.parametrize("fault", [*ANSWERS, 500, 404, 204])
async def test_an_issuer_that_does_not_behave_costs_its_own_logins_alone(
    issuer: IssuerProcess, tmp_path: Path, where: str, fault: str | int
) -> None:
    issuer.control(faults={where: fault})
    async with node(issuer, tmp_path) as one:
        begun_s, longest_s = time.monotonic(), 0.0
        login = asyncio.create_task(one.login(issuer))
        # The loop goes on while it does.
        while not login.done():
            looked_s = time.monotonic()
            await asyncio.sleep(0.001)
            longest_s = max(longest_s, time.monotonic() - looked_s)
        assert await refused(login) == AWAY
        assert time.monotonic() - begun_s < 3 * TIMEOUT_MS / 1_000 + 10
        assert longest_s < 1, "the loop stood still"
        issuer.control(faults={})
        assert (await one.login(issuer)).principal == "anna-7"


@pytest.mark.parametrize(
    "description",
    [
        {"issuer": "https://evil.example"},
        {"issuer": ""},
        {"token_endpoint": "http://evil.example/token"},
        {"token_endpoint": "ftp://127.0.0.1/"},
        {"jwks_uri": "http://169.254.169.254/latest"},
        {"jwks_uri": "file:///etc/passwd"},
        {"authorization_endpoint": "javascript:alert(1)"},
        {"authorization_endpoint": "http://evil.example/"},
        {"end_session_endpoint": "javascript:alert(1)"},
        {"code_challenge_methods_supported": ["plain"]},
        {"jwks_uri": 7},
    ],
)
async def test_a_description_that_leads_elsewhere_is_not_taken(
    issuer: IssuerProcess, tmp_path: Path, description: dict[str, Any]
) -> None:
    issuer.control(faults={"description": description})
    async with node(issuer, tmp_path) as one:
        assert await refused(one.begin()) == AWAY


async def test_one_address_holds_up_its_own_logins_alone(
    issuer: IssuerProcess, tmp_path: Path
) -> None:
    async with node(issuer, tmp_path) as one:
        await one.begin()
        issuer.control(faults={"/token": "hang"})
        begun = [await one.begin() for _ in range(OIDC_LOGINS_PER_ADDRESS_MAX + 1)]
        waiting = [
            asyncio.create_task(one.finish(each, state=each.state, iss=issuer.url))
            for each in begun[1:]
        ]
        await asyncio.sleep(0)
        assert await refused(one.finish(begun[0], state=begun[0].state, iss=issuer.url)) == BUSY
        for each in waiting:
            assert await refused(each) == AWAY
        assert one.logins._waiting == {}


async def test_nothing_of_a_secret_is_told(
    issuer: IssuerProcess, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    issuer.control(faults={"/token": 400})
    async with node(issuer, tmp_path) as one:
        begun = await one.begin()
        _, said = await asyncio.to_thread(issuer.visit, begun.go)
        assert await refused(one.finish(begun, **said)) == AWAY
    told = "\n".join(f"{record.getMessage()} {vars(record)}" for record in caplog.records)
    assert "answers 400" in told
    for secret in (SECRET, said["code"], begun.flow, begun.state, "secret words"):
        assert secret not in told


# --- TLS, and files -------------------------------------------------------------------------------


async def test_an_issuer_is_called_over_tls_and_by_its_own_certificate(tmp_path: Path) -> None:
    authority = Authority("issuers")
    ca = tmp_path / "ca.pem"
    ca.write_bytes(authority.pem)
    own = authority.issue_node("issuer").write(tmp_path / "own")
    with IssuerProcess("--tls", str(own), str(own), ca=ca) as issuer:
        async with node(issuer, tmp_path, ca=str(ca)) as one:
            assert (await one.login(issuer)).principal == "anna-7"
            issuer.control(
                faults={"description": {"token_endpoint": issuer.url.replace("https", "http")}}
            )
            one.known_ms += OIDC_KNOWN_MS
            assert await refused(one.login(issuer)) == AWAY, "no part of it in clear"
        async with node(issuer, tmp_path) as one:
            assert await refused(one.begin()) == AWAY, "an authority that nobody named"


async def test_a_secret_that_everybody_may_read_is_refused(tmp_path: Path) -> None:
    secret = tmp_path / "open"
    secret.write_text(SECRET)
    secret.chmod(0o644)
    settings = Oidc(
        issuer="https://a.example",
        client_id="c",
        principals=["sub:*={}"],
        client_secret_file=str(secret),
    )
    with pytest.raises(ConfigError, match="chmod 600"):
        Issuer(settings)

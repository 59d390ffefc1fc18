"""What the settings refuse beyond their types, and the page that lists them."""

from pathlib import Path

import pytest

from moorline.config.addresses import Address, http_address, listen_address
from moorline.config.load import load
from moorline.config.reference import page
from moorline.config.settings import Config
from moorline.config.shown import escaped, masked
from moorline.errors import ConfigError

PAGE = Path(__file__).parents[2] / "docs" / "configuration.md"
NO_FILE = Path("/dev/null")


def refused(**flags: object) -> str:
    with pytest.raises(ConfigError) as caught:
        load(flags, {}, NO_FILE)
    return str(caught.value)


def test_the_page_is_up_to_date() -> None:
    text = PAGE.read_text()
    assert page(text) == text, (
        "run: PYTHONPATH=src python -m moorline.config.reference docs/configuration.md"
    )


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("tcp://127.0.0.1:7411", Address("tcp", "127.0.0.1", 7411)),
        ("tls://[::]:0", Address("tls", "::", 0)),
        ("tcp://[0:0:0:0:0:0:0:1]:65535", Address("tcp", "::1", 65535)),
        ("tls://harbour-1.example.:1", Address("tls", "harbour-1.example.", 1)),
    ],
)
def test_addresses_that_are_taken(text: str, address: Address) -> None:
    assert listen_address(text) == address
    assert listen_address(str(address)) == address


@pytest.mark.parametrize(
    "text",
    [
        "127.0.0.1:7411",
        "http://127.0.0.1:7411",
        "tcp://127.0.0.1",
        "tcp://:7411",
        "tcp://127.0.0.1:65536",
        "tcp://127.0.0.1:-1",
        "tcp://127.0.0.1:٣",
        "tcp://::1:7411",
        "tcp://[::g]:7411",
        "tcp://[127.0.0.1]:7411",
        "tcp://1.2.3:7411",
        "tcp://1.2.3.256:7411",
        "tcp://a b:7411",
        "tcp://-a:7411",
        "tcp://u@h:7411",
        "tcp://h:7411/",
        "tcp://h:7411\n",
        "",
    ],
)
def test_addresses_that_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"^(it|its|what) "):
        listen_address(text)
    assert "accepted: tcp://HOST:PORT or tls://HOST:PORT" in refused(listen=[text])


def test_resolvers_are_a_list_of_hosts_or_none() -> None:
    for taken in ("", "moor://a,b:7500", "moors://[::1]:7500", "tcp://a:1"):
        assert not list(Config(resolvers=taken).problems())
    for refused in ("a,b", "moor://", "moor://a,a", "http://a:1"):
        (problem,) = Config(resolvers=refused).problems()
        assert problem.keys == ("resolvers",)
        assert "moor://HOST" in problem.accepted


def test_http_may_be_off() -> None:
    assert http_address("off") is None
    assert http_address("[::1]:0") == Address("http", "::1", 0)
    assert Config(http="off").http_address() is None
    assert 'or "off"' in refused(http="on")


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.9.9.9", "[::1]", "localhost", "LOCALHOST.", "[::ffff:127.0.0.1]"]
)
def test_anonymous_loopback_listens_there(host: str) -> None:
    assert load({"listen": f"tcp://{host}:1"}, {}, NO_FILE).config.anonymous == "loopback"


@pytest.mark.parametrize("host", ["0.0.0.0", "[::]", "10.0.0.1", "harbour", "localhost.example"])
def test_a_reachable_address_without_tls_is_refused_with_what_to_do(host: str) -> None:
    text = refused(listen=f"tcp://{host}:1")
    assert 'use tls://, let it take gssapi, or set anonymous to "everywhere"' in text
    flags = {"listen": f"tcp://{host}:1", "anonymous": "everywhere"}
    assert load(flags, {}, NO_FILE).config.listen_addresses()[0].port == 1


KERBEROS = {
    "access.mechanisms": "gssapi",
    "kerberos.keytab": "k.keytab",
    "kerberos.service": "moorline/harbour@MOOR.TEST",
}


def test_a_listener_of_kerberos_needs_no_tls_and_takes_nothing_weaker() -> None:
    flags = KERBEROS | {"listen": "tcp://0.0.0.0:1", "anonymous": "never"}
    config = load(flags, {}, NO_FILE).config
    assert config.access.mechanisms_of("tcp://0.0.0.0:1") == {"gssapi"}
    assert config.kerberos.service_of("pier") == "moorline/pier@MOOR.TEST"
    for weaker in ("anonymous", "password", "token", "certificate"):
        mixed = flags | {"access.mechanisms": f"gssapi,{weaker}"}
        assert f"{weaker} is weaker" in refused(**mixed)
    assert "set kerberos.keytab" in refused(**{"access.mechanisms": "gssapi"})
    assert "set both or neither" in refused(**{"kerberos.keytab": "k"})
    assert "service/host@REALM" in refused(**KERBEROS | {"kerberos.service": "moorline"})
    assert "accepted" in refused(**KERBEROS | {"access.kerberos": "*=x"})


def test_nodes_that_could_not_come_are_told_of() -> None:
    shared = KERBEROS | {"catalog": "postgresql://x/y"}
    assert "set kerberos.nodes" in refused(**shared)
    load(shared | {"kerberos.nodes": "moorline/*@MOOR.TEST"}, {}, NO_FILE)
    assert "the realm in full" in refused(**shared | {"kerberos.nodes": "moorline/*"})
    lone = {name: text for name, text in KERBEROS.items() if name != "access.mechanisms"}
    assert "let a listener take gssapi" in refused(**lone | {"kerberos.nodes": "moorline/*@A"})


def test_a_node_that_nobody_could_enter_is_refused() -> None:
    by_certificate = {"anonymous": "never", "access.mechanisms": "certificate"}
    assert "nobody could log on" in refused(**by_certificate)
    flags = by_certificate | {
        "listen": "tls://127.0.0.1:1",
        "tls_certificate": "c.pem",
        "tls_key": "k.pem",
    }
    assert "nobody could log on" in refused(**flags)
    flags["tls_client_ca"] = "ca.pem"
    assert load(flags, {}, NO_FILE).config.anonymous == "never"
    by_password = {"anonymous": "never", "access.mechanisms": "password"}
    assert load(by_password, {}, NO_FILE).config.anonymous == "never"
    behind_a_proxy = {"listen": "tcp://127.0.0.1:1", "access.proxied": "tcp://127.0.0.1:1"}
    assert "nobody could log on" in refused(**by_password, **behind_a_proxy)


def test_tls_needs_certificate_and_key() -> None:
    assert "set tls_certificate and tls_key" in refused(listen="tls://0.0.0.0:1")
    assert "it needs tls_key beside it" in refused(tls_certificate="c.pem")
    assert "it needs tls_certificate beside it" in refused(tls_key="k.pem")
    flags = {"listen": "tls://0.0.0.0:1", "tls_certificate": "c.pem", "tls_key": "k.pem"}
    assert load(flags, {}, NO_FILE).config.tls_key == "k.pem"


def test_an_address_is_listed_once_unless_it_is_any_free_port() -> None:
    assert "is listed twice" in refused(listen="tcp://[::1]:5,tcp://[0::1]:5")
    load({"listen": "tcp://[::1]:0,tcp://[::1]:0"}, {}, NO_FILE)
    assert "at least one" in refused(listen="")


def test_a_comparison_with_a_refused_value_is_not_reported() -> None:
    text = refused(listen="tcp://0.0.0.0:1", anonymous="sometimes")
    assert text == (
        'anonymous = "sometimes" (from flag): accepted: one of loopback, everywhere, never'
    )


def test_a_role_that_does_not_exist_is_refused_with_those_that_do() -> None:
    accepted = "resolver, broker, records, console"
    assert f'"brokr" is not a role; accepted: {accepted}' in refused(roles="brokr")
    assert load({"roles": "console"}, {}, NO_FILE).config.active_roles() == ("console",)


@pytest.mark.parametrize("catalog", ["embedded", "postgresql://h/db", "postgresql:///d?host=/run"])
def test_catalogs_that_are_taken(catalog: str) -> None:
    assert load({"catalog": catalog}, {}, NO_FILE).config.catalog == catalog


@pytest.mark.parametrize("catalog", ["", "sqlite:///x", "postgres://h/db", "postgresql://h:x/db"])
def test_catalogs_that_are_refused(catalog: str) -> None:
    assert "catalog = " in refused(catalog=catalog)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgresql://u:p@h:5/db", "postgresql://u:***@h:5/db"),
        ("postgresql://u@h:5/db", "postgresql://u@h:5/db"),
        ("postgresql://h/db?user=u&password=p&x=1", "postgresql://h/db?user=u&password=***&x=1"),
        ("tcp://127.0.0.1:7411", "tcp://127.0.0.1:7411"),
        ("./moorline-data", "./moorline-data"),
    ],
)
def test_only_the_password_is_masked(text: str, shown: str) -> None:
    assert masked(text) == shown


def test_what_is_not_printable_is_escaped() -> None:
    assert escaped("a\x1b\x9b\u202e\U000e0001é\\") == "a\\x1b\\x9b\\u202e\\U000e0001é\\"


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("access.certificates", "cn:a", "accepted: FIELD:PATTERN=PRINCIPAL"),
        ("access.certificates", "cn:x=@ops", "is no principal"),
        ("access.mechanisms", "kerberos", "accepted: a list of MECHANISM"),
        ("access.mechanisms", "password@tls://0.0.0.0:1", "is no listener"),
        ("access.proxied", "tcp://127.0.0.1:1", "is no listener"),
    ],
)
def test_access_that_is_refused_by_name(name: str, value: str, why: str) -> None:
    text = refused(**{name: value})
    assert name in text
    assert why in text


def test_rights_end_before_a_node_answers_nothing_any_more() -> None:
    text = refused(**{"access.stale_ms": "29_401"})
    assert "access.stale_ms" in text
    assert "answers nothing behind 29400 ms, by its identity_lease_ms" in text
    refused(identity_lease_ms="10_000")
    load({"access.stale_ms": "29_400"}, {}, NO_FILE)
    load({"access.stale_ms": "9_000", "identity_lease_ms": "10_000"}, {}, NO_FILE)


def test_what_a_listener_takes_as_a_proof() -> None:
    plain, tls = "tcp://127.0.0.1:1", "tcp://127.0.0.1:2"
    flags = {"listen": f"{plain},{tls}", "access.mechanisms": f"anonymous,token,password@{tls}"}
    access = load(flags, {}, NO_FILE).config.access
    assert access.mechanisms_of(plain) == {"anonymous", "token"}
    assert access.mechanisms_of(tls) == {"password"}
    everything = load({}, {}, NO_FILE).config.access
    assert everything.mechanisms_of(plain) == {"certificate", "password", "token", "anonymous"}


def test_the_http_port_has_tls_names_and_origins() -> None:
    assert http_address("https://[::1]:0") == Address("https", "::1", 0)
    assert http_address("http://127.0.0.1:1") == Address("http", "127.0.0.1", 1)
    assert Config(http="0.0.0.0:80").http_listener() == "http://0.0.0.0:80"
    assert "set tls_certificate and tls_key" in refused(http="https://0.0.0.0:7412")
    assert "a name or an address without a port" in refused(http_hosts=["a.example:80"])
    assert "without a path" in refused(http_origins=["*"])
    assert "is no HOST" in refused(http_origins=["https://a.example/"])
    own = "http://127.0.0.1:7412"
    flags: dict[str, object] = {"access.mechanisms": ["token", f"gssapi@{own}"]}
    assert "takes no gssapi" in refused(**flags)
    flags = {"access.mechanisms": [f"token@{own}"], "access.proxied": [own]}
    assert load(flags, {}, NO_FILE).config.access.mechanisms_of(own) == {"token"}
    flags = {"access.proxied": ["127.0.0.1:7412"]}
    assert "the HTTP port with its scheme" in refused(**flags)

"""Who stands behind a request: tables of Host, Origin and what browsers say of their pages."""

import pytest

from moorline.core.access.web_origin import (
    Asking,
    Judged,
    Misjudged,
    Origin,
    WebNames,
    cors_headers,
    host_of,
    is_forwarded,
)

NAMES = WebNames(
    ["node-1.example", "192.0.2.7"], ["https://board.example", "http://[2001:db8::1]:81"]
)
OWN = "198.51.100.4"


def judge(
    host: str = "localhost:7412", scheme: str = "http", method: str = "GET", **said: str | bytes
) -> Judged | Misjudged:
    headers = [(b"host", host.encode())]
    headers += [
        (name.replace("_", "-").encode(), value if isinstance(value, bytes) else value.encode())
        for name, value in said.items()
    ]
    return NAMES.judge(Asking.of(method, headers), scheme=scheme, own_address=OWN)


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("LOCALHOST:7412", 200),
        ("localhost.:1", 200),
        ("127.0.0.1:7412", 200),
        ("127.8.9.1", 200),
        ("[::1]:7412", 200),
        ("[::ffff:127.0.0.1]", 200),
        (OWN, 200),
        (f"{OWN}:99", 200),
        ("node-1.example", 200),
        ("Node-1.Example.:7412", 200),
        ("192.0.2.7:7412", 200),
        ("192.0.2.8:7412", 421),
        ("evil.example:7412", 421),
        ("localhost.evil.example", 421),
        ("node-1.example.evil.example", 421),
        ("127.0.0.1.evil.example", 421),
        ("2130706433", 421),
        ("", 400),
        ("localhost:", 400),
        ("localhost:70000", 400),
        ("user@localhost", 400),
        ("localhost/", 400),
        ("local host", 400),
        ("[::1", 400),
        ("[localhost]", 400),
    ],
)
def test_a_host_is_one_of_the_listeners_own_names(host: str, status: int) -> None:
    verdict = judge(host)
    assert (verdict.status if isinstance(verdict, Misjudged) else 200) == status


@pytest.mark.parametrize(
    ("scheme", "host", "origin", "is_taken"),
    [
        ("http", "localhost:7412", "http://localhost:7412", True),
        ("http", "localhost:7412", "http://localhost:7413", False),
        ("http", "localhost:7412", "https://localhost:7412", False),
        ("http", "localhost:7412", "http://127.0.0.1:7412", False),
        ("http", "localhost", "http://localhost", True),
        ("http", "localhost", "http://localhost:80", True),
        ("https", "localhost", "https://localhost:443", True),
        ("https", "node-1.example:7412", "https://NODE-1.example:7412", True),
        ("http", "localhost:7412", "null", False),
        ("http", "localhost:7412", "", False),
        ("http", "localhost:7412", "file://", False),
        ("http", "localhost:7412", "http://localhost:7412/path", False),
        ("http", "localhost:7412", "http://a@localhost:7412", False),
        ("http", "localhost:7412", "https://board.example", True),
        ("http", "localhost:7412", "https://board.example:443", True),
        ("http", "localhost:7412", "http://board.example", False),
        ("http", "localhost:7412", "https://sub.board.example", False),
        ("http", "localhost:7412", "http://[2001:db8:0::1]:81", True),
    ],
)
def test_an_origin_is_our_own_or_named(scheme: str, host: str, origin: str, is_taken: bool) -> None:
    verdict = judge(host, scheme, origin=origin)
    if is_taken:
        assert isinstance(verdict, Judged)
        assert verdict.is_page
    else:
        assert isinstance(verdict, Misjudged)
        assert verdict.status == 403


@pytest.mark.parametrize(
    ("site", "mode", "dest", "method", "expected"),
    [
        ("", "", "", "GET", "program"),
        ("none", "navigate", "document", "GET", "program"),
        ("same-origin", "cors", "empty", "GET", "page"),
        ("same-site", "no-cors", "image", "GET", "refused"),
        ("cross-site", "no-cors", "script", "GET", "refused"),
        ("cross-site", "navigate", "document", "GET", "page"),
        ("cross-site", "navigate", "document", "POST", "refused"),
        ("cross-site", "navigate", "iframe", "GET", "refused"),
        ("something-new", "", "", "GET", "refused"),
    ],
)
def test_what_a_browser_says_of_its_page(
    site: str, mode: str, dest: str, method: str, expected: str
) -> None:
    verdict = judge(method=method, sec_fetch_site=site, sec_fetch_mode=mode, sec_fetch_dest=dest)
    if expected == "refused":
        assert isinstance(verdict, Misjudged)
        assert verdict.status == 403
    else:
        assert verdict == Judged(is_page=expected == "page")


def test_a_header_that_decides_is_there_once() -> None:
    with pytest.raises(ValueError, match="origin is there twice"):
        Asking.of("GET", [(b"origin", b"http://a"), (b"origin", b"http://b")])


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (b"forwarded", True),
        (b"via", True),
        (b"x-forwarded-for", True),
        (b"x-forwarded-anything", True),
        (b"x-real-ip", True),
        (b"cf-connecting-ip", True),
        (b"true-client-ip", True),
        (b"x-cluster-client-ip", True),
        (b"x-original-forwarded-for", True),
        (b"x-envoy-external-address", True),
        (b"fly-client-ip", True),
        (b"x_forwarded_for", True),
        (b"x-forwarded_host", True),
        (b"true_client_ip", True),
        (b"x_real_ip", True),
        (b"x-forwarder", False),
        (b"user-agent", False),
        (b"host", False),
    ],
)
def test_a_proxy_is_known_by_its_headers(name: bytes, expected: bool) -> None:
    assert is_forwarded([b"host", name]) is expected


@pytest.mark.parametrize("value", ["http://localhost:7412/", "https://evil.example/", ""])
def test_a_referer_is_a_page(value: str) -> None:
    assert judge() == Judged(is_page=False)
    assert judge(referer=value) == Judged(is_page=True)
    assert judge(referer=value, sec_fetch_site="none") == Judged(is_page=True)


def test_only_a_named_origin_may_read_the_answer() -> None:
    own, other = judge(origin="http://localhost:7412"), judge(origin="https://board.example")
    assert isinstance(own, Judged)
    assert isinstance(other, Judged)
    assert cors_headers(own) == {}
    assert cors_headers(other)["access-control-allow-origin"] == "https://board.example"


@pytest.mark.parametrize("text", ["*", "board.example", "https://a/b", "ftp://a", "https://"])
def test_an_origin_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"accepted|is no HOST"):
        Origin.parsed(text)


@pytest.mark.parametrize("text", ["*", "a:80", "http://a", "", "a b"])
def test_a_host_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="accepted"):
        host_of(text)

"""URLs that a node calls, or sends a browser to."""

import pytest

from moorline.core.access.web_url import Url


@pytest.mark.parametrize(
    ("text", "url", "authority"),
    [
        ("https://a.example", Url("https", "a.example", 443, "/"), "a.example"),
        (
            "https://a.example:8443/x?y=z",
            Url("https", "a.example", 8443, "/x?y=z"),
            "a.example:8443",
        ),
        ("https://[2001:db8::1]/x", Url("https", "2001:db8::1", 443, "/x"), "[2001:db8::1]"),
        ("http://127.0.0.1:80/x", Url("http", "127.0.0.1", 80, "/x"), "127.0.0.1"),
        ("http://localhost:81", Url("http", "localhost", 81, "/"), "localhost:81"),
        ("http://[::1]:81/", Url("http", "::1", 81, "/"), "[::1]:81"),
    ],
)
def test_what_is_called(text: str, url: Url, authority: str) -> None:
    assert Url.parsed(text) == url
    assert url.authority == authority


@pytest.mark.parametrize(
    "text",
    [
        "http://a.example/",
        "http://127.0.0.1.evil.example/",
        "http://localhost.evil.example/",
        "http://0.0.0.0/",
        "http://192.168.0.1/",
        "ftp://a.example/",
        "file:///etc/passwd",
        "javascript:alert(1)",
        "https://",
        "https:///x",
        "//a.example/",
        "a.example",
        "",
        "https://user@a.example/",
        "https://user:word@a.example/",
        "http://localhost@evil.example/",
        "https://a.example/#x",
        "https://a.example/a b",
        "https://a.example/a\r\nx: y",
        "https://a.example/\n",
        "https://ä.example/",
        "https://a.example:99999/",
        "https://a.example:x/",
    ],
)
def test_what_is_not(text: str) -> None:
    with pytest.raises(ValueError, match=r"it |ort "):
        Url.parsed(text)

"""Whom a client lets itself be led to: no redirect leads to a strange address."""

import pytest

from moorline.client.connecting import known_addresses
from moorline.config.addresses import listen_address


@pytest.mark.parametrize(
    ("first", "told", "known"),
    [
        ("tcp://10.0.0.1:1", "tcp://10.0.0.1:2", "tcp://10.0.0.1:2"),
        ("tcp://10.0.0.1:1", "tcp://0.0.0.0:2", "tcp://10.0.0.1:2"),
        ("tcp://10.0.0.1:1", "tcp://10.0.0.2:2", ""),
        ("tcp://10.0.0.1:1", "tls://10.0.0.1:2", ""),
        ("tls://one:1", "tls://two:2", "tls://two:2"),
        ("tls://one:1", "tcp://one:2", ""),
        ("tls://one:1", "tls://one:0", ""),
        ("tls://one:1", "file:///etc/passwd", ""),
    ],
)
def test_which_addresses_are_followed(first: str, told: str, known: str) -> None:
    found = known_addresses(listen_address(first), [told])
    assert list(map(str, found)) == ([known] if known else [])

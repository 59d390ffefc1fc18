"""What tests of pages share."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A short one: a page may connect to the socket of a Postgres, and paths of sockets are bounded."""
    with tempfile.TemporaryDirectory(prefix="page-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)

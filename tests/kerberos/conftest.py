"""One realm a worker, with some principals; where there can be none, one line says why."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.kerberos.realm import Realm, missing


@pytest.fixture(scope="session")
def shared_realm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Realm]:
    if why := missing():
        pytest.skip(why)
    with Realm(tmp_path_factory.mktemp("realm")) as realm:
        yield realm


@pytest.fixture
def realm(shared_realm: Realm, monkeypatch: pytest.MonkeyPatch) -> Realm:
    """For clients in this process too, and for the nodes that it starts."""
    for name, value in shared_realm.environment.items():
        monkeypatch.setenv(name, value)
    return shared_realm


@pytest.fixture
def own_realm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Realm]:
    """One whose KDC the test stops, or whose keys it changes."""
    if why := missing():
        pytest.skip(why)
    with Realm(tmp_path / "realm") as realm:
        for name, value in realm.environment.items():
            monkeypatch.setenv(name, value)
        assert os.environ["KRB5_CONFIG"] == realm.environment["KRB5_CONFIG"]
        yield realm

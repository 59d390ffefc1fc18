"""Errors of commands that say their class, whatever the class shows of itself."""

import pytest

from moorline.cli.named_errors import naming_errors
from moorline.errors import (
    CertificateExpired,
    ConfigError,
    Denied,
    KerberosError,
    MoorlineError,
    OverQuota,
    Unreachable,
    Untrusted,
)


@pytest.mark.parametrize(
    "error",
    [
        Denied("no right"),
        Unreachable("nobody there"),
        Untrusted("who is that"),
        OverQuota("too many"),
        KerberosError("KERBEROS", "no ticket"),
        CertificateExpired("EXPIRED", "it is over"),
    ],
)
def test_an_error_begins_with_its_class_and_is_the_same_error(error: MoorlineError) -> None:
    before = str(error)

    @naming_errors
    def command() -> None:
        raise error

    with pytest.raises(type(error)) as told:
        command()
    assert told.value is error
    assert str(error) == f"{type(error).__name__}: {before}"


def test_mistakes_in_flags_are_told_as_ever() -> None:
    @naming_errors
    def command() -> None:
        raise ConfigError("one line\nand another")

    with pytest.raises(ConfigError, match=r"^one line"):
        command()

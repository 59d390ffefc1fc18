"""A node does not start with a message that nobody answers, or of which nobody says what it needs."""

from typing import get_args

import pytest

from moorline.access.guard import Declarations, anybody
from moorline.config.settings import EXISTING_ROLES
from moorline.node.access import OF_LINKS, check_all_declared
from moorline.wire.node import Echo
from moorline.wire.protocol import HeardByNode
from moorline.wire.resolver import ResolvePaths


def declared_but(*left_out: type) -> Declarations:
    kinds = set(get_args(HeardByNode)) - OF_LINKS - set(left_out)
    return {kind: anybody(lambda _, __: ()) for kind in kinds}


def test_every_message_that_a_node_hears_has_a_declaration() -> None:
    check_all_declared(declared_but(), EXISTING_ROLES)
    with pytest.raises(AssertionError, match="nobody says what these need: Echo"):
        check_all_declared(declared_but(Echo), EXISTING_ROLES)


def test_only_a_node_without_the_role_leaves_the_messages_of_resolvers_unanswered() -> None:
    check_all_declared(declared_but(ResolvePaths), ("broker",))
    with pytest.raises(AssertionError, match="ResolvePaths"):
        check_all_declared(declared_but(ResolvePaths), ("broker", "resolver"))

"""Subscriptions of a feed as the tests of its parts have them."""

from decimal import Decimal
from typing import Any

from tests.core.records.tables import TABLE

from moorline.core.records.audience import Audiences
from moorline.core.records.feed_events import How, Wanted
from moorline.core.records.filter import parse_filter
from moorline.core.records.permit import make_permit, owner_column
from moorline.core.records.subscription import Standing, Subscription
from moorline.core.records.table import After, Before, Change, Scopes

ALL = make_permit(owner_column(TABLE), is_all=True)


def scopes(workspace: int) -> Scopes:
    return (workspace, "NEW", Decimal(1), "n")


def change(key: str, before: int | None, after: int | None) -> Change:
    """By the workspace of the row."""
    was = None if before is None else Before(1, scopes(before))
    return Change((key,), was, None if after is None else After(2, scopes(after), b"{}"))


def subscription(
    audiences: Audiences,
    number: int,
    where: dict[str, Any],
    standing: Standing = Standing.LIVE,
    otherwise: How = How.FULL,
) -> Subscription:
    wanted = Wanted(parse_filter(TABLE, where), ALL, 1, None, otherwise)
    audience = audiences.join(wanted.filter, wanted.permit)
    audience.members.add(number)
    found = Subscription(number, number, wanted, audience)
    found.standing = standing
    return found

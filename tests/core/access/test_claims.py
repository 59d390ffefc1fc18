"""Whom claims make of somebody."""

from typing import Any

import pytest

from moorline.core.access.claims import ClaimRule, ClaimRules, check_claimed_group
from moorline.errors import BadGrant
from moorline.limits import OIDC_GROUPS_MAX, OIDC_VALUES_MAX


def principal(rules: list[str], **claims: Any) -> str:
    return ClaimRules.parsed(rules, []).principal_of(claims)


def groups(rules: list[str], **claims: Any) -> set[str]:
    return set(ClaimRules.parsed([], rules).groups_of(claims))


def test_a_claim_is_a_principal_by_the_first_rule_that_matches() -> None:
    rules = ["sub:root-7=boss", "email:*@example.org={}", "sub:*=oidc-{}"]
    assert principal(rules, sub="root-7") == "boss"
    mail = {"email": "anna@example.org", "email_verified": True}
    assert principal(rules, sub="1", **mail) == "anna"
    assert principal(rules, sub="1") == "oidc-1"


@pytest.mark.parametrize("verified", [False, None, "true", 1, [True]])
def test_an_address_that_nobody_has_looked_at_is_nobodys(verified: object) -> None:
    claims = {"email": "anna@example.org", "email_verified": verified}
    with pytest.raises(ValueError, match="no rule"):
        principal(["email:*@example.org={}"], **claims)


@pytest.mark.parametrize(
    "value",
    [
        "anna@example.org.evil.example",
        "anna@evil.example@example.org",
        "@example.org",
        "ANNA@EXAMPLE.ORG",
        "anna@example.org ",
        "",
        7,
        True,
        {"a": "anna@example.org"},
        [["anna@example.org"]],
        None,
    ],
)
def test_what_only_looks_like_it_matches_nothing(value: object) -> None:
    with pytest.raises(ValueError, match="no rule"):
        principal(["upn:*@example.org={}"], upn=value)


@pytest.mark.parametrize(
    "name", ["anonymous", "@admins", "$node/node-1", "%cert", "a\nb", "a\u2028b", "x" * 2_000]
)
def test_nobody_is_who_no_one_can_prove_to_be(name: str) -> None:
    with pytest.raises(ValueError, match=r"no principal|proves nothing"):
        principal(["sub:*={}"], sub=name)


def test_two_names_are_nobody() -> None:
    with pytest.raises(ValueError, match="several"):
        principal(["roles:p-*={}"], roles=["p-a", "p-b"])
    assert principal(["roles:p-*={}"], roles=["p-a", "p-a", "other", 5]) == "a"


def test_groups_are_those_of_all_rules() -> None:
    rules = ["groups:moor-*=@{}", "realm_access.roles:admin=@operators", '"cognito:groups":*=@c-{}']
    claims = {
        "groups": ["moor-a", "moor-b", "other", "moor-", 7],
        "realm_access": {"roles": ["admin", "user"]},
        "cognito:groups": "x",
    }
    assert groups(rules, **claims) == {"@a", "@b", "@operators", "@c-x"}
    assert groups(rules) == set()


def test_a_claim_with_dots_in_its_name_goes_before_one_within_another() -> None:
    assert groups(["a.b:*=@{}"], **{"a.b": "outer", "a": {"b": "inner"}}) == {"@outer"}
    assert groups(["a.b.c:*=@{}"], a={"b": ["c"]}) == set()


@pytest.mark.parametrize("name", ["@loopback", "@nodes", "@everyone", "@authenticated"])
def test_no_claim_gives_a_group_that_the_node_itself_knows(name: str) -> None:
    assert groups(["g:*=@{}"], g=[name[1:], "fine"]) == {"@fine"}
    with pytest.raises(BadGrant):
        check_claimed_group(name)
    with pytest.raises(ValueError, match="no group of users that a claim"):
        ClaimRule.group(f"g:x={name}")


def test_what_is_no_name_of_a_group_gives_none() -> None:
    assert groups(["g:*=@{}"], g=["@x", "$x", "%x", "a\nb", "x" * 2_000, "ok"]) == {"@ok"}


def test_too_many_are_refused_and_not_cut() -> None:
    with pytest.raises(ValueError, match="narrow"):
        groups(["g:*=@{}"], g=[f"g{number}" for number in range(OIDC_GROUPS_MAX + 1)])
    with pytest.raises(ValueError, match="values"):
        groups(["g:x=@x"], g=["y"] * (OIDC_VALUES_MAX + 1))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "sub",
        "sub:*",
        "sub=x",
        ":*={}",
        "sub:={}",
        "sub:**={}",
        "sub:*={}{}",
        "sub:x={}",
        "sub:*=@x",
        "sub:*=anonymous",
        "sub:*=",
        '"sub:*={}',
        '"sub"*={}',
        '"":*={}',
    ],
)
def test_a_rule_that_is_none_is_told(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        ClaimRule.principal(text)


def test_groups_begin_with_their_sign() -> None:
    with pytest.raises(ValueError, match="@NAME"):
        ClaimRule.group("groups:*={}")

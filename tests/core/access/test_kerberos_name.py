"""Names of Kerberos: whom they prove, and which are refused since they could be read in two ways."""

import pytest

from moorline.core.access.kerberos_name import KerberosRule, KerberosRules, Pattern


def principal(name: str, *rules: str) -> str:
    return KerberosRules.parsed(rules).principal_of(name)


def test_without_rules_the_whole_name_is_the_principal() -> None:
    assert principal("alice@EXAMPLE.ORG") == "alice@EXAMPLE.ORG"
    assert principal("host/pier.example.org@EXAMPLE.ORG") == "host/pier.example.org@EXAMPLE.ORG"


def test_the_first_rule_that_matches_wins() -> None:
    rules = ("alice/admin@A=root", "*/admin@A=admin-{}", "host/*@A=host-{}", "*@A={}", "*@B=b-{}")
    assert principal("alice/admin@A", *rules) == "root"
    assert principal("bob/admin@A", *rules) == "admin-bob"
    assert principal("host/x@A", *rules) == "host-x"
    assert principal("alice@A", *rules) == "alice"
    assert principal("alice@B", *rules) == "b-alice"
    with pytest.raises(ValueError, match="no rule"):
        principal("alice@C", *rules)


def test_a_star_takes_no_part_and_no_realm() -> None:
    for name in ("host/x@A", "alice/admin@A", "a/b/c@A", "@A"):
        with pytest.raises(ValueError, match=r"no rule|not of the form|empty part"):
            principal(name, "*@A={}")


@pytest.mark.parametrize(
    "name",
    [
        "alice",
        "alice@",
        "@A",
        "",
        "alice@A@B",
        r"alice\@A@B",
        r"al\/ice@A",
        "alice//x@A",
        "/x@A",
        "WELLKNOWN/ANONYMOUS@WELLKNOWN:ANONYMOUS",
        "a\0b@A",
        "x" * 300 + "@A",
        "$node/x@A",
        "%u@A",
    ],
)
def test_a_name_that_could_be_anybodys_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"name|principal"):
        principal(name)


def test_what_a_rule_gives_must_be_somebody() -> None:
    for name in ("anonymous@A", "$x@A"):
        with pytest.raises(ValueError, match=r"principal|proves nothing"):
            principal(name, "*@A={}")


@pytest.mark.parametrize(
    "text",
    [
        "*@A",
        "*=x",
        "*@*={}",
        "**@A=x",
        "a@A={}",
        "*@A={}{}",
        "*@A=$node/{}",
        "*@A=anonymous",
        "=x",
        "a@=x",
    ],
)
def test_a_rule_that_means_nothing_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        KerberosRule.parsed(text)


def test_a_pattern_of_nodes() -> None:
    pattern = Pattern.parsed("moorline/*@A")
    assert pattern.taken("moorline/pier@A") == "pier"
    for other in ("moorline/@A", "moorline/a/b@A", "host/pier@A", "moorline/pier@AB", "moorline@A"):
        assert pattern.taken(other) is None

"""Principals, groups of users, and whom a certificate proves."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorline.core.access.principal import (
    Certificate,
    CertificateRules,
    Proof,
    Rule,
    built_in_groups,
    check_group,
    check_principal,
    check_provable,
    check_subject,
    level_of,
    node_principal,
)
from moorline.errors import BadGrant


@pytest.mark.parametrize(
    "text", ["alice", "a", "x" * 255, "host/x@REALM", "Ä b", "a%b", "anonymous"]
)
def test_principals(text: str) -> None:
    check_principal(text)
    check_subject(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x" * 256,
        "@a",
        "$node/x",
        "%u",
        "a\nb",
        "a\0",
        "\x7f",
        "a\x85",
        "\ud800",
        "a\u2028",
        "alice\u202e",
        "\u2066x",
    ],
)
def test_texts_that_are_no_principals(text: str) -> None:
    with pytest.raises(BadGrant, match="no principal"):
        check_principal(text)


def test_nobody_proves_to_be_anonymous() -> None:
    with pytest.raises(BadGrant, match="proves nothing"):
        check_provable("anonymous")
    with pytest.raises(BadGrant, match="proves nothing"):
        check_provable("Anonymous")
    check_provable("anonymous2")


@pytest.mark.parametrize("text", ["@", "a", "", "@@a", "@$a", "@%u", "@a\n", "@" + "x" * 255])
def test_texts_that_are_no_groups(text: str) -> None:
    with pytest.raises(BadGrant, match="no group"):
        check_group(text)


@given(st.text(max_size=20), st.text(max_size=20))
def test_two_principals_have_two_levels(one: str, other: str) -> None:
    assert (level_of(one) == level_of(other)) == (one == other)
    assert not set(level_of(one)) & set("/+#")


def test_a_level() -> None:
    assert level_of("a%/+#b") == "a%25%2F%2B%23b"
    assert level_of("%u") != "%u"


def test_the_built_in_groups() -> None:
    everyone = "@everyone"
    for proof in (Proof.CERTIFICATE, Proof.PASSWORD, Proof.TOKEN, Proof.KERBEROS):
        for is_local in (True, False):
            found = built_in_groups("alice", proof, is_local=is_local)
            assert found == {everyone, "@authenticated"}
    assert built_in_groups(node_principal("n1"), Proof.NODE, is_local=True) == {everyone, "@nodes"}
    assert built_in_groups("anonymous", Proof.NOTHING, is_local=True) == {everyone, "@loopback"}
    assert built_in_groups("anonymous", Proof.NOTHING, is_local=False) == {everyone}


# --- certificates ---------------------------------------------------------------------------------


def test_without_rules_the_common_name_is_the_principal() -> None:
    assert CertificateRules().principal_of(Certificate(("alice",), dns=("x.org",))) == "alice"


@pytest.mark.parametrize(
    "names",
    [
        (),
        ("a", "b"),
        ("a", "a"),
        ("",),
        ("a/b",),
        ("a\0",),
        ("a\nb",),
        ("anonymous",),
        ("@ops",),
        ("$node/x",),
    ],
)
def test_a_common_name_that_is_not_clear_is_refused_whatever_the_rules_say(
    names: tuple[str, ...],
) -> None:
    certificate = Certificate(names, dns=("x.example.org",))
    for rules in ([], ["san:dns:*.example.org={}"]):
        with pytest.raises(ValueError, match=r"common name|no principal|proves nothing"):
            CertificateRules.parsed(rules).principal_of(certificate)


def test_the_first_rule_that_matches_wins() -> None:
    rules = CertificateRules.parsed(
        [
            "san:dns:*.Example.org=host/{}",
            "san:email:*@example.org={}",
            "san:uri:spiffe://example.org/*=spiffe/{}",
            "issuer:Robots CA, O=x=robot",
            "cn:svc-*={}-service",
        ]
    )
    assert rules.principal_of(Certificate(("c",), dns=("DB.example.org",))) == "host/db"
    assert rules.principal_of(Certificate(("c",), emails=("a@example.org",))) == "a"
    assert (
        rules.principal_of(Certificate(("c",), uris=("spiffe://example.org/a/b",))) == "spiffe/a/b"
    )
    assert rules.principal_of(Certificate(("c",), issuer="Robots CA, O=x")) == "robot"
    assert rules.principal_of(Certificate(("svc-pay",))) == "pay-service"
    both = Certificate(("svc-pay",), dns=("db.example.org",))
    assert rules.principal_of(both) == "host/db"


def test_a_certificate_of_nodes_may_name_several_homes() -> None:
    shared = Certificate(("cluster",), dns=("a.nodes.example", "b.nodes.example", "x.example"))
    rules = CertificateRules.parsed(["san:dns:*.nodes.example={}", "cn:*={}"])
    assert rules.homes_of(shared) == {"a", "b"}, "of the first rule that matches"
    assert rules.homes_of(Certificate(("c",))) == {"c"}
    assert CertificateRules().homes_of(shared) == {"cluster"}
    with pytest.raises(ValueError, match=r"no rule of access\.node_certificates"):
        CertificateRules.parsed(["cn:n-*={}"]).homes_of(shared)
    with pytest.raises(ValueError, match="2 common names"):
        rules.homes_of(Certificate(("a", "b"), dns=shared.dns))
    with pytest.raises(ValueError, match="several of its names"):
        rules.principal_of(shared)


@pytest.mark.parametrize(
    "certificate",
    [
        Certificate(("c",)),
        Certificate(("c",), dns=("example.org",)),
        Certificate(("c",), dns=(".example.org",)),
        Certificate(("c",), dns=("a.example.org.evil",)),
        Certificate(("c",), emails=("a.example.org",)),
    ],
)
def test_where_no_rule_matches_nobody_is_proven(certificate: Certificate) -> None:
    with pytest.raises(ValueError, match="no rule"):
        CertificateRules.parsed(["san:dns:*.example.org={}"]).principal_of(certificate)


def test_two_names_that_mean_two_principals_are_refused() -> None:
    rules = CertificateRules.parsed(["san:dns:*.example.org={}"])
    with pytest.raises(ValueError, match="several"):
        rules.principal_of(Certificate(("c",), dns=("a.example.org", "b.example.org")))
    same = Certificate(("c",), dns=("a.example.org", "A.example.org"))
    assert rules.principal_of(same) == "a"


def test_a_rule_does_not_make_a_principal_that_is_none() -> None:
    rules = CertificateRules.parsed(["san:email:*@example.org={}"])
    for taken in ("anonymous", "@ops", "$node/n1", "a\nb"):
        with pytest.raises(ValueError, match=r"no principal|proves nothing"):
            rules.principal_of(Certificate(("c",), emails=(f"{taken}@example.org",)))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "accepted: FIELD"),
        ("cn:alice", "accepted: FIELD"),
        ("ou:x=y", "accepted: FIELD"),
        ("fingerprint:x=y", "accepted: FIELD"),
        ("cn:=y", "empty"),
        ("cn:**=y", r"two \*"),
        ("cn:x={}", r"no \*"),
        ("cn:*={}{}", "two {}"),
        ("cn:*=@{}", "no principal"),
        ("cn:x=anonymous", "proves nothing"),
    ],
)
def test_rules_that_are_none(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        Rule.parsed(text)

"""Every act is in the count of one line, and a flood of them is a few lines without a word of a secret."""

import random
from collections import Counter

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.drawing import examples

from moorline.core.access.audit import (
    SEVERAL,
    Act,
    AuditLine,
    AuditProof,
    AuditTrail,
    Detail,
    Kind,
    Verdict,
    bounded,
    counted,
    decoded,
    encoded,
    line_of,
    time_text,
)
from moorline.limits import (
    AUDIT_LINE_BYTES_MAX,
    AUDIT_SUM_MS,
    AUDIT_SUMS_BEGUN_MAX,
    AUDIT_SUMS_OPEN_MAX,
    AUDIT_SUMS_PER_PRINCIPAL_MAX,
)

WALL_MS = 1_763_424_000_000


def refusal(
    principal: str = "mallory", path: str = "/topics/a", address: str = "10.0.0.1:5"
) -> Act:
    return Act(
        Kind.REFUSAL, principal, AuditProof.CERTIFICATE, address, "Publish", path, Verdict.DENIED
    )


def operator(path: str = "/queues/x") -> Act:
    return Act(Kind.OPERATOR, "olga", AuditProof.PASSWORD, "", "DeleteQueue", path, Verdict.GRANTED)


class Flood:
    """A trail, and all lines that came out of it."""

    def __init__(self) -> None:
        self.trail = AuditTrail()
        self.lines: list[AuditLine] = []
        self.acts = 0

    def say(self, act: Act, now_ms: int) -> None:
        self.acts += 1
        self.lines += self.trail.heard(act, now_ms, WALL_MS + now_ms)
        assert len(self.trail._sums) <= AUDIT_SUMS_OPEN_MAX

    def end(self) -> None:
        self.trail.check()
        self.lines += self.trail.ended()
        assert len(self.trail._sums) == 0
        assert counted(self.lines) == self.acts


# --- examples -------------------------------------------------------------------------------------


def test_a_refusal_is_a_line_at_once_and_those_like_it_are_one_line_later() -> None:
    trail = AuditTrail()
    (first,) = trail.heard(refusal(), 0, WALL_MS)
    assert (first.count, first.wall_ms, first.path) == (1, WALL_MS, "/topics/a")
    for now_ms in (1, 2, 3):
        assert trail.heard(refusal(), now_ms, WALL_MS + now_ms) == []
    assert trail.due_ms == AUDIT_SUM_MS
    assert trail.looked(AUDIT_SUM_MS - 1) == []
    (rest,) = trail.looked(AUDIT_SUM_MS)
    assert (rest.count, rest.wall_ms, rest.last_ms) == (3, WALL_MS + 1, WALL_MS + 3)
    assert trail.due_ms is None


def test_a_refusal_that_stays_alone_is_one_line() -> None:
    trail = AuditTrail()
    assert len(trail.heard(refusal(), 0, WALL_MS)) == 1
    assert trail.looked(AUDIT_SUM_MS) == []


def test_operators_acts_and_changes_of_rights_are_never_added_up() -> None:
    trail = AuditTrail()
    assert [len(trail.heard(operator(), 0, WALL_MS)) for _ in range(1_000)] == [1] * 1_000
    assert len(trail._sums) == 0


def test_looks_are_added_up_whoever_looks() -> None:
    """A thousand looks a second of somebody at its own topics drive no other line out of the files."""
    trail = AuditTrail()
    look = msgspec.structs.replace(operator(), act="BrowseStream", is_look=True)
    lines = [line for number in range(1_000) for line in trail.heard(look, number, WALL_MS)]
    assert [line.count for line in lines] == [1]
    many = [msgspec.structs.replace(look, path=f"/topics/{number}") for number in range(1_000)]
    lines += [line for one in many for line in trail.heard(one, 1_000, WALL_MS)]
    assert len(lines) <= AUDIT_SUMS_PER_PRINCIPAL_MAX
    assert counted([*lines, *trail.ended()]) == 2_000


def test_a_sum_of_several_addresses_says_so() -> None:
    trail = AuditTrail()
    trail.heard(refusal(address="10.0.0.1:5"), 0, WALL_MS)
    trail.heard(refusal(address="10.0.0.1:5"), 1, WALL_MS)
    assert trail.looked(AUDIT_SUM_MS)[0].address == "10.0.0.1:5"
    trail.heard(refusal(address="10.0.0.1:5"), AUDIT_SUM_MS, WALL_MS)
    trail.heard(refusal(address="10.0.0.2:5"), AUDIT_SUM_MS, WALL_MS)
    assert trail.ended()[0].address == SEVERAL


@pytest.mark.parametrize(
    "other",
    [
        refusal(principal="mallory2"),
        refusal(path="/topics/a/b"),
        Act(Kind.REFUSAL, "mallory", AuditProof.NODE, "", "Send", "/topics/a", Verdict.DENIED),
        Act(Kind.REFUSAL, "mallory", AuditProof.NODE, "", "Publish", "/topics/a", Verdict.FAILED),
        Act(Kind.LOGIN, "mallory", AuditProof.NODE, "", "Publish", "/topics/a", Verdict.DENIED),
        Act(Kind.REFUSAL, "mallory", AuditProof.NODE, "", "Publish", "/topics/a", Verdict.DENIED),
    ],
    ids=["principal", "path", "act", "verdict", "kind", "proof"],
)
def test_what_is_not_alike_is_not_added_up(other: Act) -> None:
    trail = AuditTrail()
    trail.heard(refusal(), 0, WALL_MS)
    assert len(trail.heard(other, 0, WALL_MS)) == 1


# --- floods ---------------------------------------------------------------------------------------


def test_a_flood_of_distinct_refusals_of_one_principal_is_a_few_lines() -> None:
    """A34: and all of them are counted."""
    flood = Flood()
    for number in range(100_000):
        flood.say(refusal(path=f"/topics/{number}"), number // 100)  # 1 s
    flood.say(refusal("alice"), 1_000)
    flood.end()
    mine = [line for line in flood.lines if line.principal == "mallory"]
    assert len(mine) == AUDIT_SUMS_PER_PRINCIPAL_MAX + 1
    assert (mine[-1].act, mine[-1].path) == (SEVERAL, "")
    assert mine[-1].count == 100_000 - AUDIT_SUMS_PER_PRINCIPAL_MAX
    assert [line.path for line in flood.lines if line.principal == "alice"] == ["/topics/a"]


def test_a_flood_of_invented_principals_is_bounded_too() -> None:
    flood = Flood()
    for number in range(50_000):
        flood.say(refusal(f"m{number}"), number // 10)  # 5 s
    flood.end()
    assert len(flood.lines) <= AUDIT_SUMS_BEGUN_MAX + 1
    assert flood.lines[-1].principal == SEVERAL


def test_the_oldest_sum_ends_early_when_too_many_are_open() -> None:
    flood = Flood()
    flood.say(refusal("first"), 0)
    flood.say(refusal("first"), 0)
    for number in range(AUDIT_SUMS_OPEN_MAX):
        flood.say(refusal(f"m{number}"), 1)
    assert [line.count for line in flood.lines if line.principal == "first"] == [1, 1]
    flood.end()


KINDS = st.sampled_from([Kind.LOGIN, Kind.REFUSAL])
ACTS = st.builds(
    Act,
    kind=KINDS,
    principal=st.sampled_from([f"p{number}" for number in range(5)]),
    proof=st.sampled_from(list(AuditProof)),
    address=st.sampled_from(["a", "b"]),
    act=st.sampled_from(["Publish", "Send"]),
    path=st.integers(0, 200).map(lambda number: f"/topics/{number}"),
    verdict=st.sampled_from(list(Verdict)),
)


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.tuples(ACTS, st.integers(0, 400)), max_size=400))
def test_every_act_is_in_the_count_of_exactly_one_line(steps: list[tuple[Act, int]]) -> None:
    flood, now_ms, said = Flood(), 0, Counter[tuple[str, str, str]]()
    for act, pause_ms in steps:
        now_ms += pause_ms
        flood.say(act, now_ms)
        flood.trail.check()
        said[act.kind.value, act.principal, act.verdict.value] += 1
    flood.end()
    told = Counter[tuple[str, str, str]]()
    for line in flood.lines:
        told[line.kind, line.principal, line.verdict] += line.count
    assert told == said


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_the_number_of_lines_depends_on_time_and_principals_and_not_on_acts(seed: int) -> None:
    """A34."""
    chance = random.Random(seed)
    principals, length_ms = chance.randint(1, 20), chance.randint(1, 60_000)
    flood = Flood()
    times = sorted(chance.randrange(length_ms) for _ in range(20_000))
    for now_ms in times:
        principal = f"p{chance.randrange(principals)}"
        flood.say(refusal(principal, f"/topics/{chance.randrange(5_000)}"), now_ms)
    flood.end()
    windows = length_ms // AUDIT_SUM_MS + 1
    # Of each sum two lines at most, and one for all that is left.
    each = 2 * AUDIT_SUMS_PER_PRINCIPAL_MAX + 1
    assert len(flood.lines) <= principals * windows * each


# --- what a line may hold -------------------------------------------------------------------------


@given(st.text(), st.text(), st.text(), st.text())
def test_any_text_is_one_line_within_its_bound_that_reads_back(
    principal: str, address: str, path: str, subject: str
) -> None:
    act = Act(
        Kind.GRANT,
        principal * 50,
        AuditProof.TOKEN,
        address * 50,
        "ChangeRows",
        path * 50,
        Verdict.GRANTED,
        Detail(subject=subject * 50, letters="+slw"),
    )
    data = encoded(line_of(act, WALL_MS), "node-1")
    assert len(data) <= AUDIT_LINE_BYTES_MAX
    assert data.count(b"\n") == 1
    found = decoded(data[:-1])
    assert found is not None
    for text in (found.principal, found.address, found.path, found.detail.subject):
        assert text.isprintable()


def test_the_longest_line_fits() -> None:
    widest = "\U0001f980" * 5_000
    detail = Detail("R" * 64, widest, "-slwpdag", "q" * 64, 1 << 63, 1 << 63)
    act = Act(
        Kind.REFUSAL,
        widest,
        AuditProof.CERTIFICATE,
        widest,
        "A" * 64,
        widest,
        Verdict.DENIED,
        detail,
    )
    assert len(encoded(line_of(act, WALL_MS), "n" * 63)) > AUDIT_LINE_BYTES_MAX / 2


def test_escaping_is_unambiguous() -> None:
    assert bounded("a\x1b[31m", 64) == "a\\u001b[31m"
    assert bounded("a\\u001b[31m", 64) == "a\\\\u001b[31m"
    assert bounded("\u202e\ud800\U000e0001\n", 64) == "\\u202e\\ud800\\U000e0001\\u000a"
    assert bounded("x" * 65, 64) == "x" * 63 + "…"
    assert bounded("x" * 64, 64) == "x" * 64


SECRET = "hunter2 hunter2"


@pytest.mark.parametrize(
    "wrong",
    [
        {"act": SECRET},
        {"act": "x" * 65},
        {"detail": Detail(reason=SECRET)},
        {"detail": Detail(letters="hunter")},
        {"detail": Detail(quota=SECRET)},
        {"detail": Detail(bound=SECRET)},  # type: ignore[arg-type]
        {"path": b"a body"},
        {"principal": b"a body"},
        {"address": bytearray(b"a body")},
        {"detail": Detail(subject=b"a token")},  # type: ignore[arg-type]
    ],
)
def test_a_field_of_another_form_is_never_written_nor_quoted(wrong: dict[str, object]) -> None:
    """A40: no secret gets into a line."""
    given = {
        "kind": Kind.LOGIN,
        "principal": "p",
        "proof": AuditProof.PASSWORD,
        "address": "",
        "act": "Hello",
        "path": "/",
        "verdict": Verdict.DENIED,
    }
    with pytest.raises(AssertionError) as raised:
        line_of(Act(**{**given, **wrong}), WALL_MS)  # type: ignore[arg-type]
    assert "hunter" not in str(raised.value)
    assert "a body" not in str(raised.value)


def test_a_line_has_no_field_for_bytes_or_for_a_peers_words() -> None:
    fields = set(AuditLine.__struct_fields__) | set(Detail.__struct_fields__)
    assert not fields & {"body", "text", "message", "password", "token", "key", "value", "words"}
    kinds = [*AuditLine.__annotations__.values(), *Detail.__annotations__.values()]
    assert set(kinds) == {str, int, Detail}


def test_times_sort_as_texts() -> None:
    assert time_text(WALL_MS + 7) == "2025-11-18T00:00:00.007Z"
    chance = random.Random(1)
    times = [chance.randrange(4 * WALL_MS) for _ in range(1_000)]
    assert sorted(times) == sorted(times, key=time_text)


@pytest.mark.parametrize("broken", ["AT1", "AT2 open", "AT2 one", "AT2 all"])
def test_a_broken_state_is_found(broken: str) -> None:
    flood = Flood()
    for number in range(3):
        flood.say(refusal(f"m{number}"), number)
    trail = flood.trail
    trail.check()
    match broken:
        case "AT1":
            trail._sums.move_to_end(next(iter(trail._sums)))
        case "AT2 open":
            one = trail._begun["m2"]
            trail._begun.update({f"x{number}": one for number in range(AUDIT_SUMS_OPEN_MAX)})
        case "AT2 one":
            trail._begun["m1"].count = AUDIT_SUMS_PER_PRINCIPAL_MAX + 1
        case _:
            trail._begun_by_all.count = 1 << 30
    with pytest.raises(AssertionError, match=broken[:3]):
        trail.check()

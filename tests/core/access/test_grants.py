"""The tree of rows: it says what a walk over all rows says, of paths and of filters."""

import itertools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core.access.rows import naive, paths, rows, subjects, tables
from tests.drawing import examples

from moorline.core.access.grants import Grants, Reach
from moorline.core.access.right import (
    EVERYTHING,
    GRANT,
    LIST,
    PUBLISH,
    SUBSCRIBE,
    WRITE,
)
from moorline.core.access.row import OWN_PLACES, Row, Subjects
from moorline.core.topic import check_filter, matches
from moorline.errors import BadTopic

ALICE = Subjects("alice", frozenset({"@everyone"}))


def granted(table: list[Row], path: str, who: Subjects = ALICE, right: int = SUBSCRIBE) -> bool:
    return bool(Grants(table).rights_at(who, path) & right)


# --- single rules ---------------------------------------------------------------------------------


def test_an_empty_table_denies_all() -> None:
    """A21, T14."""
    assert Grants().rights_at(ALICE, "/") == 0
    assert Grants().rights_at(ALICE, "/topics/a") == 0
    assert Grants().rights_at(ALICE, "/topics/#") == 0


def test_deny_beats_grant_at_one_node_whoever_it_names() -> None:
    """A21, T14: the principal or a group of it."""
    table = [Row("/topics/a", "@everyone", grants=SUBSCRIBE | LIST)]
    assert granted(table, "/topics/a")
    assert not granted([*table, Row("/topics/a", "alice", denies=SUBSCRIBE)], "/topics/a")
    assert granted([*table, Row("/topics/a", "alice", denies=SUBSCRIBE)], "/topics/a", right=LIST)
    both = [Row("/topics/a", "alice", grants=SUBSCRIBE, denies=SUBSCRIBE)]
    assert not granted(both, "/topics/a")


def test_deeper_beats_higher_in_both_directions() -> None:
    """A21, T14."""
    table = [
        Row("/topics", "alice", denies=SUBSCRIBE),
        Row("/topics/a", "@everyone", grants=SUBSCRIBE),
        Row("/topics/a/b", "@everyone", denies=SUBSCRIBE),
    ]
    assert not granted(table, "/topics/x")
    assert granted(table, "/topics/a")
    assert granted(table, "/topics/a/x/y")
    assert not granted(table, "/topics/a/b")
    assert not granted(table, "/topics/a/b/c")


def test_a_name_that_begins_with_another_is_another() -> None:
    """A21."""
    table = [Row("/topics/orders", "alice", grants=SUBSCRIBE)]
    assert granted(table, "/topics/orders")
    assert granted(table, "/topics/orders/eu")
    for other in ("orders2", "order", "Orders", "orders ", "/orders"):
        assert not granted(table, f"/topics/{other}")


def test_rows_of_others_do_not_count() -> None:
    table = [Row("/", "bob", grants=EVERYTHING), Row("/", "@sales", grants=EVERYTHING)]
    assert not granted(table, "/topics/a")
    assert granted(table, "/topics/a", Subjects("alice", frozenset({"@sales"})))


def test_the_own_level_is_the_principals_and_nobody_elses() -> None:
    """A21, T14: `%u`."""
    table = [Row("/topics/%u", "@everyone", grants=SUBSCRIBE)]
    assert granted(table, "/topics/alice/x")
    assert not granted(table, "/topics/bob")
    # A topic may be called so.
    assert not granted(table, "/topics/%u")
    slash = Subjects("host/x", frozenset({"@everyone"}))
    assert granted(table, "/topics/host%2Fx", slash)
    assert not granted(table, "/topics/host/x", slash)
    assert not granted(table, "/topics/host", slash)


def test_an_own_level_and_its_name_are_one_node() -> None:
    table = [
        Row("/topics/%u", "@everyone", grants=SUBSCRIBE),
        Row("/topics/alice", "@everyone", denies=SUBSCRIBE),
    ]
    assert not granted(table, "/topics/alice")
    assert not granted(table, "/topics/alice/x")


OWN_ROW = Row("/%u", "@everyone", grants=EVERYTHING)


def test_one_row_is_for_all_that_is_somebodys_own() -> None:
    """A21: topics, groups and values below its own name; and it may make what it will own."""
    grants = Grants([OWN_ROW])
    for path in ("/topics/alice", "/topics/alice/#", "/groups/alice/g", "/values/alice/x"):
        assert grants.rights_at(ALICE, path) & LIST, path
    for path in ("/queues", "/services", "/sessions", "/queues/x"):
        assert grants.rights_at(ALICE, path) == PUBLISH, path
    for path in ("/", "/topics", "/topics/bob", "/topics/%u", "/alice", "/admin", "/records/alice"):
        assert not grants.rights_at(ALICE, path), path
    # Whoever is called like a place has not that place.
    for name in ("topics", "admin", "queues"):
        who = Subjects(name, frozenset({"@everyone"}))
        assert grants.rights_at(who, f"/{name}") in (0, PUBLISH)
        assert not grants.rights_at(who, "/admin/users")


def test_it_stands_beside_rows_of_the_same_place_and_subject() -> None:
    other = Row("/topics/%u", "@everyone", denies=WRITE)
    grants = Grants([OWN_ROW, other, Row("/sessions", "alice", denies=PUBLISH)])
    assert not grants.rights_at(ALICE, "/topics/alice/x") & WRITE
    assert grants.rights_at(ALICE, "/topics/alice/x") & SUBSCRIBE
    assert not grants.rights_at(ALICE, "/sessions")
    assert grants.rights_at(ALICE, "/queues")
    found = grants.explain(ALICE, SUBSCRIBE, "/topics/alice/x")
    assert (found.is_granted, found.decided) == (True, (OWN_ROW,))
    assert grants.remove("/topics/%u", "@everyone")
    assert grants.rights_at(ALICE, "/topics/alice/x") & WRITE
    grants.check()
    assert grants.remove("/%u", "@everyone")
    assert not grants.remove("/%u", "@everyone")
    assert not grants.rights_at(ALICE, "/topics/alice/x")
    grants.check()
    assert [row.path for row in grants] == ["/sessions"]
    assert len(grants) == 1


def test_nobody_writes_what_is_reserved() -> None:
    table = [Row("/", "alice", grants=EVERYTHING), Row("/topics/$SYS", "alice", grants=WRITE)]
    for topic in ("$SYS", "$SYS/a", "$dead/g/t"):
        assert not granted(table, f"/topics/{topic}", right=WRITE)
        assert granted(table, f"/topics/{topic}", right=SUBSCRIBE)
    for topic in ("$SYSTEM", "a/$SYS", "$other"):
        assert granted(table, f"/topics/{topic}", right=WRITE)


# --- filters --------------------------------------------------------------------------------------


def test_a_filter_needs_all_that_it_can_match() -> None:
    """A22."""
    table = [Row("/topics", "alice", grants=SUBSCRIBE)]
    for text in ("#", "+", "+/x", "a/#", "a/+/b/#"):
        assert granted(table, f"/topics/{text}")
    table.append(Row("/topics/a/secret", "@everyone", denies=SUBSCRIBE))
    for text in ("#", "a/#", "+/secret", "a/+", "+/+/x", "a/secret/#", "a/+/b/#"):
        assert not granted(table, f"/topics/{text}"), text
    for text in ("b/#", "+", "+/x", "a/public/#", "b/+"):
        assert granted(table, f"/topics/{text}"), text


def test_one_that_nobody_named_counts_too() -> None:
    table = [Row(f"/topics/{name}", "alice", grants=SUBSCRIBE) for name in ("a", "b")]
    assert not granted(table, "/topics/+")
    assert not granted(table, "/topics/#")
    assert granted(table, "/topics/a/#")


def test_what_is_granted_again_below_a_denial_saves_a_filter_that_takes_only_that() -> None:
    table = [
        Row("/topics", "alice", grants=SUBSCRIBE),
        Row("/topics/a", "alice", denies=SUBSCRIBE),
        Row("/topics/a/x", "alice", grants=SUBSCRIBE),
    ]
    assert granted(table, "/topics/+/x")
    assert not granted(table, "/topics/+/y")
    assert not granted(table, "/topics/+/#")


def test_a_wildcard_at_the_beginning_takes_no_hidden_topics() -> None:
    table = [
        Row("/topics", "alice", grants=SUBSCRIBE),
        Row("/topics/$SYS", "alice", denies=SUBSCRIBE),
        Row("/topics/a/$x", "alice", denies=SUBSCRIBE),
    ]
    assert granted(table, "/topics/+/clock")
    assert not granted(table, "/topics/#")
    assert not granted(table, "/topics/$SYS/#")
    assert granted(table[:2], "/topics/#")


def test_a_filter_over_somebodys_own_level() -> None:
    table = [
        Row("/topics", "@everyone", grants=SUBSCRIBE),
        Row("/topics/%u/inbox", "@everyone", denies=SUBSCRIBE),
    ]
    assert not granted(table, "/topics/+/inbox")
    assert not granted(table, "/topics/alice/#")
    assert granted(table, "/topics/bob/#")


# --- against a walk over all rows -----------------------------------------------------------------


@settings(max_examples=examples(150))
@given(tables, subjects, paths())
def test_a_verdict_is_that_of_a_walk_over_all_rows(
    table: list[Row], who: Subjects, path: str
) -> None:
    assert Grants(table).rights_at(who, path) == naive(table, who, path)


@settings(max_examples=examples(80))
@given(tables, st.lists(st.tuples(st.booleans(), rows), max_size=12), subjects, paths())
def test_a_tree_that_was_changed_is_one_that_was_built_so(
    table: list[Row], changes: list[tuple[bool, Row]], who: Subjects, path: str
) -> None:
    grants, kept = Grants(table), {(row.path, row.subject): row for row in table}
    for is_removed, row in changes:
        if is_removed:
            was_there = kept.pop((row.path, row.subject), None) is not None
            assert grants.remove(row.path, row.subject) == was_there
        else:
            kept[row.path, row.subject] = row
            grants.put(row)
        grants.check()
    assert len(grants) == len(kept)
    assert sorted(grants, key=repr) == sorted(kept.values(), key=repr)
    wild = path if path == "/" else path + "/+/#"
    for asked in (path, wild):
        assert grants.rights_at(who, asked) == Grants(kept.values()).rights_at(who, asked)
    for row in list(kept.values()):
        grants.remove(row.path, row.subject)
    assert grants._root.below is None
    assert not grants._by_subject
    assert not grants._own_by_subject


FILTER_LEVELS = st.sampled_from(["a", "b", "$x", "alice", "", "+", "+"])
UNIVERSE = ["a", "b", "ab", "", "$x", "$SYS", "alice", "b%2Fc", "other"]
TOPICS = [
    "/".join(some) for depth in (1, 2, 3) for some in itertools.product(UNIVERSE, repeat=depth)
]


@st.composite
def filters(draw: st.DrawFn) -> str:
    levels = draw(st.lists(FILTER_LEVELS, max_size=2))
    if draw(st.booleans()) or not levels:
        levels.append("#")
    return "/".join(levels)


short_rows = rows.filter(lambda row: row.path.count("/") <= 4)


@settings(max_examples=examples(80))
@given(
    st.lists(short_rows, max_size=8, unique_by=lambda row: (row.path, row.subject)),
    subjects,
    filters(),
)
def test_a_filter_has_exactly_what_all_its_topics_have(
    table: list[Row], who: Subjects, text: str
) -> None:
    """Exact for tables of three levels: then every case is among these topics."""
    try:
        check_filter(text)
    except BadTopic:
        return
    expected = EVERYTHING
    for topic in TOPICS:
        if topic and matches(text, topic):
            expected &= naive(table, who, f"/topics/{topic}")
    found = Grants(table).rights_at(who, f"/topics/{text}")
    assert found & ~WRITE == expected & ~WRITE
    assert found & ~expected == 0


@settings(max_examples=examples(100))
@given(tables, subjects, filters(), paths(levels=tuple(UNIVERSE)))
def test_a_granted_filter_matches_no_denied_topic(
    table: list[Row], who: Subjects, text: str, path: str
) -> None:
    """A22."""
    topic = path.removeprefix("/topics/")
    if topic == path or not topic or not text or not matches(text, topic):
        return
    grants = Grants(table)
    assert grants.rights_at(who, f"/topics/{text}") & ~grants.rights_at(who, path) == 0


@settings(max_examples=examples(100))
@given(tables, subjects, paths(), st.sampled_from([SUBSCRIBE, WRITE, GRANT]))
def test_how_far_a_right_reaches(table: list[Row], who: Subjects, path: str, right: int) -> None:
    grants = Grants(table)
    reach = grants.reach(who, right, path)
    assert bool(grants.everywhere(who, path) & right) == (reach is Reach.ALL)
    below = [
        path.rstrip("/") + "/" + topic for topic in (*TOPICS[:90], "topics", "topics/a", "queues")
    ]
    # A row at `/%u` stands at several places, of which `path` may be above all.
    own = ["/" + "/".join(levels).replace("%u", who.level) for levels, _ in OWN_PLACES]
    places = [path, *below, *own, *(row.path.replace("%u", who.level) for row in table)]
    base = "/" if path == "/" else path + "/"
    found = {
        bool(naive(table, who, place) & right)
        for place in places
        if (place == path or place.startswith(base))
        and not (right == WRITE and place.startswith(("/topics/$SYS", "/topics/$dead")))
    }
    if reach is Reach.ALL:
        assert found <= {True}
    elif reach is Reach.NONE:
        assert found <= {False}
    elif right != WRITE:
        assert found == {True, False}
    if right != WRITE:
        assert grants.reaches(who, right, path) == (reach is not Reach.NONE)
    else:
        assert reach is not Reach.NONE or not grants.reaches(who, right, path)


@settings(max_examples=examples(100))
@given(tables, subjects, st.one_of(paths(), filters().map("/topics/{}".format)))
def test_an_explanation_is_the_verdict_and_its_rows_decided(
    table: list[Row], who: Subjects, path: str
) -> None:
    """A26."""
    grants = Grants(table)
    found = grants.explain(who, SUBSCRIBE, path)
    assert found.is_granted == bool(grants.rights_at(who, path) & SUBSCRIBE)
    assert all(row in table and row.subject in who.names for row in found.decided)
    if found.is_granted:
        assert found.decided
    for row in found.decided:
        assert row.grants & SUBSCRIBE if found.is_granted else row.denies & SUBSCRIBE
    if found.decided:
        # Without them the verdict is another, or rests on other rows.
        rest = Grants([row for row in table if row not in found.decided])
        other = rest.explain(who, SUBSCRIBE, path)
        assert (other.is_granted, other.decided) != (found.is_granted, found.decided)


# --- many rows ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_hundred_thousand_rows_say_what_a_walk_over_them_says() -> None:
    chance = random.Random(7)
    table = [
        Row(
            f"/topics/{number % 300}/{number // 300}",
            chance.choice(["@everyone", f"user-{number}", "@sales"]),
            grants=SUBSCRIBE | LIST,
            denies=WRITE,
        )
        for number in range(100_000)
    ]
    grants = Grants(table)
    who = Subjects("user-5", frozenset({"@everyone", "@sales", "@authenticated"}))
    assert len(grants) == 100_000
    # Few: the walk over all rows is what costs here.
    for number in chance.sample(range(100_000), 4):
        path = f"/topics/{number % 300}/{number // 300}/x"
        assert grants.rights_at(who, path) == naive(table, who, path)
    before = grants.rights_at(who, "/topics/7/#")
    grants.put(Row("/topics/7/new", "@everyone", denies=LIST | SUBSCRIBE))
    assert not grants.rights_at(who, "/topics/7/#") & (LIST | SUBSCRIBE)
    assert grants.remove("/topics/7/new", "@everyone")
    assert grants.rights_at(who, "/topics/7/#") == before


@pytest.mark.parametrize("broken", ["GR1 listed", "GR1 count", "GR2", "GR3"])
def test_a_broken_state_is_found(broken: str) -> None:
    paths = ("/topics/b", "/topics/a", "/topics/%u")
    grants = Grants([Row(path, "@sales", grants=LIST) for path in paths])
    grants.check()
    match broken:
        case "GR1 listed":
            grants._own_by_subject.clear()
        case "GR1 count":
            grants._count += 1
        case "GR2":
            grants._by_subject["@sales"].reverse()
        case _:
            assert grants._root.below is not None
            grants._root.below["nowhere"] = type(grants._root)()
    with pytest.raises(AssertionError, match=broken[:3]):
        grants.check()


@given(tables, subjects, paths(), st.sampled_from([SUBSCRIBE, WRITE, GRANT]))
def test_a_split_is_the_verdict_at_a_path_and_where_it_differs_right_below(
    table: list[Row], who: Subjects, path: str, right: int
) -> None:
    grants = Grants(table)
    has_right, levels = grants.split(who, right, path)
    assert has_right == bool(grants.rights_at(who, path) & right)
    base = "" if path == "/" else path  # an empty last level is one, as in topics
    for level in ("a", "b", "ab", "$x", "$SYS", "alice", "b%2Fc", "zzz"):
        differs = bool(grants.rights_at(who, f"{base}/{level}") & right) != has_right
        # Below reserved names only nodes write, which is no row.
        if not (base == "/topics" and level == "$SYS"):
            assert (level in levels) == differs, (path, level)

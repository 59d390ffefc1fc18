"""Files that are copied while they are written to: what the other side has at the end, and is told."""

import os
import random
import sqlite3
from pathlib import Path

import pytest

from moorline.errors import CannotMove, NodeDiskFull
from moorline.journal.disk import FileDisk
from moorline.journal.home_copy.index import Blocks, FileIndex, FileSet, HomeFiles
from moorline.journal.home_copy.receiving import HomeReceiving, move_of
from moorline.journal.home_copy.sending import HomeSending, Part
from moorline.limits import DISK_FREE_BYTES_MIN, HOME_MOVE_BLOCK_BYTES

NAMES = (("node.id",), ("queues", "streams"))
MOVE = bytes(range(16))


class Home:
    """Both sides of one, on the disk of the test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.root = folder / "here"
        for name in NAMES[1]:
            (self.root / name).mkdir(parents=True, exist_ok=True)
        self.sending = HomeSending(HomeFiles(self.root, *NAMES), folder / "sending.sqlite")
        self.receiving = HomeReceiving(folder / "there", MOVE, NAMES)
        self.sent_bytes = 0

    def write(self, path: str, data: bytes) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)

    def copy(self, lose: float = 0.0, chance: random.Random | None = None) -> None:
        """A pass; with `lose` some answers do not come, and the pass ends there."""
        self.sending.begin_pass()
        while (batch := self.sending.next_batch()) is not None:
            self.sent_bytes += batch.bytes
            self.receiving.put(batch.parts, batch.gone)
            if chance is not None and chance.random() < lose:
                return
            self.sending.confirm(batch)

    def restart(self) -> None:
        """Both processes: they know what is in their indexes."""
        self.sending.close()
        self.receiving.close()
        self.sending = HomeSending(HomeFiles(self.root, *NAMES), self.folder / "sending.sqlite")
        self.receiving = HomeReceiving(self.folder / "there", MOVE, NAMES)
        assert not self.receiving.is_new

    def both(self) -> tuple[FileSet, FileSet]:
        return self.sending.look(), self.receiving.settle()

    def files(self, root: Path) -> dict[str, bytes]:
        found = {}
        for path, _ in HomeFiles(root, *NAMES).walk():
            found[path] = (root / path).read_bytes()
        return found

    def check_same(self) -> None:
        assert self.files(self.root) == self.files(self.receiving.files.root)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def test_everything_is_copied_once_and_what_grew_by_a_line_costs_a_block(home: Home) -> None:
    home.write("node.id", b"x\n")
    home.write("queues/ab/log", os.urandom(3 * HOME_MOVE_BLOCK_BYTES + 17))
    home.write("streams/000/1.seg", b"")
    home.write("elsewhere", b"not of the home")
    home.copy()
    here, there = home.both()
    assert here == there
    assert here.files == 3
    assert home.sending.is_copied(there)
    home.check_same()
    home.sent_bytes = 0
    home.copy()
    assert home.sent_bytes == 0
    with (home.root / "queues/ab/log").open("ab") as log:
        log.write(b"a line\n")
    home.copy()
    assert home.sent_bytes == 17 + 7
    home.check_same()


def test_what_shrank_or_went_does_so_there(home: Home) -> None:
    home.write("queues/a", bytes(HOME_MOVE_BLOCK_BYTES + 5))
    home.write("queues/b", b"b")
    home.copy()
    home.write("queues/a", bytes(HOME_MOVE_BLOCK_BYTES))
    (home.root / "queues/b").unlink()
    home.copy()
    home.check_same()
    here, there = home.both()
    assert here == there
    assert here.files == 1


def test_a_file_that_changes_within_a_tick_of_the_clock_is_hashed_again(home: Home) -> None:
    home.write("queues/a", b"before")
    home.copy()
    status = (home.root / "queues/a").stat()
    home.write("queues/a", b"behind")
    os.utime(home.root / "queues/a", ns=(status.st_atime_ns, status.st_mtime_ns))
    home.copy()
    home.check_same()


def test_another_byte_there_is_found_and_all_is_sent_anew(home: Home) -> None:
    home.write("queues/a", b"a" * 1_000)
    home.write("queues/b", b"b" * 1_000)
    home.copy()
    (home.receiving.files.root / "queues/a").write_bytes(b"a" * 999 + b"x")
    here, there = home.both()
    assert here != there
    assert not home.sending.is_copied(there)
    home.sent_bytes = 0
    home.copy()
    assert home.sent_bytes == 2_000
    here, there = home.both()
    assert here == there
    home.check_same()


def test_a_file_too_many_there_is_found(home: Home) -> None:
    home.write("queues/a", b"a")
    home.copy()
    (home.receiving.files.root / "queues/b").write_bytes(b"")
    here, there = home.both()
    assert here != there


@pytest.mark.parametrize(
    "path",
    ["/etc/x", "../x", "queues/../../x", "queues", "node.id/x", "catalog/x", "queues//x", ""],
)
def test_nothing_is_written_outside_of_a_home(home: Home, path: str) -> None:
    with pytest.raises(CannotMove):
        home.receiving.put([Part(path, 1, 0, b"x")], [])
    with pytest.raises(CannotMove):
        home.receiving.put([], [path])


def test_what_came_by_another_move_is_no_part_of_this(home: Home) -> None:
    home.write("queues/a", b"a")
    home.copy()
    home.receiving.close()
    other = HomeReceiving(home.folder / "there", MOVE[::-1], NAMES)
    assert other.is_new
    assert other.settle().files == 0
    assert move_of(home.folder / "there") == MOVE[::-1]
    other.close()


def test_a_full_disk_refuses_before_the_reserve_of_its_node(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = DISK_FREE_BYTES_MIN + 10
    monkeypatch.setattr(FileDisk, "free_bytes", lambda *_: free)
    home.receiving.put([Part("queues/a", 10, 0, bytes(10))], [])
    with pytest.raises(NodeDiskFull):
        home.receiving.put([Part("queues/b", 11, 0, bytes(11))], [])
    assert not (home.receiving.files.root / "queues/b").exists()


@pytest.mark.parametrize("seed", range(30))
def test_whatever_is_written_and_lost_meanwhile_the_last_pass_makes_both_equal(
    tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    home = Home(tmp_path)
    paths = [f"{top}/{number % 3}/{number}" for top in NAMES[1] for number in range(6)]

    def change() -> None:
        path, act = chance.choice(paths), chance.randrange(5)
        file = home.root / path
        if act == 0:
            file.unlink(missing_ok=True)
        elif act == 1 and file.exists():
            with file.open("ab") as opened:
                opened.write(chance.randbytes(chance.randrange(1, 400_000)))
        elif act == 2 and file.exists():
            os.truncate(file, chance.randrange(file.stat().st_size + 1))
        elif act == 3 and file.exists():
            os.replace(file, file.with_name(f"{file.name}0"))
        else:
            home.write(path, chance.randbytes(chance.choice([0, 1, 300_000, 700_000])))

    for _ in range(4):
        for _ in range(chance.randrange(12)):
            change()
        home.sending.begin_pass()
        while (batch := home.sending.next_batch()) is not None:
            if chance.random() < 0.5:
                change()  # in the middle of a file, perhaps
            if chance.random() < 0.2:
                break  # it never left
            home.receiving.put(batch.parts, batch.gone)
            if chance.random() < 0.2:
                break  # nobody heard of it
            home.sending.confirm(batch)
        else:
            assert home.sending.is_copied(home.receiving.settle()), "what was sent is there"
        if chance.random() < 0.3:
            home.restart()
    home.copy()
    here, there = home.both()
    if here != there:
        # Something was half sent, and nobody could tell: then all of it is.
        assert not home.sending.is_copied(there)
        home.copy()
        here, there = home.both()
    assert here == there
    home.check_same()


def test_a_file_too_many_there_goes_when_all_begins_anew(home: Home) -> None:
    """A power cut may take the list of what was sent: what went here since would stay there for ever."""
    home.write("queues/a", b"a" * 1_000)
    home.write("queues/b", b"b")
    home.copy()
    home.sending.close()
    (home.folder / "sending.sqlite").unlink()
    (home.root / "queues/b").unlink()
    home.sending = HomeSending(HomeFiles(home.root, *NAMES), home.folder / "sending.sqlite")
    home.copy()
    here, there = home.both()
    assert here != there
    assert not home.sending.is_copied(there)
    home.receiving.begin_anew()
    assert home.receiving.is_new
    home.sending.begin(is_new=True)
    home.copy()
    here, there = home.both()
    assert here == there
    home.check_same()


def test_a_list_that_is_damaged_is_made_anew(home: Home) -> None:
    home.write("queues/a", b"a" * 1_000)
    home.copy()
    home.sending.close()
    home.receiving.close()
    for file in (home.folder / "sending.sqlite", home.folder / "there" / "index.sqlite"):
        file.write_bytes(b"no database" * 1_000)
    home.sending = HomeSending(HomeFiles(home.root, *NAMES), home.folder / "sending.sqlite")
    home.receiving = HomeReceiving(home.folder / "there", MOVE, NAMES)
    home.copy()
    here, there = home.both()
    assert here == there
    assert here.files == 1


def test_a_list_that_found_no_room_goes_on_when_there_is_some(tmp_path: Path) -> None:
    index = FileIndex(tmp_path / "index")
    connection = index._connection
    (pages,) = connection.execute("pragma page_count").fetchone()
    connection.execute(f"pragma max_page_count = {pages}")

    def fill() -> None:
        with index:
            for number in range(1_000):
                index.note_sent(f"queues/{number}", Blocks(1, bytes(1_000)))

    with pytest.raises(sqlite3.OperationalError, match="full"):
        fill()
    connection.execute("pragma max_page_count = 100000")
    with index:
        index.note_sent("queues/a", Blocks(1, bytes(16)))
    assert index.all_sent().files == 1
    index.close()


@pytest.mark.parametrize("what", ["pipe", "no text", "long"])
def test_what_is_no_file_of_ours_is_named_and_not_waited_for(home: Home, what: str) -> None:
    home.write("queues/a", b"a")
    path = {
        "pipe": home.root / "queues/pipe",
        "no text": home.root / os.fsdecode(b"queues/\xff"),
        "long": home.root / "queues" / ("d" * 255) / ("e" * 255),
    }[what]
    path.parent.mkdir(exist_ok=True)
    if what == "pipe":
        os.mkfifo(path)
    else:
        path.write_bytes(b"x")
    with pytest.raises(CannotMove, match="move it away"):
        home.sending.begin(is_new=False)
    with pytest.raises(CannotMove, match="move it away"):
        home.copy()
    path.unlink()
    home.copy()
    here, there = home.both()
    assert here == there

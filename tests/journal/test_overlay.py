"""A disk over a disk: it behaves like a real one, and the one below never changes."""

import contextlib
import random

import pytest

from moorline.journal.disk import Disk
from moorline.journal.overlay import OverlayDisk
from moorline.testing import MemoryDisk

NAMES = ["a", "b", "a/x", "a/y", "b/x", "b/z/x", "b/z", "c"]


def change(disk: Disk, chance: random.Random) -> object:
    """One random operation; its outcome, errors included, so that two disks can be compared."""
    path, other = chance.choice(NAMES), chance.choice(NAMES)
    data = chance.randbytes(chance.randrange(20))
    kind = chance.randrange(8)
    try:
        match kind:
            case 0:
                disk.make_folders(path)
            case 1 | 2 | 3:
                file = disk.open(path, create=chance.random() < 0.7)
                try:
                    file.append(data)
                    if kind == 2:
                        file.truncate(file.size() // 2)
                        file.append(data[:3])
                    return file.size(), file.read_at(2, 9), file.read_at(0, 1 << 20)
                finally:
                    file.close()
            case 4:
                if not (path.startswith(other) or other.startswith(path)):
                    disk.rename(path, other)
            case 5:
                disk.remove(path)
            case 6:
                disk.remove_folder(path)
            case 7:
                disk.write_whole(path, data)
    except OSError as error:
        return type(error)
    return None


def shown(disk: Disk, path: str = "") -> dict[str, object]:
    found: dict[str, object] = {}
    for name in disk.list_folder(path):
        below = f"{path}/{name}" if path else name
        assert disk.exists(below)
        if disk.is_folder(below):
            found |= {below: None, **shown(disk, below)}
        else:
            file = disk.open(below, create=False)
            found[below] = file.read_at(0, file.size())
            file.close()
    return found


@pytest.mark.parametrize("block", range(3))
def test_it_behaves_like_a_disk_and_leaves_the_other_alone(block: int) -> None:
    for seed in range(block * 100, block * 100 + 100):
        compare(seed)


def compare(seed: int) -> None:
    chance = random.Random(seed)
    below, model = MemoryDisk(), MemoryDisk()
    for disk in (below, model):
        setup = random.Random(seed)
        for _ in range(15):
            change(disk, setup)
    before = shown(below)
    steps_before = below.steps
    overlay = OverlayDisk(below)
    for _ in range(25):
        state = chance.getstate()
        expected = change(model, chance)
        chance.setstate(state)
        found = change(overlay, chance)
        # Which error it is differs in corners that no caller tells apart.
        if isinstance(expected, type):
            assert isinstance(found, type)
        else:
            assert found == expected
        assert shown(overlay) == shown(model)
    assert shown(below) == before
    assert below.steps == steps_before
    assert overlay.open_handles == 0
    assert below.open_handles == 0


def test_a_missing_file_is_not_found() -> None:
    overlay = OverlayDisk(MemoryDisk())
    with pytest.raises(FileNotFoundError):
        overlay.open("none", create=False)
    with pytest.raises(FileNotFoundError):
        overlay.list_folder("none")
    with contextlib.suppress(FileNotFoundError):
        overlay.open("none/x", create=True)
    assert overlay.list_folder("") == []

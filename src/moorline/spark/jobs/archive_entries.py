"""Room: spark. The entries of an archive in their place: added, accounted for, and removed when idle.

    _moorline/entries/NAME.json            an entry, written whole and never changed
    _moorline/receipts/NAME.HASH.json      that there is such an entry; HASH is the XXH3-128 of its bytes

A receipt is written behind its entry and removed before it. So a receipt without its entry is an entry that
was lost, and an archive that lost one is not gone on with: it would be proven by what is left of it, and
files that only the lost entry named would look like what a crash left. An entry without a receipt is one
whose writer was killed between the two; it counts.

No job removes a file that no entry names. A file that is replaced goes when those that replace it are there.
"""

import time
from collections.abc import Iterable, Set
from typing import NamedTuple, TypeVar

import msgspec
import xxhash

from moorline.errors import DriftFound
from moorline.limits import ARCHIVE_ORPHAN_S, SPARK_NAMES_TOLD_MAX
from moorline.spark.jobs.archive_location import OWN, ArchiveLocation
from moorline.spark.jobs.manifest import ArchivedFile, Entry, idle_entries, live_files

ENTRIES = f"{OWN}/entries"
RECEIPTS = f"{OWN}/receipts"

BATCH_FOLDER = "batch="
"""How the folder of each writing begins."""

Value = TypeVar("Value")


class Account(NamedTuple):
    """The entries that are there; names of those that are gone, and of those that are not as written."""

    entries: list[Entry]
    missing: list[str]
    altered: list[str]


class EntryLocation(ArchiveLocation):
    """A place with a manifest."""

    kind = "an archive"

    def entries(self) -> list[Entry]:
        """All of them; refuses to go on where one is gone or was changed."""
        found = self.account()
        for names, what in ((found.missing, "gone"), (found.altered, "not as written")):
            if names:
                shown = ", ".join(names[:SPARK_NAMES_TOLD_MAX])
                raise DriftFound(
                    f"{len(names)} of the entries of the archive at {self.where} are {what} ({shown}): bring "
                    f"them back from a copy into {self.uri(ENTRIES)}. If there is none, `moor pipeline clean "
                    "--yes` forgets them with their files, and then `moor pipeline verify --repair` fetches "
                    "what is missing"
                )
        return found.entries

    def account(self) -> Account:
        """What is there, against what was written."""
        # Receipts first: an entry that is added meanwhile has none yet, which is no harm.
        receipts = self._receipts()
        entries: list[Entry] = []
        altered: list[str] = []
        there = set()
        for path in self.listed(ENTRIES):
            name = path.rpartition("/")[2].removesuffix(".json")
            data = self.read(path)
            if data is None:
                continue  # a clean of another job was faster
            there.add(name)
            if receipts.get(name, _hash(data)) != _hash(data):
                altered.append(name)
                continue
            entry = self.decoded(data, Entry, path)
            # One that stands under another name is a copy: nobody writes two with the same.
            if entry.name == name:
                entries.append(entry)
            else:
                altered.append(name)
        missing = receipts.keys() - there
        if missing:
            missing &= self._receipts().keys()
        return Account(entries, sorted(missing), altered)

    def has_entry(self, name: str) -> bool:
        """Whether that writing is done; refuses where it was, and its entry is gone."""
        if self.read(f"{ENTRIES}/{name}.json") is not None:
            return True
        if name in self._receipts():
            self.entries()
        return False

    def add(self, entry: Entry) -> None:
        """From now on its files count, and those that it replaces do not."""
        self.write(f"{ENTRIES}/{entry.name}.json", entry)
        self._add_receipt(entry)

    def complete_receipts(self) -> None:
        """Of entries whose writers were killed before they wrote them."""
        receipts = self._receipts()
        for entry in self.entries():
            if entry.name not in receipts:
                self._add_receipt(entry)

    def forget(self, names: Iterable[str]) -> None:
        """Entries that are gone, or not as written, never were."""
        receipts = self._receipts()
        for name in names:
            if name in receipts:
                self.remove(_receipt(name, receipts[name]))
            self.remove(f"{ENTRIES}/{name}.json")

    def _receipts(self) -> dict[str, str]:
        """The hashes of entries, by their names."""
        found = (path.rpartition("/")[2].removesuffix(".json") for path in self.listed(RECEIPTS))
        return {name: hash_ for name, _, hash_ in (one.rpartition(".") for one in found)}

    def _add_receipt(self, entry: Entry) -> None:
        self.write(_receipt(entry.name, _hash(msgspec.json.encode(entry))), {})

    # --- files ------------------------------------------------------------------------------------

    def live(self) -> list[ArchivedFile]:
        """The files that count, by path."""
        return live_files(self.entries())

    def present(self) -> list[ArchivedFile]:
        """The files that count, all of them there: Spark would name a missing one in words of its own."""
        live = self.live()
        missing = self._missing(live)
        if missing:
            # A compaction may have replaced them while we looked.
            live = self.live()
            missing = self._missing(live)
        if missing:
            more = f", and {len(missing) - 1} more" if len(missing) > 1 else ""
            raise DriftFound(
                f"{self.uri(missing[0])} is gone{more}: `moor pipeline verify` says what can be repaired"
            )
        return live

    def _missing(self, files: list[ArchivedFile]) -> list[str]:
        """Paths of those that are not there; whether they have the bytes that were written, `verify` says."""
        from pyarrow import fs

        infos = self.files.get_file_info([self.full(file.path) for file in files])
        return [
            file.path
            for file, info in zip(files, infos, strict=True)
            if info.type == fs.FileType.NotFound
        ]

    def clean(self) -> int:
        """Removes what is replaced by files that are there, and entries that say nothing; how many files."""
        entries = self.entries()
        counting = {file.path for file in live_files(entries)}
        away = set(self._missing(live_files(entries)))
        removed = 0
        for entry in entries:
            if away.isdisjoint(file.path for file in entry.files):
                removed += sum(self.remove(path) for path in entry.replaced if path not in counting)
        receipts = self._receipts()
        for name in idle_entries(entries):
            if name in receipts:
                self.remove(_receipt(name, receipts[name]))
            self.remove(f"{ENTRIES}/{name}.json")
        return removed

    def strays(self, entries: list[Entry], forgotten: Set[str] = frozenset()) -> list[str]:
        """Data files that nobody counts and nobody is writing: whoever reads the folder would see them.

        A writing that has no entry yet, or never will, has files in a folder of its own for at most a day;
        one that is forgotten, no longer.
        """
        known = {file.path for entry in entries for file in entry.files}
        known |= {path for entry in entries for path in entry.replaced}
        names = {entry.name for entry in entries} | forgotten
        over = {f"{BATCH_FOLDER}{name}" for name in names}
        oldest_ns = time.time_ns() - ARCHIVE_ORPHAN_S * 10**9
        return [
            path
            for path, changed_ns in self.data_files()
            if path.endswith(".parquet")
            and path not in known
            # An entry of Spark's own writing names the folder of its files.
            and path.rpartition("/")[0] not in known
            and (
                not path.startswith(BATCH_FOLDER)
                or path.partition("/")[0] in over
                or changed_ns < oldest_ns
            )
        ]

    def decoded(self, data: bytes, kind: type[Value], path: str) -> Value:
        try:
            return msgspec.json.decode(data, type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise DriftFound(
                f"{self.uri(path)} is not as it was written ({error}): bring it back from a copy"
            ) from error


def _receipt(name: str, hash_: str) -> str:
    return f"{RECEIPTS}/{name}.{hash_}.json"


def _hash(data: bytes) -> str:
    return xxhash.xxh3_128_hexdigest(data)

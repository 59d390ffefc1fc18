"""Room: spark. A table that is kept in Parquet: which files are its rows, and which state they are of.

    table/_moorline/states/0000000017.json     a state: how far the shards were read, and its files
    table/_moorline/lock                       held by the one run of `materialize` that there may be
    table/_moorline/stage/…                    messages of a run, by bucket; nothing behind it
    table/state=0000000017/bucket=3/part-….parquet

A row is in the bucket of its key's hash. A state names one file for each bucket that has rows; the next one
names new files for the buckets that something was said of, and the same ones for the others. The state with
the highest number is the table: its file is the moment at which everything of a run happens, all at once.
Files are never changed. States of the last while stay with their files, for those who read them; older ones
go, the state first, then the files that no state names any more.
"""

import re
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec
import xxhash

from moorline.core.sets.digest import Digest
from moorline.errors import ConfigError, DriftFound, FormatTooNew
from moorline.limits import MATERIALIZED_KEPT_MS, MATERIALIZED_STATES_MAX
from moorline.spark.jobs.archive_files import HASH_READ_BYTES, Checked
from moorline.spark.jobs.archive_location import OWN, ArchiveLocation

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

STATES = f"{OWN}/states"
STAGE = f"{OWN}/stage"
LOCK = f"{OWN}/lock"

COLUMNS = "key string, seq bigint, row string, snapshot bigint, sequence bigint"
_OURS = re.compile(r"state=\d{10}/bucket=\d+/part-[0-9a-f]{32}\.parquet")


TABLE_VERSION = 1
"""Of the states of a table and of what they name; docs/formats.md."""


class BucketFile(msgspec.Struct, frozen=True):
    """All rows of a bucket. `digest` is of key and seq, where a table was asked for its salt."""

    bucket: int
    path: str
    rows: int
    size_bytes: int
    hash: str
    digest: str = ""


class TableState(msgspec.Struct, frozen=True):
    """`reached` has the first offset of each shard that was not read. `salt` is that of the digests."""

    number: int
    topic: str
    buckets: int
    snapshot: int = 0
    table: str = ""
    """As the topic names it; nothing before its first marker."""
    reached: dict[str, int] = {}
    files: list[BucketFile] = []
    salt: str = ""
    made_ms: int = 0
    version: int = TABLE_VERSION

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)

    def digest(self) -> Digest | None:
        """Of all rows; None where it was not computed."""
        found = Digest.empty()
        for file in self.files:
            if not file.digest:
                return None
            found = found.merge(Digest.from_bytes(bytes.fromhex(file.digest)))
        return found if self.salt else None


class Versioned(msgspec.Struct, frozen=True):
    version: int = TABLE_VERSION


class MaterializedTable(ArchiveLocation):
    """A folder, or another place, with the rows of one table."""

    kind = "a materialized table"

    def latest(self) -> TableState | None:
        """The state that counts; refuses to go on from one that is not as it was written."""
        paths = self.listed(STATES)
        return self._state(paths[-1]) if paths else None

    def _state(self, path: str) -> TableState:
        data = self.read(path) or b""
        try:
            record = msgspec.json.decode(data, type=Checked)
            if record == Checked.of(bytes(record.value)):
                self._check_version(record.value)
                return msgspec.json.decode(record.value, type=TableState)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            pass
        raise DriftFound(
            f"{self.uri(path)} is not as it was written: bring it back from a copy, or begin anew with "
            "--rebuild"
        )

    def _check_version(self, value: msgspec.Raw) -> None:
        """Before the rest is looked at: a newer state may have another form."""
        version = msgspec.json.decode(value, type=Versioned).version
        if version > TABLE_VERSION:
            raise FormatTooNew(
                f"the table at {self.where} was written by a newer Moorline (format {version}, this one "
                f"knows up to {TABLE_VERSION}): use that one. Nothing was changed"
            )

    def commit(self, state: TableState) -> None:
        self.write(path_of(state.number), Checked.of(msgspec.json.encode(state)))

    def folder_of(self, number: int, bucket: int) -> str:
        return f"state={number:010}/bucket={bucket}"

    def next_number(self) -> int:
        """Above every state that there is, those that cannot be read too."""
        return max((_number(path) for path in self.listed(STATES)), default=0) + 1

    def hash_of(self, path: str) -> str:
        hashed = xxhash.xxh3_128()
        with self.files.open_input_stream(self.full(path)) as source:
            while piece := source.read(HASH_READ_BYTES):
                hashed.update(piece)
        return hashed.hexdigest()

    def problem_of(self, file: BucketFile) -> str | None:
        """What is wrong with a file that was written; None if it has the bytes that it had."""
        try:
            found = self.hash_of(file.path)
        except (FileNotFoundError, OSError):
            return f"{self.uri(file.path)} is gone"
        if found == file.hash:
            return None
        return f"{self.uri(file.path)} is not as it was written"

    def clean(self) -> None:
        """What a run that was cut short left, and states that nobody reads any more, with their files."""
        self.remove_folder(STAGE)
        paths = self.listed(STATES)
        kept = {path: self._state(path) for path in paths}
        for path in outdated(list(kept.items()), time.time_ns() // 1_000_000):
            # The state before its files: a state never names what is not there.
            self.remove(path)
            del kept[path]
        named = {file.path for state in kept.values() for file in state.files}
        for path, _ in list(self.data_files()):
            if _OURS.fullmatch(path) and path not in named:
                self.remove(path)


def outdated(states: list[tuple[str, TableState]], now_ms: int) -> list[str]:
    """Of states in their order: those that may go. The last two stay, whatever clocks say."""
    found = []
    for place, (path, _) in enumerate(states[:-2]):
        # It was the newest until the next one was made; who began to read it then has had that long.
        is_old = now_ms - states[place + 1][1].made_ms > MATERIALIZED_KEPT_MS
        if is_old or len(states) - place > MATERIALIZED_STATES_MAX:
            found.append(path)
    return found


def path_of(number: int) -> str:
    return f"{STATES}/{number:010}.json"


def _number(path: str) -> int:
    text = path.rpartition("/")[2].removesuffix(".json")
    return int(text) if text.isdigit() else 0


def materialized(spark: "SparkSession", where: str) -> "DataFrame":
    """The table as its last state has it: `key` and `row` are JSON, `seq` is the version of the row."""
    target = MaterializedTable(where)
    state = target.latest()
    if state is None:
        raise ConfigError(
            f"there is no materialized table at {where}: `moor pipeline materialize` makes one"
        )
    paths = [target.uri(path) for path in _paths(state.files)]
    reader = spark.read.schema(COLUMNS)
    frame = reader.parquet(*paths) if paths else spark.createDataFrame([], COLUMNS)
    return frame.select("key", "seq", "row")


def _paths(files: Iterable[BucketFile]) -> list[str]:
    return [file.path for file in files if file.rows]

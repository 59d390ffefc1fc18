"""Room: spark. A folder, or a place that pyarrow.fs can write to (S3, HDFS), and the small files in it."""

import contextlib
import fcntl
import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import msgspec

from moorline.errors import ConfigError

OWN = "_moorline"
"""The folder of what is ours and no data; Spark passes over names that begin so."""


class ArchiveLocation:
    """By its path or URI. Names of files in it are relative, with slashes."""

    kind: ClassVar[str] = "a checkpoint"
    """What errors call it."""

    def __init__(self, where: str) -> None:
        from pyarrow import fs

        scheme, colon, _ = where.partition("://")
        # Workers are told of it, and are in other folders.
        self.where = where.rstrip("/") if colon else os.path.abspath(where)
        try:
            if not colon:
                self.files: Any = fs.LocalFileSystem()
                self.root = self.where
            else:
                uri = where.replace("s3a://", "s3://", 1) if scheme == "s3a" else where
                self.files, self.root = fs.FileSystem.from_uri(uri)
        except Exception as error:
            raise ConfigError(f"{where!r} is no place for an archive: {error}") from error
        self.root = self.root.rstrip("/")
        if isinstance(self.files, fs.LocalFileSystem):
            _check_no_file(Path(self.root), self.kind)

    @property
    def of_spark(self) -> str:
        """As Spark names it: what is not a URI is a path from the root."""
        return self.where if "://" in self.where else str(self.root)

    def full(self, path: str) -> str:
        return f"{self.root}/{path}"

    def uri(self, path: str) -> str:
        """A file in it, as Spark names it."""
        return f"{self.of_spark}/{path}"

    def make_folder(self, path: str) -> None:
        self.files.create_dir(self.full(path), recursive=True)

    def remove_folder(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self.files.delete_dir(self.full(path))

    @contextlib.contextmanager
    def alone(self, path: str, otherwise: str) -> Iterator[None]:
        """Nobody else gets here meanwhile; the kernel lets it go with the process. Only in a folder."""
        if "://" in self.where:
            yield
            return
        self.make_folder(path.rpartition("/")[0])
        with open(self.full(path), "a", encoding="utf-8") as held:
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ConfigError(otherwise) from None
            yield

    def data_files(self, folder: str = "") -> Iterator[tuple[str, int]]:
        """(path, changed at, in nanoseconds) of those that Spark would read, in the order of paths."""
        from pyarrow import fs

        below = self.full(folder) if folder else self.root
        selector = fs.FileSelector(below, allow_not_found=True, recursive=True)
        for info in sorted(self.files.get_file_info(selector), key=lambda info: str(info.path)):
            path = str(info.path)[len(self.root) + 1 :]
            parts = path.split("/")
            if info.is_file and not any(part.startswith(("_", ".")) for part in parts):
                yield path, int(info.mtime_ns or 0)

    def listed(self, folder: str) -> list[str]:
        """The JSON files of a folder, by name."""
        from pyarrow import fs

        selector = fs.FileSelector(self.full(folder), allow_not_found=True)
        names = sorted(
            info.base_name for info in self.files.get_file_info(selector) if info.is_file
        )
        return [f"{folder}/{name}" for name in names if name.endswith(".json")]

    def read(self, path: str) -> bytes | None:
        """All of a file; None if there is none."""
        try:
            with self.files.open_input_stream(self.full(path)) as source:
                return bytes(source.read())
        except FileNotFoundError:
            return None

    def write(self, path: str, value: object) -> None:
        """As JSON, whole or not at all: beside it first, then under its name."""
        full = self.full(path)
        self.files.create_dir(full.rpartition("/")[0], recursive=True)
        beside = f"{full}.{uuid.uuid4().hex}.new"
        with self.files.open_output_stream(beside) as target:
            target.write(msgspec.json.encode(value))
        self.files.move(beside, full)

    def remove(self, path: str) -> int:
        """A file, and the folders that are empty then; how many files."""
        try:
            self.files.delete_file(self.full(path))
        except FileNotFoundError:
            return 0
        self._remove_checksum(path)
        folder = path.rpartition("/")[0]
        # Folders that are empty now, from the stream's up; object stores have none.
        while folder and not folder.startswith(OWN):
            with contextlib.suppress(OSError):
                if self._is_filled(folder):
                    break
                self.files.delete_dir(self.full(folder))
            folder = folder.rpartition("/")[0]
        return 1

    def _remove_checksum(self, path: str) -> None:
        """Hadoop writes one beside every file of a local folder."""
        folder, _, name = path.rpartition("/")
        with contextlib.suppress(OSError):
            self.files.delete_file(self.full(f"{folder}/.{name}.crc"))

    def _is_filled(self, folder: str) -> bool:
        from pyarrow import fs

        selector = fs.FileSelector(self.full(folder), allow_not_found=True)
        marks = ("_SUCCESS", "._SUCCESS.crc")
        return any(info.base_name not in marks for info in self.files.get_file_info(selector))


def _check_no_file(folder: Path, kind: str) -> None:
    """Refuses a path on which a file stands; what is not there yet may be made."""
    for one in (folder, *folder.parents):
        if one.is_file():
            raise ConfigError(f"{one} is a file: {kind} is a folder")


def check_new(where: str) -> None:
    """Refuses a folder that is there already, or that cannot be made here. What only Spark has a file system
    for, only Spark can say."""
    from pyarrow import fs

    if "://" in where:
        try:
            files, root = fs.FileSystem.from_uri(where)
            is_there = files.get_file_info(root).type != fs.FileType.NotFound
        except Exception:
            return
    else:
        path = Path(where).absolute()
        is_there = path.exists()
        parent = next(one for one in path.parents if one.exists())
        if not is_there and not (parent.is_dir() and os.access(parent, os.W_OK | os.X_OK)):
            raise ConfigError(f"--out {where}: {parent} is no folder that can be written to")
    if is_there:
        raise ConfigError(f"--out {where} is there already: name a folder that is not")

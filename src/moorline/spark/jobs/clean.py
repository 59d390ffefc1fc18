"""Room: spark. `clean`: what nobody claims in an archive, named; and removed where that is asked for.

Files that no entry names may be what a crash left, what somebody put there, or all that is left of an entry
that was lost. Nobody but an operator can tell, so no other job removes them. Needs no Spark.
"""

import msgspec

from moorline.errors import DriftFound
from moorline.spark.jobs.archive_files import Archive
from moorline.spark.jobs.archive_location import OWN


class Cleaned(msgspec.Struct, frozen=True):
    """Files that no entry names; entries that are gone, or not as written; and whether they are removed."""

    files: list[str]
    missing: list[str]
    altered: list[str]
    is_done: bool = False

    @property
    def is_clean(self) -> bool:
        return not (self.files or self.missing or self.altered)


def clean(where: str, *, is_meant: bool) -> Cleaned:
    """Looks; with `is_meant` also removes and forgets."""
    archive = Archive(where)
    archive.holdings()
    busy = f"a run of `moor pipeline archive` works on {archive.where}: wait for its end"
    with archive.alone(f"{OWN}/lock", busy):
        found = archive.account()
        lost = {*found.missing, *found.altered}
        cleaned = Cleaned(archive.strays(found.entries, lost), found.missing, found.altered)
        if not is_meant or cleaned.is_clean:
            return cleaned
        # Files first: a crash in between leaves entries that are still known to be gone.
        for path in cleaned.files:
            archive.remove(path)
        archive.forget(lost)
        return msgspec.structs.replace(cleaned, is_done=True)


def check(found: Cleaned) -> None:
    """Raises if something is left that nobody claims."""
    if not found.is_clean and not found.is_done:
        lost = len(found.missing) + len(found.altered)
        raise DriftFound(
            f"{len(found.files)} files that no entry names, {lost} entries that are gone or not as written: "
            "--yes removes the files and forgets the entries"
        )

"""Room: spark. Whose messages an archive has: the ids of the nodes' data folders, by the nodes' names."""

from collections.abc import Mapping

from moorline.errors import ConfigError, DriftFound
from moorline.spark.jobs.archive_files import Archive
from moorline.spark.jobs.archive_location import OWN

FILE = "nodes.json"


def know_nodes(archive: Archive, ids: Mapping[str, str]) -> None:
    """Keeps the ids that are new; refuses another data folder under a name that is known.

    Its messages would have the offsets of those that are here: some would be passed over, and a repair
    would put others in the place of what may be the only copy.
    """
    found = archive.read_own(FILE, dict[str, str])
    if found is None and archive.entries():
        raise DriftFound(
            f"{archive.uri(OWN)}/{FILE} is gone, which says whose messages these are: bring it back from a "
            "copy, or archive to another folder"
        )
    known = found or {}
    for node, one in ids.items():
        if known.get(node, one) != one:
            raise ConfigError(
                f"the archive at {archive.where} is of another {node}: the data folder that was archived has "
                f"the id {known[node]}, this one {one}. Archive it to another folder, or give the node "
                "another name; nothing was changed"
            )
    if found is None or ids.keys() - known.keys():
        archive.write_own(FILE, {**known, **ids})

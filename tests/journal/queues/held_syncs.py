"""Syncs that are asked for and done when a test says so: what lies between is what it is about."""

from moorline.journal.begun_syncs import Done
from moorline.journal.disk import DiskFile


class HeldSyncs:
    """`BegunSyncs`, held."""

    def __init__(self) -> None:
        self.begun: list[tuple[DiskFile, Done]] = []

    def begin(self, file: DiskFile, done: Done) -> None:
        self.begun.append((file, done))

    def settle(self) -> None:
        while self.begun:
            file, done = self.begun.pop()
            file.sync()
            done(None)

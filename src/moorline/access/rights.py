"""Room: access. The rights of one connection, as the table of rights (rights_table.py) says them.

rights = table.rights("alice", Proof.PASSWORD, is_local=False)
rights.allows(WRITE, "/topics/orders/eu")
rights.everywhere("/topics") & WRITE              one look for a whole run of calls

What comes with every message is judged once under a table, and then found by one look:

    passing = rights.passing.get((WRITE, "/topics"))             none: nothing is known yet
    passing is ALL or passing.issuperset(names)                  each of these was granted before
    rights.all_granted(WRITE, "/topics", names)                  judges them, and remembers it in `passing`

Nobody who looks there asks whether it is still so: the table empties all of it with its generation.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from moorline.core.access.grants import Explanation
from moorline.core.access.owner import BY, OLD
from moorline.core.access.principal import ANONYMOUS, LOOPBACK, Proof
from moorline.core.access.right import EVERYTHING, NOTHING
from moorline.core.access.row import subjects_of
from moorline.errors import RightsUnknown
from moorline.net.session_rights import ALL, Name, Passing, Wanted, undenied_at

if TYPE_CHECKING:
    from moorline.access.rights_table import RightsTable

UNKNOWN = "the node has not heard from the catalog for long and knows nobody's rights: try again"


class Rights:
    """What one connection may do. Cheap to ask often, and never older than the table."""

    __slots__ = (
        "_built_in",
        "_denied_within",
        "_everywhere",
        "_generation",
        "_granted",
        "_is_known",
        "_table",
        "_undenied",
        "_verdicts",
        "claimed",
        "is_node",
        "passing",
        "principal",
        "proof",
        "subjects",
    )

    def __init__(
        self,
        table: "RightsTable",
        principal: str,
        proof: Proof,
        built_in: frozenset[str],
        claimed: frozenset[str] = frozenset(),
    ) -> None:
        self.claimed = claimed
        """Groups of users that its proof gives, and no row of the catalog."""
        self.principal = principal
        self.proof = proof
        self.is_node = proof is Proof.NODE
        self._table = table
        self._built_in = built_in
        self._renew()

    def allows(self, right: int, path: str) -> bool:
        return bool(self.at(path) & right)

    def at(self, path: str) -> int:
        """The rights at a path, or of a filter, as bits."""
        if self._generation != self._table.generation:
            self._renew()
        bits = self._verdicts.get(path)
        if bits is None:
            bits = self._judge(path)
        return bits

    def everywhere(self, subtree: str) -> int:
        """The rights at a path and at everything below it: where one is among them, nothing more is to be
        asked. What only nodes may write is not a part of that."""
        if self._generation != self._table.generation:
            self._renew()
        bits = self._everywhere.get(subtree)
        if bits is None:
            bits = EVERYTHING if self.is_node else NOTHING
            if self._is_known and not self.is_node:
                bits = self._table.everywhere(self.subjects, subtree)
            self._everywhere[subtree] = bits
        return bits

    def first_lacking(self, right: int, below: str, names: list[str]) -> str | None:
        """The path of the first name below a path at which the right is missing; None if there is none.

        What was granted once under this table is looked up as a name, and a whole batch at once: a path for
        each of its messages would cost a tenth of a publish.
        """
        if self._generation != self._table.generation:
            self._renew()
        granted = self._granted.get((right, below))
        if granted is not None and granted.issuperset(names):
            return None
        for name in dict.fromkeys(names):
            path = f"{below}/{name}"
            if not self.at(path) & right:
                return path
        # Behind the verdicts: to find one may have begun a new generation.
        if self._generation != self._table.generation:
            self._renew()
        granted = self._granted.get((right, below))
        if granted is None:
            granted = self._table.granted_of(self.subjects, right, below)
            self._granted[right, below] = granted
        self._table.learn(granted, set(names))
        return None

    def somewhere(self, right: int, below: str, apart: frozenset[str] = frozenset()) -> bool:
        """Whether any path at or below one has the right, but for those first levels; not kept, since it is
        asked rarely."""
        if self.is_node:
            return True
        return self.is_known and self._table.reaches(self.subjects, right, below, apart)

    def denied(self, right: int, path: str) -> bool:
        """Whether a row takes away what one has without any, by knowing what is at the path."""
        if not self.is_known:
            return True
        return not self.is_node and self._table.denies(self.subjects, right, path)

    def denied_within(self, right: int, subtree: str) -> bool:
        """Whether that is so anywhere at or below a path: one look where nobody denies anything."""
        if self._generation != self._table.generation:
            self._renew()
        found = self._denied_within.get((right, subtree))
        if found is None:
            found = not self._is_known
            if self._is_known and not self.is_node:
                found = self._table.denies_within(self.subjects, right, subtree)
            self._denied_within[right, subtree] = found
        return found

    def none_denied(
        self, right: int, below: str, names: list[bytes], path_of: Callable[[bytes], str]
    ) -> bool:
        """Whether nothing takes a right away at any of many ids below a path. What was found once under this
        table is one look for all of them, as with `first_lacking`: a row that denies something at one queue
        must not cost whoever sends to others."""
        if self._generation != self._table.generation:
            self._renew()
        undenied = self._undenied.get((right, below))
        if undenied is not None and undenied.issuperset(names):
            return True
        if any(self.denied(right, path_of(name)) for name in dict.fromkeys(names)):
            return False
        if self._generation != self._table.generation:
            self._renew()
        undenied = self._undenied.get((right, below))
        if undenied is None:
            # Apart from names that are granted, which are of other kinds of calls.
            undenied = self._table.granted_of(self.subjects, right, undenied_at(below))
            self._undenied[right, below] = undenied
        self._table.learn(undenied, set(names))
        return True

    def all_granted(self, right: int, below: str, names: list[str]) -> bool:
        """Whether there is a right at each of many names below a path, and in `passing` from now on.

        Whoever has it at everything below is not asked for names: what only nodes may write is not looked at
        then, and is refused by whoever writes it.
        """
        if self.everywhere(below) & right:
            self._pass((right, below), ALL)
        elif self.first_lacking(right, below, names) is None:
            self._pass((right, below), self._granted.get((right, below)))
        else:
            return False
        return True

    def all_undenied(
        self, right: int, below: str, names: list[bytes], path_of: Callable[[bytes], str]
    ) -> bool:
        """The same of what one has by knowing what is at a path: `passing` has it by `undenied_at(below)`."""
        wanted = right, undenied_at(below)
        if not self.denied_within(right, below):
            self._pass(wanted, ALL)
        elif self.none_denied(right, below, names, path_of):
            self._pass(wanted, self._undenied.get((right, below)))
        else:
            return False
        return True

    def _pass(self, wanted: Wanted, names: Passing | None) -> None:
        # To find them may have begun a new generation. What was given out for the old one is empty, and
        # nobody would empty it again: it stays so.
        if names is not None and self._generation == self._table.generation:
            self.passing[wanted] = names

    def owns(self, owner: str) -> bool:
        """Whether something of that owner is its own; what nobody proven made is nobody's."""
        if self.principal == ANONYMOUS or not owner:
            return False
        if owner.startswith(OLD):
            # A fingerprint. A principal may be called like one, and owns nothing by that.
            fingerprint, _, claimant = owner[len(OLD) :].partition(BY)
            return (self._table.mapped(fingerprint) or claimant) == self.principal
        return owner == self.principal or self._table.owner(owner) == self.principal

    def explain(self, right: int, path: str) -> Explanation:
        if self._generation != self._table.generation:
            self._renew()
        return self._table.explain(self.subjects, right, path)

    @property
    def is_local(self) -> bool:
        """Whether it has the rights of somebody on this machine whom nobody has to know."""
        return LOOPBACK in self._built_in

    @property
    def groups(self) -> frozenset[str]:
        if self._generation != self._table.generation:
            self._renew()
        return self.subjects.groups

    @property
    def is_known(self) -> bool:
        """False if the node has not heard from the catalog for too long: then nothing is allowed."""
        if self._generation != self._table.generation:
            self._renew()
        return self._is_known

    def check_known(self) -> None:
        if not self.is_known:
            raise RightsUnknown(UNKNOWN)

    def _judge(self, path: str) -> int:
        if self.is_node:
            # It has the cluster's secret and reads the catalog: rows could not keep anything from it.
            return EVERYTHING
        if not self._is_known:
            return NOTHING
        return self._table.judge(self.subjects, path, self._verdicts)

    def _renew(self) -> None:
        table = self._table
        self._generation = table.generation
        groups = self._built_in | self.claimed | table.groups_of(self.principal)
        self.subjects = subjects_of(self.principal, groups)
        self._is_known = self.is_node or table.knows_rights_of(self.subjects)
        self._verdicts: dict[str, int] = table.verdicts_of(self.subjects) if self._is_known else {}
        self._everywhere: dict[str, int] = {}
        self._denied_within: dict[tuple[int, str], bool] = {}
        self._undenied: dict[Wanted, set[Name]] = {}
        self._granted: dict[Wanted, set[Name]] = {}
        """What was granted: names, in sets that the table holds and bounds."""
        # A node has everything, whatever the table says, and shares nothing with a user of its name.
        is_shared = self._is_known and not self.is_node
        self.passing: dict[Wanted, Passing] = table.passing_of(self.subjects) if is_shared else {}
        """What is found by one look. The table has it too, and empties it with its generation."""

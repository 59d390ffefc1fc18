"""Room: core/access. Rules that make one name of another: `PATTERN=NAME`, with one `*` and one `{}` at most.

    StarPattern.parsed("*@example.org").taken("anna@example.org")      "anna", which `{}` stands for

Certificates, tickets of Kerberos and ID tokens are mapped by them. What each of them allows in a pattern
beside this is said where it is read.
"""

from typing import NamedTuple


class StarPattern(NamedTuple):
    before: str
    after: str
    has_star: bool

    @classmethod
    def parsed(cls, text: str) -> "StarPattern":
        """ValueError says what is wrong with it."""
        if not text or text.count("*") > 1:
            raise ValueError("the pattern is empty or has two *: one at most is taken")
        before, star, after = text.partition("*")
        return cls(before, after, bool(star))

    def taken(self, name: str) -> str | None:
        """What `*` takes, one character at least; empty without a `*`; None if it does not match."""
        before, after = self.before, self.after
        if not self.has_star:
            return "" if name == before else None
        # What stands before and behind `*` must not overlap: `a*a` takes no `a`.
        if len(name) <= len(before) + len(after):
            return None
        if not name.startswith(before) or not name.endswith(after):
            return None
        return name[len(before) : len(name) - len(after)]

    def lowered(self) -> "StarPattern":
        """For names that are the same in capitals."""
        return StarPattern(self.before.lower(), self.after.lower(), self.has_star)

    def check_name(self, name: str, kind: str) -> None:
        """Whether a rule may give that name, which is a principal or what else `kind` says."""
        if "{}" in name and not self.has_star:
            raise ValueError("{} stands for what * takes, and the pattern has no *")
        if name.count("{}") > 1:
            raise ValueError(f"the {kind} has two {{}}: one at most is taken")

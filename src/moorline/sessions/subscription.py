"""Room: sessions. One subscription of a session, private or shared, as the session keeps it."""

from moorline.core.access.right import SUBSCRIBE
from moorline.core.delivery.open_feed import Window
from moorline.core.delivery.private_subscription import PrivateSubscription
from moorline.core.topic import SharedName
from moorline.net.session_rights import SessionRights
from moorline.topics.paths import path_of_group, path_of_topic


class Subscription:
    __slots__ = (
        "borrower",
        "filter",
        "group",
        "is_judged_elsewhere",
        "is_leaving",
        "owner",
        "private",
        "reader",
        "window",
    )

    def __init__(
        self,
        filter_text: str,
        window: Window,
        group: SharedName | None,
        reader: int,
        owner: str = "",
    ) -> None:
        self.filter = filter_text
        self.window = window
        self.group = group
        self.reader = reader
        """Number of the group, or of the private place in the catalog; 0 for a place in memory."""
        self.owner = owner
        """Of the group; empty for a private one."""
        self.private: PrivateSubscription | None = None
        self.borrower = ""
        """The id under which Leaders of other nodes find it; it changes when its Borrower is made anew."""
        self.is_leaving = False
        """Unsubscribed, and known until the last of its feeds is drained."""
        self.is_judged_elsewhere = False
        """It stands for several filters: whoever has them lets through what is granted."""

    def may_go_on(self, rights: SessionRights) -> bool:
        """Whether it is still granted, while it runs; while nobody knows rights it is not."""
        if self.is_judged_elsewhere:
            return rights.is_known
        read = self.filter if self.group is None else self.group.filter
        if not rights.at(path_of_topic(read)) & SUBSCRIBE:
            return False
        if self.group is None or rights.at(path_of_group(self.group.group)) & SUBSCRIBE:
            return True
        return rights.owns(self.owner)

"""Room: sessions. One subscription of a session, private or shared, as the session keeps it."""

from moorline.core.delivery.open_feed import Window
from moorline.core.delivery.private_subscription import PrivateSubscription
from moorline.core.topic import SharedName


class Subscription:
    __slots__ = (
        "borrower",
        "filter",
        "group",
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

"""Room: topics. What a principal may have in the streams of a node."""

from moorline.core.access.quota import Quota
from moorline.errors import OverQuota
from moorline.journal.streams.publishers import StoredBytes
from moorline.net.session_rights import SessionAllowance


def check_stored(stored: StoredBytes, allowance: SessionAllowance, publisher: str) -> None:
    """Refuses whoever has as much as it may: more can be had when retention has dropped some of it."""
    bound = allowance.topic_bytes_max
    if stored.of(publisher) < bound:
        return
    error = OverQuota(
        f"the quota topic_bytes is {bound:,}, and all of it is taken by what you published: come again when "
        "retention has dropped some of it (streams.retention_s), or ask an operator for more"
    )
    error.quota, error.bound = Quota.TOPIC_BYTES.value, bound
    raise error

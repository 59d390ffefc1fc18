"""Room: client/records. What rarely differs between copies."""

import msgspec

from moorline.core.backoff import pause_ms
from moorline.limits import RECORD_CLIENT_RETURN_MS, RECORD_CLIENT_RETURN_MS_MAX


class RecordSettings(msgspec.Struct, frozen=True):
    return_ms: int = RECORD_CLIENT_RETURN_MS
    """A copy that was cut returns behind a random time of up to this, which doubles with each try."""
    return_ms_max: int = RECORD_CLIENT_RETURN_MS_MAX

    def pause_ms(self, tries: int, chance: float) -> int:
        """Before the try behind so many in a row that led to nothing; `chance` is 0 to 1."""
        return pause_ms(tries, chance, first_ms=self.return_ms, most_ms=self.return_ms_max)

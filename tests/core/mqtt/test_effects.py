"""Effects are values: whoever keeps one has what was meant then."""

import msgspec
import pytest

from moorline.core.mqtt.effects import EndConnection, Incoming, MessagePosition, SayAcks, Sent
from moorline.core.mqtt.packets import Puback, Publish
from moorline.core.mqtt.reason import ReasonCode
from moorline.core.stream import Shard


def test_effects_are_values() -> None:
    assert SayAcks([Puback(1)]) == SayAcks([Puback(1)])
    end = EndConnection(ReasonCode.SUCCESS, "bye", True, 0)
    with pytest.raises(AttributeError):
        end.text = "other"  # type: ignore[misc]


def test_what_is_kept_goes_to_a_disk_and_back() -> None:
    sent = Sent(7, MessagePosition("$share/g/a", Shard("home", 3), 1 << 40), 2, is_released=True)
    assert msgspec.json.decode(msgspec.json.encode(sent), type=Sent) == sent
    assert not Incoming(1, Publish("a", b"")).sequence

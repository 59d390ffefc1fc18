"""Headers of native publishers as properties of MQTT."""

import pytest

from moorline.core.frames.frame import encode_headers
from moorline.mqtt.headers import CONTENT_TYPE, RESPONSE_TOPIC, properties_of


@pytest.mark.parametrize("topic", ["", "a/+", "a/#", "a\0b", "x" * 20_000])
def test_a_response_topic_that_is_none_is_left_out(topic: str) -> None:
    properties, _ = properties_of(encode_headers([(RESPONSE_TOPIC, topic.encode())]))
    assert properties.response_topic is None


def test_a_response_topic_stays_as_it_is() -> None:
    properties, _ = properties_of(encode_headers([(RESPONSE_TOPIC, b"answers/a")]))
    assert properties.response_topic == "answers/a"


def test_a_content_type_is_a_string_of_mqtt() -> None:
    properties, _ = properties_of(encode_headers([(CONTENT_TYPE, b"a\0b")]))
    assert properties.content_type == "a\ufffdb"

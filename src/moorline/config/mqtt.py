"""Room: config. What must be true of the addresses of MQTT."""

import ipaddress
import re
from collections.abc import Callable, Iterator
from typing import Final

from moorline.config.access import KERBEROS
from moorline.config.addresses import MQTT_FORM, Address, mqtt_address
from moorline.config.problem import Problem

REFERENCE_FORM: Final = "HOST or HOST:PORT, such as mqtt-2.example:8883"
# As MQTT 5, 4.11 has it: names and addresses, those of IPv6 in brackets.
_REFERENCE: Final = re.compile(r"(?:[A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(?::\d{1,5})?")
PROXY_SOURCES_FORM: Final = "a list of networks (10.0.0.0/8, fd00::/8) or addresses"


def mqtt_problems(
    listeners: list[str],
    *,
    has_tls: bool,
    anonymous: str,
    mechanisms_of: Callable[[str], frozenset[str]],
) -> Iterator[Problem]:
    if "off" in listeners and len(listeners) > 1:
        yield Problem(("mqtt",), '"off" stands alone')
        return
    seen: set[Address] = set()
    for text in listeners:
        if text == "off":
            continue
        try:
            address = mqtt_address(text)
        except ValueError as error:
            yield Problem(("mqtt",), f'"{text}": {error}; accepted: {MQTT_FORM}')
            continue
        if address in seen and address.port != 0:
            yield Problem(("mqtt",), f'"{text}" is listed twice; list it once')
        seen.add(address)
        if address.scheme == "mqtts" and not has_tls:
            yield Problem(
                ("mqtt", "tls_certificate", "tls_key"),
                f'"{text}" needs a certificate: set tls_certificate and tls_key',
            )
        # As of `listen`: a password that everybody between could read is not taken there.
        is_open = address.scheme == "mqtt" and not address.is_loopback
        if is_open and KERBEROS in mechanisms_of(text):
            yield Problem(
                ("access.mechanisms", "mqtt"),
                f'"{text}" takes gssapi, whose packets of MQTT are not wrapped: use mqtts://',
            )
        elif is_open and anonymous != "everywhere":
            yield Problem(
                ("mqtt", "anonymous"),
                f'"{text}" is not loopback and passwords are taken over TLS only, so nobody could log on '
                'there: use mqtts://, or set anonymous to "everywhere" on a network that you trust',
            )


def proxy_problems(
    listeners: list[str], proxied: list[str], sources: list[str]
) -> Iterator[Problem]:
    for text in proxied:
        if text not in listeners:
            yield Problem(("mqtt_proxy", "mqtt"), f'"{text}" is no address of mqtt')
    for text in sources:
        try:
            ipaddress.ip_network(text)
        except ValueError as error:
            accepted = f"accepted: {PROXY_SOURCES_FORM}"
            yield Problem(("mqtt_proxy_sources",), f'"{text}": {error}; {accepted}')


def reference_problems(reference: str) -> Iterator[Problem]:
    if reference and not _REFERENCE.fullmatch(reference):
        yield Problem(("mqtt_reference",), f'"{reference}" is none; accepted: {REFERENCE_FORM}')

"""Room: config. What must be true of the settings of the HTTP port."""

import ipaddress
from collections.abc import Iterator
from typing import TYPE_CHECKING

from moorline.config.access import KERBEROS
from moorline.config.addresses import HTTP_FORM, http_address
from moorline.config.mqtt import PROXY_SOURCES_FORM
from moorline.config.problem import Problem
from moorline.core.access.base_path import check_base_path
from moorline.core.access.web_origin import Origin, host_of

if TYPE_CHECKING:
    from moorline.config.settings import Config


def http_problems(config: "Config") -> Iterator[Problem]:
    try:
        address = http_address(config.http)
    except ValueError as error:
        yield Problem(("http",), f"{error}; accepted: {HTTP_FORM}")
        return
    if address is None:
        return
    if address.scheme == "https" and not (config.tls_certificate and config.tls_key):
        yield Problem(
            ("http", "tls_certificate", "tls_key"),
            f'"{config.http}" needs a certificate: set tls_certificate and tls_key',
        )
    for name in config.http_hosts:
        try:
            host_of(name)
        except ValueError as error:
            yield Problem(("http_hosts",), f'"{name}": {error}')
    try:
        check_base_path(config.http_base_path)
    except ValueError as error:
        yield Problem(("http_base_path",), f'"{config.http_base_path}": {error}')
    for source in config.http_proxy_sources:
        try:
            ipaddress.ip_network(source)
        except ValueError as error:
            yield Problem(
                ("http_proxy_sources",), f'"{source}": {error}; accepted: {PROXY_SOURCES_FORM}'
            )
    for origin in config.http_origins:
        try:
            Origin.parsed(origin)
        except ValueError as error:
            yield Problem(("http_origins",), f'"{origin}": {error}')
    if f"{KERBEROS}@{config.http_listener()}" in config.access.mechanisms:
        yield Problem(
            ("access.mechanisms", "http"),
            "the HTTP port takes no gssapi; accepted there: certificate, password, token, anonymous",
        )

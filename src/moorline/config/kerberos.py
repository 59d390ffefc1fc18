"""Room: config. The section `[kerberos]`: the keytab of a node, and which nodes come by theirs."""

from collections.abc import Iterator
from typing import Annotated

import msgspec
from msgspec import Meta

from moorline import limits
from moorline.config.problem import Problem, text_setting
from moorline.core.access.kerberos_name import PATTERN_FORM, Pattern, check_name


class Kerberos(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The section `[kerberos]`."""

    keytab: Annotated[
        str, Meta(description="Keytab with the keys of this node's service alone; empty is none.")
    ] = ""
    service: Annotated[
        str,
        text_setting(
            "Principal under which this node is called, as moorline/HOST@REALM.",
            "service/host@REALM",
        ),
    ] = ""
    http_service: Annotated[
        str,
        text_setting(
            "Principal under which browsers call this node, as HTTP/HOST@REALM, with a key in that keytab; "
            "its page takes their tickets then.",
            "HTTP/host@REALM",
        ),
    ] = ""
    nodes: Annotated[
        list[str],
        text_setting(
            "Names that nodes of this cluster have in Kerberos. With it nodes prove themselves to each other "
            "by their keytabs, beside the cluster's secret, and in no other way.",
            f"a list of {PATTERN_FORM}",
        ),
    ] = msgspec.field(default_factory=list)
    timeout_ms: Annotated[
        int,
        Meta(ge=100, le=120_000, description="Time that a KDC has for a ticket to another node."),
    ] = limits.KERBEROS_KDC_MS_MAX
    clock_skew_s: Annotated[
        int,
        Meta(
            ge=0,
            le=86_400,
            description="The clockskew of krb5.conf. The library lets tickets live that much longer; "
            "sessions end when their tickets do.",
        ),
    ] = limits.KERBEROS_CLOCK_SKEW_S

    def node_patterns(self) -> list[Pattern]:
        return [Pattern.parsed(text) for text in self.nodes]

    def service_of(self, host: str) -> str:
        """The principal of the node that is reached at that host."""
        name, _, realm = self.service.partition("@")
        return f"{name.partition('/')[0]}/{host}@{realm}"

    def problems(self) -> Iterator[Problem]:
        if bool(self.keytab) != bool(self.service):
            given, other = ("keytab", "service") if self.keytab else ("service", "keytab")
            yield Problem(
                (given, other), f"it needs kerberos.{other} beside it: set both or neither"
            )
        for name, text in (("service", self.service), ("http_service", self.http_service)):
            if text:
                try:
                    check_name(text)
                except ValueError:
                    yield Problem((name,), f'"{text}": accepted: service/host@REALM')
        if self.http_service and not self.keytab:
            yield Problem(
                ("http_service", "keytab"), "it needs kerberos.keytab and kerberos.service"
            )
        for text in self.nodes:
            try:
                Pattern.parsed(text)
            except ValueError as error:
                yield Problem(("nodes",), f'"{text}": {error}')
        if self.nodes and not self.keytab:
            yield Problem(("nodes", "keytab"), "it needs kerberos.keytab and kerberos.service")

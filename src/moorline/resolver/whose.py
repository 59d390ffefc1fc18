"""Room: resolver. Whose share of a resolver a connection takes: its principal's.

Who has proven nothing has no principal of its own: strangers share by where they come from. A machine has a
whole network of addresses of IPv6, which counts as one.
"""

import ipaddress
from typing import Final

from moorline.core.access.principal import ANONYMOUS
from moorline.net.session import Session

NETWORK_BITS: Final = 64


def whose(session: Session) -> str:
    principal = session.rights.principal
    if principal != ANONYMOUS:
        return principal
    try:
        ip = ipaddress.ip_address(session.peer_address.partition("%")[0])
    except ValueError:
        return ANONYMOUS
    if isinstance(ip, ipaddress.IPv6Address) and ip.ipv4_mapped is None:
        return f"{ANONYMOUS} at {ipaddress.ip_network((ip, NETWORK_BITS), strict=False)}"
    return f"{ANONYMOUS} at {ip}"

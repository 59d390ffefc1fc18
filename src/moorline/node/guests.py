"""Room: node. How a home that moved to this process is served: by a node of its own, with our settings.

    DATA/homes/NAME/     its data folder, as any other; `node.ports` has the ports that it listens on

It listens at our hosts, on ports that are free when it first starts here, and on the same ones later. What
our settings say of one of our addresses counts for the one that stands for it.
"""

import json
import logging
import socket
from pathlib import Path
from typing import Any

import msgspec

from moorline.config.addresses import Address, http_address, listen_address
from moorline.config.settings import Access, Config
from moorline.ids import HOME_BYTES, NODE_NAME
from moorline.journal.home_copy.receiving import FILES
from moorline.limits import GUEST_NAME_CHARACTERS_MAX
from moorline.node.folder import IDENTITY, write_durably

log = logging.getLogger("moorline.node")

HOMES, ASIDE = "homes", "moved"
INCOMING = ".incoming"
PORTS = "node.ports"
GUEST_ROLES = ("broker", "records")
"""What a home needs; resolver and page are the process's own node's."""


def guests_of(data: Path) -> list[Path]:
    """The folders of homes that are served here, by their names."""
    try:
        found = sorted((data / HOMES).iterdir())
    except FileNotFoundError:
        return []
    return [one for one in found if NODE_NAME.fullmatch(one.name) and (one / IDENTITY).exists()]


def incoming(data: Path, home: str) -> Path:
    """Where the files of a home are while they come."""
    return data / HOMES / f"{home}{INCOMING}"


def incoming_of(data: Path) -> list[tuple[str, Path]]:
    """The homes that are on their way to here, or were."""
    found = sorted((data / HOMES).glob(f"*{INCOMING}"))
    return [(one.name.removesuffix(INCOMING), one) for one in found if (one / FILES).is_dir()]


def guest_name(home: str, host: str, number: bytes) -> str:
    """Of the node that serves a home here: no other node of the cluster is called so."""
    name = f"{home}-at-{host}"
    if len(name) <= GUEST_NAME_CHARACTERS_MAX:
        return name
    kept = GUEST_NAME_CHARACTERS_MAX - 2 * HOME_BYTES - 1
    return f"{name[:kept].rstrip('-')}-{number.hex()}"


def guest_config(config: Config, folder: Path, name: str) -> Config:
    """The settings of a guest, out of those of its process. Its ports are chosen, and noted."""
    known = _known_ports(folder)
    chosen: dict[str, str] = {}
    for text in (*config.listen, *config.mqtt_listeners()):
        chosen[text] = _at(text, _port_for(_address_of(text), known.get(text, 0)))
    at = config.http_address()
    if at is not None:
        chosen[config.http] = _http_at(config.http, _port_for(at, known.get(config.http, 0)))
    _note_ports(folder, {text: _port_of(other) for text, other in chosen.items()})
    return _as_guest(config, folder, name, chosen)


def guest_config_again(config: Config, folder: Path, name: str) -> Config:
    """The same out of settings that were read again, of a guest that runs: on the ports that it has."""
    known = _known_ports(folder)
    chosen = {
        text: _at(text, known[text])
        for text in (*config.listen, *config.mqtt_listeners())
        if text in known
    }
    if config.http in known:
        chosen[config.http] = _http_at(config.http, known[config.http])
    return _as_guest(config, folder, name, chosen)


def _as_guest(config: Config, folder: Path, name: str, chosen: dict[str, str]) -> Config:
    listen = [chosen.get(text, text) for text in config.listen]
    return msgspec.structs.replace(
        with_addresses(config, chosen),
        data=str(folder),
        node=name,
        roles=[role for role in GUEST_ROLES if role in config.active_roles()],
        advertise=[_advertised(text, listen) for text in config.advertise],
        mqtt_reference="",
    )


def with_addresses(config: Config, chosen: dict[str, str]) -> Config:
    """The same settings with other addresses for some."""
    listeners = dict(chosen)
    if config.http in chosen:
        at = http_address(chosen[config.http])
        assert at is not None
        listeners[config.http_listener()] = str(at)
    return msgspec.structs.replace(
        config,
        listen=[chosen.get(text, text) for text in config.listen],
        http=chosen.get(config.http, config.http),
        mqtt=[chosen.get(text, text) for text in config.mqtt],
        mqtt_proxy=[chosen.get(text, text) for text in config.mqtt_proxy],
        access=_access(config.access, listeners),
    )


def opened_again(config: Config, ports: dict[str, int]) -> Config:
    """The settings for a node that is opened once more in its process: on the ports that it got, where any
    port was asked for."""
    chosen = {}
    for text, port in ports.items():
        chosen[text] = _http_at(text, port) if text == config.http else _at(text, port)
    return with_addresses(config, chosen)


def _access(access: Access, chosen: dict[str, str]) -> Access:
    """What is said of an address of ours counts for its guest's: nothing is let in more easily there."""

    def told(given: Any) -> Any:
        if isinstance(given, str):
            # A mechanism at an address, or a line of quotas that begins with one.
            before, at, address = given.rpartition("@")
            first, space, rest = address.partition(" ")
            return before + at + chosen.get(first, first) + space + rest
        if isinstance(given, list):
            return [told(one) for one in given]
        if isinstance(given, dict):
            return {told(key): told(value) for key, value in given.items()}
        return given

    return msgspec.convert(told(msgspec.to_builtins(access)), Access)


def _advertised(text: str, listen: list[str]) -> str:
    """The host that others reach us at, and the port of the guest."""
    wanted = listen_address(text)
    same = [one for one in map(listen_address, listen) if one.scheme == wanted.scheme]
    return str(wanted._replace(port=same[0].port)) if same else text


def _address_of(text: str) -> Address:
    scheme, _, rest = text.partition("://")
    found = http_address(rest)
    assert found is not None
    return found._replace(scheme=scheme)  # type: ignore[arg-type]


def _at(text: str, port: int) -> str:
    return str(_address_of(text)._replace(port=port))


def _http_at(text: str, port: int) -> str:
    at = http_address(text)
    assert at is not None
    scheme = "https://" if text.startswith("https://") else ""
    return f"{scheme}{at._replace(port=port).host_and_port}"


def _port_of(text: str) -> int:
    return int(text.rpartition(":")[2])


def _port_for(address: Address, known: int) -> int:
    """The port of before, if nobody has it now, or one that is free."""
    for port in (known, 0) if known else (0,):
        try:
            return _free_port(address.host, port)
        except OSError:
            log.warning(
                "another program has the port that this home was served at: it gets another one",
                extra={"host": address.host, "port": port},
            )
    return 0


def _free_port(host: str, port: int) -> int:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((host, port))
        return int(probe.getsockname()[1])


def _known_ports(folder: Path) -> dict[str, int]:
    try:
        found = json.loads((folder / PORTS).read_text("ascii"))
        return {str(text): int(port) for text, port in found.items()}
    except (OSError, ValueError, AttributeError):
        return {}


def _note_ports(folder: Path, ports: dict[str, int]) -> None:
    if _known_ports(folder) != ports:
        write_durably(folder / PORTS, json.dumps(ports) + "\n")

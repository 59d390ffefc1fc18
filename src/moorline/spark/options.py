"""Room: spark. The options of the data source: read once, checked by name, and carried as plain values.

Spark gives options without the case of their names. What is not an option of ours is refused, with the
list of those that are: a wrong letter must not change what a query reads.

Spark prints options in plans, logs and its web page, and writes them into checkpoints. So none of ours is a
secret: an option names the file that has it, and a task reads that when it opens a link.
"""

import json
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from moorline.core.topic import check_filter, shared_name
from moorline.errors import BadTopic, ConfigError
from moorline.ids import home_number
from moorline.limits import READ_FILTERS_MAX, SPARK_PARTITIONS_MAX

if TYPE_CHECKING:
    from moorline.catalog.location import CatalogLocation
    from moorline.client.credentials import ClientProof

TIME_MS_MAX = 253_402_300_799_999
"""The end of the year 9999, as far as Spark's own times go."""

DEFAULT_ADDRESS = "tcp://127.0.0.1:7411"

ENDPOINT = (
    "address",
    "ca",
    "certificate",
    "key",
    "user",
    "passwordFile",
    "tokenFile",
    "keytabFile",
    "ccacheFile",
    "kerberosPrincipal",
    "kerberosService",
)
SECRETS = {
    "password": "user and passwordFile",
    "token": "tokenFile",
    "secret": "user and passwordFile, or tokenFile",
}
"""Options that a user may try, and what to use instead."""
TOPICS = (
    "topics",
    "path",
    "node",
    *ENDPOINT,
    "startingOffsets",
    "endingOffsets",
    "startingTimestamp",
    "endingTimestamp",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "minPartitions",
    "maxRecordsPerPartition",
    "failOnDataLoss",
    "failOnMissingTopic",
    "includeHeaders",
    "includeSystem",
    "includeGaps",
    "verifyChecks",
    "filterAt",
)
QUEUES = ("queues", "path", *ENDPOINT, "minPartitions")
ASSOCIATIONS = ("associations", "catalog", "catalogFile", *ENDPOINT, "minPartitions")
VALUES = (
    "values",
    *ENDPOINT,
    "valueType",
    "minPartitions",
    "failOnMisfit",
    "failOnVanished",
    "includeFirst",
)
RECORDS = ("records", *ENDPOINT, "where", "columns", "includeKind")
KINDS = ("topics", "queues", "associations", "group", "values", "records")
"""What can be read: one of these options says which."""

EARLIEST, LATEST = -2, -1
"""Offsets that stand for a place, as in Spark's Kafka source."""

Offsets = dict[str, int]
Value = TypeVar("Value")


class Endpoint(msgspec.Struct, frozen=True):
    """A node's address, and the files that prove who we are."""

    address: str = DEFAULT_ADDRESS
    ca: str = ""
    certificate: str = ""
    key: str = ""
    user: str = ""
    password_file: str = ""
    token_file: str = ""
    keytab_file: str = ""
    ccache_file: str = ""
    kerberos_principal: str = ""
    kerberos_service: str = ""

    def files(self) -> dict[str, Path | None]:
        """The files of TLS, as a client takes them."""
        names = {"ca": self.ca, "certificate": self.certificate, "key": self.key}
        return {name: Path(file) if file else None for name, file in names.items()}

    def given(self) -> dict[str, Any]:
        """All that a client is given beside an address."""
        return {"proof": self.proof(), **self.files()}

    def proof(self) -> "ClientProof":
        """Who we are there; the files are read when a link is opened."""
        # Not at the top: a source is made in many processes, and most of them open no link.
        from moorline.client.credentials import ClientProof, KerberosCredentials

        if self.keytab_file or self.ccache_file:
            return ClientProof(
                credentials=KerberosCredentials(
                    ccache=self.ccache_file,
                    keytab=self.keytab_file,
                    principal=self.kerberos_principal,
                    service=self.kerberos_service,
                )
            )
        password_file, token_file = (
            Path(one) if one else None for one in (self.password_file, self.token_file)
        )
        return ClientProof(self.user, password_file, token_file)


class TopicOptions(msgspec.Struct, frozen=True):
    """What a read of topics was asked for. Times are microseconds, -1 where none was given."""

    filters: tuple[str, ...]
    path: str
    node: str
    endpoint: Endpoint
    starting: str | Offsets
    ending: str | Offsets
    starting_us: int
    ending_us: int
    max_offsets: int
    min_offsets: int
    max_delay_ms: int
    min_partitions: int
    max_records: int
    fail_on_loss: bool
    fail_on_missing: bool
    verify_checks: bool
    is_filtered_by_nodes: bool = False
    """Nodes give what the filters take and nothing else: for whoever may not read all topics."""


def kind_of(options: Mapping[str, str]) -> str:
    """Which of the reads is meant."""
    lowered = {name.lower() for name in options}
    # A group reads topics too: it goes before them.
    for kind in ("group", "topics", "queues", "associations", "values", "records"):
        if kind in lowered:
            return kind
    # A wrong letter in the very option that says what is read.
    check_names(options, {*TOPICS, *QUEUES, *ASSOCIATIONS, *VALUES, *RECORDS, *KINDS})
    hint = "" if options else f"; of a table, {TABLES}"
    raise ConfigError(f"nothing to read: give one of the options {', '.join(KINDS)}{hint}")


TABLES = (
    "Spark does not hand the OPTIONS of a CREATE TABLE to a source in Python: use "
    "CREATE TEMPORARY VIEW name USING moorline OPTIONS (…)"
)
_OF_A_TABLE = "provider"
"""What Spark puts beside the options of a table that it makes, and of nothing else."""


def check_no_table(options: Mapping[str, str]) -> None:
    """Refuses a CREATE TABLE: a read of it would have no options, and a write would go to any node."""
    if _OF_A_TABLE in {name.lower() for name in options}:
        raise ConfigError(f"CREATE TABLE … USING moorline: {TABLES}")


def check_names(options: Mapping[str, str], known: Iterable[str]) -> None:
    """Refuses what is not known, by its name, and a secret whatever else is wrong; never with its value."""
    for name in options:
        if name.lower() in SECRETS:
            raise ConfigError(
                f"option {name!r}: Spark shows the values of options to whoever sees its plans and logs: "
                f"write it to a file and give {SECRETS[name.lower()]}"
            )
    names = sorted(known, key=str.lower)
    accepted = {name.lower() for name in names}
    for name in options:
        if name.lower() not in accepted:
            raise ConfigError(f"unknown option {name!r}: there are {', '.join(names)}")


def is_of_endpoint(name: str) -> bool:
    """Whether an option says where the node is, or who we are there."""
    return name.lower() in {one.lower() for one in ENDPOINT}


def endpoint_of(options: Mapping[str, str]) -> Endpoint:
    given = _lowered(options)
    address, *files = (given.get(name.lower(), "") for name in ENDPOINT)
    _check_proof(*files[3:6])
    _check_kerberos(any(files[3:6]), *files[6:])
    return Endpoint(address or DEFAULT_ADDRESS, *files)


def reading_endpoint_of(options: Mapping[str, str]) -> Endpoint:
    """The same for reads, which may name resolvers in place of a node: one that they know is found now."""
    given = endpoint_of(options)
    if not given.address.startswith(("moor://", "moors://")):
        return given
    # Not at the top: most reads name their node.
    from moorline.spark.found_broker import found_address

    found = found_address(given.address, given.proof(), given.ca, given.certificate, given.key)
    return msgspec.structs.replace(given, address=found)


def catalog_of(options: Mapping[str, str]) -> "CatalogLocation | None":
    """The catalog that is read in place of a node, if one is."""
    given = _lowered(options)
    dsn, file = given.get("catalog", ""), given.get("catalogfile", "")
    if not (dsn or file):
        return None
    # Not at the top: it needs the packages of a node, and most reads have no catalog.
    from moorline.catalog.location import location_of

    return location_of(
        dsn,
        file,
        dsn_name="option 'catalog'",
        file_name="catalogFile",
        shown_by="Spark shows to whoever sees its plans and logs",
    )


def writing_endpoint_of(
    options: Mapping[str, str], *, queue: bytes = b"", has_query: bool
) -> Endpoint:
    """The same for writes. The node that commits the batches of a query must be the same one each time: it
    is the home of the queue, or named by the option `node`, or else any one for a write without a query."""
    given = endpoint_of(options)
    home = _lowered(options).get("node", "")
    if not given.address.startswith(("moor://", "moors://")):
        if home:
            raise ConfigError("node: it is for an address that names resolvers: leave it out")
        return given
    if home and queue:
        raise ConfigError("node and queue: the id of the queue says where it is: leave node out")
    if has_query and not home and not queue:
        raise ConfigError(
            "address: the batches of a query are remembered by one node, and resolvers know several: name it "
            "by the option node (its home: `moor resolve '/nodes/*'` shows them as $node/HOME)"
        )
    from moorline.client.broker_choice import Wanted
    from moorline.spark.found_broker import found_address

    wanted = Wanted(home, home_number(queue) if queue else b"")
    found = found_address(
        given.address, given.proof(), given.ca, given.certificate, given.key, wanted
    )
    return msgspec.structs.replace(given, address=found)


def _check_proof(user: str, password_file: str, token_file: str) -> None:
    if token_file and (user or password_file):
        other = "user" if user else "passwordFile"
        raise ConfigError(f"{other} and tokenFile: each says who we are: give one of them")
    if user and not password_file:
        raise ConfigError("user: give passwordFile too, the file that has its password")
    if password_file and not user:
        raise ConfigError("passwordFile: whose password is it? give user too")


def _check_kerberos(
    has_other: bool, keytab_file: str, ccache_file: str, principal: str, service: str
) -> None:
    has_file = bool(keytab_file or ccache_file)
    if has_file and has_other:
        raise ConfigError(
            "keytabFile and ccacheFile say who we are, and so do user and tokenFile: give one kind"
        )
    if (principal or service) and not has_file:
        raise ConfigError(
            "kerberosPrincipal and kerberosService: give keytabFile or ccacheFile too"
        )


def path_of(given: Mapping[str, str]) -> str:
    """The data folder, from the root: the executors may be in other folders."""
    path = given.get("path", "")
    return os.path.abspath(path) if path else ""


def topic_options(options: Mapping[str, str], *, is_stream: bool) -> TopicOptions:
    """The options of a read of topics, checked."""
    check_names(options, TOPICS)
    given = _lowered(options)
    if given.get("path") and given.get("address"):
        raise ConfigError("path and address: give one, the folder or the node")
    if is_stream:
        for name in ("endingOffsets", "endingTimestamp"):
            if name.lower() in given:
                raise ConfigError(f"{name}: a stream has no end; use it with spark.read")
    starting = _places(given, "startingOffsets", "latest" if is_stream else "earliest")
    ending = _places(given, "endingOffsets", "latest")
    if not is_stream and starting == "latest":
        raise ConfigError("startingOffsets: latest leaves nothing to read; use earliest or offsets")
    if ending == "earliest":
        raise ConfigError("endingOffsets: earliest leaves nothing to read; use latest or offsets")
    starting_us, ending_us = (_time_us(given, f"{one}Timestamp") for one in ("starting", "ending"))
    if starting_us > ending_us >= 0:
        raise ConfigError(
            "startingTimestamp is behind endingTimestamp: nothing can be between them"
        )
    return TopicOptions(
        filters=_filters(given["topics"]),
        path=path_of(given),
        node=given.get("node", ""),
        endpoint=reading_endpoint_of(options),
        starting=starting,
        ending=ending,
        starting_us=starting_us,
        ending_us=ending_us,
        max_offsets=number_of(given, "maxOffsetsPerTrigger"),
        min_offsets=number_of(given, "minOffsetsPerTrigger"),
        max_delay_ms=_parsed(given, "maxTriggerDelay", _duration_ms, 900_000, "90s, 15m, 2h"),
        min_partitions=partitions_of(given),
        max_records=number_of(given, "maxRecordsPerPartition"),
        fail_on_loss=switch_of(given, "failOnDataLoss", default=True),
        # Who starts a stream may be there before the first publisher; a batch has nothing to wait for.
        fail_on_missing=switch_of(given, "failOnMissingTopic", default=not is_stream),
        verify_checks=switch_of(given, "verifyChecks", default=True),
        is_filtered_by_nodes=_is_filtered_by_nodes(given),
    )


def _is_filtered_by_nodes(given: Mapping[str, str]) -> bool:
    value = given.get("filterat", "reader")
    if value not in ("reader", "node"):
        raise ConfigError(f"filterAt: {value!r}; accepted: reader, node")
    if value == "node" and given.get("path"):
        raise ConfigError("filterAt: a folder has no node that could filter: leave it out")
    if value == "node" and len(_filters(given["topics"])) > READ_FILTERS_MAX:
        raise ConfigError(f"topics: with filterAt a node takes at most {READ_FILTERS_MAX} filters")
    return value == "node"


def number_of(options: Mapping[str, str], name: str) -> int:
    """A number above 0; 0 where the option is not given."""
    return _parsed(options, name, _positive, 0, "a whole number above 0")


def partitions_of(options: Mapping[str, str]) -> int:
    """How many tasks there are to be at least; 0 where the option is not given."""
    accepted = f"a whole number from 1 to {SPARK_PARTITIONS_MAX}"
    return _parsed(options, "minPartitions", _partitions, 0, accepted)


def switch_of(options: Mapping[str, str], name: str, *, default: bool) -> bool:
    return _parsed(options, name, _switch, default, "true or false")


# --- single values --------------------------------------------------------------------------------


def _lowered(options: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in options.items()}


def _parsed(
    options: Mapping[str, str],
    name: str,
    parse: Callable[[str], Value],
    default: Value,
    accepted: str,
) -> Value:
    text = _lowered(options).get(name.lower())
    if text is None:
        return default
    try:
        return parse(text.strip())
    except ValueError:
        raise ConfigError(f"{name}: {text!r}: accepted: {accepted}") from None


def _positive(text: str) -> int:
    number = int(text)
    if number <= 0:
        raise ValueError(text)
    return number


def _partitions(text: str) -> int:
    number = _positive(text)
    if number > SPARK_PARTITIONS_MAX:
        raise ValueError(text)
    return number


def _switch(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(text)
    return text.lower() == "true"


def _time_us(options: Mapping[str, str], name: str) -> int:
    return _parsed(options, name, _milliseconds, -1, "milliseconds since 1970")


def _milliseconds(text: str) -> int:
    number = int(text)
    if not 0 <= number <= TIME_MS_MAX:
        raise ValueError(text)
    return number * 1_000


_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


def _duration_ms(text: str) -> int:
    digits = text.rstrip("abcdefghijklmnopqrstuvwxyz ")
    unit = text[len(digits) :].strip() or "ms"
    if unit not in _UNITS_MS:
        raise ValueError(text)
    return _positive(digits) * _UNITS_MS[unit]


def _filters(text: str) -> tuple[str, ...]:
    filters = tuple(part.strip() for part in text.split(","))
    for one in filters:
        try:
            check_filter(one)
            is_group = shared_name(one) is not None
        except BadTopic as error:
            raise ConfigError(f"topics: {error}") from None
        if is_group:
            raise ConfigError(f"topics: {one!r} names a group: give it as the option group")
    return filters


def _places(options: Mapping[str, str], name: str, default: str) -> str | Offsets:
    text = options.get(name.lower(), default).strip()
    if text in ("earliest", "latest"):
        return text
    accepted = 'accepted: earliest, latest or JSON such as {"node-1/3": 17}'
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise ConfigError(f"{name}: {text[:80]!r}: {accepted}") from None
    if not isinstance(found, dict):
        raise ConfigError(f"{name}: {text!r}: {accepted}")
    for line, offset in found.items():
        if not isinstance(offset, int) or isinstance(offset, bool) or offset < EARLIEST:
            raise ConfigError(
                f"{name}: {line!r}: {offset!r} is no offset; -1 is latest, -2 is earliest"
            )
    return found

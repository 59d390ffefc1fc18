"""Room: spark. Rows of Spark as live values, by a publisher in the driver's own process.

    with moorline.spark.ValuePublisher("moor://host1,host2") as publisher:
        publisher.publish(frame)                                    # path, value
        updates.writeStream.foreachBatch(publisher.publish_batch).start().awaitTermination()

A value lives as long as its publisher. Spark ends the processes of writers when a write is over, so there is
no `df.write` of values: whoever holds this object holds the values.
"""

import logging
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn

from pyspark.sql import DataFrame
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DoubleType,
    FloatType,
    IntegralType,
    StringType,
    StructType,
    TimestampType,
)

from moorline.client.values.frames import check_length, check_value
from moorline.client.values.publisher import MemberFacts, PublishedValue, Publisher
from moorline.core.directory.path import check_path
from moorline.errors import BadValue, ConfigError, Denied, MoorlineError, Unreachable
from moorline.limits import SPARK_VALUES_TOLD_MS_MAX
from moorline.spark.loop_thread import LoopThread
from moorline.spark.options import ENDPOINT, check_names, endpoint_of
from moorline.spark.value_reader import named

log = logging.getLogger("moorline.spark")

TOLD_S_MAX = SPARK_VALUES_TOLD_MS_MAX / 1_000
SIMPLE = (
    BinaryType,
    BooleanType,
    DoubleType,
    FloatType,
    IntegralType,
    StringType,
    TimestampType,
)


class ValuePublisher(LoopThread):
    """Publishes from `with` to its end, or from its making to `close`."""

    def __init__(
        self,
        address: str,
        *,
        listen: str = "tcp://127.0.0.1:0",
        advertise: str = "",
        keytab: str = "",
        service: str = "",
        **options: str,
    ) -> None:
        """`address` is a list of resolvers, or a node. Subscribers come to `listen`, and are told `advertise`
        if that is another one. With `keytab`, a file of the driver's machine, they prove themselves by
        Kerberos to `service`, and in no other way. `options` say who we are at the resolvers, as those of the
        data source do: `keytabFile` or `ccacheFile` among them."""
        check_names(options, ENDPOINT)
        endpoint = endpoint_of({"address": address, **options})
        super().__init__("moorline-publisher")
        self._published: dict[str, PublishedValue] = {}

        async def opened() -> Publisher:
            made = Publisher(
                address,
                listen=listen,
                advertise=advertise,
                keytab=Path(keytab) if keytab else None,
                service=service,
                **endpoint.given(),
            )
            try:
                await made.open()
                told = await made.replicated(TOLD_S_MAX)
                if not any(one.is_current for one in told):
                    raise _no_resolver(made, told)
            except BaseException:
                await made.close()
                raise
            return made

        self._publisher: Publisher | None = None
        try:
            self._publisher = self.run(opened())
        except BaseException:
            self.close()
            raise

    def publish(self, frame: DataFrame, *, is_all: bool = False) -> int:
        """Publishes (path, value), or updates what is published; the number of paths. All of them or none.

        What subscribers have of them changes in one batch. Of several rows of a path the last counts. With
        `is_all` a path that has no row is unpublished.
        """
        check_schema(frame.schema)
        table = frame.select("path", "value").toArrow()
        paths, values = (table.column(name).to_pylist() for name in ("path", "value"))
        return self.run(self._publish(dict(zip(paths, values, strict=True)), is_all=is_all))

    def publish_batch(self, frame: DataFrame, batch: int) -> None:  # noqa: ARG002
        """For `foreachBatch`. A batch that comes again publishes the same values again."""
        self.publish(frame)

    def members(self) -> list[MemberFacts]:
        """How each resolver stands to what is published."""

        async def told() -> list[MemberFacts]:
            assert self._publisher is not None
            return self._publisher.members

        return self.run(told())

    def __reduce__(self) -> NoReturn:
        raise ConfigError(
            "a ValuePublisher stays in the process that made it: it can be sent neither to executors nor to "
            "a Connect server"
        )

    def __enter__(self) -> "ValuePublisher":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # --- on the loop ------------------------------------------------------------------------------

    async def _publish(self, values: dict[str | None, Any], *, is_all: bool) -> int:
        assert self._publisher is not None
        publisher = self._publisher
        wanted = _checked(values)
        # Before anything changes: what is new is taken whole, or raises.
        new = {path: value for path, value in wanted.items() if path not in self._published}
        known = [path for path in wanted if path not in new]
        made = publisher.publish_all(new.items())
        publisher.update_all(
            [self._published[path].id for path in known], [wanted[path] for path in known]
        )
        self._published.update((one.path, one) for one in made)
        if is_all:
            for path in self._published.keys() - wanted.keys():
                self._published.pop(path).unpublish()
        await publisher.commit(TOLD_S_MAX)
        await self._told(publisher)
        return len(wanted)

    async def _told(self, publisher: Publisher) -> None:
        for one in await publisher.replicated(TOLD_S_MAX):
            if not one.is_current:
                log.warning("%s does not know all values yet: %s", one.address, one.why)
        if refused := publisher.refused():
            codes = ", ".join(sorted(set(refused.values())))
            raise Denied(
                f"resolvers do not take {named(sorted(refused))}: {codes}; is p (publish) granted there?"
            )

    async def _say_goodbye(self) -> None:
        if self._publisher is not None:
            await self._publisher.close()


def _no_resolver(publisher: Publisher, told: Sequence[MemberFacts]) -> MoorlineError:
    """A right that is not granted, or a proof that is not taken, is not a resolver that is away."""
    text = "; ".join(f"{one.address}: {one.why}" for one in told)
    return publisher.failure() or Unreachable(text)


def check_schema(schema: StructType) -> None:
    """Refuses other columns than `path` and `value`, and values of a type that has no equal."""
    if sorted(schema.fieldNames()) != ["path", "value"]:
        raise ConfigError(
            f"the columns are {', '.join(schema.fieldNames())}: select path and value"
        )
    if not isinstance(schema["path"].dataType, StringType):
        raise ConfigError("the column path is a string")
    if not _is_value(schema["value"].dataType):
        given = schema["value"].dataType.simpleString()
        raise ConfigError(
            f"the column value is {given}; accepted: string, binary, boolean, whole numbers, float, double, "
            "timestamp, and arrays and structs of these"
        )


def _is_value(kind: DataType) -> bool:
    if isinstance(kind, ArrayType):
        return _is_value(kind.elementType)
    if isinstance(kind, StructType):
        return all(_is_value(field.dataType) for field in kind.fields)
    return isinstance(kind, SIMPLE)


def _checked(values: dict[str | None, Any]) -> dict[str, Any]:
    """All of them, or the name of one that cannot be published."""
    found: dict[str, Any] = {}
    for path, value in values.items():
        if path is None:
            raise BadValue("a row has no path")
        check_path(path)
        try:
            check_value(value)
            check_length(value)
        except BadValue as error:
            raise BadValue(f"{path}: {error}") from None
        found[path] = value
    return found

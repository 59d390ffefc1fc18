"""Room: spark. The proof of a flow that copies one to one: what the sink got, against the source again.

Both sides are counted and digested by Spark itself, in one pass each. A digest here is of many rows, of
which some may be the same: so hashes are added up, and not XORed.
"""

from typing import TYPE_CHECKING, Any

import msgspec

from moorline.errors import DriftFound
from moorline.limits import FLOW_CLOCKS_MS_MAX, FLOW_PARTITIONS_MAX
from moorline.spark.jobs.archive_location import ArchiveLocation
from moorline.spark.options import endpoint_of, is_of_endpoint
from moorline.wire.staging import key_before, producer_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from moorline.spark.jobs.flows import Flow, FlowReport, Options, Run


def prove(
    spark: "SparkSession",
    endpoint: "Options",
    one: "Flow",
    checkpoint: str,
    query: str,
    run: "Run",
    report: "FlowReport",
) -> "FlowReport":
    """The report, with what both sides have of the batches of this run."""
    from moorline.spark.jobs.flows import complete

    sink = complete(one.sink, endpoint)
    is_whole = sink["format"] != "moorline"
    source = _source(spark, complete(one.source, endpoint), run, is_whole=is_whole)
    expected = one.function(source)
    if "topic" in sink and not is_whole:
        from pyspark.sql import functions

        expected = expected.withColumn("topic", functions.lit(sink["topic"]))
    found = (
        _files(spark, sink)
        if is_whole
        else _published(spark, sink, query, run, _began_ms(checkpoint, run), filter_at(one.source))
    )
    names = [name for name in expected.columns if name in found.columns]
    if not names:
        raise DriftFound(f"the sink has none of the columns {', '.join(expected.columns)}")
    one_side, other_side = digest(expected, names), digest(found, names)
    rows = source.count()
    return msgspec.structs.replace(
        report,
        verified=one_side == other_side and rows == other_side[0],
        source_count=rows,
        sink_count=other_side[0],
        digest=f"{other_side[1]:016x}{other_side[2]:016x}",
        over=_over(one.source),
    )


def digest(frame: "DataFrame", names: list[str]) -> tuple[int, int, int]:
    """(rows, two sums of halves of their hashes): equal for equal rows in any order."""
    from pyspark.sql import functions

    columns = [_plain(frame, name) for name in names]
    # A null leaves a hash as it was: which of the columns it stands in has to be in it too.
    columns += [functions.isnull(column) for column in columns]
    hashes = frame.select(functions.xxhash64(*columns).alias("hash"))
    row = hashes.agg(
        functions.count("*").alias("count"),
        functions.coalesce(functions.sum(functions.expr("hash & 4294967295")), functions.lit(0)),
        functions.coalesce(
            functions.sum(functions.shiftrightunsigned("hash", 32)), functions.lit(0)
        ),
    ).collect()[0]
    return int(row[0]), int(row[1]), int(row[2])


def _plain(frame: "DataFrame", name: str) -> Any:
    """Texts and bytes are the same once they are published; nothing and empty headers too."""
    from pyspark.sql import functions

    column = functions.col(name)
    kind = frame.schema[name].dataType.simpleString()
    if name in ("key", "value") and kind == "string":
        return column.cast("binary")
    if kind.startswith("array"):
        return functions.coalesce(functions.to_json(column), functions.lit("[]"))
    return column


def _source(
    spark: "SparkSession", options: dict[str, str], run: "Run", *, is_whole: bool
) -> "DataFrame":
    """The messages of the run once more; all up to its end, where the sink has those before too."""
    kind = options.pop("format")
    if kind == "moorline":
        for name in ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay"):
            options.pop(name, None)
        given = options.pop("startingOffsets", "earliest")
        start = (
            given if is_whole else msgspec.json.encode(run.start).decode() if run.start else given
        )
        options |= {
            "startingOffsets": start,
            "endingOffsets": msgspec.json.encode(run.end).decode(),
            # A flow may run before there is anything to copy.
            "failOnMissingTopic": "false",
        }
    return spark.read.format(kind).options(**options).load()


def _files(spark: "SparkSession", options: dict[str, str]) -> "DataFrame":
    kind = options["format"]
    rest = {name: value for name, value in options.items() if name not in ("format", "path")}
    return spark.read.format(kind).options(**rest).load(options["path"])


def filter_at(source: "Options") -> str:
    """Who filters: the reader, who may see everything, or the nodes, for one who may not."""
    return next((value for name, value in source.items() if name.lower() == "filterat"), "reader")


def _over(source: "Options") -> str:
    if filter_at(source) != "node":
        return ""
    topics = next((value for name, value in source.items() if name.lower() == "topics"), "")
    return f"what nodes gave of {topics}: this principal does not see the rest"


def _published(
    spark: "SparkSession",
    sink: dict[str, str],
    query: str,
    run: "Run",
    began_ms: int,
    filtered_at: str,
) -> "DataFrame":
    """What the query's batches stored: their producers and sequences say whose a message is."""
    from pyspark.sql import functions

    from moorline.spark.writer import key_at

    endpoint = {name: value for name, value in sink.items() if is_of_endpoint(name)}
    key = key_at(endpoint_of(endpoint), query)
    # A run may have begun with an older node.
    keys = {key, key_before(key)}
    places = range(FLOW_PARTITIONS_MAX)
    producers = [_signed(producer_of(one, place)) for one in keys for place in places]
    first, upto = run.numbers
    frame = (
        spark.read.format("moorline")
        .options(**endpoint)
        .option("topics", sink.get("topic", "#,$dead/#"))
        .option("includeSystem", "true")
        .option("includeHeaders", "true")
        .option("failOnMissingTopic", "false")
        .option("filterAt", filtered_at)
        .option("startingTimestamp", str(max(0, began_ms - FLOW_CLOCKS_MS_MAX)))
        .load()
    )
    sequence = functions.col("sequence")
    return frame.where(
        functions.col("producer").isin(producers)
        & (sequence >= first << 32)
        & (sequence < upto << 32)
    )


def _signed(number: int) -> int:
    return number - (1 << 64) if number >> 63 else number


def _began_ms(checkpoint: str, run: "Run") -> int:
    """When Spark first planned the first batch, perhaps in a run before this one."""
    logged = ArchiveLocation(checkpoint).read(f"offsets/{run.numbers[0]}") or b""
    try:
        return int(msgspec.json.decode(logged.splitlines()[1])["batchTimestampMs"])
    except (OSError, LookupError, msgspec.DecodeError, UnicodeDecodeError, TypeError):
        return 0

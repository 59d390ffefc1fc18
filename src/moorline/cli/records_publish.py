"""Room: cli. `moor records publish`: a table that feeds a topic. The node that is asked publishes it."""

import asyncio
from typing import Annotated, Any

import typer

from moorline.cli import output
from moorline.cli.asking import AsJson
from moorline.cli.endpoint import Endpoint, with_node
from moorline.config.settings import Config
from moorline.errors import ConfigError, MoorlineError

NOT_PUBLISHED = {"topic": None, "home": None, "published_by": None, "problem": ""}


@with_node
def publish(
    endpoint: Endpoint,
    name: Annotated[
        str,
        typer.Argument(
            metavar="TABLE", show_default=False, help="The name that the table is served under."
        ),
    ],
    topic: Annotated[
        str,
        typer.Option("--topic", metavar="TOPIC", show_default=False, help="The topic to feed."),
    ] = "",
    stop: Annotated[
        bool, typer.Option("--stop", help="End it; what is in the topic stays there.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Feed a topic with a table: all of its rows, and then each change, once.

    Messages are JSON, keyed by the row's key. The node that is asked publishes, now and behind each of its
    starts. It needs the rights w at the topic and s on all of /records/TABLE, now and not later.
    """
    if stop == bool(topic):
        raise ConfigError("give --topic TOPIC to begin, or --stop alone to end")

    async def work() -> dict[str, Any]:
        async with endpoint.connect() as moor:
            if stop:
                return {"name": name, "topic": await moor.stop_table(name), "is_published": False}
            home = await moor.publish_table(name, topic)
            return {"name": name, "topic": topic, "is_published": True, "home": home}

    facts = asyncio.run(work())
    text = (
        f"{name} does not feed {facts['topic']} any more"
        if stop
        else f"{name} feeds {topic}, by {facts['home']}"
    )
    output.emit(as_json, facts, lambda: output.line(text))


def publications_of(config: Config) -> dict[str, dict[str, Any]] | None:
    """By the names of their tables, as the catalog has them; None, and a note, where it does not say."""
    import asyncpg

    from moorline.catalog.publications import NAMES
    from moorline.records.addresses import own_address
    from moorline.records.database import connected

    async def read(address: str) -> list[Any]:
        async with connected(address) as connection:
            return list(await connection.fetch(NAMES))

    try:
        rows = asyncio.run(read(own_address(config)))
    except (asyncpg.UndefinedTableError, asyncpg.InvalidSchemaNameError):
        return {}  # no node has made a catalog there yet
    except MoorlineError as error:
        output.error(f"note: which topics are fed is not known: {error}")
        return None
    return {
        row["name"]: {
            "topic": row["topic"],
            "home": row["home"],
            "published_by": row["owner"],
            "problem": row["problem"],
        }
        for row in rows
    }


def facts_of(published: dict[str, dict[str, Any]] | None, name: str) -> dict[str, Any]:
    return NOT_PUBLISHED if published is None else published.get(name, NOT_PUBLISHED)

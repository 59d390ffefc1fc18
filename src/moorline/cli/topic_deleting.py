"""Room: cli. `moor topic delete`: the end of a topic at all nodes."""

from typing import Annotated

import typer

from moorline.cli import output
from moorline.cli.confirming import Yes, confirm
from moorline.cli.endpoint import Endpoint, with_node
from moorline.cli.topic import AsJson, app, run
from moorline.client.moor import Moor
from moorline.core.topic import check_topic
from moorline.errors import Unreachable

__all__ = ["app"]
"""The commands of `moor topic` with that of this file."""


@app.command(epilog="Example: moor topic delete orders/eu --yes")
@with_node
def delete(
    endpoint: Endpoint,
    topic: Annotated[str, typer.Argument(show_default=False, help="Topic, as orders/eu.")],
    force: Annotated[
        bool, typer.Option("--force", help="Also while nodes are away: they keep what they have.")
    ] = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Delete what a topic has, at all nodes: no subscription and no group reads it any more. The operator's.

    The retained message goes too. Subscriptions and groups stay, and what is published from now on begins
    the topic anew. Bytes go with retention: until then an archive, and Spark where it reads whole streams,
    still copy them. Ends with 10 if a node did not say that it is done there; give it again then.
    """
    check_topic(topic)
    confirm(f"Delete all messages of {topic}, at all nodes?", yes=yes)

    async def work(moor: Moor) -> None:
        told = await moor.delete_topic(topic, force=force)
        facts = {"topic": topic, "deleted": told.messages, "left": dict(told.left)}
        text = f"{topic} is deleted: {output.counted(told.messages, 'message')}"
        output.emit(as_json, facts, lambda: output.line(text))
        if told.left:
            where = ", ".join(f"{home} ({code})" for home, code in told.left)
            raise Unreachable(
                f"not known to be deleted at {where}: delete it again when they are back"
            )

    run(endpoint, work)

"""Act: a service that cannot drift. Associations vanish behind the node's back, and are repaired."""

import time

import asyncpg

import moorline
from moorline.demo.stage import Stage

TITLE = "a service without drift"

QUEUES = 20_000
LOST = 3
DRIFT_BYTES_MAX = 1_024
"""What it takes to find them and to associate them again, both ways."""


async def play(stage: Stage) -> None:
    certificates = stage.certificates
    async with moorline.connect(
        stage.tls_address,
        ca=certificates.ca,
        certificate=certificates.service,
        key=certificates.service_key,
    ) as moor:
        queues = [
            queue.id for _ in range(QUEUES // 1_000) for queue in await moor.create_queues(1_000)
        ]
        async with moor.service(stage.folder / "service.sqlite") as service:
            started = time.perf_counter()
            refused = await service.associate(queues)
            assert not refused
            rate = QUEUES / (time.perf_counter() - started)
            stage.tell(TITLE, f"{QUEUES:,} queues associated", f"{rate:,.0f} a second")
            report = await service.agree()
            spent = report.bytes_sent + report.bytes_received
            stage.tell(TITLE, "verified: both sides mean the same set", f"{spent} bytes")
            await lose_associations(stage)
            report = await service.agree()
            spent = report.bytes_sent + report.bytes_received - 24 * LOST
            assert report.associated == LOST, report
            assert report.digest.count == QUEUES, report
            whole = report.bytes_sent + report.bytes_received
            assert whole < DRIFT_BYTES_MAX, f"it took {whole} bytes"
            stage.claim(
                TITLE,
                f"{LOST} of {QUEUES:,} associations drift away, and are found, repaired and proven",
                f"{whole:,} bytes in all",
            )
            stage.tell(TITLE, f"{LOST} lost in the catalog, found in", f"{spent:,} bytes")
            stage.tell(TITLE, "associated again, and proven", str(report.digest)[-16:])
            await moor.send(queues[7], b"ahoy")
            async for message in service:
                await message.ack()
                stage.tell(TITLE, "a message to one of them arrives", message.body.decode())
                break


async def lose_associations(stage: Stage) -> None:
    """What a restored backup would do: rows are gone, and the digest with them."""
    catalog = await asyncpg.connect(
        host=str(stage.data / "run"), user="postgres", database="postgres"
    )
    try:
        gone = await catalog.fetch(
            "select queue from moorline.association order by queue limit $1", LOST
        )
        await catalog.fetch("select * from moorline.dissociate($1)", [row["queue"] for row in gone])
    finally:
        await catalog.close()

"""Drift: an old copy of a service's list comes back, and the two sides agree again.

It has a list of its own. Afterwards the node means the queues of that list.
"""

import asyncio
import shutil
from pathlib import Path

import moorline

PAPERS = Path("billing.pem")


async def main() -> None:
    async with moorline.connect(
        "tls://127.0.0.1:7413", ca=Path("ca.pem"), certificate=PAPERS, key=PAPERS
    ) as moor:
        queues = await moor.create_queues(1_000)
        async with moor.service("drift.sqlite") as service:
            await service.associate([queue.id for queue in queues])
        shutil.copy("drift.sqlite", "backup.sqlite")
        async with moor.service("drift.sqlite") as service:
            await service.dissociate([queue.id for queue in queues[:10]])
        async with moor.service("backup.sqlite") as service:
            report = service.report
            traffic = report.bytes_sent + report.bytes_received
            print(f"{report.associated} added, {report.dissociated} removed, {traffic} bytes")
            report = await service.agree()
            traffic = report.bytes_sent + report.bytes_received
            print(f"equal: {report.digest.count} queues, {traffic} bytes")


asyncio.run(main())

"""A service has drifted, and is repaired by a click, while its session goes on."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from tests.console.looking import TEXT, agree, click, has, view
from tests.records.browser.chromium import Chromium, chromium, why_not

import moorline
from moorline.demo.acts.services import LOST, lose_associations
from moorline.demo.stage import Stage

pytestmark = [pytest.mark.process, pytest.mark.asyncio(loop_scope="session")]

QUEUES = 500


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def browser(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Chromium]:
    why = why_not()
    if why is not None:
        pytest.skip(why)
    async with chromium(tmp_path_factory.mktemp("profile")) as made:
        yield made


async def test_drift_is_repaired_by_a_click_and_its_cost_is_shown(
    browser: Chromium, tmp_path: Path
) -> None:
    stage = Stage(tmp_path)
    ours = stage.certificates
    async with stage.node(), moorline.connect(stage.address) as operator:
        made = await operator.access.make_pass()
        async with moorline.connect(
            stage.tls_address, ca=ours.ca, certificate=ours.service, key=ours.service_key
        ) as moor:
            queues = [queue.id for queue in await moor.create_queues(QUEUES)]
            async with moor.service(tmp_path / "service.sqlite") as service:
                await service.associate(queues)
                await lose_associations(stage)
                tab = await browser.tab(await browser.profile(), "about:blank")
                page = f"{stage.http}/console/#pass={made.text}"
                await tab.say("Page.navigate", url=page)
                await tab.until("document.querySelector('main .cards') !== null")
                await view(tab, "services/one/harbour", has("Compare and repair"))
                await click(tab, "Compare and repair")
                await agree(tab)
                await tab.until(has("What the repair took"))
                text = await tab.run(TEXT)
                assert f"queues that differed\n{LOST}" in text
                assert f"associated\n{LOST}" in text
                assert f"{QUEUES} queues" in text
                assert "rounds" in text
                # Its own session goes on, and what was lost arrives again.
                for queue in queues:
                    await moor.send(queue, b"ahoy")
                got = 0
                async for message in service:
                    await message.ack()
                    got += 1
                    if got == QUEUES:
                        break

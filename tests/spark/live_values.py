"""A publisher of live values in the tests' own process, for readers that are in Spark's."""

from collections.abc import Mapping
from types import TracebackType
from typing import Any

from moorline.client.values.publisher import PublishedValue, Publisher
from moorline.spark.loop_thread import LoopThread


class LiveValues:
    """Opened and closed by `with`; every call returns when the resolver has what it says."""

    def __init__(self, address: str) -> None:
        self._thread = LoopThread("values of a test")
        self.publisher = self._thread.run(self._open(address))
        self.published: dict[str, PublishedValue] = {}

    async def _open(self, address: str) -> Publisher:
        return await Publisher(address).open()

    def publish(self, values: Mapping[str, Any]) -> None:
        async def publish() -> None:
            made = self.publisher.publish_all(values.items())
            self.published.update((one.path, one) for one in made)
            facts = await self.publisher.replicated(30)
            assert all(one.is_current and not one.refused for one in facts), facts

        self._thread.run(publish())

    def update(self, values: Mapping[str, Any]) -> None:
        """One commit."""

        async def update() -> None:
            for path, value in values.items():
                self.published[path].update(value)
            await self.publisher.commit(10)

        self._thread.run(update())

    def forget(self, path: str) -> None:
        """The value goes; resolvers are not told of it, as if the news were on their way."""

        async def forget() -> None:
            board, value = self.publisher.board, self.published.pop(path)
            del self.publisher.values[value.id]
            board.unpublish(value.id)

        self._thread.run(forget())

    def followers(self, path: str) -> int:
        async def count() -> int:
            return self.published[path].subscribers

        return self._thread.run(count())

    def close(self) -> None:
        async def close() -> None:
            await self.publisher.close()

        self._thread.run(close())
        self._thread.close()

    def __enter__(self) -> "LiveValues":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

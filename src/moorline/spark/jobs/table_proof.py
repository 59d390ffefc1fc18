"""Room: spark. A witness of a table for a job: on a loop of its own, so that it hears while tasks run."""

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from moorline.core.sets.digest import Digest
from moorline.spark.loop_thread import LoopThread
from moorline.spark.options import endpoint_of

if TYPE_CHECKING:
    from moorline.client.records.witness import TableWitness


class TableProof(LoopThread):
    """What is named without `_` is for the thread of the job."""

    def __init__(self, source: dict[str, str], table: str) -> None:
        super().__init__("moorline-witness")
        self._endpoint = endpoint_of(source)
        self._table = table
        self._stack = AsyncExitStack()
        self._witness: TableWitness | None = None

    def witness(self) -> None:
        """Returns with the first digest of the table; raises what the node has against it."""
        self.run(self._begin())

    def salt(self) -> str:
        """As the wire has it."""

        async def told() -> str:
            salt = self._there.salt
            assert salt is not None, "it has begun"
            return f"{salt:016x}"

        return self.run(told())

    def has_seen(self, digest: Digest) -> bool:
        async def asked() -> bool:
            return self._there.has_seen(digest)

        return self.run(asked())

    def latest(self) -> Digest | None:
        async def told() -> Digest | None:
            return self._there.latest

        return self.run(told())

    @property
    def _there(self) -> "TableWitness":
        assert self._witness is not None, "it has begun"
        return self._witness

    async def _begin(self) -> None:
        import moorline

        endpoint, proof = self._endpoint, self._endpoint.proof()
        files = endpoint.files()
        moor = await self._stack.enter_async_context(
            moorline.connect(
                endpoint.address,
                user=proof.user,
                password_file=proof.password_file,
                token_file=proof.token_file,
                credentials=proof.credentials,
                ca=files["ca"],
                certificate=files["certificate"],
                key=files["key"],
            )
        )
        self._witness = await self._stack.enter_async_context(moor.witness(self._table))
        await self._witness.begun()

    async def _say_goodbye(self) -> None:
        await self._stack.aclose()

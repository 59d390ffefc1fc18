"""A node with the role `resolver`, and short times."""

from pathlib import Path

from tests.process.nodes import NodeProcess

QUICK = (
    "--set=resolver.proof_timeout_ms=1000",
    "--set=streams.sync=process",
    "--set=queues.sync=process",
    "--set=streams.shards=1",
)


def resolver_node(
    folder: Path, *flags: str, name: str = "data", ttl_ms: int = 2_000
) -> NodeProcess:
    return NodeProcess(folder / name, *QUICK, f"--set=resolver.ttl_ms={ttl_ms}", *flags)

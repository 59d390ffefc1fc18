"""Room: cli. Which packages a command needs beyond a client's, and what to say where they are missing.

The base packages are those of the client and of the commands that call a node. A node and the jobs on Spark
are extras of their own (pyproject.toml); a test keeps the names here equal to those there.
"""

from importlib.util import find_spec

from moorline.errors import NotInstalled

SERVER = (
    "asyncpg",
    "cryptography",
    "h11",
    "polars",
    "polars_hash",
    "prometheus_client",
    "pyarrow",
    "uvloop",
    "wsproto",
)
"""All of the extra `server` but its Postgres, which a node does without if it is given one."""

SPARK = ("asyncpg", "polars", "polars_hash", "pyarrow", "pyspark")
"""All of the extra `spark` but its Java, which a machine may have already."""


CERTIFICATES = ("cryptography",)
"""All of the extra `certificates`; a node has it too."""


def need_server(command: str) -> None:
    """Refuses to begin where the packages of a node are not installed."""
    _need(command, "server", SERVER)


def need_spark() -> None:
    """Refuses to begin where the packages of the pipeline are not installed."""
    _need("moor pipeline", "spark", SPARK)


def need_certificates() -> None:
    """Refuses to begin where no certificate can be made or read."""
    _need("moor cert", "certificates", CERTIFICATES)


def _need(command: str, extra: str, packages: tuple[str, ...]) -> None:
    missing = [name.replace("_", "-") for name in packages if find_spec(name) is None]
    if missing:
        raise NotInstalled(
            f"`{command}` needs {', '.join(missing)}: in Moorline's folder, "
            f"pip install -c constraints.txt '.[{extra}]'"
        )

"""Room: catalog. Reads the SQL that lies beside the code that runs it."""

from importlib import resources


def statement(name: str, package: str = "moorline.catalog") -> str:
    """The text of `sql/NAME.sql` in the package. Called at import: a missing file shows at once."""
    return (resources.files(package) / "sql" / f"{name}.sql").read_text(encoding="utf-8")

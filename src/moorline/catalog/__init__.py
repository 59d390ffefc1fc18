"""Room: catalog. Postgres: what must be transactional, in one of our own or in a given one."""

from moorline.catalog.catalog import Catalog, NodeRow
from moorline.catalog.embedded import EmbeddedPostgres
from moorline.catalog.migration import migrate

__all__ = ["Catalog", "EmbeddedPostgres", "NodeRow", "migrate"]

"""Room: cli. `moor whoami`: whom a node takes us for, and what that one may do."""

from datetime import UTC, datetime

from moorline.cli import output
from moorline.cli.asking import AsJson, asked, plain
from moorline.cli.endpoint import Endpoint, with_node


@with_node
def whoami(endpoint: Endpoint, as_json: AsJson = False) -> None:
    """Ask a node whom it takes us for: principal, proof, groups of users, rights."""
    found = plain(asked(endpoint, lambda access: access.who_am_i()))

    def show() -> None:
        output.line(f"{found['principal']}, proven by {found['proof']}")
        if found["proven_name"]:
            output.line(f"Kerberos calls it: {found['proven_name']}")
        if found["expires_us"]:
            ends = datetime.fromtimestamp(found["expires_us"] // 1_000_000, UTC)
            output.line(f"until: {ends:%Y-%m-%d %H:%M:%S} UTC")
        output.line(f"groups of users: {', '.join(found['groups'])}")
        output.table(
            ("path", "rights there", "rights at all below"),
            [
                [row[name] or "-" for name in ("path", "at", "everywhere")]
                for row in found["rights"]
            ],
        )

    output.emit(as_json, found, show)

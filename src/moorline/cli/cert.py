"""Room: cli. `moor cert`: a small authority of one's own, and what a certificate says."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from moorline.cli import output
from moorline.cli.confirming import Yes, confirm
from moorline.cli.installed import need_certificates
from moorline.limits import CERTIFICATE_DAYS_MAX

if TYPE_CHECKING:
    from moorline.net.issuing import Made

app = typer.Typer(
    no_args_is_help=True,
    help="Make certificates for nodes and clients, revoke them, and look at them.",
    epilog="Example: moor cert authority ./authority",
)

AsJson = Annotated[bool, typer.Option("--json", help="JSON in place of a table.")]
Of = Annotated[
    Path,
    typer.Option("--authority", metavar="FOLDER", help="The folder of `moor cert authority`."),
]
Out = Annotated[
    Path | None,
    typer.Option("--out", metavar="FOLDER", help="Where to write to; the authority's otherwise."),
]


def _days(default_help: str) -> typer.models.OptionInfo:
    option: typer.models.OptionInfo = typer.Option(
        "--days", min=1, max=CERTIFICATE_DAYS_MAX, help=default_help
    )
    return option


Days = Annotated[int, _days("How long it is valid.")]


class Shown(msgspec.Struct, frozen=True):
    """One certificate of `moor cert show`."""

    subject: str
    names: list[str]
    issuer: str
    principal: str | None
    """What it proves where no mapping rule says otherwise; none if a node would refuse it."""
    refused: str
    """Why a node would."""
    not_before: str
    not_after: str
    uses: list[str]
    serial: str
    fingerprint: str


@app.command(epilog="Example: moor cert authority ./authority --name 'our nodes'")
def authority(
    folder: Annotated[Path, typer.Argument(help="A folder of its own; it is made.")],
    name: Annotated[str, typer.Option("--name", help="What the authority is called.")] = "moorline",
    days: Days = 3_650,
    as_json: AsJson = False,
) -> None:
    """Make an authority: its certificate ca.pem, its key ca.key, and its list of revoked ones crl.pem.

    Whoever has ca.key can be anybody: keep it off the nodes. It is for trying out and for small set-ups.
    """
    need_certificates()
    from moorline.net.issuing import make_authority

    _tell(make_authority(folder, name, days), as_json=as_json)


@app.command(epilog="Example: moor cert node node-1 --host 192.0.2.1 --host node-1.example")
def node(
    name: Annotated[str, typer.Argument(help="Home of the node: its name at its first start.")],
    hosts: Annotated[
        list[str],
        typer.Option("--host", help="A name or address by which clients reach it. Repeatable."),
    ],
    folder: Of = Path(),
    out: Out = None,
    days: Days = 397,
    as_json: AsJson = False,
) -> None:
    """Make the certificate NAME.pem and the key NAME.key of a node: for tls_certificate and tls_key."""
    need_certificates()
    from moorline.net.issuing import Authority

    _tell(Authority(folder).issue_node(name, hosts, days, out or folder), as_json=as_json)


@app.command(epilog="Example: moor cert client billing --authority ./authority")
def client(
    name: Annotated[str, typer.Argument(help="Name of the user or program: its principal.")],
    emails: Annotated[
        list[str] | None,
        typer.Option("--email", help="An address that mapping rules may look at. Repeatable."),
    ] = None,
    folder: Of = Path(),
    out: Out = None,
    days: Days = 397,
    as_json: AsJson = False,
) -> None:
    """Make the certificate NAME.pem and the key NAME.key of a client: for --certificate and --key."""
    need_certificates()
    from moorline.net.issuing import Authority

    made = Authority(folder).issue_client(name, emails or [], days, out or folder)
    _tell(made, as_json=as_json)


@app.command(epilog="Example: moor cert revoke billing.pem --authority ./authority --yes")
def revoke(
    files: Annotated[
        list[Path] | None, typer.Argument(metavar="FILE...", help="Certificates to revoke.")
    ] = None,
    folder: Of = Path(),
    days: Annotated[
        int | None,
        _days("When the next list must be there; as long as the authority lives otherwise."),
    ] = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Add certificates to the authority's list crl.pem; without any the list is only renewed.

    Nodes that name it in tls_client_crl take the new one. Behind --days they take no certificate of this
    authority until the list is renewed.
    """
    need_certificates()
    if files:
        confirm(f"Revoke {output.counted(len(files), 'certificate')}, for good?", yes=yes)
    from moorline.net.issuing import Authority

    count = Authority(folder).revoke(files or [], days)
    path = str(folder / "crl.pem")
    output.emit(
        as_json,
        {"list": path, "revoked": count},
        lambda: output.line(f"{path}: {output.counted(count, 'certificate')} revoked"),
    )


@app.command(epilog="Example: moor cert show billing.pem")
def show(
    file: Annotated[Path, typer.Argument(help="A PEM file with certificates.")],
    as_json: AsJson = False,
) -> None:
    """Print what is in a file of certificates, and the principal that each of them proves.

    The principal is the one without mapping rules (access.certificates).
    """
    need_certificates()
    found = _shown(file)

    def tables() -> None:
        for number, one in enumerate(found):
            if number:
                output.line("")
            rows = msgspec.structs.asdict(one).items()
            output.table(("field", "value"), [(name, value or None) for name, value in rows])

    output.emit(as_json, found, tables)


def _shown(file: Path) -> list[Shown]:
    from moorline.core.access.certificate import problem_of
    from moorline.net.clock import wall_ms
    from moorline.net.peer_certificate import described, load_certificates, uses_of
    from moorline.net.pem import Pem

    rows: list[Shown] = []
    for certificate in load_certificates(Pem("FILE", str(file))):
        says = described(certificate)
        found = problem_of(says, wall_ms())
        problem = found.text if found is not None else ""
        if not problem and not says.common_names:
            problem = (
                "it has no common name: only a mapping rule makes a principal of its other names"
            )
        rows.append(
            Shown(
                subject=certificate.subject.rfc4514_string(),
                names=[*says.dns_names, *says.ip_addresses, *says.emails, *says.uris],
                issuer=says.issuer,
                principal=None if problem else says.common_names[0],
                refused=problem,
                not_before=f"{certificate.not_valid_before_utc:%Y-%m-%d %H:%M} UTC",
                not_after=f"{certificate.not_valid_after_utc:%Y-%m-%d %H:%M} UTC",
                uses=uses_of(certificate),
                serial=f"{says.serial:x}",
                fingerprint=says.fingerprint.hex(),
            )
        )
    return rows


def _tell(made: "Made", *, as_json: bool) -> None:
    output.emit(
        as_json,
        made,
        lambda: output.line(
            f"made {made.certificate} and {made.key}, valid until {made.not_after}"
        ),
    )

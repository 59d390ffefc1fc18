"""Room: cli. `moor keytab`: what a keytab has, and whether it is of any use."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from moorline.cli import output
from moorline.errors import ConfigError, KerberosError

app = typer.Typer(
    no_args_is_help=True,
    help="Look at keytabs of Kerberos, and try them.",
    epilog="Example: moor keytab show /etc/moorline/moorline.keytab",
)

AsJson = Annotated[bool, typer.Option("--json", help="JSON in place of a table.")]
Keytab = Annotated[Path, typer.Argument(help="The keytab.", show_default=False)]


@app.command(epilog="Example: moor keytab show ./alice.keytab --json")
def show(keytab: Keytab, as_json: AsJson = False) -> None:
    """List the entries of a keytab: principals, versions, kinds of keys. Never the keys."""
    from moorline.net.keytab import read_keytab

    entries = read_keytab(keytab)
    found = [
        {
            "principal": one.principal,
            "kvno": one.version,
            "encryption": one.encryption,
            "is_weak": one.is_weak,
            "made": f"{datetime.fromtimestamp(one.made_s, UTC):%Y-%m-%dT%H:%M:%SZ}",
        }
        for one in entries
    ]

    def table() -> None:
        output.table(
            ("principal", "kvno", "encryption", "made"),
            [
                [
                    row["principal"],
                    str(row["kvno"]),
                    f"{row['encryption']}{' (weak)' if row['is_weak'] else ''}",
                    row["made"],
                ]
                for row in found
            ],
        )

    output.emit(as_json, {"keytab": str(keytab), "entries": found}, table)


@app.command(epilog="Example: moor keytab check ./moorline.keytab --service moorline/host@REALM")
def check(
    keytab: Keytab,
    principal: Annotated[
        str,
        typer.Option("--principal", help="Get a ticket as this one; the first entry otherwise."),
    ] = "",
    service: Annotated[
        str,
        typer.Option("--service", help="Try it as the keytab of this service, as a node does."),
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Try a keytab: whether the KDC gives a ticket for its key, or a node can take tickets with it.

    With --service a ticket for the service is got with the keytab itself and opened with it, as a client and
    a node would: then both the KDC and the keytab have the same key.
    """
    from moorline.net.keytab import read_keytab

    entries = read_keytab(keytab)
    if not entries:
        raise ConfigError(f"{str(keytab)!r} is empty: put a key into it with ktadd of kadmin")
    names = list(dict.fromkeys(one.principal for one in entries))
    wanted = service or principal
    if wanted and not any(_is_same(name, wanted) for name in names):
        raise ConfigError(
            f"{str(keytab)!r} has no key for {wanted}: it has those of {', '.join(names[:10])}"
        )
    me = principal or next((name for name in names if _is_same(name, service)), names[0])
    found = asyncio.run(_tried(keytab, me, service))
    found["weak"] = sorted({f"{one.principal} {one.encryption}" for one in entries if one.is_weak})

    def told() -> None:
        output.line(f"{found['principal']}: the KDC takes its key")
        if found["service"]:
            output.line(f"{found['service']}: tickets for it can be opened with this keytab")
        if found["weak"]:
            output.line(f"weak keys, which should be renewed: {', '.join(found['weak'])}")

    output.emit(as_json, found, told)


def _is_same(name: str, wanted: str) -> bool:
    """`wanted` may leave out its realm."""
    return name == wanted or ("@" not in wanted and name.rpartition("@")[0] == wanted)


async def _tried(keytab: Path, principal: str, service: str) -> dict[str, Any]:
    from moorline.net.kerberos import (
        COMPLETE,
        KerberosCall,
        KerberosExchange,
        KerberosService,
    )

    # A service may ask for a ticket to itself: so one keytab is enough to try both ends.
    target = service or principal
    call = KerberosCall(target, principal=principal, keytab=keytab)
    await call.prepare()
    if service:
        accepting = KerberosService(keytab, service)
        await accepting.check()
        exchange = KerberosExchange(accepting, lambda name: name)
        verdict = await exchange.check(await call.first())
        challenge = getattr(verdict, "challenge", b"")
        if not challenge.startswith(COMPLETE):
            raise KerberosError("AUTH", getattr(verdict, "text", "the keytab does not fit the KDC"))
        await call.answer(challenge)
    return {"keytab": str(keytab), "principal": principal, "service": service, "is_usable": True}

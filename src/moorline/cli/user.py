"""Room: cli. `moor user`: users with a password or tokens, and groups of users."""

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from moorline.cli import output
from moorline.cli.asking import AsJson, asked, plain
from moorline.cli.confirming import Yes, confirm
from moorline.cli.endpoint import Endpoint, with_node
from moorline.config.shown import escaped
from moorline.limits import PASSWORD_BYTES_MAX

app = typer.Typer(
    no_args_is_help=True,
    help="Make and change users, their tokens, and groups of users.",
    epilog="Example: moor user add alice",
)

Name = Annotated[str, typer.Argument(metavar="NAME", show_default=False, help="Name of the user.")]
Label = Annotated[
    str, typer.Argument(metavar="LABEL", show_default=False, help="What the token is for.")
]
Group = Annotated[
    str, typer.Argument(metavar="GROUP", show_default=False, help="A group of users, as @sales.")
]
PasswordFile = Annotated[
    Path | None,
    typer.Option(
        "--new-password-file",
        show_default=False,
        help="Its first line is the user's password from now on; - is stdin.",
    ),
]


@app.command(epilog="Example: moor user add spark --no-password")
@with_node
def add(
    endpoint: Endpoint,
    name: Name,
    password_file: PasswordFile = None,
    no_password: Annotated[
        bool, typer.Option("--no-password", help="The user has only tokens.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Make a user. The password is asked for, or read from a file; it is never an option."""
    if no_password and password_file is not None:
        raise typer.BadParameter("--no-password and --new-password-file exclude each other")
    password = b"" if no_password else _password(name, password_file)
    asked(endpoint, lambda access: access.add_user(name, password))
    output.emit(as_json, {"name": name}, lambda: output.line(f"added: {name}"))


@app.command(epilog="Example: moor user change alice --disable")
@with_node
def change(
    endpoint: Endpoint,
    name: Name,
    password: Annotated[bool, typer.Option("--password", help="Ask for a new password.")] = False,
    password_file: PasswordFile = None,
    no_password: Annotated[
        bool, typer.Option("--no-password", help="Take the password away.")
    ] = False,
    disable: Annotated[
        bool | None,
        typer.Option("--disable/--enable", help="Keep the user out, or let it in again."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Change a user. Whoever is logged on as that user is cut, and logs on again."""
    if sum((password, password_file is not None, no_password)) > 1:
        raise typer.BadParameter(
            "--password, --new-password-file and --no-password exclude each other"
        )
    new: bytes | None = b"" if no_password else None
    if password or password_file is not None:
        new = _password(name, password_file)
    if new is None and disable is None:
        raise typer.BadParameter("nothing to change: give a password, --disable or --enable")
    asked(endpoint, lambda access: access.change_user(name, password=new, is_disabled=disable))
    output.emit(as_json, {"name": name}, lambda: output.line(f"changed: {name}"))


@app.command(epilog="Example: moor user remove alice")
@with_node
def remove(endpoint: Endpoint, name: Name, yes: Yes = False, as_json: AsJson = False) -> None:
    """Remove a user with its tokens. Rows, memberships and quotas are its principal's, and stay."""
    confirm(f"Remove the user {name} and its tokens?", yes=yes)
    left = plain(asked(endpoint, lambda access: access.remove_user(name)))

    def show() -> None:
        output.line(f"removed: {name}")
        kept = [
            output.counted(left[what], word)
            for what, word in (
                ("grants", "row"),
                ("memberships", "membership"),
                ("quotas", "quota"),
            )
            if left[what]
        ]
        if kept:
            output.line(f"left for whoever proves to be {name}: {', '.join(kept)}")

    output.emit(as_json, left, show)


@app.command("list", epilog="Example: moor user list --json")
@with_node
def list_users(endpoint: Endpoint, as_json: AsJson = False) -> None:
    """List users with their groups of users and the labels of their tokens."""
    users = [plain(user) for user in asked(endpoint, lambda access: access.users())]
    columns = ("name", "is_disabled", "has_password", "groups", "tokens")
    heads = ("name", "disabled", "password", "groups", "tokens")
    output.emit(
        as_json,
        users,
        lambda: output.table(heads, [[user[name] for name in columns] for user in users]),
    )


@app.command(epilog="Example: moor user token spark nightly --expires-s 2592000 > spark.token")
@with_node
def token(
    endpoint: Endpoint,
    name: Name,
    label: Label,
    expires_s: Annotated[
        int,
        typer.Option("--expires-s", min=0, max=10**10, help="Seconds until it ends; 0 is never."),
    ] = 0,
    as_json: AsJson = False,
) -> None:
    """Make a token for a user and print it, for --token-file. It is shown this once."""
    made = plain(asked(endpoint, lambda access: access.add_token(name, label, expires_s=expires_s)))

    def show() -> None:
        output.line(made["token"])
        if made["expires_us"]:
            ends = datetime.fromtimestamp(made["expires_us"] // 1_000_000, UTC)
            sys.stderr.write(f"it ends at {ends:%Y-%m-%d %H:%M:%S} UTC\n")

    output.emit(as_json, made, show)


@app.command(epilog="Example: moor user revoke spark nightly")
@with_node
def revoke(
    endpoint: Endpoint, name: Name, label: Label, yes: Yes = False, as_json: AsJson = False
) -> None:
    """Take a token back. Whoever is logged on with it is cut."""
    confirm(f"Take the token {label} of {name} back, for good?", yes=yes)
    asked(endpoint, lambda access: access.revoke_token(name, label))
    output.emit(
        as_json, {"name": name, "label": label}, lambda: output.line(f"revoked: {name} {label}")
    )


@app.command(epilog="Example: moor user join @sales alice")
@with_node
def join(endpoint: Endpoint, group: Group, name: Name, as_json: AsJson = False) -> None:
    """Put a principal into a group of users. It need not be a user: certificates prove principals too."""
    is_changed = asked(endpoint, lambda access: access.add_member(group, name))
    text = f"{name} is in {group}" if is_changed else f"{name} was in {group} already"
    output.emit(as_json, {"is_changed": is_changed}, lambda: output.line(text))


@app.command(epilog="Example: moor user leave @sales alice")
@with_node
def leave(endpoint: Endpoint, group: Group, name: Name, as_json: AsJson = False) -> None:
    """Take a principal out of a group of users."""
    is_changed = asked(endpoint, lambda access: access.remove_member(group, name))
    text = f"{name} is not in {group}" if is_changed else f"{name} was not in {group}"
    output.emit(as_json, {"is_changed": is_changed}, lambda: output.line(text))


@app.command(epilog="Example: moor user members @sales")
@with_node
def members(
    endpoint: Endpoint,
    group: Annotated[str, typer.Argument(metavar="GROUP", help="Without it: all of them.")] = "",
    as_json: AsJson = False,
) -> None:
    """List groups of users and who is in them."""
    rows = [plain(row) for row in asked(endpoint, lambda access: access.members(group))]
    output.emit(
        as_json,
        rows,
        lambda: output.table(("group", "member"), [(row["group"], row["member"]) for row in rows]),
    )


def _password(name: str, file: Path | None) -> bytes:
    """From a file or a prompt: what stands on a command line is in every list of processes."""
    if file is None:
        text = typer.prompt(
            f"New password of {escaped(name)}", hide_input=True, confirmation_prompt=True, err=True
        )
    else:
        try:
            whole = sys.stdin.read() if str(file) == "-" else file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
            raise typer.BadParameter(f"--new-password-file {file} cannot be read: {why}") from None
        text = whole.partition("\n")[0].removesuffix("\r")
    password = str(text).encode()
    if not 1 <= len(password) <= PASSWORD_BYTES_MAX:
        raise typer.BadParameter(f"a password has 1 to {PASSWORD_BYTES_MAX} bytes")
    return password

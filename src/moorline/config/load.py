"""Room: config. Puts a configuration together: flags over environment over file over defaults.

Every mistake is found before any is reported: the ConfigError has one line for each, with the key,
the value, where it came from, and what is accepted.
"""

import difflib
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from moorline.config.keys import VARIABLE_PREFIX, Key, keys_of, sections_of
from moorline.config.settings import OTHER_VARIABLES, Config, Problem
from moorline.config.shown import escaped, shown
from moorline.errors import ConfigError

FILE_NAME = "moorline.toml"

T = TypeVar("T", bound=msgspec.Struct)


@dataclass(frozen=True)
class Loaded(Generic[T]):
    config: T
    sources: dict[str, str]
    """By key: "flag", "environment MOOR_DATA", "file moorline.toml" or "default"."""
    again: "Callable[[], Loaded[T]] | None" = None

    def read_again(self) -> "Loaded[T]":
        """The same flags, variables and file once more; what is in the file may be another by then."""
        return self if self.again is None else self.again()


@dataclass(frozen=True)
class Given:
    """A value that someone set, and where."""

    name: str
    value: object
    source: str
    is_text: bool
    """Flags and variables are text, parsed by the key's type; the file has types of its own."""


def load(
    flags: Mapping[str, object], environment: Mapping[str, str], file: Path | None
) -> Loaded[Config]:
    """A node's configuration. `file` is what --config named; None looks in the usual places."""
    # Copies: whoever gave them may change them before they are read again.
    again = partial(load_as, Config, dict(flags), dict(environment), file)
    return replace(again(), again=again)


def load_as(
    kind: type[T], flags: Mapping[str, object], environment: Mapping[str, str], file: Path | None
) -> Loaded[T]:
    keys = keys_of(kind)
    complaints: list[str] = []
    given: dict[str, Given] = {}
    # From the weakest to the strongest, so that the last one to set a key is the one that counts.
    for one in (
        *_from_file(keys, environment, file, complaints),
        *_from_environment(keys, environment, complaints),
        *_from_flags(flags),
    ):
        if one.name in keys:
            given[one.name] = one
        else:
            complaints.append(_unknown(one, keys))
    values: dict[str, object] = {}
    refused: set[str] = set()
    for name, one in given.items():
        try:
            values[name] = _checked(keys[name], one)
        except ValueError:  # msgspec.ValidationError is one
            refused.add(name)
            complaints.append(f"{_place(one)}: accepted: {keys[name].accepted}")
    config = _built(kind, values)
    for problem in _problems(config, ""):
        # What is compared with a refused value would be compared with a default in its place.
        if refused.isdisjoint(problem.keys):
            name = problem.keys[0]
            one = given.get(name) or Given(name, keys[name].default, "default", is_text=False)
            complaints.append(f"{_place(one)}: {escaped(problem.accepted)}")
    if complaints:
        raise ConfigError("\n".join(complaints))
    sources = {name: given[name].source if name in given else "default" for name in keys}
    return Loaded(config, sources)


def _from_file(
    keys: Mapping[str, Key],
    environment: Mapping[str, str],
    file: Path | None,
    complaints: list[str],
) -> list[Given]:
    named = file or (Path(environment["MOOR_CONFIG"]) if environment.get("MOOR_CONFIG") else None)
    path = named or Path(FILE_NAME)
    shown_path = escaped(str(path))
    try:
        with path.open("rb") as stream:
            tree = tomllib.load(stream)
    except FileNotFoundError:
        if named is None:
            return []
        by = "--config" if file else "MOOR_CONFIG"
        complaints.append(f"file {shown_path}, named by {by}, does not exist: name one that does")
    except OSError as error:
        complaints.append(f"file {shown_path} cannot be read: {error.strerror}")
    except UnicodeDecodeError as error:
        complaints.append(f"file {shown_path} is not UTF-8 text: byte {error.start} is not")
    except tomllib.TOMLDecodeError as error:
        complaints.append(f"file {shown_path} is not TOML: {escaped(str(error))}")
    else:
        return list(_flat(tree, "", f"file {shown_path}", sections_of(dict(keys))))
    return []


def _flat(
    tree: Mapping[str, object], prefix: str, source: str, sections: set[str]
) -> Iterator[Given]:
    """Tables become dotted keys where a section is known; another table stays a (wrong) value."""
    for name, value in tree.items():
        if isinstance(value, dict) and prefix + name in sections:
            yield from _flat(value, f"{prefix}{name}.", source, sections)
        else:
            yield Given(prefix + name, value, source, is_text=False)


def _from_environment(
    keys: Mapping[str, Key], environment: Mapping[str, str], complaints: list[str]
) -> Iterator[Given]:
    names = {key.variable: name for name, key in keys.items()}
    for variable, text in environment.items():
        if not variable.startswith(VARIABLE_PREFIX) or variable in OTHER_VARIABLES:
            continue
        if variable in names:
            yield Given(names[variable], text, f"environment {variable}", is_text=True)
        else:
            accepted = [*names, *OTHER_VARIABLES]
            complaints.append(
                f"environment variable {escaped(variable)} is unknown{_meant(variable, accepted)}"
            )


def _from_flags(flags: Mapping[str, object]) -> Iterator[Given]:
    for name, value in flags.items():
        yield Given(name, value, "flag", is_text=True)


def _checked(key: Key, one: Given) -> object:
    value = one.value
    if one.is_text and isinstance(value, str):
        value = key.parsed(value)
    return key.checked(value)


def _built(kind: type[T], values: Mapping[str, object]) -> T:
    tree: dict[str, object] = {}
    for name, value in values.items():
        *sections, last = name.split(".")
        table = tree
        for section in sections:
            inner = table.setdefault(section, {})
            assert isinstance(inner, dict)
            table = inner
        table[last] = value
    return msgspec.convert(tree, kind)


def _problems(config: msgspec.Struct, prefix: str) -> Iterator[Problem]:
    """What the Struct and its sections say about themselves, with the keys made whole."""
    own: Iterable[Problem] = getattr(config, "problems", tuple)()
    for problem in own:
        yield Problem(tuple(prefix + name for name in problem.keys), problem.accepted)
    for field in msgspec.structs.fields(config):
        value = getattr(config, field.name)
        if isinstance(value, msgspec.Struct):
            yield from _problems(value, f"{prefix}{field.name}.")


def _unknown(one: Given, keys: Mapping[str, Key]) -> str:
    inside = [name for name in keys if name.startswith(one.name + ".")]
    if inside:
        return f"{_place(one)}: it is a section; set one of {', '.join(inside)}"
    return f"{escaped(one.name)} (from {one.source}) is not a setting{_meant(one.name, keys)}"


def _meant(name: str, accepted: Iterable[str]) -> str:
    """A guess is enough to go on with; where there is none, all names are told."""
    names = list(accepted)
    close = difflib.get_close_matches(name, names, n=1)
    if close:
        return f", did you mean {close[0]}? Without it, moor config show lists all"
    return f"; accepted: {', '.join(names)}"


def _place(one: Given) -> str:
    return f"{escaped(one.name)} = {shown(one.value)} (from {one.source})"

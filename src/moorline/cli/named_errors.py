"""Room: cli. Commands whose errors say their class: of values and the resolver, where the same words may come
of a resolver, a publisher or a proof, and what to do depends on which."""

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from moorline.errors import ConfigError, KerberosError, MoorlineError

P = ParamSpec("P")
R = TypeVar("R")


def naming_errors(command: Callable[P, R]) -> Callable[P, R]:
    """The line of an error begins with its class: `moor: NotFound: /oslo: nobody publishes it …`."""

    @functools.wraps(command)
    def named(*args: P.args, **options: P.kwargs) -> R:
        try:
            return command(*args, **options)
        except ConfigError:
            raise  # a mistake in a flag or a file, with a line for each
        except MoorlineError as error:
            said = f"{type(error).__name__}: {error}"
            error.args = (said, *error.args[1:])
            if isinstance(error, KerberosError):
                error.text = said  # which is all that it shows
            raise

    return named

"""Room: config. What an operator may set, where it may be set, and what is refused and why.

`load` is imported from its own module: the client library needs only `addresses`, which is light.
"""

from moorline.config.settings import Config

__all__ = ["Config"]

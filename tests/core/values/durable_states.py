"""What a machine of wanted paths knows of one of them; nobody else asks it path by path."""

from moorline.core.values.durable import Durable, PathState


def state_of(durable: Durable, path: str) -> PathState | None:
    found = durable._paths.get(path)
    return found.state if found is not None else None

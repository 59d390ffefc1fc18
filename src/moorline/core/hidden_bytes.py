"""Room: core. Structs that hold secrets, as logs and stories show them: by how many bytes there are."""

import msgspec


def without_bytes(struct: msgspec.Struct) -> str:
    """The text of a struct, for its `__repr__`: bytes are counted, and never shown."""
    # By type, and not by a list of names: a field that is added later is counted too, whoever forgets that
    # it is secret.
    fields = (
        f"{name}=<{len(value)} bytes>" if isinstance(value, bytes) else f"{name}={value!r}"
        for name, value in ((name, getattr(struct, name)) for name in struct.__struct_fields__)
    )
    return f"{type(struct).__name__}({', '.join(fields)})"

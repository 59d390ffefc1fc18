"""`moor doctor`, `moor top` and `moor bench`."""

from moorline.limits.units import MIB

DOCTOR_DISK_FREE_BYTES = 1_024 * MIB
"""Room below which `moor doctor` advises to make some: sixteen times the reserve, a night of a small node."""

DOCTOR_SYNCS = 16
"""Blocks that it syncs to find how long the disk takes: a second on a slow one."""

DOCTOR_SYNC_MS = 20
"""Longest median of these that is not told: at more, one client gets 50 answers a second."""

DOCTOR_ANSWER_MS_MAX = 5_000
"""Time that a node or a catalog has to answer it."""

TOP_REACH_MS_MAX = 2_000
"""So long `moor top` waits for the figures of a node."""

FIGURES_BYTES_MAX = 4_194_304
"""What it takes of them: some 100 KiB today."""

BENCH_SECONDS_MAX = 60
"""So long a part of `moor bench` takes at most."""

BENCH_CLIENTS_MAX = 64
"""As many connections it opens at once."""

BENCH_BODY_BYTES_MAX = 65_536
"""Of a message of it."""

BENCH_BATCH = 64
"""Messages of a call of it: half of what a queue takes."""

BENCH_TTL_S = 60
"""What it has published is delivered to nobody behind that."""

"""Room: journal. Syncs that the kernel does by itself: begun by one call, told of by a descriptor.

    syncs = BegunSyncs.of(folder)          # None where the kernel does not do it
    loop.add_reader(syncs.fileno(), syncs.told)
    syncs.begin(file, done)                # done(None) when what was written to the file is durable

A sync in the loop stops everybody for as long as the disk takes; one in a thread costs two switches of
threads, which wait for the interpreter when it is busy. This is neither: Linux does an fdatasync behind an
`io_submit` (IOCB_CMD_FDSYNC) in a thread of its own, and counts up an eventfd when it is done. It takes as
long as a sync in the loop does, and the loop goes on meanwhile (docs/decisions/0111).

    iocb      data u64 · key u32 · rw_flags u32 · opcode u16 · prio i16 · fd u32 · buf u64 · nbytes u64 ·
              offset i64 · reserved u64 · flags u32 · resfd u32
    io_event  data u64 · obj u64 · res i64 · res2 i64

These are the kernel's own structures (linux/aio_abi.h), in the order of bytes of the machine.
"""

import ctypes
import errno
import os
import platform
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Final, Protocol, cast

from moorline.journal.disk import DiskFile

Done = Callable[[BaseException | None], None]

BEGUN_MAX: Final = 8
"""Syncs under way at once; a store has one."""

_FDSYNC: Final = 3
_HAS_RESFD: Final = 1
_CALLS: Final = {
    # io_setup, io_destroy, io_getevents, io_submit
    "x86_64": (206, 207, 208, 209),
    "aarch64": (0, 1, 4, 2),
}


class BegunSyncs(Protocol):
    """Whoever syncs without holding its caller up."""

    def begin(self, file: DiskFile, done: Done) -> None:
        """Calls back later, when what was written to the file is durable, or with the error."""


class Described(Protocol):
    """A file of a `FileDisk`."""

    def fileno(self) -> int: ...


class _Control(ctypes.Structure):
    _fields_: ClassVar[list[Any]] = [
        ("data", ctypes.c_uint64),
        ("key", ctypes.c_uint32),
        ("rw_flags", ctypes.c_uint32),
        ("opcode", ctypes.c_uint16),
        ("prio", ctypes.c_int16),
        ("descriptor", ctypes.c_uint32),
        ("buffer", ctypes.c_uint64),
        ("length", ctypes.c_uint64),
        ("offset", ctypes.c_int64),
        ("reserved", ctypes.c_uint64),
        ("flags", ctypes.c_uint32),
        ("result_descriptor", ctypes.c_uint32),
    ]


class _Event(ctypes.Structure):
    _fields_: ClassVar[list[Any]] = [
        ("data", ctypes.c_uint64),
        ("control", ctypes.c_uint64),
        ("result", ctypes.c_int64),
        ("result2", ctypes.c_int64),
    ]


class KernelSyncs:
    """`BegunSyncs` by the kernel, for files of a `FileDisk`. One thread calls all of it."""

    def __init__(self, calls: tuple[int, int, int, int]) -> None:
        self._setup, self._destroy, self._get, self._submit = calls
        self._call = ctypes.CDLL(None, use_errno=True).syscall
        self._call.restype = ctypes.c_long
        self._context = ctypes.c_ulong(0)
        if self._call(self._setup, BEGUN_MAX, ctypes.byref(self._context)) < 0:
            raise _error()
        self._told = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._events = (_Event * BEGUN_MAX)()
        self._next = 0
        self._begun: dict[int, tuple[Done, _Control, Any]] = {}
        self._failed: list[tuple[Done, OSError]] = []
        self._spare: list[tuple[_Control, Any]] = []
        """Each with the list of one in which the kernel takes it."""

    @staticmethod
    def of(folder: Path) -> "KernelSyncs | None":
        """None where the kernel, or what guards it, does not do it for files of that folder."""
        calls = _CALLS.get(platform.machine())
        if sys.platform != "linux" or calls is None:
            return None
        try:
            syncs = KernelSyncs(calls)
        except OSError:
            return None
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            syncs._begin(descriptor, lambda _: None)
            return syncs
        except OSError:
            syncs.close()
            return None
        finally:
            os.close(descriptor)

    def fileno(self) -> int:
        """Readable when there is something to tell."""
        return self._told

    def begin(self, file: DiskFile, done: Done) -> None:
        descriptor = cast("Described", file).fileno()
        try:
            self._begin(descriptor, done)
        except OSError as error:
            # The kernel has taken others before: it is as much a failure as that of the sync itself.
            self._failed.append((done, error))
            os.eventfd_write(self._told, 1)

    def _begin(self, descriptor: int, done: Done) -> None:
        if self._spare:
            control, pointers = self._spare.pop()
        else:
            control = _Control()
            pointers = (ctypes.POINTER(_Control) * 1)(ctypes.pointer(control))
        control.opcode, control.flags = _FDSYNC, _HAS_RESFD
        control.descriptor, control.result_descriptor = descriptor, self._told
        self._next += 1
        control.data = self._next
        if self._call(self._submit, self._context, 1, pointers) < 0:
            raise _error()
        self._begun[self._next] = done, control, pointers

    def told(self) -> None:
        """Calls back for all that are done."""
        try:
            os.eventfd_read(self._told)
        except BlockingIOError:
            return
        failed, self._failed = self._failed, []
        for done, error in failed:
            done(error)
        while self._take_told() == BEGUN_MAX:
            # There may be more, as that by which it was tried whether the kernel does it: the descriptor has
            # told of all of them, and tells of none again.
            pass

    def _take_told(self) -> int:
        count: int = self._call(self._get, self._context, 0, BEGUN_MAX, self._events, None)
        if count < 0:
            raise _error()
        for event in self._events[:count]:
            done, control, pointers = self._begun.pop(event.data)
            self._spare.append((control, pointers))
            number = -event.result
            done(OSError(number, os.strerror(number)) if number else None)
        return count

    def close(self) -> None:
        """Waits for what is under way; nobody is told of it."""
        self._call(self._destroy, self._context)
        self._begun.clear()
        os.close(self._told)


def _error() -> OSError:
    """Of the call that has just failed."""
    number = ctypes.get_errno() or errno.EIO
    return OSError(number, os.strerror(number))

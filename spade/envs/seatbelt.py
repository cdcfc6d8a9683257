"""Level L1, macOS: the Seatbelt profile of a worker. Standard library only. Never run on a Mac by us.

The profile is applied by each worker to itself (`sandbox_init`, from the system library), not to the zygote
by `sandbox-exec`, for three reasons. A process can be put under Seatbelt once only, and a profile that lets
the zygote fork and start Python would let every worker do the same. After the fork everything a program may
use is loaded, so the profile can refuse all of it, and no list of what an interpreter needs to start has to
be kept right. And a worker sees no program before it is locked in, exactly as on Linux.
"""

from __future__ import annotations

import ctypes
import errno
import os
import sys

LIBRARY = "/usr/lib/libsandbox.1.dylib"
PROFILE = """\
(version 1)
(deny default)
(deny file-read*)
(deny file-write*)
(deny network*)
(deny process-exec)
(deny process-fork)
(deny signal)
(allow signal (target self))
"""
"""What a program may do: compute, answer on its open socket, and signal itself. The refusals after the first
line repeat what `deny default` says; they are there to be read."""


def load() -> ctypes.CDLL:
    """The library that holds `sandbox_init`. Raises OSError on other systems."""
    if sys.platform != "darwin":
        raise OSError(errno.ENOSYS, "Seatbelt exists on macOS only")
    return ctypes.CDLL(LIBRARY)


def apply(library: ctypes.CDLL, profile: str = PROFILE) -> None:
    """Put this process under `profile` for good. Raises OSError with the system's message."""
    message = ctypes.c_char_p()
    initialise = library.sandbox_init
    initialise.argtypes = (ctypes.c_char_p, ctypes.c_uint64, ctypes.POINTER(ctypes.c_char_p))
    initialise.restype = ctypes.c_int
    if initialise(profile.encode(), 0, ctypes.byref(message)) != 0:  # flags 0: the text is the profile
        text = (message.value or b"no reason given").decode(errors="replace")
        raise OSError(errno.EPERM, f"Seatbelt: {text}")


def leave_root(uid: int) -> None:
    """Become `uid` where this process is root; elsewhere it stays who it is."""
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(uid)
        os.setuid(uid)

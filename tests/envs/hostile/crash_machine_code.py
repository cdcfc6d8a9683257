"""Machine code that calls the kernel by its 32-bit door."""

import ctypes


class HostEnv:
    def reset(self, seed=None):
        return "obs", {}

    def step(self, action):
        libc = ctypes.CDLL(None)
        libc.mmap.restype = ctypes.c_void_p
        libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
        page = libc.mmap(None, 4096, 7, 0x22, -1, 0)
        code = b"\xb8\x14\x00\x00\x00\xcd\x80\xc3"
        ctypes.memmove(page, code, len(code))
        return str(ctypes.CFUNCTYPE(ctypes.c_int)(page)()), 0.0, False, False, {}

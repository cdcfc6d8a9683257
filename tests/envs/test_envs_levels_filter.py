"""The seccomp filter: numbers against the kernel's headers, and its program run by an emulator."""

from __future__ import annotations

import errno
import re
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from spade.envs import confine

ARCHES = ("x86_64", "aarch64")
TABLES = {"ALLOWED": confine.ALLOWED, "DEADLY": confine.DEADLY, "SPECIAL": confine.SPECIAL}
ALLOW, KILL, ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
EPERM = ERRNO | errno.EPERM
X32 = 0x40000000
HEADERS = {
    "x86_64": (Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"), Path("/usr/include/asm/unistd_64.h")),
    "aarch64": (Path("/usr/include/asm-generic/unistd.h"),),  # aarch64 uses the generic table
}


def numbers(arch: str) -> dict[str, int]:
    """Every call of the three tables on `arch`."""
    column = confine.COLUMNS[arch]
    named = {name: pair[column] for table in TABLES.values() for name, pair in table.items()}
    return {name: number for name, number in named.items() if number is not None}


def emulate(program: bytes, number: int, arch: int, arguments: tuple[int, ...] = ()) -> int:
    """What the kernel would answer: classic BPF over `struct seccomp_data`."""
    data = struct.pack("<IIQ6Q", number, arch, 0, *(*arguments, *[0] * (6 - len(arguments))))
    at = register = 0
    tests: dict[int, Callable[[int, int], bool]] = {
        0x15: lambda a, k: a == k,  # BPF_JMP | BPF_JEQ | BPF_K
        0x35: lambda a, k: a >= k,  # BPF_JMP | BPF_JGE | BPF_K
    }
    while True:
        code, true, false, k = struct.unpack_from("=HBBI", program, at * 8)  # past the end: struct.error
        at += 1
        if code == 0x20:  # BPF_LD | BPF_W | BPF_ABS
            assert k % 4 == 0 and k <= len(data) - 4
            register = struct.unpack_from("<I", data, k)[0]
        elif code in tests:
            at += true if tests[code](register, k) else false
        else:
            assert code == 0x06, f"instruction {code:#x}"  # BPF_RET | BPF_K
            return int(k)


@pytest.mark.parametrize("arch", ARCHES)
def test_no_number_stands_twice(arch: str) -> None:
    column = confine.COLUMNS[arch]
    listed = [pair[column] for table in TABLES.values() for pair in table.values()]
    present = [number for number in listed if number is not None]
    assert len(present) == len(set(present)) == len(numbers(arch))
    names = [name for table in TABLES.values() for name in table]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("arch", ARCHES)
def test_numbers_are_those_of_the_kernel_headers(arch: str) -> None:
    header = next((path for path in HEADERS[arch] if path.is_file()), None)
    if header is None:
        pytest.skip(f"no kernel header with the numbers of {arch}")
    found = dict(re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)\b", header.read_text()))
    assert {name: int(found.get(name, -1)) for name in numbers(arch)} == numbers(arch)


def test_numbers_used_outside_the_tables() -> None:
    """Landlock's are the same everywhere; capset, pivot_root and inotify_init1 are kept beside their use."""
    for arch in ARCHES:
        header = next((path for path in HEADERS[arch] if path.is_file()), None)
        if header is None:
            pytest.skip(f"no kernel header with the numbers of {arch}")
        found = dict(re.findall(r"#define __NR_(\w+)\s+(\d+)\b", header.read_text()))
        assert int(found["capset"]) == confine._CAPSET[arch]
        assert int(found["pivot_root"]) == numbers(arch)["pivot_root"]
        for name, number in (("landlock_create_ruleset", 444), ("landlock_restrict_self", 446)):
            assert int(found.get(name, number)) == number  # headers before 5.13 lack them


@pytest.mark.parametrize("arch", ARCHES)
def test_the_filter_decides_as_its_tables_say(arch: str) -> None:
    program, audit = confine.build_filter(arch), confine.AUDIT_ARCH[arch]
    column = confine.COLUMNS[arch]
    allowed = {pair[column] for pair in confine.ALLOWED.values()}
    deadly = {pair[column] for pair in confine.DEADLY.values()}
    special = {pair[column] for pair in confine.SPECIAL.values()}
    for number in range(1024):
        if number in special:
            continue
        expected = ALLOW if number in allowed else KILL if number in deadly else EPERM
        assert emulate(program, number, audit) == expected, number
        assert emulate(program, number, audit, (2**64 - 1,) * 6) == expected, number


@pytest.mark.parametrize("arch", ARCHES)
def test_other_architectures_and_x32_end_the_process(arch: str) -> None:
    program, audit = confine.build_filter(arch), confine.AUDIT_ARCH[arch]
    for other in {*confine.AUDIT_ARCH.values(), 0x40000003, 0x40000028, 0} - {audit}:  # i386, arm
        assert {emulate(program, number, other) for number in range(1024)} == {KILL}
    if arch == "x86_64":
        assert {emulate(program, X32 | number, audit) for number in range(1024)} == {KILL}
        assert emulate(program, 0xFFFFFFFF, audit) == KILL
    assert emulate(program, 0x3FFFFFFF, audit) == EPERM


@pytest.mark.parametrize("arch", ARCHES)
def test_calls_that_depend_on_their_arguments(arch: str) -> None:
    program, audit, number = confine.build_filter(arch), confine.AUDIT_ARCH[arch], numbers(arch)
    assert emulate(program, number["ioctl"], audit, (1, 0x5413)) == ERRNO | errno.ENOTTY
    assert emulate(program, number["clone3"], audit) == ERRNO | errno.ENOSYS
    verdicts = {command: emulate(program, number["fcntl"], audit, (3, command)) for command in range(1100)}
    assert {command for command, verdict in verdicts.items() if verdict == ALLOW} == {1, 2, 3}
    assert set(verdicts.values()) == {ALLOW, EPERM}
    for pointer in (1, 0x7FFF0000, 1 << 32, 0x7FFF00000000, 2**64 - 1):
        assert emulate(program, number["prlimit64"], audit, (0, 7, pointer)) == EPERM
    assert emulate(program, number["prlimit64"], audit, (0, 7, 0)) == ALLOW


@pytest.mark.parametrize("arch", ARCHES)
def test_the_program_is_one_the_kernel_accepts(arch: str) -> None:
    """Whole instructions, at most 4,096, every jump forward and inside, a return at the end."""
    program = confine.build_filter(arch)
    count, rest = divmod(len(program), 8)
    assert rest == 0 and 0 < count <= 4096
    for at in range(count):
        code, true, false, _ = struct.unpack_from("=HBBI", program, at * 8)
        if code in (0x15, 0x35):
            assert at + 1 + max(true, false) < count
    assert struct.unpack_from("=H", program, (count - 1) * 8)[0] == 0x06


def test_nothing_that_takes_a_path_or_makes_a_process_is_allowed() -> None:
    forbidden = (
        "open stat exec fork clone socket connect bind send link mkdir rename chmod kill mount rlimit64"
    )
    names = [*confine.ALLOWED, *confine.SPECIAL]
    matches = {name for name in names for word in forbidden.split() if word in name and name != "clone3"}
    assert matches == {"prlimit64"}  # to read limits only

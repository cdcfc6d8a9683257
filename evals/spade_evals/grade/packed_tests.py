"""LiveCodeBench's tests as its files hold them: JSON, or base64 of zlib of a pickled JSON string.

Unpickling runs whatever a file says. So the pickle is never loaded: its opcodes are read, and only a stream
that puts one string on the stack and stops is accepted.
"""

from __future__ import annotations

import base64
import binascii
import json
import pickletools
import zlib
from typing import Any, Final

from spade.errors import InputError

MAX_BYTES: Final = 1 << 30
"""Tests of one problem after decompression. Upstream's largest stay well below; a zip bomb does not."""

_STRINGS: Final = {"UNICODE", "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8"}
_HARMLESS: Final = {"PROTO", "FRAME", "MEMOIZE", "PUT", "BINPUT", "LONG_BINPUT"}


def decode_tests(text: str, where: str) -> list[dict[str, Any]]:
    """The tests in a `public_test_cases` or `private_test_cases` field: `{input, output, testtype}` each.

    `where` names the problem in errors. Raises InputError for anything that is neither of the two forms.
    """
    content = text if text.lstrip()[:1] in ("[", "") else _unpacked(text, where)
    try:
        tests = json.loads(content) if content.strip() else []
    except ValueError as error:
        raise InputError(f"{where}: the tests are not JSON ({error}); check the data file") from error
    if not isinstance(tests, list) or not all(map(_is_test, tests)):
        raise InputError(f"{where}: the tests are not a list of input and output texts; check the data file")
    return tests


def encode_tests(tests: list[dict[str, str]]) -> str:
    """The packed form of `tests`, as LiveCodeBench's files hold it."""
    import pickle

    return base64.b64encode(zlib.compress(pickle.dumps(json.dumps(tests)))).decode("ascii")


def pickled_string(data: bytes, where: str) -> str:
    """The string in a pickle that holds nothing else. Raises InputError for any other pickle."""
    found: list[str] = []
    try:
        for opcode, argument, _ in pickletools.genops(data):
            if opcode.name in _STRINGS and not found:
                found.append(str(argument))
            elif opcode.name == "STOP" and found:
                return found[0]
            elif opcode.name not in _HARMLESS:
                raise InputError(
                    f"{where}: the packed tests are a pickle with {opcode.name}, not one string; refused"
                )
    except ValueError as error:
        raise InputError(f"{where}: the packed tests are a broken pickle ({error})") from error
    raise InputError(f"{where}: the packed tests are a pickle without a string; refused")


def _unpacked(text: str, where: str) -> str:
    try:
        packed = base64.b64decode(text, validate=True)
        reader = zlib.decompressobj()
        data = reader.decompress(packed, MAX_BYTES)
    except (binascii.Error, ValueError, zlib.error) as error:
        raise InputError(f"{where}: the tests are neither JSON nor packed tests ({error})") from error
    if reader.unconsumed_tail:
        raise InputError(f"{where}: the packed tests hold more than {MAX_BYTES >> 20} MiB; refused")
    if not reader.eof:
        raise InputError(f"{where}: the packed tests are cut off; fetch the data file again")
    return pickled_string(data, where)


def _is_test(test: Any) -> bool:
    return (
        isinstance(test, dict) and isinstance(test.get("input"), str) and isinstance(test.get("output"), str)
    )

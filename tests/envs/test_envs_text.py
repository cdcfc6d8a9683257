"""Everything that needs no sandbox: screen, fingerprints, frames, filter, floors, action wrapping."""

from __future__ import annotations

import ast
import errno
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spade.envs import confine
from spade.envs.contract import ALLOWED_MODULES, bare, boxed_content, solution_actions, wrap_action
from spade.envs.duplicates import masked
from spade.envs.fingerprint import NoveltyIndex, canonical, skeleton
from spade.envs.floors import (
    CLOSED_LOOP,
    View,
    character_readers,
    code_words,
    context_readers,
    guessed_commands,
    items,
    open_loop,
    reading_rates,
)
from spade.envs.leaks import shows
from spade.envs.screen import Refused, screen
from spade.envs.wire import (
    MAX_FRAME,
    FrameReader,
    Op,
    ProtocolError,
    check_result,
    decode_answer,
    encode_request,
    repair,
)
from spade.errors import ProgramFault
from spade.types import EnvProgram

CODE = '''
import random
class AEnv:
    """Doc."""
    def reset(self, seed: int = None):
        # comment
        rng = random.Random(seed)
        self.value = rng.randint(1, 20)
        return "guess", {}
    def step(self, action):
        return "x", 0.0, False, True, {}
'''


# --- contract ------------------------------------------------------------------------------------------


@given(st.text(max_size=40))
def test_wrapping_is_idempotent(text: str) -> None:
    once = wrap_action(text)
    assert wrap_action(once) == once or boxed_content(once) is None
    if text.count("{") == text.count("}") == 0:
        assert boxed_content(once) == text and bare(once) == text.strip()


def test_boxes_and_solutions() -> None:
    assert boxed_content(r"\boxed{a} or \boxed{b{c}}") == "b{c}"
    assert boxed_content(r"\boxed{a} or \boxed{b") == "a"
    assert boxed_content("none") is None
    assert solution_actions("4", "multi_turn") == [r"\boxed{4}"]
    assert solution_actions(["up", r"\boxed{x}"], "multi_turn") == [r"\boxed{up}", r"\boxed{x}"]
    assert solution_actions(["<answer>done</answer>"], "tool_use") == ["<answer>done</answer>"]


# --- screen --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "reason", "line"),
    [
        ("import os\n" + CODE, "import_refused", "Line 1"),
        ("from os import path\n" + CODE, "import_refused", "Line 1"),
        ("from . import x\n" + CODE, "import_refused", "Line 1"),
        (CODE + "\nx = eval('1')", "forbidden_name", "`eval`"),
        (CODE + "\nx = ().__class__.__subclasses__()", "forbidden_name", "__subclasses__"),
        ("x = (", "syntax", "Line 1"),
        ("x = 1", "no_env_class", "Env"),
        ("x = '\0'", "syntax", ""),
        ("x = " + "(" * 5000, "syntax", ""),
        (CODE.replace("def step", "def stop"), "missing_method", "step"),
    ],
)
def test_screen_says_what_and_where(code: str, reason: str, line: str) -> None:
    with pytest.raises(Refused) as caught:
        screen(code, 20_000)
    assert caught.value.code == reason and line in caught.value.detail


def test_screen_accepts_every_allowed_module() -> None:
    imports = "from __future__ import annotations\n" + "".join(f"import {m}\n" for m in ALLOWED_MODULES)
    screen(imports + "from collections.abc import Mapping\n" + CODE, 20_000)
    assert not {"os", "sys", "socket", "subprocess", "ctypes", "threading"} & set(ALLOWED_MODULES)


# --- fingerprint ---------------------------------------------------------------------------------------


def test_renaming_and_comments_are_no_new_game() -> None:
    renamed = CODE.replace("rng", "generator").replace("value", "secret").replace("AEnv", "BEnv")
    renamed = renamed.replace('"""Doc."""', "").replace("# comment", "# other").replace(": int", "")
    assert canonical(renamed) == canonical(CODE)
    other = CODE.replace("20", "30")
    assert canonical(other) != canonical(CODE)
    assert skeleton(other) == skeleton(CODE)
    assert canonical("not python (") == "not python ("


def test_novelty_index() -> None:
    index = NoveltyIndex(threshold=0.8, capacity=2)
    first = EnvProgram.of(CODE)
    index.add(first)
    assert index.twin_of(EnvProgram.of(CODE.replace("rng", "r2"))) == first.id
    assert index.twin_of(EnvProgram.of(CODE.replace("20", "30"))) == first.id  # nearly the same
    assert NoveltyIndex().twin_of(first) is None
    copy = NoveltyIndex(threshold=0.8)
    copy.load_state_dict(index.state_dict())
    assert copy.twin_of(EnvProgram.of(CODE.replace("rng", "r2"))) == first.id
    for n in range(2):
        index.add(EnvProgram.of(f"class X{n}Env:\n    a = {n}\n    def f(self): return {'[' * n}{']' * n}"))
    assert len(index) == 2 and index.twin_of(first) is None


# --- wire ----------------------------------------------------------------------------------------------


@given(st.lists(st.binary(min_size=1, max_size=50), max_size=6), st.integers(1, 7))
def test_frames_survive_any_cutting(bodies: list[bytes], step: int) -> None:
    data = b"".join(struct.pack(">I", len(b)) + b for b in bodies)
    reader, seen = FrameReader(), []
    for i in range(0, len(data), step):
        seen += reader.feed(data[i : i + step])
    assert seen == bodies and not reader.buffer


@pytest.mark.parametrize("header", [b"\0\0\0\0", struct.pack(">I", MAX_FRAME + 1), b"\xff\xff\xff\xff"])
def test_bad_frame_lengths(header: bytes) -> None:
    with pytest.raises(ProtocolError):
        FrameReader().feed(header)


@pytest.mark.parametrize(
    "body",
    [
        b"nonsense",
        b"[1]",
        b'{"r":1}',
        b'{"r":[NaN]}',
        b'{"r":[Infinity]}',
        b"[" * 200_000,
        b'{"r":[],"v":[1]}',
        b"\xff",
        b'{"r":[' + b"9" * 5000 + b"]}",
    ],
)
def test_bad_json(body: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_answer(body)


STEP, RESET, PLAY = Op.step(0, "a"), Op.reset(0, 1), Op.play(0, 1, ["a"])


@pytest.mark.parametrize(
    ("op", "raw"),
    [
        (STEP, ["x", 1.0, True]),
        (STEP, ["x", True, True, False]),
        (STEP, ["x", 10**400, True, False]),
        (STEP, ["x", float("inf"), True, False]),
        (STEP, ["x", 1.0, 1, False]),
        (STEP, [None, 1.0, True, False]),
        (STEP, {"f": "lost", "d": "x"}),
        (STEP, {"f": "exception"}),
        (RESET, ["x"]),
        (PLAY, [["x"], [1.0], True, False, []]),
        (PLAY, [["x", "y", "z"], [0.0, 1.0], True, False, []]),
        (PLAY, [["x", "y"], ["1"], True, False, []]),
        (Op.solution(0), [1]),
        (Op.load("x"), ["A", "multi_turn", True, True, False, []]),
        (Op.drop(0), "x"),
    ],
)
def test_wrong_shapes_are_protocol_errors(op: tuple[object, ...], raw: object) -> None:
    with pytest.raises(ProtocolError):
        check_result(op, raw)


def test_requests_and_text() -> None:
    with pytest.raises(ProgramFault):
        encode_request([Op.load("x" * (MAX_FRAME + 1))])
    assert repair("a\ud800") == "a\ufffd"
    assert len(repair("x" * 10**6)) == 65536
    assert repair("é" * 65536).encode() == "é".encode() * 32768
    assert len(Op.step(0, "x" * 10**6)[2]) == 100_000


# --- the filter, interpreted ---------------------------------------------------------------------------

ALLOW, KILL, EPERM = 0x7FFF0000, 0x80000000, 0x00050000 | errno.EPERM


def run_filter(program: bytes, number: int, arch: int, arguments: tuple[int, ...] = ()) -> int:
    data = struct.pack("<IIQ6Q", number, arch, 0, *(*arguments, *[0] * (6 - len(arguments))))
    at, register = 0, 0
    while True:
        code, jt, jf, k = struct.unpack_from("=HBBI", program, at * 8)
        at += 1
        if code == 0x20:
            register = struct.unpack_from("<I", data, k)[0]
        elif code in (0x15, 0x35):
            at += jt if (register == k if code == 0x15 else register >= k) else jf
        else:
            assert code == 0x06
            return int(k)


@pytest.mark.parametrize("arch", ["x86_64", "aarch64"])
def test_the_filter_decides_as_its_tables_say(arch: str) -> None:
    program, column, audit = confine.build_filter(arch), arch == "aarch64", confine.AUDIT_ARCH[arch]
    special = {numbers[column] for numbers in confine.SPECIAL.values()}
    allowed = {n[column] for n in confine.ALLOWED.values()} - {None}
    deadly = {n[column] for n in confine.DEADLY.values()} - {None}
    assert not allowed & deadly and not (allowed | deadly) & special
    for number in set(range(600)) - special:
        expected = ALLOW if number in allowed else KILL if number in deadly else EPERM
        assert run_filter(program, number, audit) == expected
    other = confine.AUDIT_ARCH["aarch64" if arch == "x86_64" else "x86_64"]
    assert run_filter(program, min(allowed), other) == KILL
    if arch == "x86_64":
        assert run_filter(program, 0x40000000, audit) == KILL
    number = {name: n[column] for name, n in confine.SPECIAL.items()}
    assert run_filter(program, number["ioctl"], audit) == 0x00050000 | errno.ENOTTY
    assert run_filter(program, number["clone3"], audit) == 0x00050000 | errno.ENOSYS
    fcntl = [run_filter(program, number["fcntl"], audit, (3, command)) for command in range(5)]
    assert fcntl == [
        EPERM,
        ALLOW,
        ALLOW,
        ALLOW,
        EPERM,
    ]
    for pointer, verdict in ((0, ALLOW), (1, EPERM), (1 << 40, EPERM)):
        assert run_filter(program, number["prlimit64"], audit, (0, 7, pointer)) == verdict


# --- floors --------------------------------------------------------------------------------------------


def test_policies_see_numbers_words_and_other_answers() -> None:
    view = View("pick 7 or 12, not red", 2, (r"\boxed{9}",), 1)
    policies = open_loop(2)
    assert [bare(a) for a in policies["numbers"](view)] == ["7", "12"]
    assert [bare(a) for a in policies["words_backwards"](view)][:2] == ["red", "not"]
    assert [bare(a) for a in policies["counting_from_first"](view)] == ["7", "8"]
    assert [bare(a) for a in policies["midpoint"](view)] == ["9"]
    assert list(policies["best_answers"](view)) == [r"\boxed{9}"]
    common = [bare(a) for name, p in policies.items() if name.startswith("common") for a in p(view)]
    assert common[:4] == ["yes", "no", "0", "1"] and len(common) == len(set(common))


def test_readers_and_their_control() -> None:
    observations = [f"noise {'la ' * n}code {n}77 end" for n in range(1, 9)]
    rates = reading_rates(observations, [f"{n}77" for n in range(1, 9)])
    assert rates["number 1 from the start"] == 1.0 and rates["word 2 from the end"] == 1.0
    assert rates.get("word 3 from the start", 0.0) < 0.3
    same = reading_rates(["from 1 to 4"] * 8, ["1"] * 8)
    assert (
        max(same.values(), default=0.0) == 0.0
    )  # right for every seed alike: that is a matter for the floors
    assert [r(observations[5]) for r in context_readers(observations[0], "177")] == ["677", "677"]
    assert context_readers("nothing here", "177") == []
    glued = character_readers("case loan-2001-02-03: a loan", "2001-02-03")
    assert {r("the case loan-1999-12-31: another") for r in glued} == {"1999-12-31"}
    assert character_readers("nothing here", "177") == character_readers("a 7", "7") == []


def test_marked_places_are_read() -> None:
    for form in ("see *{}* there", "key={};", "[{}] go", "x{}y", "a: {}, b"):
        texts = [form.format(n * 37 + 11) for n in range(1, 9)]
        rates = reading_rates(texts, [str(n * 37 + 11) for n in range(1, 9)])
        assert max(rates.values()) == 1.0, form


def test_words_of_the_code_are_tried() -> None:
    tree = ast.parse(
        '"""Doc."""\nX = ["open sesame", 777, True, "a{b}", "\\n"]\nprint("(go|stop) \\\\d+", 1.5)'
    )
    assert code_words(tree) == ("open sesame", "777")
    assert {"go", "stop 1", "sesame 0 0"} <= set(guessed_commands(tree))


def test_a_follower_does_what_the_text_names() -> None:
    known = ["north", "go east", "7"]
    first, last = CLOSED_LOOP["named_first"](known), CLOSED_LOOP["named_last"](known)
    assert bare(first("Now Go East, then north.")) == "go east"
    assert bare(last("Now go east, then north.")) == "north"
    assert bare(last("nothing of it")) == bare(first("17")) != "7"


def test_items_and_runs_of_words() -> None:
    assert items("Pick: red fox, blue (old) owl.\nOr none!") == [
        "Pick", "red fox", "blue", "old", "owl", "Or none",
    ]  # fmt: skip
    assert shows("The answer was 12.", "12") and not shows("in 120 ways", "12")
    assert shows("go up, then LEFT now", "up then left") and not shows("anything", "")


def test_masking_keeps_what_all_seeds_share() -> None:
    texts = [f"add {n} and {n * n + 40}, from 1 to 9" for n in (17, 23, 31, 48)]
    assert masked(texts) == {"add # and # , from 1 to 9"}
    assert masked([t.replace("9", "8") for t in texts]) != masked(texts)
    assert masked(texts[:2]) == set()  # too few to tell

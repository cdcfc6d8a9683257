"""From replies to program text: which block counts, and what is repaired."""

from __future__ import annotations

import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spade.design.parse import MAX_FENCES, defines_env, extract_code, fenced_blocks, repair_braces

ENV = "class AEnv:\n    x = 1\n"
OTHER = "class BEnv:\n    x = 2\n"
NESTED = '''class CEnv:
    """How to play:

    ```
    look
    ```
    """

    x = 3
'''
NESTED_PYTHON = NESTED.replace("```\n    look", "```python\n    look()")
TOP_LEVEL = '"""A module.\n\n```\nlook\n```\n"""\n\n\nclass DEnv:\n    x = 4\n'


def fence(code: str, tag: str = "python", marks: str = "```") -> str:
    return f"{marks}{tag}\n{code}{marks}\n"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (f"here it is\n{fence(ENV)}bye", ENV),
        (fence(ENV) + fence(OTHER), OTHER),
        (f"<think>{fence(OTHER)}</think>{fence(ENV)}", ENV),
        (f"{fence(OTHER)}</think>{fence(ENV)}", ENV),
        (f"{fence(ENV)}<think>{fence(OTHER)}", ENV),
        (f"<think>{fence(ENV)}</think>nothing else", None),
        (fence(ENV) + "```python\nclass CEnv:\n", ENV),
        (fence("print(1)\n", "text") + fence(ENV), ENV),
        (fence(ENV) + fence("seed 0: won\n", "text"), ENV),
        (fence(ENV) + fence("class CEnv:\n", "javascript"), ENV),
        (fence(ENV, ""), ENV),
        (ENV, ENV),
        (fence(ENV, marks="~~~"), ENV),
        (fence(ENV, marks="````"), ENV),
        (fence(ENV, "Python"), ENV),
        (fence(ENV, " python title=env.py"), ENV),
        (fence(ENV, "{.python}"), ENV),
        (fence(ENV, "py"), ENV),
        ("```python\nclass Draft\n```python\n" + ENV + "```", ENV),
        ("```\nsome words\n```python\n" + ENV + "```", ENV),
        ("- the program:\n\n" + "".join(f"    {line}\n" for line in fence(ENV).splitlines()), ENV),
        (fence(ENV).replace("\n", "\r\n"), ENV),
        (fence(ENV).replace("\n", "\r"), ENV),
        (fence(ENV) + "```python\n\n```\n", ENV),
        (f"use ```python``` here\n{fence(ENV)}", ENV),
        (fence(NESTED), NESTED),
        (fence(NESTED_PYTHON), NESTED_PYTHON),
        (fence(TOP_LEVEL), TOP_LEVEL),
        (fence(ENV) + fence(NESTED_PYTHON) + "bye", NESTED_PYTHON),
        ("no program at all", None),
        ("x = 1\n", None),
        ("```python\n" + ENV, None),
        ("```python\n" + ENV + "~~~\n", None),
        ("````python\n" + ENV + "```\n", None),
        (fence("x = 1\n", ""), None),
    ],
)
def test_the_last_complete_python_block_outside_thoughts(text: str, code: str | None) -> None:
    assert extract_code(text) == code


def test_a_broken_last_block_is_not_replaced_by_an_earlier_draft() -> None:
    assert extract_code(fence(ENV) + fence("class BEnv\n")) == "class BEnv\n"


@pytest.mark.parametrize(
    ("broken", "fixed"),
    [
        ('x = f"answer in \\\\boxed{}"\n', 'x = f"answer in \\\\boxed{{}}"\n'),
        ('y = 1\nx = f"say {your answer} or {y}"\n', 'y = 1\nx = f"say {{your answer}} or {y}"\n'),
        ('x = f"""one\ntwo {a b} and {c d}\n"""\n', 'x = f"""one\ntwo {{a b}} and {{c d}}\n"""\n'),
    ],
)
def test_unescaped_braces_in_f_strings_are_doubled(broken: str, fixed: str) -> None:
    assert repair_braces(broken) == fixed


@pytest.mark.parametrize("rounds", [1, 20, 21])
def test_at_most_twenty_lines_are_repaired(rounds: int) -> None:
    code = "".join(f'x{i} = f"say {{your answer}} {i}"\n' for i in range(rounds))
    assert (repair_braces(code) == code) == (rounds > 20)


@pytest.mark.parametrize("code", ["def f(:\n", 'x = f"{a!r:>{w}}"\n', "x = {1: 2}\n", "\0", "(" * 5000])
def test_other_text_is_left_alone(code: str) -> None:
    assert repair_braces(code) == code


def test_a_repaired_block_is_found_among_its_own_fences() -> None:
    code = NESTED.replace("x = 3", 'x = f"answer in \\\\boxed{}"')
    assert extract_code(fence(code)) == code.replace("{}", "{{}}")


@given(st.text(alphabet="`~python \nx={}f\"'", max_size=200))
def test_extraction_never_raises(text: str) -> None:
    code = extract_code(text)
    assert code is None or isinstance(code, str)
    assert all(isinstance(content, str) for _, content in fenced_blocks(text))


names = st.sampled_from(["A", "Lock", "Tank", "Maze", "Code"])
programs = st.builds(lambda name, n: f"class {name}Env:\n    x = {n}\n", names, st.integers(0, 99))
prose = st.text(alphabet="abc .,\n:()", max_size=40).map(lambda t: t.replace("\n\n\n", "\n"))
marks = st.sampled_from(["```", "~~~", "````"])
tags = st.sampled_from(["python", "py", "Python", "python3"])


@given(st.lists(st.tuples(programs, prose, marks, tags), min_size=1, max_size=4), programs, prose)
def test_the_last_block_wins_whatever_surrounds_it(
    blocks: list[tuple[str, str, str, str]], draft: str, tail: str
) -> None:
    told = "".join(f"{text}\n{fence(code, tag, mark)}" for code, text, mark, tag in blocks)
    reply = f"<think>\n{fence(draft)}</think>\n{told}{tail}"
    assert extract_code(reply) == blocks[-1][0]
    assert extract_code(reply.replace("\n", "\r\n")) == blocks[-1][0]
    assert extract_code(reply + "\n```python\n" + draft) == blocks[-1][0]  # cut off by the token limit


@given(programs, st.lists(st.sampled_from(["```", "```python", "~~~", "x", ""]), max_size=6))
def test_fences_in_a_docstring_belong_to_the_program(code: str, inner: list[str]) -> None:
    head, body = code.split("\n", 1)
    program = "\n".join([head, '    """Notes:', *(f"    {line}".rstrip() for line in inner), '    """', body])
    found = extract_code(fence(program))
    assert found == program and isinstance(ast.parse(found), ast.Module)


def test_a_reply_of_nothing_but_fences_is_read_in_bounded_time() -> None:
    assert extract_code("```text\n~~~text\n" * (20 * MAX_FENCES)) is None


def test_only_programs_define_environments() -> None:
    assert defines_env(ENV) and not defines_env("class AEnvironment:\n    pass\n") and not defines_env("(")

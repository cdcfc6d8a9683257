"""Parsing of replies, prompts and templates."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spade.design.parse import extract_code, fenced_blocks, repair_braces
from spade.design.prompts import agent_message, choose_template, designer_messages, hint_messages
from spade.envs.memory import Exemplar
from spade.errors import ConfigError
from tests.play.programs import GUESS

ENV = "class AEnv:\n    x = 1\n"
OTHER = "class BEnv:\n    x = 2\n"


def fence(code: str, tag: str = "python") -> str:
    return f"```{tag}\n{code}```\n"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (f"here it is\n{fence(ENV)}bye", ENV),
        (fence(ENV) + fence(OTHER), OTHER),
        (f"<think>{fence(OTHER)}</think>{fence(ENV)}", ENV),
        (fence(ENV) + "```python\nclass CEnv:\n", ENV),
        (fence("print(1)", "text") + fence(ENV), ENV),
        (fence(ENV, ""), ENV),
        (ENV, ENV),
        (f"~~~python\n{ENV}~~~\n", ENV),
        ("```python\nclass Draft\n```python\n" + ENV + "```", ENV),
        ("no program at all", None),
        ("x = 1\n", None),
        ("```python\n" + ENV, None),
        (fence("x = 1", ""), None),
    ],
)
def test_the_last_complete_python_block_outside_thoughts(text: str, code: str | None) -> None:
    assert extract_code(text) == code


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


@pytest.mark.parametrize("code", ["def f(:\n", 'x = f"{a!r:>{w}}"\n', "x = {1: 2}\n", "\0", "(" * 5000])
def test_other_text_is_left_alone(code: str) -> None:
    assert repair_braces(code) == code


@given(st.text(alphabet="`~python \nx={}f\"'", max_size=200))
def test_extraction_never_raises(text: str) -> None:
    code = extract_code(text)
    assert code is None or isinstance(code, str)
    assert all(isinstance(content, str) for _, content in fenced_blocks(text))


def test_auto_takes_short_templates_for_small_contexts() -> None:
    assert choose_template("auto", 4096) == "short"
    assert choose_template("auto", 4097) == "full"
    assert choose_template("full", 100) == "full"


@pytest.mark.parametrize("template", ["short", "full"])
@pytest.mark.parametrize("game_type", ["multi_turn", "single_turn"])
def test_briefs_hold_document_skill_and_exemplars(template: str, game_type: str) -> None:
    document = "Tides {{ follow }} {% the %} moon."
    shown = Exemplar("id", "Optimization", "a good game", 0.5, None, "class OldEnv: pass")
    messages = designer_messages(document, "Optimization", game_type, "hard", [shown], template)
    user = messages[-1].content
    assert document in user and "Optimization" in user and "hard" in user
    assert "class OldEnv" in user
    assert messages[-1].role == "user"
    assert [m.role for m in messages[:-1]] == (["system"] if template == "full" else [])


def test_the_full_contract_names_what_is_checked() -> None:
    text = designer_messages("d", "Optimization", "multi_turn", "easy", [], "full")[-1].content
    assert "dataclasses, datetime" in text and "{{" + "number" + "}}" in text
    assert "solution(self)" in text and "Earlier programs" not in text
    code = extract_code("```python\n" + text.split("```python\n")[1])
    assert code is not None and "SomethingEnv" in code


@pytest.mark.parametrize("template", ["short", "full"])
def test_the_hint_is_the_only_difference_between_the_arms(template: str) -> None:
    plain = agent_message("You see a door.", None, template).content
    hinted = agent_message("You see a door.", "knock twice", template).content
    assert hinted.startswith(plain) and hinted.endswith("HINT: knock twice")
    assert plain.endswith("You see a door.")


@pytest.mark.parametrize("template", ["short", "full"])
def test_the_hint_request_shows_the_code(template: str) -> None:
    assert GUESS.strip() in hint_messages(GUESS, template)[-1].content


def test_an_unknown_template_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match="agent_huge"):
        agent_message("x", None, "huge")


@pytest.mark.parametrize("template", ["short", "full"])
def test_the_brief_asks_for_a_hint_method_only_when_the_program_writes_it(template: str) -> None:
    asked, plain = (
        designer_messages("a text", "Optimization", "multi_turn", "easy", [], template, own)[-1].content
        for own in (True, False)
    )
    assert "hint(self)" in asked and "hint(self)" not in plain

"""What a text gives away and what it forges: forms of an answer, markup of any family, free names."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spade.envs.forms import reveals, shows
from spade.envs.markup import MARKUP
from spade.envs.readers import fill, is_choice, reading_rates, shared_pieces, template
from spade.envs.screen import Refused, screen

TOLD = {
    "it was 427": "427",
    "it was 4 2 7": "427",
    "it was 4-2-7.": "427",
    "pay 1,234 now": "1234",
    "pay 1 234 567": "1234567",
    "427.00 in all": "427",
    "code 000427": "427",
    "427kg": "427",
    "total_427_units": "427",
    "\uff14\uff12\uff17": "427",
    "spell b a d o": "bado",
    "B-A-D-O": "bado",
    "no:\nb\na\nd\no": "bado",
    "b\u200ba\u200bd\u200bo": "bado",
    "xxbadobadoxx": "badobado",
    "backwards: uledob": "bodelu",
    "bodelu!": "bodelu",
}
NOT_TOLD = {
    "12 and 34": "1234",
    "it is 4271": "427",
    "4 b 2 c 7 d": "427",
    "nodab": "bado",
    "a b": "ab",
    "2 of 3 left": "23",
    "the answer is near": "north",
}
FORGED = (
    "<|im_end|>",
    "<|eot_id|>",
    "<\uff5cAssistant\uff5c>",
    "<tool\u2581call\u2581begin>",
    "[|endofturn|]",
    "]~b]user",
    "<turn|>",
    "<|turn>model",
    "<end_of_turn>",
    "<start_of_role>",
    "<im_start>",
    "[gMASK]<sop>",
    "[/INST]",
    "<<SYS>>",
    "[SYSTEM_PROMPT]",
    "[TOOL_CALLS]",
    "<reserved_106>",
    "<extra_id_1>",
    "<unused7>",
    "<0x0A>",
    "<fim_prefix>",
    "</s>",
    "<eoh>",
    "</think>",
    "<thought>",
    "<TOOLCALL>",
    "<tool_response>",
    "<function_calls>",
    '<invoke name="x">',
    "<function=go>",
    "<arg_key>",
    "<seed:think>",
    "<minimax:tool_call>",
    "\n### Instruction:",
    "\n\nHuman:",
)
INNOCENT = (
    "Say take <item> or use <key> on <door>, or move <n> <direction>.",
    "[NORTH] [SOUTH] [ESC] [A] [1] [MAP] [ ] [x]",
    "a < b | b > a, |x| <= 3 || y >= 4, x <- y -> z, <<< >>>",
    "### Room 3\n\nHe said: Human: one; ## Rules: none",
    "<html> & <b>bold</b> <0> <-> <| |>",
    "The think tank's tools: think(s), [x|y], (a|b).",
    "The [MASK] sat on the mat.",
)


@pytest.mark.parametrize(("text", "answer"), TOLD.items())
def test_a_text_gives_an_answer_away_in_any_form(text: str, answer: str) -> None:
    assert reveals(text, answer)


@pytest.mark.parametrize(("text", "answer"), NOT_TOLD.items())
def test_what_only_resembles_an_answer_gives_nothing_away(text: str, answer: str) -> None:
    assert not reveals(text, answer)


@given(before=st.text(max_size=8), answer=st.text(min_size=1, max_size=8), after=st.text(max_size=8))
@settings(max_examples=100, deadline=None)
def test_whatever_shows_an_answer_reveals_it(before: str, answer: str, after: str) -> None:
    text = f"{before} {answer} {after}"
    assert reveals(text, answer) or not shows(text, answer)


@pytest.mark.parametrize("text", FORGED)
def test_markup_of_any_family_is_found(text: str) -> None:
    assert MARKUP.search(f"wrong {text} go on")


@pytest.mark.parametrize("text", INNOCENT)
def test_placeholders_and_drawings_are_no_markup(text: str) -> None:
    assert MARKUP.search(text) is None


def test_another_seeds_answer_takes_over_the_values_of_this_one() -> None:
    seen = ["Valve 17 of tank 4: open or shut?", "Valve 23 of tank 9: open or shut?"]
    shape = template(seen[0], "shut 17", shared_pieces(seen))
    assert fill(shape, seen[1]) == "shut 23"
    assert fill(shape, "none") == "shut "
    assert is_choice(shape) and not is_choice(template("reverse A B", "B A"))


@pytest.mark.parametrize("form", ["{:,}", "{:_}", "spaced"])
def test_readers_read_grouped_and_spelled_answers(form: str) -> None:
    answers = [str(n * n * 1009 + 100_003) for n in range(8)]
    shown = [" ".join(a) if form == "spaced" else form.format(int(a)) for a in answers]
    rates = reading_rates([f"Case {k}: the code is {s}, go" for k, s in enumerate(shown)], answers)
    assert max(rates.values(), default=0.0) == 1.0


HEAD = "class AEnv:\n    def reset(self, seed=None): return 'a', {}\n    def step(self, action):\n"


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("        open = self.n == 4\n        return open", None),
        ("        for exit in self.doors: print(exit)", None),
        ("        object.__setattr__(self, 'x', 1)", None),
        ("        return Colour.__members__", None),
        ("        return self.today()", None),
        ("        return open('x')", "forbidden_name"),
        ("        eval = self.n\n        return eval(action)", "forbidden_name"),
        ("        return ().__class__.__base__.__subclasses__()", "forbidden_name"),
        ("        from datetime import date as day\n        return day.today()", "clock_dependent"),
        ("        day = datetime.date\n        return day.today()", "clock_dependent"),
    ],
)
def test_the_screen_knows_names_of_a_programs_own(body: str, code: str | None) -> None:
    if code is None:
        screen(HEAD + body, 1000)
        return
    with pytest.raises(Refused) as error:
        screen(HEAD + body, 1000)
    assert error.value.code == code


def test_methods_may_be_assigned_in_the_class() -> None:
    methods = "def a(self, seed=None): pass\n    def b(self, action): pass\n    reset, step = a, b"
    screen(f"class AEnv:\n    {methods}\n", 1000)

"""Multiple choice: forms in which models write a letter, several letters, texts of options, fixed orders."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spade_evals.grade.choice import LETTERS, listed, pick, shuffled

OPTIONS = ["0.15 J", "a frame shift", "BB Bb", "Bb BB"]

PICKS_C = [
    r"\boxed{C}",
    r"\boxed{\text{C}}",
    r"\boxed{\textbf{(C)}\ BB Bb}",
    r"$\boxed{\mathrm{C}}$",
    r"\boxed{c}",
    r"\boxed{C. BB Bb}",
    r"\boxed{\text{Option C}}",
    r"\boxed{\text{Answer: C}}",
    r"\boxed{BB Bb}",
    r"\boxed{D}? No, \boxed{C}",
    "Answer: C",
    "answer: c",
    "Answer: **C**",
    "**Answer: C**",
    "### Answer\n\nC",
    "The answer is (C).",
    "The answer is BB Bb.",
    "Therefore, the correct answer is **(C) BB Bb**.",
    "The final answer is: \\text{(C)}",
    "The correct option is C because it holds.",
    "The best choice is option C: BB Bb",
    "Options A and B are wrong. The answer is C.",
    "Answer choice A is wrong. The correct answer is C",
    "Answer: C is correct since A is wrong",
    "A is wrong. B is wrong.\n\nC",
    "I think that **C** holds.",
    "C is correct.",
    "C",
    "(C)",
    "C.",
    "C) BB Bb",
    "So it must be\nBB Bb",
]

PICKS_NOTHING = [
    r"\boxed{A, C}",
    r"\boxed{AC}",
    r"\boxed{A \text{ and } C}",
    r"\boxed{\text{C or D}}",
    r"\boxed{E}",
    r"\boxed{}",
    r"\boxed{none of them}",
    "The answer is A or C.",
    "The answer is A and C",
    "Answer: A, C",
    "The answer is not C",
    "The answer isn't C",
    "option (C) is wrong. Option (B) is incorrect.",
    "**A** may hold, **C** too",
    "A. 0.15 J\nB. a frame shift\nC. BB Bb",
    "The answer is a mystery to me",
    "The answer is I think something else",
    "",
]


@pytest.mark.parametrize("text", PICKS_C)
def test_one_letter_in_many_forms(text: str) -> None:
    assert pick(text, OPTIONS).letter == "C"


@pytest.mark.parametrize("text", PICKS_NOTHING)
def test_several_letters_or_none_pick_nothing(text: str) -> None:
    assert pick(text, OPTIONS).letter is None


def test_several_letters_are_an_answer_and_silence_is_none() -> None:
    assert pick(r"\boxed{A, C}", OPTIONS).read == "A, C"
    assert pick("I am not sure.", OPTIONS).read == ""


def test_letter_case_of_an_option_text_counts_where_it_must() -> None:
    assert pick(r"\boxed{Bb BB}", OPTIONS).letter == "D"
    assert pick(r"\boxed{A FRAME SHIFT}", OPTIONS).letter == "B"
    assert pick(r"\boxed{bb bb}", OPTIONS).letter is None


def test_a_text_that_two_options_share_picks_nothing() -> None:
    assert pick(r"\boxed{687}", ["687", "687", "1,493", "1,695"]).why == "text of several options"


def test_an_option_that_names_others_is_picked_by_its_text() -> None:
    options = ["carbon", "oxygen", "iron", "A and B"]
    for text in (
        "\\boxed{A and B}",
        "\\boxed{\\text{A and B}}",
        "The answer is A and B.",
        "So:\nA and B",
        "Answer: D",
    ):
        assert pick(text, options).letter == "D", text
    assert pick(r"\boxed{A and C}", options).letter is None


def test_ten_options_have_ten_letters() -> None:
    options = [f"value {i}" for i in range(10)]
    assert pick(r"\boxed{\text{J}}", options).letter == "J"
    assert pick("Answer: I", options).letter == "I"
    assert pick(r"\boxed{K}", options).letter is None
    assert pick(r"\boxed{J}", options[:9]).letter is None


FORMS = [
    r"\boxed{%s}",
    r"\boxed{\text{%s}}",
    r"\boxed{(%s)}",
    "Answer: %s",
    "The answer is (%s).",
    "Thus the correct option is %s.",
    "Reasons.\n\n**%s**",
    "%s",
]
PROSE = st.text(alphabet="bcdefghjklmnopqrstuvwxyz ,.\n", max_size=60)


@given(st.sampled_from(FORMS), st.sampled_from(LETTERS), st.booleans(), st.integers(2, 10), PROSE)
def test_every_form_of_every_letter(form: str, letter: str, lower: bool, count: int, prose: str) -> None:
    shown = letter.lower() if lower and form != FORMS[6] else letter
    found = pick(f"{prose}\n{form % shown}", [f"option number {i}" for i in range(count)])
    assert found.letter == (letter if letter in LETTERS[:count] else None)


@given(
    st.sets(st.sampled_from("ABCDEFGHIJ"), min_size=2, max_size=10),
    st.sampled_from([", ", " and ", " or ", "/", " & "]),
)
def test_several_letters_are_always_refused(letters: set[str], joined: str) -> None:
    text = joined.join(sorted(letters))
    options = [f"option number {i}" for i in range(10)]
    for form in (r"\boxed{%s}", r"\boxed{\text{%s}}", "The answer is %s.", "Answer: %s"):
        assert pick(form % text, options).letter is None


@given(
    st.lists(st.text(alphabet="klmnopqr stuvw0123456789", min_size=4, max_size=20), min_size=2, max_size=10)
)
def test_the_full_text_of_an_option_picks_it_unless_shared(options: list[str]) -> None:
    spelled = [" ".join(option.split()) for option in options]
    for at, option in enumerate(options):
        alone = spelled[at] and spelled.count(spelled[at]) == 1
        assert pick(f"\\boxed{{{option}}}", options).letter == (LETTERS[at] if alone else None)


@given(st.text(max_size=300), st.integers(2, 10))
def test_no_text_breaks_it(text: str, count: int) -> None:
    found = pick(text, [f"option number {i}" for i in range(count)])
    assert found.letter is None or found.letter in LETTERS[:count]


@given(st.integers(1, 10), st.text(max_size=20))
def test_an_order_is_a_permutation_and_always_the_same(count: int, key: str) -> None:
    order = shuffled(count, key)
    assert sorted(order) == list(range(count)) and order == shuffled(count, key)


def test_orders_differ_between_items_and_are_fixed_for_good() -> None:
    """The first line would change with the hash seed or the random generator, were either in it."""
    assert [shuffled(4, f"item {i}") for i in range(3)] == GOLDEN
    first = [shuffled(4, f"item {i}").index(0) for i in range(400)]
    assert all(70 < first.count(place) < 130 for place in range(4))


GOLDEN = [[1, 3, 2, 0], [1, 3, 2, 0], [3, 1, 2, 0]]


def test_options_are_listed_with_their_letters() -> None:
    assert listed(["x", "y"]) == "A. x\nB. y"

"""The math grader: what counts as the same answer, what does not, and who is to blame when it cannot tell."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spade_evals.grade import math as grader
from spade_evals.grade.choice import pick
from spade_evals.grade.latex import MAX_CHARS, clean, plain_number
from spade_evals.grade.math import Ungradable, number_in, numbers_in, read_answer, same_expression
from spade_evals.grade.structure import elements, same, split_top
from spade_evals.hosting.supervisor import Lost, Pool
from spade_evals.question import GraderLost, GraderTimeout


def pairs(table: str) -> list[tuple[str, str]]:
    """Lines `reference  ≡  answer  ;;  answer` as pairs."""
    rows = [line.split("  ≡  ") for line in table.strip().splitlines()]
    return [(reference, answer) for reference, answers in rows for answer in answers.split("  ;;  ")]


RIGHT = pairs(r"""
204  ≡  \color{red}{204}  ;;  \underline{204}  ;;  204 \pmod{1000}  ;;  N \equiv 204 \pmod{1000}  ;;  204\\
204  ≡  m+n = 113 + 91 = 204  ;;  204 \text{ (mod 1000)}  ;;  \text{The answer is }204  ;;  204 minutes
0.5  ≡  50\%  ;;  \frac{1}{2}  ;;  2^{-1}
15\%  ≡  15  ;;  0.15  ;;  15\%
6+9i  ≡  6 + 9 i  ;;  9\mathrm{i} + 6  ;;  6+9 \cdot i  ;;  3(2+3i)
3+4i  ≡  (2+i)^2
(8,-2)  ≡  \langle 8, -2\rangle
70  ≡  70^\circ  ;;  070  ;;  x=70  ;;  $70$  ;;  70.0  ;;  \text{70}
025  ≡  25  ;;  25.
1234  ≡  1,234  ;;  1{,}234
10,\!080  ≡  10080
11,\! 111,\! 111,\! 100  ≡  11111111100
\$32,\!348  ≡  32348
58,500  ≡  58500 dollars  ;;  \$58{,}500
1\frac{4}{5}  ≡  \frac{9}{5}
137 \frac{1}{2}  ≡  137.5
\frac43  ≡  4/3
\frac 59  ≡  \dfrac{5}{9}
\frac{270}7\text{ degrees}  ≡  \frac{270}{7}^\circ
\frac14  ≡  0.25
.0000672  ≡  6.72 \times 10^{-5}  ;;  6.72e-5
5.4 \text{ cents}  ≡  5.4
-\frac{3}{8}  ≡  -0.375
864 \mbox{ inches}^2  ≡  864
15\mbox{ cm}^2  ≡  15 cm^2  ;;  15 \text{ square cm}
6  ≡  2(3)  ;;  (2)(3)  ;;  2 \cdot (3)  ;;  3\left(\frac{6}{3}\right)  ;;  4\frac{3}{2}  ;;  2\frac{8}{2} - 2
\frac{1}{2}  ≡  \sin 30^\circ  ;;  \cos({60}^{\circ})
3\pi  ≡  \pi(3)
36  ≡  2+34 = 36  ;;  \text{Area} = 36  ;;  6^2
\$36  ≡  36
15  ≡  15\%
9  ≡  +9
-9  ≡  −9
\frac{1}{3}  ≡  \frac13 \approx 0.333
10080  ≡  10\,080
600  ≡  6 \cdot 10^2
\frac{9}{100}  ≡  0.09
3\sqrt{13}  ≡  \sqrt{117}
11\sqrt2  ≡  11 \sqrt{2}
\frac{\sqrt{3}}{3}  ≡  \frac{1}{\sqrt{3}}
6 - 5i  ≡  -5i + 6
p - q  ≡  -q+p
2k+2  ≡  2(k+1)
x^3+3x-6  ≡  3x + x^3 - 6
12\pi  ≡  12π
\cot x  ≡  \frac{\cos x}{\sin x}
(a+5)(b+2)  ≡  ab + 2a + 5b + 10
18+2\pi  ≡  2(9+\pi)
2\sqrt{5}  ≡  2√5
\frac{20000}{\pi}  ≡  \dfrac{20000}{\pi}\text{ m}
-\sqrt{3}  ≡  -sqrt(3)
\pi  ≡  pi
2k  ≡  k \cdot 2
x=5  ≡  5  ;;  x = 5
y = 2x + 3  ≡  2x+3  ;;  y=3+2x  ;;  2x - y + 3 = 0
5x - 7y + 11z + 4 = 0  ≡  11z+5x-7y+4=0
y = -2x  ≡  y=-2x.
1,-2  ≡  -2, 1  ;;  \{-2,1\}  ;;  -2 \text{ and } 1  ;;  x=1, x=-2
3, 5, 7  ≡  7,5,3
1 \pm \sqrt{19}  ≡  1-\sqrt{19}, 1+\sqrt{19}
3 \pm 2 \sqrt{2}  ≡  3 \pm \sqrt{8}
-2,1  ≡  1 or -2
\{1\pm\sqrt{5},-2\}  ≡  \{-2, 1+\sqrt5, 1-\sqrt5\}
(6,31,-1)  ≡  \left(6, 31, -1\right)
\left( 3, \frac{\pi}{2} \right)  ≡  (3, \pi/2)
(3,4]  ≡  \left(3,4\right]  ;;  (3.0, 4]  ;;  3 < x \le 4
x \in [-2,7]  ≡  [-2,7]  ;;  -2 \le x \le 7
(5,\infty)  ≡  x > 5
(-\infty, 0]  ≡  x \leq 0
(-\infty, 2) \cup (3, \infty)  ≡  x<2 \text{ or } x>3
(0,9) \cup (9,36)  ≡  (9,36)\cup(0,9)
(2,4)  ≡  (x,y)=(2,4)
100, 200  ≡  100,200
(2,12) \cup (12,102)  ≡  x \in (2,12) \cup (12,102)
\begin{pmatrix} -1/3 \\ 2/3 \\ 5/3 \end{pmatrix}  ≡  \begin{bmatrix}-\frac13\\\frac23\\\frac53\end{bmatrix}
52_8  ≡  52_{8}  ;;  52  ;;  52 \text{ (base 8)}
4210_{5}  ≡  4210_5
\text{Evelyn}  ≡  Evelyn
\text{east}  ≡  East
\text{(C)}  ≡  C  ;;  \text{C}
\text{even}  ≡  \textbf{even}
""")

WRONG = [
    *pairs(r"""
70  ≡  71  ;;  7  ;;  -70  ;;  70.01
\frac{1}{3}  ≡  0.333333
.0000672  ≡  0.0000673
15  ≡  0.15
0.5  ≡  50  ;;  5\%
15\%  ≡  1500
6+9i  ≡  6-9i  ;;  15
5  ≡  2(3)  ;;  (2)(3)  ;;  2\frac{6}{2}  ;;  10\frac{1}{2}
5  ≡  1, 2, 3, 4, 5  ;;  \{1,2,3,4,5\}  ;;  5, 6  ;;  5 \text{ or } 6  ;;  4 \pm 1  ;;  (5, 6)
5  ≡  x=4, x=5  ;;  5k  ;;  I do not know  ;;  5 = 6  ;;  \text{}
2k  ≡  2
2  ≡  2k
p - q  ≡  q - p  ;;  pq
x=5  ≡  y=5
1,-2  ≡  1  ;;  1,2  ;;  (1,-2,3)
3, 5, 7  ≡  3,5  ;;  3,5,5
3,3  ≡  3,5
(3,4]  ≡  [3,4]  ;;  (3,4)  ;;  3 \le x \le 4
(6,31,-1)  ≡  (31,6,-1)  ;;  6
x \in [-2,7]  ≡  (-2,7)
(5,\infty)  ≡  x \ge 5  ;;  x < 5
(0,9) \cup (9,36)  ≡  (0,36)
52_8  ≡  52_9  ;;  42
\text{Evelyn}  ≡  Carla
\text{(C)}  ≡  B
\text{even}  ≡  odd
(2,4)  ≡  (4,2)
y = 2x + 3  ≡  y = 2x
5x - 7y + 11z + 4 = 0  ≡  5x - 7y + 11z - 4 = 0
\frac{3\sqrt{3}}{4}  ≡  \frac{3\sqrt{3}}{2}
\begin{pmatrix} -2 \\ -14 \\ -7 \end{pmatrix}  ≡  \begin{pmatrix} -2 \\ -14 \\ 7 \end{pmatrix}
1234  ≡  1.234
1\frac{4}{5}  ≡  \frac{14}{5}
58,500  ≡  58, 500, 3
0  ≡  10^{-300}
"""),
    ("5", ""),
    ("5", "5" * (MAX_CHARS + 1)),
]


@pytest.mark.parametrize(("reference", "answer"), RIGHT)
def test_the_same_answer_written_differently(reference: str, answer: str) -> None:
    assert same_expression(reference, answer)


@pytest.mark.parametrize(("reference", "answer"), WRONG)
def test_another_answer(reference: str, answer: str) -> None:
    assert not same_expression(reference, answer)


def test_the_last_box_counts_and_no_box_is_no_answer() -> None:
    assert read_answer("\\boxed{3} no, \\boxed{\\frac{1}{2}} then") == "\\frac{1}{2}"
    assert read_answer("the answer is 5") is None
    assert read_answer("\\boxed{}") is None
    assert read_answer("\\boxed{5") is None


def test_an_answer_phrase_counts_where_there_is_no_box() -> None:
    assert read_answer("So 3 + 5.\nThe answer is 3 + 5 = 8 apples. She has 2 friends.", phrase=True) == "8"
    assert read_answer("#### 1,200", phrase=True) == "1,200"
    assert read_answer("Answer: -3.50", phrase=True) == "-3.50"
    assert read_answer("The answer is 7. \\boxed{9}", phrase=True) == "9"
    assert read_answer("There are 12 eggs and 4 cakes.", phrase=True) is None


def test_a_thread_grades_as_the_main_thread_does() -> None:
    """math-verify itself refuses threads, where a fallback would compare bare integers only."""
    cases = [("70", "70^\\circ"), ("3\\sqrt{13}", "\\sqrt{117}"), ("1,-2", "-2, 1"), ("5", "6")]
    here = [same_expression(*case) for case in cases]
    there: list[bool] = []
    thread = threading.Thread(target=lambda: there.extend(same_expression(*case) for case in cases))
    thread.start()
    thread.join()
    assert here == there == [True, True, True, False]


def test_an_endless_answer_is_a_time_out_and_the_next_one_is_graded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grader, "SECONDS", 0.5)
    with pytest.raises(GraderTimeout, match="processor time"):
        same_expression("5", "9^{9^{9^{9}}}")
    monkeypatch.undo()
    assert same_expression("3\\sqrt{13}", "\\sqrt{117}")


@pytest.mark.parametrize("answer", ["\\frac{}{", "2 3", "2[3]"])
def test_an_answer_that_cannot_be_read_is_ungradable(answer: str) -> None:
    with pytest.raises(Ungradable):
        same_expression("2k", answer)


def test_a_grader_killed_from_outside_is_lost_and_replaced() -> None:
    pool = Pool("spade_evals.grade.algebra", size=1)
    request = {"reference": "x", "answer": "y"}
    try:
        assert pool.ask(request, 5.0) == {"same": False}
        (pid,) = pool.pids()
        os.kill(pid, signal.SIGSTOP)  # so that it surely dies while we wait for it
        threading.Timer(0.2, os.kill, (pid, signal.SIGKILL)).start()
        with pytest.raises(Lost, match="from outside"):
            pool.ask(request, 5.0)
        assert pool.ask(request, 5.0) == {"same": False}
        assert pool.pids() != [pid]
    finally:
        pool.close()
    assert pool.pids() == []


def test_a_lost_grader_is_told_apart_from_a_wrong_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    class Gone:
        def ask(self, request: object, seconds: float) -> None:
            raise Lost("ended by signal 9 from outside")

    monkeypatch.setattr(grader, "pool", Gone)
    with pytest.raises(GraderLost):
        same_expression("2k", "k + k")


def test_many_threads_share_few_processes() -> None:
    pool = Pool("spade_evals.grade.algebra", size=1)
    replies: list[object] = []

    def ask(number: int) -> None:
        replies.append(
            (number, pool.ask({"reference": f"{number}x", "answer": f"x \\cdot {number}"}, 5.0)["same"])
        )

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(2, 12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(replies) == [(number, True) for number in range(2, 12)]  # type: ignore[type-var]
    assert len(pool.pids()) == 1
    pool.close()


def test_children_end_with_their_parent() -> None:
    code = (
        "from spade_evals.grade.math import pool, same_expression; import os;"
        "same_expression('2k', 'k+k'); print(pool().pids()[0], flush=True); os._exit(0)"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(path or "." for path in sys.path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, timeout=60)
    pid = int(done.stdout)
    for _ in range(100):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return
        time.sleep(0.1)
    pytest.fail(f"process {pid} is still there")


def test_numbers_with_units_and_lists_of_numbers() -> None:
    assert number_in("50.7 \\text{ atm}") == number_in("p = 50.7 atm") == 50.7
    assert number_in("9.8 m/s^2") == 9.8
    assert number_in("3.52 \\times 10^{-19}\\,\\mathrm{J}") == pytest.approx(3.52e-19, rel=1e-12)
    assert number_in("\\frac{\\pi}{4}") == pytest.approx(0.785398163, rel=1e-8)
    assert number_in("\\approx -2.5 \\ \\mathrm{kJ \\cdot mol^{-1}}") == -2.5
    assert number_in("\\text{nothing}") is None
    assert number_in("5 or 6") is None
    assert (
        numbers_in("[0, 5]")
        == numbers_in("(0,5)")
        == numbers_in("0, 5")
        == numbers_in("\\{0,5\\}")
        == [0.0, 5.0]
    )
    assert numbers_in("\\begin{pmatrix} 1 \\\\ \\frac{1}{2} \\end{pmatrix}") == [1.0, 0.5]
    assert numbers_in("[3]") == numbers_in("3") == [3.0]
    assert numbers_in("[1, x]") is None
    assert number_in("89,034.79") == 89034.79
    assert number_in("-1.00 \\mu \\mathrm{C}") == -1.0
    assert number_in("2400\\cos({40}^{\\circ})") == pytest.approx(1838.50666)
    assert number_in("3(\\frac{1}{3})-3(\\frac{1}{3})^2+(\\frac{1}{3})^3") == pytest.approx(19 / 27)
    assert numbers_in("1,234") == [1234.0]
    assert numbers_in("1,234", separated=True) == [1.0, 234.0]


def test_the_version_names_what_verdicts_depend_on() -> None:
    assert grader.grader_version().startswith("spade-math-")
    assert "+math-verify-" in grader.grader_version() and "absent" not in grader.grader_version()


@given(st.fractions(min_value=-(10**9), max_value=10**9, max_denominator=10**6))
def test_a_fraction_is_read_back_exactly(value: Fraction) -> None:
    sign = "-" if value < 0 else ""
    top, bottom = abs(value.numerator), value.denominator
    for text in (
        f"{sign}\\frac{{{top}}}{{{bottom}}}",
        f"{sign}{top}/{bottom}",
        f"${sign}\\dfrac{{{top}}}{{{bottom}}}$",
    ):
        assert plain_number(clean(text)) == value


@given(st.integers(-(10**12), 10**12))
def test_an_integer_is_read_back_from_every_spelling(value: int) -> None:
    for text in (
        f"{value}",
        f"{value:,}",
        f"x = {value}",
        f"{value}^\\circ",
        f"\\text{{{value}}}",
        f"{value}.0",
        f"\\${value:,}",
    ):
        assert same_expression(str(value), text)
        assert not same_expression(str(value + 1), text)


@given(st.text(alphabet="0123456789.,+-/^{}()[]\\eE $%x", max_size=40))
def test_no_text_makes_a_number_that_does_not_fit(text: str) -> None:
    number = plain_number(clean(text))
    assert number is None or abs(number) < Fraction(10) ** 1500


HOSTILE = [
    *[
        "(",
        "{",
        "\\frac",
        "\\frac{",
        "1,",
        "1 ",
        " , ",
        "A, ",
        "A ,  ",
        "\\text{",
        "\\text{a} ",
        "$",
        "**",
        "\\boxed{",
    ],
    *[
        "- ",
        "=",
        "x=",
        "\\pm",
        "x<",
        "1/",
        "^{",
        "10^",
        "and ",
        "answer is ",
        "option ",
        "mol^{-1} ",
        ",  ,  ",
        "/ ",
    ],
    *["\\begin{pmatrix}", "[", "\n", "Answer:", "(A) ", "A is ", "#### "],
]


@pytest.mark.parametrize("unit", HOSTILE)
def test_no_repetition_keeps_the_readers_busy(unit: str) -> None:
    """One that backtracks without bound would not come back at all."""
    text = unit * 2_000
    for tail in ("", "!", "x"):
        read_answer(text + tail, phrase=True)
        pick(text + tail, ["alpha", "beta"])
        pick(f"\\boxed{{{text}{tail}}}", ["alpha", "beta"])
        short = text[: MAX_CHARS - 1] + tail
        assert isinstance(clean(short), str)
        assert isinstance(elements(short), list)
        assert not same(short, "7", lambda reference, answer: False)


@given(st.text(max_size=200))
def test_cleaning_never_fails(text: str) -> None:
    assert isinstance(clean(text), str)
    assert split_top(clean(text), re.compile("(?!)")) == [clean(text).strip()]

import random
import re

LEVEL = 1

NOUNS = ("boat", "child", "dog", "stone", "house", "fish")
VERBS = ("sees", "carries", "loses", "follows")
FORMS = {
    1: ("one", "many"),
    2: ("one", "two", "many"),
    3: ("one", "two", "many"),
}[LEVEL]
TIMES = ("today",) if LEVEL == 1 else ("today", "once")


class IslandGrammarEnv:
    """Learn a made-up language from a few translations and translate a sentence that has not been heard."""

    max_turns = {1: 6, 2: 8, 3: 9}[LEVEL]

    def reset(self, seed=None):
        rng = random.Random(seed)
        self.turn = 0
        make = [a + b for a in "bdgklmnprst" for b in "aiou"]
        parts = rng.sample(make, 30)
        self.stem = {w: parts.pop() + parts.pop() for w in (*NOUNS, *VERBS)}
        self.number = {"one": "", "two": rng.choice("ktp") + "e", "many": rng.choice("nls") + "e"}
        self.role = {"doer": "", "done": rng.choice(("r", "f", "v")) + "e"}
        self.time = {"today": "", "once": rng.choice(("h", "j", "w")) + "e"}
        self.front = rng.random() < 0.5
        self.order = rng.sample(("doer", "verb", "done"), 3)
        self.secret = (
            rng.choice(FORMS[1:]),
            *rng.sample(NOUNS, 2),
            rng.choice(FORMS[1:]),
            rng.choice(VERBS),
            TIMES[-1],
        )
        said = self.english(*self.secret)
        extra = "" if LEVEL == 1 else " Sentences are about today or about once, long ago."
        return (
            f"On the island nobody speaks English, but a child translates. Nouns: {', '.join(NOUNS)}. Verbs: "
            f"{', '.join(VERBS)}. Number words: {', '.join(FORMS)}.{extra} Every sentence has the form 'NUMBER NOUN "
            f"VERB NUMBER NOUN TIME', e.g. 'one {self.secret[1]} {self.secret[4]} one {self.secret[2]} today'. Number, role "
            "and time are little endings or beginnings of island words, which may blend with their vowels.\n"
            f"Goal: say '{said}' in the island's language. The child will not translate sentences with both of its "
            "nouns.\nActions: 'translate SENTENCE', and once 'say' with the island words. "
            f"Put the action in \\boxed{{}}. You have {self.max_turns} turns."
        ), {}

    def english(self, n1, doer, done, n2, verb, time):
        return f"{n1} {doer} {verb} {n2} {done} {time}"

    def word(self, stem, *marks):
        vowel = stem[-1] if LEVEL == 3 else "e"
        marks = [m.replace("e", vowel) for m in marks]
        return "".join(marks) + stem if self.front else stem + "".join(marks)

    def island(self, n1, doer, done, n2, verb, time):
        words = {
            "doer": self.word(self.stem[doer], self.number[n1]),
            "done": self.word(self.stem[done], self.number[n2], self.role["done"]),
            "verb": self.word(self.stem[verb], self.time[time]),
        }
        return " ".join(words[k] for k in self.order)

    def step(self, action):
        self.turn += 1
        late = self.turn >= self.max_turns
        text = re.sub(r"^\\boxed\{|\}$", "", action.strip()).strip().lower()
        words = text.split()
        if words[:1] == ["say"] and len(words) == 4:
            right = " ".join(words[1:]) == self.island(*self.secret)
            return (
                ("The islanders beam." if right else "The islanders look puzzled."),
                float(right),
                True,
                False,
                {},
            )
        fits = len(words) == 7 and words[0] == "translate" and words[1] in FORMS and words[4] in FORMS
        fits = fits and words[2] in NOUNS and words[3] in VERBS and words[5] in NOUNS and words[6] in TIMES
        if not fits or {words[2], words[5]} == set(self.secret[1:3]) or words[2] == words[5]:
            hint = f"'translate {FORMS[0]} NOUN VERB {FORMS[-1]} NOUN {TIMES[0]}' with another pair of nouns"
            return f"Invalid. The child wants {hint}, or you 'say' three words, boxed.", 0.0, False, late, {}
        told = self.island(words[1], words[2], words[5], words[4], words[3], words[6])
        left = self.max_turns - self.turn
        return f'"{told}". {left} turns left: translate or say, in \\boxed{{}}.', 0.0, False, late, {}

    def solution(self):
        n1, doer, done, n2, verb, time = self.secret
        other = next(n for n in NOUNS if n not in (doer, done))
        asked = [(n1, doer, other, "one", verb, "today"), ("one", other, done, n2, verb, time)]
        plan = [] if self.turn else [f"translate {self.english(*a)}" for a in asked]
        return [*plan, f"say {self.island(*self.secret)}"]

    def hint(self):
        return "Change one thing at a time and note which piece of which word changes with it."

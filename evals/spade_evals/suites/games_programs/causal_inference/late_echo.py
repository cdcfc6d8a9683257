import random
import re

LEVEL = 1

LEVERS, LONGEST = {1: ("ABC", 5), 2: ("ABCD", 6), 3: ("ABCDE", 7)}[LEVEL]


class LateEchoEnv:
    """Levers ring a bell after delays of their own; find the delays although all rings sound alike."""

    max_turns = {1: 14, 2: 17, 3: 21}[LEVEL]

    def reset(self, seed=None):
        rng = random.Random(seed)
        self.turn = 0
        self.delay = {lever: rng.randint(1, LONGEST) for lever in LEVERS}
        self.mute = rng.choice(LEVERS) if LEVEL == 3 else ""
        self.due = {}
        dumb = ""
        if LEVEL == 3:
            dumb = " One of the levers is rusted and rings nothing at all; its delay counts as 0."
            self.delay[self.mute] = 0
        return (
            f"A tower has the levers {', '.join(LEVERS)} and one bell. A pulled lever makes the bell ring once, some "
            f"minutes later: 1 to {LONGEST}, always the same number for the same lever.{dumb} Every turn is one "
            "minute; rings that fall into the same minute are counted together.\n"
            "In a turn you may pull several levers, 'pull A C', or let a minute pass, 'listen'. You hear how many "
            "rings there were in that minute. Report the delays in the order of the levers with 'delays', such as "
            f"'delays {' '.join(str(k + 1) for k in range(len(LEVERS)))}'; one report. Use \\boxed{{}}; {self.max_turns} turns."
        ), {}

    def step(self, action):
        self.turn += 1
        late = self.turn >= self.max_turns
        rings = self.due.pop(self.turn, 0)
        heard = f"{rings} ring{'s' * (rings != 1)} in minute {self.turn}."
        said = re.fullmatch(r"\\boxed\{\s*(pull|listen|delays)((?:[\s,]+\w)*)\s*\}", action.strip().lower())
        word, rest = (said.group(1), re.findall(r"\w", said.group(2).upper())) if said else ("", [])
        if word == "delays" and len(rest) == len(LEVERS) and all(r in "0123456789" for r in rest):
            right = [int(r) for r in rest] == list(self.delay.values())
            return (
                ("The sexton nods." if right else "The sexton shakes his head."),
                float(right),
                True,
                False,
                {},
            )
        ask = f" {self.max_turns - self.turn} turns left: pull, listen or delays."
        if word == "listen" and not rest:
            return heard + ask, 0.0, False, late, {}
        if word == "pull" and rest and set(rest) <= set(LEVERS) and len(set(rest)) == len(rest):
            for lever in rest:
                if lever != self.mute:
                    at = self.turn + self.delay[lever]
                    self.due[at] = self.due.get(at, 0) + 1
            return f"Pulled {', '.join(rest)}. {heard}{ask}", 0.0, False, late, {}
        return f"Invalid order, a minute passes. {heard}{ask}", 0.0, False, late, {}

    def solution(self):
        tests = [] if self.turn else [f"pull {LEVERS[0]}", f"pull {LEVERS[1]}", *["listen"] * LONGEST]
        return [*tests, "delays " + " ".join(map(str, self.delay.values()))]

    def hint(self):
        return "Start levers so far apart that their rings cannot be confused, or tell them apart by pulling twice."

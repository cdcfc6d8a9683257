import itertools
import random
import re

LEVEL = 1

TRAITS = {
    "hat": ("cap", "felt", "none"),
    "coat": ("grey", "green", "blue"),
    "shoes": ("boots", "clogs"),
    "beard": ("full", "shaved"),
    "bag": ("sack", "case"),
    "gait": ("limp", "brisk"),
}
COUNT, ERRORS = {1: (40, 0), 2: (40, 1), 3: (44, 2)}[LEVEL]
_NAMES = (
    "Abel Adele Anton Berta Bruno Carla Cyril Dagny Doris Edgar Elias Emmy Felix Flora Georg Greta Hanno Heidi "
    "Igor Ilse Jakob Jutta Klaus Klara Lorenz Lotte Magnus Marta Nils Nora Oskar Olga Pavel Paula Quentin Rosa "
    "Stefan Sofia Theo Tilda Ulrich Uma Viktor Vera Walter Wanda"
)
NAMES = _NAMES.split()


class ForgetfulWitnessEnv:
    """Find a person among many by yes-or-no questions to somebody who may err."""

    max_turns = {1: 9, 2: 15, 3: 21}[LEVEL]

    def reset(self, seed=None):
        rng = random.Random(seed)
        looks = rng.sample(list(itertools.product(*TRAITS.values())), COUNT)
        self.people = dict(zip(sorted(rng.sample(NAMES, COUNT)), looks, strict=True))
        self.thief = rng.choice(list(self.people))
        self.wrong = set(rng.sample(range(self.max_turns - 2), ERRORS))
        self.turn = self.asked = 0
        care = {0: "She remembers everything", 1: "At most one of her answers is wrong"}
        care = care.get(ERRORS, "At most two of her answers are wrong")
        table = "\n".join(f"{name}: {', '.join(look)}" for name, look in self.people.items())
        return (
            f"Somebody left the station with the wrong trunk, and Madame Orlova saw it happen. {care}. Traits in "
            f"the order {', '.join(TRAITS)}:\n{table}\n"
            "Question her with \\boxed{ask TRAIT VALUE}, as in \\boxed{ask bag case}; she says yes or no. Name the "
            f"person with \\boxed{{accuse NAME}}, once. You have {self.max_turns} turns altogether."
        ), {}

    def step(self, action):
        self.turn += 1
        late = self.turn >= self.max_turns
        words = re.sub(r"^\\boxed\{|\}$", "", action.strip()).lower().split()
        by_name = {name.lower(): name for name in self.people}
        if len(words) == 2 and words[0] == "accuse" and words[1] in by_name:
            right = by_name[words[1]] == self.thief
            text = (
                "The trunk is found in that cellar." if right else "An honest traveller; the trunk is gone."
            )
            return text, float(right), True, False, {}
        if len(words) == 3 and words[0] == "ask" and words[2] in TRAITS.get(words[1], ()):
            place = list(TRAITS).index(words[1])
            truth = self.people[self.thief][place] == words[2]
            said = truth != (self.asked in self.wrong)
            self.asked += 1
            text = f'{words[1]} {words[2]}? "{"Yes" if said else "No"}." Turns left: {self.max_turns - self.turn}.'
            return text + " Ask on or accuse, in \\boxed{}.", 0.0, False, late, {}
        text = "Invalid: she only understands 'ask TRAIT VALUE', and you may 'accuse NAME' of the list, in \\boxed{}."
        return text, 0.0, False, late, {}

    def solution(self):
        return ["ask shoes boots", "ask beard full", "ask bag sack", f"accuse {self.thief}"]

    def hint(self):
        return "Ask what splits the remaining people in half; where she may err, let two questions overlap."

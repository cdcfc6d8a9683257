LEVEL = 1

CLOSING = "I have more for you after that. When there is nothing left, write <answer>done</answer>."

CHAIN = {1: 1, 2: 2, 3: 3}[LEVEL]
FIRST = ("Anna", "Boris", "Clara", "David", "Elena", "Franz", "Gerda", "Hugo")
LAST = ("Almqvist", "Berger", "Corti", "Dietz", "Ewald", "Fontane", "Grass")
TOWNS = (
    "Brava",
    "Corvin",
    "Dorla",
    "Elsen",
    "Farnau",
    "Gelt",
    "Holm",
    "Isen",
    "Jorik",
    "Kalven",
    "Lunde",
    "Morra",
)


class ArchiveReferencesEnv(ToolEnv):
    """Follow references between letters, persons and places; names are not unique, numbers are."""

    max_turns = {1: 17, 2: 21, 3: 25}[LEVEL]
    tools = {
        "letter": {
            "description": "writer and receiver of a letter, as card numbers",
            "parameters": {"number": "integer"},
        },
        "card": {"description": "what the card of a person says", "parameters": {"number": "integer"}},
        "find": {"description": "card numbers of all persons of a name", "parameters": {"name": "string"}},
        "town": {"description": "district and river of a town", "parameters": {"name": "string"}},
        "answer_desk": {
            "description": "give the reader an answer of one or two words",
            "parameters": {"text": "string"},
        },
    }

    def setup(self, rng):
        numbers = rng.sample(range(1000, 9999), 24)
        people = {}
        for n in numbers:
            teacher, town = rng.choice([m for m in numbers if m != n]), rng.choice(TOWNS)
            people[n] = {"name": f"{rng.choice(FIRST)} {rng.choice(LAST)}", "town": town, "teacher": teacher}
        districts = [
            a + b for a in ("Nor", "Sur", "Wes", "Ost", "Mid") for b in ("mark", "gau", "land", "ried")
        ]
        rivers = rng.sample(
            (
                "Aune",
                "Bire",
                "Cesa",
                "Dove",
                "Elbrin",
                "Fulda",
                "Gisa",
                "Havre",
                "Ipf",
                "Jaar",
                "Kinz",
                "Lahr",
            ),
            12,
        )
        towns = dict(zip(TOWNS, zip(rng.sample(districts, 12), rivers, strict=True), strict=True))
        letters = {n: tuple(rng.sample(numbers, 2)) for n in rng.sample(range(100, 999), 8)}
        self.state = {"people": people, "towns": towns, "letters": letters, "answers": []}
        self.tasks, self.plan, due = [], [], []
        for letter in rng.sample(sorted(letters), 3):
            role = rng.randrange(2)
            person = letters[letter][role]
            self.plan += [self.call("letter", number=letter), self.call("card", number=person)]
            who = f"the {('writer', 'receiver')[role]} of letter {letter}"
            for _ in range(CHAIN - 1):
                person = people[person]["teacher"]
                who = f"the teacher of {who}"
                self.plan.append(self.call("card", number=person))
            kind = rng.randrange(2)
            value = towns[people[person]["town"]][kind]
            text = (
                f"In which district was {who} born? Give it at the desk."
                if kind == 0
                else (f"On which river lies the town where {who} was born? Give it at the desk.")
            )
            due = [*due, value.casefold()]
            self.tasks.append((text, lambda s, d=tuple(due): s["answers"] == list(d)))
            self.plan += [
                self.call("town", name=people[person]["town"]),
                self.call("answer_desk", text=value),
            ]
        self.tasks[0] = (f"{self.tasks[0][0]} {CLOSING}", self.tasks[0][1])
        self.plan.append(self.answer)

    def tool_letter(self, number):
        if number not in self.state["letters"]:
            return "error: no letter of that number"
        writer, receiver = self.state["letters"][number]
        return f"letter {number}: written by card {writer}, received by card {receiver}"

    def tool_card(self, number):
        row = self.state["people"].get(number)
        if row is None:
            return "error: no card of that number"
        return f"card {number}: {row['name']}, born in {row['town']}, pupil of card {row['teacher']}"

    def tool_find(self, name):
        found = [n for n, row in self.state["people"].items() if row["name"].casefold() == name.casefold()]
        return ", ".join(map(str, found)) or "error: nobody of that name"

    def tool_town(self, name):
        if name not in self.state["towns"]:
            return "error: no such town"
        district, river = self.state["towns"][name]
        return f"{name}: district {district}, on the {river}"

    def tool_answer_desk(self, text):
        self.state["answers"] = [*self.state["answers"][: self.current], text.strip().casefold()]
        return "the reader writes it down"

    def solution(self):
        return self.plan

    def hint(self):
        return "Write down the card number at every step; the question is read from its end to its beginning."

SKILL = "State Modification"
VARIANTS = [
    {"PLACE": "library", "ITEM": "book", "NOUNS": ["Atlas", "Botany", "Chess", "Dunes", "Echo", "Fables"], "PEOPLE": ["Ines", "Jonas", "Kira", "Lev"]},
    {"PLACE": "tool shed", "ITEM": "tool", "NOUNS": ["Adze", "Brace", "Chisel", "Drill", "File", "Gouge"], "PEOPLE": ["Mara", "Nils", "Olga", "Pavel"]},
    {"PLACE": "costume store", "ITEM": "costume", "NOUNS": ["Admiral", "Bear", "Clown", "Dragon", "Elf", "Friar"], "PEOPLE": ["Quinn", "Rosa", "Stefan", "Tara"]},
]


class LendingEnv(ToolEnv):
    """Lend things out and take them back: who has something must be looked up first."""

    max_turns = 12
    tools = {
        "who_has": {"description": "tell who holds a " + ITEM + " at present", "parameters": {"name": "string"}},
        "give_back": {"description": "take a " + ITEM + " back from the person who holds it", "parameters": {"name": "string", "person": "string"}},
        "lend": {"description": "lend a " + ITEM + " that is in store to a person for some days", "parameters": {"name": "string", "person": "string", "days": "integer"}},
        "opening_hours": {"description": "tell when the place is open", "parameters": {}},
    }

    def setup(self, rng):
        a, b, c = rng.sample(NOUNS, 3)
        p, q, r = rng.sample(PEOPLE, 3)
        days, more = rng.sample(range(3, 29), 2)
        self.state = {"held": {a: p, b: q}, "days": {}, "asked": []}
        self.tasks = [
            (f"{a} is wanted by {r}. Take it back from whoever has it and lend it to {r} for {days} days.", lambda s: s["held"].get(a) == r and s["days"].get(a) == days),
            (f"Who has {b}? Look it up.", lambda s: b in s["asked"]),
            (f"Whoever has {b} shall also get {c}, for {more} days.", lambda s: s["held"].get(c) == q and s["days"].get(c) == more),
        ]
        self.plan = [
            self.call("who_has", name=a),
            self.call("give_back", name=a, person=p),
            self.call("lend", name=a, person=r, days=days),
            self.call("who_has", name=b),
            self.call("lend", name=c, person=q, days=more),
            self.answer,
        ]

    def tool_who_has(self, name):
        if name not in NOUNS:
            return "error: there is no such " + ITEM
        self.state["asked"].append(name)
        holder = self.state["held"].get(name)
        return f"{holder} has {name}" if holder else f"{name} is in store"

    def tool_give_back(self, name, person):
        if self.state["held"].get(name) != person:
            return f"error: {person} does not have {name}"
        del self.state["held"][name]
        self.state["days"].pop(name, None)
        return f"{name} is back in store"

    def tool_lend(self, name, person, days):
        if name not in NOUNS or person not in PEOPLE or days < 1:
            return "error: no such " + ITEM + ", person or time"
        if name in self.state["held"]:
            return f"error: {name} is not in store"
        self.state["held"][name], self.state["days"][name] = person, days
        return f"{person} has {name} for {days} days"

    def tool_opening_hours(self):
        return "the " + PLACE + " is open from nine to five"

    def solution(self):
        return self.plan

    def hint(self):
        return "Look up the holder before you take anything back; only what is in store can be lent."

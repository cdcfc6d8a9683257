LEVEL = 1

CLOSING = "More may follow. When everything asked for is done, say <answer>done</answer>."

TABLES, SEATS, JOBS = {1: (3, 4, 3), 2: (4, 4, 4), 3: (5, 4, 5)}[LEVEL]
_NAMES = "Aldo Bea Cem Dora Egon Fee Gil Hana Ivo Jana Kuno Lea Milo Nell Otto Pia Quin Rita Sam Tess Udo Vita Wim Xena"
NAMES = _NAMES.split()


class SeatingPlanEnv(ToolEnv):
    """Change a seating plan exactly as asked while no table may ever hold too many guests."""

    max_turns = {1: 14, 2: 18, 3: 24}[LEVEL]
    tools = {
        "table": {"description": "guests of a table, with their dishes", "parameters": {"number": "integer"}},
        "where": {"description": "the table of a guest", "parameters": {"guest": "string"}},
        "move": {
            "description": "move a guest to a table with a free seat",
            "parameters": {"guest": "string", "to": "integer"},
        },
        "swap": {
            "description": "let two guests change places",
            "parameters": {"one": "string", "other": "string"},
        },
    }

    def setup(self, rng):
        guests = rng.sample(NAMES, TABLES * SEATS - 2)
        dish = {g: rng.choice(("fish", "dumplings", "venison")) for g in guests}
        seats = [n for n in range(1, TABLES + 1) for _ in range(SEATS)]
        rng.shuffle(seats)
        at = dict(zip(guests, seats, strict=False))
        self.state = {"at": dict(at), "dish": dish}
        self.tasks, self.plan = [], ["\n".join(self.call("table", number=n) for n in range(1, TABLES + 1))]
        for job in range(JOBS):
            room = [n for n in range(1, TABLES + 1) if list(at.values()).count(n) < SEATS]
            kind = ("move", "swap", "dish", "swap", "move")[(job + LEVEL) % 5]
            if kind == "move":
                guest = rng.choice([g for g in guests if at[g] not in room] or guests)
                to = rng.choice([n for n in room if n != at[guest]])
                text, after = f"{guest} wants to sit at table {to}; nobody else is to move.", {guest: to}
                self.plan.append(self.call("move", guest=guest, to=to))
            elif kind == "swap":
                one, other = self.pair(rng, guests, at)
                text, after = f"{one} and {other} wish to change places.", {one: at[other], other: at[one]}
                self.plan.append(self.call("swap", one=one, other=other))
            else:
                number, one, mate, other = self.dish_case(rng, guests, at, dish)
                text = (
                    f"Whoever eats {dish[one]} at table {number} and stands first in the alphabet changes places with the "
                    f"last in the alphabet of those at {mate}'s table, {mate} not counted."
                )
                after = {one: at[other], other: at[one]}
                self.plan.append(self.call("swap", one=one, other=other))
            at = {**at, **after}
            self.tasks.append((text, lambda s, a=at: s["at"] == a))
        self.tasks[0] = (f"{self.tasks[0][0]} {CLOSING}", self.tasks[0][1])
        self.plan.append(self.answer)

    def pair(self, rng, guests, at):
        one = rng.choice(guests)
        return one, rng.choice([g for g in guests if at[g] != at[one]])

    def dish_case(self, rng, guests, at, dish):
        while True:
            one, mate = self.pair(rng, guests, at)
            others = [g for g in guests if at[g] == at[mate] and g != mate]
            if others and one == min(g for g in guests if at[g] == at[one] and dish[g] == dish[one]):
                return at[one], one, mate, max(others)

    def tool_table(self, number):
        rows = sorted(g for g, n in self.state["at"].items() if n == number)
        if not 1 <= number <= TABLES:
            return f"error: tables are 1 to {TABLES}"
        return f"table {number}: " + (", ".join(f"{g} ({self.state['dish'][g]})" for g in rows) or "empty")

    def tool_where(self, guest):
        found = self.state["at"].get(guest)
        return "error: no such guest" if found is None else f"{guest} sits at table {found}"

    def tool_move(self, guest, to):
        if guest not in self.state["at"] or not 1 <= to <= TABLES:
            return "error: no such guest or table"
        if list(self.state["at"].values()).count(to) >= SEATS:
            return f"refused: table {to} is full"
        self.state["at"] = {**self.state["at"], guest: to}
        return f"{guest} sits at table {to} now"

    def tool_swap(self, one, other):
        at = self.state["at"]
        if one not in at or other not in at:
            return "error: no such guest"
        self.state["at"] = {**at, one: at[other], other: at[one]}
        return f"{one} and {other} have changed places"

    def solution(self):
        return self.plan

    def hint(self):
        return "Read the tables a request speaks of before you change anything, and change nothing else."

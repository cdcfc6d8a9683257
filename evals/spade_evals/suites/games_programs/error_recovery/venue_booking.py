LEVEL = 1

CLOSING = "Other requests come afterwards; after the last one answer <answer>done</answer>."

HALLS = ("Aster", "Begonia", "Clover", "Dahlia", "Elder", "Fuchsia", "Gentian", "Hyssop")
EVENTS = ("choir", "chess club", "book fair", "dance class", "quiz night", "yoga", "flea market", "debate")
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday")
QUOTA = {1: 9, 2: 4, 3: 3}[LEVEL]


class VenueBookingEnv(ToolEnv):
    """Book halls although the wanted ones are taken, closed or beyond the quota, by the rules of the house."""

    max_turns = {1: 16, 2: 22, 3: 25}[LEVEL]
    tools = {
        "book": {
            "description": "book a hall for an event on a day; gives a booking number",
            "parameters": {
                "hall": "string",
                "day": {"type": "string", "enum": list(DAYS)},
                "event": "string",
            },
        },
        "halls": {"description": "all halls with their seats", "parameters": {}},
        "rule": {
            "description": "what the house rules say about a problem",
            "parameters": {"problem": "string"},
        },
        "bookings": {"description": "your own bookings, oldest first", "parameters": {}},
        "release": {"description": "give a booking back by its number", "parameters": {"number": "integer"}},
    }

    def setup(self, rng):
        seats = dict(
            zip(rng.sample(HALLS, len(HALLS)), rng.sample(range(20, 300, 5), len(HALLS)), strict=True)
        )
        larger = {h: sorted((o for o in seats if seats[o] > seats[h]), key=seats.get) for h in seats}
        numbers = rng.sample(range(1000, 9999), 30)
        self.numbers, events = numbers[10:], rng.sample(EVENTS, len(EVENTS))
        mine = [
            (numbers.pop(), rng.choice(list(seats)), rng.choice(DAYS), "old " + events.pop())
            for _ in range(2)
        ]
        self.state = {"seats": seats, "taken": {}, "mine": list(mine)}
        self.tasks, self.plan, fresh = [], [self.call("halls"), self.call("bookings")], list(self.numbers)
        for job, day in enumerate(rng.sample(DAYS, 3 if LEVEL < 3 else 4)):
            event = events.pop()
            used = {(h, d) for _, h, d, _ in mine} | set(self.state["taken"])
            blocked = job % 3 if LEVEL == 1 else 1 + job % 2
            open_ones = [h for h in sorted(seats, key=seats.get) if (h, day) not in used]
            hall = rng.choice(open_ones[: len(open_ones) - blocked])
            free = [h for h in (hall, *larger[hall]) if h in open_ones]
            for other in free[:blocked]:
                self.state["taken"][other, day] = rng.choice(
                    ("closed for repairs", "booked by the parish", "booked by the school")
                )
            target = free[blocked]
            if len(mine) >= QUOTA:
                self.plan += [
                    self.call("book", hall=target, day=day, event=event),
                    self.call("rule", problem="quota"),
                ]
                self.plan += [self.call("bookings"), self.call("release", number=mine[0][0])]
                mine = mine[1:]
            elif blocked:
                self.plan += [
                    self.call("book", hall=hall, day=day, event=event),
                    self.call("rule", problem="taken"),
                ]
            mine = [*mine, (fresh.pop(0), target, day, event)]
            self.plan.append(self.call("book", hall=target, day=day, event=event))
            text = f"Book {hall} for the {event} on {day}. If that cannot be, do what the house rules say."
            wanted = [row[1:] for row in mine]
            self.tasks.append((text, lambda s, w=wanted: [row[1:] for row in s["mine"]] == w))
        self.tasks[0] = (f"{self.tasks[0][0]} {CLOSING}", self.tasks[0][1])
        self.plan.append(self.answer)

    def tool_book(self, hall, day, event):
        if hall not in self.state["seats"]:
            return "error: no such hall"
        if (hall, day) in self.state["taken"]:
            return f"refused: {hall} is {self.state['taken'][hall, day]} on {day}"
        if any(row[1:3] == (hall, day) for row in self.state["mine"]):
            return f"refused: you have {hall} on {day} already"
        if len(self.state["mine"]) >= QUOTA:
            return f"refused: the quota of {QUOTA} bookings is used up"
        if not self.numbers:
            return "refused: the desk is closed"
        name = event.strip().lower().removeprefix("the ").strip()
        self.state["mine"] = [*self.state["mine"], (self.numbers.pop(0), hall, day, name)]
        return f"booking {self.state['mine'][-1][0]}: {hall}, {day}, {name}"

    def tool_halls(self):
        return ", ".join(f"{h} {n} seats" for h, n in sorted(self.state["seats"].items()))

    def tool_rule(self, problem):
        if "quota" in problem.lower():
            return "quota: release your oldest booking, then book"
        return "taken or closed: take the hall with the next higher number of seats that is free on that day"

    def tool_bookings(self):
        return "; ".join(f"{n}: {h}, {d}, {e}" for n, h, d, e in self.state["mine"]) or "none"

    def tool_release(self, number):
        kept = [row for row in self.state["mine"] if row[0] != number]
        if len(kept) == len(self.state["mine"]):
            return "error: you have no booking of that number"
        self.state["mine"] = kept
        return f"booking {number} is released"

    def solution(self):
        return self.plan

    def hint(self):
        return "Read the house rule for each kind of refusal, follow it exactly, and try again."

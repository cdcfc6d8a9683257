LEVEL = 1

CLOSING = "There will be further requests; once none is left, reply <answer>done</answer>."

TRAVELLERS = {1: 2, 2: 3, 3: 4}[LEVEL]
PEOPLE = ("Aydin", "Bianchi", "Castro", "Dubois", "Eriksen", "Farouk", "Ganz", "Horvat", "Ito", "Jansen")


def clock(minutes):
    return f"{minutes // 60:02d}:{minutes % 60:02d}"


class AirportTransferEnv(ToolEnv):
    """Follow flights to gates, gates to terminals, and book the right shuttle for each traveller."""

    max_turns = {1: 14, 2: 20, 3: 25}[LEVEL]
    tools = {
        "flight": {
            "description": "status of a flight: landing time and gate",
            "parameters": {"code": "string"},
        },
        "gate": {"description": "the terminal that a gate belongs to", "parameters": {"gate": "string"}},
        "shuttles": {
            "description": "shuttles leaving a terminal, with free seats",
            "parameters": {"terminal": "integer"},
        },
        "book": {
            "description": "book seats for a traveller on a shuttle",
            "parameters": {"traveller": "string", "shuttle": "string", "seats": "integer"},
        },
        "cancel": {"description": "cancel a traveller's booking", "parameters": {"traveller": "string"}},
    }

    def setup(self, rng):
        gates = [a + str(n) for a in "ABCDE" for n in range(1, 13)]
        rng.shuffle(gates)
        codes = iter([rng.choice(("KD", "LX", "QR", "TN")) + str(n) for n in rng.sample(range(101, 999), 20)])
        numbers = iter(rng.sample(range(100, 999), 60))
        self.state = {"flights": {}, "gates": {}, "shuttles": {}, "booked": {}}
        self.tasks, self.plan = [], []
        terminals = rng.sample(range(1, 9), TRAVELLERS)
        for n, who in enumerate(rng.sample(PEOPLE, TRAVELLERS)):
            code, gate, terminal = next(codes), gates.pop(), terminals.pop()
            lands, party, walk = rng.randint(480, 1200), rng.randint(1, 4), rng.choice((20, 30, 40, 50))
            asked = code
            if LEVEL > 1 and n % 2:  # replaced by another flight, which has to be looked up in turn
                code = next(codes)
                self.state["flights"][asked] = f"cancelled; passengers fly on {code}"
                self.plan.append(self.call("flight", code=asked))
            self.state["flights"][code] = f"lands {clock(lands)} at gate {gate}"
            self.state["gates"][gate] = terminal
            times = sorted(
                rng.sample(range(lands - 40, lands + walk, 5), 3) + [lands + walk + k for k in (7, 22, 41)]
            )
            rows = {}
            for time in times:
                free = rng.randint(party, 6) if LEVEL < 3 or time != lands + walk + 7 else party - 1
                rows[f"S{next(numbers)}"] = (time, free)
            self.state["shuttles"].setdefault(terminal, {}).update(rows)
            rows = self.state["shuttles"][terminal]
            fits = [s for s, (t, free) in rows.items() if t >= lands + walk and free >= party]
            right = min(fits, key=lambda s: rows[s][0])
            seats = "a seat" if party == 1 else f"{party} seats"
            text = (
                f"{who} arrives on flight {asked} and needs {walk} minutes from landing to the shuttle stop. Book "
                f"{seats} on the first shuttle from the right terminal that can be reached and has the room."
            )
            self.tasks.append((text, lambda s, w=who, r=right, p=party: s["booked"].get(w) == (r, p)))
            self.plan += [
                self.call("flight", code=code),
                self.call("gate", gate=gate),
                self.call("shuttles", terminal=terminal),
                self.call("book", traveller=who, shuttle=right, seats=party),
            ]
        self.tasks[0] = (f"{self.tasks[0][0]} {CLOSING}", self.tasks[0][1])
        self.plan.append(self.answer)

    def tool_flight(self, code):
        return (
            f"{code}: {self.state['flights'][code]}"
            if code in self.state["flights"]
            else "error: unknown flight"
        )

    def tool_gate(self, gate):
        found = self.state["gates"].get(gate)
        return "error: no such gate" if found is None else f"gate {gate} is in terminal {found}"

    def tool_shuttles(self, terminal):
        rows = self.state["shuttles"].get(terminal, {})
        ordered = sorted(rows.items(), key=lambda row: row[1])
        return "; ".join(f"{s} at {clock(t)}, {free} free" for s, (t, free) in ordered) or "none today"

    def tool_book(self, traveller, shuttle, seats):
        if traveller in self.state["booked"]:
            return (
                f"refused: {traveller} is on {self.state['booked'][traveller][0]} already; cancel that first"
            )
        rows = [r for r in self.state["shuttles"].values() if shuttle in r]
        if not rows:
            return "error: no such shuttle"
        if not 1 <= seats <= rows[0][shuttle][1]:
            return "refused: not enough free seats"
        self.state["booked"][traveller] = (shuttle, seats)
        return f"{traveller} has {seats} on {shuttle}"

    def tool_cancel(self, traveller):
        return "cancelled" if self.state["booked"].pop(traveller, None) else "error: no booking of that name"

    def solution(self):
        return self.plan

    def hint(self):
        return "Flight gives gate, gate gives terminal, terminal gives shuttles; compare times only then."

LEVEL = 1

CLOSING = "Then wait for the next request; when no more come, finish with <answer>done</answer>."

PARCELS = {1: 2, 2: 2, 3: 3}[LEVEL]
ZONES = ("inland", "islands", "overseas")
PEOPLE = ("Achim", "Bettina", "Claas", "Dorit", "Eike", "Frauke", "Geert", "Hilke")


class ParcelCounterEnv(ToolEnv):
    """Take parcels through a counter: register, weigh, price, pay, label, dispatch, each step needing the last."""

    max_turns = {1: 18, 2: 20, 3: 25}[LEVEL]
    tools = {
        "register": {
            "description": "register a parcel for a receiver; gives its number",
            "parameters": {"receiver": "string"},
        },
        "address": {"description": "town and zone of a receiver", "parameters": {"receiver": "string"}},
        "weigh": {"description": "weight of a parcel in grams", "parameters": {"parcel": "integer"}},
        "tariff": {
            "description": "price list of a zone",
            "parameters": {"zone": {"type": "string", "enum": list(ZONES)}},
        },
        "pay": {
            "description": "pay postage for a parcel",
            "parameters": {"parcel": "integer", "cents": "integer"},
        },
        "label": {
            "description": "stick a label with the zone on a parcel that is paid",
            "parameters": {"parcel": "integer", "zone": {"type": "string", "enum": list(ZONES)}},
        },
        "dispatch": {"description": "send off a labelled parcel", "parameters": {"parcel": "integer"}},
    }

    def setup(self, rng):
        self.numbers = rng.sample(range(1000, 9999), 12)
        receivers = rng.sample(PEOPLE, PARCELS)
        zone = {p: rng.choice(ZONES) for p in PEOPLE}
        tariff = {z: (rng.randint(210, 490), rng.randint(35, 95), rng.choice((250, 500))) for z in ZONES}
        self.weights = [rng.randint(300, 4900) for _ in self.numbers]
        self.state = {"zone": zone, "tariff": tariff, "parcels": {}, "sent": []}
        self.tasks, self.plan, sent = [], [], []
        for k, who in enumerate(receivers):
            number, grams = self.numbers[k], self.weights[k]
            cents = self.price(zone[who], grams)
            extra = ""
            if LEVEL > 1:
                extra, cents = " as express, which doubles the postage", 2 * cents
            if LEVEL == 3 and k:
                extra += f" and costs 7 cents less because {receivers[k - 1]}'s went before it"
                cents -= 7
            sent = [*sent, (who, zone[who], cents)]
            self.tasks += [
                (
                    f"There is a parcel for {who}: register it and have it paid{extra}.",
                    lambda s, n=number, c=cents: s["parcels"].get(n, {}).get("paid") == c,
                ),
                (f"Send {who}'s parcel off.", lambda s, w=tuple(sent): s["sent"] == list(w)),
            ][0 if k < 2 else 1 :]
            self.plan += [
                self.call("register", receiver=who),
                self.call("address", receiver=who),
                self.call("weigh", parcel=number),
                self.call("tariff", zone=zone[who]),
                self.call("pay", parcel=number, cents=cents),
                self.call("label", parcel=number, zone=zone[who]),
                self.call("dispatch", parcel=number),
            ]
        if LEVEL == 3:
            text = f"Send {receivers[2]} a parcel as well, express, and again 7 cents off because another one went before."
            self.tasks[-1] = (text, self.tasks[-1][1])
        self.tasks[0] = (f"{self.tasks[0][0]} {CLOSING}", self.tasks[0][1])
        self.plan.append(self.answer)

    def price(self, zone, grams):
        base, step, unit = self.state["tariff"][zone]
        return base + step * -(-grams // unit)

    def parcel(self, number):
        return self.state["parcels"].get(number)

    def tool_register(self, receiver):
        if receiver not in self.state["zone"]:
            return "error: unknown receiver"
        count = len(self.state["parcels"])
        if count >= len(self.numbers):
            return "refused: the counter is full"
        self.state["parcels"][self.numbers[count]] = {"for": receiver, "grams": self.weights[count]}
        return f"parcel {self.numbers[count]}"

    def tool_address(self, receiver):
        zone = self.state["zone"].get(receiver)
        return "error: unknown receiver" if zone is None else f"{receiver} lives in zone {zone}"

    def tool_weigh(self, parcel):
        row = self.parcel(parcel)
        return "error: no such parcel" if row is None else f"{row['grams']} grams"

    def tool_tariff(self, zone):
        base, step, unit = self.state["tariff"][zone]
        return f"{zone}: {base} cents, and {step} cents for every {unit} grams or part of it"

    def tool_pay(self, parcel, cents):
        row = self.parcel(parcel)
        if row is None or cents < 1:
            return "error: no such parcel or amount"
        row["paid"] = cents
        return f"parcel {parcel}: {cents} cents paid"

    def tool_label(self, parcel, zone):
        row = self.parcel(parcel)
        if row is None:
            return "error: no such parcel"
        if "paid" not in row:
            return "refused: pay first"
        row["label"] = zone
        return f"parcel {parcel} is labelled {zone}"

    def tool_dispatch(self, parcel):
        row = self.parcel(parcel)
        if row is None or row.get("gone"):
            return "error: no such parcel here"
        if "label" not in row:
            return "refused: a label is missing"
        row["gone"] = True
        self.state["sent"] = [*self.state["sent"], (row["for"], row["label"], row["paid"])]
        return f"parcel {parcel} is on its way"

    def solution(self):
        return self.plan

    def hint(self):
        return "Work out the postage from weight and zone before you pay; a started unit of weight counts in full."

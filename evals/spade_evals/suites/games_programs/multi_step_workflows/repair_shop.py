LEVEL = 1

CLOSING = "Further wishes may be added. Close with <answer>done</answer> when all are met."

JOBS = 2
ITEMS = ("radio", "kettle", "clock", "lamp", "mixer", "fan")
PARTS = ("belt", "coil", "diode", "fuse", "gasket", "spring")
PEOPLE = ("Arno", "Britta", "Carlo", "Doro", "Emil", "Finn", "Gesa", "Hauke")


class RepairShopEnv(ToolEnv):
    """Bring broken things through a workshop, where tests may fail and parts may have to be ordered."""

    max_turns = {1: 20, 2: 25, 3: 25}[LEVEL]
    tools = {
        "take_in": {
            "description": "take in an item of a customer; gives a ticket",
            "parameters": {"customer": "string", "item": "string"},
        },
        "inspect": {
            "description": "which part of a ticket's item is broken",
            "parameters": {"ticket": "string"},
        },
        "shelf": {
            "description": "price of a part and how many are there",
            "parameters": {"part": {"type": "string", "enum": list(PARTS)}},
        },
        "order": {
            "description": "order one piece of a part",
            "parameters": {"part": {"type": "string", "enum": list(PARTS)}},
        },
        "fit": {
            "description": "fit a new part",
            "parameters": {"ticket": "string", "part": {"type": "string", "enum": list(PARTS)}},
        },
        "test": {"description": "test the item of a ticket", "parameters": {"ticket": "string"}},
        "bill": {
            "description": "write the bill and hand the item back",
            "parameters": {"ticket": "string", "crowns": "integer"},
        },
    }

    def setup(self, rng):
        self.tickets = [
            f"{c}{n}" for c, n in zip(rng.choices("RSTU", k=9), rng.sample(range(100, 999), 9), strict=True)
        ]
        price = {p: rng.randint(12, 88) for p in PARTS}
        stock = dict.fromkeys(PARTS, 3) | dict.fromkeys(rng.sample(PARTS, 2), 0)
        self.state = {"price": price, "stock": stock, "items": {}, "billed": [], "ordered": []}
        self.tasks, self.plan, self.faults, billed, there = [], [], [], [], dict(stock)
        for k, who in enumerate(rng.sample(PEOPLE, JOBS)):
            item, ticket, labour = rng.choice(ITEMS), self.tickets[k], rng.randint(15, 60)
            broken = rng.sample(PARTS, 1 if LEVEL == 1 else rng.randint(LEVEL - 1, 2))
            self.faults.append(broken)
            total = labour
            plan = [self.call("take_in", customer=who, item=item)]
            for n, part in enumerate(broken):
                plan += [self.call("test", ticket=ticket)] * (n > 0) + [
                    self.call("inspect", ticket=ticket),
                    self.call("shelf", part=part),
                ]
                total += price[part]
                if not there[part]:
                    total += 5 * (LEVEL == 3)
                    plan.append(self.call("order", part=part))
                    there[part] += 1
                there[part] -= 1
                plan.append(self.call("fit", ticket=ticket, part=part))
            extra = f" with {labour} crowns for the work"
            if LEVEL == 3:
                extra = f"{extra} and 5 crowns more for each part you had to order"
            if LEVEL == 3 and k == JOBS - 1:
                total, extra = (
                    total - total // 10,
                    extra + " and, as a regular, a tenth less on the sum (rounded down)",
                )
            billed = [*billed, (who, item, total)]
            self.tasks += [
                (
                    f"{who} brings a broken {item}. Repair it.",
                    lambda s, t=ticket: s["items"].get(t, {}).get("tested", False),
                ),
                (
                    f"Bill {who} for all parts you fitted{extra}.",
                    lambda s, w=tuple(billed): s["billed"] == list(w),
                ),
            ]
            self.plan += [
                *plan,
                self.call("test", ticket=ticket),
                self.call("bill", ticket=ticket, crowns=total),
            ]
        self.tasks[0] = (f"{self.tasks[0][0]} {CLOSING}", self.tasks[0][1])
        self.plan.append(self.answer)

    def row(self, ticket):
        return self.state["items"].get(ticket)

    def tool_take_in(self, customer, item):
        count = len(self.state["items"])
        if count >= len(self.faults):
            return "refused: nobody else is waiting"
        self.state["items"][self.tickets[count]] = {
            "who": customer,
            "item": item,
            "left": list(self.faults[count]),
            "tested": False,
        }
        return f"ticket {self.tickets[count]}"

    def tool_inspect(self, ticket):
        row = self.row(ticket)
        if row is None:
            return "error: no such ticket"
        return f"the {row['left'][0]} is broken" if row["left"] else "nothing is broken"

    def tool_shelf(self, part):
        return f"{part}: {self.state['price'][part]} crowns, {self.state['stock'][part]} on the shelf"

    def tool_order(self, part):
        self.state["stock"][part] += 1
        self.state["ordered"].append(part)
        return f"one {part} has arrived"

    def tool_fit(self, ticket, part):
        row = self.row(ticket)
        if row is None:
            return "error: no such ticket"
        if not self.state["stock"][part]:
            return f"refused: there is no {part} on the shelf"
        if row["left"][:1] != [part]:
            return f"refused: the old {part} is fine"
        self.state["stock"][part] -= 1
        row["left"] = row["left"][1:]
        return f"a new {part} is in"

    def tool_test(self, ticket):
        row = self.row(ticket)
        if row is None:
            return "error: no such ticket"
        row["tested"] = not row["left"]
        return "it works" if row["tested"] else "it still does not work; inspect it again"

    def tool_bill(self, ticket, crowns):
        row = self.row(ticket)
        if row is None or row.get("billed"):
            return "error: no such ticket, or billed already"
        if not row["tested"]:
            return "refused: it has not passed a test"
        row["billed"] = True
        self.state["billed"] = [*self.state["billed"], (row["who"], row["item"], crowns)]
        return f"{row['who']} pays {crowns} crowns and takes the {row['item']} home"

    def solution(self):
        return self.plan

    def hint(self):
        return (
            "Inspect, look at the shelf, order if needed, fit, test; one repair may uncover the next fault."
        )

class BankEnv(ToolEnv):
    """The amount is not said: it has to be read first. Two calls in one turn are fine."""

    max_turns = 10
    tools = {
        "read_balance": {"description": "balance of an account", "parameters": {"account": "string"}},
        "read_bill": {"description": "amount of a bill", "parameters": {"bill": "string"}},
        "transfer": {
            "description": "move money",
            "parameters": {"source": "string", "target": "string", "amount": "integer"},
        },
        "freeze": {"description": "freeze or thaw an account", "parameters": {"account": "string"}},
    }

    def setup(self, rng):
        bills = rng.sample(["rent", "power", "water", "phone"], 3)
        self.state = {
            "balance": {"main": rng.randint(2000, 9000), "spare": rng.randint(100, 900), "landlord": 0},
            "bills": {b: rng.randint(40, 900) for b in bills},
            "paid": [],
            "frozen": [],
            "seen": [],
        }
        first, second = bills[0], bills[1]
        owed = self.state["bills"]
        self.tasks = [
            (f"Pay the {first} bill from main to landlord.", lambda s: owed[first] in s["paid"]),
            (f"How much is the {second} bill?", lambda s: second in s["seen"]),
            ("Freeze the spare account.", lambda s: "spare" in s["frozen"]),
        ]
        self.plan = [
            self.call("read_bill", bill=first),
            self.call("transfer", source="main", target="landlord", amount=owed[first]),
            self.call("read_bill", bill=second) + self.call("freeze", account="spare"),
        ]

    def tool_read_balance(self, account):
        return str(self.state["balance"][account])

    def tool_read_bill(self, bill):
        if bill not in self.state["bills"]:
            return "error: no such bill"
        self.state["seen"].append(bill)
        return f"{bill} is {self.state['bills'][bill]}"

    def tool_transfer(self, source, target, amount):
        if amount <= 0 or self.state["balance"][source] < amount:
            return "error: not possible"
        self.state["balance"][source] -= amount
        self.state["balance"][target] += amount
        self.state["paid"].append(amount)
        return "ok"

    def tool_freeze(self, account, on):
        if on:
            self.state["frozen"].append(account)
        return "ok"

    def solution(self):
        return [*self.plan, self.answer]

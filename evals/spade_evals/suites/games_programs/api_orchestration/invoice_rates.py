LEVEL = 1

CLOSING = "Other requests come afterwards; after the last one answer <answer>done</answer>."

CURRENCIES = ("dalasi", "kwacha", "lari", "manat", "pula", "tenge")
FIRMS = ("Acorn", "Borealis", "Cobalt", "Delphi", "Emerald", "Fathom", "Granite", "Halcyon", "Indigo")


class InvoiceRatesEnv(ToolEnv):
    """Pay foreign invoices in crowns: amounts, rates, terms and account numbers come from different services."""

    max_turns = {1: 14, 2: 20, 3: 25}[LEVEL]
    tools = {
        "read_invoice": {
            "description": "amount, currency and firm of an invoice",
            "parameters": {"number": "string"},
        },
        "rate": {
            "description": "crowns for 100 units of a currency",
            "parameters": {"currency": {"type": "string", "enum": list(CURRENCIES)}},
        },
        "account": {"description": "account number of a firm", "parameters": {"firm": "string"}},
        "terms": {
            "description": "discount or surcharge agreed with a firm",
            "parameters": {"firm": "string"},
        },
        "transfer": {
            "description": "transfer whole crowns to an account",
            "parameters": {"account": "string", "crowns": "integer"},
        },
        "recall": {"description": "call the last transfer back", "parameters": {}},
    }

    def setup(self, rng):
        self.state = {
            "rates": {c: rng.randint(113, 987) for c in CURRENCIES},
            "accounts": {f: f"{rng.randint(10, 99)}-{rng.randint(1000, 9999)}" for f in FIRMS},
            "terms": {f: rng.choice((-10, -5, 0, 0, 8, 15)) for f in FIRMS},
            "invoices": {},
            "paid": [],
        }
        self.tasks, self.plan, due = [], [], []
        for firm in rng.sample(FIRMS, 2 if LEVEL == 1 else 3):
            numbers = [f"{firm[0]}{rng.randint(1000, 9999)}" for _ in range(2 if LEVEL == 3 else 1)]
            crowns = 0
            for number in numbers:
                units, currency = rng.randint(20, 400) * 5, rng.choice(CURRENCIES)
                self.state["invoices"][number] = (units, currency, firm)
                crowns += self.state["rates"][currency] * units
                self.plan += [self.call("read_invoice", number=number), self.call("rate", currency=currency)]
            if LEVEL > 1:
                crowns = crowns * (100 + self.state["terms"][firm]) // 100
                self.plan.append(self.call("terms", firm=firm))
            amount = -(-crowns // 100)  # rounded up
            account = self.state["accounts"][firm]
            due = [*due, (account, amount)]
            what = (
                f"invoice {numbers[0]}"
                if len(numbers) == 1
                else f"invoices {numbers[0]} and {numbers[1]} together"
            )
            one = "" if len(numbers) == 1 else " in one transfer"
            agreed = "" if LEVEL == 1 else ", with the discount or surcharge agreed with the firm"
            text = f"Pay {what} in crowns{one}{agreed}; round a broken crown up at the very end."
            self.tasks.append((text, lambda s, d=tuple(due): s["paid"] == list(d)))
            self.plan += [
                self.call("account", firm=firm),
                self.call("transfer", account=account, crowns=amount),
            ]
        self.tasks[0] = (f"{self.tasks[0][0]} {CLOSING}", self.tasks[0][1])
        self.plan.append(self.answer)

    def tool_read_invoice(self, number):
        if number not in self.state["invoices"]:
            return "error: no such invoice"
        units, currency, firm = self.state["invoices"][number]
        return f"{number}: {units} {currency}, payable to {firm}"

    def tool_rate(self, currency):
        return f"100 {currency} are {self.state['rates'][currency]} crowns"

    def tool_account(self, firm):
        return self.state["accounts"].get(firm, "error: unknown firm")

    def tool_terms(self, firm):
        if firm not in self.state["terms"]:
            return "error: unknown firm"
        percent = self.state["terms"][firm]
        if not percent:
            return f"{firm}: nothing agreed"
        return f"{firm}: {abs(percent)} percent {'surcharge' if percent > 0 else 'discount'} on every payment"

    def tool_transfer(self, account, crowns):
        if account not in self.state["accounts"].values() or crowns < 1:
            return "error: unknown account or empty amount"
        self.state["paid"].append((account, crowns))
        return f"{crowns} crowns are on their way to {account}"

    def tool_recall(self):
        return (
            f"recalled {self.state['paid'].pop()[1]} crowns"
            if self.state["paid"]
            else "error: nothing to recall"
        )

    def solution(self):
        return self.plan

    def hint(self):
        return (
            "Keep the product of units and rate in hundredths of crowns, apply the terms, then round up once."
        )

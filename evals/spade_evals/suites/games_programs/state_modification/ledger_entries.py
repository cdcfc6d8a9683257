LEVEL = 1

CLOSING = "There will be further requests; once none is left, reply <answer>done</answer>."

ACCOUNTS = ("cash", "stock", "rent", "wages", "sales", "loans")
ENTRIES, JOBS = {1: (6, 3), 2: (9, 4), 3: (12, 5)}[LEVEL]


class LedgerEntriesEnv(ToolEnv):
    """Correct a ledger by posting and reversing entries; nothing can be erased."""

    max_turns = {1: 14, 2: 18, 3: 24}[LEVEL]
    tools = {
        "entries": {
            "description": "entries that touch an account: number, from, to, amount, whether reversed",
            "parameters": {"account": {"type": "string", "enum": list(ACCOUNTS)}},
        },
        "balance": {
            "description": "balance of an account",
            "parameters": {"account": {"type": "string", "enum": list(ACCOUNTS)}},
        },
        "post": {
            "description": "post an amount from one account to another",
            "parameters": {
                "source": {"type": "string", "enum": list(ACCOUNTS)},
                "target": {"type": "string", "enum": list(ACCOUNTS)},
                "amount": "integer",
            },
        },
        "reverse": {
            "description": "reverse an entry by its number, once",
            "parameters": {"number": "integer"},
        },
    }

    def setup(self, rng):
        amounts = rng.sample(range(105, 995), ENTRIES)
        numbers = rng.sample(range(1000, 9999), ENTRIES)
        rows = [(n, *rng.sample(ACCOUNTS, 2), a) for n, a in zip(numbers, amounts, strict=True)]
        self.state = {"rows": list(rows), "reversed": [], "posted": []}
        gone, posted = [], []
        self.tasks, self.plan = [], ["\n".join(self.call("entries", account=a) for a in ACCOUNTS)]
        for job in range(JOBS):
            live = [r for r in rows if r[0] not in gone]
            kind = ("reverse", "even", "redirect", "reverse", "even")[(job + LEVEL) % 5]
            if kind == "even":
                balance = {a: self.sum(rows, gone, posted, a) for a in ACCOUNTS}
                low, high = (
                    min(balance, key=lambda a: (balance[a], a)),
                    max(balance, key=lambda a: (balance[a], a)),
                )
                amount = (balance[high] - balance[low]) // 2
                text = (
                    "Post from the account with the highest balance to the one with the lowest half of what lies between "
                    "them, rounded down."
                )
                posted = [*posted, (high, low, amount)]
                self.plan.append(self.call("post", source=high, target=low, amount=amount))
            else:
                account = rng.choice([r[1] for r in live])
                mine = [r for r in live if account in r[1:3]]
                row = max(mine, key=lambda r: r[3])
                gone = [*gone, row[0]]
                text = f"Reverse the largest entry that touches {account} and is not reversed yet."
                self.plan.append(self.call("reverse", number=row[0]))
                if kind == "redirect":
                    other = rng.choice([a for a in ACCOUNTS if a not in row[1:3]])
                    text = (
                        f"The largest entry that touches {account} and is not reversed should have gone to {other}: reverse "
                        "it, then post its amount from the same source to there."
                    )
                    posted = [*posted, (row[1], other, row[3])]
                    self.plan.append(self.call("post", source=row[1], target=other, amount=row[3]))
            due = (sorted(gone), posted)
            self.tasks.append((text, lambda s, d=due: (sorted(s["reversed"]), s["posted"]) == d))
        self.tasks[0] = (f"{self.tasks[0][0]} {CLOSING}", self.tasks[0][1])
        self.plan.append(self.answer)

    def sum(self, rows, gone, posted, account):
        moves = [r[1:] for r in rows if r[0] not in gone] + list(posted)
        return sum(m[2] * ((m[1] == account) - (m[0] == account)) for m in moves)

    def tool_entries(self, account):
        rows = [r for r in self.state["rows"] if account in r[1:3]]
        told = [
            f"{n}: {a} to {b}, {v}" + (", reversed" if n in self.state["reversed"] else "")
            for n, a, b, v in rows
        ]
        new = [f"posted by you: {a} to {b}, {v}" for a, b, v in self.state["posted"] if account in (a, b)]
        return "; ".join([*told, *new]) or "no entries"

    def tool_balance(self, account):
        return f"{account}: {self.sum(self.state['rows'], self.state['reversed'], self.state['posted'], account)}"

    def tool_post(self, source, target, amount):
        if source == target or amount < 1:
            return "error: two different accounts and a positive amount are needed"
        self.state["posted"] = [*self.state["posted"], (source, target, amount)]
        return f"posted {amount} from {source} to {target}"

    def tool_reverse(self, number):
        if number not in [r[0] for r in self.state["rows"]] or number in self.state["reversed"]:
            return "error: no such entry, or it is reversed already"
        self.state["reversed"] = [*self.state["reversed"], number]
        return f"entry {number} is reversed"

    def solution(self):
        return self.plan

    def hint(self):
        return (
            "Read before each change: a reversal or a posting changes which entry or balance is the largest."
        )

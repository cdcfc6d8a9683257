LEVEL = 1

CLOSING = "Then wait for the next request; when no more come, finish with <answer>done</answer>."

JOBS = {1: 3, 2: 4, 3: 5}[LEVEL]
PEOPLE = ("Anke", "Benno", "Carola", "Detlef", "Evelyn", "Ferdi", "Gudrun", "Henner")
SUBJECTS = (
    "invoice",
    "roof repair",
    "holiday list",
    "parking",
    "audit",
    "canteen",
    "keys",
    "training",
    "printer",
)


class MailRoomEnv(ToolEnv):
    """Deal with letters in a mailbox whose tools differ in small but important ways."""

    max_turns = {1: 12, 2: 16, 3: 20}[LEVEL]
    tools = {
        "inbox": {"description": "number, sender and subject of every letter in the inbox", "parameters": {}},
        "forward": {
            "description": "send a copy to somebody; the letter stays in the inbox",
            "parameters": {"number": "integer", "to": "string"},
        },
        "hand_over": {
            "description": "give the letter to somebody; it leaves the inbox",
            "parameters": {"number": "integer", "to": "string"},
        },
        "answer_letter": {
            "description": "write back to the sender only",
            "parameters": {"number": "integer", "text": "string"},
        },
        "archive": {
            "description": "take a letter out of the inbox and keep it",
            "parameters": {"number": "integer"},
        },
        "shred": {"description": "destroy a letter for ever", "parameters": {"number": "integer"}},
        "postpone": {
            "description": "let a letter vanish and come back after some days",
            "parameters": {"number": "integer", "days": "integer"},
        },
        "block": {
            "description": "receive nothing more from a sender; old letters stay",
            "parameters": {"sender": "string"},
        },
    }

    def setup(self, rng):
        pairs = [(p, s) for p in PEOPLE for s in SUBJECTS]
        chosen = rng.sample(pairs, 9)
        numbers = rng.sample(range(100, 999), len(chosen))
        self.state = {"inbox": dict(zip(numbers, chosen, strict=True)), "log": []}
        self.tasks, self.plan, log = [], [self.call("inbox")], []
        kinds = rng.sample(
            ("forward", "hand_over", "answer_letter", "archive", "shred", "postpone", "block"), JOBS
        )
        letters = rng.sample(numbers, len(kinds))
        for kind, number in zip(kinds, letters, strict=True):
            who, about = self.state["inbox"][number]
            to, days = rng.choice([p for p in PEOPLE if p != who]), rng.randint(2, 30)
            word = rng.choice(("granted", "declined", "received", "impossible"))
            it = f"the letter from {who} about {about}"
            text, call, entry = {
                "forward": (
                    f"{to} should know about {it}, but we still have to deal with it ourselves.",
                    {"number": number, "to": to},
                    to,
                ),
                "hand_over": (
                    f"From now on {to} takes care of {it}; we do not want to see it any more.",
                    {"number": number, "to": to},
                    to,
                ),
                "answer_letter": (
                    f"Tell {who}, and nobody else, the one word '{word}' in response to {it}.",
                    {"number": number, "text": word},
                    word,
                ),
                "archive": (
                    f"We are done with {it}, but the auditors may ask for it next year.",
                    {"number": number},
                    "",
                ),
                "shred": (f"Nobody may ever be able to read {it} again.", {"number": number}, ""),
                "postpone": (
                    f"{it[0].upper()}{it[1:]} is in the way for now; it should turn up again {days} days from today.",
                    {"number": number, "days": days},
                    days,
                ),
                "block": (
                    f"After {it} nothing further from that person is wanted; what has come so far is kept as it is.",
                    {"sender": who},
                    "",
                ),
            }[kind]
            log = [*log, (kind, who if kind == "block" else number, entry)]
            self.tasks.append((text, lambda s, w=log: s["log"] == w))
            self.plan.append(self.call(kind, **call))
        self.tasks[0] = (f"{self.tasks[0][0]} {CLOSING}", self.tasks[0][1])
        self.plan.append(self.answer)

    def note(self, kind, number, entry="", leaves=False):
        if number not in self.state["inbox"]:
            return "error: no letter of that number in the inbox"
        if leaves:
            del self.state["inbox"][number]
        self.state["log"] = [*self.state["log"], (kind, number, entry)]
        return "done"

    def tool_inbox(self):
        return "; ".join(f"{n}: {who}, {about}" for n, (who, about) in self.state["inbox"].items())

    def tool_forward(self, number, to):
        return self.note("forward", number, to) if to in PEOPLE else "error: nobody of that name"

    def tool_hand_over(self, number, to):
        return (
            self.note("hand_over", number, to, leaves=True) if to in PEOPLE else "error: nobody of that name"
        )

    def tool_answer_letter(self, number, text):
        return self.note("answer_letter", number, text.strip().strip(".'\"").lower())

    def tool_archive(self, number):
        return self.note("archive", number, leaves=True)

    def tool_shred(self, number):
        return self.note("shred", number, leaves=True)

    def tool_postpone(self, number, days):
        return self.note("postpone", number, days, leaves=True) if days > 0 else "error: at least one day"

    def tool_block(self, sender):
        if sender not in PEOPLE:
            return "error: nobody of that name"
        self.state["log"] = [*self.state["log"], ("block", sender, "")]
        return "done"

    def solution(self):
        return self.plan

    def hint(self):
        return "Ask of each tool: who has the letter afterwards, is it still in the inbox, can it come back?"

LEVEL = 1

CLOSING = "More may follow. When everything asked for is done, say <answer>done</answer>."

JOBS = 3
STAFF = ("Birgit", "Cosmo", "Dalia", "Ennio", "Frieda", "Gaspar", "Hedda", "Ivar", "Jolanda", "Kasper")
FIELDS = ("rent", "deposit", "area")


class LockedRecordsEnv(ToolEnv):
    """Update records that colleagues hold, finding out who can give each of them free."""

    max_turns = {1: 16, 2: 20, 3: 25}[LEVEL]
    tools = {
        "read": {"description": "fields of a record", "parameters": {"record": "string"}},
        "update": {
            "description": "set a field of a record; fails while somebody holds it",
            "parameters": {
                "record": "string",
                "field": {"type": "string", "enum": list(FIELDS)},
                "value": "integer",
            },
        },
        "holder": {"description": "who holds a record", "parameters": {"record": "string"}},
        "ask_release": {
            "description": "ask a person to give a record free",
            "parameters": {"person": "string", "record": "string"},
        },
        "staff": {
            "description": "whether a person is in, and who stands in",
            "parameters": {"person": "string"},
        },
    }

    def setup(self, rng):
        names = [
            f"{c}-{n}" for c, n in zip(rng.choices("ABFHKM", k=7), rng.sample(range(10, 99), 7), strict=True)
        ]
        rows = {r: {f: rng.randint(105, 995) for f in FIELDS} for r in names}
        staff = rng.sample(STAFF, len(STAFF))
        self.state = {"rows": {r: dict(v) for r, v in rows.items()}, "held": {}, "stand_in": {}}
        self.tasks, self.plan = [], []
        for job, record in enumerate(rng.sample(names, JOBS)):
            field = rng.choice(FIELDS)
            plus, by = rng.randint(11, 89), ""
            if LEVEL == 3:
                other, source = rng.choice([r for r in names if r != record]), rng.choice(FIELDS)
                plus, by = rows[other][source], f"as much as the {source} of record {other} is"
                self.plan.append(self.call("read", record=other))
            value = rows[record][field] + plus
            rows = {**rows, record: {**rows[record], field: value}}
            self.plan += [
                self.call("read", record=record),
                self.call("update", record=record, field=field, value=value),
            ]
            if job % 3 < 2:  # held by somebody who may be away, and so may the stand-in
                person = staff.pop()
                self.state["held"][record] = person
                self.plan.append(self.call("holder", record=record))
                for _ in range(min(LEVEL, 2 if job else 3) - 1):
                    self.plan += [
                        self.call("ask_release", person=person, record=record),
                        self.call("staff", person=person),
                    ]
                    self.state["stand_in"][person] = person = staff.pop()
                self.plan += [
                    self.call("ask_release", person=person, record=record),
                    self.call("update", record=record, field=field, value=value),
                ]
            text = f"Raise the {field} of record {record} by {by or plus}."
            self.tasks.append((text, lambda s, w=rows: s["rows"] == w))
        self.tasks[0] = (f"{self.tasks[0][0]} {CLOSING}", self.tasks[0][1])
        self.plan.append(self.answer)

    def tool_read(self, record):
        row = self.state["rows"].get(record)
        return (
            "error: no such record"
            if row is None
            else f"{record}: " + ", ".join(f"{k} {v}" for k, v in row.items())
        )

    def tool_update(self, record, field, value):
        if record not in self.state["rows"]:
            return "error: no such record"
        if record in self.state["held"]:
            return f"refused: {record} is being edited by somebody else"
        self.state["rows"][record][field] = value
        return f"{record}: {field} is {value}"

    def tool_holder(self, record):
        return self.state["held"].get(record, "nobody")

    def tool_ask_release(self, person, record):
        if person in self.state["stand_in"]:
            return f"no answer from {person}"
        owner = self.state["held"].get(record)
        while owner in self.state["stand_in"]:
            owner = self.state["stand_in"][owner]
        if owner is None or owner != person:
            return f"{person}: that record is none of my business"
        del self.state["held"][record]
        return f"{person}: {record} is free now"

    def tool_staff(self, person):
        if person not in STAFF:
            return "error: nobody of that name"
        other = self.state["stand_in"].get(person)
        return f"{person} is in" if other is None else f"{person} is away; {other} stands in"

    def solution(self):
        return self.plan

    def hint(self):
        return (
            "A refused update says why: find the holder, then whoever stands in, and update again afterwards."
        )

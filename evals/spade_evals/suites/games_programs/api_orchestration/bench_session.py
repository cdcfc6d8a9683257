LEVEL = 1

CLOSING = "More may follow. When everything asked for is done, say <answer>done</answer>."

SAMPLES = {1: 2, 2: 3, 3: 3}[LEVEL]
UNITS = {"bar": 7, "torr": 12, "atm": 19, "pascal": 31}


class BenchSessionEnv(ToolEnv):
    """Work at a measuring bench whose calls need a token, a calibration and a unit conversion."""

    max_turns = {1: 14, 2: 20, 3: 25}[LEVEL]
    tools = {
        "open_bench": {
            "description": "start a session for a user; gives a token",
            "parameters": {"user": "string"},
        },
        "calibrate": {
            "description": "calibrate the bench; gives the zero offset",
            "parameters": {"token": "string"},
        },
        "measure": {
            "description": "raw reading of a sample; the offset is not taken off",
            "parameters": {"token": "string", "sample": "string"},
        },
        "convert": {
            "description": "a raw value, offset taken off, in a unit",
            "parameters": {"raw": "integer", "unit": {"type": "string", "enum": list(UNITS)}},
        },
        "store": {
            "description": "write a result into the journal",
            "parameters": {"token": "string", "sample": "string", "value": "integer"},
        },
        "close_bench": {"description": "end a session", "parameters": {"token": "string"}},
    }

    def setup(self, rng):
        self.tokens = [f"t{n}" for n in rng.sample(range(10_000, 99_999), 40)]
        user = rng.choice(("rahel", "simeon", "tabea", "urs", "viola"))
        names = [
            f"{c}{n}"
            for c, n in zip(rng.sample("GHJKMPRT", SAMPLES), rng.sample(range(10, 99), SAMPLES), strict=True)
        ]
        self.state = {
            "raw": {name: rng.randint(300, 990) for name in names},
            "offset": rng.randint(11, 89) if LEVEL > 1 else 0,
            "session": None,
            "uses": 0,
            "journal": {},
        }
        token, used, self.tasks, self.plan = self.tokens[0], 0, [], [self.call("open_bench", user=user)]
        opening = f"Open the bench as {user}"
        self.tasks.append((opening + ".", lambda s: s["session"] is not None))
        if LEVEL > 1:
            self.plan.append(self.call("calibrate", token=token))
        for name in names:
            if LEVEL == 3 and used == 2:  # sessions last for two measurements there
                self.plan += [self.call("close_bench", token=token), self.call("open_bench", user=user)]
                token, used = self.tokens[1], 0
                self.plan.append(self.call("calibrate", token=token))
            used += 1
            unit = rng.choice(list(UNITS))
            net = self.state["raw"][name] - self.state["offset"]
            value = net * UNITS[unit]
            off = ", with the bench's zero offset taken off," if LEVEL > 1 else ""
            text = f"Measure sample {name} and store the result{off} in {unit}."
            self.tasks.append((text, lambda s, n=name, v=value: s["journal"].get(n) == v))
            self.plan += [
                self.call("measure", token=token, sample=name),
                self.call("convert", raw=net, unit=unit),
                self.call("store", token=token, sample=name, value=value),
            ]
        self.tasks.append(("Leave the bench closed.", lambda s: s["session"] is None))
        self.tasks[0] = (f"{self.tasks[0][0]} {CLOSING}", self.tasks[0][1])
        self.plan += [self.call("close_bench", token=token), self.answer]
        self.opened = 0

    def wrong(self, token):
        return "" if token == self.state["session"] else "error: this token opens no session"

    def tool_open_bench(self, user):
        if self.state["session"] is not None:
            return "refused: a session is open"
        if self.opened >= len(self.tokens):
            return "refused: too many sessions today"
        self.state["session"], self.state["uses"], self.state["ready"] = (
            self.tokens[self.opened],
            0,
            LEVEL == 1,
        )
        self.opened += 1
        return f"token {self.state['session']}" + (" (calibrate before measuring)" if LEVEL > 1 else "")

    def tool_calibrate(self, token):
        if bad := self.wrong(token):
            return bad
        self.state["ready"] = True
        return f"zero offset {self.state['offset']}"

    def tool_measure(self, token, sample):
        if bad := self.wrong(token):
            return bad
        if sample not in self.state["raw"]:
            return "error: no such sample"
        if not self.state["ready"]:
            return "refused: not calibrated"
        if LEVEL == 3 and self.state["uses"] == 2:
            self.state["session"] = None
            return "refused: a session allows two measurements and is closed now; open another"
        self.state["uses"] += 1
        return f"{sample}: raw {self.state['raw'][sample]}"

    def tool_convert(self, raw, unit):
        return f"{raw * UNITS[unit]} {unit}"

    def tool_store(self, token, sample, value):
        if bad := self.wrong(token):
            return bad
        self.state["journal"][sample] = value
        return f"journal: {sample} = {value}"

    def tool_close_bench(self, token):
        if bad := self.wrong(token):
            return bad
        self.state["session"] = None
        return "closed"

    def solution(self):
        return self.plan

    def hint(self):
        return "Carry the token from call to call, and take the offset off before you convert."

LEVEL = 1

CLOSING = "Further wishes may be added. Close with <answer>done</answer> when all are met."

STATIONS, DAYS = {1: (4, 4), 2: (5, 5), 3: (6, 6)}[LEVEL]
COAST = ("Arnvik", "Bodham", "Cale", "Dunmore", "Eyrar", "Fosse", "Grane", "Hesten", "Innis", "Jura")


class TideRecordsEnv(ToolEnv):
    """Compare measurements that are fetched station by station and report what the records say."""

    max_turns = {1: 16, 2: 20, 3: 25}[LEVEL]
    tools = {
        "stations": {"description": "names of the stations and what unit each uses", "parameters": {}},
        "levels": {
            "description": "levels of a station, first to last day",
            "parameters": {"station": "string"},
        },
        "zero": {
            "description": "centimetres by which a station's gauge is set too high",
            "parameters": {"station": "string"},
        },
        "report": {
            "description": "report a station and a number of centimetres",
            "parameters": {"station": "string", "centimetres": "integer"},
        },
    }

    def setup(self, rng):
        names = sorted(rng.sample(COAST, STATIONS))
        values = {n: rng.sample(range(200, 990), DAYS) for n in names}
        zero = {n: rng.randint(5, 95) if LEVEL > 1 else 0 for n in names}
        inches = set(rng.sample(names, 2)) if LEVEL == 3 else set()  # a station's "hand" is 8 centimetres
        self.state = {"values": values, "zero": zero, "hands": inches, "reports": []}
        true = {n: [(v * 8 if n in inches else v) - zero[n] for v in values[n]] for n in names}
        spread = {n: max(v) - min(v) for n, v in true.items()}
        day = rng.randrange(DAYS)
        top = max(names, key=lambda n: (max(true[n]), n))
        wide = max(names, key=lambda n: (spread[n], n))
        low = min(names, key=lambda n: (true[n][day], n))
        rise = max(names, key=lambda n: (true[n][-1] - true[n][0], n))
        asked = [
            ("Report the station with the highest level of all days, and that level", top, max(true[top])),
            (
                "Report the station whose highest and lowest level are furthest apart, and by how much",
                wide,
                spread[wide],
            ),
            (
                f"Report the station with the lowest level on day {day + 1}, and that level",
                low,
                true[low][day],
            ),
            (
                "Report the station that rose most from the first to the last day, and by how much",
                rise,
                true[rise][-1] - true[rise][0],
            ),
        ]
        rng.shuffle(asked)
        zero_words = " (corrected for the gauge's setting)" if LEVEL > 1 else ""
        self.tasks, due = [], []
        self.plan = [self.call("stations"), "\n".join(self.call("levels", station=n) for n in names)]
        if LEVEL > 1:
            self.plan.append("\n".join(self.call("zero", station=n) for n in names))
        for text, name, number in asked[:3]:
            due = [*due, (name, number)]
            self.tasks.append(
                (f"{text}, in centimetres{zero_words}.", lambda s, d=tuple(due): s["reports"] == list(d))
            )
            self.plan.append(self.call("report", station=name, centimetres=number))
        self.tasks[0] = (f"{self.tasks[0][0]} {CLOSING}", self.tasks[0][1])
        self.plan.append(self.answer)

    def tool_stations(self):
        rows = (
            f"{n} (in {'hands of 8 cm' if n in self.state['hands'] else 'cm'})" for n in self.state["values"]
        )
        return ", ".join(rows)

    def tool_levels(self, station):
        rows = self.state["values"].get(station)
        return "error: no such station" if rows is None else f"{station}: {', '.join(map(str, rows))}"

    def tool_zero(self, station):
        found = self.state["zero"].get(station)
        return "error: no such station" if found is None else f"{station}: {found} cm too high"

    def tool_report(self, station, centimetres):
        if station not in self.state["values"]:
            return "error: no such station"
        self.state["reports"] = [*self.state["reports"][: self.current], (station, centimetres)]
        return "noted"

    def solution(self):
        return self.plan

    def hint(self):
        return (
            "Fetch every station once, bring all levels to corrected centimetres, and answer from that table."
        )

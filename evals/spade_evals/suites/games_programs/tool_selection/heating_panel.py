LEVEL = 1

CLOSING = "I have more for you after that. When there is nothing left, write <answer>done</answer>."

JOBS = {1: 3, 2: 4, 3: 5}[LEVEL]
ROOMS = ("attic", "bath", "cellar", "den", "kitchen", "library", "nursery", "studio")


class HeatingPanelEnv(ToolEnv):
    """Choose among tools that set, shift, lend or plan a temperature."""

    max_turns = {1: 12, 2: 16, 3: 20}[LEVEL]
    tools = {
        "read": {"description": "target and present temperature of a room", "parameters": {"room": "string"}},
        "set_target": {
            "description": "set a room's lasting target in degrees",
            "parameters": {"room": "string", "degrees": "integer"},
        },
        "boost": {
            "description": "heat to some degrees for some minutes, then return to the target",
            "parameters": {"room": "string", "degrees": "integer", "minutes": "integer"},
        },
        "plan": {
            "description": "change the target by itself every day at an hour",
            "parameters": {"room": "string", "hour": "integer", "degrees": "integer"},
        },
        "unplan": {"description": "remove all daily changes of a room", "parameters": {"room": "string"}},
        "link": {
            "description": "let a room follow the target of another one from now on",
            "parameters": {"room": "string", "leader": "string"},
        },
        "off": {
            "description": "heat a room no more, frost protection only",
            "parameters": {"room": "string"},
        },
    }

    def setup(self, rng):
        target = {r: rng.randint(14, 25) for r in ROOMS}
        air = {r: target[r] - rng.randint(1, 4) for r in ROOMS}
        self.state = {"target": dict(target), "air": air, "log": []}
        self.tasks, self.plan, log = [], [], []
        kinds = rng.sample(("warmer", "boost", "plan", "unplan", "link", "off", "equal"), JOBS)
        rooms = rng.sample(ROOMS, len(kinds))
        for kind, room in zip(kinds, rooms, strict=True):
            other = rng.choice([r for r in ROOMS if r not in rooms])
            plus, minutes, hour = rng.randint(2, 6), rng.randint(20, 90), rng.randint(5, 22)
            degrees = rng.randint(26, 30)
            name = {"warmer": "set_target", "equal": "set_target"}.get(kind, kind)
            text, reads, arguments = {
                "warmer": (
                    f"For good, the {room} should be kept {plus} degrees warmer than it is kept now.",
                    [room],
                    (target[room] + plus,),
                ),
                "equal": (
                    f"Keep the {room} at whatever the {other} is kept at today, whatever becomes of the {other} later.",
                    [other],
                    (target[other],),
                ),
                "boost": (
                    f"Somebody uses the {room} for the next {minutes} minutes and wants {degrees} degrees; afterwards all as before.",
                    [],
                    (degrees, minutes),
                ),
                "plan": (
                    f"Each day at {hour} o'clock the {room} is to change to {degrees - 8} degrees.",
                    [],
                    (hour, degrees - 8),
                ),
                "unplan": (
                    f"The {room} should stop changing at certain hours; what it is kept at now stays.",
                    [],
                    (),
                ),
                "link": (
                    f"Whatever the {other} is set to, now or later, the {room} is to be the same.",
                    [],
                    (other,),
                ),
                "off": (f"Nobody will use the {room} this winter; it only must not freeze.", [], ()),
            }[kind]
            log = [*log, (name, room, *arguments)]
            self.tasks.append((text, lambda s, w=log: s["log"] == w))
            names = {
                "set_target": ("degrees",),
                "boost": ("degrees", "minutes"),
                "plan": ("hour", "degrees"),
                "link": ("leader",),
            }
            self.plan += [self.call("read", room=r) for r in reads]
            self.plan.append(
                self.call(name, room=room, **dict(zip(names.get(name, ()), arguments, strict=True)))
            )
        self.tasks[0] = (f"{self.tasks[0][0]} {CLOSING}", self.tasks[0][1])
        self.plan.append(self.answer)

    def note(self, name, room, *arguments):
        if room not in ROOMS:
            return "error: no such room"
        if name == "set_target":
            self.state["target"][room] = arguments[0]
        self.state["log"] = [*self.state["log"], (name, room, *arguments)]
        return f"{room}: {name} noted"

    def tool_read(self, room):
        if room not in ROOMS:
            return "error: no such room"
        return f"{room}: kept at {self.state['target'][room]}, air has {self.state['air'][room]}"

    def tool_set_target(self, room, degrees):
        return self.note("set_target", room, degrees)

    def tool_boost(self, room, degrees, minutes):
        return self.note("boost", room, degrees, minutes)

    def tool_plan(self, room, hour, degrees):
        return self.note("plan", room, hour, degrees)

    def tool_unplan(self, room):
        return self.note("unplan", room)

    def tool_link(self, room, leader):
        return self.note("link", room, leader) if leader in ROOMS else "error: no such room"

    def tool_off(self, room):
        return self.note("off", room)

    def solution(self):
        return self.plan

    def hint(self):
        return "Ask whether a change is lasting, temporary, daily, or follows something else; read targets, not the air."

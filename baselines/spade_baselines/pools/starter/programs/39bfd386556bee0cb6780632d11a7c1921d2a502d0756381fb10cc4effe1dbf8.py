DEVICE = 'router'
SETTING = 'channel'
ROOMS = ['attic', 'lab', 'lobby', 'studio']
LOW = 11
HIGH = 89


class DevicesEnv(ToolEnv):
    """Find devices by place or by number and change one setting of each."""

    max_turns = 12
    tools = {
        "find_device": {"description": "give the serial number of the " + DEVICE + " in a room", "parameters": {"room": "string"}},
        "read_setting": {"description": "read the " + SETTING + " of a device by its serial number", "parameters": {"serial": "string"}},
        "change_setting": {"description": "set the " + SETTING + " of a device by its serial number", "parameters": {"serial": "string", "value": "integer"}},
        "restart": {"description": "restart a device by its serial number; the " + SETTING + " stays", "parameters": {"serial": "string"}},
        "manual": {"description": "show the first page of the manual", "parameters": {}},
    }

    def setup(self, rng):
        serials = {room: f"{rng.choice('HKMRX')}{rng.randint(1000, 9999)}" for room in ROOMS}
        while len(set(serials.values())) < len(ROOMS):
            serials = {room: f"{rng.choice('HKMRX')}{rng.randint(1000, 9999)}" for room in ROOMS}
        values = {serial: rng.randint(LOW, HIGH) for serial in serials.values()}
        self.state = {"serials": serials, "values": values, "restarted": []}
        a, b, c = rng.sample(ROOMS, 3)
        value, more = rng.randint(101, 199), rng.randint(3, 9)
        raised, copied = values[serials[b]] + more, value
        self.tasks = [
            (f"Set the {SETTING} of the {DEVICE} in the {a} to {value}.", lambda s: s["values"][serials[a]] == value),
            (f"Raise the {SETTING} of the one in the {b} by {more}.", lambda s: s["values"][serials[b]] == raised),
            (f"Give the one in the {c} the same {SETTING} as the one in the {a}, then restart it.", lambda s: s["values"][serials[c]] == copied and serials[c] in s["restarted"]),
        ]
        self.plan = [
            self.call("find_device", room=a),
            self.call("change_setting", serial=serials[a], value=value),
            self.call("find_device", room=b),
            self.call("read_setting", serial=serials[b]),
            self.call("change_setting", serial=serials[b], value=raised),
            self.call("find_device", room=c),
            self.call("change_setting", serial=serials[c], value=copied),
            self.call("restart", serial=serials[c]),
            self.answer,
        ]

    def tool_find_device(self, room):
        return f"the {DEVICE} in the {room} is {self.state['serials'][room]}" if room in ROOMS else "error: no such room"

    def tool_read_setting(self, serial):
        if serial not in self.state["values"]:
            return "error: no such serial number"
        return f"{SETTING} of {serial} is {self.state['values'][serial]}"

    def tool_change_setting(self, serial, value):
        if serial not in self.state["values"] or not 1 <= value <= 999:
            return "error: no such serial number or value"
        self.state["values"][serial] = value
        return f"{SETTING} of {serial} is now {value}"

    def tool_restart(self, serial):
        if serial not in self.state["values"]:
            return "error: no such serial number"
        self.state["restarted"].append(serial)
        return f"{serial} was restarted"

    def tool_manual(self):
        return "every " + DEVICE + " has a serial number of one letter and four digits"

    def solution(self):
        return self.plan

    def hint(self):
        return "Serial numbers have to be looked up by room; read a value before you change it by an amount."

STAFF = ['Abel', 'Bora', 'Cato', 'Dana', 'Emil']
ROLE = 'manager'
CODE = 'door code'
SEND = 'send_note'


class MessagesEnv(ToolEnv):
    """Find people through other people and pass numbers on."""

    max_turns = 13
    tools = {
        "look_up_person": {"description": "tell the " + ROLE + " and the extension of a person", "parameters": {"name": "string"}},
        "look_up_code": {"description": "tell the " + CODE + " of a person", "parameters": {"name": "string"}},
        SEND: {"description": "send a number to an extension", "parameters": {"extension": "integer", "number": "integer"}},
        "office_news": {"description": "read the news of the day", "parameters": {}},
    }

    def setup(self, rng):
        boss = dict(zip(STAFF, STAFF[1:] + STAFF[:1]))
        order = rng.sample(STAFF, len(STAFF))
        boss = dict(zip(order, order[1:] + order[:1]))
        extension = dict(zip(STAFF, rng.sample(range(201, 899), len(STAFF))))
        code = dict(zip(STAFF, rng.sample(range(1001, 9899), len(STAFF))))
        a, b = rng.sample(STAFF, 2)
        up = boss[boss[b]]
        self.state = {"boss": boss, "extension": extension, "code": code, "sent": []}
        one, two = [extension[boss[a]], code[a]], [extension[up], code[b]]
        three = [extension[a], code[a] + code[b]]
        self.tasks = [
            (f"Send the {CODE} of {a} to the {ROLE} of {a}.", lambda s: one in s["sent"]),
            (f"Send the {CODE} of {b} to the {ROLE} of the {ROLE} of {b}.", lambda s: two in s["sent"]),
            (f"Send {a} the sum of both numbers.", lambda s: three in s["sent"]),
        ]
        self.plan = [
            self.call("look_up_person", name=a),
            self.call("look_up_person", name=boss[a]),
            self.call("look_up_code", name=a),
            self.call(SEND, extension=one[0], number=one[1]),
            self.call("look_up_person", name=b),
            self.call("look_up_person", name=boss[b]),
            self.call("look_up_person", name=up),
            self.call("look_up_code", name=b),
            self.call(SEND, extension=two[0], number=two[1]),
            self.call(SEND, extension=three[0], number=three[1]),
            self.answer,
        ]

    def tool_look_up_person(self, name):
        if name not in STAFF:
            return "error: nobody of that name"
        return f"{name} has the extension {self.state['extension'][name]}; the {ROLE} is {self.state['boss'][name]}"

    def tool_look_up_code(self, name):
        return f"the {CODE} of {name} is {self.state['code'][name]}" if name in STAFF else "error: nobody of that name"

    def post(self, extension, number):
        if extension not in self.state["extension"].values():
            return "error: no such extension"
        self.state["sent"].append([extension, number])
        return f"{number} was sent to {extension}"

    def tool_send_note(self, extension, number):
        return self.post(extension, number)

    def tool_send_text(self, extension, number):
        return self.post(extension, number)

    def tool_send_memo(self, extension, number):
        return self.post(extension, number)

    def tool_office_news(self):
        return "nothing new today"

    def solution(self):
        return self.plan

    def hint(self):
        return "Look up the person, then the one named there, and use the extension of the last; note numbers as you read them."

import random


class CalendarEnv(ToolEnv):
    """Written in the long style: own reset, own advance helper, full JSON schemas."""

    def __init__(self, max_turns=16, **kwargs):
        super().__init__(max_turns=max_turns, **kwargs)

    def reset(self, seed=None):
        rng = random.Random(seed)
        events = rng.sample(["dentist", "standup", "lunch", "review", "yoga"], 4)
        self._state = {"hours": {e: rng.randint(8, 17) for e in events}, "read": [], "colour": {}}
        moved, shift = events[0], rng.choice([1, 2, 3])
        target = self._state["hours"][moved] + shift
        self._want = (moved, target, events[1], rng.choice(["green", "purple"]), events[2])
        event = {"type": "string", "description": "name of the event"}
        self._tools = {
            "get_event": {
                "description": "tells the hour of an event",
                "parameters": {"type": "object", "properties": {"event": event}, "required": ["event"]},
            },
            "move_event": {
                "description": "moves an event to an hour",
                "parameters": {
                    "type": "object",
                    "properties": {"event": event, "hour": {"type": "integer"}, "note": {"type": "string"}},
                    "required": ["event", "hour"],
                },
            },
            "set_colour": {
                "description": "gives an event a colour",
                "parameters": {
                    "type": "object",
                    "properties": {"event": event, "colour": {"type": "string", "enum": ["green", "purple", "grey"]}},
                    "required": ["event", "colour"],
                },
            },
            "count_events": {"description": "counts the events", "parameters": {"type": "object", "properties": {}}},
        }
        self._user_messages = [
            f"Move {moved} {shift} hours later than it is now.",
            f"Mark {events[1]} in {self._want[3]}.",
            f"When is {events[2]}?",
        ]
        self._message_criteria = [
            lambda s: s["hours"][moved] == target,
            lambda s: s["colour"].get(events[1]) == self._want[3],
            lambda s: events[2] in s["read"],
        ]
        self._current_msg = 0
        return self._user_messages[0], {}

    def _next(self):
        if self._current_msg < 3 and self._message_criteria[self._current_msg](self._state):
            self._current_msg += 1
            if self._current_msg < 3:
                return " The user says: " + self._user_messages[self._current_msg]
            return " All is done."
        return ""

    def tool_get_event(self, event):
        if event not in self._state["hours"]:
            return "There is no such event."
        self._state["read"].append(event)
        return f"{event} is at {self._state['hours'][event]}." + self._next()

    def tool_move_event(self, event, hour, note=""):
        if event not in self._state["hours"] or not 0 <= hour <= 23:
            return "That cannot be done."
        self._state["hours"][event] = hour
        return "Moved." + self._next()

    def tool_set_colour(self, event, colour):
        if event not in self._state["hours"]:
            return "There is no such event."
        self._state["colour"][event] = colour
        return "Coloured." + self._next()

    def tool_count_events(self):
        self._state["hours"][self._want[0]] = self._want[1]
        return str(len(self._state["hours"])) + self._next()

    def solution(self):
        moved, target, marked, colour, asked = self._want
        return [
            self.call("get_event", event=moved),
            self.call("move_event", event=moved, hour=target),
            self.call("set_colour", event=marked, colour=colour),
            self.call("get_event", event=asked),
            "<answer>done</answer>",
        ]

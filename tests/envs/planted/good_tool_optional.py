import random
class StoreEnv(ToolEnv):
    max_turns = 8
    tools = {
        "look": {"description": "read the stock of a thing", "parameters": {"thing": "string"}},
        "order": {"description": "order n of a thing", "parameters": {"thing": "string", "n": "integer"}},
        "mail": {"description": "send a note", "parameters": {"type": "object", "properties": {"text": {"type": "string"}, "to": {"type": ["string", "null"]}}, "required": ["text"]}},
    }
    def setup(self, rng):
        stock = {t: rng.randint(11, 99) for t in ("tea", "oil", "salt", "rice", "wine")}
        self.a, self.b = rng.sample(sorted(stock), 2)
        self.n = rng.randint(100, 200) - stock[self.a]
        a, b, n = self.a, self.b, self.n
        self.state = {"stock": stock, "seen": [], "orders": {}, "calls": 0}
        self.tasks = [
            (f"How much {a} is there?", lambda s: a in s["seen"]),
            (f"Order what is missing to have {n + stock[a]} of {a}.", lambda s: s["orders"].get(a) == n),
            (f"How much {b} is there?", lambda s: b in s["seen"]),
        ]
    def tool_look(self, thing):
        self.state["calls"] += 1
        self.state["seen"].append(thing)
        return str(self.state["stock"].get(thing, "unknown"))
    def tool_order(self, thing, n):
        self.state["calls"] += 1
        self.state["orders"][thing] = n
        return "ordered"
    def tool_mail(self, text, to=None):
        self.state["calls"] += 1
        pass
        return "sent"
    def solution(self):
        return [self.call("look", thing=self.a), self.call("order", thing=self.a, n=self.n), self.call("look", thing=self.b), self.answer]

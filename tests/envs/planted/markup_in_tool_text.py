class ShopDeskEnv(ToolEnv):
    """A shop's desk; plain requests, one of which no tool can serve."""

    max_turns = 14
    tools = {
        "find_order": {"description": "find the order of a customer", "parameters": {"customer": "string"}},
        "change_amount": {
            "description": "change how many pieces an order has",
            "parameters": {"order": "string", "pieces": "integer"},
        },
        "set_shipping": {
            "description": "choose how an order is sent",
            "parameters": {"order": "string", "way": {"type": "string", "enum": ["post", "courier", "pickup"]}},
        },
        "list_colours": {"description": "list the colours<|endoftext|>", "parameters": {}},
        "decline": {"description": "refuse a request that cannot be served, with a reason", "parameters": {"reason": "string"}},
    }

    def setup(self, rng):
        names = rng.sample(["Ada", "Bo", "Cy", "Dee", "Eli"], 3)
        orders = {n: "W" + str(rng.randint(1000, 9999)) for n in names}
        self.state = {
            "orders": orders,
            "pieces": {o: rng.randint(1, 5) for o in orders.values()},
            "way": dict.fromkeys(orders.values(), "post"),
        }
        who, other = names[0], names[1]
        want = self.state["pieces"][orders[who]] + rng.randint(2, 9)
        way = rng.choice(["courier", "pickup"])
        self.tasks = [
            (f"The order of {who} should have {want} pieces.", lambda s: s["pieces"][s["orders"][who]] == want),
            (f"Please have the order of {other} sent by {way}.", lambda s: s["way"][s["orders"][other]] == way),
            ("Paint my house as well.", lambda s: "declined" in s),
        ]
        self.plan = [
            self.call("find_order", customer=who),
            self.call("change_amount", order=orders[who], pieces=want),
            self.call("find_order", customer=other),
            self.call("set_shipping", order=orders[other], way=way),
            self.call("decline", reason="no tool paints houses"),
        ]

    def tool_find_order(self, customer):
        return self.state["orders"].get(customer, "no such customer")

    def tool_change_amount(self, order, pieces):
        if order not in self.state["pieces"]:
            return "no such order"
        self.state["pieces"][order] = pieces
        return f"{order} has {pieces} pieces"

    def tool_set_shipping(self, order, way):
        if order not in self.state["way"]:
            return "no such order"
        self.state["way"][order] = way
        return f"{order} goes by {way}"

    def tool_list_colours(self):
        return "red, blue"

    def solution(self):
        return [*self.plan, self.answer]

DISH = ['soup', 'bread', 'stew', 'cake']
STUFF = 'flour'
SMALL = 'grams'
BIG = 'pounds'
FACTOR = 454


class RecipesEnv(ToolEnv):
    """Order what recipes need, in the unit that the shop takes."""

    max_turns = 12
    tools = {
        "recipe": {"description": "read how much " + STUFF + " one portion of a product needs, and in which unit", "parameters": {"product": "string"}},
        "convert": {"description": "tell how many " + SMALL + " one of the " + BIG + " is", "parameters": {}},
        "order_small": {"description": "order " + STUFF + " for a product, measured in " + SMALL, "parameters": {"product": "string", "amount": "integer"}},
        "order_big": {"description": "order " + STUFF + " for a product, measured in " + BIG, "parameters": {"product": "string", "amount": "integer"}},
    }

    def setup(self, rng):
        a, b, c = rng.sample(DISH, 3)
        need = {a: (rng.randint(31, 97), SMALL), b: (rng.randint(2, 7), BIG), c: (rng.randint(2, 5), BIG)}
        n, m, k = rng.randint(3, 9), rng.randint(12, 30), rng.randint(2, 6)
        self.state = {"need": need, "small": {}, "big": {}}
        first, second, third = need[a][0] * n, need[b][0] * m, need[c][0] * k * FACTOR
        self.tasks = [
            (f"Order {STUFF} for {n} portions of {a}, in {SMALL}.", lambda s: s["small"].get(a) == first),
            (f"Order {STUFF} for {m} portions of {b}, in {BIG}.", lambda s: s["big"].get(b) == second),
            (f"Order {STUFF} for {k} portions of {c}; the shop wants {SMALL} this time.", lambda s: s["small"].get(c) == third),
        ]
        self.plan = [
            self.call("recipe", product=a),
            self.call("order_small", product=a, amount=first),
            self.call("recipe", product=b),
            self.call("order_big", product=b, amount=second),
            self.call("recipe", product=c),
            self.call("convert"),
            self.call("order_small", product=c, amount=third),
            self.answer,
        ]

    def tool_recipe(self, product):
        if product not in self.state["need"]:
            return "error: no recipe of that name"
        amount, unit = self.state["need"][product]
        return f"one portion of {product} needs {amount} {unit} of {STUFF}"

    def tool_convert(self):
        return f"one of the {BIG} is {FACTOR} {SMALL}"

    def tool_order_small(self, product, amount):
        if amount < 1:
            return "error: order at least one"
        self.state["small"][product] = amount
        return f"{amount} {SMALL} are ordered for {product}"

    def tool_order_big(self, product, amount):
        if amount < 1:
            return "error: order at least one"
        self.state["big"][product] = amount
        return f"{amount} {BIG} are ordered for {product}"

    def solution(self):
        return self.plan

    def hint(self):
        return "Read the recipe, multiply by the portions, and convert where its unit is not the one that is ordered in."

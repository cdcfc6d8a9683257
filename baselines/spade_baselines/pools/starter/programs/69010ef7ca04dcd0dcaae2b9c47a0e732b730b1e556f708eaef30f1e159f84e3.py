GOODS = ['bolts', 'nuts', 'rivets', 'screws']
SITES = ['Aarau', 'Basel', 'Chur']
CARRIER = 'truck'
UNIT = 'boxes'


class TransferEnv(ToolEnv):
    """Move goods between sites by what is read there."""

    max_turns = 14
    tools = {
        "read_stock": {"description": "read how many " + UNIT + " of an article a site holds", "parameters": {"site": "string", "article": "string"}},
        "transfer": {"description": "send " + UNIT + " of an article from one site to another by " + CARRIER, "parameters": {"source": "string", "target": "string", "article": "string", "amount": "integer"}},
        "write_off": {"description": "remove " + UNIT + " of an article that cannot be used any more", "parameters": {"site": "string", "article": "string", "amount": "integer"}},
        "site_list": {"description": "list all sites", "parameters": {}},
    }

    def setup(self, rng):
        stock = {s: {g: 2 * rng.randint(21, 99) for g in GOODS} for s in SITES}
        a, b, c = rng.sample(SITES, 3)
        g, h, k = rng.sample(GOODS, 3)
        while stock[a][g] - stock[b][g] < 10:
            stock[a][g], stock[b][g] = 2 * rng.randint(21, 99), 2 * rng.randint(21, 99)
        half = (stock[a][g] - stock[b][g]) // 2
        keep, third = rng.randint(11, 39), stock[c][h]
        self.state = {"stock": stock}
        left, even = stock[c][k], stock[a][g] - half
        self.tasks = [
            (f"Make {a} and {b} hold equally many {UNIT} of {g} by one transfer.", lambda s: s["stock"][a][g] == even == s["stock"][b][g]),
            (f"Leave exactly {keep} {UNIT} of {h} at {c}; the rest goes to {a}.", lambda s: s["stock"][c][h] == keep and s["stock"][a][h] == kept + third - keep),
            (f"All {k} at {c} is spoilt: write it off.", lambda s: s["stock"][c][k] == 0),
        ]
        kept = stock[a][h]
        self.plan = [
            self.call("read_stock", site=a, article=g),
            self.call("read_stock", site=b, article=g),
            self.call("transfer", source=a, target=b, article=g, amount=half),
            self.call("read_stock", site=c, article=h),
            self.call("transfer", source=c, target=a, article=h, amount=third - keep),
            self.call("read_stock", site=c, article=k),
            self.call("write_off", site=c, article=k, amount=left),
            self.answer,
        ]

    def tool_read_stock(self, site, article):
        if site not in SITES or article not in GOODS:
            return "error: no such site or article"
        return f"{site} holds {self.state['stock'][site][article]} {UNIT} of {article}"

    def tool_transfer(self, source, target, article, amount):
        if source not in SITES or target not in SITES or source == target or article not in GOODS:
            return "error: no such sites or article"
        if not 1 <= amount <= self.state["stock"][source][article]:
            return "error: that many are not there"
        self.state["stock"][source][article] -= amount
        self.state["stock"][target][article] += amount
        return f"{amount} {UNIT} of {article} went from {source} to {target}"

    def tool_write_off(self, site, article, amount):
        if site not in SITES or article not in GOODS or not 1 <= amount <= self.state["stock"][site][article]:
            return "error: that many are not there"
        self.state["stock"][site][article] -= amount
        return f"{amount} {UNIT} of {article} were written off at {site}"

    def tool_site_list(self):
        return ", ".join(SITES)

    def solution(self):
        return self.plan

    def hint(self):
        return "Read both sides first; to make two equal, half of the difference has to move."

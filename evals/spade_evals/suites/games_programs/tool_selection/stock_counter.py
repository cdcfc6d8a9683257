LEVEL = 1

CLOSING = "Further wishes may be added. Close with <answer>done</answer> when all are met."

JOBS = {1: 3, 2: 4, 3: 5}[LEVEL]
ARTICLES = ("anchors", "buckles", "clamps", "dowels", "eyelets", "flanges", "grommets", "hooks")
SITES = ("harbour", "mill", "depot")


class StockCounterEnv(ToolEnv):
    """Choose between counting, adding, moving, reserving and writing off, by what happened to the goods."""

    max_turns = {1: 14, 2: 18, 3: 22}[LEVEL]
    tools = {
        "look": {
            "description": "pieces of an article at each site and how many of them are reserved",
            "parameters": {"article": "string"},
        },
        "receive": {
            "description": "book in pieces that came from outside",
            "parameters": {"article": "string", "site": "string", "pieces": "integer"},
        },
        "recount": {
            "description": "replace the booked number by a counted one",
            "parameters": {"article": "string", "site": "string", "pieces": "integer"},
        },
        "relocate": {
            "description": "move pieces from a site to another",
            "parameters": {"article": "string", "source": "string", "target": "string", "pieces": "integer"},
        },
        "reserve": {
            "description": "put pieces aside without taking them out",
            "parameters": {"article": "string", "site": "string", "pieces": "integer"},
        },
        "write_off": {
            "description": "book out pieces that are spoiled or lost",
            "parameters": {"article": "string", "site": "string", "pieces": "integer"},
        },
    }

    def setup(self, rng):
        stock = {a: {s: rng.randint(40, 160) for s in SITES} for a in ARTICLES}
        self.state = {"stock": {a: dict(v) for a, v in stock.items()}, "aside": {}, "log": []}
        self.tasks, self.plan, log = [], [], []
        kinds = rng.sample(("receive", "recount", "relocate", "reserve", "write_off"), JOBS)
        for kind, article in zip(kinds, rng.sample(ARTICLES, len(kinds)), strict=True):
            site, other = rng.sample(SITES, 2)
            here, there = stock[article][site], stock[article][other]
            pieces = rng.randint(5, here - 10)
            text, reads, values = {
                "receive": (
                    f"A lorry from the factory left {pieces} {article} at the {site}.",
                    0,
                    (site, pieces),
                ),
                "recount": (
                    f"Somebody went through the shelves: at the {site} there are really {pieces + 3} {article}, whatever the books say.",
                    0,
                    (site, pieces + 3),
                ),
                "relocate": (
                    f"The {other} is to end up with {there + pieces} {article}; what it lacks comes over from the {site}.",
                    1,
                    (site, other, pieces),
                ),
                "reserve": (
                    f"A builder will fetch a third of the {article} at the {site} next week (round down); nobody else may have them.",
                    1,
                    (site, here // 3),
                ),
                "write_off": (
                    f"A leak at the {site} has spoiled all {article} there but {pieces}.",
                    1,
                    (site, here - pieces),
                ),
            }[kind]
            log = [*log, (kind, article, *values)]
            self.tasks.append((text, lambda s, w=log: s["log"] == w))
            names = ("source", "target", "pieces") if kind == "relocate" else ("site", "pieces")
            self.plan += [self.call("look", article=article)] * reads
            self.plan.append(self.call(kind, article=article, **dict(zip(names, values, strict=True))))
        self.tasks[0] = (f"{self.tasks[0][0]} {CLOSING}", self.tasks[0][1])
        self.plan.append(self.answer)

    def book(self, kind, article, change, *values):
        """Carry a booking out. `change` maps sites to the pieces they gain."""
        if article not in self.state["stock"] or not set(change) <= set(SITES):
            return "error: no such article or site"
        after = {s: self.state["stock"][article][s] + n for s, n in change.items()}
        if values[-1] < 1 or min(after.values()) < 0:
            return "refused: that many pieces cannot be booked"
        self.state["stock"][article].update(after)
        self.state["log"] = [*self.state["log"], (kind, article, *values)]
        return f"{article}: " + ", ".join(f"{s} {n}" for s, n in self.state["stock"][article].items())

    def tool_look(self, article):
        if article not in self.state["stock"]:
            return "error: no such article"
        rows = self.state["stock"][article].items()
        return f"{article}: " + ", ".join(
            f"{s} {n}, {self.state['aside'].get((article, s), 0)} reserved" for s, n in rows
        )

    def tool_receive(self, article, site, pieces):
        return self.book("receive", article, {site: pieces}, site, pieces)

    def tool_recount(self, article, site, pieces):
        booked = self.state["stock"].get(article, {}).get(site, 0)
        return self.book("recount", article, {site: pieces - booked}, site, pieces)

    def tool_relocate(self, article, source, target, pieces):
        return self.book("relocate", article, {source: -pieces, target: pieces}, source, target, pieces)

    def tool_reserve(self, article, site, pieces):
        self.state["aside"][article, site] = self.state["aside"].get((article, site), 0) + pieces
        return self.book("reserve", article, {site: 0}, site, pieces)

    def tool_write_off(self, article, site, pieces):
        return self.book("write_off", article, {site: -pieces}, site, pieces)

    def solution(self):
        return self.plan

    def hint(self):
        return "Decide what physically happened to the pieces; then look up the number that the sentence leaves out."

LEVEL = 1

CLOSING = "Then wait for the next request; when no more come, finish with <answer>done</answer>."

PAGES = {1: 3, 2: 4, 3: 5}[LEVEL]
WOODS = ("ash", "beech", "cherry", "larch", "oak", "walnut")
KINDS = ("bench", "chest", "desk", "shelf", "stool")


class PagedCatalogueEnv(ToolEnv):
    """Find articles in a catalogue that shows some properties page by page and others one article at a time."""

    max_turns = {1: 20, 2: 24, 3: 25}[LEVEL]
    tools = {
        "page": {"description": "articles of one page: id, kind, wood", "parameters": {"number": "integer"}},
        "details": {"description": "price, weight and stock of an article", "parameters": {"id": "string"}},
        "by_wood": {
            "description": "how many articles of a wood stand on which pages",
            "parameters": {"wood": {"type": "string", "enum": list(WOODS)}},
        },
        "report": {
            "description": "hand the id of an article to the customer",
            "parameters": {"id": "string"},
        },
    }

    def setup(self, rng):
        ids = [
            f"{a}{n}"
            for a, n in zip(
                rng.choices("CDFGKLMNPR", k=6 * PAGES), rng.sample(range(100, 999), 6 * PAGES), strict=True
            )
        ]
        prices, weights = rng.sample(range(60, 900), len(ids)), rng.sample(range(40, 400), len(ids))
        rows = {
            i: {
                "kind": rng.choice(KINDS),
                "wood": rng.choice(WOODS),
                "price": p,
                "weight": w,
                "stock": rng.choice((0, 2, 5)),
            }
            for i, p, w in zip(ids, prices, weights, strict=True)
        }
        self.state = {"rows": rows, "reports": []}
        self.tasks, self.plan, due = [], [self.call("page", number=n + 1) for n in range(PAGES)], []
        for wood in rng.sample(sorted({r["wood"] for r in rows.values()}), 3):
            mine = [i for i in ids if rows[i]["wood"] == wood]
            if LEVEL == 1:
                right, what = min(mine, key=lambda i: rows[i]["price"]), f"the cheapest {wood} article"
            elif LEVEL == 2:
                limit = sorted(rows[i]["weight"] for i in mine)[len(mine) // 2]
                light = [i for i in mine if rows[i]["weight"] <= limit]
                right = max(light, key=lambda i: rows[i]["price"])
                what = f"the most expensive {wood} article that weighs at most {limit} decagrams"
            else:
                kept = [i for i in mine if rows[i]["stock"]] or mine
                right = min(kept, key=lambda i: rows[i]["price"] / rows[i]["weight"])
                what = f"of the {wood} articles"
                what += " that are in stock," if any(rows[i]["stock"] for i in mine) else ""
                what += " the one with the lowest price per weight"
            due = [*due, right]
            self.tasks.append((f"Report {what}.", lambda s, d=tuple(due): s["reports"] == list(d)))
            self.plan += ["\n".join(self.call("details", id=i) for i in mine), self.call("report", id=right)]
        self.tasks[0] = (f"{self.tasks[0][0]} {CLOSING}", self.tasks[0][1])
        self.plan.append(self.answer)

    def tool_page(self, number):
        ids = list(self.state["rows"])[6 * (number - 1) : 6 * number] if 1 <= number <= PAGES else []
        if not ids:
            return f"error: there are pages 1 to {PAGES}"
        return "; ".join(f"{i} {self.state['rows'][i]['kind']} {self.state['rows'][i]['wood']}" for i in ids)

    def tool_details(self, id):
        row = self.state["rows"].get(id)
        if row is None:
            return "error: no such article"
        return f"{id}: {row['price']} crowns, {row['weight']} decagrams, {row['stock']} in stock"

    def tool_by_wood(self, wood):
        ids = list(self.state["rows"])
        pages = [k // 6 + 1 for k, i in enumerate(ids) if self.state["rows"][i]["wood"] == wood]
        return ", ".join(f"page {n}: {pages.count(n)}" for n in sorted(set(pages))) or "none"

    def tool_report(self, id):
        if id not in self.state["rows"]:
            return "error: no such article"
        due = self.current  # a report for an instruction replaces an earlier one for it
        self.state["reports"] = [*self.state["reports"][:due], id]
        return f"{id} is handed over"

    def solution(self):
        return self.plan

    def hint(self):
        return "Read all pages once and keep the list; look into details only of articles of the right wood."

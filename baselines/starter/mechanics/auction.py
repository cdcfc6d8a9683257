SKILL = "Optimization"
VARIANTS = [
    {"STORY": "A trader in a harbour starts with one unit of {a} and wants {b}", "GOODS": ["salt", "rope", "tar", "cloth", "tin", "wine"], "ASK": "price", "SWAP": "trade"},
    {"STORY": "A collector owns one {a} card and wants a {b} card", "GOODS": ["drake", "knight", "siren", "golem", "witch", "baron"], "ASK": "query", "SWAP": "swap"},
    {"STORY": "A courier holds a pass for {a} and needs one for {b}", "GOODS": ["north", "dock", "mill", "tower", "market", "garden"], "ASK": "inquire", "SWAP": "exchange"},
]


class AuctionEnv:
    """Ask who swaps what for what, and follow a chain of swaps to the wanted thing."""

    max_turns = 14

    def reset(self, seed=None):
        rng = random.Random(seed)
        chain = rng.sample(GOODS, len(GOODS))
        length = rng.randint(4, len(GOODS))
        self.offers = {g: [] for g in GOODS}
        for a, b in zip(chain[: length - 1], chain[1:length]):
            self.offers[a].append(b)
        for g in GOODS:
            back = [b for b in chain[: chain.index(g)] if b not in self.offers[g]]
            if back and rng.random() < 0.7:
                self.offers[g].append(rng.choice(back))
            rng.shuffle(self.offers[g])
        self.chain, self.hand, self.goal, self.turn = chain[:length], chain[0], chain[length - 1], 0
        return (
            f"{STORY.format(a=self.hand, b=self.goal)}. There are {', '.join(sorted(GOODS))}. '{ASK} {self.hand}' tells what is given for it. "
            f"'{SWAP} X' gives what you hold for X; where that is not offered you are sent away and lose. You have {self.max_turns} turns. Put one action in \\boxed{{}}."
        ), {}

    def step(self, action):
        self.turn += 1
        late = self.turn >= self.max_turns
        word, *names = boxed(action).split() or [""]
        if word not in (ASK, SWAP) or len(names) != 1 or names[0] not in GOODS:
            return f"Say '{ASK} X' or '{SWAP} X'; you hold {self.hand}.", 0.0, False, late, {}
        if word == ASK:
            given = ", ".join(self.offers[names[0]]) or "nothing"
            return f"For {names[0]} you get {given}. You hold {self.hand}.", 0.0, False, late, {}
        if names[0] not in self.offers[self.hand]:
            return f"Nobody gives {names[0]} for {self.hand}, and the offer offends: you are sent away.", 0.0, True, False, {}
        self.hand = names[0]
        if self.hand == self.goal:
            return f"You hold {self.hand}, as wanted.", 1.0, True, False, {}
        return f"You hold {self.hand}.", 0.0, False, late, {}

    def solution(self):
        return [f"{SWAP} {g}" for g in self.chain[1:]]

    def hint(self):
        return "Ask first what leads to the goal step by step; some offers lead back to where you were."

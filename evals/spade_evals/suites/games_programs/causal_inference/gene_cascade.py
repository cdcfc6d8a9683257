import random
import re

LEVEL = 1

GENES = {1: "ABCDE", 2: "ABCDEFG", 3: "ABCDEFGHI"}[LEVEL]


class GeneCascadeEnv:
    """Find which gene switches on which from experiments in which genes are blocked."""

    max_turns = {1: 5, 2: 6, 3: 7}[LEVEL]

    def reset(self, seed=None):
        rng = random.Random(seed)
        self.turn = 0
        while True:
            order = rng.sample(GENES, len(GENES))
            self.parent = {order[0]: "-"}
            for k, gene in enumerate(order[1:], start=1):
                self.parent[gene] = order[k - 1] if rng.random() < 0.55 else rng.choice(order[:k])
            depth = max(self.depth(g) for g in GENES)
            if 2 <= depth <= len(GENES) - 2:
                break
        least = {1: "one gene", 2: "up to two genes", 3: "up to three genes"}[LEVEL]
        return (
            f"In this alga one gene of {', '.join(GENES)} is always ready to work, and each of the others works only "
            "while one certain other gene works: its switch. Nobody knows who switches whom. In an experiment you "
            f"block {least}; a blocked gene does not work, and you get the list of genes that still do. One more "
            "thing is known from old slides: "
            f"{self.slides()}.\n"
            "Experiment with 'block X' (several letters with spaces), and in the end publish the switch of every "
            f"gene in the order {' '.join(GENES)}, '-' for the one that needs none, for example 'publish "
            f"{' '.join('-' + 'A' * (len(GENES) - 1))}'. You publish once. Put what you do into \\boxed{{}}; {self.max_turns} turns."
        ), {}

    def depth(self, gene):
        steps = 0
        while gene != "-":
            gene, steps = self.parent[gene], steps + 1
        return steps - 1

    def slides(self):
        leaves = [g for g in GENES if g not in self.parent.values()]
        return "the genes that switch nothing are " + ", ".join(leaves)

    def working(self, blocked):
        def works(gene):
            while gene != "-":
                if gene in blocked:
                    return False
                gene = self.parent[gene]
            return True

        return [g for g in GENES if works(g)]

    def step(self, action):
        self.turn += 1
        late = self.turn >= self.max_turns
        said = re.fullmatch(r"\\boxed\{\s*(block|publish)((?:[\s,]+[a-z-])+)\s*\}", action.strip().lower())
        names = re.findall(r"[A-Z-]", said.group(2).upper()) if said else []
        known = all(n in GENES or n == "-" for n in names)
        if said and said.group(1) == "publish" and len(names) == len(GENES) and known:
            right = names == [self.parent[g] for g in GENES]
            text = "Every laboratory confirms it." if right else "Another laboratory finds otherwise."
            return text, float(right), True, False, {}
        if said and said.group(1) == "block" and 1 <= len(names) <= LEVEL and known and "-" not in names:
            left = ", ".join(self.working(names)) or "none at all"
            text = f"With {', '.join(names)} blocked, these work: {left}. {self.max_turns - self.turn} turns left."
            return text + " 'block ...' or 'publish ...'.", 0.0, False, late, {}
        text = f"Invalid. 'block' takes at most {LEVEL} of the letters, 'publish' {len(GENES)} signs, all in \\boxed{{}}."
        return text, 0.0, False, late, {}

    def solution(self):
        inner = sorted({p for p in self.parent.values() if p != "-"})[:2]
        tests = [] if self.turn else [f"block {g}" for g in inner]
        return [*tests, "publish " + " ".join(self.parent[g] for g in GENES)]

    def hint(self):
        return "What stops with a blocked gene lies below it; sets that contain one another give the order."

"""Text environments written for gymnasium or GEM, as programs: the source is read and rewritten, never run.

A file with one class that has `reset` and `step` over texts can be played here once it needs nothing but the
standard library. So imports of the framework and its base class go, and what such files use of it is put in
front: `gem`'s constants and box reader, a stand-in for `self.np_random`. Spaces and metadata are dropped; a
call of the base class's `reset` seeds. The validator judges the result like any other program, and asks for a
`solution` that says how an episode is won, which neither framework has: add the method before importing.
"""

from __future__ import annotations

import ast

FRAMEWORKS = ("gymnasium", "gym", "gem")
BASES = ("Env", "gym.Env", "gymnasium.Env", "gem.Env", "gem.core.Env")
DROPPED = ("observation_space", "action_space", "metadata", "render_mode")
HELPERS = {
    "TERMINAL_STATE": 'TERMINAL_STATE = "<TERMINAL_STATE>"\n',
    "LanguageGameReward": (
        "class LanguageGameReward:\n"
        "    success_reward = 1.0\n"
        "    internal_step_reward = fail_reward = invalid_action_reward = format_error_reward = 0.0\n"
    ),
    "extract_last_boxed_answer": (
        "def extract_last_boxed_answer(text):\n"
        '    at = text.rfind("\\\\boxed{")\n'
        "    depth = 0\n"
        "    for place in range(at + 6, len(text) if at >= 0 else 0):\n"
        '        depth += (text[place] == "{") - (text[place] == "}")\n'
        "        if depth == 0:\n"
        "            return text[at + 7 : place]\n"
        "    return None\n"
    ),
    "np_random": (
        "class NumpyLike:\n"
        '    """What text environments use of a numpy generator."""\n\n'
        "    def __init__(self, seed):\n"
        "        self.rng = random.Random(seed)\n"
        "        self.random, self.shuffle = self.rng.random, self.rng.shuffle\n"
        "        self.uniform = self.rng.uniform\n\n"
        "    def integers(self, low, high=None, endpoint=False):\n"
        "        low, high = (0, low) if high is None else (low, high)\n"
        "        return self.rng.randrange(low, high + bool(endpoint))\n\n"
        "    def choice(self, values, size=None, replace=True):\n"
        "        values = list(range(values)) if isinstance(values, int) else list(values)\n"
        "        if size is None:\n"
        "            return self.rng.choice(values)\n"
        "        return self.rng.choices(values, k=size) if replace else self.rng.sample(values, size)\n\n"
        "    def permutation(self, values):\n"
        "        values = range(values) if isinstance(values, int) else values\n"
        "        return self.choice(values, len(values), replace=False)\n"
    ),
}
"""Stand-ins by the name that a file uses. A format error is worth 0 here, where no reward is below that."""


def is_foreign(code: str) -> bool:
    """Whether a source imports gymnasium, gym or GEM."""
    try:
        return any(_framework(node) for node in ast.walk(ast.parse(code)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False


def adapted(code: str) -> str:
    """The source as a program of ours; text that is no Python or imports no framework comes back as it is."""
    if not is_foreign(code):
        return code
    tree = _Rewrite().visit(ast.parse(code))
    tree.body = [node for node in tree.body if not _framework(node)]
    used = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}
    used |= {n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute)}
    front = [text for name, text in HELPERS.items() if name in used]
    body = ast.unparse(ast.fix_missing_locations(tree))
    return "import random\n\n\n" + "\n\n".join([*front, body]) + "\n"


def _framework(node: ast.AST) -> bool:
    if isinstance(node, ast.Import):
        return any(alias.name.split(".")[0] in FRAMEWORKS for alias in node.names)
    return isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in FRAMEWORKS


class _Rewrite(ast.NodeTransformer):
    """Takes the framework out of a class."""

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        ours = [base for base in node.bases if ast.unparse(base).split("[")[0] in BASES]
        self.generic_visit(node)
        node.bases = [base for base in node.bases if base not in ours]
        return node

    def visit_Assign(self, node: ast.Assign) -> ast.AST | None:
        targets = {t.attr if isinstance(t, ast.Attribute) else getattr(t, "id", "") for t in node.targets}
        return ast.Pass() if targets <= set(DROPPED) else self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST | None:
        target = node.target
        name = target.attr if isinstance(target, ast.Attribute) else getattr(target, "id", "")
        return ast.Pass() if name in DROPPED else self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> ast.AST | list[ast.stmt] | None:
        """`super().reset(seed=seed)` seeds both kinds of randomness; `super().__init__(...)` does nothing."""
        call = node.value
        if not (isinstance(call, ast.Call) and ast.unparse(call.func).startswith("super().")):
            return self.generic_visit(node)
        if not ast.unparse(call.func).endswith(".reset"):
            return ast.Pass()
        seeds = [k.value for k in call.keywords if k.arg == "seed"] or call.args or [ast.Constant(None)]
        seed = ast.unparse(seeds[0])
        return ast.parse(f"random.seed({seed})\nself.np_random = NumpyLike({seed})").body

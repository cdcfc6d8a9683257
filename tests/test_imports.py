"""The direction of imports, read from the source, and what a bare import may cost.

errors, types, rng  <-  config, registry, runs  <-  serving, envs  <-  play, design  <-  learn  <-  train
report: types and runs only.   spade_evals: up to play, plus report.   spade_baselines: up to train.
Nothing in spade imports spade_evals or spade_baselines; the command line reaches them by name.
"""

from __future__ import annotations

import ast
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = {
    "spade": ROOT / "spade",
    "spade_evals": ROOT / "evals" / "spade_evals",
    "spade_baselines": ROOT / "baselines" / "spade_baselines",
}

BASE = {"errors", "codec", "types", "rng", "__version__"}
RECORDS = {"types_design", "types_learn", "types_play", "types_results", "types_text"}  # read through types
CONFIG = {
    "config",
    "config_base",
    "config_design",
    "config_learn",
    "config_sources",
    "config_track",
    "config_trl",
    "config_vllm",
    "config_load",
}
CORE = BASE | CONFIG | {"registry", "runs", "files", "machine", "interrupt", "deadlines", "cluster"}
LOW = CORE | {"serving", "envs"}
MID = LOW | {"play", "design"}
LEARN = MID | {"learn"}
TRAIN = LEARN | {"embedded", "report", "train"}

# First name below `spade` (or the other package) -> the parts of spade it may import besides itself.
ALLOWED: dict[str, set[str]] = {
    "__init__": {"_gymnasium"},
    "_gymnasium": set(),
    "errors": set(),
    "codec": set(),
    "types": {"errors", "codec"} | RECORDS,
    **dict.fromkeys(RECORDS, {"errors", "codec"} | RECORDS),
    "rng": set(),
    **dict.fromkeys(CORE - BASE, CORE),
    "serving": CORE,
    "envs": CORE,
    "play": LOW | {"design"},  # one layer: the Agent's first message is a template of `design`,
    "design": LOW | {"play"},  # the Designer strips thoughts as the Agent does
    "learn": MID,
    "train": TRAIN,  # embedded.heldout: what a run must not train on
    "report": BASE | {"runs", "files"},
    "embedded": LEARN | {"report"},
    "testing": MID,
    "study": LEARN | {"embedded", "report"},
    "sft": LEARN,
    "cli": TRAIN | {"testing", "study", "sft"},
    "spade_evals": MID | {"report", "embedded"},
    "spade_baselines": TRAIN,
}

# torch, in whatever disguise, may be imported by these alone, also inside functions.
MAY_USE_TORCH = (
    "spade.serving.local",
    "spade.serving.decoder",
    "spade.serving.arena",
    "spade.serving.engine",
    "spade.serving.running",
    "spade.serving.seats",
    "spade.serving.slots",
    "spade.serving.device",
    "spade.serving.linear",
    "spade.serving.hf_engine",
    "spade.serving.models",
    "spade.serving.reference",
    "spade.serving.sampling",
    "spade.serving.checkpoint_files",
    "spade.serving.embedding",
    "spade.serving.vllm_engine",
    "spade.serving.vllm_weights",
    "spade.learn.loss",
    "spade.learn.optimizers",
    "spade.learn.trainer",
    "spade.learn.checkpoint",
    "spade.learn.weights",
    "spade.learn.parallel",
    "spade.learn.shards",
    "spade.learn.trl",
    "spade.learn.trl_batch",
    "spade.learn.trl_open",
    "spade.learn.trl_trainer",
    "spade.learn.zero",
    "spade.learn.background",
    "spade.learn.attention",
    "spade.learn.scoring",
    "spade.embedded",
    "spade.study",
    "spade.sft.train",
)
STANDARD_LIBRARY_ONLY = (
    "spade.envs.worker",
    "spade.envs.host",
    "spade.envs.answers",
    "spade.envs.tools",
    "spade.envs.plain",
    "spade.envs.solution_io",
    "spade.envs.solution_worker",
    "spade_evals.grade.calls",
    "spade_evals.grade.calls_reader",
    "spade_evals.grade.characters",
    "spade_evals.hosting.serve",
    "spade_evals.suites.bfcl.host",
)
HEAVY = ("torch", "transformers", "tokenizers", "pandas", "scipy", "matplotlib", "datasets", "accelerate")


def modules() -> Iterator[tuple[str, Path]]:
    for package, folder in PACKAGES.items():
        for path in sorted(folder.rglob("*.py")):
            parts = path.relative_to(folder).with_suffix("").parts
            if {"heldout_programs", "games_programs", "model", "pools"} & set(parts):
                continue  # environment programs: data that happens to be Python
            yield ".".join([package, *(p for p in parts if p != "__init__")]), path


def imported(path: Path, module: str) -> Iterator[tuple[str, int]]:
    """Every absolute module path a file imports, at any depth, `from a import b` counted as `a.b`."""
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = (
                ".".join(package.split(".")[: len(package.split(".")) - node.level + 1]) if node.level else ""
            )
            base = ".".join(p for p in (above, node.module) if p)
            yield from ((f"{base}.{alias.name}", node.lineno) for alias in node.names)


def layer(module: str) -> str:
    parts = module.split(".")
    return (parts[1] if len(parts) > 1 else "__init__") if parts[0] == "spade" else parts[0]


def below(name: str, roots: tuple[str, ...]) -> bool:
    return any(name == root or name.startswith(f"{root}.") for root in roots)


def wrong_arrows(module: str, path: Path) -> Iterator[str]:
    own = layer(module)
    for name, line in imported(path, module):
        top = name.split(".")[0]
        if top not in PACKAGES:
            continue
        if top == module.split(".")[0] != "spade":
            continue
        if top != "spade":
            yield f"{path.relative_to(ROOT)}:{line}: {module} imports {name}"
        elif layer(name) not in ALLOWED[own] | {own}:
            yield f"{path.relative_to(ROOT)}:{line}: {own} imports {name}"


def test_every_module_has_a_place_in_the_order() -> None:
    assert sorted({layer(module) for module, _ in modules()} - set(ALLOWED)) == []


def test_no_arrow_points_the_wrong_way() -> None:
    assert [
        wrong
        for module, path in modules()
        if layer(module) in ALLOWED
        for wrong in wrong_arrows(module, path)
    ] == []


def test_torch_stays_in_its_modules() -> None:
    users = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for module, path in modules()
        for name, line in imported(path, module)
        if below(name, ("torch", "safetensors.torch")) and not below(module, MAY_USE_TORCH)
    ]
    assert users == []


def test_code_that_runs_in_the_sandbox_needs_only_the_standard_library() -> None:
    outside = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for module, path in modules()
        if module in STANDARD_LIBRARY_ONLY
        for name, line in imported(path, module)
        if name.split(".")[0] not in sys.stdlib_module_names and not below(name, STANDARD_LIBRARY_ONLY)
    ]
    assert outside == []


def test_the_walk_sees_imports_inside_functions_and_relative_ones(tmp_path: Path) -> None:
    file = tmp_path / "x.py"
    file.write_text("def f():\n    import torch.nn\n    from . import a\n    from ..b import c\n")
    assert [name for name, _ in imported(file, "spade.serving.x")] == [
        "torch.nn",
        "spade.serving.a",
        "spade.b.c",
    ]


def test_the_walk_would_report_a_wrong_arrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    file = tmp_path / "x.py"
    file.write_text(
        "from spade.train.loop import run_training\nimport spade_evals\nfrom spade import errors\n"
    )
    assert len(list(wrong_arrows("spade.envs.x", file))) == 2


def clean(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


LIST_HEAVY = f"print('heavy', sorted(m for m in {HEAVY!r} if m in sys.modules))"


@pytest.mark.parametrize(
    "code",
    [
        "import spade",
        "import spade.types, spade.config, spade.config_load, spade.runs, spade.registry, spade.testing",
        "import spade.serving.policy, spade.envs, spade.play, spade.design, spade.learn, spade.train",
        "import spade.report, spade_evals, spade_baselines",
        "import spade.cli.main as m; m.main(['--help'])",
        "import spade.cli.main as m; m.main(['config', 'show', 'demo'])",
        "import spade.cli.main as m; m.main(['list', 'suites'])",
    ],
)
def test_light_commands_import_nothing_heavy(code: str) -> None:
    assert clean(f"import sys; {code}; {LIST_HEAVY}").splitlines()[-1] == "heavy []"


def test_help_is_quick_in_processor_time() -> None:
    """Processor seconds and not wall clock, so that a busy machine does not fail the test."""
    costs = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        clean("import spade.cli.main as m; m.main(['--help'])")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        costs.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert min(costs) < 0.3

"""The command line: verbs, exit codes, one sentence per mistake, one JSON document with `--json`."""

from __future__ import annotations

import argparse
import ast
import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spade.cli import doctor, evaluate, inloop, main, tools, train
from spade.config import Config
from spade.config_load import load_config
from spade.errors import BackendError, InterruptedRun, SandboxError
from spade.interrupt import StopFlag
from spade.runs import RunFolder, read_record
from spade.types import SuiteResult
from spade_baselines.pool_refs import check_ref
from spade_evals.harness.options import HarnessOptions

Capture = pytest.CaptureFixture[str]
SUITE_RESULT = SuiteResult(
    "heldout", "embedded", "p", (0.5, 0.1, 4), {"a/easy": (0.6, 0.1, 2)}, {"program": 1, "grader": 0}, 1234
)


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SPADE_DEBUG", raising=False)


def fake(monkeypatch: pytest.MonkeyPatch, **things: Any) -> list[str]:
    """Stand-ins for what other parts provide, by attribute name; returns the names asked for."""
    asked: list[str] = []
    things = {
        "resolve_ref": lambda ref: ref,
        "check_run": lambda cfg: None,
        "HarnessOptions": HarnessOptions,
    } | things

    def lazy(where: str) -> Any:
        asked.append(where)
        return things[where.partition(":")[2]]

    for module in (train, evaluate, doctor):
        monkeypatch.setattr(module, "lazy", lazy)
    return asked


def failed(capsys: Capture, *argv: str, code: int = 2) -> str:
    """Run a command that must fail with one sentence; returns the sentence."""
    assert main.main(argv) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    lines = captured.err.strip().splitlines()
    assert len(lines) == 1 and lines[0].startswith("spade: "), captured.err
    return lines[0]


def test_help_lists_every_verb_with_a_phrase(capsys: Capture) -> None:
    assert main.main(["--help"]) == 0
    text = capsys.readouterr().out
    for verb, (_, phrase) in main.VERBS.items():
        assert f"  {verb} " in text and phrase in text
    assert main.main([]) == 2


def arguments(parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.Action]]:
    """Every argument of a verb, or of the verbs below it, with the words that lead there."""
    below = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    for child in (child for action in below for child in action.choices.values()):
        yield from arguments(child)
    if not below:
        yield from ((parser.prog, action) for action in parser._actions)


@pytest.mark.parametrize("verb", main.VERBS)
def test_every_argument_of_every_verb_is_explained(verb: str) -> None:
    found = list(arguments(main.parser_of(verb)))
    assert [(where, action.dest) for where, action in found if not action.help] == []
    asked = {where for where, action in found if action.dest == "json"}
    assert asked == {where for where, _ in found}, "every verb takes --json"


def test_options_and_positionals_may_come_in_any_order_below_a_verb_too() -> None:
    args = main.parser_of("pool").parse_args(["import", "a", "--out", "b", "validator.floor_max=0.3"])
    assert (args.source, args.out, args.overrides) == (Path("a"), Path("b"), ["validator.floor_max=0.3"])
    args = main.parser_of("config").parse_args(["show", "demo", "--json", "seed=1"])
    assert (args.config, args.overrides, args.json) == ("demo", ["seed=1"], True)


def test_stages_that_are_built_in_are_listed(capsys: Capture) -> None:
    assert main.main(["list", "stages", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert next(iter(listed)) == "screen" and listed["judge"] == "spade.envs.judge:judge"


def test_a_record_that_is_none_says_what_it_lacks(capsys: Capture) -> None:
    Path("r").mkdir()
    Path("r/run.json").write_text('{"id": "x"}')
    assert failed(capsys, "run", "show", "r") == "spade: r/run.json is not a run record (it has no kind)"


def test_a_refusal_of_the_system_is_one_sentence(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str) -> None:
        raise PermissionError(13, "Permission denied", name)

    monkeypatch.setattr(tools, "config_names", lambda: refuse("configs"))
    sentence = failed(capsys, "list", "configs")
    assert sentence.startswith("spade: the system refuses: configs: Permission denied")
    monkeypatch.setenv("SPADE_DEBUG", "1")
    with pytest.raises(PermissionError):
        main.main(["list", "configs"])


def test_version(capsys: Capture) -> None:
    assert main.main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("spade ")


def test_unknown_verb_suggests(capsys: Capture) -> None:
    assert "unknown verb 'trian'; did you mean 'spade train'?" in failed(capsys, "trian")
    assert "spade --help lists the verbs" in failed(capsys, "zzzzzz")


# --- bad input -------------------------------------------------------------------------------------------


def test_bad_yaml(capsys: Capture) -> None:
    Path("bad.yaml").write_text("a: [1\nb: }\n")
    assert "bad.yaml line 2 is not valid YAML" in failed(capsys, "train", "bad.yaml")


def test_unknown_key(capsys: Capture) -> None:
    Path("x.yaml").write_text("learner: {lrr: 1}\n")
    sentence = failed(capsys, "train", "x.yaml")
    assert sentence == "spade: unknown key 'learner.lrr' in x.yaml; did you mean 'learner.lr'?"


def test_wrong_type(capsys: Capture) -> None:
    assert "'play.plays' in the command line is 'many'" in failed(capsys, "train", "demo", "play.plays=many")


def test_unknown_config(capsys: Capture) -> None:
    assert "did you mean 'demo'?" in failed(capsys, "train", "dem")


def test_unknown_source_and_suite(capsys: Capture) -> None:
    assert "unknown source 'self_pay'; did you mean 'self_play'?" in failed(
        capsys, "train", "demo", "train.source=self_pay"
    )
    assert "unknown backend 'locl'; did you mean 'local'?" in failed(
        capsys, "train", "demo", "serving.type=locl"
    )
    assert "did you mean 'heldout'?" in failed(capsys, "eval", "--ckpt", "embedded", "--suite", "heldot")


def test_gpu_asked_for_and_absent(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    for verb in (["train", "demo"], ["eval", "--ckpt", "embedded"]):
        assert "no GPU is visible" in failed(capsys, *verb, "serving.device=cuda")


@pytest.mark.skipif(
    importlib.util.find_spec("spade.serving.launch") is None, reason="spade.serving.launch absent"
)
@pytest.mark.parametrize("ref", ["no-such-model-at-all", "./nowhere/checkpoint"])
def test_missing_checkpoint_and_unknown_model(capsys: Capture, ref: str) -> None:
    assert ref in failed(capsys, "train", "demo", f"model={ref}")
    assert not Path("runs").exists(), "nothing may be created for a run that cannot start"
    assert ref in failed(capsys, "eval", "--ckpt", ref)


def test_run_folder_of_another_config(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    fake(monkeypatch, run_training=lambda cfg, folder, stop: {})
    assert main.main(["train", "smoke", "out=r"]) == 0
    capsys.readouterr()
    sentence = failed(capsys, "train", "smoke", "out=r", "play.plays=5")
    assert "differing keys: play.plays (4 there, 5 now)" in sentence
    assert "no run to resume in s" in failed(capsys, "train", "smoke", "out=s", "--resume")


def test_missing_pool_and_missing_runs(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    fake(monkeypatch, check_ref=check_ref)
    sentence = failed(capsys, "train", "demo-fixed-pool", "train.pool=nowhere")
    assert "no pool at nowhere" in sentence
    assert "nowhere" in failed(capsys, "compare", "nowhere")
    assert "no run record at nowhere/run.json" in failed(capsys, "run", "show", "nowhere")
    assert "no run record" in failed(capsys, "train", "demo", "budget.like=nowhere")


def test_full_disk(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    fake(monkeypatch, run_training=lambda cfg, folder, stop: {})

    def refuse(fd: int, data: Any) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", refuse)
    assert "the disk is full" in failed(capsys, "train", "smoke", "out=r")
    assert not Path("r/run.json").exists()


def test_folder_that_cannot_be_made(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    fake(monkeypatch, run_training=lambda cfg, folder, stop: {})
    Path("file").write_text("")
    assert "cannot make the folder" in failed(capsys, "train", "smoke", "out=file/run")


def test_argparse_errors_exit_with_2() -> None:
    with pytest.raises(SystemExit) as caught:
        main.main(["eval"])
    assert caught.value.code == 2
    with pytest.raises(SystemExit) as caught:
        main.main(["eval", "--ckpt", "x", "--limit", "0"])
    assert caught.value.code == 2


# --- exit codes ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (BackendError("engine"), 1),
        (SandboxError("box"), 1),
        (InterruptedRun("stop"), 130),
        (KeyboardInterrupt(), 130),
    ],
)
def test_errors_inside_a_run(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int
) -> None:
    def run_training(cfg: Config, folder: RunFolder, stop: StopFlag) -> dict[str, Any]:
        raise error

    fake(monkeypatch, run_training=run_training)
    failed(capsys, "train", "smoke", "out=r", code=code)
    assert read_record("r").status == ("failed" if code == 1 else "interrupted")


def test_debug_shows_the_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPADE_DEBUG", "1")
    with pytest.raises(Exception, match="did you mean 'demo'"):
        main.main(["train", "demoo"])


def test_a_stop_request_ends_with_130(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    def run_training(cfg: Config, folder: RunFolder, stop: StopFlag) -> dict[str, Any]:
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.requested
        return {"steps": 1}

    fake(monkeypatch, run_training=run_training)
    assert main.main(["train", "smoke", "out=r"]) == 130
    assert read_record("r").status == "interrupted"
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_second_interrupt_is_at_once() -> None:
    with StopFlag() as stop, pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.requested
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(5)


# --- what the verbs print --------------------------------------------------------------------------------


def test_train_summary_json_is_the_only_thing_on_stdout(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run_training(cfg: Config, folder: RunFolder, stop: StopFlag) -> dict[str, Any]:
        print("a log line")
        folder.append("metrics.jsonl", {"step": 1, "reward": 0.25})
        return {"steps": 1, "reward": float("nan")}

    asked = fake(monkeypatch, run_training=run_training, run_eval=lambda *a, **k: SUITE_RESULT)
    code = main.main(["train", "smoke", "--json", "out=r", "eval.at_end=true", "seed=3"])
    captured = capsys.readouterr()
    assert code == 0
    value = json.loads(captured.out)
    assert (value["run"], value["status"], value["reward"]) == ("r", "finished", None)
    assert value["eval r"]["score"] == [0.5, 0.1, 4]
    assert "a log line" in captured.err
    assert "spade.train.loop:run_training" in asked
    assert read_record("r").command == "spade train smoke --json out=r eval.at_end=true seed=3"


def test_dry_run_prints_the_resolved_config_and_creates_nothing(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fake(monkeypatch)
    assert main.main(["train", "smoke", "--dry-run", "play.plays=5"]) == 0
    text = capsys.readouterr().out
    assert "# run folder: runs/smoke-s0" in text and "plays: 5" in text
    assert list(tmp_path.iterdir()) == []


def test_budget_like_becomes_a_number_in_the_digest(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    def run_training(cfg: Config, folder: RunFolder, stop: StopFlag) -> dict[str, Any]:
        folder.update_record(ledger={"total_tokens": 777})
        return {"budget": cfg.budget.total_tokens}

    fake(monkeypatch, run_training=run_training)
    assert main.main(["train", "smoke", "out=a"]) == 0
    assert main.main(["train", "smoke", "out=b", "budget.like=a"]) == 0
    assert "budget: 777" in capsys.readouterr().out
    assert read_record("b").config["budget"] == {
        "total_tokens": 777, "train_tokens": None, "train_plays": None, "match": "total_tokens", "like": None
    }  # fmt: skip


async def test_every_nth_checkpoint_and_the_last_are_evaluated(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, Path, int]] = []

    async def evaluate_open(
        chat: Any, sandbox: Any, suite: str, ref: str, out: Path, *, seed: int, limit: int
    ) -> SuiteResult:
        asked.append((ref, out, limit))
        return SUITE_RESULT

    monkeypatch.setattr(inloop, "lazy", lambda where: evaluate_open)
    cfg = load_config("demo", ["eval.every=2", "eval.checkpoint_items=5", "train.checkpoint_every=3"])
    look = inloop.in_loop(cfg, Path("r"))
    lines = [await look(None, None, step) for step in (0, 3, 6, 9, 12, 14)]
    place = Path("r/eval-checkpoints")
    assert asked == [("embedded", place, 5), ("r@6", place, 5), ("r@12", place, 5), ("r@14", place, 5)]
    assert [bool(line) for line in lines] == [True, False, True, False, True, True]
    assert lines[2] == "demo: heldout at step 6: 0.500 ± 0.100 (n = 4)"
    assert inloop.in_loop(load_config("demo", ["eval.every=0"]), Path("r")) is None


def test_a_suite_that_cannot_run_in_the_loop_is_refused(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake(monkeypatch)
    assert "eval.checkpoint_suite" in failed(capsys, "train", "demo", "eval.suite=lm-eval:gsm8k")
    assert "heldoutt" in failed(capsys, "train", "demo", "eval.checkpoint_suite=heldoutt")


def test_eval_prints_scores_and_passes_options(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    seen: dict[str, Any] = {}

    def run_eval(ref: str, suite: str, out: Path, **more: Any) -> SuiteResult:
        seen.update(more, ref=ref, suite=suite, out=out)
        return SUITE_RESULT

    fake(monkeypatch, run_eval=run_eval)
    assert main.main(["eval", "--ckpt", "embedded", "--limit", "7", "--seed", "2", "serving.max_rows=3"]) == 0
    text = capsys.readouterr().out
    assert "heldout on embedded" in text and "0.500 ± 0.100 (n = 4)" in text and "program 1" in text
    assert (seen["limit"], seen["seed"], seen["serving"].max_rows) == (7, 2, 3)
    assert seen["out"] == Path("runs/eval-embedded")


def test_run_show_and_publish(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    def run_training(cfg: Config, folder: RunFolder, stop: StopFlag) -> dict[str, Any]:
        row = {"step": 1, "return_plain": 0.25, "distinct_designs": 3.0, "rejected/syntax": 1.0}
        folder.append("metrics.jsonl", {**row, "seconds": 2.0, "seconds/play": 1.5, "tokens_total": 900})
        return {}

    fake(monkeypatch, run_training=run_training)
    main.main(["train", "smoke", "out=r"])
    capsys.readouterr()
    assert main.main(["run", "show", "r"]) == 0
    text = capsys.readouterr().out
    assert "finished" in text and "step 1 of 2" in text and "spade train smoke out=r" in text
    assert "accepted 3 (75%), syntax 1 (25%)" in text and "play 75%" in text and "return, plain" in text
    assert main.main(["run", "show", "r", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["trend"][0]["last"] == 0.25
    assert main.main(["run", "publish", "r", "--results", "results"]) == 0
    assert Path(capsys.readouterr().out.strip()).is_file()


def test_config_verbs(capsys: Capture) -> None:
    assert main.main(["config", "show", "demo", "learner.lr=1e-6"]) == 0
    assert "lr: 1.0e-06" in capsys.readouterr().out
    assert main.main(["config", "diff", "demo", "smoke", "--json"]) == 0
    assert {"key": "play.plays", "left": 16, "right": 4} in json.loads(capsys.readouterr().out)
    assert main.main(["config", "diff", "demo", "demo"]) == 0
    assert capsys.readouterr().out.strip() == "no difference"
    assert main.main(["config", "schema"]) == 0
    assert json.loads(capsys.readouterr().out)["title"] == "Config"


@pytest.mark.parametrize("kind", ["suites", "sources", "backends", "stages", "sinks", "configs"])
def test_list(capsys: Capture, kind: str) -> None:
    assert main.main(["list", kind, "--json"]) == 0
    json.loads(capsys.readouterr().out)
    assert "did you mean 'suites'" in failed(capsys, "list", "suits")


def test_doctor_reports_problems_with_exit_code_1(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.setattr(doctor, "_sandbox", lambda: (None, "no level can be had"))
    monkeypatch.setattr(doctor, "_embedded_model", lambda: None)
    assert main.main(["doctor", "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["sandbox_level"] is None and "embedded build" in report["problems"][1]
    monkeypatch.setattr(doctor, "_embedded_model", lambda: "somewhere")
    assert main.main(["doctor"]) == 1
    assert "problem    no level can be had" in capsys.readouterr().out


def test_every_verb_has_help() -> None:
    for verb, (where, _) in main.VERBS.items():
        if verb in ("envs", "embedded") and importlib.util.find_spec(f"spade.{verb}.cli") is None:
            continue
        assert callable(main.lazy(where))
        with pytest.raises(SystemExit) as caught:
            main.main([verb, "--help"])
        assert caught.value.code == 0


def test_models_list(capsys: Capture) -> None:
    assert main.main(["models", "list"]) == 0
    assert "smollm2-135m" in capsys.readouterr().out
    assert main.main(["models", "list", "--json"]) == 0
    assert "smollm2-135m" in json.loads(capsys.readouterr().out)


def test_corpus_and_pool_stats(capsys: Capture, tmp_path: Path) -> None:
    from spade.envs.pool import Pool, write_pool
    from spade.types import EnvProgram

    assert main.main(["corpus", "stats", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["documents"] > 0
    write_pool(tmp_path / "pool", Pool((EnvProgram.of("class AEnv: pass\n", skill="sum"),), tokens=9))
    assert main.main(["pool", "stats", "pool", "--json"]) == 0
    value = json.loads(capsys.readouterr().out)
    assert (value["programs"], value["skills"], value["tokens"]) == (1, {"sum": 1}, 9)
    assert main.main(["pool", "stats", "pool"]) == 0
    assert "1 programs" in capsys.readouterr().out


def test_compare_prints_the_report(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    from spade.cli import compare

    def compared(paths: Any, reference: Any, out: Any, suite: Any, paper: bool) -> str:
        return "the table"

    monkeypatch.setattr(compare, "lazy", lambda where: compared)
    assert main.main(["compare", "a"]) == 0
    assert "the table" in capsys.readouterr().out


def test_a_delegated_handler_prints_its_own_document(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    def add(parser: Any) -> bool:
        main.add_json(parser)
        parser.set_defaults(handler=lambda args: print("{}"))
        return False

    monkeypatch.setattr(main, "lazy", lambda where: add)
    assert main.main(["envs", "--json"]) == 0
    assert capsys.readouterr().out == "{}\n"


def test_an_ascii_terminal_is_enough() -> None:
    env = {**os.environ, "PYTHONIOENCODING": "ascii"}
    code = "import sys, spade.cli.main as m\nm.main(['--version'])\nprint('±')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr


def test_a_closed_pipe_is_quiet() -> None:
    command = f"{sys.executable} -m spade.cli.main config schema | head -n 1"
    done = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, cwd=Path(tools.__file__).parents[2]
    )
    assert done.stdout.strip() == "{" and done.stderr == ""


def test_doctor_tries_a_chat_template(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.setattr(doctor, "examine", lambda: {"problems": []})
    monkeypatch.setattr(doctor, "_text", lambda report: report["template"]["words"])
    assert main.main(["doctor", "--model", "embedded"]) == 0
    assert "append-only" in capsys.readouterr().out
    assert "no chat template" in failed(capsys, "doctor", "--model", "scripted:null")


def test_slips_of_programs_that_are_read_are_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    slip = "x = 1if True else 2"
    parser = argparse.ArgumentParser()
    parser.set_defaults(handler=lambda args: len(ast.parse(slip).body) - 1)
    monkeypatch.setattr(main, "parser_of", lambda verb: parser)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        ast.parse(slip)
        assert [w.category for w in seen] == [SyntaxWarning]
        assert main.main(["pool"]) == 0
    assert len(seen) == 1

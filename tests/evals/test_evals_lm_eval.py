"""Tasks of lm-evaluation-harness on our serving: against its own engine, from the command line, resumed."""

from __future__ import annotations

import json
import math
import signal
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from lm_eval_tasks import WORDS, write_tasks

from spade.cli import main
from spade.config import ServingConfig
from spade.errors import InputError
from spade.serving.launch import open_chat
from spade.serving.policy import Completion
from spade.types import Message
from spade_evals.results import load

try:
    import lm_eval  # type: ignore[import-untyped,unused-ignore]
except ModuleNotFoundError:
    lm_eval = None
    warnings.warn("tests of lm-evaluation-harness DID NOT RUN: no module lm_eval", stacklevel=1)

needs_harness = pytest.mark.skipif(
    lm_eval is None, reason="NOT RUN: needs the extra lm-eval (make test-extras)"
)
Capture = pytest.CaptureFixture[str]

CONTEXT = 160
"""Short, so that prompts are cut and texts need several windows."""


@pytest.fixture(scope="module")
def tasks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tasks(tmp_path_factory.mktemp("tasks"))


def evaluate(tasks: Path, names: str, out: Path, ref: str = "embedded", *more: str) -> int:
    command = ["eval", "--ckpt", ref, "--suite", f"lm-eval:{names}", "--include-path", str(tasks)]
    return main.main([*command, "--out", str(out), *more, "serving.device=cpu"])


def result(out: Path, name: str) -> dict[str, Any]:
    tree: dict[str, Any] = json.loads((out / f"lm-eval-{name}/run.json").read_text(encoding="utf-8"))
    return tree


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


# --- without the harness ---------------------------------------------------------------------------------


def test_without_the_harness_one_sentence_says_what_to_install(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    from spade_evals import catalogue
    from spade_evals.harness import run

    monkeypatch.setattr(run, "find_spec", lambda name: None)
    monkeypatch.setattr(catalogue, "find_spec", lambda name: None)
    assert main.main(["eval", "--ckpt", "scripted:null", "--suite", "lm-eval:gsm8k"]) == 2
    assert "lm-eval:gsm8k needs the extra lm-eval: pip install 'spade-rl[lm-eval]'" in capsys.readouterr().err
    assert main.main(["list", "suites"]) == 0
    assert "lm-eval:TASK[,TASK]  needs the extra lm-eval" in capsys.readouterr().out


def test_the_tasks_are_the_end_of_the_list_of_suites() -> None:
    from spade.cli.evaluate import suite_names

    assert suite_names("smoke,lm-eval:a,lm-eval:b") == ["smoke", "lm-eval:a,lm-eval:b"]
    assert suite_names("lm-eval:heldout,x") == ["lm-eval:heldout,x"]


def test_options_of_the_other_kind_of_suite_are_refused(capsys: Capture) -> None:
    base = ["eval", "--ckpt", "scripted:null", "--suite"]
    assert main.main([*base, "lm-eval:x", "--preset", "smoke"]) == 2
    assert "tasks bring prompts, samples and data of their own" in capsys.readouterr().err
    assert main.main([*base, "smoke", "--num-fewshot", "0"]) == 2
    assert "go with --suite lm-eval:TASK" in capsys.readouterr().err


# --- the adapter against the harness' own engine ---------------------------------------------------------


@needs_harness
def test_the_adapter_answers_as_the_harness_own_engine(shipped_model: Path, tmp_path: Path) -> None:
    """Same weights: same greedy texts, log-likelihoods to float32, same windows over long texts."""
    from lm_eval.models.huggingface import HFLM  # type: ignore[import-untyped,unused-ignore]

    from spade_evals.harness.loop import loop_thread
    from spade_evals.harness.model import ServedLM
    from spade_evals.harness.responses import ResponseLog

    prompts = ["Guess a number between 1 and 50.", "hello  there ", "\\boxed{", " ".join(WORDS * 12)]
    texts = [request("generate_until", p, {"until": ["9", "\n"], "max_gen_toks": 20}) for p in prompts]
    pairs = [request("loglikelihood", p, c) for p in (*prompts, "") for c in (" yes", " \\boxed{7}")]
    whole = [
        request("loglikelihood_rolling", " ".join(WORDS[i % 18] for i in range(n))) for n in (2, 90, 300)
    ]
    theirs = HFLM(
        pretrained=str(shipped_model), device="cpu", dtype="float32", batch_size=4, max_length=CONTEXT
    )
    pairs.append(request("loglikelihood", *likely(theirs, prompts)))
    serving = ServingConfig(device="cpu", context_length=CONTEXT, max_rows=3)
    with loop_thread() as wait, ResponseLog(tmp_path / "r.jsonl", ["x"]) as log:
        chat = wait(open_chat(str(shipped_model), serving))
        ours = ServedLM(chat, wait, log)
        assert ours.generate_until(texts) == theirs.generate_until(texts, disable_tqdm=True)
        found, expected = ours.loglikelihood(pairs), theirs.loglikelihood(pairs, disable_tqdm=True)
        assert [pair[0] for pair in found] == pytest.approx([pair[0] for pair in expected], abs=2e-3)
        assert [pair[1] for pair in found] == [pair[1] for pair in expected]
        assert ours.loglikelihood([request("loglikelihood", prompts[0], "")]) == [(0.0, True)]
        assert found[-1][1] is True and not all(pair[1] for pair in found)
        assert ours.loglikelihood_rolling(whole) == pytest.approx(
            theirs.loglikelihood_rolling(whole, disable_tqdm=True), rel=1e-5
        )
        assert ours.prompts_cut == 3  # the long prompt, once as text and twice under a score
        wait(chat.policy.close())


def likely(model: Any, prompts: list[str]) -> tuple[str, str]:
    """A prompt and what the model says next, of those whose tokens are the same when they are read again."""
    for prompt in [f"{text}{end}" for text in prompts for end in ("", " ", ".", "\n")]:
        said = model.generate_until(
            [request("generate_until", prompt, {"max_gen_toks": 1})], disable_tqdm=True
        )
        before, after = model.tok_encode(prompt), model.tok_encode(prompt + said[0])
        if said[0] and prompt == prompt.rstrip() and len(after) == len(before) + 1 and after[:-1] == before:
            return prompt, said[0]
    raise AssertionError("no prompt of these will do")


def request(kind: str, *arguments: Any) -> Any:
    from lm_eval.api.instance import Instance  # type: ignore[import-untyped,unused-ignore]

    return Instance(kind, {}, arguments, 0, metadata=("t", 0, 1))


# --- through the command line ----------------------------------------------------------------------------


@needs_harness
def test_a_run_is_a_result_like_any_other(
    shipped_model: Path, tasks: Path, tmp_path: Path, capsys: Capture
) -> None:
    out = tmp_path / "a"
    assert evaluate(tasks, "t_all,t_last,t_text", out, "embedded", "--json") == 0
    said = json.loads(capsys.readouterr().out)
    tree = result(out, "t_all-t_last-t_text")
    assert tree["result"]["score"] == said["result"]["score"]
    theirs = tree["harness"]["results"]
    for task, metric in (("t_sums", "exact_match,boxed"), ("t_choice", "acc,none"), ("t_last", "acc,none")):
        rows = lines(out / f"lm-eval-t_all-t_last-t_text/{task}.jsonl")
        own = next(t for t in said["tasks"] if t["name"] == task)
        assert len(rows) == own["score"]["all"]["items"] == (3 if task == "t_last" else 6)
        assert own["score"]["all"]["mean"] == pytest.approx(theirs[task][metric])
        assert sum(row["outcome"]["value"] for row in rows) / len(rows) == pytest.approx(theirs[task][metric])
    # A perplexity belongs to the whole set: it is shown, and no score is made of it.
    assert next(t for t in said["tasks"] if t["name"] == "t_text")["score"] is None
    assert tree["result"]["score"][0] is None
    assert math.isfinite(theirs["t_text"]["word_perplexity,none"])
    texts = lines(out / "lm-eval-t_all-t_last-t_text/t_sums.jsonl")
    assert texts[0]["prompt"] == "Add 0 and 1." and texts[0]["expected"] == "1" and texts[0]["tokens"] > 0
    choices = lines(out / "lm-eval-t_all-t_last-t_text/t_choice.jsonl")
    assert choices[0]["text"].count("\n") == 2 and choices[0]["extracted"] in ("yes", "no", "a lamp")
    page = (out / "lm-eval-t_all-t_last-t_text/index.html").read_text(encoding="utf-8")
    assert "Add 0 and 1." in page and 'data-task="t_choice"' in page


@needs_harness
def test_what_was_answered_is_not_asked_again_and_results_compare(
    shipped_model: Path, tasks: Path, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    from spade.serving.local import LocalPolicy

    assert evaluate(tasks, "t_sums,t_choice", tmp_path / "a") == 0
    folder = tmp_path / "a/lm-eval-t_sums-t_choice"
    before = (folder / "responses.jsonl").read_bytes()
    first = result(tmp_path / "a", "t_sums-t_choice")

    async def never(*_: Any, **__: Any) -> list[list[Completion]]:
        raise AssertionError("asked again")

    monkeypatch.setattr(LocalPolicy, "generate", never)
    monkeypatch.setattr(LocalPolicy, "score", never)
    assert evaluate(tasks, "t_sums,t_choice", tmp_path / "a") == 0
    assert (folder / "responses.jsonl").read_bytes() == before
    again = result(tmp_path / "a", "t_sums-t_choice")
    assert again["result"] == first["result"] and again["fingerprint"] == first["fingerprint"]
    assert load(tmp_path / "a").suite == "lm-eval:t_sums,t_choice"
    assert main.main(["compare", str(tmp_path / "a"), f"same={tmp_path / 'a'}", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out.partition("{")[2].join(["{", ""]))["comparisons"]
    assert {row["difference"] for row in rows} == {0.0}


@needs_harness
def test_a_run_that_ends_in_the_middle_is_continued(
    shipped_model: Path, tasks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from spade_evals.harness.responses import Response, ResponseLog

    whole, parts = tmp_path / "whole", tmp_path / "parts"
    small = "serving.max_rows=4"
    assert evaluate(tasks, "t_sums,t_choice", whole, "embedded", small) == 0

    class Stopped(BaseException):
        pass

    def add(self: ResponseLog, response: Response, plainly: Any = ResponseLog.add) -> None:
        if len(self.known) == 6:  # in the middle of a batch
            raise Stopped
        plainly(self, response)

    with monkeypatch.context() as patch:
        patch.setattr(ResponseLog, "add", add)
        with pytest.raises(Stopped):
            evaluate(tasks, "t_sums,t_choice", parts, "embedded", small)
    name = "lm-eval-t_sums-t_choice"
    assert len(lines(parts / name / "responses.jsonl")) == 6
    with (parts / name / "responses.jsonl").open("a") as file:
        file.write('{"key": "torn')
    assert evaluate(tasks, "t_sums,t_choice", parts, "embedded", small) == 0
    kept = [sorted(lines(out / name / "responses.jsonl"), key=str) for out in (whole, parts)]
    assert kept[0] == kept[1] and len(kept[0]) == 6 + 18
    assert result(whole, "t_sums-t_choice")["result"] == result(parts, "t_sums-t_choice")["result"]


@needs_harness
def test_with_a_chat_template_conversations_go_through_the_renderer(
    shipped_model: Path, tasks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from spade.serving.local import LocalPolicy
    from spade.serving.render import Renderer

    asked: list[Any] = []

    async def generate(
        self: LocalPolicy, prompts: Any, params: Any, n: int = 1, do: Any = LocalPolicy.generate
    ) -> Any:
        asked.extend(prompts)
        return await do(self, prompts, params, n)

    async def score(
        self: LocalPolicy, prompts: Any, completions: Any, top: int = 0, do: Any = LocalPolicy.score
    ) -> Any:
        asked.extend(prompts)
        return await do(self, prompts, completions, top)

    monkeypatch.setattr(LocalPolicy, "generate", generate)
    monkeypatch.setattr(LocalPolicy, "score", score)
    assert evaluate(tasks, "t_sums,t_choice", tmp_path / "a", "embedded", "--apply-chat-template") == 0
    renderer = Renderer.from_folder(shipped_model)
    assert renderer.start([Message("user", "Add 0 and 1.")]) in asked
    # One example, as turns of the conversation.
    rows = lines(tmp_path / "a/lm-eval-t_sums-t_choice/t_choice.jsonl")
    assert rows[0]["prompt"].startswith("[user] Is ") and "[assistant] " in rows[0]["prompt"]
    plain = tmp_path / "b"
    assert evaluate(tasks, "t_sums,t_choice", plain) == 0
    prints = [result(out, "t_sums-t_choice")["fingerprint"] for out in (tmp_path / "a", plain)]
    assert prints[0] != prints[1]


@needs_harness
def test_scripted_policies_and_what_they_cannot(tasks: Path, tmp_path: Path, capsys: Capture) -> None:
    constant = "scripted:constant:\\boxed{3}"
    assert evaluate(tasks, "t_sums", tmp_path / "a", constant, "--apply-chat-template") == 0
    tree = result(tmp_path / "a", "t_sums")
    assert tree["result"]["score"][0] == pytest.approx(1 / 6)
    rows = lines(tmp_path / "a/lm-eval-t_sums/t_sums.jsonl")
    assert [row["verdict"] for row in rows] == ["wrong", "correct", "wrong", "wrong", "wrong", "wrong"]
    assert evaluate(tasks, "t_sums", tmp_path / "b", "scripted:null", "--apply-chat-template") == 0
    assert result(tmp_path / "b", "t_sums")["tasks"]["t_sums"]["score"]["verdicts"] == {"no_answer": 6}
    capsys.readouterr()
    for names, ref, more, words in (
        ("t_choice", "scripted:null", ["--apply-chat-template"], "which only a local checkpoint can give"),
        ("t_sums", "openai:m@http://127.0.0.1:9/v1", [], "an endpoint takes conversations and no plain text"),
        ("t_sums", "embedded", ["--include-path", str(tmp_path / "none")], "there is no folder"),
    ):
        assert evaluate(tasks, names, tmp_path / "c", ref, *more) == 2
        assert words in capsys.readouterr().err


@needs_harness
def test_settings_that_no_engine_of_ours_has_are_refused(
    tasks: Path, tmp_path: Path, capsys: Capture
) -> None:
    own = write_tasks(tmp_path / "own")
    path = own / "t_sums.yaml"
    path.write_text(path.read_text().replace('"do_sample": false', '"do_sample": false, "num_beams": 4'))
    assert evaluate(own, "t_sums", tmp_path / "a", "scripted:null", "--apply-chat-template") == 2
    assert "t_sums asks for num_beams=4, which the engines of SPADE do not have" in capsys.readouterr().err
    path.write_text(path.read_text().replace('"num_beams": 4', '"num_beams": 1'))
    assert evaluate(own, "t_sums", tmp_path / "a", "scripted:null", "--apply-chat-template") == 0
    (own / "t_sums.json").unlink()
    capsys.readouterr()
    assert evaluate(own, "t_sums", tmp_path / "a", "scripted:null", "--apply-chat-template") == 2
    assert "the harness cannot load t_sums" in capsys.readouterr().err


@needs_harness
def test_unknown_tasks_and_unsafe_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from lm_eval import tasks as theirs

    from spade_evals.harness.loading import load_tasks

    class Task:
        task_name = "humaneval"
        UNSAFE_CODE = True

    class Manager:
        all_tasks = ("gsm8k", "humaneval")

        def __init__(self, **_: Any) -> None:
            pass

        def load(self, names: list[str]) -> dict[str, Any]:
            return {"tasks": {"humaneval": Task()}}

    monkeypatch.setattr(theirs, "TaskManager", Manager)  # its own list takes long to read
    with pytest.raises(InputError, match="no task 'gsm8'; did you mean 'gsm8k'"):
        load_tasks("lm-eval:gsm8", None)
    with pytest.raises(InputError, match="names no task"):
        load_tasks("lm-eval:", None)
    with pytest.raises(InputError, match="humaneval runs a model's code outside of any sandbox"):
        load_tasks("lm-eval:humaneval", None)


# --- the other way: the harness' own client against `spade serve` ------------------------------------------


@pytest.fixture(scope="module")
def served(shipped_model: Path) -> Iterator[str]:
    """Address of a server with the embedded model."""
    command = f"serve --ckpt {shipped_model} --name embedded --port 0 --json serving.device=cpu"
    argv = [sys.executable, "-m", "spade.cli.main", *command.split()]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        said = ""
        while not said.endswith("}\n") and (line := child.stdout.readline()):
            said += line
        yield json.loads(said)["url"]
        child.send_signal(signal.SIGTERM)


@needs_harness
def test_the_harness_own_client_gets_the_same_from_our_server(
    shipped_model: Path, tasks: Path, tmp_path: Path, served: str
) -> None:
    """Texts, log-likelihoods and figures over HTTP equal those of the adapter."""
    for package in ("aiohttp", "tenacity", "requests"):
        pytest.importorskip(package, reason="NOT RUN: needs lm-eval[api]")
    from lm_eval.api.registry import get_model  # type: ignore[import-untyped,unused-ignore]
    from lm_eval.evaluator import simple_evaluate  # type: ignore[import-untyped,unused-ignore]
    from lm_eval.tasks import TaskManager  # type: ignore[import-untyped,unused-ignore]

    manager = TaskManager(include_path=str(tasks), include_defaults=False)
    url = served.rstrip("/").removesuffix("/v1") + "/v1"
    plain = get_model("local-completions")(
        model="embedded", base_url=f"{url}/completions", tokenizer=str(shipped_model), batch_size=4,
        tokenizer_backend="huggingface",
    )  # fmt: skip
    theirs = simple_evaluate(plain, tasks=["t_sums", "t_choice"], task_manager=manager, bootstrap_iters=0)
    assert evaluate(tasks, "t_sums,t_choice", tmp_path / "plain") == 0
    ours = result(tmp_path / "plain", "t_sums-t_choice")["harness"]["results"]
    for task, metric in (
        ("t_sums", "exact_match,boxed"),
        ("t_choice", "acc,none"),
        ("t_choice", "acc_norm,none"),
    ):
        assert theirs["results"][task][metric] == ours[task][metric]
    rows = lines(tmp_path / "plain/lm-eval-t_sums-t_choice/t_sums.jsonl")
    assert [sample["resps"][0][0] for sample in theirs["samples"]["t_sums"]] == [row["text"] for row in rows]
    rows = lines(tmp_path / "plain/lm-eval-t_sums-t_choice/t_choice.jsonl")
    for sample, row in zip(theirs["samples"]["t_choice"], rows, strict=True):
        found = [float(line.split()[0]) for line in row["text"].splitlines()]
        assert [resps[0][0] for resps in sample["resps"]] == pytest.approx(found, abs=2e-3)

    chat = get_model("local-chat-completions")(model="embedded", base_url=f"{url}/chat/completions")
    theirs = simple_evaluate(
        chat, tasks=["t_sums"], task_manager=manager, bootstrap_iters=0, apply_chat_template=True
    )
    assert evaluate(tasks, "t_sums", tmp_path / "chat", "embedded", "--apply-chat-template") == 0
    rows = lines(tmp_path / "chat/lm-eval-t_sums/t_sums.jsonl")
    assert [sample["resps"][0][0] for sample in theirs["samples"]["t_sums"]] == [row["text"] for row in rows]

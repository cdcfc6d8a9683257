"""The report: what it holds, that hostile text stays text, and that it works in a browser."""

from __future__ import annotations

import html
import http.client
import json
import re
import shutil
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest

from spade.cli.main import main
from spade.errors import InputError
from spade.files import append_lines, read_jsonl
from spade.report.cards import model_card, pool_card
from spade.report.charts import charts
from spade.report.html import Comparison, page
from spade.report.live import LiveServer
from spade.report.run_data import MAX_REJECTED, read_run
from tests.train.scripted_world import small_config, train

HOSTILE = "</script><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"
CHROMIUM = next((p for p in map(shutil.which, ("chromium", "chromium-browser", "google-chrome")) if p), None)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of the scripted world, with one program, play and design of an enemy."""
    _, folder, _ = train(small_config(tmp_path_factory.mktemp("run") / "whole"))
    path = Path(folder.path)
    designs = read_jsonl(path / "designs.jsonl")
    bad = {
        **designs[0],
        "accepted": False,
        "code": HOSTILE,
        "detail": HOSTILE,
        "text": HOSTILE,
        "skill": HOSTILE,
    }
    append_lines(path / "designs.jsonl", [bad] * 60)
    episodes = read_jsonl(path / "episodes.jsonl")
    append_lines(
        path / "episodes.jsonl", [{**episodes[0], "step": 99, "program": "f" * 64, "first": HOSTILE}]
    )
    tokens = read_jsonl(path / "tokens.jsonl")
    streams = [[HOSTILE, [[HOSTILE, -0.5], ["&amp;", None]]]]
    enemy = {**tokens[0], "step": 99, "program": "f" * 64, "streams": streams}
    append_lines(
        path / "tokens.jsonl", [{**enemy, "seed": episodes[0]["seed"], "hinted": episodes[0]["hinted"]}]
    )
    return path


def test_tokens_are_kept_with_what_they_were_trained_with(run: Path) -> None:
    rows = [row for row in read_jsonl(run / "tokens.jsonl") if row["step"] < 99]
    episodes = {
        (e["step"], e["program"], e["seed"], e["hinted"]): e for e in read_jsonl(run / "episodes.jsonl")
    }
    assert {row["step"] for row in rows} == {1, 2, 3, 4, 5, 6}
    assert any(row["hinted"] for row in rows)
    for row in rows:
        sampled = [piece for _, pieces in row["streams"] for piece in pieces if piece[1] is not None]
        assert len(sampled) == episodes[row["step"], row["program"], row["seed"], row["hinted"]]["tokens"]
        assert all(logprob <= 0 for _, logprob in sampled)
    assert any(row["advantage"] is not None for row in rows if not row["hinted"])
    assert all(row["advantage"] is None for row in rows if row["hinted"])  # hints.train is false there


def test_what_a_run_holds(run: Path) -> None:
    data = read_run(run)
    accepted = {d["program"] for d in read_jsonl(run / "designs.jsonl") if d["accepted"]}
    assert {p["id"] for p in data.programs} == accepted
    assert all(p["code"] and p["stages"] for p in data.programs)
    assert any(p["history"] for p in data.programs)
    pairs = [pair for pair in data.pairs if len(pair["arms"]) == 2]
    assert pairs and all({arm["hinted"] for arm in pair["arms"]} == {True, False} for pair in pairs)
    assert len({arm["seed"] for arm in pairs[0]["arms"]}) == 1
    hostile = next(r for r in data.rejected if r["code"] == HOSTILE)
    assert (hostile["count"], len(hostile["designs"])) == (60, 20)
    assert len(hostile["designs"]) <= MAX_REJECTED
    assert data.left_out["rejected designs"] == 40
    assert data.overview["steps"] == 6


def test_a_run_without_tokens_shows_its_first_pairs(run: Path, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "old")
    (tmp_path / "old" / "tokens.jsonl").unlink()
    data = read_run(tmp_path / "old")
    assert {pair["step"] for pair in data.pairs} == {1, 2, 3, 4, 5, 6, 99}
    assert all(arm["streams"] is None for pair in data.pairs for arm in pair["arms"])
    (tmp_path / "old" / "run.json").unlink()
    with pytest.raises(InputError, match="run record"):
        read_run(tmp_path / "old")


def test_hostile_text_is_data(run: Path) -> None:
    text = page([read_run(run, {"x": HOSTILE})], Comparison([(HOSTILE, [HOSTILE], [[HOSTILE]])], [HOSTILE]))
    assert "<script>document.title" not in text
    assert "<img" not in text
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert found is not None
    data = json.loads(found[1])
    assert any(r["code"] == HOSTILE for r in data[0]["rejected"])
    assert "http://" not in text.replace("http://www.w3.org", "").replace("http://purl.org", "")
    assert "https://" not in text


def test_charts_show_what_was_measured_and_repeat(run: Path) -> None:
    rows = read_jsonl(run / "metrics.jsonl")
    drawn = charts(rows)
    assert {"Return in training", "Regret (band: one standard error)", "Designs accepted"} <= {
        t for t, _ in drawn
    }
    assert charts(rows) == drawn
    assert charts([]) == []
    assert all(svg.startswith("<svg") and "<script" not in svg for _, svg in drawn)


def test_cards_state_the_run(run: Path) -> None:
    data = read_run(run)
    card = model_card(data, Comparison([("Scores", ["a|b"], [["<x>"]])], ["it is **better**"]))
    for words in (data.record.digest, "seed", "## Limits", "a\\|b", "&lt;x&gt;", "base_model: "):
        assert words in card
    assert "Not evaluated" in model_card(data, Comparison(missing="Not evaluated yet."))
    assert f"| {len(data.programs)} |" in pool_card(data)


def test_the_verb_writes_pages_and_cards(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", str(run), "-o", str(tmp_path / "r.html")]) == 0
    assert "spade eval --suite heldout" in (tmp_path / "r.html").read_text()
    assert main(["report", str(run), "--card", "-o", str(tmp_path / "cards"), "--json"]) == 0
    capsys.readouterr()
    assert sorted(p.name for p in (tmp_path / "cards").iterdir()) == ["MODEL_CARD.md", "POOL_CARD.md"]
    assert main(["report", str(tmp_path)]) == 2
    assert "run record" in capsys.readouterr().err


def test_the_live_page_follows_the_run_and_is_this_machines_alone(run: Path) -> None:
    with LiveServer(0, [run], lambda version: f"page of {version}") as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        port = server.server_address[1]

        def get(path: str, host: str = "127.0.0.1") -> tuple[int, str]:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
            connection.request("GET", path, headers={"Host": f"{host}:{port}"})
            answer = connection.getresponse()
            return answer.status, answer.read().decode()

        status, before = get("/version")
        assert (status, get("/")[1]) == (200, f"page of {before}")
        append_lines(run / "metrics.jsonl", [{"step": 7}])
        assert get("/version")[1] != before
        assert get("/run.json")[0] == 404
        assert get("/", host="evil.example")[0] == 403
        with pytest.raises(InputError, match="choose another --port"):
            LiveServer(port, [run], str)
        server.shutdown()


PROBE = """
<script>
window.addEventListener("load", () => {
  const out = {errors: window.problems, title: document.title};
  const set = (id, value) => {
    const node = document.getElementById(id);
    node.value = value;
    node.dispatchEvent(new Event("input"));
  };
  const open = (root) => {
    for (const box of root.querySelectorAll("details")) {
      box.open = true;
      box.dispatchEvent(new Event("toggle"));
    }
  };
  const visible = [...document.querySelectorAll("[data-run]")].filter((node) => node.offsetParent !== null);
  out.runs = [...new Set(visible.map((node) => node.dataset.run))];
  out.all = document.getElementById("gallery").childElementCount;
  set("word", "no program says this");
  out.none = document.getElementById("gallery").childElementCount;
  set("word", "");
  set("order", "regret");
  out.again = document.getElementById("gallery").childElementCount;
  open(document.getElementById("gallery"));
  out.code = document.querySelectorAll("#gallery .k").length;
  open(document.getElementById("plays")); open(document.getElementById("plays"));
  out.sides = [...document.querySelectorAll("#plays .two")].map((two) => two.childElementCount);
  out.tokens = document.querySelectorAll("#plays .token[title]").length;
  open(document.getElementById("rejected")); open(document.getElementById("rejected"));
  out.hostile = document.getElementById("rejected").textContent.includes("<img src=x onerror");
  out.images = document.querySelectorAll("img").length;
  const edge = window.innerWidth + 1;
  const outside = (node) => node.getBoundingClientRect().right > edge && !node.closest(".wide, svg");
  const found = [...document.body.querySelectorAll("*")].filter(outside);
  out.outside = found.map((node) => node.outerHTML.slice(0, 200));
  out.wide = document.documentElement.scrollWidth - window.innerWidth;
  out.title = document.title;
  const pre = document.createElement("pre");
  pre.id = "probe";
  pre.textContent = JSON.stringify(out);
  document.body.append(pre);
});
</script>
"""


def browse(path: Path, *options: str) -> tuple[dict[str, Any], str]:
    """What the probe saw in a page opened from disk, and what the browser logged."""
    assert CHROMIUM is not None
    text = path.read_text()
    catcher = (
        "<script>window.problems = []; window.onerror = (m) => window.problems.push(String(m));</script>"
    )
    place = path.with_name("probed.html")
    place.write_text(text.replace("<style>", catcher + "<style>", 1).replace("</html>", PROBE + "</html>"))
    command = [
        CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr",
        "--virtual-time-budget=5000", f"--user-data-dir={path.parent / 'profile'}", *options,
        "--dump-dom", place.as_uri(),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    found = re.search(r'<pre id="probe">(.*?)</pre>', done.stdout, re.DOTALL)
    assert found is not None, done.stderr[-2000:]
    return json.loads(html.unescape(found[1])), done.stderr


@pytest.mark.skipif(CHROMIUM is None, reason="NO BROWSER TEST: no chromium on the PATH")
@pytest.mark.parametrize("size", ["1280,900", "390,844"])
def test_the_page_works_in_a_browser(run: Path, tmp_path: Path, size: str) -> None:
    other = shutil.copytree(run, tmp_path / "other")
    assert main(["report", str(run), str(other), "-o", str(tmp_path / "r.html")]) == 0
    seen, log = browse(tmp_path / "r.html", f"--window-size={size}")
    assert seen["errors"] == []
    assert "CONSOLE" not in log, log
    assert "owned" not in seen["title"]
    assert seen["runs"] == ["0"]  # the other run waits behind the menu
    assert seen["all"] == seen["again"] > 0
    assert seen["none"] == 0
    assert seen["code"] > 0
    assert 2 in seen["sides"]
    assert set(seen["sides"]) <= {1, 2}
    assert seen["tokens"] > 0
    assert seen["hostile"] is True
    assert seen["images"] == 0
    assert seen["outside"] == []
    assert seen["wide"] <= 0

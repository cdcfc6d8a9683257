"use strict";
// Everything a model wrote reaches the page as a text node; nothing is ever parsed as markup.
const DATA = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);

function el(tag, className, ...children) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  for (const child of children) node.append(child);
  return node;
}
const number = (value, digits = 3) => (value === null || value === undefined ? "–" : Number(value).toFixed(digits));

const PYTHON = /(#[^\n]*)|("""[\s\S]*?"""|'''[\s\S]*?'''|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')|\b(and|as|assert|break|class|continue|def|del|elif|else|except|False|finally|for|from|if|import|in|is|lambda|None|nonlocal|not|or|pass|raise|return|self|True|try|while|with|yield)\b|\b(\d[\d_.]*)\b/g;
function code(text) {
  const pre = el("pre");
  let at = 0;
  for (const match of text.matchAll(PYTHON)) {
    pre.append(text.slice(at, match.index), el("span", match[1] ? "c" : match[2] ? "s" : match[3] ? "k" : "n", match[0]));
    at = match.index + match[0].length;
  }
  pre.append(text.slice(at));
  return pre;
}
function table(head, rows) {
  const body = el("table", "", el("tr", "", ...head.map((text) => el("th", "", text))));
  for (const row of rows) body.append(el("tr", "", ...row.map((cell) => (cell instanceof Node ? el("td", "", cell) : el("td", "", String(cell))))));
  return el("div", "wide", body);
}
function lazily(title, build) {
  const box = el("details", "", el("summary", "", title));
  box.addEventListener("toggle", () => { if (box.open && box.childElementCount === 1) box.append(...build()); });
  return box;
}

// --- environment gallery -----------------------------------------------------------------------------
function gallery(run) {
  const chosen = byId("skill").value, word = byId("word").value.toLowerCase(), order = byId("order").value;
  const rows = run.programs.filter((p) => (!chosen || p.skill === chosen) && (!word || `${p.code}\n${p.hint || ""}\n${p.document}\n${p.id}`.toLowerCase().includes(word)));
  if (order !== "step") rows.sort((a, b) => (b[order] ?? -9) - (a[order] ?? -9));
  byId("gallery").replaceChildren(...rows.map(program));
  byId("gallery-count").textContent = `${rows.length} of ${run.programs.length} programs`;
}
function program(p) {
  const title = `${p.id.slice(0, 10)} · step ${p.step} · ${p.skill || "no skill"} · ${p.type} · ${p.plays} plays · return ${number(p.return)} · regret ${number(p.regret)}`;
  return lazily(title, () => {
    const out = [el("h3", "", "Program"), code(p.code)];
    if (p.hint) out.push(el("h3", "", "Hint"), el("pre", "", p.hint));
    if (p.document) out.push(el("h3", "", "Document it came from"), el("pre", "", p.document));
    if (p.history.length) {
      out.push(el("h3", "", "Plays"), table(["step", "plays", "return", "± SE", "regret", "± SE", "turns"],
        p.history.map((h) => [h.step, h.plays, number(h.mean_return), number(h.return_stderr), number(h.regret), number(h.regret_stderr), number(h.turns, 1)])));
      if (p.history.filter((h) => h.regret !== null && h.regret !== undefined).length > 1) out.push(spark(p.history));
    }
    out.push(el("h3", "", `Verdict (battery ${p.battery ?? "–"})`), table(["stage", "", "code", "detail"],
      p.stages.map(([stage, ok, reason, detail]) => [stage, el("span", ok ? "ok" : "bad", ok ? "passed" : "failed"), reason, detail])));
    return out;
  });
}
function spark(history) {
  const points = history.filter((h) => h.regret !== null && h.regret !== undefined);
  const space = "http://www.w3.org/2000/svg", svg = document.createElementNS(space, "svg"), line = document.createElementNS(space, "polyline");
  const low = Math.min(0, ...points.map((h) => h.regret)), high = Math.max(0.01, ...points.map((h) => h.regret));
  line.setAttribute("points", points.map((h, k) => `${(k / (points.length - 1)) * 200},${40 - ((h.regret - low) / (high - low)) * 38}`).join(" "));
  line.setAttribute("fill", "none"); line.setAttribute("stroke", "currentColor");
  svg.setAttribute("viewBox", "0 0 200 42"); svg.setAttribute("width", "200"); svg.setAttribute("role", "img"); svg.setAttribute("aria-label", "regret over time");
  svg.append(line);
  return svg;
}

// --- plays side by side ------------------------------------------------------------------------------
function plays(run) {
  byId("plays").replaceChildren(...run.pairs.map((pair) => {
    const values = pair.arms.map((arm) => `${arm.hinted ? "hinted" : "plain"} ${number(arm.value, 2)}`).join(", ");
    return lazily(`step ${pair.step} · ${pair.program.slice(0, 10)} · ${values}`, () => [el("div", "two", ...pair.arms.map(arm))]);
  }));
}
function arm(play) {
  const trained = play.advantage !== null && play.advantage !== undefined;
  const how = !play.streams ? "tokens not kept" : trained ? `trained on, advantage ${number(play.advantage)}` : "not trained on";
  const box = el("div", "arm", el("h3", "", play.hinted ? "with the hint" : "plain"),
    el("p", "note", `seed ${play.seed} · return ${number(play.value, 2)} · ${play.end} · ${play.tokens} sampled tokens · ${how}`));
  if (play.fault) box.append(el("p", "bad", play.fault));
  if (!play.streams) {
    box.append(el("pre", "", play.first));
    for (const [action, observation] of play.turns) box.append(el("pre", "said", action), el("pre", "", observation));
    return box;
  }
  for (const [prompt, tokens] of play.streams) {
    const pre = el("pre", "");
    for (const [text, logprob] of tokens) {
      const piece = el("span", logprob === null ? "" : trained ? "token trained" : "token", text);
      if (logprob !== null) {
        piece.style.background = `rgb(var(--mark) / ${(0.08 + 0.5 * (1 - Math.exp(logprob))).toFixed(3)})`;
        piece.title = `log-probability ${logprob.toFixed(3)}, probability ${Math.exp(logprob).toFixed(3)}`;
      }
      pre.append(piece);
    }
    box.append(lazily("prompt", () => [el("pre", "", prompt)]), pre);
  }
  if (play.left_out) box.append(el("p", "note", `${play.left_out} more tokens are not shown`));
  return box;
}

// --- rejected designs --------------------------------------------------------------------------------
function rejected(run) {
  byId("rejected").replaceChildren(...run.rejected.map((reason) => lazily(`${reason.code}: ${reason.count}`, () => reason.designs.map((design) =>
    lazily(`step ${design.step} · ${design.skill} · ${design.detail || "no detail"}`, () => [code(design.text)])))));
}

function show() {
  const place = Number(byId("run").value), run = DATA[place];
  for (const part of document.querySelectorAll("[data-run]")) part.hidden = Number(part.dataset.run) !== place;
  const skills = [...new Set(run.programs.map((p) => p.skill).filter(Boolean))].sort();
  const all = el("option", "", "all skills"); all.value = "";
  byId("skill").replaceChildren(all, ...skills.map((name) => el("option", "", name)));
  gallery(run); plays(run); rejected(run);
  byId("left-out").textContent = Object.entries(run.left_out).filter(([, n]) => n).map(([name, n]) => `${n} more ${name}`).join(", ");
  byId("left-out").hidden = !byId("left-out").textContent;
}
byId("run").addEventListener("change", show);
for (const id of ["skill", "word", "order"]) byId(id).addEventListener("input", () => gallery(DATA[Number(byId("run").value)]));
show();

"""What a step leaves behind: rows of the run's files, metrics, samples for the learner, and memories."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from spade.design.admission import DUPLICATE
from spade.design.attempts import accepted
from spade.design.hints import HintDraft
from spade.design.variety import likeness, structure
from spade.envs.diversity import vendi_score
from spade.envs.memory import Record
from spade.envs.pool import PlayStats
from spade.errors import FaultCode
from spade.train.ledger import Ledger
from spade.train.metrics import group_metrics, length_metrics, mean_or_none, skill_metrics
from spade.train.source import faults, returns
from spade.types import Credit, Design, EnvProgram, Episode, Fault, Group, Sample, Scored


def samples_of(credits: Sequence[Credit]) -> list[Sample]:
    """Credits as neutral training records; those without a sampled token are left out."""
    return [
        Sample(
            prompt_ids=c.trajectory.prompt_ids,
            completion_ids=c.trajectory.completion_ids,
            mask=c.trajectory.mask,
            logprobs=c.trajectory.logprobs,
            advantage=c.advantage,
            role=c.trajectory.role,
            weight=c.weight,
            group=c.group,
            episode=c.episode,
        )
        for c in credits
        if c.trajectory.sampled_tokens
    ]


def sample_metrics(samples: Sequence[Sample]) -> dict[str, float]:
    """Samples of a step by role, their advantages, and the Designer's part of the absolute ones."""
    out: dict[str, float] = {}
    mass: dict[str, float] = {}
    for role in ("agent", "designer"):
        mine = [s for s in samples if s.role == role]
        out[f"samples/{role}"] = float(len(mine))
        mass[role] = sum(abs(s.advantage) * s.weight for s in mine)
        if mine:
            values = [s.advantage for s in mine]
            out[f"advantage/{role}_mean"] = float(np.mean(values))
            out[f"advantage/{role}_std"] = float(np.std(values))
    if mass["designer"]:
        out["advantage/designer_share"] = mass["designer"] / sum(mass.values())
    return out


def episode_rows(step: int, groups: Sequence[Group]) -> list[dict[str, Any]]:
    """One compact line per play."""
    return [_episode_row(step, e) for g in groups for e in (*g.plain, *g.hinted)]


def _episode_row(step: int, episode: Episode) -> dict[str, Any]:
    outcome = episode.outcome
    row: dict[str, Any] = {
        "step": step,
        "program": episode.instance.program_id,
        "seed": episode.instance.seed,
        "hinted": episode.instance.hint is not None,
        "first": episode.first_observation,
        "actions": list(episode.actions),
        "observations": [t.observation for t in episode.turns],
        "value": outcome.value if isinstance(outcome, Scored) else None,
        "end": episode.end.value,
        "tokens": episode.sampled_tokens,
    }
    if not isinstance(outcome, Scored):
        row["fault"] = f"{outcome.kind.value}: {outcome.where}: {outcome.detail}"
    return row


def play_metrics(
    step: int,
    groups: Sequence[Group],
    source: Mapping[str, float],
    ledger: Ledger,
) -> dict[str, Any]:
    """What the row of `metrics.jsonl` says of a generated step; all of it repeats."""
    plain = [returns(g.plain) for g in groups]
    hinted = [r for g in groups for r in returns(g.hinted)]
    flat = [r for group in plain for r in group]
    plays = [e for g in groups for e in (*g.plain, *g.hinted)]
    lost = faults(plays)
    kinds = Counter(f.kind.value for f in lost)
    ends = Counter(e.end.value for e in plays)
    row: dict[str, Any] = {
        "step": step,
        "tokens_total": ledger.total_tokens,
        "programs": len(groups),
        "plays": len(plays),
        "return_plain": mean_or_none(flat),
        "return_hinted": mean_or_none(hinted),
        "win_rate/plain": mean_or_none([float(r > 0) for r in flat]),
        "win_rate/hinted": mean_or_none([float(r > 0) for r in hinted]),
        "informative_groups": mean_or_none([float(len(set(r)) > 1) for r in plain if r]),
        "turns": mean_or_none([float(len(e.turns)) for e in plays]),
        "timeouts": mean_or_none([0.0] * (len(plays) - len(lost)) + [float(out_of_time(f)) for f in lost]),
        "malformed": mean_or_none([float(t.malformed) for e in plays for t in e.turns]),
        **group_metrics(groups),
        **skill_metrics(groups),
        **length_metrics(groups),
        **source,
        **{f"faults/{kind}": n for kind, n in sorted(kinds.items())},
        **{f"ends/{end}": n for end, n in sorted(ends.items())},
        **{f"tokens/{name}": n for name, n in ledger.tokens.items()},
    }
    return {k: v for k, v in row.items() if v is not None}


def out_of_time(fault: Fault) -> bool:
    """Whether a play was lost because the program took too long for one call."""
    return fault.detail.startswith((FaultCode.CPU_LIMIT, FaultCode.WALL_LIMIT))


def design_row(step: int, number: int, design: Design, hints: dict[str, HintDraft]) -> dict[str, Any]:
    """One line of `designs.jsonl`: everything about an attempt but its tokens."""
    verdict, program = design.verdict, design.program
    failed = verdict.failed if verdict is not None else None
    hint = hints.get(program.id) if program is not None and accepted(design) else None
    return {
        "step": step + 1,
        "number": number,
        "brief": design.brief.id,
        "skill": design.brief.skill,
        "domain": design.brief.domain,
        "variant": design.brief.variant,
        "document": design.brief.document_id,
        "exemplars": list(design.brief.exemplar_ids),
        "program": program.id if program is not None else None,
        "accepted": accepted(design),
        "code": verdict.code if verdict is not None else "unvalidated",
        "detail": failed.detail if failed is not None else "",
        "facts": dict(verdict.facts) if verdict is not None else {},
        "repaired": design.first_verdict.code if design.first_verdict is not None else None,
        "novelty": design.novelty,
        "guide": design.guide,
        "tokens": design.sampled_tokens,
        "text": design.text,
        "hint": hint.text if hint is not None else None,
        "hint_code": hint.check.code if hint is not None else None,
    }


def design_metrics(designs: Sequence[Design], drafts: Sequence[HintDraft]) -> dict[str, float]:
    """Counts of one design step."""
    codes = Counter(d.verdict.code for d in designs if d.verdict is not None)
    good = codes["accepted"]
    turns = [d.verdict.facts.get("oracle_turns", 0.0) for d in designs if accepted(d) and d.verdict]
    codes_made = [d.program.code for d in designs if accepted(d) and d.program is not None]
    made = [structure(code) for code in codes_made]
    out = {
        "designs": float(len(designs)),
        "accept_rate": good / max(1, len(designs)),
        "valid_rate": (good + codes[DUPLICATE]) / max(1, len(designs)),
        "distinct_designs": float(good),
        **{f"rejected/{code}": float(n) for code, n in sorted(codes.items()) if code != "accepted"},
    }
    if made:
        out |= {"structures": float(len(set(made))), "structure_share": len(set(made)) / len(made)}
        vendi = vendi_score(likeness(codes_made))
        out |= {"vendi": vendi, "vendi_share": vendi / len(made)}
    if turns:
        out["oracle_turns"] = float(np.mean(turns))
    sizes = [d.trajectory.sampled_tokens for d in designs]
    if sizes:
        out |= {"design_tokens/mean": float(np.mean(sizes)), "design_tokens/max": float(max(sizes))}
        out["design_tokens/cut_off"] = sum(d.cut_off for d in designs) / len(designs)
    if drafts:
        out["hint_words"] = float(np.mean([len((d.text or "").split()) for d in drafts]))
        out["hints_usable"] = sum(d.check.ok for d in drafts) / len(drafts)
        refused = Counter(d.check.code for d in drafts if not d.check.ok)
        out |= {f"hints_refused/{code}": float(n) for code, n in sorted(refused.items())}
    return out


def memory_record(step: int, program: EnvProgram, plain: Sequence[float], stats: PlayStats) -> Record:
    """What the environment memory keeps of a program after its first plays (`plain`: their returns)."""
    return Record(
        program_id=program.id,
        code=program.code,
        skill=program.skill,
        solve_rate=sum(r > 0 for r in plain) / len(plain),
        mean_return=stats.mean_return,
        regret=stats.regret,
        step=step,
        return_stderr=stats.return_stderr,
        regret_stderr=stats.regret_stderr,
        turns=stats.turns,
    )

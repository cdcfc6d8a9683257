"""`spade pool`: make a pool, judge it here and now, measure it, take it elsewhere and back."""

from __future__ import annotations

import argparse
import asyncio
import statistics
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spade.cli.main import add_json, emit, lazy, positive
from spade.config import Config
from spade.config_load import load_config, with_overrides
from spade.errors import InputError
from spade.machine import require_device

if TYPE_CHECKING:
    from spade.envs.pool import Pool
    from spade.types import Verdict

FORMATS = ("folder", "jsonl")
FRAMEWORKS = ("gymnasium", "verifiers", "openenv", "gem")
MASTERED, INTRACTABLE = 0.9, 0.1
"""Mean plain return above and below which a program teaches little."""


def add_pool(parser: argparse.ArgumentParser) -> None:
    """`spade pool make|validate|stats|export|import`."""
    sub = parser.add_subparsers(dest="action", required=True, metavar="make|validate|stats|export|import")
    make = sub.add_parser("make", help="sample a pool of admitted programs from a config's start model")
    make.add_argument("config", help="shipped config name or YAML file")
    make.add_argument(
        "overrides", nargs="*", default=[], metavar="key=value", help="values over the config's"
    )
    make.add_argument("--out", type=Path, required=True, help="new folder for the pool")
    make.add_argument("--size", type=positive, default=64, help="programs wanted; default 64")
    check = sub.add_parser("validate", help="judge the programs whose verdict does not hold here")
    stats = sub.add_parser("stats", help="kinds, difficulty, verdicts and variety of a pool")
    stats.add_argument(
        "--by", default="tfidf", metavar="tfidf|lsa|FOLDER", help="variety by TF-IDF, LSA-128, or an encoder"
    )
    export = sub.add_parser("export", help="write a pool for use elsewhere")
    export.add_argument("--format", choices=(*FORMATS, *FRAMEWORKS), default="jsonl", help="default jsonl")
    export.add_argument("--name", help="package name, for the formats of other frameworks; default by --out")
    bring = sub.add_parser("import", help="make a pool of programs from elsewhere, judging each")
    bring.add_argument(
        "source", type=Path, help="folder of .py files, .jsonl file, pool, or what a pool was exported to"
    )
    for child in (check, stats, export):
        child.add_argument("pool", type=Path, help="pool folder, or a run's pool")
    for child in (export, bring):
        child.add_argument("--out", type=Path, required=True, help="new place")
    for child in (check, bring):
        child.add_argument(
            "overrides", nargs="*", default=[], metavar="key=value", help="such as validator.floor_max=0.34"
        )
    handlers = {make: _make, check: _validate, stats: _stats, export: _export, bring: _import}
    for child, handler in handlers.items():
        add_json(child)
        child.set_defaults(handler=handler)


def _make(args: argparse.Namespace) -> int:
    cfg = load_config(args.config, args.overrides)
    require_device(cfg.serving.device)
    pool = lazy("spade_baselines.fixed_pool:make_pool")(cfg, args.out, size=args.size)
    emit(args, _value(pool), _text(pool))
    return 0


def _stats(args: argparse.Namespace) -> int:
    pool = lazy("spade.envs.pool:read_pool")(args.pool)
    measured = _variety(pool, args.by)
    emit(args, _value(pool, measured), _text(pool, measured))
    return 0


def _variety(pool: Pool, by: str) -> Any:
    """Diversity of a pool as `--by` says: by words, or by the encoder in a folder."""
    from spade.envs.diversity import LSA_RANK, diversity

    codes = [program.code for program in pool.programs]
    if by in ("tfidf", "lsa"):
        return diversity(codes, rank=LSA_RANK if by == "lsa" else None)
    return diversity(codes, lazy("spade.serving.embedding:Embedder")(by))


def _export(args: argparse.Namespace) -> int:
    pool = lazy("spade.envs.pool:read_pool")(args.pool)
    if args.format in FRAMEWORKS:
        path = lazy("spade.envs.interop:export_framework")(pool, args.out, args.format, args.name)
    elif args.name is not None:
        raise InputError(f"--name belongs to the formats {', '.join(FRAMEWORKS)}; leave it out")
    else:
        path = lazy("spade.envs.pool_exchange:export_pool")(pool, args.out, args.format)
    emit(args, {"programs": len(pool.programs), "out": str(path)}, f"{len(pool.programs)} programs in {path}")
    return 0


def _validate(args: argparse.Namespace) -> int:
    pool = lazy("spade.envs.pool:read_pool")(args.pool)
    kept, refused = asyncio.run(_judged(pool, with_overrides(Config(), args.overrides)))
    emit(args, _refusals(kept, refused), _refusal_text(kept, refused))
    return 1 if refused else 0


def _import(args: argparse.Namespace) -> int:
    from spade.envs.pool import MANIFEST, write_pool

    if (args.out / MANIFEST).exists():
        raise InputError(f"{args.out} already holds a pool; choose another folder")
    found = lazy("spade.envs.pool_exchange:import_programs")(args.source)
    kept, refused = asyncio.run(_judged(found, with_overrides(Config(), args.overrides)))
    if not kept.programs:
        codes = Counter(verdict.code for verdict in refused.values())
        why = ", ".join(f"{code} {count}" for code, count in codes.most_common())
        raise InputError(f"no program of {args.source} is accepted here ({why}); see spade envs validate")
    write_pool(args.out, kept)
    emit(args, {**_refusals(kept, refused), "out": str(args.out)}, _refusal_text(kept, refused))
    return 1 if refused else 0


async def _judged(pool: Pool, cfg: Config) -> tuple[Pool, dict[str, Verdict]]:
    from spade.envs.pool import revalidate
    from spade.envs.sandbox import Sandbox

    async with await Sandbox.start(cfg.sandbox) as sandbox:
        return await revalidate(pool, sandbox, cfg.validator)


def _refusals(kept: Pool, refused: Mapping[str, Verdict]) -> dict[str, Any]:
    rows = [
        {"id": i, "code": v.code, "detail": v.failed.detail if v.failed else ""} for i, v in refused.items()
    ]
    return {"accepted": len(kept.programs), "refused": rows}


def _refusal_text(kept: Pool, refused: Mapping[str, Verdict]) -> str:
    lines = [f"{i[:12]}  {v.code}: {v.failed.detail if v.failed else ''}" for i, v in refused.items()]
    return "\n".join([*lines, f"{len(kept.programs)} accepted, {len(refused)} refused"])


def _value(pool: Pool, measured: Any = None) -> dict[str, Any]:
    from spade.design.variety import structure

    known = [pool.provenance.get(program.id) for program in pool.programs]
    means = [k.stats.mean_return for k in known if k and k.stats and k.stats.mean_return is not None]
    verdicts = Counter(k.verdict.code if k and k.verdict else "unknown" for k in known)
    kinds = Counter(structure(program.code) for program in pool.programs)
    return {
        "programs": len(pool.programs),
        "digest": pool.digest,
        "skills": dict(sorted(Counter(p.skill or "unnamed" for p in pool.programs).items())),
        "types": dict(sorted(Counter(p.game_type for p in pool.programs).items())),
        "hints": sum(p.hint is not None for p in pool.programs),
        "verdicts": dict(verdicts.most_common()),
        "difficulty": _difficulty(means),
        "structures": len(kinds),
        "largest_structure": max(kinds.values()) / len(pool.programs),
        "diversity": measured or _variety(pool, "tfidf"),
        "tokens": pool.tokens,
        "origin": pool.origin,
    }


def _difficulty(means: list[float]) -> dict[str, float]:
    """Programs with play statistics: how many, their mean plain return, and shares by regime."""
    if not means:
        return {"played": 0}
    return {
        "played": len(means),
        "mean_return": statistics.fmean(means),
        "mastered": sum(m > MASTERED for m in means) / len(means),
        "intractable": sum(m < INTRACTABLE for m in means) / len(means),
    }


def _text(pool: Pool, measured: Any = None) -> str:
    from spade.envs.diversity import TWIN

    value = _value(pool, measured)

    def listed(counts: Mapping[str, int]) -> str:
        return ", ".join(f"{name} {count}" for name, count in counts.items())

    hard, spread = value["difficulty"], value["diversity"]
    played = (
        f"mean plain return {hard['mean_return']:.3f} over {hard['played']} played, mastered "
        f"{hard['mastered']:.0%}, intractable {hard['intractable']:.0%}"
        if hard["played"]
        else "not played yet"
    )
    return "\n".join(
        [
            f"{value['programs']} programs, digest {value['digest'][:12]}",
            f"skills: {listed(value['skills'])}",
            f"types: {listed(value['types'])}; {value['hints']} with a hint",
            f"verdicts: {listed(value['verdicts'])}",
            f"difficulty: {played}",
            f"variety: {value['structures']} structures (largest {value['largest_structure']:.0%}), "
            f"effective number (Vendi) {spread.vendi:.1f}, mean cosine {spread.mean_cosine:.3f}, to the "
            f"nearest {spread.nearest_cosine:.3f}; near duplicates (cosine from {TWIN}): {spread.twins}",
            f"sampled tokens: {value['tokens']:,}",
        ]
    )

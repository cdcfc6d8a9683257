"""What a chat template does, found out by trying: for `spade doctor` and the curious."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from spade.serving.render import Renderer


@dataclass(frozen=True, slots=True)
class TemplateReport:
    """What a chat template does, for `spade doctor`.

    `canonical`: our ids equal the tokenizer's own rendering. `append_only`, `with_tools`, `thinking`: whether
    turns may be appended in plain, tool-use and thinking conversations; where not, a turn whose prompt
    rewrites what came before is a token stream of its own, for play and for training. `tools`, `tool_role`,
    `system`: what the template has a place for; the rest is written as plain text.
    """

    canonical: bool
    append_only: bool
    with_tools: bool
    thinking: bool
    tools: bool
    tool_role: bool
    system: bool
    stop_tokens: tuple[str, ...]

    @property
    def words(self) -> str:
        """One line for people."""
        streams = {"games": self.append_only, "tool use": self.with_tools, "thinking": self.thinking}
        again = [name for name, appends in streams.items() if not appends]
        absent = [n for n, has in (("tools", self.tools), ("tool results", self.tool_role)) if not has]
        return "; ".join(
            [
                "equal to the tokenizer's own rendering" if self.canonical else "DIFFERS from the tokenizer",
                "append-only" if not again else f"rewrites earlier turns in {', '.join(again)}",
                *([f"no place for {' and '.join(absent)} (written as text)"] if absent else []),
                f"turns end with {' '.join(self.stop_tokens)}",
            ]
        )


def check_template(model: Path | str | Renderer) -> TemplateReport:
    """Try the chat template of a checkpoint folder. Raises `InputError` when it cannot be used at all."""
    r = model if isinstance(model, Renderer) else Renderer.from_folder(model)
    names = {t.id: name for name, t in r.template.tokens.items()}
    return TemplateReport(
        canonical=r.is_canonical(),
        append_only=r.appends(),
        with_tools=r.appends(tools=True),
        thinking=r.appends(thinking=True),
        tools=r.template.tools,
        tool_role=r.template.tool_role,
        system=r.template.system,
        stop_tokens=tuple(names.get(t, str(t)) for t in r.stop_token_ids),
    )

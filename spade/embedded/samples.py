"""Supervised samples for both roles, in the chat format and with the very templates used at run time.

Kinds: a design (brief → program), a hint (program → strategy), an episode (plain or hinted, games or tool
use), and raw text. Each sample is token ids plus a mask that is 1 on the assistant's tokens.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from spade.config import TOOL_DOMAINS, VariantsConfig
from spade.design.prompts import agent_message, designer_messages, hint_messages
from spade.embedded.mechanics import Mechanic, SampledProgram, registry, sample_program, tool_registry
from spade.embedded.players import HINTED_EXPERT, PLAIN_EXPERT, play
from spade.embedded.tool_worlds import DOMAINS, TOOL_SKILLS
from spade.envs.memory import Exemplar, Record, show_exemplar
from spade.play.actions import BoxedCodec
from spade.play.toolcalls import opening
from spade.types import Message

DOCUMENT_TOKENS = 64
EXEMPLAR_TOKENS = 170
TEMPLATE = "short"
HINTED_SHARE = 0.4
MIX = {"design": 0.08, "tool_design": 0.035, "hint": 0.03, "episode": 0.675, "tool_episode": 0.18}
"""Share of samples by kind. Designs are long (document and memory first): their token share is larger."""

TOOL_HINTS = 0.25
"""Share of tool-use programs among those a hint is asked for."""

VARIANTS: dict[str, float] = VariantsConfig().model_dump()
REJECTED_SHARE = 0.15
"""Share of rejected programs among exemplars."""
REASONS = ("syntax", "unsolved", "floor_echo", "floor_words", "exception", "seed_ignored")
DIFFICULTIES = ("easy", "medium", "hard")


@dataclass(frozen=True)
class Encoded:
    """One sample: token ids and a 0/1 mask over them (1 = trained)."""

    ids: list[int]
    mask: list[int]
    kind: str


class SampleMaker:
    """Draws samples; `documents` are corpus texts, `tokenizer` the embedded model's."""

    def __init__(self, tokenizer: Any, documents: Sequence[str], seed: int) -> None:
        self.rng = random.Random(seed)
        self.least_expert = 0.0
        """Floor of the expert share: raised while the model still has to learn how skilled play goes."""
        self.tokenizer = tokenizer
        self.documents = list(documents)
        self.mechanics = {**registry(), **tool_registry()}
        self.by_topic = {m.name: [d for d in documents if fits(m, d)] for m in self.mechanics.values()}
        self.codec = BoxedCodec()
        self.roles = {
            r: tokenizer.convert_tokens_to_ids(f"<|{r}|>") for r in ("system", "user", "assistant", "tool")
        }
        self.end = tokenizer.convert_tokens_to_ids("<|end|>")

    def draw(self) -> Encoded:
        """One sample of a random kind."""
        kind = self.rng.choices(list(MIX), list(MIX.values()))[0]
        makers: dict[str, Callable[[bool], list[Message]]] = {"design": self.design, "episode": self.episode}
        if kind == "hint":
            return self.encode(self.hint(), kind)
        return self.encode(makers[kind.removeprefix("tool_")](kind.startswith("tool_")), kind)

    def encode(self, messages: Sequence[Message], kind: str) -> Encoded:
        """Tokens of a conversation; only the assistant's content and its end token are trained."""
        ids: list[int] = []
        mask: list[int] = []
        for m in messages:
            content = self.tokenizer.encode(m.content, add_special_tokens=False)
            trained = int(m.role == "assistant")
            ids += [self.roles[m.role], *content, self.end]
            mask += [0] + [trained] * (len(content) + 1)
        return Encoded(ids, mask, kind)

    def document(self, mechanic: Mechanic) -> str:
        """A corpus text, most often one that suits the mechanic, cut to the Designer's token budget."""
        fitting = self.by_topic[mechanic.name]
        text = self.rng.choice(fitting if fitting and self.rng.random() < 0.6 else self.documents)
        ids = self.tokenizer.encode(text, add_special_tokens=False)
        return str(self.tokenizer.decode(ids[:DOCUMENT_TOKENS]))

    def design(self, tools: bool) -> list[Message]:
        """Brief with zero to three memory exemplars, answered by a program in a fenced block."""
        sampled = sample_program(self.rng, tools=tools)
        skill = sampled.mechanic.skill
        if tools and self.rng.random() < 0.2:
            skill = self.rng.choice(TOOL_SKILLS)
        count = self.rng.choice((0, 0, 0, 0, 1, 1, 2, 3))
        exemplars = [self.exemplar(sampled, tools) for _ in range(count)]
        messages = designer_messages(
            self.document(sampled.mechanic),
            skill,
            "tool_use" if tools else "multi_turn",
            self.rng.choices(DIFFICULTIES, (0.2, 0.6, 0.2))[0],
            exemplars,
            TEMPLATE,
            domain=self.domain(sampled.mechanic) if tools else "",
            variant=self.rng.choices(list(VARIANTS), list(VARIANTS.values()))[0] if tools else "",
        )
        return [*messages, Message("assistant", f"```python\n{sampled.code}```")]

    def domain(self, mechanic: Mechanic) -> str:
        """The tool-use domain of a brief, most often the mechanic's own."""
        return DOMAINS[mechanic.name] if self.rng.random() < 0.7 else self.rng.choice(TOOL_DOMAINS)

    def exemplar(self, sampled: SampledProgram, tools: bool) -> Exemplar:
        """A remembered program of the same skill with made-up statistics, or now and then a rejected one."""
        rng = self.rng
        other = sample_program(rng, skill=sampled.mechanic.skill, tools=tools)
        skill = other.mechanic.skill
        if rng.random() < REJECTED_SHARE:
            code = rng.choice(REASONS)
            record = Record("", other.code, skill, None, None, None, 0, verdict=code)
        else:
            solve, regret = rng.random(), rng.uniform(-0.2, 0.6)
            turns = 1.0 + rng.random() * 4
            record = Record("", other.code, skill, solve, solve, regret, 0, 0.1, 0.1, turns)
        return show_exemplar(record, EXEMPLAR_TOKENS, self.count)

    def count(self, text: str) -> int:
        """Tokens of a text."""
        return len(self.tokenizer.encode(text, add_special_tokens=False))

    def hint(self) -> list[Message]:
        """Program source, answered by one of the mechanic's strategy hints."""
        sampled = sample_program(self.rng, tools=self.rng.random() < TOOL_HINTS)
        hint = self.rng.choice(sampled.mechanic.hints)
        return [*hint_messages(sampled.code, TEMPLATE), Message("assistant", hint)]

    def episode(self, tools: bool) -> list[Message]:
        """A scripted play; hinted ones are skilled more often."""
        sampled = sample_program(self.rng, tools=tools)
        hinted = self.rng.random() < HINTED_SHARE
        share = HINTED_EXPERT if hinted else PLAIN_EXPERT
        game = play(sampled, self.rng, max(share, self.least_expert))
        hint = self.rng.choice(sampled.mechanic.hints) if hinted else None
        if tools:
            messages = [Message("system", tool_listing(sampled.code)), opening(game.first, hint)]
        else:
            messages = [agent_message(game.first, hint, TEMPLATE)]
        for action, reply in game.moves:
            messages.append(Message("assistant", action if tools else self.codec.wrap(action)))
            messages.append(Message("tool" if tools and "<tool_call>" in action else "user", reply))
        return messages[:-1]


def tool_listing(code: str) -> str:
    """The tools as the chat template writes them: `name(arguments): description`, one a line."""
    from spade.embedded.mechanics import load

    rows = load(code).schemas()
    return "".join(
        f"{t['function']['name']}({', '.join(t['function']['parameters']['properties'])}): "
        f"{t['function']['description']}\n"
        for t in rows
    )


def fits(mechanic: Mechanic, document: str) -> bool:
    """Whether a document speaks of the mechanic's topics (two different topic words)."""
    words = set(document.lower().replace(",", " ").replace(".", " ").split())
    return sum(any(w.startswith(t) for w in words) for t in mechanic.topics) >= 2

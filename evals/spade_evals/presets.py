r"""Presets: prompt templates, samples per question, sampling and limits, as YAML files anyone can copy.

    name: mine
    prompts: {boxed: "{question}\nPut your answer in \\boxed{}."}     # by the style of a task
    defaults: {n: 4, temperature: 0.6, max_tokens: 4096}
    tasks: {aime25: {n: 32}}                                          # over the defaults, by task
    user: {ref: "openai:MODEL@URL", temperature: 0.0}                 # who plays the user in conversations

`paper`, `paper-offline` and `smoke` lie beside this module. What a preset says for a task (`Ask`) is part of
the task's protocol, so results under different presets are never compared.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from spade.errors import ConfigError
from spade.registry import suggestion
from spade.types import Message, content_id

FOLDER = Path(__file__).with_name("presets")

PLACEHOLDER = re.compile(r"\{([a-z_]+)\}")


@dataclass(frozen=True, slots=True)
class Ask:
    """How one task is asked: everything of the preset that its answers depend on."""

    n: int = 1
    """Samples per question."""
    temperature: float = 0.0
    """0 = greedy."""
    top_p: float = 1.0
    top_k: int = 0
    """0 = all tokens."""
    max_tokens: int = 2048
    """Of one answer, thoughts included."""
    thinking: bool | None = None
    """Passed to the chat template; unset means the model's own default."""
    stop: tuple[str, ...] = ()
    """The answer ends before the first of these texts. Thoughts are split off first, so they never count."""
    style: str = ""
    """Key of `prompts`; empty = the task's own style."""
    template: str = ""
    system: str = ""
    """System message; empty = none."""
    variant: str = ""
    """Which way of grading, for tasks that have several; empty = the task's first. It is part of the grader's
    name, so that stored answers are graded again under another one."""

    @property
    def sampling(self) -> dict[str, Any]:
        """What goes into the protocol besides the prompt."""
        return {k: v for k, v in asdict(self).items() if k not in LATER}

    @property
    def prompt_hash(self) -> str:
        """Of the template and the system message."""
        return content_id(f"{self.template}\0{self.system}")[:16]

    def messages(self, prompt: str | tuple[Message, ...], values: Mapping[str, str]) -> tuple[Message, ...]:
        """The conversation for one question; `values` fill the other placeholders of the template."""
        opening = (Message("system", self.system),) if self.system else ()
        if not isinstance(prompt, str):
            return (*opening, *prompt) if prompt[0].role != "system" else prompt
        return (*opening, Message("user", fill(self.template, {**values, "question": prompt})))


LATER = ("style", "template", "system", "variant")
"""Settings that enter the protocol elsewhere: by the prompt's hash, by the task, or by the grader's name."""

KEYS = tuple(f.name for f in fields(Ask) if f.name not in ("template", "system"))
"""Keys of `defaults` and of each task."""

USER_KEYS = ("ref", "temperature", "top_p", "top_k", "max_tokens", "thinking")
"""Keys of `user`."""


def fill(template: str, values: Mapping[str, str]) -> str:
    r"""Replace `{name}` for the names in `values`, in one pass; other braces (`\boxed{}`) stay."""
    return PLACEHOLDER.sub(lambda m: values.get(m.group(1), m.group(0)), template)


@dataclass(frozen=True, slots=True)
class Preset:
    """One preset file, checked."""

    name: str
    about: str = ""
    system: str = ""
    prompts: dict[str, str] = field(default_factory=dict)
    defaults: dict[str, Any] = field(default_factory=dict)
    tasks: dict[str, dict[str, Any]] = field(default_factory=dict)
    user: dict[str, Any] = field(default_factory=dict)
    """Who plays the user in conversations (`ref`), and its sampling."""

    def user_ask(self, own: Ask) -> Ask:
        """Sampling of the user, over what the task says itself."""
        return replace(own, **{key: value for key, value in self.user.items() if key != "ref"})

    def ask(
        self, task: str, style: str, template: str, *, n: int, max_tokens: int, samples: int | None = None
    ) -> Ask:
        """What holds for a task: its own `style`, `template`, `n`, `max_tokens`, then what the preset says.

        `samples` (from the command line) is the last word on `n`.
        """
        said = {**self.defaults, **self.tasks.get(task, {})}
        ask = replace(Ask(n=n, max_tokens=max_tokens, style=style, system=self.system), **said)
        ask = replace(ask, template=self.prompts.get(ask.style, template))
        return ask if samples is None else replace(ask, n=samples)


def names() -> list[str]:
    """The shipped presets."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def load_preset(name: str) -> Preset:
    """A shipped preset by name, or a YAML file by path.

    Raises ConfigError in one sentence for an unknown name or key, or a value of the wrong kind.
    """
    import yaml

    path = FOLDER / f"{name}.yaml" if name in names() else Path(name)
    if not path.is_file():
        raise ConfigError(f"there is no preset '{name}'{suggestion(name, names())}; or give a YAML file")
    try:
        tree = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        mark = getattr(error, "problem_mark", None)
        line = f" line {mark.line + 1}" if mark else ""
        raise ConfigError(f"{path}{line} is not valid YAML") from error
    return preset_of(tree, str(path), path.stem)


def preset_of(tree: Any, where: str, name: str = "") -> Preset:
    """Check a parsed preset. `where` names it in errors; `name` is used when it has none."""
    _section(tree, where, "preset", [f.name for f in fields(Preset)])
    for key in ("name", "about", "system"):
        _is(tree.get(key, ""), str, "text", key, where)
    prompts = tree.get("prompts") or {}
    _section(prompts, where, "prompts", None)
    for style, template in prompts.items():
        _is(template, str, "text", f"prompts.{style}", where)
        if "{question}" not in template:
            raise ConfigError(f"prompts.{style} in {where} has no {{question}}, so nothing would be asked")
    defaults = _settings(tree.get("defaults") or {}, "defaults", where)
    tasks = tree.get("tasks") or {}
    _section(tasks, where, "tasks", None)
    user = tree.get("user") or {}
    _section(user, where, "user", USER_KEYS)
    _is(user.get("ref", ""), str, "text", "user.ref", where)
    return Preset(
        name=str(tree.get("name") or name),
        about=tree.get("about", ""),
        system=tree.get("system", ""),
        prompts=dict(prompts),
        defaults=defaults,
        tasks={task: _settings(said or {}, f"tasks.{task}", where) for task, said in tasks.items()},
        user={
            **_settings({k: v for k, v in user.items() if k != "ref"}, "user", where),
            **_only(user, "ref"),
        },
    )


def _only(tree: dict[str, Any], key: str) -> dict[str, Any]:
    return {key: tree[key]} if key in tree else {}


def _settings(tree: Any, at: str, where: str) -> dict[str, Any]:
    """The settings of `defaults` or of one task, types and ranges checked."""
    _section(tree, where, at, KEYS)
    out = dict(tree)
    for key, value in tree.items():
        name = f"{at}.{key}"
        if key in ("n", "max_tokens"):
            _number(value, int, 1, None, name, where)
        elif key == "top_k":
            _number(value, int, 0, None, name, where)
        elif key == "temperature":
            out[key] = float(_number(value, (int, float), 0, None, name, where))
        elif key == "top_p":
            out[key] = float(_number(value, (int, float), 0, 1, name, where))
        elif key == "thinking":
            _is(value, (bool, type(None)), "true, false or null", name, where)
        elif key == "stop":
            _is(value, list, "a list of texts", name, where)
            if not all(isinstance(text, str) and text for text in value):
                raise ConfigError(f"{name} in {where} is not a list of non-empty texts")
            out[key] = tuple(value)
        else:
            _is(value, str, "text", name, where)
    return out


def _section(tree: Any, where: str, at: str, known: Iterable[str] | None) -> None:
    if not isinstance(tree, dict) or not all(isinstance(key, str) for key in tree):
        raise ConfigError(f"{at} in {where} is not a section of 'key: value' lines")
    for key in tree if known is not None else ():
        if key not in set(known or ()):
            raise ConfigError(f"unknown key '{key}' under {at} in {where}{suggestion(key, known or ())}")


def _is(value: Any, kind: Any, words: str, at: str, where: str) -> None:
    if not isinstance(value, kind):
        raise ConfigError(f"{at} in {where} is {value!r}, but should be {words}")


def _number(value: Any, kind: Any, low: float, high: float | None, at: str, where: str) -> Any:
    words = "a whole number" if kind is int else "a number"
    limits = f"{words} from {low}" + (f" to {high}" if high is not None else "")
    wrong = isinstance(value, bool) or not isinstance(value, kind)
    if wrong or value < low or (high is not None and value > high) or value != value:
        raise ConfigError(f"{at} in {where} is {value!r}, but should be {limits}")
    return value

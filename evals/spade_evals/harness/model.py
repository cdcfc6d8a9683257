"""`ServedLM`: the harness' model class on a policy of the project. Importing this needs the extra `lm-eval`.

* Plain prompts become tokens as in the harness' `hf` model. With a chat template, conversations go through
  our renderer, and no text becomes a special token.
* Prompts that leave no room are cut on the left, as there; how many were is counted.
* Thoughts are split off before stop texts are looked for.
* Requests go out in batches on a fixed grid, longest first. A batch of which anything is missing is asked as
  a whole by engines in lockstep, so that a resumed run computes what an uninterrupted one does.
"""

from __future__ import annotations

import json
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from lm_eval.api.model import TemplateLM
from lm_eval.models.utils import normalize_gen_kwargs
from lm_eval.utils import get_rolling_token_windows, make_disjoint_window

from spade.errors import BackendError, InputError
from spade.rng import child_seed
from spade.serving.chat import ChatPolicy
from spade.serving.policy import Completion, SamplingParams
from spade.serving.stopping import StopTexts
from spade.types import Message, StopReason
from spade_evals.asking import ENDS, TRIES
from spade_evals.harness.loop import Wait
from spade_evals.harness.responses import Numbering, Response, ResponseLog
from spade_evals.question import visible_answer

MAX_NEW_TOKENS: Final = 256
"""The harness' default."""

CHAT: Final = "\x1econversation "
"""Begins the text that stands for a conversation on its way through the harness."""

NEUTRAL: Final[dict[str, tuple[Any, ...]]] = {
    "num_beams": (1, None),
    "num_return_sequences": (1, None),
    "repetition_penalty": (1, None),
    "presence_penalty": (0, None),
    "frequency_penalty": (0, None),
    "min_p": (0, None),
    "typical_p": (1, None),
}
"""Settings that change nothing at these values; at others they are refused rather than ignored."""


@dataclass(frozen=True, slots=True)
class _Wanted:
    """One request. Without `params` the tokens `scored` are to be scored, else a text is wanted."""

    request: str
    task: str
    prompt_ids: list[int]
    scored: list[int]
    params: SamplingParams | None = None
    stops: tuple[str, ...] = ()
    in_thought: bool = False

    @property
    def size(self) -> int:
        return len(self.prompt_ids) + len(self.scored)


class ServedLM(TemplateLM):  # type: ignore[misc]
    """Answers the harness' requests.

    Raises InputError for what the policy cannot do, BackendError when it fails. `wait` runs its coroutines;
    `on_done(finished, total)` is called within each kind of request.
    """

    backend = "causal"
    tokenizer = None
    tokenizer_name = "spade"

    def __init__(
        self, chat: ChatPolicy, wait: Wait, log: ResponseLog, *,
        seed: int = 0, chat_template: bool = False, on_done: Callable[[int, int], None] | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.chat, self.log, self.seed, self.on_done = chat, log, seed, on_done
        self._wait = wait
        self._number = Numbering()
        self._uses_chats = chat_template
        self._tasks: list[str] = []
        self._said: defaultdict[str, deque[list[Response]]] = defaultdict(deque)
        self.seconds: Counter[str] = Counter()
        """Wall clock by task."""
        self.prompts_cut = 0
        self.answers_shortened = 0

    # --- tokens ----------------------------------------------------------------------------------------

    @property
    def max_length(self) -> int:
        """Tokens of prompt and answer together."""
        return self.chat.policy.context_length

    @property
    def eot_token_id(self) -> int:
        """What ends a text."""
        end: int = getattr(self.chat.renderer, "end_id", self.chat.renderer.stop_token_ids[0])
        return end

    @property
    def prefix_token_id(self) -> int:
        """What stands for an empty context: the tokenizer's start of a text, if it has one."""
        start = self.tok_encode("")
        return start[0] if start else self.eot_token_id

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **_: Any) -> list[int]:
        """Ids of a text; as the tokenizer makes them, its start token included, unless told otherwise."""
        if add_special_tokens is False or self._uses_chats:
            return self.chat.renderer.encode(string)
        ids: list[int] = self.chat.renderer.raw_ids(string)  # type: ignore[attr-defined]
        return ids

    def apply_chat_template(
        self, chat_history: Sequence[dict[str, str]], add_generation_prompt: bool = True
    ) -> str:
        """A text that stands for the conversation, to be rendered when it is asked."""
        return CHAT + json.dumps([add_generation_prompt, list(chat_history)], ensure_ascii=False)

    def _prompt(self, context: str) -> list[int]:
        if not context.startswith(CHAT):
            return self.tok_encode(context) if context else [self.prefix_token_id]
        answers, said = json.loads(context.removeprefix(CHAT))
        messages = [Message(turn["role"], turn["content"]) for turn in said]
        if answers:
            return self.chat.renderer.start(messages)
        start = self.chat.renderer.start(messages[:-1])
        return start + self.chat.renderer.encode(messages[-1].content)

    def _encode_pair(self, context: str, continuation: str) -> tuple[list[int], list[int]]:
        if context.startswith(CHAT):
            return self._prompt(context), self.chat.renderer.encode(continuation)
        pair: tuple[list[int], list[int]] = super()._encode_pair(context, continuation)
        return pair

    # --- the three kinds of requests -------------------------------------------------------------------

    def generate_until(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[str]:
        """The visible answers, each ended before its first stop text."""
        wanted = [self._text_wanted(r) for r in requests]
        out = []
        for request, response in zip(requests, self._answers(wanted), strict=True):
            self._said[_label(request.args)].append([response])
            out.append(response.text)
        return out

    def loglikelihood_rolling(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[float]:
        """Log-likelihoods of whole texts, in windows as long as the context."""
        pieces: list[_Wanted] = []
        owner: list[int] = []
        for at, request in enumerate(requests):
            ids = self.tok_encode(request.args[0])
            pairs = get_rolling_token_windows(ids, self.prefix_token_id, self.max_length, 1)
            for context, scored in map(make_disjoint_window, pairs):
                owner.append(at)
                pieces.append(self._scored(request.task_name or "", context, scored))
        windows: list[list[Response]] = [[] for _ in requests]
        for at, response in zip(owner, self._answers(pieces), strict=True):
            windows[at].append(response)
        for request, responses in zip(requests, windows, strict=True):
            self._said[_label(request.args)].append(responses)
        return [sum(response.logprob for response in responses) for responses in windows]

    def loglikelihood(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[tuple[float, bool]]:
        """Log-likelihoods of continuations, and whether each is what the model would say."""
        self._tasks = [request.task_name or "" for request in requests]
        found: list[tuple[float, bool]] = super().loglikelihood(requests, disable_tqdm=True)
        return found

    def _loglikelihood_tokens(
        self, requests: Sequence[tuple[Any, list[int], list[int]]], **more: Any
    ) -> list[tuple[float, bool]]:
        wanted = []
        for task, (_, context, scored) in zip(self._tasks, requests, strict=True):
            if len(scored) > self.max_length:
                raise InputError(
                    f"{task} scores {len(scored)} tokens at once, more than the context of {self.max_length}"
                )
            kept = context[-(self.max_length + 1 - len(scored)) :]
            self.prompts_cut += len(kept) < len(context)
            wanted.append(self._scored(task, kept, scored))
        out = []
        for (pair, _, _), response in zip(requests, self._answers(wanted), strict=True):
            self._said[_label(pair)].append([response])
            out.append((response.logprob, response.greedy))
        return out

    def _scored(self, task: str, context: list[int], scored: list[int]) -> _Wanted:
        return _Wanted(self._number("score", context, scored), task, context, scored)

    def _text_wanted(self, request: Any) -> _Wanted:
        context, raw = request.args
        said = _understood(normalize_gen_kwargs(raw, MAX_NEW_TOKENS), request.task_name)
        wished = int(said["max_gen_toks"])
        # A task made for longer contexts still gets an answer, with as much prompt as answer.
        new = wished if wished < self.max_length else max(1, self.max_length // 2)
        self.answers_shortened += new < wished
        ids = self._prompt(context)
        kept = ids[-(self.max_length - new) :]
        self.prompts_cut += len(kept) < len(ids)
        heat = float(said.get("temperature") or 0.0)
        settings = [new, heat, float(said.get("top_p") or 1.0), int(said.get("top_k") or 0), said["until"]]
        request_id = self._number("text", kept, settings)
        opened = context.startswith(CHAT) and self.chat.renderer.opens_thought(None)
        params = SamplingParams(
            max_tokens=new, temperature=heat, top_p=settings[2], top_k=settings[3],
            stop_token_ids=self.chat.renderer.stop_token_ids,
            seed=child_seed(self.seed, "harness", request_id) % 2**31,
        )  # fmt: skip
        stops = tuple(text for text in said["until"] if text)
        return _Wanted(request_id, request.task_name or "", kept, [], params, stops, opened)

    def take(self, arguments: Any, count: int) -> list[Response]:
        """The responses to the next `count` requests with these arguments, each taken once."""
        waiting = self._said[_label(arguments)]
        return [response for _ in range(min(count, len(waiting))) for response in waiting.popleft()]

    # --- asking ----------------------------------------------------------------------------------------

    def _answers(self, wanted: Sequence[_Wanted]) -> list[Response]:
        """One response each, in order; what is on disk is not asked again."""
        order = sorted(range(len(wanted)), key=lambda i: (-wanted[i].size, i))
        size = max(1, self.chat.policy.max_rows)
        for at in range(0, len(order), size):
            batch = [wanted[i] for i in order[at : at + size]]
            missing = [w for w in batch if w.request not in self.log.known]
            if missing:
                started = time.monotonic()
                for response in self._ask(batch if self.chat.policy.lockstep else missing):
                    self.log.add(response)
                self._share(time.monotonic() - started, missing)
            if self.on_done is not None:
                self.on_done(min(len(order), at + size), len(order))
        return [self.log.known[w.request] for w in wanted]

    def _share(self, seconds: float, asked: Sequence[_Wanted]) -> None:
        for w in asked:
            self.seconds[w.task] += seconds / len(asked)  # type: ignore[assignment]

    def _ask(self, batch: Sequence[_Wanted]) -> list[Response]:
        """Raises BackendError when the engine fails three times: the harness knows no lost answers."""
        for attempt in range(TRIES):
            try:
                return self._scores(batch) if batch[0].params is None else self._texts(batch)
            except BackendError:
                if attempt + 1 == TRIES:
                    raise
        raise AssertionError("unreachable")

    def _texts(self, batch: Sequence[_Wanted]) -> list[Response]:
        found: list[list[Completion]] = self._wait(
            self.chat.policy.generate([w.prompt_ids for w in batch], [self._params(w) for w in batch])
        )
        if any(row[0].stop is StopReason.CANCELLED for row in found):
            raise BackendError("the engine cancelled an answer; run the same command to resume")
        return [self._response(w, row[0]) for w, row in zip(batch, found, strict=True)]

    def _params(self, wanted: _Wanted) -> SamplingParams:
        params = wanted.params or SamplingParams()
        if not wanted.stops:
            return params
        watch = StopTexts(self.chat.renderer, wanted.stops, wanted.in_thought)
        return replace(params, stop_when=watch)

    def _response(self, wanted: _Wanted, completion: Completion) -> Response:
        text = self.chat.renderer.text(completion.token_ids)
        return Response(
            wanted.request,
            visible_answer(text, wanted.stops, wanted.in_thought),
            ENDS[completion.stop],
            len(completion.token_ids),
        )

    def _scores(self, batch: Sequence[_Wanted]) -> list[Response]:
        score = getattr(self.chat.policy, "score", None)
        if score is None:
            raise InputError(
                f"{batch[0].task} compares log-likelihoods, which only a local checkpoint can give"
            )
        found = self._wait(score([w.prompt_ids for w in batch], [w.scored for w in batch]))
        return [
            Response(w.request, logprob=float(sum(s.logprobs_T)), greedy=all(s.greedy_T))
            for w, s in zip(batch, found, strict=True)
        ]


def _label(arguments: Any) -> str:
    return json.dumps(arguments, sort_keys=True, ensure_ascii=False, default=str)


def readable(context: str) -> str:
    """A prompt for people: plain text as it is, a conversation with its roles."""
    if not context.startswith(CHAT):
        return context
    _, said = json.loads(context.removeprefix(CHAT))
    alone = len(said) == 1 and said[0]["role"] == "user"
    return "\n\n".join(turn["content"] if alone else f"[{turn['role']}] {turn['content']}" for turn in said)


def _understood(said: Any, task: str) -> dict[str, Any]:
    """The settings of a request. Raises InputError for one that our engines do not have."""
    known = {"until", "max_gen_toks", "do_sample", "temperature", "top_p", "top_k"}
    for key, value in said.items():
        if key not in known and value not in NEUTRAL.get(key, ()):
            raise InputError(f"{task} asks for {key}={value!r}, which the engines of SPADE do not have")
    return dict(said)

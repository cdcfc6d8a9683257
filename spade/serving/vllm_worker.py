"""What SPADE adds to vLLM's workers (`worker_extension_cls`). Imported by vLLM, in the worker's process."""

from __future__ import annotations

from typing import Any


class WholeLogprobs:
    """Mixed into a worker; `collective_rpc("spade_whole_logprobs")` switches it on.

    vLLM tells log-probs either before temperature, top-k and top-p or after all three, when they are those of
    a distribution over the tokens left. A learner needs them at the sampling temperature over the whole
    vocabulary. So they are taken where vLLM has applied the temperature and is about to leave tokens out.
    """

    model_runner: Any

    def spade_whole_logprobs(self) -> bool:
        """Whether the worker's sampler is one that this knows how to ask."""
        sampler = getattr(getattr(self.model_runner, "sampler", None), "topk_topp_sampler", None)
        if sampler is None:
            return False
        if getattr(sampler.forward, "spade", False):
            return True
        inner = sampler.forward

        def forward(logits: Any, generators: Any, k: Any, p: Any) -> Any:
            # Computed first: leaving tokens out may happen in place.
            whole = None if k is None and p is None else logits.log_softmax(-1)
            tokens, told = inner(logits, generators, k, p)
            return tokens, told if whole is None else whole

        forward.spade = True  # type: ignore[attr-defined]
        sampler.forward = forward
        return True

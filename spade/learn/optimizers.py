"""The optimisers of one model: one AdamW for each role, or a single shared one, over the same parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from spade.config import LearnerConfig

SHARED = "shared"
"""Name of the only optimiser when `optimizer_per_role` is off."""


class RoleOptimizers:
    """AdamW states by role over the named parameters of `model`, made when a role first has a gradient.

    With a state of its own, the Designer's noisy gradient neither inflates the second moments that scale the
    Agent's steps nor eats up the norm the gradient is clipped to.
    """

    def __init__(self, model: torch.nn.Module, cfg: LearnerConfig) -> None:
        self.model = model
        self.cfg = cfg
        self.parameters = {n: p for n, p in model.named_parameters() if p.requires_grad}
        self.states: dict[str, torch.optim.AdamW] = {}

    def apply(self, gradients: Mapping[str, list[Tensor]], lr_scale: float) -> tuple[dict[str, float], int]:
        """Clip and step; all gradients were taken at the same weights.

        Returns gradient norms before clipping, by role (and of the sum, if the optimiser is shared), and how
        many optimisers were stepped: one whose gradient is not finite is left out.
        """
        norms = {role: torch.nn.utils.get_total_norm(grads) for role, grads in gradients.items()}
        if not self.cfg.optimizer_per_role:
            summed = [torch.stack(parts).sum(0) for parts in zip(*gradients.values(), strict=True)]
            gradients = {SHARED: summed}
            norms[SHARED] = torch.nn.utils.get_total_norm(summed)
        stepped = sum(self._step(name, grads, norms[name], lr_scale) for name, grads in gradients.items())
        return {name: float(norm) for name, norm in norms.items()}, stepped

    def state_dict(self) -> dict[str, Any]:
        """Moments by role: {"step": n, "exp_avg": {parameter name: tensor}, "exp_avg_sq": {...}}; views."""
        return {name: self._moments(optimizer) for name, optimizer in self.states.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Inverse of `state_dict`."""
        self.states = {}
        for name, moments in state.items():
            optimizer = self._optimizer(name)
            for key, parameter in self.parameters.items():
                optimizer.state[parameter] = {
                    "step": torch.tensor(float(moments["step"]), device=parameter.device),
                    "exp_avg": moments["exp_avg"][key].clone().to(parameter.device),
                    "exp_avg_sq": moments["exp_avg_sq"][key].clone().to(parameter.device),
                }

    def _step(self, name: str, grads: list[Tensor], norm: Tensor, lr_scale: float) -> bool:
        if not torch.isfinite(norm):
            return False
        for parameter, grad in zip(self.parameters.values(), grads, strict=True):
            parameter.grad = grad
        torch.nn.utils.clip_grads_with_norm_(self.parameters.values(), self.cfg.grad_clip, norm)
        optimizer = self._optimizer(name)
        for group in optimizer.param_groups:
            group["lr"] = self._lr(name) * lr_scale
        optimizer.step()
        self.model.zero_grad(set_to_none=True)
        return True

    def _lr(self, name: str) -> float:
        factor = self.cfg.designer_lr_factor if name == "designer" else 1.0
        return float(self.cfg.lr * factor)

    def _optimizer(self, name: str) -> torch.optim.AdamW:
        if name not in self.states:
            self.states[name] = torch.optim.AdamW(
                list(self.parameters.values()),
                lr=self._lr(name),
                betas=self.cfg.betas,
                weight_decay=self.cfg.weight_decay,
                fused=True,
            )
        return self.states[name]

    def _moments(self, optimizer: torch.optim.AdamW) -> dict[str, Any]:
        states = {name: optimizer.state[p] for name, p in self.parameters.items()}
        return {
            "step": int(next(iter(states.values()))["step"]),
            "exp_avg": {name: s["exp_avg"] for name, s in states.items()},
            "exp_avg_sq": {name: s["exp_avg_sq"] for name, s in states.items()},
        }

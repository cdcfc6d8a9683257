"""Whole tensors out of a model that is spread over processes, and back: weights, moments, merged adapters.

Works alike for a model in one piece (then nothing is communicated) and for one whose parameters are DTensors
(torch's `fully_shard`, which accelerate calls FSDP2). What is said to be collective must be called in every
process, in the same order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from spade.errors import InputError

MOMENTS = ("exp_avg", "exp_avg_sq")


Named = Callable[[torch.nn.Module], Iterator[tuple[str, Tensor]]]


def is_sharded(model: torch.nn.Module) -> bool:
    """Whether some parameter is spread over processes."""
    return any(hasattr(p, "full_tensor") for p in model.parameters())


def whole(tensor: Tensor) -> Tensor:
    """The full tensor, detached; collective for a DTensor."""
    full: Tensor = getattr(tensor.detach(), "full_tensor", tensor.detach)()
    return full


def part_of(full: Tensor, like: Any) -> Tensor:
    """The part of `full` that belongs where `like` lies. All processes hold the same `full`."""
    moved: Tensor = full.to(like.device, like.dtype)
    if not hasattr(like, "device_mesh"):
        return moved
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(moved, like.device_mesh, like.placements, src_data_rank=None)


def named_whole(model: torch.nn.Module) -> Iterator[tuple[str, Tensor]]:
    """(name, full tensor) of the state dict, one at a time; tied entries share storage. Collective."""
    # by the parameter itself: addresses do not tell, since a process may hold an empty part of several
    one = {name: id(p) for name, p in model.named_parameters(remove_duplicate=False)}
    seen: Counter[int | str] = Counter(one.values())
    tied: dict[int | str, Tensor] = {}
    for name, tensor in model.state_dict().items():
        key: int | str = one.get(name, name)
        full = tied[key] if key in tied else whole(tensor)
        if seen[key] > 1:
            tied[key] = full
        yield name, full


def named_merged(
    model: Any, named: Named = named_whole, adapter: str = "default"
) -> Iterator[tuple[str, Tensor]]:
    """The same for a peft model with plain LoRA layers: names and weights of the model without adapters,
    `W + scaling * B A` where there is one (Hu et al. 2021, arXiv 2106.09685). `named` collects the tensors of
    a model. Collective."""
    base = model.get_base_model()
    waiting: dict[str, dict[str, Tensor]] = {}
    for name, tensor in named(base):
        layer, _, part = name.rpartition(".lora_") if ".lora_" in name else name.rpartition(".base_layer")
        if not layer or part == ".bias":
            yield name.replace(".base_layer.", "."), tensor
            continue
        parts = waiting.setdefault(layer, {})
        parts[part] = tensor
        a, b, weight = (parts.get(p) for p in (f"A.{adapter}.weight", f"B.{adapter}.weight", ".weight"))
        if a is not None and b is not None and weight is not None:
            scaling = base.get_submodule(layer).scaling[adapter]
            del waiting[layer]
            yield f"{layer}.weight", (weight + scaling * (b.float() @ a.float())).to(weight.dtype)
    assert not waiting, f"not plain LoRA: {next(iter(waiting))}"


def load_weights(model: torch.nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Copy full tensors into the model, in place. Tied entries may be given once.

    Raises `InputError` when names or shapes do not fit.
    """
    present = model.state_dict()
    missing = [n for n, p in model.named_parameters() if p.requires_grad and n not in weights]
    wrong = [n for n, t in weights.items() if n not in present or present[n].shape != t.shape]
    if missing or wrong:
        raise InputError(
            f"the saved weights do not fit this model (first difference: {(missing + wrong)[0]}); "
            "resume with the model the run was started with."
        )
    with torch.no_grad():
        for name, tensor in weights.items():
            present[name].copy_(part_of(tensor, present[name]))


def load_adapter(parameters: Mapping[str, Tensor], adapter: Mapping[str, Tensor]) -> None:
    """Copy a LoRA adapter's full tensors into the parameters of the same names, in place.

    Raises `InputError` when one is missing or of another shape.
    """
    wrong = [n for n, p in parameters.items() if n not in adapter or adapter[n].shape != p.shape]
    if wrong:
        raise InputError(
            f"the saved LoRA adapter does not fit (first difference: {wrong[0]}); resume with the "
            "learner.trl settings it was made with."
        )
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(part_of(adapter[name], parameter))


def moments_of(optimizer: Any, parameters: Mapping[str, Tensor]) -> dict[str, Any]:
    """AdamW's state by parameter name: {"step": n, "exp_avg": {...}, "exp_avg_sq": {...}}; {} before the
    first step. Collective."""
    states = {name: optimizer.state[p] for name, p in parameters.items() if p in optimizer.state}
    if not states:
        return {}
    found: dict[str, Any] = {m: {n: whole(s[m]) for n, s in states.items()} for m in MOMENTS}
    return {"step": int(next(iter(states.values()))["step"]), **found}


def load_moments(optimizer: Any, parameters: Mapping[str, Tensor], moments: Mapping[str, Any]) -> None:
    """Inverse of `moments_of`. Raises `InputError` when a parameter has no moments."""
    for name, parameter in parameters.items():
        if name not in moments["exp_avg"]:
            raise InputError(
                f"the saved optimiser knows nothing of '{name}'; resume with the settings the run was "
                "started with."
            )
        optimizer.state[parameter] = {
            "step": torch.tensor(float(moments["step"]), device=parameter.device),
            **{m: part_of(moments[m][name].clone(), parameter.detach()) for m in MOMENTS},
        }


def write_model(model: Any, named: Iterator[tuple[str, Tensor]], folder: Path) -> None:
    """Write configuration and one `model.safetensors` of full tensors; tied tensors are stored once."""
    from safetensors.torch import save_file

    tensors: dict[str, Tensor] = {}
    stored: set[tuple[int, tuple[int, ...]]] = set()
    for name, tensor in named:
        place = tensor.data_ptr(), tuple(tensor.shape)
        if place in stored:
            continue
        stored.add(place)
        tensors[name] = tensor.to("cpu").contiguous()
    folder.mkdir(parents=True, exist_ok=True)
    model.config.save_pretrained(folder)
    if getattr(model, "generation_config", None) is not None:
        model.generation_config.save_pretrained(folder)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})

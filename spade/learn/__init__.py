"""From outcomes to new weights: regret, rewards, advantages, batches, the loss and the optimiser step.

`regret`, `rewards`, `advantages` and `batch` are pure functions over numbers and arrays; only `attention`,
`loss`, `trainer`, `checkpoint` and `weights` import torch. Nothing here knows environments or prompts.
"""

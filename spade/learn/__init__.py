"""From outcomes to new weights: regret, rewards, advantages, batches, the loss and the optimiser step.

`regret`, `gate`, `rewards`, `advantages`, `episodes` and `batch` are pure functions over numbers and records;
`baselines` and `potential` are running means a run remembers; only `attention`, `scoring`, `loss`,
`optimizers`, `trainer`, `checkpoint` and `weights` import torch. Nothing here knows environments or prompts.
"""

"""From outcomes to new weights: regret, rewards, advantages, batches, the loss and the optimiser step.

`regret`, `gate`, `rewards`, `advantages`, `episodes` and `batch` are pure functions over numbers and records;
`baselines` and `potential` are running means a run remembers. `learner` says what a learner offers; `trainer`
is the compact one and `trl` the one on TRL's trainer, over `parallel` processes and with models in `shards`.
Nothing here knows environments or prompts.
"""

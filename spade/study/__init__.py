"""`spade study`: what reinforcement learning does to the output distribution of a language model, exactly.

A small world in which every output of a model can be listed, after "Demystifying Reinforcement Learning
Post-Training of Language Models" (arXiv 2608.24949). In the order one number meets them:

    tasks        prompts, right answers and known behaviours of the four task families
    lm           the tiny Llama models; folders are plain Hugging Face checkpoints
    exact        the whole output distribution of a prompt in one packed forward pass
    stages       pretraining, SFT and dialled priors, each cached by the hash of its recipe
    rewards, rl  reward functions; reinforcement learning with the project's own advantages and losses
    measure      exact metrics of a distribution (entropies themselves: `spade.learn.entropy`)
    cells, runner, experiments    what is run, side by side, resumable
    stats, verdicts, report       tables, figures, and verdicts by rules written down beforehand
    hf           the same lens on any Hugging Face checkpoint
    quotes, real, real_run, real_cells    experiment R1: reinforcement learning on such a checkpoint
"""

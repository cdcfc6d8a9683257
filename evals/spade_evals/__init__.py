"""Evaluation of checkpoints on held-out tasks, and their comparison.

`suite` says what an evaluation is, `runner` runs some, `stats` holds the statistics, `compare` aligns
several results by item, `render` prints them.
"""

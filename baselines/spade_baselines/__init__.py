"""Baselines: other sources of programs for the same training loop."""

"""The tasks: one benchmark each, or a family of them. `spade_evals.question` says what a task is."""

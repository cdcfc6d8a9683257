"""The embedded default model: its synthetic corpus, its recipe, and the shipped weights in `model/`."""

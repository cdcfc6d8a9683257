"""Training: one readable loop, program sources that plug into it, and what a run must remember."""

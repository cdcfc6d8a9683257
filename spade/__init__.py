"""SPADE: self-play in adaptive synthetic executable environments.

One language model designs environments, plays them, and is trained on both roles.
Start reading at `spade.types` (the records) and `spade.train.loop` (one page of training loop).
"""

from spade import _gymnasium

__version__ = "0.1.0"

_gymnasium.announce()

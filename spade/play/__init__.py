"""Playing episodes: the action codec, one episode's state machine, and the drivers that run many."""

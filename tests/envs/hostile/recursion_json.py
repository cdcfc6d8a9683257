"""JSON of a list nested 100,000 deep."""

import json


class HostEnv:
    def reset(self, seed=None):
        return "obs", {}

    def step(self, action):
        x = []
        for _ in range(100_000):
            x = [x]
        return json.dumps(x)[:9], 0.0, False, False, {}

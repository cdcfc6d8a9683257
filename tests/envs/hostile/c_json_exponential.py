"""JSON of a structure that shares its parts."""

import json


class HostEnv:
    def reset(self, seed=None):
        return "obs", {}

    def step(self, action):
        a = []
        for _ in range(60):
            a = [a, a]
        return json.dumps(a)[:9], 0.0, False, False, {}

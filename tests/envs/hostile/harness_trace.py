"""A trace function that breaks the harness's frames."""

import sys


class HostEnv:
    def reset(self, seed=None):
        def trace(frame, event, argument):
            if frame.f_code.co_filename.endswith("worker.py"):
                raise SystemExit
            return trace

        sys.settrace(trace)
        return "obs", {}

    def step(self, action):
        return "done", 0.0, False, False, {}

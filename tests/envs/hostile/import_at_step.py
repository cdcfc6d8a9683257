"""Imports a module that is not loaded, in step."""


class HostEnv:
    def reset(self, seed=None):
        return "obs", {}

    def step(self, action):
        import ftplib

        return str(ftplib), 0.0, False, False, {}

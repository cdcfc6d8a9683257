"""Bytecode that reads beyond its constants."""


class HostEnv:
    def reset(self, seed=None):
        return "obs", {}

    def step(self, action):
        def f():
            pass

        f.__code__ = f.__code__.replace(co_code=bytes([100, 255, 83, 0]), co_consts=())
        return str(f())[:9], 0.0, False, False, {}

"""reset is a coroutine."""


class HostEnv:
    async def reset(self, seed=None):
        return "obs", {}

    def step(self, action):
        return "done", 0.0, False, False, {}

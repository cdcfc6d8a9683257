class HugeEnv:
    def reset(self, seed=None):
        return "obs", {}

    def step(self, action):
        raise ValueError(1 << 10**7)

"""The name ends in Env but is no class."""


class Thing:
    pass


HostEnv = Thing()

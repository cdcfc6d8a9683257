LEVEL = 1

CLOSING = "Other requests come afterwards; after the last one answer <answer>done</answer>."

PROFILES, JOBS = {1: (3, 3), 2: (4, 4), 3: (5, 5)}[LEVEL]
KEYS = ("retries", "timeout", "workers", "cache", "depth", "quota")
NAMES = ("amber", "birch", "coral", "dune", "ember", "frost", "grove")


class SettingsProfilesEnv(ToolEnv):
    """Edit profiles of settings exactly as told, with keys that may be absent."""

    max_turns = {1: 14, 2: 20, 3: 25}[LEVEL]
    tools = {
        "show": {"description": "all settings of a profile", "parameters": {"profile": "string"}},
        "set": {
            "description": "set a key of a profile",
            "parameters": {
                "profile": "string",
                "key": {"type": "string", "enum": list(KEYS)},
                "value": "integer",
            },
        },
        "unset": {
            "description": "remove a key from a profile",
            "parameters": {"profile": "string", "key": {"type": "string", "enum": list(KEYS)}},
        },
        "overwrite": {
            "description": "make a profile an exact copy of another one",
            "parameters": {"profile": "string", "source": "string"},
        },
    }

    def setup(self, rng):
        names = rng.sample(NAMES, PROFILES)
        now = {n: {k: rng.randint(11, 99) for k in sorted(rng.sample(KEYS, 4))} for n in names}
        self.state = {"profiles": {n: dict(v) for n, v in now.items()}}
        self.tasks, self.plan = [], ["\n".join(self.call("show", profile=n) for n in names)]
        for job in range(JOBS):
            text, now = (self.scale, self.mirror, self.lift, self.fold, self.scale)[(job + LEVEL) % 5](
                rng, names, now
            )
            self.tasks.append((text, lambda s, w=now: s["profiles"] == w))
        self.tasks[0] = (f"{self.tasks[0][0]} {CLOSING}", self.tasks[0][1])
        self.plan.append(self.answer)

    def put(self, now, name, key, value):
        self.plan.append(self.call("set", profile=name, key=key, value=value))
        return {**now, name: {**now[name], key: value}}

    def scale(self, rng, names, now):
        name = rng.choice(names)
        key = rng.choice(sorted(now[name]))
        times = rng.randint(3, 9)
        return f"Multiply {key} of {name} by {times}.", self.put(now, name, key, now[name][key] * times)

    def mirror(self, rng, names, now):
        target, source = rng.sample(names, 2)
        key = rng.choice(sorted(now[target]))
        kept = now[target][key]
        self.plan.append(self.call("overwrite", profile=target, source=source))
        after = self.put({**now, target: dict(now[source])}, target, key, kept)
        if after == now:
            after = self.put(after, target, key, kept + 1)
            return f"Add 1 to {key} of {target}, and make {target} like {source} otherwise.", after
        return f"Make {target} like {source}, except that {target} keeps its own {key}.", after

    def lift(self, rng, names, now):
        key = max(KEYS, key=lambda k: (sum(k in v for v in now.values()), k))
        have = [n for n in names if key in now[n]]
        most = max(now[n][key] for n in have)
        plus = rng.randint(2, 9)
        for name in have:
            now = self.put(now, name, key, most + plus)
        return f"In every profile that has {key}, set it to {plus} more than the largest {key} there is.", now

    def fold(self, rng, names, now):
        name = rng.choice([n for n in names if len(now[n]) > 1])
        gone, into = rng.sample(sorted(now[name]), 2)
        now = self.put(now, name, into, now[name][into] + now[name][gone])
        self.plan.append(self.call("unset", profile=name, key=gone))
        rest = {k: v for k, v in now[name].items() if k != gone}
        return f"Add {gone} of {name} to its {into} and remove {gone} there.", {**now, name: rest}

    def tool_show(self, profile):
        rows = self.state["profiles"].get(profile)
        return (
            "error: no such profile"
            if rows is None
            else f"{profile}: " + ", ".join(f"{k} {v}" for k, v in sorted(rows.items()))
        )

    def tool_set(self, profile, key, value):
        if profile not in self.state["profiles"]:
            return "error: no such profile"
        self.state["profiles"][profile][key] = value
        return f"{profile}: {key} is {value}"

    def tool_unset(self, profile, key):
        if self.state["profiles"].get(profile, {}).pop(key, None) is None:
            return "error: no such profile, or it does not have this key"
        return f"{profile}: {key} is gone"

    def tool_overwrite(self, profile, source):
        profiles = self.state["profiles"]
        if profile not in profiles or source not in profiles:
            return "error: no such profile"
        profiles[profile] = dict(profiles[source])
        return f"{profile} is a copy of {source}"

    def solution(self):
        return self.plan

    def hint(self):
        return "Note the values you will need before you overwrite or remove anything."

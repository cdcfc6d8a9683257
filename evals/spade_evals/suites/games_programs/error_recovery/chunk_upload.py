LEVEL = 1

CLOSING = "There will be further requests; once none is left, reply <answer>done</answer>."

FILES = 3
CHUNKS = {1: 3, 2: 4, 3: 4}[LEVEL]
WORDS = ("atlas", "ballad", "census", "digest", "errata", "folio", "gazette", "herbal")


class ChunkUploadEnv(ToolEnv):
    """Upload files in pieces over links that expire and lines that damage pieces."""

    max_turns = {1: 20, 2: 24, 3: 25}[LEVEL]
    tools = {
        "start": {
            "description": "start the upload of a file; gives a link",
            "parameters": {"file": "string"},
        },
        "send": {
            "description": "send some chunks over a link, by number",
            "parameters": {"link": "string", "chunks": {"type": "array", "items": {"type": "integer"}}},
        },
        "verify": {
            "description": "numbers of chunks that are missing or damaged",
            "parameters": {"link": "string"},
        },
        "renew": {"description": "exchange an expired link for a new one", "parameters": {"link": "string"}},
        "finish": {
            "description": "close an upload; works once all chunks are good",
            "parameters": {"link": "string"},
        },
    }

    def setup(self, rng):
        links = [f"u{n}" for n in rng.sample(range(10_000, 99_999), 40)]
        self.links = links[20:]
        self.state = {"links": {}, "files": {}, "expired": {}, "done": []}
        self.tasks, self.plan, done = [], [], []
        calm, hard = rng.sample(range(FILES), 2)
        for k, name in enumerate(rng.sample(WORDS, FILES)):
            name = f"{name}_{rng.randint(100, 999)}"
            chunks = list(range(1, CHUNKS + rng.randint(0, 2) + 1))
            bad = sorted(rng.sample(chunks, rng.randint(1, 2)))
            short = LEVEL > 1 and k != calm  # the first link of this file expires after one sending
            again = LEVEL == 3 and k == hard  # one chunk arrives damaged twice
            first, second = links.pop(0), self.links.pop(0)
            rounds = {c: 1 + (again and c == bad[0]) for c in bad}
            self.state["files"][name] = {
                "first": first,
                "next": second,
                "size": len(chunks),
                "bad": rounds,
                "good": [],
                "short": short,
            }
            plan = [self.call("start", file=name), self.call("send", link=first, chunks=chunks)]
            link = first
            if short:
                plan += [self.call("verify", link=first), self.call("renew", link=first)]
                link = second
            plan += [self.call("verify", link=link), self.call("send", link=link, chunks=bad)]
            if again:
                plan += [self.call("verify", link=link), self.call("send", link=link, chunks=bad[:1])]
            plan.append(self.call("finish", link=link))
            done = [*done, name]
            text = f"Upload the file {name}; it has {len(chunks)} chunks, numbered from 1."
            self.tasks.append((text, lambda s, d=tuple(done): s["done"] == list(d)))
            self.plan += plan
        self.tasks[0] = (f"{self.tasks[0][0]} {CLOSING}", self.tasks[0][1])
        self.plan.append(self.answer)

    def file_of(self, link):
        """The file of a link, or why the link cannot be used."""
        if link in self.state["expired"]:
            return None, "refused: this link has expired"
        name = self.state["links"].get(link)
        return (None, "error: no such link") if name is None else (self.state["files"][name], "")

    def tool_start(self, file):
        if file not in self.state["files"]:
            return "error: no such file"
        row = self.state["files"][file]
        if (
            file in self.state["links"].values()
            or row["first"] in self.state["expired"]
            or file in self.state["done"]
        ):
            return "refused: this upload was started already"
        self.state["links"][row["first"]] = file
        return f"link {row['first']}"

    def tool_send(self, link, chunks):
        row, problem = self.file_of(link)
        if problem:
            return problem
        if not all(isinstance(c, int) and 1 <= c <= row["size"] for c in chunks):
            return f"error: chunks are 1 to {row['size']}"
        for chunk in dict.fromkeys(chunks):
            if row["bad"].get(chunk, 0) > 0:
                row["bad"][chunk] -= 1
            elif chunk not in row["good"]:
                row["good"].append(chunk)
        if row["short"] and link == row["first"]:
            self.state["expired"][link] = self.state["links"].pop(link)
        return f"{len(set(chunks))} chunks sent"

    def tool_verify(self, link):
        row, problem = self.file_of(link)
        if problem:
            return problem
        left = [c for c in range(1, row["size"] + 1) if c not in row["good"]]
        return "missing or damaged: " + (", ".join(map(str, left)) or "none")

    def tool_renew(self, link):
        if link not in self.state["expired"]:
            return "error: this link has not expired"
        name = self.state["expired"][link]
        self.state["links"][self.state["files"][name]["next"]] = name
        return f"link {self.state['files'][name]['next']}"

    def tool_finish(self, link):
        row, problem = self.file_of(link)
        if problem:
            return problem
        if len(row["good"]) < row["size"]:
            return "refused: chunks are missing or damaged"
        self.state["done"] = [*self.state["done"], self.state["links"].pop(link)]
        return "stored"

    def solution(self):
        return self.plan

    def hint(self):
        return (
            "A sent chunk is not a good chunk: verify after each sending, and renew a link that has expired."
        )

"""The clean process that workers are forked from. Executed by path: `zygote.py CONTROL_FD SETTINGS_JSON`.

Standard library only; its environment is fixed by the parent. It loads every module a program may import,
replaces clocks and entropy, then only forks, reaps and reports. It is single-threaded and holds no secret.

Control socket (SOCK_SEQPACKET, one JSON object a packet):
parent to zygote `{"id": n, "mode": "serve" | "selftest", "probe": {...}}` with the worker's socket attached,
or `{"kill": n}`; zygote to parent `{"ready": 1}` or `{"error": text}` once, then `{"id": n, "pid": p}` with a
pidfd attached, and `{"exit": n, "status": wait status}`.
"""

from __future__ import annotations

import fcntl
import gc
import importlib
import importlib.util
import json
import os
import select
import signal
import socket
import sys
import sysconfig
from types import ModuleType
from typing import Any

PACKET = 1 << 16
CHANNEL = 3
LAZY_MODULES = ("__future__", "_strptime", "calendar", "contextlib", "locale", "numbers", "unicodedata")
"""Modules the allowed ones import only when first used; a confined worker could not load them any more."""
LAZY_ENCODINGS = (
    "ascii",
    "cp1252",
    "idna",
    "latin_1",
    "punycode",
    "unicode_escape",
    "utf_16",
    "utf_32",
    "utf_8",
)


def load_sibling(name: str) -> ModuleType:
    """A file of this folder as a module, without making the folder importable."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), f"{name}.py")
    spec = importlib.util.spec_from_file_location(f"_spade_{name}", path)
    if spec is None or spec.loader is None:
        raise ImportError(name)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


class Zygote:
    """State of the fork server."""

    def __init__(self, control: socket.socket, settings: dict[str, Any]) -> None:
        self.control = control
        self.level: str = settings["level"]
        self.settings = settings
        self.confine = load_sibling("confine")
        self.children: dict[int, int] = {}  # pid to id
        self.ruleset = -1
        self.filter = b""
        self.extras: dict[str, Any] = {}

    def prepare(self) -> None:
        """Everything that is done once: modules, replacements, filter, rulesets, namespaces' empty root."""
        for name in (*self.settings["modules"], *LAZY_MODULES, *(f"encodings.{e}" for e in LAZY_ENCODINGS)):
            importlib.import_module(name)
        self.worker = load_sibling("worker")
        self.selftest = load_sibling("selftest")
        self.entropy = load_sibling("entropy")
        self.entropy.install()
        self.extras = self.injected()
        if self.level != "L0":
            self.filter = self.confine.build_filter(self.confine.machine())
        if self.level in ("L3", "L2"):
            self.ruleset = self.confine.landlock_ruleset()
        try:
            with open("/proc/self/oom_score_adj", "w") as file:
                file.write("1000")
        except OSError:
            pass  # containers may forbid it; it only decides who dies first when memory runs out
        self.stdlib = sysconfig.get_paths()["stdlib"]
        self.memory = self.confine.own_address_space()
        if self.memory:
            self.memory += self.settings["memory_mb"] << 20
        if self.level == "L3":
            self.confine.empty_root()
        gc.collect()
        gc.freeze()

    def injected(self) -> dict[str, Any]:
        """Names every program finds without importing them: `ToolEnv`."""
        path = self.settings["tools"]
        if not os.path.exists(path):
            return {}
        names: dict[str, Any] = {"__name__": "spade_tools"}
        with open(path, encoding="utf-8") as file:
            exec(compile(file.read(), "<tools>", "exec"), names)
        return {"ToolEnv": names["ToolEnv"]}

    def say(self, message: dict[str, Any], descriptors: tuple[int, ...] = ()) -> None:
        """One packet to the parent."""
        socket.send_fds(self.control, [json.dumps(message).encode()], list(descriptors))

    def serve(self) -> None:
        """Fork, reap and report until the parent is gone; then every child is killed."""
        wake_read, wake_write = os.pipe()
        os.set_blocking(wake_read, False)
        os.set_blocking(wake_write, False)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self.wake = (wake_read, wake_write)
        poll = select.poll()
        poll.register(self.control, select.POLLIN)
        poll.register(wake_read, select.POLLIN)
        self.say({"ready": 1})
        while True:
            events = dict(poll.poll())
            if wake_read in events:
                os.read(wake_read, 4096)
                self.reap()
            if self.control.fileno() in events and not self.handle():
                break
        for pid in self.children:
            os.kill(pid, signal.SIGKILL)
        for pid in list(self.children):
            os.waitpid(pid, 0)

    def handle(self) -> bool:
        """One packet from the parent; False when there will be no more."""
        try:
            data, descriptors, _, _ = socket.recv_fds(self.control, PACKET, 1)
        except ConnectionError:
            return False  # the parent went away with our reports unread
        if not data:
            return False
        request = json.loads(data)
        if "kill" in request:
            for pid, number in self.children.items():
                if number == request["kill"]:
                    os.kill(pid, signal.SIGKILL)
            return True
        if descriptors:
            self.spawn(request, descriptors[0])
            os.close(descriptors[0])
        return True

    def spawn(self, request: dict[str, Any], channel: int) -> None:
        """Fork one worker and report it; a failed fork is reported as a lost worker."""
        number = request["id"]
        try:
            pid = os.fork()
        except OSError:
            self.say({"exit": number, "status": -1})
            return
        if pid == 0:
            self.child(request, channel)
        self.children[pid] = number
        try:
            handle = os.pidfd_open(pid)
        except OSError:
            self.say({"id": number, "pid": pid})  # old kernel: the parent asks for kills instead
            return
        self.say({"id": number, "pid": pid}, (handle,))
        os.close(handle)

    def reap(self) -> None:
        """Collect every dead child."""
        while self.children:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            self.say({"exit": self.children.pop(pid), "status": status})

    def child(self, request: dict[str, Any], channel: int) -> None:
        """The forked worker; never returns."""
        status = 70
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.dup2(channel, CHANNEL)
            checks = self.selftest.Checks(request.get("probe", {})) if request["mode"] == "selftest" else None
            self.lock_in(checks)
            if checks is None:
                self.worker.main(self.extras, (self.entropy.current, self.entropy.Stream), self.stdlib)
            else:
                checks.after_filter()
                os.write(CHANNEL, checks.report())
            status = 0
        finally:
            os._exit(status)

    def lock_in(self, checks: Any) -> None:
        """All layers of this level, in the order in which each still permits the next."""
        confine = self.confine
        if checks is not None:
            checks.before_confinement()
        confine.set_limits(self.memory, 16)
        if self.level == "L0":
            os.closerange(4, 256)
            return
        confine.no_new_privs()
        if self.ruleset >= 0:
            confine.landlock_restrict(self.ruleset)
            if checks is not None:
                checks.after_landlock()
        os.closerange(CHANNEL + 1, 256)
        confine.drop_privileges(self.settings["uid"])
        confine.install_filter(self.filter)


def enter_namespaces(zygote: Zygote) -> None:
    """Level L3: go on as first process of new namespaces; the outer process only waits for the inner one."""
    zygote.confine.unshare_namespaces(zygote.settings["uid"])
    pid = os.fork()
    if pid:
        zygote.control.close()
        _, status = os.waitpid(pid, 0)
        os._exit(os.waitstatus_to_exitcode(status) & 0xFF)
    zygote.confine.die_with_parent()


def main() -> None:
    """Entry point."""
    # Descriptor 3 becomes every worker's channel: keep our own descriptors away from it.
    descriptor = fcntl.fcntl(int(sys.argv[1]), fcntl.F_DUPFD_CLOEXEC, 8)
    os.dup2(0, int(sys.argv[1]), inheritable=False)
    os.dup2(0, CHANNEL, inheritable=False)
    control = socket.socket(fileno=descriptor)
    os.environ.pop("LD_LIBRARY_PATH", None)
    zygote = Zygote(control, json.loads(sys.argv[2]))
    try:
        if zygote.level == "L3":
            enter_namespaces(zygote)
        zygote.prepare()
    except OSError as error:
        zygote.say({"error": str(error)})
        return
    zygote.serve()


if __name__ == "__main__":
    main()

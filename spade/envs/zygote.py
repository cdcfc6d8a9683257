"""The clean process that workers are forked from. Executed by path: `zygote.py CONTROL_FD SETTINGS_JSON`.

Standard library only; its environment is fixed by the parent. It loads every module a program may import,
replaces clocks and entropy, then only forks, reaps and reports. It is single-threaded and holds no secret.

Control socket (messages as in `control.py`):
parent to zygote `{"id": n, "mode": "serve" | "selftest" | "call", "probe": {...}}` with the worker's socket
attached, or `{"kill": n}`; zygote to parent `{"ready": 1}` or `{"error": text}` once, then
`{"id": n, "pid": p}`, with a pidfd attached where there are any, and `{"exit": n, "status": wait status}`.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import importlib
import json
import os
import resource
import select
import signal
import socket
import sys
import sysconfig
from types import ModuleType
from typing import Any

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


def make_siblings_importable() -> None:
    """Let the files of this folder be imported under their usual names, without the rest of the package."""
    for name, folders in (("spade", []), ("spade.envs", [os.path.dirname(os.path.abspath(__file__))])):
        package = ModuleType(name)
        package.__path__ = folders
        sys.modules[name] = package


def sibling(name: str) -> Any:
    """A file of this folder as a module."""
    return importlib.import_module(f"spade.envs.{name}")


def grow_stack(mebibytes: int) -> None:
    """Give this process a stack of that size. The kernel makes room for one at exec, so it starts again."""
    wanted = mebibytes << 20
    soft, hard = resource.getrlimit(resource.RLIMIT_STACK)
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_STACK, (wanted, hard))
        os.execv(sys.executable, sys.orig_argv)


class Zygote:
    """State of the fork server."""

    def __init__(self, control: socket.socket, settings: dict[str, Any]) -> None:
        self.control = control
        self.hangup = select.poll()
        self.hangup.register(control, 0)
        self.level: str = settings["level"]
        self.settings = settings
        self.how: str = settings["how"]
        self.confine = sibling("confine")
        self.messages = sibling("control")
        self.children: dict[int, int] = {}  # pid to id
        self.ruleset = -1
        self.filter = b""
        self.seatbelt: tuple[Any, Any] | None = None
        self.memory = 0
        self.extras: dict[str, Any] = {}

    def prepare(self) -> None:
        """Everything that is done once: modules, replacements, filter, rulesets, namespaces' empty root."""
        for name in (*self.settings["modules"], *LAZY_MODULES, *(f"encodings.{e}" for e in LAZY_ENCODINGS)):
            importlib.import_module(name)
            if self.hangup.poll(0):  # the parent gave up, or is gone: nobody will want this
                sys.exit(0)
        self.guests = [sibling(name) for name in self.settings["files"]]
        self.selftest, self.entropy = sibling("selftest"), sibling("entropy")
        arrays = sibling("numpy_entropy") if self.settings["numpy"] else None
        numpy = arrays.load(self.settings["numpy"]) if arrays is not None else None
        self.entropy.install()
        if arrays is not None:
            arrays.install(numpy)
        self.extras = self.injected()
        self.stdlib = sysconfig.get_paths()["stdlib"]
        self.prepare_layers()
        gc.collect()
        gc.freeze()

    def prepare_layers(self) -> None:
        """What the workers will lock themselves in with."""
        confine = self.confine
        if self.level == "L1":
            module = sibling("seatbelt")
            self.seatbelt = (module, module.load())
            return
        if sys.platform != "linux":
            return  # L0
        if self.level != "L0":
            self.filter = confine.build_filter(confine.machine())
        if self.level in ("L3", "L2"):
            self.ruleset = confine.landlock_ruleset()
        confine.first_to_die()
        self.memory = confine.own_address_space() + (self.settings["memory_mb"] << 20)
        if self.how == "own":
            sibling("namespaces").empty_root()

    def injected(self) -> dict[str, Any]:
        """Names every program finds without importing them: `ToolEnv`."""
        path = self.settings["tools"]
        if not os.path.exists(path):
            return {}
        names: dict[str, Any] = {"__name__": "spade_tools"}
        with open(path, encoding="utf-8") as file:
            exec(compile(file.read(), "<tools>", "exec"), names)
        return {"ToolEnv": names["ToolEnv"]}

    def say(self, message: dict[str, Any], descriptor: int | None = None) -> None:
        """One message to the parent."""
        self.messages.send_whole(self.control, message, descriptor)

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
        inbox = self.messages.Inbox()
        self.say({"ready": 1})
        while True:
            events = dict(poll.poll())
            if wake_read in events:
                os.read(wake_read, 4096)
                self.reap()
            if self.control.fileno() in events and not self.handle(inbox):
                break
        for pid in self.children:
            os.kill(pid, signal.SIGKILL)
        for pid in list(self.children):
            os.waitpid(pid, 0)

    def handle(self, inbox: Any) -> bool:
        """Requests of the parent; False when there will be no more."""
        try:
            messages = inbox.receive(self.control)
        except ConnectionError:
            return False  # the parent went away with our reports unread
        if messages is None:
            return False
        for request, channel in messages:
            if "kill" in request:
                self.kill(request["kill"])
            elif channel is not None:
                self.spawn(request, channel)
                os.close(channel)
        return True

    def kill(self, number: int) -> None:
        """End one worker; what is not reaped yet still has its pid."""
        for pid, held in self.children.items():
            if held == number:
                os.kill(pid, signal.SIGKILL)

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
        handle = None
        if self.level != "L1":  # where L1 is used there are no pidfds: the parent asks for kills instead
            with contextlib.suppress(OSError, AttributeError):
                handle = os.pidfd_open(pid)
        self.say({"id": number, "pid": pid}, handle)
        if handle is not None:
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
            mode, probe = request["mode"], request["probe"]
            checks = self.selftest.Checks(probe) if mode == "selftest" else None
            self.lock_in(checks)
            if checks is not None:
                checks.in_place(self.level)
                os.write(CHANNEL, checks.report())
                os.read(CHANNEL, 1)  # stay until the parent has looked at this process
            elif mode == "call":
                with contextlib.suppress(OSError):
                    self.selftest.raw_call(probe["number"], 0, 0, 0, 0)
            else:
                self.guests[-1].main(self.extras, (self.entropy.current, self.entropy.Stream), self.stdlib)
            status = 0
        finally:
            os._exit(status)

    def lock_in(self, checks: Any) -> None:
        """All layers of this level, in the order in which each still permits the next."""
        confine = self.confine
        if checks is not None and self.level == "L3":
            checks.before_confinement()
        confine.set_limits(self.memory, 16)
        if self.ruleset >= 0:
            confine.no_new_privs()
            confine.landlock_restrict(self.ruleset)
            if checks is not None:
                checks.after_landlock()
        os.closerange(CHANNEL + 1, 256)
        if self.seatbelt is not None:
            module, library = self.seatbelt
            module.leave_root(self.settings["uid"])
            module.apply(library)
        elif self.filter:
            confine.no_new_privs()
            confine.drop_privileges(self.settings["uid"])
            confine.install_filter(self.filter)
        elif sys.platform == "linux":
            confine.die_with_parent()


def enter_namespaces(uid: int, control: socket.socket) -> None:
    """Level L3: go on as first process of new namespaces; the outer process only waits for the inner one."""
    sibling("namespaces").unshare_namespaces(uid)
    pid = os.fork()
    if pid:
        control.close()
        _, status = os.waitpid(pid, 0)
        os._exit(os.waitstatus_to_exitcode(status) & 0xFF)
    sibling("confine").die_with_parent()


def main() -> None:
    """Entry point."""
    settings = json.loads(sys.argv[2])
    grow_stack(settings["stack_mb"])
    # Descriptor 3 becomes every worker's channel: keep our own descriptors away from it.
    descriptor = fcntl.fcntl(int(sys.argv[1]), fcntl.F_DUPFD_CLOEXEC, 8)
    os.dup2(0, int(sys.argv[1]), inheritable=False)
    os.dup2(0, CHANNEL, inheritable=False)
    control = socket.socket(fileno=descriptor)
    for name in ("LD_LIBRARY_PATH", "PWD"):  # the interpreter's, bwrap's
        os.environ.pop(name, None)
    make_siblings_importable()
    zygote = Zygote(control, settings)
    try:
        if zygote.how == "own":
            enter_namespaces(zygote.settings["uid"], control)
        zygote.prepare()
    except OSError as error:
        zygote.say({"error": error.strerror or str(error)})
        return
    except Exception as error:  # whatever it is, the parent must hear why there is no sandbox
        zygote.say({"error": f"{type(error).__name__}: {error}"})
        return
    zygote.serve()


if __name__ == "__main__":
    main()

"""Every kind of socket."""

import socket

PORT = 1  # of a listener on this machine
REPORT = []


def attempt(name, call):
    try:
        REPORT.append(f"{name}={str(call())[:60]}")
    except BaseException as error:
        REPORT.append(f"{name}!{type(error).__name__}")


class HostEnv:
    def reset(self, seed=None):
        return "obs", {}

    def step(self, action):
        attempt('tcp', lambda: socket.create_connection(("127.0.0.1", PORT), 1))
        attempt('tcp6', lambda: socket.socket(socket.AF_INET6))
        attempt('udp', lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", PORT)))
        attempt('unix', lambda: socket.socket(socket.AF_UNIX))
        attempt('pair', socket.socketpair)
        attempt('netlink', lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0))
        attempt('packet', lambda: socket.socket(17, socket.SOCK_RAW))
        attempt('vsock', lambda: socket.socket(40, socket.SOCK_STREAM))
        attempt('dns', lambda: socket.getaddrinfo("example.com", 80))
        attempt('name', socket.gethostname)
        attempt('host', lambda: socket.gethostbyname("example.com"))
        attempt('channel', lambda: socket.socket(fileno=3).getpeername())
        return " | ".join(REPORT), 0.0, False, False, {}

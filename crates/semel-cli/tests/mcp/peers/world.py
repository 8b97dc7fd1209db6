"""What the programs here share: files, ports, and waiting."""

import os
import socket
import time

HERE = os.path.dirname(os.path.abspath(__file__))
FIXTURE = os.path.join(os.path.dirname(HERE), "fixture", "server.py")

# What hangs is a failure, too.
PATIENCE_SECONDS = 120


def read(path):
    """Returns the text of a file, or nothing where there is none."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except FileNotFoundError:
        return None


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def listens(port):
    try:
        socket.create_connection(("127.0.0.1", port)).close()
        return True
    except ConnectionRefusedError:
        return False


def wait_for(look):
    """Waits until there is something, and returns it."""
    end = time.monotonic() + PATIENCE_SECONDS
    while not (found := look()):
        if time.monotonic() > end:
            raise SystemExit("something never came")
        time.sleep(0.01)
    return found

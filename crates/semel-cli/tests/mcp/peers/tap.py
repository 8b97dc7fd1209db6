"""Passes everything between a client and a server on, and lets the held answer go when a call comes again.

Usage: tap.py stdio CALLS RELEASE COMMAND...   |   tap.py http CALLS RELEASE PORT TARGET_PORT

It changes nothing. A line is added to the file CALLS for each `tools/call` of the client; at the second one the
file RELEASE is made, which the server waits for (fixture/desk.py): so the answer of the first call goes out when
its client has given it up and asks again, however long that client's patience is.
"""

import re
import socket
import subprocess
import sys
import threading

CALL = re.compile(rb'"method"\s*:\s*"tools/call"')
PIECE = 64 * 1024


class Count:
    """Counts the calls in what goes by, wherever it is cut into pieces."""

    lock = threading.Lock()
    calls = 0

    def __init__(self, calls, release):
        self.files = calls, release
        self.rest = b""

    def see(self, piece):
        self.rest += piece
        end = 0
        for found in CALL.finditer(self.rest):
            end = found.end()
            self.called()
        # Half of a match may be at the end.
        self.rest = self.rest[max(end, len(self.rest) - 64) :]

    def called(self):
        calls, release = self.files
        with Count.lock:
            Count.calls += 1
            with open(calls, "a", encoding="utf-8") as file:
                file.write("call\n")
            if Count.calls == 2:
                open(release, "w", encoding="utf-8").close()


def pump(read, write, close, see=None):
    """Passes on until one side ends, and ends the other."""
    try:
        while piece := read(PIECE):
            if see is not None:
                see(piece)
            write(piece)
    except OSError:
        pass
    try:
        close()
    except OSError:
        pass


def over_pipes(count, command):
    child = subprocess.Popen(command, stdin=subprocess.PIPE, bufsize=0)

    def write(piece):
        view = memoryview(piece)
        while view:
            view = view[child.stdin.write(view) :]

    thread = threading.Thread(
        target=pump, args=(sys.stdin.buffer.read1, write, child.stdin.close, count.see), daemon=True
    )
    thread.start()
    sys.exit(child.wait())


def over_sockets(count_files, port, target):
    listener = socket.create_server(("127.0.0.1", port))
    while True:
        client, _ = listener.accept()
        server = socket.create_connection(("127.0.0.1", target))
        count = Count(*count_files)
        for one, other, see in ((client, server, count.see), (server, client, None)):
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

            def close(one=one, other=other):
                # Whoever closes leaves: the other side must see it at once.
                other.shutdown(socket.SHUT_RDWR)
                one.shutdown(socket.SHUT_RDWR)

            threading.Thread(target=pump, args=(one.recv, other.sendall, close, see), daemon=True).start()


def main():
    how, calls, release, *rest = sys.argv[1:]
    if how == "stdio":
        over_pipes(Count(calls, release), rest)
    else:
        over_sockets((calls, release), int(rest[0]), int(rest[1]))


main()

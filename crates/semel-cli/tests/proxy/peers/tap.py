"""Stands between a client and what it calls, changes nothing of what is said, and loses what it is told to lose.

- `pass`: nothing is lost;
- `cut`: both connections are reset when the first answer begins to come, and nothing of it is passed on;
- `break`: so they are within the first answer, after its beginning was passed on.

When the client asks the second time, `on_second` is called.
"""

import socket
import struct
import threading

PIECE = 64 * 1024


class Tap:
    def __init__(self, target, fault, on_second):
        self.target, self.fault, self.on_second = target, fault, on_second
        self.requests = 0
        self.lock = threading.Lock()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.listen, daemon=True).start()

    def listen(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self.target))
            for one, other, see in ((client, server, self.asked), (server, client, self.answered)):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                threading.Thread(target=pump, args=(one, other, see), daemon=True).start()

    def asked(self, piece):
        # These clients begin a request with a piece of its own.
        if piece.startswith((b"POST ", b"GET ")):
            with self.lock:
                self.requests += 1
                if self.requests == 2:
                    self.on_second()
        return piece, True

    def answered(self, piece):
        """Returns what is passed on, and whether it goes on after that."""
        with self.lock:
            fault, self.fault = self.fault, "pass"
        if fault == "cut":
            return b"", False
        if fault == "break":
            # The head and the beginning of what follows it.
            end = piece.find(b"\r\n\r\n") + 4
            return piece[: end + 20], False
        return piece, True

    def close(self):
        self.listener.close()


def pump(read_from, write_to, see):
    """Passes on until one side ends, and ends the other."""
    try:
        while piece := read_from.recv(PIECE):
            passed, goes_on = see(piece)
            write_to.sendall(passed)
            if not goes_on:
                reset(read_from)
                reset(write_to)
                return
    except OSError:
        pass
    for end in (read_from, write_to):
        try:
            end.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass


def reset(end):
    """Ends a connection as a machine does that is gone: whoever speaks to it is told that nobody is there."""
    try:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        # The other thread still reads from it; only this makes it leave.
        end.shutdown(socket.SHUT_RD)
        end.close()
    except OSError:
        pass

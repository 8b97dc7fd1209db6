"""An API of payments and of language models, in threads: each request that acts adds a line to a list.

It knows nothing of Semel, and does as it is told with its first answer:

- `answer`: nothing is wrong;
- `drop`: the connection is closed after the effect;
- `hold`: the answer waits until it is let go;
- `pause`: so does the rest of it, after its beginning.
"""

import json
import socket
import threading

PATIENCE_SECONDS = 120


def read_request(reader):
    """Returns the first line, the headers in small letters, and the body; nothing at the end of a connection."""
    first = reader.readline().decode("latin-1").strip()
    if not first:
        return None
    headers = {}
    while line := reader.readline().decode("latin-1").strip():
        name, _, value = line.partition(":")
        headers[name.lower()] = value.strip()
    if "chunked" in headers.get("transfer-encoding", ""):
        body = b""
        while size := int(reader.readline().split(b";")[0], 16):
            body += reader.read(size)
            reader.readline()
        while reader.readline().strip():
            pass
    else:
        body = reader.read(int(headers.get("content-length", 0)))
    return first, headers, body


class Upstream:
    def __init__(self, fault):
        self.fault = fault
        self.effects = []
        self.lock = threading.Lock()
        self.released = threading.Event()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.listen, daemon=True).start()

    def listen(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(connection,), daemon=True).start()

    def serve(self, connection):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with connection, connection.makefile("rb") as reader:
            try:
                while request := read_request(reader):
                    if not self.answer(connection, *request):
                        connection.shutdown(socket.SHUT_RDWR)
                        return
            except (OSError, ValueError):
                # Whoever left does not read the rest.
                return

    def answer(self, connection, first, headers, body):
        method, target, _ = first.split(" ")
        with self.lock:
            self.effects.append((method, target, headers.get("idempotency-key")))
            number = len(self.effects)
            fault, self.fault = self.fault, "answer"
        if fault == "drop":
            return False
        if fault == "hold":
            self.pause()
        path = target.split("?")[0]
        asked = json.loads(body) if headers.get("content-type", "").startswith("application/json") else {}
        make = {"/v1/payment_intents": payment, "/v1/chat/completions": completion, "/v1/messages": message}[path]
        plain, events = make(number)
        if not asked.get("stream"):
            send(connection, "application/json", [json.dumps(plain)])
        else:
            send(connection, "text/event-stream", events, self.pause if fault == "pause" else None)
        return True

    def pause(self):
        self.released.wait(PATIENCE_SECONDS)

    def close(self):
        self.released.set()
        self.listener.close()


def send(connection, kind, pieces, pause=None):
    """Sends an answer of one piece with its length, and one of several in chunks, with a pause after two of them."""
    head = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nRequest-Id: req_1\r\n"
    if len(pieces) == 1:
        body = pieces[0].encode()
        connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        return
    connection.sendall(f"{head}Transfer-Encoding: chunked\r\n\r\n".encode())
    for number, piece in enumerate(pieces):
        if pause and number == 2:
            pause()
        body = piece.encode()
        connection.sendall(f"{len(body):x}\r\n".encode() + body + b"\r\n")
    connection.sendall(b"0\r\n\r\n")


def payment(number):
    intent = {"id": f"pi_{number}", "object": "payment_intent", "amount": 500, "currency": "eur", "status": "succeeded"}
    return intent, []


def completion(number):
    text = f"answer {number}"
    plain = {
        "id": f"chatcmpl-{number}",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [
            {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text, "refusal": None}}
        ],
        "usage": {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3},
    }

    def chunk(delta, finish):
        data = {
            "id": f"chatcmpl-{number}",
            "object": "chat.completion.chunk",
            "created": 1,
            "model": "m",
            "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
        }
        return f"data: {json.dumps(data)}\n\n"

    deltas = [chunk({"content": piece}, None) for piece in ("answer", " ", str(number))]
    events = [chunk({"role": "assistant", "content": ""}, None), *deltas, chunk({}, "stop"), "data: [DONE]\n\n"]
    return plain, events


def message(number):
    usage = {"input_tokens": 1, "output_tokens": 2}
    plain = {
        "id": f"msg_{number}",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [{"type": "text", "text": f"answer {number}"}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": usage,
    }

    def event(kind, **rest):
        return f"event: {kind}\ndata: {json.dumps({'type': kind, **rest})}\n\n"

    begun = {**plain, "content": [], "stop_reason": None}
    deltas = [
        event("content_block_delta", index=0, delta={"type": "text_delta", "text": piece})
        for piece in ("answer", " ", str(number))
    ]
    events = [
        event("message_start", message=begun),
        event("content_block_start", index=0, content_block={"type": "text", "text": ""}),
        *deltas,
        event("content_block_stop", index=0),
        event("message_delta", delta={"stop_reason": "end_turn", "stop_sequence": None}, usage=usage),
        event("message_stop"),
    ]
    return plain, events

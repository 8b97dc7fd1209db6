"""Real clients, unmodified, whose answers are lost: each acts twice without Semel, and once with it.

Usage: clients.py SEMEL PEERS all|direct   (PEERS is what `setup` prints)

What goes wrong, and what each client does then:

- `none`: nothing. The client asks the same three times, and means it: three effects, with Semel too.
- `drop`: the API closes the connection after the effect. The client tries again by itself. With Semel it is told that
  nobody knows what happened, and that trying again will not help: one effect.
- `cut`: the client's own connection is lost after the effect. The client tries again by itself, and then asks a second
  time. With Semel its retry gets the answer of the first, and its second question an answer of its own.
- `late`: the answer comes after the client's patience. As `cut`.
- `break`: the client's own connection is lost within a stream. It asks again. As `cut`, but for the broken first answer.
"""

import json
import os
import subprocess
import sys
import tempfile
import time

from tap import Tap
from upstream import Upstream

HERE = os.path.dirname(os.path.abspath(__file__))

# What hangs is a failure, too.
PATIENCE_SECONDS = 120

# A client's patience: enough for a busy machine, except where it is to run out.
LONG, SHORT = 60, 3


def clients(peers):
    """Names the clients, how each is started, what it sends, and whether it can read a stream."""
    python, node = f"{peers}/python/bin/python", f"{peers}/node"
    for name, program, streams in (("Stripe", "stripe_sdk", False), ("OpenAI", "openai_sdk", True), ("Anthropic", "anthropic_sdk", True)):
        yield f"{name} for Python", [python, f"{HERE}/{program}.py"], streams
        yield f"{name} for Node", [node, f"{peers}/{program}.mjs"], streams


def faults(streams):
    """Names what goes wrong, how the client asks, and how often."""
    yield "none", "plain", 3
    yield "drop", "plain", 1
    yield "cut", "plain", 2
    yield "late", "plain", 2
    if streams:
        yield "none", "stream", 3
        yield "drop", "stream", 1
        yield "cut", "stream", 2
        yield "late", "stream", 2
        yield "break", "stream", 3


def wait_for(look):
    end = time.monotonic() + PATIENCE_SECONDS
    while not (found := look()):
        if time.monotonic() > end:
            raise SystemExit("something never came")
        time.sleep(0.01)
    return found


def start_proxy(semel, directory, port, words):
    """Starts the proxy, and returns its process and where it listens."""
    log = os.path.join(directory, "log")
    environment = {"PATH": os.environ["PATH"], "HOME": directory, "SEMEL_STORE": f"sqlite:{directory}/semel.db"}
    command = [semel, "proxy", "--listen", "127.0.0.1:0", "--upstream", f"http://127.0.0.1:{port}", *words]
    with open(log, "w", encoding="utf-8") as file:
        process = subprocess.Popen(command, env=environment, stderr=file, stdin=subprocess.DEVNULL, cwd=directory)

    def listening():
        if process.poll() is not None:
            raise SystemExit(f"the proxy did not start:\n{open(log, encoding='utf-8').read()}")
        for line in open(log, encoding="utf-8"):
            try:
                said = json.loads(line)
            except json.JSONDecodeError:
                continue
            if said.get("message") == "listening":
                return int(said["address"].rstrip("/").rsplit(":", 1)[1])
        return None

    return process, wait_for(listening)


def play(semel, client, fault, how, calls):
    """Returns how often the client asked, how many effects there were, and what it was told."""
    proxy = None
    upstream = Upstream({"drop": "drop", "late": "hold", "break": "pause"}.get(fault, "answer"))
    with tempfile.TemporaryDirectory() as directory:
        try:
            port = upstream.port
            if semel:
                # Of a payment nobody knows what a lost answer means; a completion is only paid for.
                words = ["--profile", "llm"] if "stripe" not in client[-1] and fault != "drop" else []
                proxy, port = start_proxy(semel, directory, port, words)
            tap = Tap(port, fault if fault in ("cut", "break") else "pass", upstream.released.set)
            seconds = SHORT if fault == "late" else LONG
            command = [*client, f"http://127.0.0.1:{tap.port}", str(calls), how, str(seconds)]
            ran = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
            tap.close()
            if ran.returncode != 0:
                raise SystemExit(f"clients: {command} failed:\n{ran.stderr}")
            return tap.requests, len(upstream.effects), json.loads(ran.stdout.splitlines()[-1])
        finally:
            if proxy:
                proxy.kill()
                proxy.wait()
            upstream.close()


def number(text):
    """Returns the number of the effect that an answer is from."""
    return str(text).split()[-1].split("_")[-1]


def is_right(semel, fault, asked, effects, told):
    if fault == "none":
        return effects == 3 and [number(text) for text in told] == ["1", "2", "3"]
    if fault == "drop":
        # Without Semel the client asked again by itself, and both acted.
        return (effects == 1 and str(told[0]).startswith("error")) if semel else (asked >= 2 and effects >= 2)
    if not semel:
        return asked >= 3 and effects >= 3
    own = told[1:] if fault == "break" else told
    if fault == "break" and not str(told[0]).startswith("broken"):
        return False
    return asked >= 3 and effects == 2 and [number(text) for text in own] == ["1", "2"]


def main():
    semel, peers = (os.path.abspath(path) for path in sys.argv[1:3])
    ways = [None] if sys.argv[3] == "direct" else [None, semel]
    wrong = 0
    for name, client, streams in clients(peers):
        for fault, how, calls in faults(streams):
            for way in ways:
                asked, effects, told = play(way, client, fault, how, calls)
                right = is_right(way, fault, asked, effects, told)
                wrong += not right
                print(
                    f"{'ok' if right else 'WRONG':5} {name}, {how}, {fault}, {'with Semel' if way else 'without'}: "
                    f"asked {asked} times, {effects} effects, told {told}",
                    flush=True,
                )
    if wrong:
        raise SystemExit(f"clients: {wrong} went wrong")


main()

"""Real clients, unmodified, whose call is answered too late: each acts twice without Semel, and once with it.

Usage: clients.py SEMEL PEERS   (PEERS is what `setup` prints)

The server holds the first answer back until the client has asked again. Then the client, which has its result,
asks once more. So without Semel there are three effects, or more where a client is less patient; with it there are
two: none is repeated, and none is swallowed.
"""

import json
import os
import subprocess
import sys
import tempfile

from world import FIXTURE, HERE, PATIENCE_SECONDS, free_port, listens, read, wait_for


def clients(peers):
    """Names the clients, the eras that each speaks, and how it is started."""
    python, node = f"{peers}/python/bin/python", f"{peers}/node"
    older = f"{peers}/python1/bin/python"
    yield "Python SDK 2", ["legacy", "modern"], [python, f"{HERE}/python_v2.py"]
    yield "Python SDK 1", ["legacy"], [older, f"{HERE}/python_v1.py"]
    yield "TypeScript SDK 2", ["legacy", "modern"], [node, f"{peers}/typescript_v2.mjs"]
    yield "TypeScript SDK 1", ["legacy"], [node, f"{peers}/typescript_v1.mjs"]
    yield "OpenAI Agents", ["legacy", "modern"], [python, f"{HERE}/openai_agents.py"]
    if os.environ.get("SEMEL_TEST_FULL") == "1":
        yield "CrewAI", ["legacy"], [older, f"{HERE}/crew.py"]


class World:
    """A server, the way to it, and what must be ended."""

    def __init__(self, directory, semel, era):
        self.directory, self.semel, self.era = directory, semel, era
        self.started = []
        os.mkdir(self.path("desk"))
        with open(self.path("desk/fault"), "w", encoding="utf-8") as file:
            file.write("hold")

    def path(self, name):
        return os.path.join(self.directory, name)

    def count(self, name):
        try:
            with open(self.path(name), encoding="utf-8") as file:
                return len(file.read().splitlines())
        except FileNotFoundError:
            return 0

    def environment(self):
        return {
            "PATH": os.environ["PATH"],
            "HOME": self.directory,
            "FIXTURE_DESK": self.path("desk"),
            "FIXTURE_ERA": self.era,
            "SEMEL_STORE": f"sqlite:{self.path('semel.db')}",
        }

    def start(self, command):
        with open(self.path(f"log-{len(self.started)}"), "w", encoding="utf-8") as log:
            self.started.append(
                subprocess.Popen(command, env=self.environment(), stderr=log, stdin=subprocess.DEVNULL)
            )

    def end(self):
        for process in self.started:
            process.kill()
            process.wait()

    def tap(self, how, *rest):
        tap = [sys.executable, f"{HERE}/tap.py", how, self.path("calls"), self.path("desk/release")]
        return tap + [str(word) for word in rest]

    def over_pipes(self):
        """Returns the command line that a client starts."""
        gateway = [self.semel, "mcp", "--"] if self.semel else []
        # Clients hand on little of their environment.
        told = [f"{name}={value}" for name, value in self.environment().items()]
        return ["/usr/bin/env", *told, *self.tap("stdio", *gateway, sys.executable, FIXTURE, "stdio")]

    def over_http(self):
        """Starts everything, and returns the address that a client is given."""
        self.start([sys.executable, FIXTURE, "http"])
        port = int(wait_for(lambda: read(self.path("desk/port"))))
        if self.semel:
            gateway = free_port()
            upstream = f"http://127.0.0.1:{port}/mcp"
            self.start([self.semel, "mcp", "--listen", f"127.0.0.1:{gateway}", "--upstream", upstream])
            wait_for(lambda: listens(gateway))
            port = gateway
        tapped = free_port()
        self.start(self.tap("http", tapped, port))
        wait_for(lambda: listens(tapped))
        return [f"http://127.0.0.1:{tapped}/mcp"]

    def told(self):
        """Returns what everybody wrote to standard error."""
        logs = (self.path(f"log-{number}") for number in range(len(self.started)))
        return "\n".join(filter(None, (read(log) for log in logs)))


def play(semel, how, era, client):
    """Returns how many calls the client made, how many effects there were, and what it was told."""
    with tempfile.TemporaryDirectory() as directory:
        world = World(directory, semel, era)
        try:
            target = world.over_http() if how == "http" else world.over_pipes()
            ran = subprocess.run(
                [*client, how, era, *target],
                cwd=directory,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                timeout=PATIENCE_SECONDS,
                check=False,
            )
            if ran.returncode != 0:
                raise SystemExit(f"clients: {client[-1]} {how} {era} failed:\n{ran.stderr}\n{world.told()}")
            told = json.loads(ran.stdout.splitlines()[-1])
            return world.count("calls"), world.count("desk/effects"), told
        finally:
            world.end()


def main():
    semel, peers = (os.path.abspath(path) for path in sys.argv[1:3])
    wrong = 0
    for name, eras, client in clients(peers):
        for era in eras:
            for how in ("stdio", "http"):
                for gateway in (None, semel):
                    calls, effects, told = play(gateway, how, era, client)
                    right = calls >= 3 and (effects == 2 if gateway else effects >= 3)
                    # The retry is given the first outcome, the repeat an outcome of its own.
                    right = right and (gateway is None or told == ["charge 1", "charge 2"])
                    wrong += not right
                    way = "with Semel" if gateway else "without"
                    print(
                        f"{'ok' if right else 'WRONG':5} {name}, {era}, {how}, {way}: "
                        f"{calls} calls, {effects} effects, told {told}",
                        flush=True,
                    )
    if wrong:
        raise SystemExit(f"clients: {wrong} went wrong")


main()

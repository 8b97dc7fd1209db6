"""The official conformance suite, against a server directly and through the gateway: the checks must be the same.

Usage: conformance.py SEMEL PEERS   (PEERS is what `setup` prints)

What a server does not do by itself it need not do through the gateway; what it does, it must. So the suite's own
verdict does not matter here, but that it is the same. Where the gateway does better than the server, BETTER says
so, check by check, and BESIDE names the checks that only the gateway's streams bring about.
"""

import collections
import json
import os
import subprocess
import sys
import tempfile

from world import FIXTURE, free_port, listens, read, wait_for

# Checks that a server fails by itself, or that do not apply to it, and that the gateway passes for it, with the reason.
BETTER = {
    "server-session-terminated-returns-404": "the sessions of a child are the gateway's own, and end when they are told to",
    "localhost-host-rebinding-rejected": "the gateway looks at Host and Origin, whatever is behind it",
    "server-sse-streams-functional": "in front of a child answers come as events",
    "server-sse-priming-event": "answers that come as events can be asked for again",
    "server-sse-retry-field": "the gateway says when to ask for the rest of an answer",
    "sep-2243-server-decode-base64": "in front of a child the gateway reads the headers, encoded or not",
    "sep-2243-server-accepts-whitespace-header-value": "HTTP takes the space around a header's value away",
    "sep-2575-http-server-unsupported-version-400": "in front of a child the gateway gives errors their status",
}

# Checks that say nothing, where the suite does not make them of the server itself, with the reason.
BESIDE = {
    "server-sse-disconnect-resume": "it waits for the result of a tool that the fixture does not have",
}

# A suite takes seconds; what hangs is a failure, too.
PATIENCE_SECONDS = 300

# A suite that ran into a wall has few checks.
CHECKS_MIN = 40


class Server:
    """A server that can be spoken to over HTTP, and started over pipes."""

    def __init__(self, name, revision, http, stdio):
        self.name, self.revision = name, revision
        self.http, self.stdio = http, stdio


def servers(peers):
    everything = [f"{peers}/node", f"{peers}/node_modules/@modelcontextprotocol/server-everything/dist/index.js"]
    yield Server("server-everything", "2025-11-25", [*everything, "streamableHttp"], [*everything, "stdio"])
    fixture = [sys.executable, FIXTURE]
    for revision in ("2025-11-25", "2026-07-28"):
        yield Server("fixture", revision, [*fixture, "http"], [*fixture, "stdio"])


class Run:
    """One run of the suite, and what it started."""

    def __init__(self, semel, peers, directory):
        self.semel, self.peers, self.directory = semel, peers, directory
        self.started = []

    def path(self, name):
        return os.path.join(self.directory, name)

    def start(self, command, port):
        """Starts whoever listens there."""
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": self.directory,
            "PORT": str(port),
            "FIXTURE_PORT": str(port),
            "FIXTURE_DESK": self.directory,
            "SEMEL_STORE": f"sqlite:{self.path('semel.db')}",
        }
        log = self.path(f"log-{len(self.started)}")
        with open(log, "w", encoding="utf-8") as file:
            process = subprocess.Popen(
                command, env=environment, cwd=self.directory, stdin=subprocess.DEVNULL, stdout=file, stderr=file
            )
        self.started.append(process)

        def ready():
            if process.poll() is not None:
                raise SystemExit(f"conformance: {' '.join(command)} ended:\n{read(log)}")
            return listens(port)

        wait_for(ready)

    def gateway(self, *upstream):
        port = free_port()
        self.start([self.semel, "mcp", "--listen", f"127.0.0.1:{port}", *upstream], port)
        return port

    def server(self, server):
        port = free_port()
        self.start(server.http, port)
        return port

    def checks(self, port, revision):
        """Runs the suite; counts each check of each scenario with its result."""
        suite = f"{self.peers}/node_modules/@modelcontextprotocol/conformance/dist/index.js"
        out = self.path("out")
        command = [f"{self.peers}/node", suite, "server", "--url", f"http://127.0.0.1:{port}/mcp"]
        command += ["--suite", "all", "--spec-version", revision, "-o", out]
        # It fails where any check does: what it found is in its files.
        ran = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
        found = collections.Counter()
        for scenario in sorted(os.listdir(out)) if os.path.isdir(out) else []:
            # The name ends with the time.
            name = scenario[: -len("-2026-01-01T00-00-00-000Z")]
            for check in json.loads(read(os.path.join(out, scenario, "checks.json"))):
                # What is only told is no result: it depends on whether an answer was streamed.
                if check["status"] != "INFO":
                    found[(name, check["id"], check["status"])] += 1
        if sum(found.values()) < CHECKS_MIN:
            raise SystemExit(f"conformance: only {len(found)} checks:\n{ran.stdout}\n{ran.stderr}")
        return found

    def end(self):
        for process in self.started:
            process.kill()
            process.wait()


def run(semel, peers, revision, arrange):
    with tempfile.TemporaryDirectory() as directory:
        this = Run(semel, peers, directory)
        try:
            return this.checks(arrange(this), revision)
        finally:
            this.end()


def differences(direct, through):
    """Names what is not the same, but for what is known to be better or beside the point."""
    made = {name for _, name, _ in direct}
    for check in sorted(set(direct) | set(through)):
        _, name, status = check
        if direct[check] == through[check]:
            continue
        if name in BETTER and (status == "SUCCESS") == (through[check] > direct[check]):
            continue
        if name in BESIDE and name not in made:
            continue
        yield f"  {' '.join(check)}: {direct[check]} directly, {through[check]} through the gateway"


def main():
    semel, peers = (os.path.abspath(path) for path in sys.argv[1:3])
    wrong = 0
    for server in servers(peers):
        direct = run(semel, peers, server.revision, lambda this: this.server(server))
        passed = sum(count for (_, _, status), count in direct.items() if status == "SUCCESS")
        print(f"{server.name}, {server.revision}: {sum(direct.values())} checks, {passed} pass", flush=True)
        ways = {
            "HTTP": lambda this: this.gateway("--upstream", f"http://127.0.0.1:{this.server(server)}/mcp"),
            "a child": lambda this: this.gateway("--", *server.stdio),
        }
        for way, arrange in ways.items():
            through = run(semel, peers, server.revision, arrange)
            found = list(differences(direct, through))
            wrong += len(found)
            print(f"{'WRONG' if found else 'ok':5} through the gateway to {way}", *found, sep="\n", flush=True)
    if wrong:
        raise SystemExit(f"conformance: {wrong} checks differ")


main()

"""A worker that carries no requests: it speaks the control process's protocol, and does what its script says.

Run by file name as a supervisor's command. `--journal FILE` gets a line for its start and for each message it hears.
"""

import argparse
import json
import os
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

from tokenpool_router import series
from tokenpool_router.gauges import Gauges

SCRIPTS = (
    "good",
    "ends-at-once",
    "ends-at-first",  # and is good when it is started again
    "ends-on-tls",
    "mute",  # reads nothing, says nothing, and does not mind that nobody is there
    "late",  # reports after more than the time that one waits for it
    "waits",  # never takes clients, but reports
    "nonsense",
    "stays",  # does not end when told to drain
)
LATE_SECONDS = 1.3


class Worker:
    """Its line, its row, and what it has counted."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.script, self.journal = arguments.script, Path(arguments.journal)
        self.line = socket.socket(fileno=arguments.link_fd)
        self.gauges, self.row = Gauges(arguments.gauges_fd), arguments.row
        self.known: dict[str, Any] = {}
        self.reports = 0

    def note(self, **what: Any) -> None:
        with self.journal.open("a") as file:
            file.write(json.dumps({"pid": os.getpid(), "row": self.row, **what}) + "\n")

    def send(self, message: dict[str, Any]) -> None:
        self.line.sendall(json.dumps(message).encode() + b"\n")

    def run(self) -> None:
        starts = self.journal.read_text().count('"start"') if self.journal.exists() else 0
        self.note(kind="start")
        if self.script == "ends-at-once" or (self.script == "ends-at-first" and not starts):
            sys.exit(3)
        if self.script == "mute":
            stay()
        with self.line.makefile("rb") as lines:
            for line in lines:
                message = json.loads(line)
                if message["kind"] != "report":
                    self.note(**message)
                self.hear(message)

    def hear(self, message: dict[str, Any]) -> None:
        match message["kind"]:
            case "roster" | "callers":
                self.learn(message)
            case "report":
                if self.script == "late":
                    time.sleep(LATE_SECONDS)
                self.report(message["id"])
            case "tls" if self.script == "ends-on-tls":
                sys.exit(4)
            case "drain" if self.script != "stays":
                self.send({"kind": "spans", "spans": [{"name": "last words"}]})
                self.report(0)
                self.send({"kind": "drained"})
                sys.exit(0)

    def learn(self, message: dict[str, Any]) -> None:
        before = len(self.known)
        self.known[message["kind"]] = message
        for caller in (message.get("callers") or []) if message["kind"] == "callers" else []:
            self.gauges.set(self.row, caller["slot"], 100 * (self.row + 1), 1)
        if before < len(self.known) == 2 and self.script != "waits":
            self.send({"kind": "listening", "port": 1})

    def report(self, number: int) -> None:
        if self.script == "nonsense":
            self.line.sendall(b'{"kind": "report"}\n')
            return
        self.reports += 1
        roster = self.known.get("roster", {"generation": 0, "shards": []})
        load = {"outstanding_tokens": 10, "in_flight_requests": 1, "ejected": self.row == 0}
        self.send({
            "kind": "report", "id": number, "roster_generation": roster["generation"], "open_connections": 2,
            "queued_requests": 3, "queued_tokens": 30, "drain_tokens_per_second": 5.0,
            "shards": {shard["id"]: load for shard in roster["shards"]},
            "counters": [[series.REQUESTS.name, ["200"], self.reports]], "histograms": [],
            "vocabulary": {"7": 1},
        })  # fmt: skip


def stay() -> NoReturn:
    while True:
        signal.pause()


def main() -> None:
    flags = argparse.ArgumentParser()
    flags.add_argument("--script", choices=SCRIPTS, default="good")
    flags.add_argument("--journal", required=True)
    for name in ("--link-fd", "--gauges-fd", "--row"):
        flags.add_argument(name, type=int, required=True)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    Worker(flags.parse_args()).run()


if __name__ == "__main__":
    main()

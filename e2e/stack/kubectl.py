"""kubectl and helm as a person would call them, with their output as data. Real binaries, no client library."""

import json
import os
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

Object = dict[str, Any]


class CommandFailed(RuntimeError):
    """A command ended with a non-zero status; the text is what the user would have seen."""


@dataclass(frozen=True)
class Kubectl:
    """One kubeconfig, one namespace. `tools` is the folder with the kubectl and helm binaries."""

    tools: Path
    kubeconfig: Path
    namespace: str = "default"
    environment: Mapping[str, str] = field(default_factory=dict)

    def within(self, namespace: str) -> "Kubectl":
        """The same cluster, another namespace."""
        return Kubectl(self.tools, self.kubeconfig, namespace, self.environment)

    def run(self, *arguments: str, stdin: str | None = None, program: str = "kubectl", timeout: float = 300) -> str:
        """Standard output of the command; `CommandFailed` with standard error when it fails."""
        done = subprocess.run(  # noqa: S603 - our own binary, arguments from our own tests
            [str(self.tools / program), "--namespace", self.namespace, *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout,
            env={**os.environ, "KUBECONFIG": str(self.kubeconfig), **self.environment},
        )
        if done.returncode:
            raise CommandFailed(f"{program} {' '.join(arguments)}\n{done.stderr.strip()}")
        return done.stdout

    def helm(self, *arguments: str, timeout: float = 300) -> str:
        """The same for helm."""
        return self.run(*arguments, program="helm", timeout=timeout)

    def get(self, kind: str, name: str) -> Object:
        """One object; `CommandFailed` when there is none."""
        answer: Object = json.loads(self.run("get", kind, name, "-o", "json"))
        return answer

    def list(self, kind: str, selector: str = "") -> list[Object]:
        """All objects of a kind, by label selector."""
        answer: list[Object] = json.loads(self.run("get", kind, "-l", selector, "-o", "json"))["items"]
        return answer

    def apply(self, *objects: Object | str) -> str:
        """Server-side validation included; text is YAML."""
        documents = [entry if isinstance(entry, str) else json.dumps(entry) for entry in objects]
        return self.run("apply", "-f", "-", stdin="\n---\n".join(documents))

    def exists(self, kind: str, name: str) -> bool:
        """Whether the object is there."""
        return bool(self.run("get", kind, name, "-o", "name", "--ignore-not-found").strip())


T = TypeVar("T")


def wait_until(read: Callable[[], T], wanted: Callable[[T], bool], seconds: float, what: str) -> T:
    """Read until it is as wanted and return that; otherwise fail with what was last seen."""
    deadline = time.monotonic() + seconds
    while True:
        seen = read()
        if wanted(seen):
            return seen
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {seconds:.0f} s: {what}; last seen: {json.dumps(seen, default=str)[:3000]}")
        time.sleep(0.25)

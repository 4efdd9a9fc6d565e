"""The folder plan itself: what would break every import if someone "fixed" it."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("folder", ["operator", "crds", "kube", "workload", "tests", "e2e", "bench"])
def test_top_folders_are_not_packages(folder: str) -> None:
    # operator/__init__.py would shadow the standard library's `operator`: Python dies importing `collections`.
    assert not (ROOT / folder / "__init__.py").exists()


def test_the_standard_library_operator_wins() -> None:
    import operator

    assert operator.itemgetter(1)("ab") == "b"


def test_ci_runs_the_command_of_the_readme() -> None:
    commands = [line for line in (ROOT / ".ci/run").read_text().splitlines() if line.startswith("make")]
    assert commands == ["make test"]
    assert "\nmake test " in (ROOT / "README.md").read_text()


@pytest.mark.parametrize(
    "lock",
    sorted([*(ROOT / "requirements").glob("*.txt"), *(ROOT / "bench/peers").glob("*.txt")]),
    ids=lambda path: path.name,
)
def test_locks_record_hashes_but_no_addresses(lock: Path) -> None:
    text = lock.read_text()
    assert "--hash=sha256:" in text
    assert "://" not in text

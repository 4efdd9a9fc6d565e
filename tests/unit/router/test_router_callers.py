"""API keys and quotas: what the Secret says, who is found by a key, how much a caller may have."""

import json
import os
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenpool_router.callers import Caller, Callers, Quota, WrongCaller, read_caller
from tokenpool_router.callers.caller import from_message, to_message
from tokenpool_router.callers.folder import MOST_CALLERS, read_callers
from tokenpool_router.waiting import Priority

ONE, TWO = (sha256(key).hexdigest() for key in (b"key-one", b"key-two"))


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (ONE, Caller("team", (ONE,))),
        (f"sha256:{ONE.upper()}\n\nsha256:{TWO}\n", Caller("team", (ONE, TWO))),
        (json.dumps({"sha256": ONE}), Caller("team", (ONE,))),
        (
            json.dumps(
                {"sha256": [ONE, TWO], "tokensPerMinute": 600, "concurrency": 2, "weight": 3, "priority": "low"}
            ),
            Caller("team", (ONE, TWO), 600, 2, 3.0, Priority.LOW),
        ),
    ],
)
def test_what_a_file_tells(text: str, wanted: Caller) -> None:
    assert read_caller("team", text) == wanted
    assert from_message(json.loads(json.dumps(to_message(wanted)))) == wanted


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("team", "", "team: sha256 must hold 1 to 16 hashes"),
        (
            "team",
            "tp-my-key-itself",
            "team: sha256 must be 64 hexadecimal digits, the SHA-256 of a key and never the key",
        ),
        ("team", "{", "team: not valid JSON"),
        ("team", json.dumps({"sha256": [ONE], "tpm": 1}), "team: unknown field 'tpm'; known are concurrency, priority"),
        ("team", json.dumps({"tokensPerMinute": 1}), "team: sha256 must hold"),
        ("team", json.dumps({"sha256": [ONE], "tokensPerMinute": -1}), "team: tokensPerMinute must be a whole number"),
        ("team", json.dumps({"sha256": [ONE], "concurrency": True}), "team: concurrency must be a whole number"),
        ("team", json.dumps({"sha256": [ONE], "weight": 0}), "team: weight must be a number above 0"),
        (
            "team",
            json.dumps({"sha256": [ONE], "priority": "urgent"}),
            "team: priority must be one of high, normal, low",
        ),
        ("te am", ONE, "'te am': a caller's name must be"),
    ],
)
def test_what_tells_no_caller(name: str, text: str, words: str) -> None:
    with pytest.raises(WrongCaller) as wrong:
        read_caller(name, text)
    assert words in str(wrong.value)
    assert "tp-my-key-itself" not in str(wrong.value)


def test_a_secret_as_kubernetes_mounts_it(tmp_path: Path) -> None:
    def mount(version: str, **files: str) -> None:
        folder = tmp_path / f"..{version}"
        folder.mkdir()
        for name, text in files.items():
            (folder / name).write_text(text)
            if not (tmp_path / name).is_symlink():
                (tmp_path / name).symlink_to(f"..data/{name}")
        (tmp_path / "..new").symlink_to(folder.name)
        os.replace(tmp_path / "..new", tmp_path / "..data")

    mount("1", team=ONE, broken="oops")
    callers, errors = read_callers(str(tmp_path))
    assert ([caller.name for caller in callers], len(errors)) == (["team"], 1)
    mount("2", team=TWO)
    assert read_callers(str(tmp_path)) == ((Caller("team", (TWO,)),), ()), "a link to nothing is no file"
    assert read_callers(str(tmp_path / "nothing")) == ((), ())
    (tmp_path / "huge").write_text("x" * 20_000)
    assert "huge: larger than" in read_callers(str(tmp_path))[1][0]


def test_no_more_callers_than_can_be_counted(tmp_path: Path) -> None:
    for number in range(MOST_CALLERS + 1):
        (tmp_path / f"c{number:04}").write_text(ONE)
    callers, errors = read_callers(str(tmp_path))
    assert (len(callers), errors) == (MOST_CALLERS, ("1001 callers; only the first 1000 by name are known",))


@pytest.mark.parametrize(
    ("authorization", "name"),
    [
        (b"Bearer key-one", "a"),
        (b"bearer  key-two ", "b"),
        (b"Bearer key-three", None),
        (b"Bearer ", None),
        (b"Basic key-one", None),
        (b"key-one", None),
        (b"Bearer " + ONE.encode(), None),
        (None, None),
    ],
)
def test_who_is_found_by_a_key(authorization: bytes | None, name: str | None) -> None:
    callers = Callers([Caller("a", (ONE,)), Caller("b", (TWO, "0" * 64))], 0.0)
    found = callers.find(authorization)
    assert (found.name if found else None) == name


def test_keys_change_live_and_what_was_used_stays_used() -> None:
    caller = Caller("a", (ONE,), tokens_per_minute=100)
    callers = Callers([caller], 0.0)
    assert callers.begin(caller, 100, 0.0) is None
    callers.replace([Caller("a", (TWO,), tokens_per_minute=150), Caller("b", (ONE,))], 0.0)
    found = callers.find(b"Bearer key-two")
    assert found
    assert callers.find(b"Bearer key-one") == Caller("b", (ONE,))
    refusal = callers.begin(found, 51, 0.0)
    assert refusal
    assert callers.begin(found, 50, 0.0) is None
    callers.end(caller, 100, 10)
    callers.replace([], 0.0)
    callers.end(caller, 100, 10)
    assert callers.find(b"Bearer key-two") is None


def test_refusals_name_the_limit_and_the_time() -> None:
    caller = Caller("a", (ONE,), tokens_per_minute=600, concurrency=1)
    callers = Callers([caller], 0.0)
    assert callers.begin(caller, 600, 0.0) is None
    busy = callers.begin(caller, 1, 0.0)
    assert busy
    assert (busy.status, busy.code, "concurrency" in busy.message) == (429, "concurrency_limit", True)
    callers.end(caller, 600, 600)
    spent = callers.begin(caller, 100, 0.0)
    assert spent
    assert (spent.status, spent.code, spent.retry_after) == (429, "rate_limit_exceeded", 10)
    assert "600 tokens per minute (tokensPerMinute)" in spent.message
    assert callers.begin(caller, 100, 10.0) is None


def test_what_others_gave_counts_once_and_a_count_that_begins_anew_owes_nothing() -> None:
    quota = Quota(Caller("a", (ONE,), tokens_per_minute=600, concurrency=3), 0.0)
    quota.set_elsewhere(5000, 0)
    assert quota.wait_seconds(600, 0.0) == 0, "what was used before we came is not ours to charge"
    quota.set_elsewhere(5300, 2)
    assert quota.wait_seconds(301, 0.0) == pytest.approx(0.1)
    quota.set_elsewhere(5, 3)
    assert quota.wait_seconds(300, 0.0) == 0
    assert quota.is_busy


@given(st.lists(st.tuples(st.integers(1, 500), st.integers(0, 500)), max_size=40))
def test_what_others_are_told_was_used_never_falls_and_is_never_far_off(requests: list[tuple[int, int]]) -> None:
    quota, told, really = Quota(Caller("a", (ONE,)), 0.0), [0], 0
    for estimated, real in requests:
        quota.begin(estimated)
        told.append(quota.used)
        quota.end(estimated, real)
        told.append(quota.used)
        really += real
    assert told == sorted(told), "a fall is a restart's sign, and all would be charged anew"
    assert really <= told[-1] <= really + 500


@given(st.lists(st.tuples(st.floats(0, 30), st.integers(1, 200), st.integers(0, 300)), max_size=60))
def test_never_more_than_the_burst_and_what_time_brings_is_let_in(steps: list[tuple[float, int, int]]) -> None:
    limit, now, level = 600, 0.0, 600.0
    quota = Quota(Caller("a", (ONE,), tokens_per_minute=limit), now)
    for seconds, estimated, real in steps:
        now += seconds
        level = max(min(level + seconds * limit / 60, limit), -limit)
        wait = quota.wait_seconds(estimated, now)
        assert (wait == 0) == (level >= estimated - 1e-6) or abs(level - estimated) < 1e-3
        if wait == 0:
            quota.begin(estimated)
            quota.end(estimated, real)
            level = min(level - real, limit)


def run(*arguments: str) -> Any:
    command = [sys.executable, "-m", "tokenpool_router.callers", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_command_makes_a_key_and_the_secret_for_it() -> None:
    told = run("new", "team-a", "--tokens-per-minute", "60000", "--priority", "high")
    key = told.stdout.split("key, shown only now:")[1].split()[0]
    entry = told.stdout.split("--from-literal=team-a='")[1].split("'\n")[0]
    caller = read_caller("team-a", entry)
    assert caller == Caller("team-a", (sha256(key.encode()).hexdigest(),), 60_000, priority=Priority.HIGH)
    assert Callers([caller], 0.0).find(f"Bearer {key}".encode()) == caller
    patch = json.loads(told.stdout.split("--patch='")[1].split("'\n")[0])
    assert json.loads(patch["stringData"]["team-a"]) == json.loads(entry)
    assert "error: 'te am'" in run("new", "te am").stderr

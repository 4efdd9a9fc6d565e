"""What is read out of recorded bytes, however they were cut."""

import json

import pytest

from engine_bench.answers import Recording, events, has_text, summarize, understand
from engine_bench.job import Job, Outcome

TEXT = json.dumps({"choices": [{"text": "a"}], "usage": None}).encode()
EMPTY = json.dumps({"choices": [{"text": "", "finish_reason": "length"}]}).encode()
USAGE = json.dumps({"choices": [], "usage": {"completion_tokens": 3}}).encode()


def stream(*data: bytes) -> bytes:
    return b"".join(b"data: " + one + b"\n\n" for one in (*data, b"[DONE]"))


def recording(*pieces: tuple[float, bytes], asked: int = 3, status: int = 200) -> Recording:
    return Recording(asked, sent=1.0, pieces=list(pieces), status=status)


def test_an_event_has_the_time_of_the_piece_that_completes_it() -> None:
    whole = stream(TEXT)
    assert next(iter(events([(1.0, whole[:9]), (2.0, whole[9:])]))) == (2.0, TEXT)


def test_events_of_one_piece_share_their_time() -> None:
    assert understand(recording((1.5, stream(TEXT, TEXT, EMPTY, USAGE)))).times == (1.5, 1.5)


def test_tokens_are_the_servers_own_count() -> None:
    assert understand(recording((1.5, stream(TEXT, EMPTY, USAGE)))).tokens == 3
    assert understand(recording((1.5, stream(TEXT)))).tokens is None


@pytest.mark.parametrize(
    ("seen", "said"),
    [
        (recording((2.0, b'{"error": "no"}'), status=429), 'HTTP 429: {"error": "no"}'),
        (recording((2.0, b'data: {"error": {"code": "gone"}}\n\n')), "{'code': 'gone'}"),
        (recording((2.0, stream(EMPTY, USAGE))), "an answer without text"),
        (Recording(3, error="no whole answer within 180 s"), "no whole answer within 180 s"),
    ],
)
def test_trouble_is_an_error(seen: Recording, said: str) -> None:
    assert understand(seen).error == said


def test_summary_counts_tokens_short_answers_and_errors() -> None:
    good = recording((1.2, stream(TEXT)[: -len(stream())]), (1.3, stream(TEXT, USAGE)), asked=4)
    found = summarize([good, recording(status=500)], seconds=2.0, cpu_seconds=0.5)
    assert (found.requests, found.tokens, found.tokens_per_second) == (1, 3, 1.5)
    assert (found.short, found.uncounted, len(found.errors), found.load_cpu) == (1, 0, 1, 0.25)
    assert (found.ttft_p50, found.itl_p50) == (pytest.approx(200), pytest.approx(100))


def test_an_event_without_choices_has_no_text() -> None:
    assert not has_text({"choices": None})


def test_job_and_outcome_survive_the_pipe() -> None:
    job = Job((1, 2), "m", "/words", "32", 32, 160)
    assert Job.from_json(json.loads(json.dumps(job.as_json()))) == job
    outcome = summarize([recording((1.2, stream(TEXT, USAGE)))], 1.0, 0.0)
    assert Outcome.from_json(json.loads(json.dumps(outcome.__dict__))) == outcome

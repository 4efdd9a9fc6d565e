"""Child processes: ready, refusing, dying, and gone for certain. The servers are a few lines of Python."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from engine_bench import engines, session
from engine_bench.server import Launch, NotServed, ServerFailed, free_port, running
from engine_bench.weights import Model, write_endless
from tokenpool_api.spec import TokenPoolSpec
from tokenpool_operator.manifests import shard

ANSWERING = """
import http.server, subprocess, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.command == "GET" else STATUS); self.end_headers(); self.wfile.write(b"said")
    do_POST = do_GET
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(100)"])
http.server.HTTPServer(("127.0.0.1", PORT), Handler).serve_forever()
"""


def launch(code: str, port: int) -> Launch:
    return Launch([sys.executable, "-c", code], os.environ, "m", port, port, "/", "hello")


def answering(status: int = 200) -> Launch:
    port = free_port()
    return launch(ANSWERING.replace("STATUS", str(status)).replace("PORT", str(port)), port)


def test_a_server_and_its_children_are_gone_afterwards(tmp_path: Path) -> None:
    with running(answering(), tmp_path / "log") as server:
        assert len(session.members(server.session)) == 2
        assert session.memory_bytes(server.session) > 1e6
    assert session.members(server.session) == []


def test_they_are_gone_when_the_block_is_interrupted(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), running(answering(), tmp_path / "log") as server:
        raise KeyboardInterrupt
    assert session.members(server.session) == []


def test_a_refused_request_ends_the_wait(tmp_path: Path) -> None:
    with (
        pytest.raises(ServerFailed, match="refuses a request with 400: said"),
        running(answering(400), tmp_path / "log"),
    ):
        pass


@pytest.mark.parametrize(
    ("code", "error"),
    [("print('out of luck'); raise SystemExit(3)", ServerFailed), ("exit('unrecognized arguments: --x')", NotServed)],
)
def test_a_server_that_ends_tells_its_log(code: str, error: type[Exception], tmp_path: Path) -> None:
    with (
        pytest.raises(error, match=r"(?s)ended with \d.*(luck|--x)"),
        running(launch(code, free_port()), tmp_path / "log"),
    ):
        pass


def test_a_deaf_server_is_killed() -> None:
    code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(100)"
    with subprocess.Popen([sys.executable, "-c", code], start_new_session=True, stdout=subprocess.PIPE) as child:
        assert child.stdout
        child.stdout.readline()
        session.end(child.pid, seconds=0.1)
        assert session.members(child.pid) == []


def test_ours_gets_what_a_pod_gets() -> None:
    spec = TokenPoolSpec.model_validate({"model": {"source": "file:///model"}, "shards": {"min": 1}})
    container = shard.shard_pod_spec("chat", spec, "engine:1", None)["containers"][0]
    literal = {entry["name"]: entry["value"] for entry in container["env"] if "value" in entry}
    assert {name: value for name, value in literal.items() if name != "HOME"} == engines.POD_ENVIRONMENT


def test_our_tuning_does_not_reach_a_peer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("OMP_WAIT_POLICY", "PYTHONDONTWRITEBYTECODE", "PYTHONPATH"):
        monkeypatch.setenv(name, "1")
    model = Model("x", tmp_path, tmp_path / "endless", tmp_path / "words")
    (peer,) = engines.vllm(tmp_path).launches(model)
    assert not {"OMP_WAIT_POLICY", "PYTHONDONTWRITEBYTECODE", "PYTHONPATH"} & set(peer.environment)
    (mine,) = engines.ours().launches(model)
    assert mine.environment["OMP_WAIT_POLICY"] == "passive"


@pytest.mark.parametrize(("cores", "text"), [({0, 1}, "0-1"), ({0, 2, 3, 4, 9}, "0,2-4,9"), ({5}, "5")])
def test_cores_as_ranges(cores: set[int], text: str) -> None:
    assert engines.ranges(cores) == text


def test_proportional_size_is_read() -> None:
    assert session.pss_of("Rss: 10 kB\nPss:   7 kB\nPss_Dirty: 3 kB\n") == 7168


def test_the_endless_copy_names_no_end_token(tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text('{"eos_token_id": 2, "hidden_size": 4}')
    (model / "model.safetensors").write_bytes(b"weights")
    write_endless(model, tmp_path / "endless")
    assert '"eos_token_id": null' in (tmp_path / "endless/config.json").read_text()
    assert '"eos_token_id": 2' in (model / "config.json").read_text()
    assert (tmp_path / "endless/model.safetensors").samefile(model / "model.safetensors")

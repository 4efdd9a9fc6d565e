"""Programs that are not installed: which packages are taken, what is started, what is said where there is no apt."""

import subprocess
from pathlib import Path

import pytest

from programs import ProgramError, debian, program, recipes, relocated

SIMULATED = """\
NOTE: This is only a simulation!
Inst gcc-12-base (12.2.0-14 Debian:12.1/oldstable [amd64])
Inst libc6 (2.36-9 Debian:12.1/oldstable [amd64]) []
Inst libssl3 (3.0.20-1 Debian:12.1/oldstable [amd64])
Inst libtext-glob-perl (0.11-3 Debian:12.1/oldstable [all])
Inst perl-base (5.36.0-7 Debian:12.1/oldstable [amd64])
Inst redis-server (5:7.0.15-1 Debian-Security:12/oldstable-security [amd64])
Conf redis-server (5:7.0.15-1 Debian-Security:12/oldstable-security [amd64])
"""


@pytest.fixture(autouse=True)
def _empty_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def test_what_was_asked_for_and_libraries_are_taken() -> None:
    assert debian.pick_packages(SIMULATED, ["redis-server"]) == ["libssl3=3.0.20-1", "redis-server=5:7.0.15-1"]


def test_without_apt_an_installed_one_will_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    own = tmp_path / "redis-server"
    own.write_text("#!/bin/sh\n")
    own.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert program("redis-server") == own


def test_without_apt_and_program_the_message_names_the_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(recipes, "SYSTEM_FOLDERS", "")
    with pytest.raises(ProgramError, match=r"redis-server is not here.*redis-tools.*no apt-get"):
        program("redis-server")


def test_each_program_and_release_has_a_folder_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    names = {recipes.folder_name(name) for name in recipes.RECIPES}
    monkeypatch.setattr(recipes, "release", lambda: "debian 99")
    names |= {recipes.folder_name(name) for name in recipes.RECIPES}
    assert len(names) == 2 * len(recipes.RECIPES)


def test_the_started_process_is_the_program_and_sees_its_libraries(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "usr/bin").mkdir(parents=True)
    (root / "usr/bin/shell").write_bytes(Path("/bin/sh").read_bytes())
    relocated.make_runnable(tmp_path, "shell", root / "usr/bin/shell", root)
    done = subprocess.run(
        [str(tmp_path / "shell"), "-c", 'echo "$LD_LIBRARY_PATH $1"; readlink /proc/$$/exe', "-", "an argument"],
        env={"PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == [f"{tmp_path}/lib an argument", f"{tmp_path}/bin/shell"]

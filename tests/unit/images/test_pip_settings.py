"""What of this host's pip settings enters a build: addresses and certificates, never its folders."""

from pathlib import Path

import pytest

from images.pip_settings import ca_bundle, config_files, host_settings, pip_conf


def test_variables_win_over_files_and_later_files_over_earlier(tmp_path: Path) -> None:
    first, second = tmp_path / "first.conf", tmp_path / "second.conf"
    first.write_text("[global]\nindex-url = https://a.example/simple\ntimeout = 5\n")
    second.write_text("[global]\nindex-url = https://b.example/simple\n[install]\nretries = 3\n")
    settings = host_settings({"PIP_TIMEOUT": "60"}, [first, second, tmp_path / "absent.conf"])
    assert settings == {"index-url": "https://b.example/simple", "timeout": "60", "retries": "3"}


@pytest.mark.parametrize("name", ["PIP_TIMEOUT", "PIP_DEFAULT_TIMEOUT"])
def test_both_spellings_of_the_timeout_count(name: str) -> None:
    assert host_settings({name: "180"}, []) == {"timeout": "180"}


def test_folders_of_the_host_stay_outside() -> None:
    settings = {"find-links": "/opt/wheels", "cache-dir": "/root/.cache/pip", "target": "/somewhere"}
    assert pip_conf(settings, None) == ""


def test_the_bundle_is_named_where_it_is_mounted() -> None:
    conf = pip_conf({"index-url": "https://a.example/simple", "cert": "/etc/ssl/own.pem"}, Path("/etc/ssl/own.pem"))
    assert conf == "[global]\nindex-url = https://a.example/simple\ncert = /run/secrets/ca-bundle\n"


def test_several_indexes_stay_on_one_line() -> None:
    conf = pip_conf({"extra-index-url": "https://a.example/simple\n  https://b.example/simple"}, None)
    assert conf == "[global]\nextra-index-url = https://a.example/simple https://b.example/simple\n"


def test_a_bundle_that_does_not_exist_is_no_bundle(tmp_path: Path) -> None:
    there = tmp_path / "ca.pem"
    there.write_text("-----BEGIN CERTIFICATE-----")
    assert ca_bundle({"cert": str(tmp_path / "absent.pem")}, {"SSL_CERT_FILE": str(there)}) == there
    assert ca_bundle({}, {}) is None


def test_a_named_file_comes_last() -> None:
    files = config_files({"HOME": "/home/ada", "PIP_CONFIG_FILE": "/etc/own.conf"})
    assert files == [
        Path("/etc/pip.conf"),
        Path("/home/ada/.pip/pip.conf"),
        Path("/home/ada/.config/pip/pip.conf"),
        Path("/etc/own.conf"),
    ]

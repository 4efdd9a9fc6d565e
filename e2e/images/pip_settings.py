"""Which of the host's pip settings does a build need? They go in as secrets: seen while pip runs, part of no layer."""

import configparser
from collections.abc import Iterable, Mapping
from pathlib import Path

# What names a place on the network. Everything else (caches, targets, local folders) means nothing inside a build.
PASSED = ("index-url", "extra-index-url", "trusted-host", "proxy", "timeout", "retries")
MOUNTED_BUNDLE = "/run/secrets/ca-bundle"


def host_settings(environment: Mapping[str, str], files: Iterable[Path]) -> dict[str, str]:
    """pip's effective settings: the files in order, then PIP_* variables, as pip itself ranks them."""
    parser = configparser.RawConfigParser()
    parser.read(files)
    settings: dict[str, str] = {}
    for section in ("global", "install"):
        if parser.has_section(section):
            settings |= dict(parser.items(section))
    for name, value in environment.items():
        if name.startswith("PIP_") and value:
            settings[name.removeprefix("PIP_").lower().replace("_", "-").removeprefix("default-")] = value
    return settings


def config_files(environment: Mapping[str, str]) -> list[Path]:
    """Where pip looks for its settings, least important first."""
    home = Path(environment.get("HOME", "/"))
    folders = [Path("/etc"), home / ".pip", Path(environment.get("XDG_CONFIG_HOME") or home / ".config") / "pip"]
    named = environment.get("PIP_CONFIG_FILE")
    return [folder / "pip.conf" for folder in folders] + ([Path(named)] if named else [])


def ca_bundle(settings: Mapping[str, str], environment: Mapping[str, str]) -> Path | None:
    """The certificates that this host was told to trust; None: it was told nothing, and pip's own will do."""
    told = [settings.get("cert"), *(environment.get(name) for name in ("REQUESTS_CA_BUNDLE", "SSL_CERT_FILE"))]
    return next((Path(path) for path in told if path and Path(path).is_file()), None)


def pip_conf(settings: Mapping[str, str], bundle: Path | None) -> str:
    """The text of a pip.conf for inside the build; empty when there is nothing to say."""
    lines = [f"{name} = {' '.join(settings[name].split())}" for name in PASSED if settings.get(name)]
    if bundle:
        lines.append(f"cert = {MOUNTED_BUNDLE}")
    return "\n".join(["[global]", *lines, ""]) if lines else ""

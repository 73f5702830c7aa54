"""The caller's own settings for pip, as files that a build may see and an image never holds.

A mirror, a proxy, a certificate authority of the company: whatever makes pip work on this machine must make it work in
the build. Pure, but for `gather`, which reads the caller's files and environment.
"""

from __future__ import annotations

import configparser
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

SECTIONS = ("global", "install")
PASSED = ("index-url", "extra-index-url", "trusted-host", "proxy", "retries", "timeout", "no-index")
ALIASES = {"default-timeout": "timeout"}
CONF, AUTHORITIES = "pip.conf", "ca.pem"
"""The names of the secrets, in Containerfiles and here."""
AUTHORITIES_PLACE = f"/run/secrets/{AUTHORITIES}"
AUTHORITY_VARIABLES = ("PIP_CERT", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE")
OTHER_VARIABLES = {"index-url": ("UV_DEFAULT_INDEX", "UV_INDEX_URL"), "proxy": ("HTTPS_PROXY", "https_proxy")}


@dataclass(frozen=True)
class PipSettings:
    """What the build's pip is told."""

    conf: str
    authorities: bytes | None

    def write(self, folder: Path) -> dict[str, Path]:
        """The secrets as files in a private folder, by name."""
        contents = {CONF: self.conf.encode(), AUTHORITIES: self.authorities}
        written = {name: folder / name for name, content in contents.items() if content is not None}
        for name, path in written.items():
            path.write_bytes(contents[name] or b"")
            path.chmod(0o600)
        return written


def gather(environment: Mapping[str, str]) -> PipSettings:
    """From pip's files and variables, in pip's own order: the later wins."""
    home = Path(environment.get("HOME") or Path.home())
    config_home = Path(environment.get("XDG_CONFIG_HOME") or home / ".config")
    files = [Path("/etc/pip.conf"), home / ".pip" / CONF, config_home / "pip" / CONF]
    if environment.get("PIP_CONFIG_FILE"):
        files.append(Path(environment["PIP_CONFIG_FILE"]))
    found = merged([path.read_text() for path in files if path.is_file()], environment)
    bundle = found.pop("cert", "")
    authorities = Path(bundle).read_bytes() if bundle and os.path.isfile(bundle) else None
    return PipSettings(conf_text(found, with_authorities=authorities is not None), authorities)


def merged(files: Iterable[str], environment: Mapping[str, str]) -> dict[str, str]:
    """The settings that matter to a build, and under `cert` the file with certificate authorities."""
    found: dict[str, str] = {}
    for text in files:
        parser = configparser.RawConfigParser()
        parser.read_string(text)
        for section in SECTIONS:
            if parser.has_section(section):
                found |= {_key(key): value for key, value in parser.items(section)}
    for name, value in environment.items():
        if name.startswith("PIP_") and value:
            found[_key(name.removeprefix("PIP_"))] = value
    for key, variables in OTHER_VARIABLES.items():
        given = next((environment[name] for name in variables if environment.get(name)), None)
        if given is not None:
            found.setdefault(key, given)
    bundle = next((environment[name] for name in AUTHORITY_VARIABLES if environment.get(name)), None)
    if bundle is not None:
        found.setdefault("cert", bundle)
    # Folders of this machine (find-links) mean nothing in there, and the rest is a matter of taste.
    return {key: value for key, value in found.items() if key in (*PASSED, "cert")}


def conf_text(settings: Mapping[str, str], *, with_authorities: bool) -> str:
    """As pip reads it."""
    lines = ["[global]", *(f"{key} = {_indented(value)}" for key, value in sorted(settings.items()))]
    if with_authorities:
        lines.append(f"cert = {AUTHORITIES_PLACE}")
    return "\n".join(lines) + "\n"


def _key(name: str) -> str:
    key = name.lower().replace("_", "-")
    return ALIASES.get(key, key)


def _indented(value: str) -> str:
    return "\n    ".join(value.split())

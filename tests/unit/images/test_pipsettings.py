"""The caller's settings for pip reach the build, as secrets, and nothing else does."""

from __future__ import annotations

import stat
from pathlib import Path

from tools.images.pipsettings import PipSettings, conf_text, gather, merged

MIRROR = "https://mirror.example/simple"


def test_the_later_file_wins_and_the_environment_over_both() -> None:
    files = ["[global]\nindex-url = https://a.example\nretries = 2\n", "[install]\nindex_url = https://b.example\n"]
    assert merged(files, {}) == {"index-url": "https://b.example", "retries": "2"}
    assert merged(files, {"PIP_INDEX_URL": MIRROR})["index-url"] == MIRROR


def test_settings_of_uv_and_of_the_shell_stand_in_where_pip_has_none() -> None:
    environment = {"UV_DEFAULT_INDEX": MIRROR, "HTTPS_PROXY": "http://proxy.example:3128", "SSL_CERT_FILE": "/ca"}
    assert merged([], environment) == {"index-url": MIRROR, "proxy": "http://proxy.example:3128", "cert": "/ca"}
    assert merged(["[global]\nindex-url = https://a.example\n"], environment)["index-url"] == "https://a.example"


def test_folders_of_this_machine_and_matters_of_taste_stay_here() -> None:
    assert merged(["[global]\nfind-links = /opt/wheels\nquiet = 1\n"], {"PIP_TARGET": "/x", "HOME": "/h"}) == {}


def test_pip_reads_back_what_is_written() -> None:
    text = conf_text({"extra-index-url": f"{MIRROR} https://b.example", "timeout": "9"}, with_authorities=True)
    assert merged([text], {}) == {
        "extra-index-url": f"\n{MIRROR}\nhttps://b.example".lstrip("\n"),
        "timeout": "9",
        "cert": "/run/secrets/ca.pem",
    }


def test_authorities_travel_as_bytes_and_secrets_are_the_caller_s_alone(tmp_path: Path) -> None:
    bundle = tmp_path / "company.pem"
    bundle.write_bytes(b"PEM")
    config = tmp_path / "pip.conf"
    config.write_text(f"[global]\nindex-url = {MIRROR}\ncert = {bundle}\n")
    found = gather({"HOME": str(tmp_path), "PIP_CONFIG_FILE": str(config)})
    assert found == PipSettings(f"[global]\nindex-url = {MIRROR}\ncert = /run/secrets/ca.pem\n", b"PEM")
    secrets = tmp_path / "secrets"
    secrets.mkdir()
    written = found.write(secrets)
    assert sorted(written) == ["ca.pem", "pip.conf"]
    assert {stat.S_IMODE(path.stat().st_mode) for path in written.values()} == {0o600}
    assert written["ca.pem"].read_bytes() == b"PEM"


def test_without_settings_there_is_one_empty_file(tmp_path: Path) -> None:
    written = PipSettings(conf_text({}, with_authorities=False), None).write(tmp_path)
    assert {name: path.read_text() for name, path in written.items()} == {"pip.conf": "[global]\n"}

"""What this machine knows about reaching package registries, in a form that a lab host can use too.

The repository names no mirror, registry or certificate: the lab's hosts use those of the machine they run on.
"""

import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from configparser import RawConfigParser
from dataclasses import dataclass
from pathlib import Path
from typing import Final

CA_BUNDLE: Final = "/etc/ssl/certs/ca-certificates.crt"
"""Debian's bundle, which every certificate setting in a host points to."""

CERTIFICATE_SETTINGS: Final = {"SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "PIP_CERT"}
PROXY_SETTINGS: Final = {"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"}
REGISTRY_SETTINGS: Final = re.compile(r"(PIP|UV)_\w*(INDEX|LINKS|HOST|TLS|CERTS|PROXY|TIMEOUT|RETRIES)\w*")


@dataclass(frozen=True)
class Settings:
    """All that a host is told about registries."""

    apt_sources: tuple[str, ...]
    """One-line sources of this machine's own distribution release."""
    apt_options: tuple[str, ...]
    environment: Mapping[str, str]
    pip_conf: str
    uv_toml: str
    certificates: tuple[str, ...]
    """The machine's trusted certificates, PEM."""


def settings() -> Settings:
    """This machine's settings, those left out that point at a path of this machine."""
    release = os_release()
    return Settings(
        apt_sources=tuple(apt_sources(Path("/etc/apt"), release["ID"], release["VERSION_CODENAME"])),
        apt_options=apt_options(),
        environment=environment(os.environ),
        pip_conf=pip_conf([path for path in _pip_files() if path.is_file()]),
        uv_toml=uv_toml([path for path in _uv_files() if path.is_file()]),
        certificates=certificates(Path(os.environ.get("SSL_CERT_FILE", CA_BUNDLE)).read_text()),
    )


def os_release() -> dict[str, str]:
    lines = Path("/etc/os-release").read_text().splitlines()
    return {key: value.strip('"') for key, _, value in (line.partition("=") for line in lines)}


def apt_sources(etc_apt: Path, distribution: str, codename: str) -> Iterator[str]:
    """The one-line form of every source of the distribution itself, security and updates included."""
    suites = {codename, f"{codename}-updates", f"{codename}-security"}
    for source in _all_sources(etc_apt):
        keyring = source.get("Signed-By", "")
        if "deb" not in source["Types"].split() or (keyring and f"{distribution}-archive-" not in keyring):
            continue
        options = f"[signed-by={keyring}] " if keyring else ""
        for uri in source["URIs"].split():
            for suite in source["Suites"].split():
                if suite in suites:
                    yield f"deb {options}{uri} {suite} {source['Components']}"


def _all_sources(etc_apt: Path) -> Iterator[dict[str, str]]:
    """Every enabled source as deb822 fields, whichever of apt's two formats it is written in."""
    folder = etc_apt / "sources.list.d"
    for path in [etc_apt / "sources.list", *sorted(folder.glob("*.list"))]:
        for line in path.read_text().splitlines() if path.is_file() else ():
            if match := re.match(r"(deb(?:-src)?)\s+(?:\[(.*?)\]\s+)?(\S+)\s+(\S+)\s+([^#]*)", line):
                types, options, uri, suite, components = match.groups()
                keyring = re.search(r"signed-by=(\S+)", options or "")
                yield {
                    "Types": types,
                    "URIs": uri,
                    "Suites": suite,
                    "Components": components.strip(),
                    "Signed-By": keyring[1] if keyring else "",
                }
    for path in sorted(folder.glob("*.sources")):
        text = re.sub(r"^#.*\n", "", path.read_text(), flags=re.MULTILINE)
        for stanza in re.split(r"\n\s*\n", text.strip()):
            fields = dict(re.findall(r"^([\w-]+):\s*((?:.*)(?:\n[ \t].*)*)", stanza, flags=re.MULTILINE))
            if fields.get("Enabled", "yes") != "no" and "Components" in fields:
                yield fields


def apt_options() -> tuple[str, ...]:
    """Proxies, certificates and date checks of this machine's apt."""
    dump = subprocess.run(["apt-config", "dump"], capture_output=True, text=True, check=True).stdout
    wanted = re.compile(r'Acquire::(https?(::\S+)?::Proxy|Check-Valid-Until|Check-Date|Retries) ".+";')
    return tuple(line for line in dump.splitlines() if wanted.fullmatch(line))


def environment(variables: Mapping[str, str]) -> dict[str, str]:
    """The variables by which pip, uv and curl find registries."""
    found = {}
    for name, value in sorted(variables.items()):
        if name.upper() in CERTIFICATE_SETTINGS:
            found[name] = CA_BUNDLE
        elif (name.upper() in PROXY_SETTINGS or REGISTRY_SETTINGS.fullmatch(name)) and portable(value):
            found[name] = portable(value)
    return found


def portable(value: str) -> str:
    """`value` without the words that name a path of this machine."""
    return " ".join(word for word in value.split() if not re.match(r"[/~.]|file:", word))


def pip_conf(files: list[Path]) -> str:
    """pip's configuration files in one, the later file first in rank as with pip itself."""
    parser = RawConfigParser()
    parser.read(files)
    lines = []
    for section in parser.sections():
        lines.append(f"[{section}]")
        for key, value in parser.items(section):
            kept = CA_BUNDLE if key == "cert" else portable(value)
            lines += [f"{key} = {kept}"] if kept else []
    return "".join(f"{line}\n" for line in lines)


def uv_toml(files: list[Path]) -> str:
    """uv's configuration, without the lines that name a path of this machine."""
    text = files[0].read_text() if files else ""
    return re.sub(r'^[\w-]+\s*=\s*"([/~.]|file:).*\n', "", text, flags=re.MULTILINE)


def certificates(bundle: str) -> tuple[str, ...]:
    return tuple(re.findall(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", bundle, flags=re.DOTALL))


def _pip_files() -> list[Path]:
    named = os.environ.get("PIP_CONFIG_FILE")
    return [
        Path("/etc/xdg/pip/pip.conf"),
        Path("/etc/pip.conf"),
        Path("~/.pip/pip.conf").expanduser(),
        Path("~/.config/pip/pip.conf").expanduser(),
        *([Path(named)] if named else []),
    ]


def _uv_files() -> list[Path]:
    return [Path("~/.config/uv/uv.toml").expanduser(), Path("/etc/uv/uv.toml")]

"""What front makes true of a host, as data. Pure."""

from ipaddress import ip_address
from typing import Final, NamedTuple

from roles.files import File
from roles.front.settings import FrontSettings
from roles.templates import render

PACKAGES: Final = ("nginx-light", "openssl")

UNIT: Final = "slipway-front.service"
UNIT_PATH: Final = f"/etc/systemd/system/{UNIT}"
CONFIG: Final = "/etc/slipway/front.conf"
RUNTIME: Final = "/run/slipway-front"

RUNNING: Final = {CONFIG: f"{RUNTIME}/front.conf", UNIT_PATH: f"{RUNTIME}/{UNIT}"}
"""Copies of both files as the running nginx was started with them, or has read them since."""

SELF_SIGNED: Final = "/etc/slipway/front.pem"
SELF_SIGNED_KEY: Final = "/etc/slipway/front.key"


class Front(NamedTuple):
    """The files that a front consists of."""

    config: File
    unit: File
    self_signed: bool
    """It has no certificate but the one that is made for it."""

    @property
    def files(self) -> tuple[File, File]:
        return self.config, self.unit


def front_of(settings: FrontSettings, server: str) -> Front:
    """The front before the server at `server` (address:port)."""
    brackets = "[{}]" if ip_address(settings.host).version == 6 else "{}"
    config = {
        "settings": settings,
        "server": server,
        "runtime": RUNTIME,
        "listen": f"{brackets.format(settings.host)}:{settings.port}",
        "certificate": settings.certificate or SELF_SIGNED,
        "certificate_key": settings.certificate_key or settings.certificate or SELF_SIGNED_KEY,
    }
    unit = {"config": CONFIG, "unit": UNIT_PATH, "runtime": RUNTIME}
    return Front(
        config=File(CONFIG, render("front/front.conf.j2", config, {})),
        unit=File(UNIT_PATH, render("front/slipway-front.service.j2", unit, {})),
        self_signed=settings.certificate is None,
    )

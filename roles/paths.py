"""Where Slipway keeps things on a host. Every other path is one of these with a name appended."""

from typing import Final

PROGRAMS: Final = "/opt/slipway"
"""What Slipway installs; root's, never written by the service."""

RELEASES: Final = f"{PROGRAMS}/releases"
"""One immutable virtual environment per locked SGLang release."""

STATE: Final = "/var/lib/slipway"
"""What must outlive a deploy: records, the last good profile."""

RECORDS: Final = f"{STATE}/records"
"""Benchmark records, append-only."""

CACHE: Final = "/var/cache/slipway"
"""Compiled kernels and other things that can be made again, one folder per release; the service's own."""

RUNTIME: Final = "/run/slipway"
"""The lock of a running deploy; gone after a reboot, as it should be."""

CREDENTIALS: Final = "/etc/slipway/credentials"
"""Keys and tokens, one file each; root's, who hands them to services (`LoadCredential=`)."""

USER: Final = "sglang"
"""System user and group of the server."""

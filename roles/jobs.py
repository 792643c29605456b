"""Long work on a host: a transient systemd unit that outlives the SSH connection, followed with progress."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field

from pyinfra.api.host import Host

from roles.remote import RemoteError, attempt


@dataclass(frozen=True)
class Job:
    """One piece of long work.

    The name says what is made and of what, e.g. `release-0.5.23-1a2b3c`: a run that finds a job of this name
    at work waits for that one. Whether its result is in place is for the caller to look at, not for the job.
    """

    name: str
    command: str
    """A shell program; what it prints is shown as progress."""
    environment: Mapping[str, str] = field(default_factory=dict)
    user: str = "root"
    limit: int = 3600
    """Seconds after which systemd ends it, with everything that it started."""
    credentials: Mapping[str, str] = field(default_factory=dict)
    """Files on the host by the name under which the job finds each in $CREDENTIALS_DIRECTORY."""
    bound_to: str = ""
    """The unit without which the job is senseless: it ends with it."""

    @property
    def unit(self) -> str:
        return f"slipway-{self.name}.service"


def run_job(host: Host, job: Job) -> None:
    """Start the job, or find it at work, and follow it to its end. Raises RemoteError with its last lines."""
    done, output = attempt(host, _start_and_follow(job), show=True)
    if not done:
        raise RemoteError(output)


def _start_and_follow(job: Job) -> str:
    unit = shlex.quote(job.unit)
    settings = " ".join(f"--setenv={shlex.quote(f'{name}={value}')}" for name, value in job.environment.items())
    for name, path in job.credentials.items():
        settings += f" --property=LoadCredential={shlex.quote(f'{name}:{path}')}"
    if job.bound_to:
        settings += f" --property=BindsTo={shlex.quote(job.bound_to)} --property=After={shlex.quote(job.bound_to)}"
    command = shlex.quote(job.command.replace("$", "$$"))  # systemd would replace variables before the shell does
    # RemainAfterExit keeps the result until it is read. The journal is asked again and again, from where it was left:
    # one that is followed may be cut off before it has shown the end of a short job.
    return f"""
ask() {{ systemctl show --property="$1" --value {unit}; }}
forget() {{ systemctl stop {unit}; systemctl reset-failed {unit}; }} 2>/dev/null
if [ "$(ask SubState)" != running ]; then
    forget
    systemd-run --quiet --unit={unit} --service-type=exec --remain-after-exit \\
        --uid={job.user} --property=RuntimeMaxSec={job.limit} {settings} /bin/sh -c {command}
fi
id=$(ask InvocationID)  # there is one also where the job failed so soon that systemd-run says so
[ -n "$id" ] || exit 1
shown=$(mktemp --dry-run)
show() {{ journalctl --quiet --output=cat --cursor-file="$shown" _SYSTEMD_INVOCATION_ID="$id"; }}
while [ "$(ask SubState)" = running ]; do show; sleep 0.5; done
result=$(ask Result)
journalctl --sync
show
rm -f "$shown"
# A failure stays until the next start, for whoever else follows this job.
[ "$result" = success ] || {{ echo "{job.unit} ended with: $result"; exit 1; }}
forget
true
"""

"""Real servers on a real GPU, held against what was computed for them: `python -m tests.gpu --help`.

It needs the Python of a release and a GPU, but no systemd and no pyinfra. So a log file stands for the unit's
journal, `timeout` for its TimeoutStartSec, and signals for `systemctl stop`; units, switches and their way back are
proved on a host by tests/host.
"""

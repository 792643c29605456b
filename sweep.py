"""Try several profiles, measure each, and end with the one that served before: `pyinfra inventory sweep.py`."""

from pyinfra.context import host

from inventory import target
from roles.base.tasks import base
from roles.benchmark.sweep_tasks import sweep
from roles.preflight.tasks import preflight
from roles.sglang.tasks import sglang
from roles.weights.tasks import weights

preflight()
base()
sglang()
weights(also=target(host).variables.sweep)
sweep()

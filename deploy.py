"""Converge each host to its variables: `pyinfra inventory deploy.py`."""

from roles.base.tasks import base
from roles.benchmark.tasks import benchmark, gate
from roles.serve.tasks import serve
from roles.sglang.tasks import sglang
from roles.weights.tasks import weights

base()
sglang()
weights()
serve(gate=gate)
benchmark()

"""Converge each host to its variables: `pyinfra inventory deploy.py`."""

from pyinfra.context import host

from inventory import target
from roles.base.tasks import base
from roles.benchmark.tasks import benchmark, gate, keep_failure
from roles.cuda.tasks import cuda
from roles.flash_attn.tasks import flash_attn
from roles.front.tasks import front
from roles.preflight.tasks import collective, preflight
from roles.serve.tasks import serve
from roles.sglang.tasks import sglang
from roles.weights.tasks import weights

preflight()
base()
sglang()
if target(host).has_gpus:
    cuda()
    flash_attn()
    collective()
weights()
serve(gate=gate, keep_failure=keep_failure)
benchmark()
front()

"""`pyinfra inventory plan.py`: what each host could serve, and what a deploy would change; change nothing.

A host that cannot be reached is planned from its variables alone. `--json` prints a document instead of text.
The exit code is 1 when a deploy would refuse the wanted profile of a host.
"""

import shutil
import sys

from pyinfra import host, state

from roles.serve.plan import Plan
from roles.serve.plan_text import as_json, as_text
from roles.serve.planning import plan

planned: dict[str, Plan] = state.inventory.__dict__.setdefault("plans", {})
planned[host.name] = plan(host)

# pyinfra runs this file once for each host, side by side: the last to finish tells of all. Leaving here
# skips the plan of operations and the confirmation of a run that has nothing to change.
if len(planned) == len(list(state.inventory.get_active_hosts())):
    plans = [planned[name] for name in sorted(planned)]
    if "--json" in sys.argv:
        print(as_json(plans))
    else:
        print(as_text(plans, shutil.get_terminal_size().columns, colour=sys.stdout.isatty()))
    raise SystemExit(any(one.choice.refusals for one in plans))

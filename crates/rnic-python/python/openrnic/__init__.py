"""Simulate RDMA networks.

    >>> import openrnic
    >>> plan = openrnic.plan("incast").set("transport", "falcon")
    >>> result = plan.run(seed=1)
    >>> result.flows["fct_us"].describe()
    >>> openrnic.sweep(plan, {"workload.senders": [5, 10, 20]}, seeds=3).table("rct_us.p99")

Everything is simulated by the same code as the command `rnic`: the same plan and seed give the same trace hash.
"""

from ._openrnic import __version__
from ._frames import Comparison, Plan, Result, Sweep, compare, plan, plans, sweep

__all__ = ["Comparison", "Plan", "Result", "Sweep", "__version__", "compare", "plan", "plans", "sweep"]

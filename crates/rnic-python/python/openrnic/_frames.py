"""Plans, results and sweeps, with tables as DataFrames."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import _openrnic

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

_PLANS = Path(__file__).parent / "plans"


def _text(value: object) -> str:
    """A value as it is written in a plan."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{key} = {_quoted(value)}" for key, value in value.items()) + " }"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_quoted(part) for part in value) + "]"
    return str(value)


def _quoted(value: object) -> str:
    return json.dumps(str(value)) if isinstance(value, (str, Path)) else _text(value)


def _check_name(what: str, name: str, known: Iterable[str]) -> None:
    """Raises `ValueError` when there is no such name."""
    names = sorted(set(known))
    if name not in names:
        near = difflib.get_close_matches(name, names, cutoff=0.5)
        hint = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(names[:30])}"
        raise ValueError(f"unknown {what} {name!r}; {hint}")


def _draw(table: pd.DataFrame | pd.Series[Any], **options: Any) -> Axes:
    """Draws a table in a new figure."""
    from matplotlib import pyplot

    _, axes = pyplot.subplots()
    table.plot(ax=axes, **options)
    return axes


def plans() -> list[str]:
    """Names of the plans that the package contains."""
    return sorted(path.stem for path in _PLANS.glob("*.toml"))


def plan(name: str | Path) -> Plan:
    """The plan of this name, or in the file of this path."""
    built_in = _PLANS / f"{name}.toml"
    path = built_in if built_in.is_file() else Path(name)
    if not path.is_file():
        raise ValueError(f"{name}: neither a plan of the package nor a file; the plans are {', '.join(plans())}")
    return Plan(_openrnic.Plan.load(path))


class Plan:
    """The description of a simulation except its seed. Plans are values: `set` returns another one."""

    def __init__(self, plan: _openrnic.Plan | str) -> None:
        self._plan = _openrnic.Plan(plan) if isinstance(plan, str) else plan

    @property
    def text(self) -> str:
        """The plan as TOML."""
        return self._plan.text

    def set(self, key: str, value: object) -> Plan:
        """The plan with another value for a key, such as `set("links.rate", "100Gbps")`."""
        return Plan(self._plan.replaced([(key, _text(value))]))

    def record(self, interval: str, what: Sequence[str] = ()) -> Plan:
        """The plan with time series: one sample every `interval` ("10us") of links, switches, hosts, flows, traffic."""
        return self.set("record", {"interval": interval, "what": list(what)})

    def run(self, seed: int = 1, threads: int = 1) -> Result:
        """Simulates the plan. Raises `RuntimeError` when the run violated an invariant."""
        result = Result(self._plan.run(seed, threads))
        if result.violations:
            raise RuntimeError(f"check failed (seed {seed}): {'; '.join(result.violations)}")
        return result

    def __repr__(self) -> str:
        return f"Plan({self.text!r})"


class Result:
    """The result of a simulation."""

    def __init__(self, result: _openrnic.Result) -> None:
        self._result = result
        self._series: pd.DataFrame | None = None
        self._flows: pd.DataFrame | None = None
        self.report: dict[str, Any] = json.loads(result.report_json())

    @property
    def trace_hash(self) -> str:
        """Hash of all events of the run."""
        return self._result.trace_hash

    @property
    def violations(self) -> list[str]:
        """Invariants that the run violated."""
        return self._result.violations

    @property
    def flows(self) -> pd.DataFrame:
        """The completed flows, one row each."""
        if self._flows is None:
            import pandas as pd

            self._flows = pd.DataFrame(self._result.flows(), copy=False)
        return self._flows

    @property
    def series(self) -> pd.DataFrame:
        """The time series: one row for each sample. Empty if the plan records none (see `Plan.record`)."""
        if self._series is None:
            import numpy as np
            import pandas as pd

            taken = self._result.take_series()
            if taken is None:
                columns = ["time_us", "kind", "name", "flow", "metric", "value"]
                self._series = pd.DataFrame(columns=columns)
                return self._series
            objects = taken["objects"]
            kinds = pd.Categorical([kind for kind, _, _ in objects])
            names = pd.Categorical([name for _, name, _ in objects])
            flows = np.array([-1 if flow is None else flow for _, _, flow in objects], dtype=np.int64)
            at = taken["object"]
            self._series = pd.DataFrame(
                {
                    "time_us": taken["time_ps"] / 1e6,
                    "kind": pd.Categorical.from_codes(kinds.codes[at], dtype=kinds.dtype),
                    "name": pd.Categorical.from_codes(names.codes[at], dtype=names.dtype),
                    "flow": flows[at],
                    "metric": pd.Categorical.from_codes(taken["metric"], [name for name, _ in taken["metrics"]]),
                    "value": taken["value"],
                },
                copy=False,
            )
        return self._series

    def pivot(self, metric: str, kind: str | None = None) -> pd.DataFrame:
        """The samples of a metric: a row for each time, a column for each object."""
        if self.series.empty:
            raise ValueError('the plan records no time series; run plan.record("10us")')
        _check_name("metric", metric, self.series["metric"].unique())
        rows = self.series[self.series["metric"] == metric]
        if kind is not None:
            rows = rows[rows["kind"] == kind]
        return rows.pivot_table(index="time_us", columns="name", values="value", observed=True)

    def plot(self, metric: str, kind: str | None = None, most: int = 8) -> Axes:
        """Draws the series of a metric with the highest peaks."""
        table = self.pivot(metric, kind)
        order = table.max().sort_values(ascending=False).index[:most]
        return _draw(table[list(order)], xlabel="us", ylabel=metric)


def sweep(
    plan: Plan, vary: Mapping[str, Iterable[object]], seeds: int | Sequence[int] = 3, jobs: int | None = None
) -> Sweep:
    """Simulates every combination of values with each seed, as many runs at the same time as there are processors."""
    axes = [(key, [_text(value) for value in values]) for key, values in vary.items()]
    numbers = list(range(1, seeds + 1)) if isinstance(seeds, int) else list(seeds)
    return Sweep(plan._plan.sweep(axes, numbers, jobs))


class Sweep:
    """The runs of a sweep, or of a folder that `rnic sweep` or `rnic sim` wrote (`Sweep.load`)."""

    def __init__(self, runs: str) -> None:
        self._json = runs
        self._runs: dict[str, Any] = json.loads(runs)
        self.keys = [axis["key"] for axis in self._runs["axes"]]

    @classmethod
    def load(cls, folder: str | Path) -> Sweep:
        """Reads `runs.json` in a folder."""
        return cls((Path(folder) / "runs.json").read_text(encoding="utf-8"))

    @property
    def frame(self) -> pd.DataFrame:
        """One row for each run: the values of the keys, the seed, and every number of the report."""
        import pandas as pd

        rows = [
            {**dict(zip(self.keys, point["at"])), "seed": run["seed"], **run["fields"]}
            for point in self._runs["points"]
            for run in point["runs"]
        ]
        return pd.DataFrame(rows)

    @property
    def failures(self) -> list[str]:
        """Reasons of runs without a valid result."""
        return [run["failure"] for point in self._runs["points"] for run in point["runs"] if run["failure"]]

    def table(self, *fields: str) -> pd.DataFrame:
        """Mean and standard deviation over seeds, a row for each combination."""
        for field in fields:
            _check_name("field", field, self.frame.columns)
        numbers = self.frame[list(fields)] if not self.keys else self.frame.groupby(self.keys, sort=False)[list(fields)]
        return numbers.agg(["mean", "std"])

    def plot(self, field: str) -> Axes:
        """Draws the mean of a number over the first key, a line for each combination of the others."""
        _check_name("field", field, self.frame.columns)
        means = self.frame.groupby(self.keys, sort=False)[field].mean()
        table = means.unstack(self.keys[1:], sort=False) if len(self.keys) > 1 else means
        return _draw(table, marker="o", ylabel=field)


def compare(a: Sweep, b: Sweep, *fields: str) -> Comparison:
    """Compares two sweeps: raises `ValueError` when they have no point in common."""
    return Comparison(json.loads(_openrnic.compare(a._json, b._json, list(fields))))


class Comparison:
    """In what two sweeps differ."""

    def __init__(self, found: dict[str, Any]) -> None:
        self.differences: list[dict[str, Any]] = found["differences"]
        self._points: list[dict[str, Any]] = found["points"]

    @property
    def frame(self) -> pd.DataFrame:
        """One row for each point and number: both means, p, and whether the difference is significant at 95 %."""
        import pandas as pd

        rows = [
            {
                **dict(point["at"]),
                "field": field["field"],
                "a": field["means"][0]["mean"],
                "b": field["means"][1]["mean"],
                "p": field["p_value"],
                "significant": field["is_significant"],
            }
            for point in self._points
            for field in point["fields"]
        ]
        return pd.DataFrame(rows)

# SPDX-License-Identifier: Apache-2.0
# Copyright The Linkspan authors
"""Bounds: what a benchmark has to reach, as data, and whether it did.

A bound looks at the quotients of two variants round by round (or at one variant's own values). It is missed
when all of them lie beyond the limit: what noise alone can explain is not called a miss, and the line says
where the median is.
"""

import dataclasses
import json

from . import rows


@dataclasses.dataclass(frozen=True)
class Bound:
    variant: str
    metric: str
    kind: str  # "at most", "at least", or "below", which is not reached by the limit itself
    limit: float
    to: str = ""  # the variant that is divided by; empty: the value itself is meant
    params: dict = dataclasses.field(default_factory=dict)  # of the rows that are meant: these, at least

    def holds(self, value):
        return {"at most": value <= self.limit, "at least": value >= self.limit,
                "below": value < self.limit}[self.kind]


def contains(params, wanted):
    return all(params.get(name) == value for name, value in wanted.items())


def evaluate(bounds, rounds):
    """What the rounds, lists of samples, say about each bound; one that nobody measured is kept."""
    result = []
    for bound in bounds:
        found = {}
        for samples in rounds:
            values = {(sample["variant"], json.dumps(sample["params"], sort_keys=True)): sample["value"]
                      for sample in samples if sample["metric"] == bound.metric}
            for (variant, params), value in values.items():
                if variant != bound.variant or not contains(json.loads(params), bound.params):
                    continue
                base = values.get((bound.to, params)) if bound.to else 1
                if base:
                    found.setdefault(params, []).append(value / base)
        about = {"variant": bound.variant, "metric": bound.metric, "to": bound.to or None,
                 "bound": f"{bound.kind} {bound.limit:g}"}
        for params, quotients in found.items():
            spread = rows.spread(quotients)
            result.append({**about, "params": json.loads(params), **spread,
                           "met": any(bound.holds(value) for value in quotients),
                           "median_met": bound.holds(spread["median"])})
        if not found:
            result.append({**about, "params": bound.params, "met": None})
    return result


def line(verdict):
    where = ", ".join(f"{name} {value}" for name, value in verdict["params"].items())
    what = f"{verdict['variant']}: {verdict['metric']}" + (f" / {verdict['to']}" if verdict["to"] else "")
    if verdict["met"] is None:
        return f"bound not measured  {what}, {verdict['bound']} ({where})"
    state = "met" if verdict["met"] else "missed"
    if verdict["met"] and not verdict["median_met"]:
        state = "met by spread"  # the median is beyond it, not every round is
    values = (f"{rows.number(verdict['median'])} "
              f"[{rows.number(verdict['min'])} .. {rows.number(verdict['max'])}]")
    return f"bound {state:<13} {what} = {values}, {verdict['bound']} ({where})"

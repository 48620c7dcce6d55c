# SPDX-License-Identifier: Apache-2.0
# Copyright The Linkspan authors
"""Samples become rows, and rows a table.

A sample is what a program prints: {variant, params, metric, unit, value}. A row is what all rounds say about
one of them: {variant, params, metric, unit, rounds, min, median, max, ratio}, where ratio is None for the
reference and otherwise {to, min, median, max} of the quotients (variant / reference) round by round.
"""

import json
import statistics

SAMPLE_KEYS = {"variant": str, "params": dict, "metric": str, "unit": str, "value": (int, float)}


class BadSample(ValueError):
    """A line that a program printed and that is not a sample."""


def parse_sample(line):
    try:
        sample = json.loads(line)
    except ValueError as error:
        raise BadSample(f"not JSON: {line!r}") from error
    if not isinstance(sample, dict) or set(sample) != set(SAMPLE_KEYS):
        raise BadSample(f"needs the keys {', '.join(SAMPLE_KEYS)}: {line!r}")
    for key, kind in SAMPLE_KEYS.items():
        if not isinstance(sample[key], kind) or isinstance(sample[key], bool):
            raise BadSample(f"{key} has the wrong type: {line!r}")
    return sample


def subject(sample):
    """What is measured, without the variant that does it."""
    return json.dumps(sample["params"], sort_keys=True), sample["metric"], sample["unit"]


def spread(values):
    return {"min": min(values), "median": statistics.median(values), "max": max(values)}


def aggregate(rounds, reference):
    """The rows of a list of rounds, each a list of samples, in the order of the first round."""
    indexed = []
    for samples in rounds:
        values = {}
        for sample in samples:
            key = sample["variant"], subject(sample)
            if key in values:
                raise BadSample(f"twice in one round: {key}")
            values[key] = sample["value"]
        indexed.append(values)
    for values in indexed[1:]:
        if values.keys() != indexed[0].keys():
            different = values.keys() ^ indexed[0].keys()
            raise BadSample(f"rounds measure different things: {sorted(different)[0]}")
    result = []
    for sample in rounds[0]:
        key = sample["variant"], subject(sample)
        base = reference, key[1]
        row = {name: sample[name] for name in ("variant", "params", "metric", "unit")}
        row.update(rounds=len(rounds), **spread([values[key] for values in indexed]), ratio=None)
        if sample["variant"] != reference and all(values.get(base) for values in indexed):
            row["ratio"] = {"to": reference, **spread([values[key] / values[base] for values in indexed])}
        result.append(row)
    return result


def number(value):
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def table(rows):
    """Lines of text: one block a metric, one line a row, rows of the same parameters side by side."""
    lines = []
    for metric in dict.fromkeys((row["metric"], row["unit"]) for row in rows):
        chosen = [row for row in rows if (row["metric"], row["unit"]) == metric]
        names = list(dict.fromkeys(name for row in chosen for name in row["params"]))
        cells = [[*names, "variant", "median", "min .. max", "ratio", "min .. max"]]
        places = list(dict.fromkeys(subject(row) for row in chosen))
        for row in sorted(chosen, key=lambda row: places.index(subject(row))):
            ratio = row["ratio"]
            cells.append([*(str(row["params"].get(name, "")) for name in names), row["variant"],
                          number(row["median"]), f"{number(row['min'])} .. {number(row['max'])}",
                          f"{ratio['median']:.2f}" if ratio else "",
                          f"{ratio['min']:.2f} .. {ratio['max']:.2f}" if ratio else ""])
        widths = [max(len(line[column]) for line in cells) for column in range(len(cells[0]))]
        text_columns = len(names) + 1
        lines.append(f"{metric[0]}, {metric[1]}")
        for line in cells:
            lines.append("  ".join(cell.ljust(width) if column < text_columns else cell.rjust(width)
                                   for column, (cell, width) in enumerate(zip(line, widths))).rstrip())
        lines.append("")
    return lines

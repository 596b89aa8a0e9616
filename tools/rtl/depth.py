#!/usr/bin/env python3
"""Row T-R4: the recorder's levels of 70 random programs beside the levels and delays of their circuits.

`cargo run -p rnic-rtl --bin rnic-circuits -- out/rtl/emitted` writes the programs. Results are kept in
rtl/random.json, each with a hash of its text; only what is new or has changed is measured.
"""

import argparse
import json
import sys
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

import measure
import tool
from page import ECP5_TO_XCKU15P
from table import EMITTED, ROOT, Module, digest

RESULTS = ROOT / "rtl/random.json"
# Every fifth program is also placed and routed.
PLACED = 5
CYCLE_NS = 10.0
TOOLS = tool.versions()
# Of the recorder's levels with those of synthesis, and with the delay.
CORRELATION_MIN = 0.9
# Correlations that are lower, each with its reason in docs/outside.md (T-R4).
OUTSIDE = {"recorder_to_osu018"}


def ranks(values):
    """Ranks from 1 on; equal values have the mean of their ranks."""
    order = sorted(range(len(values)), key=lambda at: values[at])
    found = [0.0] * len(values)
    start = 0
    while start < len(order):
        end = start
        while end < len(order) and values[order[end]] == values[order[start]]:
            end += 1
        for at in order[start:end]:
            found[at] = (start + end + 1) / 2
        start = end
    return found


def correlation(one, other):
    """Spearman's rank correlation."""
    one, other = ranks(one), ranks(other)
    mean = (len(one) + 1) / 2
    covariance = sum((a - mean) * (b - mean) for a, b in zip(one, other))
    spread = [sum((a - mean) ** 2 for a in values) for values in (one, other)]
    return covariance / (spread[0] * spread[1]) ** 0.5


def line(points):
    """Offset and slope of the least-squares line through points."""
    n = len(points)
    x, y = sum(point[0] for point in points) / n, sum(point[1] for point in points) / n
    slope = sum((a - x) * (b - y) for a, b in points) / sum((a - x) ** 2 for a, _ in points)
    return y - slope * x, slope


def crossing(points, limit):
    """Where the line through (level, ns) passes `limit`, the last level below which all points meet it, and the first
    from which none does."""
    offset, slope = line(points)
    misses = [level for level, ns in points if ns > limit]
    meets = [level for level, ns in points if ns <= limit]
    return {
        "line": round((limit - offset) / slope, 1),
        "all_meet_below": min(misses, default=None),
        "none_meets_above": max(meets, default=None),
    }


def row_of(program):
    """The row of a program."""
    return Module(name=program["module"], folders=["emitted/random"])


def check(programs, known, emitted):
    """Names programs whose results are of another text; and, when all are there, correlations that are too low."""
    found = []
    for program in programs:
        result = known.get(program["module"])
        if result is not None and result["sources"] != digest(row_of(program), emitted):
            found.append(f"{program['module']}: changed since rtl/random.json: tools/rtl/depth.py --place")
    missing = [program["module"] for program in programs if program["module"] not in known]
    if missing:
        print(f"{len(missing)} programs have no results: tools/rtl/depth.py --place")
    elif not found:
        shown = summary(list(known.values()))
        for name in ("recorder_to_xcup", "recorder_to_osu018"):
            if (shown[name] < CORRELATION_MIN) != (name in OUTSIDE):
                found.append(f"{name}: a rank correlation of {shown[name]}, at least {CORRELATION_MIN} is expected; "
                             f"{'inside now' if name in OUTSIDE else 'not'} in OUTSIDE")
    return found


def one(program, number, known, place):
    """The results of one program."""
    row = row_of(program)
    hashed = digest(row)
    result = known.get(row.name, {})
    if result.get("sources") != hashed:
        result = {**program, "sources": hashed}
    if "xcup" not in result:
        result["xcup"], _ = measure.xcup(row, EMITTED)
    if "osu018" not in result:
        result["osu018"] = measure.osu018(row, EMITTED)
    if place and number % PLACED == 0 and "ecp5_mhz" not in result:
        result["ecp5_mhz"] = measure.ecp5(row, EMITTED)["mhz"]
    return result


def summary(results):
    """What row T-R4 asks for."""
    levels = [result["levels"] for result in results]
    xcup = [result["xcup"]["levels"] for result in results]
    ns = [result["osu018"]["ns"] for result in results]
    found = {
        "programs": len(results),
        "levels": [min(levels), max(levels)],
        "state_bytes": [min(r["state_bits"] for r in results) / 8, max(r["state_bits"] for r in results) / 8],
        "recorder_to_xcup": round(correlation(levels, xcup), 3),
        "recorder_to_osu018": round(correlation(levels, ns), 3),
        "xcup_to_osu018": round(correlation(xcup, ns), 3),
    }
    placed = [result for result in results if "ecp5_mhz" in result]
    # Fewer lie on no line, or on any.
    if len(placed) > 2:
        scaled = [1000 / result["ecp5_mhz"] / ECP5_TO_XCKU15P for result in placed]
        by = {"recorder": [r["levels"] for r in placed], "xcup": [r["xcup"]["levels"] for r in placed]}
        found["placed"] = len(placed)
        found["ecp5_10_ns"] = {name: crossing(list(zip(x, scaled)), CYCLE_NS) for name, x in by.items()}
        found["xcup_to_ecp5"] = round(correlation(by["xcup"], scaled), 3)
    return found


def write(results, path=RESULTS):
    """Writes the results and what they show, one program a line."""
    if len(results) < 3:
        return
    rows = ",\n".join("  " + json.dumps(result) for result in results)
    head = ",\n".join(f'"{name}": {json.dumps(value)}' for name, value in
                      {"tools": TOOLS, "summary": summary(results)}.items())
    path.write_text(f'{{{head},\n"programs": [\n{rows}\n]}}\n')


def main():
    """Measures what is new."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--place", action="store_true", help="also place and route every fifth program")
    parser.add_argument("--check", action="store_true", help="only whether the results are of these programs")
    parser.add_argument("--emitted", type=Path, default=EMITTED)
    arguments = parser.parse_args()
    index = arguments.emitted / "random.json"
    if not index.exists():
        tool.fail("no programs: cargo run -p rnic-rtl --bin rnic-circuits -- out/rtl/emitted")
    programs = json.loads(Path(index).read_text())
    known = {}
    if RESULTS.exists():
        known = {result["module"]: result for result in json.loads(RESULTS.read_text())["programs"]}
    if arguments.check:
        found = check(programs, known, arguments.emitted)
        for finding in found:
            print(finding)
        sys.exit(1 if found else 0)
    with ThreadPoolExecutor(arguments.jobs) as pool:
        work = [pool.submit(one, program, number, known, arguments.place) for number, program in enumerate(programs)]
        for future in as_completed(work):
            result = future.result()
            known[result["module"]] = result
            # After each, so that an interrupted run goes on where it was.
            done = [known[program["module"]] for program in programs if program["module"] in known]
            write(done)
            print(f"{result['module']}: {result['levels']} levels recorded, {result['xcup']['levels']} in xcup, "
                  f"{result['osu018']['ns']} ns, ECP5 {result.get('ecp5_mhz', '-')} MHz", flush=True)
    write(done)
    print(json.dumps(summary(done)))


if __name__ == "__main__":
    try:
        main()
    except tool.Missing as missing:
        tool.fail(missing)

"""The Python module, with the wheel installed: `make wheel`."""

import os
import re
import shutil
import tempfile
import threading
import time
import unittest
from pathlib import Path

import numpy as np
import openrnic

ROOT = Path(__file__).parents[3]
TRAINING = """
mtu = 4096
topology = { kind = "star", hosts = 4 }
links = { rate = "100Gbps", delay = "1us" }
switch = { model = "shared-buffer", buffer = "8MB" }
transport = { name = "irn" }
workload = { kind = "chakra", file = "traces" }
"""
SMALL = {"workload.repeats": 2, "workload.senders": 5, "workload.bytes": "300KB"}


def small() -> openrnic.Plan:
    plan = openrnic.plan("incast")
    for key, value in SMALL.items():
        plan = plan.set(key, value)
    return plan


class Module(unittest.TestCase):
    def test_a_run_has_flows_and_the_trace_hash_of_the_seed(self):
        result = small().run(seed=3)
        self.assertEqual(len(result.flows), result.report["flows"])
        self.assertEqual(len(result.flows), 10)
        slowdown = result.flows["fct_us"] / result.flows["ideal_us"]
        self.assertTrue(np.allclose(slowdown, result.flows["slowdown"]))
        self.assertEqual(result.trace_hash, small().run(seed=3, threads=2).trace_hash)
        self.assertNotEqual(result.trace_hash, small().run(seed=4).trace_hash)

    def test_time_series_are_a_table_and_change_nothing(self):
        recorded = small().record("5us", ["links", "traffic"]).run()
        self.assertEqual(recorded.trace_hash, small().run().trace_hash)
        series = recorded.series
        self.assertEqual(set(series["kind"].unique()), {"link", "traffic"})
        arrived = series[(series["metric"] == "arrived_gbps") & (series["kind"] == "traffic")]
        steps = np.diff(arrived["time_us"], prepend=0.0)
        total = (arrived["value"] * steps).sum() * 1e3 / 8
        self.assertAlmostEqual(total / recorded.report["bytes"], 1.0, places=3)
        self.assertIs(recorded.series, series)
        self.assertGreater(recorded.pivot("queue_bytes").max().max(), 10_000)
        self.assertTrue(small().run().series.empty)

    def test_errors_are_one_line_with_the_key(self):
        for wrong, text in [
            (lambda: openrnic.plan("nowhere"), "neither a plan of the package nor a file"),
            (lambda: small().set("links.rate", "fast"), "links.rate"),
            (lambda: small().set("workload.sender", 1), "unknown key `sender`"),
            (lambda: openrnic.sweep(small(), {"mtu": [512, 512, 1]}), "mtu"),
        ]:
            with self.assertRaises(ValueError) as caught:
                wrong()
            self.assertIn(text, str(caught.exception))
            self.assertEqual(len(str(caught.exception).splitlines()), 1)

    def test_a_sweep_is_a_table_that_can_be_compared(self):
        vary = {"workload.senders": [3, 5], "transport": ["irn", "roce-gbn"]}
        sweep = openrnic.sweep(small(), vary, seeds=2)
        self.assertEqual(len(sweep.frame), 8)
        self.assertEqual(sweep.failures, [])
        table = sweep.table("goodput_gbps")
        self.assertEqual(len(table), 4)
        seeds = [openrnic.sweep(small(), {"transport": [name]}, seeds=4) for name in ["irn", "irn"]]
        same = openrnic.compare(*seeds, "goodput_gbps").frame
        self.assertFalse(same["significant"].any())
        with self.assertRaises(ValueError):
            openrnic.compare(sweep, seeds[0])
        for call in [sweep.table, sweep.plot]:
            with self.assertRaisesRegex(ValueError, "unknown field 'goodput'; did you mean goodput_gbps"):
                call("goodput")
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "runs.json").write_text(sweep._json, encoding="utf-8")
            self.assertTrue(openrnic.Sweep.load(folder).frame.equals(sweep.frame))

    def test_threads_of_python_run_at_the_same_time(self):
        ticks = []
        done = threading.Event()

        def tick():
            while not done.is_set():
                ticks.append(None)
                time.sleep(0.001)

        thread = threading.Thread(target=tick)
        thread.start()
        openrnic.plan("incast").run()
        done.set()
        thread.join()
        self.assertGreater(len(ticks), 5, "the simulation held the lock")

    def test_plots_draw_the_highest_series(self):
        import matplotlib

        matplotlib.use("Agg")
        axes = small().record("5us", ["links"]).run().plot("queue_bytes", most=3)
        self.assertEqual(len(axes.lines), 3)
        with self.assertRaisesRegex(ValueError, "unknown metric 'queue_byte'; did you mean queue_bytes"):
            small().record("5us", ["links"]).run().plot("queue_byte")
        with self.assertRaisesRegex(ValueError, "records no time series; run plan.record"):
            small().run().plot("queue_bytes")
        axes = openrnic.sweep(small(), {"workload.senders": [3, 5]}, seeds=1).plot("goodput_gbps")
        self.assertEqual(len(axes.lines), 1)

    def test_every_plan_of_the_package_is_valid(self):
        self.assertGreater(len(openrnic.plans()), 8)
        for name in openrnic.plans():
            self.assertRegex(openrnic.plan(name).text, r"\[(workload|traffic\.)")

    def test_a_program_file_is_a_controller_and_a_transport(self):
        law = ROOT / "examples/notebooks/my-law.rnicp"
        plan = small().set("switch.ecn", {"kmin": "10KB", "kmax": "40KB", "pmax": "20%"})
        reports = [plan.set("transport", {"name": "irn", "control": law, "first_window": first}).run().report for first in (8, 64)]
        self.assertEqual([report["program"] for report in reports], ["my-law", "my-law"])
        self.assertNotEqual(reports[0]["trace_hash"], reports[1]["trace_hash"])
        sweep = openrnic.sweep(plan, {"transport": ["irn", {"name": "irn", "control": str(law)}]}, seeds=2)
        self.assertEqual(sweep.failures, [])
        self.assertEqual(len(sweep.table("drop_rate")), 2)
        with self.assertRaisesRegex(ValueError, "nowhere.rnicp.*relative to the folder in which the command runs"):
            plan.set("transport", "nowhere.rnicp")

    def test_execution_traces_are_swept(self):
        with tempfile.TemporaryDirectory() as folder:
            shutil.copytree(ROOT / "crates/rnic-fabric/tests/chakra", Path(folder, "traces"))
            Path(folder, "training.toml").write_text(TRAINING, encoding="utf-8")
            plan = openrnic.plan(Path(folder, "training.toml"))
            sweep = openrnic.sweep(plan, {"links.rate": ["100Gbps", "400Gbps"]}, seeds=2)
            self.assertEqual(sweep.failures, [])
            times = sweep.frame.groupby("links.rate")["execution.time_us"].mean()
            self.assertLess(times["400Gbps"], times["100Gbps"])
            result = plan.run()
            self.assertEqual(result.report["execution"]["nodes_unfinished"], 0)

    def test_the_examples_of_the_page_run(self):
        import matplotlib

        matplotlib.use("Agg")
        page = (ROOT / "docs/python.md").read_text(encoding="utf-8")
        blocks = re.findall(r"^```python$(.*?)^```$", page, re.MULTILINE | re.DOTALL)
        self.assertEqual(len(blocks), 2)
        before = Path.cwd()
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            try:
                shutil.copy(ROOT / "examples/notebooks/my-law.rnicp", folder)
                Path("out/sweep").mkdir(parents=True)
                vary = {"workload.senders": [5, 10, 20], "transport": ["irn", "falcon"]}
                other = openrnic.sweep(openrnic.plan("incast").set("workload.repeats", 2), vary, seeds=3)
                Path("out/sweep/runs.json").write_text(other._json, encoding="utf-8")
                names: dict = {}
                for block in blocks:
                    exec(block, names)  # noqa: S102
                self.assertEqual(names["own"].run().report["program"], "my-law")
            finally:
                os.chdir(before)


if __name__ == "__main__":
    unittest.main()

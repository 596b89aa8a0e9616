"""Tests of the counting of cells, levels and lines, of the table, and of rank correlation."""

import tempfile
import unittest
from pathlib import Path

import depth
import lines
import netlist
import page
import report
from table import Module, digest, papers, rows, sources


def cell(kind, inputs, outputs, **parameters):
    """A cell with one input port and one output port."""
    return {"type": kind, "parameters": parameters, "connections": {"I": inputs, "O": outputs},
            "port_directions": {"I": "input", "O": "output"}}


class Levels(unittest.TestCase):
    """The longest path."""

    def levels(self, *cells):
        return netlist.levels({"cells": {f"c{number}": value for number, value in enumerate(cells)}})

    def test_luts_in_a_chain(self):
        self.assertEqual(self.levels(cell("LUT2", [1, 2], [3]), cell("LUT6", [3, 4], [5])), 2)

    def test_halves(self):
        chain = [cell("LUT2", [1], [2]), cell("CARRY4", [2], [3]), cell("CARRY4", [3], [4]), cell("MUXF7", [4], [5])]
        self.assertEqual(self.levels(*chain), 2.5)
        self.assertEqual(self.levels(cell("CARRY8", [1], [2])), 1)

    def test_the_longest_path_has_the_names_of_its_ends(self):
        q, d = cell("FDRE", [9], [1]), cell("FDRE", [4], [5])
        d["connections"] = {"D": [4], "Q": [5]}
        d["port_directions"] = {"D": "input", "Q": "output"}
        cells = {"a": q, "b": cell("LUT2", [1], [2]), "c": cell("LUT2", [2, 7], [4]), "d": d}
        names = {"from_q": {"bits": [1]}, "i_part.middle": {"bits": [2]}, "to_q": {"bits": [5]}}
        path = netlist.longest({"cells": cells, "netnames": names})
        self.assertEqual(path, [(0, "from_q"), (1, "i_part.middle"), (2, "to_q")])

    def test_a_register_ends_a_path(self):
        chain = [cell("LUT2", [1], [2]), cell("FDRE", [2], [3]), cell("LUT2", [3], [4]), cell("INV", [4], [5])]
        self.assertEqual(self.levels(*chain), 1)

    def test_the_address_of_a_write_leads_to_no_other_port(self):
        memory = {"type": "RAM64M8", "parameters": {},
                  "connections": {"ADDRA": [2], "ADDRH": [3], "DOA": [4], "DIA": [3]},
                  "port_directions": {"ADDRA": "input", "ADDRH": "input", "DOA": "output", "DIA": "input"}}
        chain = [cell("LUT2", [1], [3]), cell("LUT2", [3], [5]), cell("LUT2", [5], [6]), memory]
        self.assertEqual(self.levels(*chain), 3)
        self.assertEqual(self.levels(cell("LUT2", [1], [2]), memory, cell("LUT2", [4], [5])), 3)

    def test_a_dsp_with_a_register_ends_a_path(self):
        parts = [cell("LUT2", [1], [2]), cell("DSP48E2", [2], [3]), cell("LUT2", [3], [4])]
        self.assertEqual(self.levels(*parts), 6)
        parts[1]["parameters"]["MREG"] = "00000000000000000000000000000001"
        self.assertEqual(self.levels(*parts), 1)

    def test_the_path_of_an_asynchronous_read_is_that_of_its_address(self):
        memory = cell("RAM32X1D", [], [9])
        memory["connections"] = {"A0": [1], "DPRA0": [4], "D": [5], "WE": [6], "WCLK": [7], "DPO": [9]}
        memory["port_directions"] = {name: "input" for name in memory["connections"]} | {"DPO": "output"}
        slow_data = [cell("LUT2", [2], [10]), cell("LUT2", [10], [5])]
        self.assertEqual(self.levels(*slow_data, memory), 2)
        self.assertEqual(self.levels(cell("LUT2", [2], [3]), cell("LUT2", [3], [4]), memory), 3)

    def test_a_loop_is_an_error(self):
        with self.assertRaises(netlist.Loop):
            self.levels(cell("LUT2", [1], [2]), cell("LUT2", [2], [1]))

    def test_cells(self):
        cells = [cell("LUT3", [1], [2]), cell("RAM64M8", [2], [3]), cell("FDRE", [3], [4]), cell("RAMB18E2", [4], [5]),
                 cell("RAMB36E2", [5], [6]), cell("CARRY4", [6], [7]), cell("DSP48E2", [7], [8])]
        found = netlist.counts({"cells": dict(enumerate(cells))})
        self.assertEqual(found, {"lut": 9, "ff": 1, "ramb36": 1.5, "carry": 1, "dsp": 1, "lut_memory": 8})
        with self.assertRaises(ValueError):
            netlist.counts({"cells": {"x": cell("$_AND_", [1], [2])}})


class Table(unittest.TestCase):
    """Files of modules."""

    def test_sources_are_those_that_a_module_mentions(self):
        row = Module(name="header_decode", folders=["shell", "lib"])
        self.assertEqual([path.name for path in sources(row)], ["shell_pkg.sv", "header_decode.sv"])

    def test_the_hash_depends_on_parameters(self):
        one, other = (Module(name="first_set", folders=["lib"], parameters={"W": width}) for width in (64, 128))
        self.assertNotEqual(digest(one), digest(other))

    def test_a_sweep_is_a_row_for_each_value(self):
        names = {row.name for row in rows()}
        self.assertLessEqual({"first_in_ring_w64", "first_in_ring_w128"}, names)
        self.assertNotIn("first_in_ring", names)


class Limits(unittest.TestCase):
    """What is an error."""

    def test_more_than_five_percent_or_two_levels(self):
        limits = {"a": {"lut": 100, "levels": 10}}
        self.assertEqual(report.over_limit("a", {"lut": 105, "levels": 12}, limits, {}), [])
        self.assertEqual(len(report.over_limit("a", {"lut": 106, "levels": 12.5}, limits, {})), 2)
        self.assertEqual(len(report.over_limit("a", {"lut": 1, "levels": 1, "dsp": 1}, limits, {"dsp": 0})), 1)
        self.assertEqual(len(report.over_limit("b", {"lut": 1, "levels": 1}, limits, {})), 1)


class Depth(unittest.TestCase):
    """Row T-R4."""

    def test_rank_correlation(self):
        self.assertEqual(depth.ranks([3, 1, 3]), [2.5, 1, 2.5])
        self.assertAlmostEqual(depth.correlation([1, 2, 3, 4], [10, 20, 30, 40]), 1)
        self.assertAlmostEqual(depth.correlation([1, 2, 3, 4], [4, 3, 2, 1]), -1)
        # Sum of squared differences of ranks 6: 1 - 6 * 6 / (5 * 24).
        self.assertAlmostEqual(depth.correlation([1, 2, 3, 4, 5], [2, 1, 4, 5, 3]), 0.6)

    def test_where_a_limit_is_passed(self):
        found = depth.crossing([(10, 4), (20, 8), (30, 12), (40, 16)], 10)
        self.assertEqual(found, {"line": 25.0, "all_meet_below": 30, "none_meets_above": 20})


    def test_one_placed_program_lies_on_no_line(self):
        programs = [{"levels": levels, "state_bits": 8, "xcup": {"levels": levels}, "osu018": {"ns": levels}}
                    for levels in (3, 4, 5)]
        self.assertNotIn("ecp5_10_ns", depth.summary([{**programs[0], "ecp5_mhz": 400}, *programs[1:]]))


class Costs(unittest.TestCase):
    """Rows T-R1, T-R2 and T-R9, of the committed report."""

    def setUp(self):
        self.report = report.load(report.REPORT)
        self.modules = self.report["modules"]

    def test_a_program_is_less_than_a_twentieth_of_the_template(self):
        names = [name for name in papers()["tonic"] if f"tonic_{name}" in self.modules]
        self.assertTrue({"new_reno", "ndp", "dcqcn"} <= set(names))
        for name in names:
            user = page.user_lut(self.report, name)
            fixed = self.modules[f"tonic_{name}"]["lut"] - user
            self.assertLess(user, 0.05 * fixed, name)

    def test_the_credit_engine_of_windows_costs_least(self):
        window, rate, token = (self.modules[f"credit_{scheme}"] for scheme in ("window", "rate", "token"))
        for other in (rate, token):
            self.assertLess(window["lut"], other["lut"])
            self.assertLessEqual(window["ramb36"], other["ramb36"])
        self.assertGreater(rate["lut"], token["lut"])


class Tools(unittest.TestCase):
    """Waivers and the page."""

    def test_lines_that_cannot_be_reached_have_reasons(self):
        for listed in lines.unreachable().values():
            for reason in listed.values():
                self.assertTrue(reason)

    def test_numbers(self):
        self.assertEqual([page.number(value) for value in (None, 12.0, 12345, 1.25)], ["-", "12", "12,345", "1.2"])

    def test_a_report_is_read_as_it_was_written(self):
        value = {"tools": {"yosys": "0.23"}, "modules": {"a": {"lut": 1, "levels": 2.5}}}
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "report.json"
            report.save(path, value)
            self.assertEqual(report.load(path), value)


class Coverage(unittest.TestCase):
    """Points of Verilator as lines."""

    TEXT = "always_comb begin\n  a = 0;\n  if (b) a = 1;\n  if (c) begin\n    a = 2;\n  end\nend\n" \
        "`ifndef SYNTHESIS\nalways_comb if (a) assert (b);\n`endif\n"

    def point(self, line, comment, ranges, count):
        """A line of Verilator's file."""
        fields = {"f": "/a.sv", "l": line, "n": 3, "t": "line", "o": comment, "S": ranges, "h": "top"}
        return "C '" + "".join(f"\x01{name}\x02{value}" for name, value in fields.items()) + f"' {count}\n"

    def found(self, last):
        """The figures of the text, whose last condition was true so often."""
        counted = [(1, "block", "1-4", 9), (3, "if", "3", 4), (3, "else", "", 5), (4, "if", "4-5", last),
                   (4, "else", "", 9), (9, "if", "9", 0)]
        text = "".join(self.point(*point) for point in counted)
        return lines.points(text + self.point(3, "if", "3", 1), {Path("/a.sv"): "lib/a"})["lib/a"]

    def test_a_line_is_reached_when_all_its_branches_were(self):
        self.assertEqual(lines.lines(self.found(1), self.TEXT), ({1, 2, 3, 4, 5}, set()))
        self.assertEqual(lines.lines(self.found(0), self.TEXT), ({1, 2, 3, 4, 5}, {4, 5}))

    def test_a_listed_line_counts_neither_way(self):
        figures, left, wrong = lines.measured(self.found(0), self.TEXT, {"a = 2;": "c is never set"})
        self.assertEqual((figures["lines"], figures["reached"], figures["unreachable"]), (4, 3, 1))
        self.assertEqual((left, wrong), ([4], []))

    def test_a_listed_line_that_is_reached_is_an_error(self):
        _, left, wrong = lines.measured(self.found(1), self.TEXT, {"a = 2;": "c is never set"})
        self.assertEqual((left, len(wrong)), ([], 1))

    def test_a_changed_module_is_to_be_measured_again(self):
        modules = {"lib/cut": {"sources": "?", "lines": 4, "reached": 3}, "lib/gone": {"lines": 1, "reached": 1}}
        found = "\n".join(lines.findings({"modules": modules}))
        for part in ("lib/cut: has changed", "lib/cut: 75.0 %", "lib/gone: in rtl", "lib/ram_1w1r: not in"):
            self.assertIn(part, found)

    def test_comments_do_not_change_a_module(self):
        self.assertEqual(lines.digest("a = b; // c\n"), lines.digest("a  = b;\n"))
        self.assertNotEqual(lines.digest("a = b;"), lines.digest("a = c;"))


if __name__ == "__main__":
    unittest.main()

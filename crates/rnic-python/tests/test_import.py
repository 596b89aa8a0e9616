"""How long `import openrnic` takes, with the wheel installed: `make wheel`. Run alone, before the other tests."""

import subprocess
import sys
import time
import unittest

MEASURE = "import time; start = time.perf_counter(); import openrnic; print(time.perf_counter() - start)"


class Import(unittest.TestCase):
    def test_the_import_is_quick(self):
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", "import openrnic"], check=True)
        self.assertLess(time.perf_counter() - start, 0.5, "with the start of the interpreter")
        seconds = subprocess.run([sys.executable, "-c", MEASURE], check=True, capture_output=True, text=True).stdout
        self.assertLess(float(seconds), 0.3)


if __name__ == "__main__":
    unittest.main()

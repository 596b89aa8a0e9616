"""Runs rdma-core's tests on rnic0 and writes one line for each into a file: its name, how it ended, and why it did not pass.

    run.py DIRECTORY-WITH-THE-TESTS FILE

The tests are as they come; only how they are reported is ours. What one of them prints stays apart from the lines.
"""

import os
import sys
import unittest
from importlib.machinery import SourceFileLoader

suite, report = sys.argv[1:3]
sys.argv = [sys.argv[0], '--dev', 'rnic0']
sys.path.insert(0, suite)
os.chdir(os.path.dirname(suite))

from args_parser import parser  # noqa: E402

# Tests of one vendor's device need that vendor's library, which a release that was built for them alone does not have.
tests = SourceFileLoader('tests', os.path.join(suite, '__init__.py')).load_module()
parser.parse_args()


class Lines(unittest.TestResult):
    """Writes each result when it is there."""

    def __init__(self, into):
        super().__init__()
        self.into = into

    def line(self, test, how, why=''):
        self.into.write('\t'.join([test.id(), how, ' '.join(str(why).split())]) + '\n')
        self.into.flush()

    def addSuccess(self, test):
        self.line(test, 'pass')

    def addSkip(self, test, reason):
        self.line(test, 'skip', reason)

    def addFailure(self, test, error):
        self.line(test, 'fail', self._exc_info_to_string(error, test))

    def addError(self, test, error):
        self.line(test, 'fail', self._exc_info_to_string(error, test))


with open(report, 'w') as into:
    unittest.defaultTestLoader.loadTestsFromModule(tests).run(Lines(into))

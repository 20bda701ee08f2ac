"""What the Python tests share: a folder per test, and the driver to test.

IOE_TEST_DRIVER=posix makes every store and log ask for the POSIX driver, as in the C programs.
"""

import os
import pathlib
import shutil
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
HEADER = ROOT / "include" / "iouring_engine.h"
OPTIONS = {"driver": os.environ.get("IOE_TEST_DRIVER") or "auto"}


class Case(unittest.TestCase):
    """A test with a folder of its own, which is removed behind it."""

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="ioe-python-test-")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def place(self, name="store"):
        return os.path.join(self.folder, name)

#!/usr/bin/env python3
"""test_timed.py TIMED: tests/timed.c passes on what its command does, and writes what it cost."""
import os
import signal
import subprocess
import sys
import tempfile
import unittest

TIMED = sys.argv.pop(1)


class Timed(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.file = os.path.join(folder.name, "times")

    def run_timed(self, *command):
        return subprocess.run([TIMED, self.file, *command], capture_output=True, text=True,
                              check=False)

    def times(self):
        with open(self.file, encoding="utf-8") as file:
            return [float(word) for word in file.read().split()]

    def test_status_and_output_are_the_commands(self):
        ended = self.run_timed("sh", "-c", "echo out; echo err >&2; exit 7")
        self.assertEqual((ended.returncode, ended.stdout, ended.stderr), (7, "out\n", "err\n"))

    def test_a_signal_is_passed_on(self):
        for number in (signal.SIGABRT, signal.SIGSEGV, signal.SIGKILL):
            ended = self.run_timed("sh", "-c", "kill -%d $$" % number)
            self.assertEqual(ended.returncode, -number)

    def test_a_signal_that_is_blocked_here_is_passed_on_too(self):
        unblock = ("import os, signal; signal.pthread_sigmask(signal.SIG_UNBLOCK, [15]); "
                   "os.kill(os.getpid(), 15)")
        ended = subprocess.run([TIMED, self.file, sys.executable, "-c", unblock],
                               capture_output=True, check=False, preexec_fn=lambda:
                               signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM]))
        self.assertEqual(ended.returncode, -signal.SIGTERM)

    def test_a_status_is_kept_where_children_were_ignored(self):
        ended = subprocess.run([TIMED, self.file, "sh", "-c", "exit 7"], check=False, preexec_fn=
                               lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN))
        self.assertEqual(ended.returncode, 7)

    def test_the_command_dies_with_it_and_with_ctest(self):
        timed = [TIMED, self.file, "sh", "-c", "echo begun; exec sleep 600"]
        for command in (timed, ["sh", "-c", '"$@"; true', "ctest", *timed]):
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
                self.assertEqual(process.stdout.readline(), "begun\n")
                process.kill()
                process.communicate(timeout=300)  # its output ends when the command has died

    def test_processor_time_of_children_counts(self):
        # Instructions of two processes that end: more than nothing, however fast the machine is.
        self.run_timed("sh", "-c", "(i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done); true")
        cpu_s, wall_s = self.times()
        self.assertGreater(cpu_s, 0)
        self.assertGreater(wall_s, 0)

    def test_what_cannot_run_says_so(self):
        ended = self.run_timed("/nowhere/at/all")
        self.assertEqual(ended.returncode, 127)
        self.assertIn("/nowhere/at/all", ended.stderr)

    def test_a_file_that_cannot_be_written_is_a_failure(self):
        ended = subprocess.run([TIMED, "/nowhere/times", "true"], capture_output=True, text=True,
                               check=False)
        self.assertEqual(ended.returncode, 127)
        self.assertIn("/nowhere/times", ended.stderr)

    def test_without_a_command_it_explains_itself(self):
        self.assertIn("usage", subprocess.run([TIMED], capture_output=True, text=True,
                                              check=False).stderr)


if __name__ == "__main__":
    unittest.main()

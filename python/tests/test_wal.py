"""The log from Python: records in order, durable, replayed; waits that Ctrl-C ends."""

import os
import select
import signal
import subprocess
import sys
import textwrap
import time
import unittest

import iouring_engine
from common import OPTIONS, Case


class Log(Case):
    def open(self, name="log", **options):
        return iouring_engine.open_wal(self.place(name), **{**OPTIONS, **options})

    def replayed(self, name="log"):
        records = []
        found = iouring_engine.recover(self.place(name), lambda sequence, record: records.append((sequence, record)))
        return records, found

    def test_records_are_acknowledged_in_order_and_replayed(self):
        wanted = [(i + 1, os.urandom(i * 7 % 500)) for i in range(100)]
        with self.open() as log:
            for sequence, record in wanted:
                self.assertEqual(log.append(record, user_data=sequence * 2), sequence)
            events = log.reap(min_complete=100, timeout=30)
            self.assertEqual([e.sequence for e in events], [s for s, _ in wanted])
            self.assertEqual([e.user_data for e in events], [s * 2 for s, _ in wanted])
            self.assertTrue(all(e.result >= 0 for e in events))
        records, found = self.replayed()
        self.assertEqual(records, wanted)
        self.assertEqual(found.records, 100)

    def test_write_waits_until_the_record_is_durable(self):
        with self.open() as log:
            self.assertEqual(log.write(b"one"), 1)
            log.append(b"two")
            self.assertEqual(log.write(b"three"), 3)
        with self.open() as log:
            self.assertEqual(log.write(b"four"), 4)
        self.assertEqual([r for _, r in self.replayed()[0]], [b"one", b"two", b"three", b"four"])

    def test_a_reap_does_not_wait_for_what_cannot_come(self):
        with self.open() as log:
            self.assertEqual(log.reap(), [])
            self.assertEqual(log.reap(min_complete=1), [])
            self.assertEqual(log.reap(min_complete=5, timeout=60), [])
            log.append(b"x")
            self.assertEqual(len(log.reap(min_complete=5)), 1)
            log.append(b"y")
            self.assertLessEqual(len(log.reap(min_complete=1, timeout=0)), 1)

    def test_a_host_that_watches_the_descriptor(self):
        with self.open() as log:
            poll = select.poll()
            poll.register(log.fileno(), select.POLLIN)
            for i in range(20):
                log.append(b"%d" % i)
            log.submit()
            have = 0
            while have < 20:
                self.assertTrue(poll.poll(10000), "the descriptor is readable")
                have += len(log.reap())

    def test_a_replay_can_be_stopped_and_what_it_raises_comes_out(self):
        with self.open() as log:
            for i in range(10):
                log.write(b"%d" % i)
        seen = []
        iouring_engine.recover(self.place("log"), lambda s, r: seen.append(s) or s == 4)
        self.assertEqual(seen, [1, 2, 3, 4])

        def refuse(sequence, record):
            raise LookupError("no more")

        with self.assertRaisesRegex(LookupError, "no more"):
            iouring_engine.recover(self.place("log"), refuse)

    def test_damage_is_a_corruption_error_that_names_the_file(self):
        with self.open() as log:
            for i in range(10):
                log.write(b"record %d" % i)
        place = self.place("log")
        damaged = 0
        for name in os.listdir(place):
            path = os.path.join(place, name)
            with open(path, "r+b") as file:
                content = file.read()
                at = content.find(b"record 3")
                if at > 0:
                    file.seek(at)
                    file.write(b"RECORD 3")
                    damaged += 1
        self.assertEqual(damaged, 1)
        with self.assertRaisesRegex(iouring_engine.CorruptionError, r"\.wal"):
            self.replayed()
        with self.assertRaises(iouring_engine.CorruptionError):
            self.open()
        left = []
        found = iouring_engine.recover(place, lambda sequence, record: left.append(record), salvage=True)
        self.assertIn(b"record 0", left)
        self.assertNotIn(b"RECORD 3", left)
        self.assertGreaterEqual(found.damages, 1)

    def test_text_is_refused_and_a_closed_log_says_so(self):
        log = self.open()
        with self.assertRaisesRegex(TypeError, "record must be bytes-like"):
            log.append("text")
        with self.assertRaises(iouring_engine.BusyError):
            self.open()
        log.close()
        log.close()
        self.assertTrue(log.closed)
        with self.assertRaises(iouring_engine.ClosedError):
            log.append(b"x")

    def test_released_records_may_go(self):
        with self.open() as log:
            last = [log.write(b"%d" % i) for i in range(5)][-1]
            log.release(last)

    def test_control_c_ends_a_wait(self):
        script = textwrap.dedent(
            """
            import sys, iouring_engine
            log = iouring_engine.open_wal(sys.argv[1], driver=sys.argv[2])
            log.write(b"x")
            print("waiting", flush=True)
            try:
                while True:
                    log.write(b"x" * 1000)
            except KeyboardInterrupt:
                log.close()
                print("interrupted", flush=True)
            """
        )
        command = [sys.executable, "-c", script, self.place(), OPTIONS["driver"]]
        child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.assertEqual(child.stdout.readline(), "waiting\n")
        time.sleep(0.3)
        child.send_signal(signal.SIGINT)
        self.assertEqual(child.communicate(timeout=20)[0], "interrupted\n")
        self.assertEqual(child.returncode, 0)


if __name__ == "__main__":
    unittest.main()

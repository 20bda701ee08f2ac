"""The store from Python: a map of bytes that outlives the process."""

import errno
import gc
import os
import signal
import subprocess
import sys
import textwrap
import threading
import unittest

import iouring_engine
from common import OPTIONS, Case


class Storing(Case):
    def open(self, name="store", **options):
        return iouring_engine.open(self.place(name), **{**OPTIONS, **options})

    def test_items_are_there_when_it_is_opened_again(self):
        with self.open() as store:
            store[b"key"] = b"value"
            store.put(b"other", b"1")
            self.assertEqual(store[b"key"], b"value")
            self.assertIn(b"key", store)
            self.assertNotIn(b"nothing", store)
        with self.open() as store:
            self.assertEqual(store[b"key"], b"value")
            self.assertEqual(store.get(b"other"), b"1")

    def test_a_missing_key_is_a_key_error_or_the_default(self):
        with self.open() as store:
            with self.assertRaises(KeyError):
                store[b"nothing"]
            with self.assertRaises(KeyError):
                del store[b"nothing"]
            self.assertIsNone(store.get(b"nothing"))
            self.assertEqual(store.get(b"nothing", b"default"), b"default")
            store.delete(b"nothing")

    def test_put_delete_put_of_one_key(self):
        with self.open() as store:
            store[b"k"] = b"1"
            del store[b"k"]
            self.assertNotIn(b"k", store)
            store[b"k"] = b"2"
        with self.open() as store:
            self.assertEqual(store[b"k"], b"2")

    def test_bytes_like_keys_and_values_of_every_kind(self):
        with self.open() as store:
            store[bytearray(b"array")] = memoryview(b"view")
            self.assertEqual(store[b"array"], b"view")
            store[memoryview(b"..key..")[2:5]] = bytearray(b"x")
            self.assertEqual(store[b"key"], b"x")
            store[memoryview(b"k.e.y.")[::2]] = b"strided"
            self.assertEqual(store[b"key"], b"strided")
            store[b""] = b""
            self.assertEqual(store[b""], b"")
            self.assertIn(b"", store)
            store[b"a\0b"] = b"c\0\0d"
            self.assertEqual(store[b"a\0b"], b"c\0\0d")

    def test_text_and_numbers_are_refused_with_a_clear_type_error(self):
        with self.open() as store:
            for wrong in ("text", 5, None, 1.5, [b"x"]):
                with self.subTest(wrong=wrong):
                    with self.assertRaisesRegex(TypeError, "key must be bytes-like"):
                        store[wrong] = b"value"
                    with self.assertRaisesRegex(TypeError, "value must be bytes-like"):
                        store[b"key"] = wrong
                    with self.assertRaisesRegex(TypeError, "key must be bytes-like"):
                        store.get(wrong)
                    with self.assertRaisesRegex(TypeError, "key must be bytes-like"):
                        wrong in store
            with self.assertRaisesRegex(TypeError, "encode"):
                store["text"]

    def test_large_values_and_limits(self):
        with self.open() as store:
            large = os.urandom(3 << 20)
            store[b"large"] = large
            self.assertEqual(store[b"large"], large)
            self.assertIn(b"large", store)
            store[b"k" * 65535] = b"v"
            self.assertEqual(store[b"k" * 65535], b"v")
            with self.assertRaises(iouring_engine.TooLargeError):
                store[b"k" * 65536] = b"v"

    def test_a_batch_is_written_when_its_block_ends_and_dropped_when_it_raises(self):
        with self.open() as store:
            store[b"old"] = b"x"
            with store.write_batch() as batch:
                batch.put(b"a", b"1")
                batch[b"b"] = b"2"
                del batch[b"old"]
                self.assertEqual(len(batch), 3)
                self.assertNotIn(b"a", store)
            self.assertEqual((store[b"a"], store[b"b"], store.get(b"old")), (b"1", b"2", None))
            with self.assertRaises(RuntimeError):
                with store.write_batch() as batch:
                    batch.put(b"c", b"3")
                    raise RuntimeError("no")
            self.assertNotIn(b"c", store)
            batch = store.write_batch(durability="buffered")
            batch.put(b"d", b"4")
            batch.write()
            self.assertEqual(store[b"d"], b"4")
            self.assertEqual(len(batch), 0)
            batch.close()
            with self.assertRaises(iouring_engine.ClosedError):
                batch.put(b"e", b"5")

    def test_batched_puts_are_visible_at_once_and_durable_after_a_flush(self):
        with self.open() as store:
            before = store.durable_sequence()
            for i in range(1000):
                store.batch_put(b"%d" % i, b"v%d" % i)
            self.assertEqual(store[b"999"], b"v999")
            store.flush_batch()
            self.assertGreaterEqual(store.durable_sequence(), before + 1000)

    def test_properties(self):
        with self.open() as store:
            self.assertIn("\n", store.property())
            self.assertIn(store.property("driver").strip().split()[0], ("io_uring", "uring", "posix", "inline"))
            with self.assertRaises(KeyError):
                store.property("no such property")

    def test_a_closed_store_says_so(self):
        store = self.open()
        self.assertFalse(store.closed)
        store.close()
        store.close()
        self.assertTrue(store.closed)
        for call in (lambda: store[b"k"], lambda: store.put(b"k", b"v"), lambda: b"k" in store, store.flush_batch):
            with self.assertRaises(iouring_engine.ClosedError):
                call()

    def test_a_store_that_nobody_holds_is_closed(self):
        store = self.open()
        store[b"k"] = b"v"
        del store
        gc.collect()
        with self.open() as store:
            self.assertEqual(store[b"k"], b"v")

    def test_many_threads(self):
        failures = []

        def work(number):
            try:
                for i in range(100):
                    key = b"%d %d" % (number, i)
                    store[key] = key
                    assert store[key] == key
            except BaseException as error:
                failures.append(error)

        with self.open() as store:
            threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.assertEqual(failures, [])
        with self.open() as store:
            self.assertTrue(all(store[b"%d %d" % (n, i)] == b"%d %d" % (n, i) for n in range(8) for i in range(100)))

    def test_open_twice_is_busy(self):
        with self.open():
            with self.assertRaises(iouring_engine.BusyError) as caught:
                self.open()
            self.assertIsInstance(caught.exception, iouring_engine.Error)
            self.assertEqual(caught.exception.code, -10005)

    def test_what_the_system_refuses_is_an_os_error_with_its_errno(self):
        place = self.place("file")
        with open(place, "w"):
            pass
        with self.assertRaises(OSError) as caught:
            self.open("file")
        self.assertEqual(caught.exception.errno, errno.ENOTDIR)
        self.assertIsInstance(caught.exception, iouring_engine.Error)
        self.assertIn(place, str(caught.exception))
        with self.assertRaises(OSError) as caught:
            self.open("missing", create_if_missing=False)
        self.assertEqual(caught.exception.errno, errno.ENOENT)

    def test_options_have_names_and_wrong_ones_are_refused(self):
        with self.assertRaisesRegex(TypeError, "no option"):
            self.open(nonsense=1)
        with self.assertRaisesRegex(ValueError, "durability"):
            self.open(durability="perhaps")
        with self.assertRaises(iouring_engine.UnsupportedError):
            with self.open():
                pass
            self.open(read_only=True)
        for sync in ("linked", "dsync", "syscall"):
            with self.open("by-" + sync, sync=sync, durability="buffered") as store:
                store[b"k"] = b"v"
                self.assertEqual(store[b"k"], b"v")

    def test_a_path_object_and_a_path_of_bytes(self):
        import pathlib

        with iouring_engine.open(pathlib.Path(self.place("p")), **OPTIONS) as store:
            store[b"k"] = b"v"
        with iouring_engine.open(os.fsencode(self.place("p")), **OPTIONS) as store:
            self.assertEqual(store[b"k"], b"v")
        with self.assertRaises(ValueError):
            iouring_engine.open("a\0b")

    def test_what_was_acknowledged_survives_a_kill(self):
        script = textwrap.dedent(
            """
            import sys, iouring_engine
            store = iouring_engine.open(sys.argv[1], driver=sys.argv[2])
            i = 0
            while True:
                store[b"%d" % i] = b"value %d" % i
                print(i, flush=True)
                i += 1
            """
        )
        command = [sys.executable, "-c", script, self.place(), OPTIONS["driver"]]
        child = subprocess.Popen(command, stdout=subprocess.PIPE)
        acknowledged = 0
        while acknowledged < 200:
            line = child.stdout.readline()
            self.assertTrue(line, "the child ended")
            acknowledged = int(line)
        child.send_signal(signal.SIGKILL)
        for line in child.stdout:
            acknowledged = int(line) if line.endswith(b"\n") else acknowledged
        child.stdout.close()
        child.wait()
        with self.open() as store:
            for i in range(acknowledged + 1):
                self.assertEqual(store[b"%d" % i], b"value %d" % i)

    def test_a_child_after_fork_is_told(self):
        with self.open() as store:
            pid = os.fork()
            if pid == 0:
                try:
                    store.put(b"k", b"v")
                    os._exit(1)
                except iouring_engine.Error as error:
                    os._exit(0 if error.code == -10011 else 2)
            self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 0)
            store[b"k"] = b"of the parent"


class Loading(unittest.TestCase):
    def test_a_library_that_is_not_there_is_an_import_error_that_says_what_to_do(self):
        environment = {**os.environ, "IOURING_ENGINE_LIBRARY": "/nonexistent/libiouring_engine.so"}
        done = subprocess.run(
            [sys.executable, "-c", "import iouring_engine"], env=environment, capture_output=True, text=True
        )
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("IOURING_ENGINE_LIBRARY", done.stderr)

    def test_version(self):
        self.assertRegex(iouring_engine.version(), r"^\d+\.\d+\.\d+$")


if __name__ == "__main__":
    unittest.main()

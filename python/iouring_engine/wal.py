"""The log on its own: append, submit, reap in order; released records go.

A log belongs to the thread of its first submit or reap. Waits are cut into slices, so that Ctrl-C and other signals
are handled while one waits.
"""

import collections
import ctypes
import time

from . import _native, errors
from ._native import check, data, lib
from ._signatures import REPLAY, wal_event_t, wal_options_t, wal_recover_options_t, wal_recovery_t

_CHOICES = {"driver": _native.DRIVERS, "sync": _native.SYNCS}
_SLICE_MS = 100

Event = collections.namedtuple("Event", ["sequence", "user_data", "result"])
Event.__doc__ = "One record's end: durable when `result` is not negative, else the code that says why not."

_COUNTS = [name for name, _ in wal_recovery_t._fields_ if name != "size" and not name.startswith("reserved")]
Recovery = collections.namedtuple("Recovery", _COUNTS)
Recovery.__doc__ = "What a replay found; the fields are those of wal_recovery_t in the C header."


def open_wal(path, **options):
    """Opens the log in a folder, making it when there is none; options are the fields of wal_options_t."""
    wanted = wal_options_t()
    check(lib.wal_options_init(ctypes.byref(wanted), ctypes.sizeof(wanted)))
    _native.fill_options(wanted, options, _CHOICES)
    handle = ctypes.c_void_p()
    check(lib.wal_open(_native.path(path), ctypes.byref(wanted), ctypes.byref(handle)))
    return Wal(handle.value)


def recover(path, deliver, salvage=False):
    """Replays a log without opening it: calls deliver(sequence, record) for each, in order.

    A true result of `deliver` stops the replay; what it raises comes out here. With `salvage` a damaged log gives what
    is left of it instead of a CorruptionError. Returns what was found, or None when the replay was stopped.
    """
    raised = []
    options = wal_recover_options_t()
    check(lib.wal_recover_options_init(ctypes.byref(options), ctypes.sizeof(options)))
    options.salvage = int(salvage)

    def record(_, sequence, start, length):
        try:
            return 1 if deliver(sequence, ctypes.string_at(start, length) if length else b"") else 0
        except BaseException as error:  # an exception can't cross C: it is kept and raised below
            raised.append(error)
            return 1

    callback = REPLAY(record)
    found = wal_recovery_t()
    found.size = ctypes.sizeof(found)
    code = lib.wal_recover(_native.path(path), ctypes.byref(options), callback, None, ctypes.byref(found))
    if raised:
        raise raised[0]
    if code == errors.CANCELLED:
        return None
    check(code)
    return Recovery(*(getattr(found, name) for name in _COUNTS))


class Wal:
    """An open log; made by `open_wal`."""

    def __init__(self, handle):
        self._handle = handle
        self._pending = 0

    def _alive(self):
        if self._handle is None:
            raise errors.ClosedError("the log is closed", errors.CLOSED)
        return self._handle

    def append(self, record, user_data=0):
        """Queues a record, copied, and returns its sequence; durable when its event says so."""
        record = data(record, "record")
        sequence = ctypes.c_uint64()
        check(lib.wal_append(self._alive(), record, len(record), user_data, ctypes.byref(sequence)))
        self._pending += 1
        return sequence.value

    def submit(self):
        """Sends what was queued; `reap` does so too."""
        check(lib.wal_submit(self._alive()))

    def reap(self, max_events=256, min_complete=0, timeout=None):
        """Events of records that ended, in order.

        Waits for `min_complete` of them, but not for more than were appended, and at most `timeout` seconds.
        """
        room = (wal_event_t * max_events)()
        events = []
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            missing = min(min_complete, max_events, len(events) + self._pending) - len(events)
            left = _SLICE_MS if missing > 0 else 0
            if deadline is not None:
                left = max(0, min(left, int((deadline - time.monotonic()) * 1000 + 0.999)))
            count = lib.wal_reap(self._alive(), room, max_events - len(events), int(missing > 0), left)
            if not errors.interrupted(count):
                check(count)
                self._pending -= count
                events += [Event(e.sequence, e.user_data, e.result) for e in room[:count]]
                missing -= count
            if missing <= 0 or (deadline is not None and time.monotonic() >= deadline):
                return events

    def write(self, record):
        """Appends a record and waits until it is durable; returns its sequence. Earlier events are passed over."""
        sequence = self.append(record)
        while True:
            for event in self.reap(min_complete=1):
                if event.sequence == sequence:
                    if event.result < 0:
                        raise errors.from_code(event.result, f"record {sequence} was refused")
                    return sequence

    def fileno(self):
        """The descriptor to watch: readable when `reap` has something to do."""
        return check(lib.wal_fd(self._alive()))

    def release(self, up_to_sequence):
        """Says that records up to this one aren't needed any more."""
        check(lib.wal_release(self._alive(), up_to_sequence))

    @property
    def closed(self):
        """Whether it was closed."""
        return self._handle is None

    def close(self):
        """Closes the log when everything is durable. Closing twice does nothing."""
        handle = self._handle
        if handle is not None:
            check(lib.wal_close(handle))
            self._handle = None

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        self.close()

    def __del__(self):
        handle = getattr(self, "_handle", None)
        if handle is not None:
            lib.wal_close(handle)

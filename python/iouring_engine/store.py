"""The store: a durable, ordered map of bytes to bytes.

A store may be used by any number of threads. A call that waits for the device lets other Python threads run.
"""

import ctypes
import errno as _errno
import threading

from . import _native, errors
from ._native import check, data, lib
from ._signatures import engine_options_t

_CHOICES = {
    "driver": _native.DRIVERS,
    "sync": _native.SYNCS,
    "durability": _native.LEVELS,
    "compression": _native.COMPRESSIONS,
}
_MISSING = object()
_ROOM = 64 * 1024


def _level(value):
    if isinstance(value, str):
        if value.lower() not in _native.LEVELS:
            raise ValueError(f"durability can't be {value!r}; it is one of: {', '.join(_native.LEVELS)}")
        return _native.LEVELS[value.lower()]
    return int(value)


def open(path, **options):
    """Opens the store in a folder, making it when there is none.

    Options are the fields of engine_options_t in the C header; `driver`, `sync`, `durability` and `compression` take
    names too: open("data", durability="buffered").
    """
    wanted = engine_options_t()
    check(lib.engine_options_init(ctypes.byref(wanted), ctypes.sizeof(wanted)))
    _native.fill_options(wanted, options, _CHOICES)
    handle = ctypes.c_void_p()
    check(lib.engine_open(_native.path(path), ctypes.byref(wanted), ctypes.byref(handle)))
    return Store(handle.value, wanted.durability)


class WriteBatch:
    """Puts and deletes that happen together or not at all.

    As a context manager it is written when the block ends, and dropped when the block raises.
    """

    def __init__(self, store=None, durability=None):
        self._store = store
        self._durability = durability
        handle = ctypes.c_void_p()
        check(lib.engine_writebatch_create(ctypes.byref(handle)))
        self._handle = handle.value

    def _alive(self):
        if self._handle is None:
            raise errors.ClosedError("the write batch is closed", errors.CLOSED)
        return self._handle

    def put(self, key, value):
        """Adds a put."""
        key, value = data(key, "key"), data(value, "value")
        check(lib.engine_writebatch_put(self._alive(), key, len(key), value, len(value)))

    def delete(self, key):
        """Adds a delete."""
        key = data(key, "key")
        check(lib.engine_writebatch_delete(self._alive(), key, len(key)))

    __setitem__ = put
    __delitem__ = delete

    def clear(self):
        """Takes everything out again."""
        check(lib.engine_writebatch_clear(self._alive()))

    def __len__(self):
        return check(lib.engine_writebatch_count(self._alive()))

    def write(self):
        """Writes it to the store it was made by, atomically, and empties it."""
        if self._store is None:
            raise ValueError("this batch belongs to no store: use store.write(batch)")
        self._store.write(self, self._durability)
        self.clear()

    def close(self):
        """Drops what was not written. Closing twice does nothing."""
        handle, self._handle = getattr(self, "_handle", None), None
        if handle is not None:
            lib.engine_writebatch_destroy(handle)

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        try:
            if kind is None and self._handle is not None and self._store is not None:
                self.write()
        finally:
            self.close()

    def __del__(self):
        self.close()


class Store:
    """An open store; made by `open`."""

    def __init__(self, handle, durability=0):
        self._handle = handle
        self._durability = durability
        self._local = threading.local()

    def _alive(self):
        if self._handle is None:
            raise errors.ClosedError("the store is closed", errors.CLOSED)
        return self._handle

    def put(self, key, value):
        """Puts a value; durable on return unless the store was opened with a weaker level."""
        key, value = data(key, "key"), data(value, "value")
        check(lib.engine_put(self._alive(), key, len(key), value, len(value)))

    def batch_put(self, key, value):
        """Puts a value: visible at once, durable soon; `flush_batch` waits for that."""
        key, value = data(key, "key"), data(value, "value")
        check(lib.engine_batch_put(self._alive(), key, len(key), value, len(value)))

    def flush_batch(self):
        """Returns when everything before it is durable."""
        check(lib.engine_flush_batch(self._alive()))

    def get(self, key, default=None):
        """The value of a key, or the default when there is none."""
        key = data(key, "key")
        room = getattr(self._local, "room", None)
        if room is None:
            room = self._local.room = ctypes.create_string_buffer(_ROOM)
        while True:
            length = ctypes.c_size_t(len(room))
            code = lib.engine_get(self._alive(), key, len(key), room, ctypes.byref(length))
            if code == errors.NOT_FOUND:
                return default
            if code != errors.TOO_SMALL:
                check(code)
                return ctypes.string_at(room, length.value)
            # The value may have grown again by the next try; a large room isn't kept.
            room = ctypes.create_string_buffer(length.value)

    def delete(self, key):
        """Deletes a key; one that isn't there is no error."""
        key = data(key, "key")
        check(lib.engine_delete(self._alive(), key, len(key)))

    def write_batch(self, durability=None):
        """A batch for this store, to be used in a `with` block or written by its `write()`."""
        self._alive()
        return WriteBatch(self, durability)

    def write(self, batch, durability=None):
        """Writes a batch atomically, at a level of durability of its own if one is named."""
        level = self._durability if durability is None else _level(durability)
        check(lib.engine_write(self._alive(), batch._alive(), level))

    def durable_sequence(self):
        """The sequence up to which everything is durable."""
        sequence = ctypes.c_uint64()
        check(lib.engine_durable_sequence(self._alive(), ctypes.byref(sequence)))
        return sequence.value

    def __getitem__(self, key):
        value = self.get(key, _MISSING)
        if value is _MISSING:
            raise KeyError(key)
        return value

    __setitem__ = put

    def __delitem__(self, key):
        if key not in self:
            raise KeyError(key)
        self.delete(key)

    def __contains__(self, key):
        key = data(key, "key")
        length = ctypes.c_size_t(0)
        code = lib.engine_get(self._alive(), key, len(key), None, ctypes.byref(length))
        if code == errors.NOT_FOUND:
            return False
        if code != errors.TOO_SMALL:
            check(code)
        return True

    @property
    def closed(self):
        """Whether it was closed."""
        return self._handle is None

    def property(self, name="stats"):
        """A property's text; "stats" lists them all."""
        size = 4096
        while True:
            room, length = ctypes.create_string_buffer(size), ctypes.c_size_t(size)
            code = lib.engine_property(self._alive(), name.encode(), room, ctypes.byref(length))
            if code == -_errno.EINVAL:
                raise KeyError(name)
            if code != errors.TOO_SMALL:
                check(code)
                return ctypes.string_at(room, length.value).decode()
            size = length.value

    def close(self):
        """Closes the store when everything is durable. Closing twice does nothing."""
        handle = self._handle
        if handle is not None:
            check(lib.engine_close(handle))
            self._handle = None

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        self.close()

    def __del__(self):
        handle = getattr(self, "_handle", None)
        if handle is not None:
            lib.engine_close(handle)

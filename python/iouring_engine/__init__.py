"""iouring-engine from Python: a durable key-value store and a write-ahead log, over io_uring.

    import iouring_engine

    with iouring_engine.open("data") as store:
        store[b"key"] = b"value"            # durable when the line is done
        assert store[b"key"] == b"value"
        with store.write_batch() as batch:  # all of it or nothing
            batch.put(b"a", b"1")
            batch.delete(b"key")

Keys and values are bytes-like (bytes, bytearray, memoryview); text is encoded by the caller. The package is a thin
layer of ctypes over libiouring_engine.so; every promise of its header holds here too.
"""

from ._native import version
from .errors import (
    BusyError,
    ClosedError,
    CorruptionError,
    Error,
    IndeterminateError,
    PoisonedError,
    SystemFailure,
    TooLargeError,
    UnsupportedError,
)
from .store import Store, WriteBatch, open
from .wal import Event, Recovery, Wal, open_wal, recover

__all__ = [
    "BusyError",
    "ClosedError",
    "CorruptionError",
    "Error",
    "Event",
    "IndeterminateError",
    "PoisonedError",
    "Recovery",
    "Store",
    "SystemFailure",
    "TooLargeError",
    "UnsupportedError",
    "Wal",
    "WriteBatch",
    "open",
    "open_wal",
    "recover",
    "version",
]

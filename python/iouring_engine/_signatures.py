"""The one table of the C API's types and functions that this package uses.

A test compares every entry with include/iouring_engine.h: names, order and types of fields and arguments.
"""

from ctypes import (
    CFUNCTYPE,
    POINTER,
    Structure,
    c_char_p,
    c_int,
    c_int32,
    c_size_t,
    c_uint32,
    c_uint64,
    c_void_p,
)


class engine_options_t(Structure):
    """What a store is opened with."""

    _fields_ = [
        ("size", c_size_t),
        ("driver", c_int),
        ("sync", c_int),
        ("durability", c_int),
        ("memtable_bytes", c_size_t),
        ("block_cache_bytes", c_size_t),
        ("memory_limit_bytes", c_size_t),
        ("log_bytes_max", c_size_t),
        ("block_bytes", c_size_t),
        ("bloom_bits_per_key", c_int),
        ("compression", c_int),
        ("direct_reads", c_int),
        ("read_only", c_int),
        ("create_if_missing", c_int),
        ("error_if_exists", c_int),
        ("batch_max_entries", c_uint32),
        ("batch_max_bytes", c_size_t),
        ("batch_max_delay_ms", c_uint32),
        ("background_threads", c_uint32),
        ("numa_node", c_int),
    ]


class wal_options_t(Structure):
    """What a log is opened with."""

    _fields_ = [
        ("size", c_size_t),
        ("ring", c_void_p),
        ("driver", c_int),
        ("segment_bytes", c_size_t),
        ("checkpoint_every", c_size_t),
        ("sync", c_int),
        ("seal_after_ms", c_uint32),
        ("direct", c_int),
    ]


class wal_event_t(Structure):
    """One record's end."""

    _fields_ = [
        ("user_data", c_uint64),
        ("sequence", c_uint64),
        ("result", c_int32),
        ("reserved", c_int32),
        ("reserved2", c_uint64),
    ]


class wal_recover_options_t(Structure):
    """How a log is replayed."""

    _fields_ = [
        ("size", c_size_t),
        ("salvage", c_int),
    ]


class wal_recovery_t(Structure):
    """What a replay found."""

    _fields_ = [
        ("size", c_size_t),
        ("records", c_uint64),
        ("bytes", c_uint64),
        ("first_sequence", c_uint64),
        ("last_sequence", c_uint64),
        ("segments", c_uint64),
        ("proven_through", c_uint64),
        ("unproven_records", c_uint64),
        ("unproven_bytes", c_uint64),
        ("torn_bytes", c_uint64),
        ("torn", c_int),
        ("sealed", c_int),
        ("possible_damage", c_uint64),
        ("damages", c_uint64),
        ("damaged_bytes", c_uint64),
    ]


STRUCTURES = {
    structure.__name__: structure
    for structure in (engine_options_t, wal_options_t, wal_event_t, wal_recover_options_t, wal_recovery_t)
}

REPLAY = CFUNCTYPE(c_int, c_void_p, c_uint64, c_void_p, c_size_t)

_out = POINTER
_handle = c_void_p
_bytes = [c_void_p, c_size_t]

# name: (result, arguments). Handles and untyped memory are c_void_p.
FUNCTIONS = {
    "ioe_strerror": (c_char_p, [c_int]),
    "ioe_last_error": (c_char_p, []),
    "ioe_version": (c_char_p, []),
    "engine_options_init": (c_int, [_out(engine_options_t), c_size_t]),
    "engine_open": (c_int, [c_char_p, _out(engine_options_t), _out(_handle)]),
    "engine_close": (c_int, [_handle]),
    "engine_put": (c_int, [_handle, *_bytes, *_bytes]),
    "engine_get": (c_int, [_handle, *_bytes, c_void_p, _out(c_size_t)]),
    "engine_delete": (c_int, [_handle, *_bytes]),
    "engine_batch_put": (c_int, [_handle, *_bytes, *_bytes]),
    "engine_flush_batch": (c_int, [_handle]),
    "engine_durable_sequence": (c_int, [_handle, _out(c_uint64)]),
    "engine_property": (c_int, [_handle, c_char_p, c_char_p, _out(c_size_t)]),
    "engine_writebatch_create": (c_int, [_out(_handle)]),
    "engine_writebatch_put": (c_int, [_handle, *_bytes, *_bytes]),
    "engine_writebatch_delete": (c_int, [_handle, *_bytes]),
    "engine_writebatch_clear": (c_int, [_handle]),
    "engine_writebatch_count": (c_int, [_handle]),
    "engine_writebatch_destroy": (c_int, [_handle]),
    "engine_write": (c_int, [_handle, _handle, c_int]),
    "wal_options_init": (c_int, [_out(wal_options_t), c_size_t]),
    "wal_open": (c_int, [c_char_p, _out(wal_options_t), _out(_handle)]),
    "wal_append": (c_int, [_handle, *_bytes, c_uint64, _out(c_uint64)]),
    "wal_submit": (c_int, [_handle]),
    "wal_reap": (c_int, [_handle, _out(wal_event_t), c_int, c_int, c_int]),
    "wal_fd": (c_int, [_handle]),
    "wal_release": (c_int, [_handle, c_uint64]),
    "wal_recover_options_init": (c_int, [_out(wal_recover_options_t), c_size_t]),
    "wal_recover": (c_int, [c_char_p, _out(wal_recover_options_t), REPLAY, c_void_p, _out(wal_recovery_t)]),
    "wal_close": (c_int, [_handle]),
}

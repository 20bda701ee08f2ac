/*
 * iouring-engine: a durable key-value store, a write-ahead log, and the io_uring transport they share.
 *
 * This header is generated from the Rust sources (make header) and is the manual. Link with -liouring_engine.
 * C99 or newer, C++11 or newer.
 *
 *
 * CONVENTIONS
 *
 * 1. Results. Every function that can fail returns int: IOE_OK (0) or a count >= 0; -errno (> -4096) when the
 *    system refused, -EINVAL for bad arguments and NULL handles (X_close(NULL) is 0 and does nothing); a code
 *    <= -10001, IOE_E_..., for the library's own conditions. ioe_strerror(code) explains any of them;
 *    ioe_last_error() adds the detail of this thread's last failed call (file, offset, limit to raise). On error
 *    out-parameters are untouched, except *len with IOE_E_TOO_SMALL, which is the length needed. Codes are never
 *    renumbered. Any function with a handle can return IOE_E_STALE, IOE_E_FORKED and IOE_E_INTERNAL: they aren't
 *    repeated below.
 *
 * 2. Handles are opaque values, not addresses. They are never reused. Every X_open (and X_create) has its X_close
 *    (X_destroy); a handle closed twice, or never opened, gives IOE_E_STALE and harms nothing. X_close with
 *    children open (iterator, snapshot, queue; objects on a ring) gives IOE_E_BUSY and closes nothing; it waits
 *    only for calls in progress. In a child process after fork the parent's handles give IOE_E_FORKED, closing
 *    included; the child may open its own.
 *
 * 3. Bytes. Keys and values have a length; they may be empty and hold NUL. A key has at most 65,535 bytes, a value
 *    at most 1 GiB, else IOE_E_TOO_LARGE. Length 0 is empty whatever the pointer; NULL with a length is -EINVAL.
 *
 * 4. Ownership. What goes in is borrowed until the call returns, or, where a function says so, until its
 *    completion. What comes out as a pointer is the library's, valid as long as the function says.
 *
 * 5. Growth. Options, info and stats structs begin with size_t size. X_options_init(&o, sizeof o) fills in the
 *    defaults, and NULL options mean the defaults; for info and stats set size = sizeof the struct. No more than
 *    size is read or written, at most 4096; a non-zero byte beyond what the library knows is -EINVAL, so a program
 *    compiled with a newer header is told when it asks for what this library can't do. Elements of arrays (events,
 *    completions) never grow; reserved fields are zero. Constants have fixed numbers, 0 is the default. In fields
 *    that switch something on or off any value but 0 is on.
 *
 * 6. Threads. engine_t and the release of views: any thread, also at once. Write batches: one thread at a time
 *    (IOE_E_BUSY otherwise). ring_t and wal_t: bound to the thread of their first submit, wait or reap. Open, _fd,
 *    slot and buffer calls don't bind; once bound, these too are the owner's. Elsewhere: IOE_E_WRONG_THREAD.
 *    X_close elsewhere works only when the owner has ended; memory the kernel may still be writing to is then
 *    kept, not freed. Any thread may call ring_wake.
 *
 * 7. Manners. The library installs no signal handler, writes nothing to stdout or stderr, never exits. Its threads
 *    block all signals. Messages go to ioe_set_log. Callbacks must not call the library (their calls give
 *    -EDEADLK), throw or longjmp.
 */


#ifndef IOURING_ENGINE_H
#define IOURING_ENGINE_H

#include <stddef.h>
#include <stdint.h>

// Versions with the same major number are compatible.
#define IOE_VERSION_MAJOR 0

// Goes up when functions or fields are added.
#define IOE_VERSION_MINOR 1

// Goes up when only defects were mended.
#define IOE_VERSION_PATCH 0

// Success.
#define IOE_OK 0

// No such key.
#define IOE_E_NOT_FOUND -10001

// Stored bytes fail their check; ioe_last_error() names file, offset, what was expected and what was there.
#define IOE_E_CORRUPT -10002

// An earlier write failed; reads work, reopen to write.
#define IOE_E_POISONED -10003

// This write may or may not be durable.
#define IOE_E_INDETERMINATE -10004

// Open elsewhere, or children still open (named in the detail).
#define IOE_E_BUSY -10005

// The handle or connection is gone, or never was.
#define IOE_E_STALE -10006

// Closed while the operation was pending.
#define IOE_E_CLOSED -10007

// The caller's buffer is too small; the length needed is reported.
#define IOE_E_TOO_SMALL -10008

// This kernel, file system or driver can't; the detail says why.
#define IOE_E_UNSUPPORTED -10009

// Written by an incompatible version.
#define IOE_E_VERSION -10010

// The handle was opened by the parent process.
#define IOE_E_FORKED -10011

// Cancelled by the caller.
#define IOE_E_CANCELLED -10012

// Back-pressure: try again after the writable event, else after the next reap, release or flush.
#define IOE_E_STALLED -10013

// This object belongs to another thread.
#define IOE_E_WRONG_THREAD -10014

// Can never fit a limit (key, value, chain, memory ceiling).
#define IOE_E_TOO_LARGE -10015

// A deadline passed.
#define IOE_E_TIMED_OUT -10016

// A defect was caught; the handle is poisoned, and can only be closed.
#define IOE_E_INTERNAL -10099

// For `level`: the default, which is warnings and errors.
#define IOE_LOG_DEFAULT 0

// What went wrong and was not repaired.
#define IOE_LOG_ERROR 1

// What is not as it should be: a limit reached, a fallback taken.
#define IOE_LOG_WARN 2

// What happens seldom: a log recovered, a driver chosen.
#define IOE_LOG_INFO 3

// What helps to find a fault.
#define IOE_LOG_DEBUG 4

// Everything.
#define IOE_LOG_TRACE 5

// The way operations happen: io_uring where it can be had, else POSIX calls.
#define IOE_DRIVER_AUTO 0

// io_uring; IOE_E_UNSUPPORTED, with the reason, where it can't be had.
#define IOE_DRIVER_URING 1

// A pool of threads for files, epoll for the rest.
#define IOE_DRIVER_POSIX 2

// How a log makes writes durable: by the rule that measurements gave; the "stats" property tells which it was.
#define IOE_SYNC_AUTO 0

// One linked chain: write, fdatasync, checkpoint.
#define IOE_SYNC_LINKED 1

// Writes that are durable in themselves (RWF_DSYNC).
#define IOE_SYNC_DSYNC 2

// System calls: pwrite, fdatasync.
#define IOE_SYNC_SYSCALL 3

// A write returns when it is on the device.
#define IOE_DURABLE 0

// A write returns when the kernel has it: it survives a killed process, not a power cut.
#define IOE_BUFFERED 1

// A write returns when it is in memory; it goes to the log with the next group.
#define IOE_VOLATILE 2

// Blocks are stored as they are.
#define IOE_COMPRESSION_NONE 0

// Fast, moderate.
#define IOE_COMPRESSION_LZ4 1

// Slower, stronger.
#define IOE_COMPRESSION_ZSTD 2

// Receives the library's messages: one line of UTF-8 without a line end, valid during the callback. `level` is
// one of IOE_LOG_.... Any thread of the process, several at once. It must not call the library, throw, or longjmp.
typedef void (*ioe_log_fn)(void *user_data, int level, const char *message);

// What a store is opened with; see engine_options_init. The fields that speak of tables (block_cache_bytes,
// block_bytes, bloom_bits_per_key, compression, direct_reads) are checked, and have no effect in this version.
typedef struct engine_options_t {
    // sizeof(engine_options_t).
    size_t size;
    // IOE_DRIVER_...
    int driver;
    // IOE_SYNC_...
    int sync;
    // What engine_put, engine_delete and engine_write wait for by default: IOE_DURABLE, _BUFFERED or _VOLATILE.
    int durability;
    // A memtable of this size becomes a table. 64 MiB.
    size_t memtable_bytes;
    // Memory for blocks of tables. 32 MiB.
    size_t block_cache_bytes;
    // Ceiling of the store's memory; 0: none.
    size_t memory_limit_bytes;
    // More log than this makes tables of the memtable; 0: four times memtable_bytes.
    size_t log_bytes_max;
    // Size of a table's block on disk. 4096.
    size_t block_bytes;
    // Bits of the Bloom filter per key; 0: no filter. 10.
    int bloom_bits_per_key;
    // IOE_COMPRESSION_...
    int compression;
    // Tables are read with direct I/O.
    int direct_reads;
    // Opens without writing a byte. IOE_E_UNSUPPORTED in this version.
    int read_only;
    // Makes the directory's store when there is none; else -ENOENT. 1.
    int create_if_missing;
    // -EEXIST when there is a store already.
    int error_if_exists;
    // A group of engine_batch_put is due at so many entries. 128.
    uint32_t batch_max_entries;
    // And at so many bytes. 256 KiB.
    size_t batch_max_bytes;
    // And after so many milliseconds; 0: as soon as the log is free. 0.
    uint32_t batch_max_delay_ms;
    // Threads for work in the background; 0: the library's choice.
    uint32_t background_threads;
    // Memory of this NUMA node; -1: any.
    int numa_node;
} engine_options_t;

// A run of bytes: keys, values, parts of a message.
typedef struct ioe_slice_t {
    // The first byte; anything when `len` is 0.
    const void *data;
    // How many.
    size_t len;
} ioe_slice_t;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Explains any result in one English sentence; a count is a success.
//
// Ownership: the library's, valid for ever. Any thread, never blocks, never fails.
const char *ioe_strerror(int code);

// The library's version, "MAJOR.MINOR.PATCH"; of the library that was loaded, while IOE_VERSION_... are those of the
// header the program was compiled with.
//
// Ownership: the library's, valid for ever. Any thread, never blocks, never fails.
const char *ioe_version(void);

// The detail of the calling thread's last failed call (file and offset, the limit to raise, what to do), in
// English. Empty when no call of this thread has failed. A successful call changes nothing.
//
// Ownership: the library's; valid until this thread calls ioe_last_error again, or ends. Any thread, never
// blocks, never fails.
const char *ioe_last_error(void);

// Sends the library's messages to `fn`, from `level` upwards in importance (IOE_LOG_...; 0 is the default, warnings
// and errors; an unknown level changes nothing); NULL turns them off, as they are in the beginning.
//
// Returns when the callback set before will not run again, and is not running. Any thread. From inside a callback
// it does nothing. `user_data` is handed to each callback; the library doesn't look at it.
void ioe_set_log(ioe_log_fn fn, void *user_data, int level);

// Fills `o`, a struct of `size` bytes (sizeof(engine_options_t)), with the defaults.
//
// Errors: -EINVAL. Any thread, never blocks.
int engine_options_init(struct engine_options_t *o, size_t size);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* IOURING_ENGINE_H */

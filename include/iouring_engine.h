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

// An open store.
typedef struct engine_t engine_t;

// Changes that are written together.
typedef struct engine_writebatch_t engine_writebatch_t;

// Receives the library's messages: one line of UTF-8 without a line end, valid during the callback. `level` is
// one of IOE_LOG_.... Any thread of the process, several at once. It must not call the library, throw, or longjmp.
typedef void (*ioe_log_fn)(void *user_data, int level, const char *message);

// What a store is opened with; see engine_options_init. The fields that speak of tables (block_cache_bytes,
// block_bytes, bloom_bits_per_key, compression, direct_reads) are checked, and have no effect in this version.
typedef struct {
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
    // Memory for blocks of tables. 64 MiB.
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
    // Makes the store when there is none; else -ENOENT. 1.
    int create_if_missing;
    // -EEXIST when there is a store already.
    int error_if_exists;
    // A group of engine_batch_put is due at so many entries. 128.
    uint32_t batch_max_entries;
    // And at so many bytes. 256 KiB.
    size_t batch_max_bytes;
    // And after so many milliseconds; 0: as soon as the log is free. 10.
    uint32_t batch_max_delay_ms;
    // Threads for work in the background. 1.
    uint32_t background_threads;
    // Memory of this NUMA node; -1: any.
    int numa_node;
} engine_options_t;

// A value of the store, to be read in place.
typedef struct {
    // The value; not to be written. Valid until the view is released.
    const void *data;
    // Its length.
    size_t len;
    // What keeps it; the library's.
    uint64_t pin[2];
} engine_view_t;

// A run of bytes: keys, values, parts of a message.
typedef struct {
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
int engine_options_init(engine_options_t *o, size_t size);

// Opens the store in the directory `dir`, which is made when it is missing (its parent must be there), recovers
// what its log holds, and sets `*out`, to be closed by engine_close. `o` NULL means the defaults.
//
// A directory holds one store, and is open once: a second open, by this process or another, gives IOE_E_BUSY (by
// another after 3 seconds, in which the writes of a killed process may still be landing).
//
// Errors: -EINVAL; IOE_E_BUSY; IOE_E_CORRUPT with file and offset when the log is damaged; IOE_E_VERSION;
// IOE_E_UNSUPPORTED for options that can't be had; -ENOTEMPTY for a directory of other files, -ENOTDIR, -ENOENT,
// -EEXIST (error_if_exists), -EACCES, -EROFS, -ENOSPC, -EIO. A refusal changes nothing in the directory.
// Any thread. Blocks: reads the whole log.
int engine_open(const char *dir, const engine_options_t *o, engine_t **out);

// Closes the store: makes everything written so far durable and gives the directory free. NULL does nothing.
// Waits for calls in progress on other threads. Views live on.
//
// Errors: what stood in the way of making it durable (-EIO, -ENOSPC, IOE_E_POISONED, IOE_E_INDETERMINATE); the
// store is closed and the handle gone all the same. Any thread. Blocks: writes to the device.
int engine_close(engine_t *e);

// Sets the value of a key. With the default level, IOE_DURABLE, it is on the device when this returns 0.
//
// Errors: -EINVAL; IOE_E_TOO_LARGE for a key over 65,535 bytes or a value over 1 GiB; -ENOSPC: nothing was
// written, and writes work again when there is space; IOE_E_INDETERMINATE: the device failed under this write,
// which may or may not be there after reopening; IOE_E_POISONED: it failed before. Any thread. Blocks until the
// level is reached.
int engine_put(engine_t *e, const void *key, size_t key_len, const void *value, size_t value_len);

// Copies the value of a key into `buffer`. `*len` is the room of `buffer` before, and the value's length after,
// also with IOE_E_TOO_SMALL; `buffer` may be NULL when `*len` is 0, to ask for the length.
//
// Errors: -EINVAL; IOE_E_NOT_FOUND; IOE_E_TOO_SMALL; IOE_E_TOO_LARGE for a key over 65,535 bytes. Any thread.
// Waits for no writer.
int engine_get(engine_t *e, const void *key, size_t key_len, void *buffer, size_t *len);

// Removes a key. One that isn't there is no error.
//
// Errors, thread, blocking: as engine_put.
int engine_delete(engine_t *e, const void *key, size_t key_len);

// Writes a batch: all of it or nothing, at the level `durability` (IOE_DURABLE, IOE_BUFFERED, IOE_VOLATILE). The
// batch stays as it is. An empty one does nothing.
//
// Errors: as engine_put, and IOE_E_BUSY when another thread is using the batch. Any thread. Blocks until the level
// is reached.
int engine_write(engine_t *e, const engine_writebatch_t *b, int durability);

// Sets the value of a key: visible at once, durable with its group, which is due after batch_max_entries,
// batch_max_bytes or batch_max_delay_ms. engine_flush_batch waits for it.
//
// Errors: as engine_put. Any thread. Waits only while the group before is being written and this one is full.
int engine_batch_put(engine_t *e, const void *key, size_t key_len, const void *value, size_t value_len);

// Returns when everything written before, at whatever level and by whatever thread, is durable.
//
// Errors: -ENOSPC, to be tried again when there is space; any other error stays until the store is reopened:
// IOE_E_INDETERMINATE, IOE_E_POISONED. Any thread. Blocks.
int engine_flush_batch(engine_t *e);

// Sets `*sequence` to the highest sequence of which all up to it are durable. Each put and delete takes one
// sequence, in the order in which they become visible.
//
// Errors: -EINVAL. Any thread, never blocks.
int engine_durable_sequence(engine_t *e, uint64_t *sequence);

// Copies a property's text into `buffer`, with a NUL byte behind it. `*len` is the room of `buffer` before, and
// the text's length without the NUL after; with IOE_E_TOO_SMALL it is the room needed, the NUL included. "stats"
// is all properties, one `name value` per line; "prometheus" is the same in that program's format; any one name of
// "stats" gives its value.
//
// Errors: -EINVAL, also for a name that isn't known; IOE_E_TOO_SMALL. Any thread, never blocks.
int engine_property(engine_t *e, const char *name, char *buffer, size_t *len);

// Sets `*out` to the value of a key, to be given back by engine_view_release. Values up to 4 KiB are copied, longer
// ones stay where they are: then the view keeps the memory, up to a quarter of memory_limit_bytes over all views,
// beyond which views copy too. A view outlives engine_close, and later changes of the key.
//
// Errors: -EINVAL; IOE_E_NOT_FOUND; IOE_E_TOO_LARGE for a key over 65,535 bytes; -ENOMEM. Any thread. Waits for no
// writer.
int engine_get_view(engine_t *e, const void *key, size_t key_len, engine_view_t *out);

// Gives a view back and makes it empty. NULL, an empty view, and one that was released before, do nothing.
//
// Any thread, never blocks.
void engine_view_release(engine_view_t *v);

// Makes an empty batch: puts and deletes that engine_write writes together, all or none. Sets `*out`, to be freed
// by engine_writebatch_destroy.
//
// Errors: -EINVAL, -ENOMEM. Any thread, never blocks.
int engine_writebatch_create(engine_writebatch_t **out);

// Adds a put, with copies of key and value. Later changes of a key win over earlier ones.
//
// Errors: -EINVAL; IOE_E_TOO_LARGE for a key over 65,535 bytes, a value over 1 GiB, or a batch over 4 GiB; -ENOMEM;
// IOE_E_BUSY when another thread is using the batch. The batch is then as it was. One thread at a time, never
// blocks.
int engine_writebatch_put(engine_writebatch_t *b, const void *key, size_t key_len, const void *value, size_t value_len);

// Adds a delete, with a copy of the key.
//
// Errors, thread, blocking: as engine_writebatch_put.
int engine_writebatch_delete(engine_writebatch_t *b, const void *key, size_t key_len);

// Takes all changes out again, and keeps the memory for the next ones.
//
// Errors: -EINVAL; IOE_E_BUSY when another thread is using the batch. One thread at a time, never blocks.
int engine_writebatch_clear(engine_writebatch_t *b);

// How many changes the batch has.
//
// Errors: -EINVAL; IOE_E_BUSY when another thread is using the batch; IOE_E_TOO_LARGE when they are more than
// INT_MAX. One thread at a time, never blocks.
int engine_writebatch_count(const engine_writebatch_t *b);

// Frees the batch; NULL does nothing. Waits for a call in progress on another thread.
//
// Errors: IOE_E_STALE. Any thread.
int engine_writebatch_destroy(engine_writebatch_t *b);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* IOURING_ENGINE_H */

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
 *    queueing, slot and buffer calls don't bind; once bound, these too are the owner's. Elsewhere:
 *    IOE_E_WRONG_THREAD. X_close elsewhere works only when the owner has ended; memory the kernel may still be
 *    writing to is then kept, not freed. Any thread may call ring_wake.
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

// A kernel thread polls the submission queue: fewer system calls, one busy CPU.
#define IOE_RING_SQPOLL (1 << 0)

// That thread stays on the CPU sqpoll_cpu.
#define IOE_RING_SQ_AFF (1 << 1)

// Completions are polled for: direct I/O on devices with poll queues only. ring_fd, ring_wake, timers and syncs
// give IOE_E_UNSUPPORTED.
#define IOE_RING_IOPOLL (1 << 2)

// Shares the workers (and the SQPOLL thread) of the ring attach_to.
#define IOE_RING_ATTACH (1 << 3)

// The completion queue has cq_entries.
#define IOE_RING_CQSIZE (1 << 4)

// A submission goes on behind an operation that is refused at once.
#define IOE_RING_SUBMIT_ALL (1 << 5)

// Completion work waits for the owner's next system call instead of interrupting it.
#define IOE_RING_COOP_TASKRUN (1 << 6)

// The ring tells when such work waits.
#define IOE_RING_TASKRUN_FLAG (1 << 7)

// One thread alone submits. With IOE_RING_DEFER_TASKRUN the default of a ring that names none of SQPOLL,
// COOP_TASKRUN, TASKRUN_FLAG, SINGLE_ISSUER, DEFER_TASKRUN.
#define IOE_RING_SINGLE_ISSUER (1 << 8)

// Completion work waits until the owner asks for completions.
#define IOE_RING_DEFER_TASKRUN (1 << 9)

// Only allowed_opcodes are accepted: others give -EACCES.
#define IOE_RING_RESTRICT (1 << 10)

// Waits poll the network card's queues for a while.
#define IOE_RING_NAPI (1 << 11)

// Nothing; completes with 0.
#define IOE_OPCODE_NOP 0

// Reads at `offset`; completes with the number of bytes. Fewer than asked for at the end of the file only, or in a
// chain.
#define IOE_OPCODE_READ 1

// Writes at `offset`; completes with the number of bytes: all, but in a chain perhaps fewer.
#define IOE_OPCODE_WRITE 2

// Makes the file durable, data and everything else about it.
#define IOE_OPCODE_FSYNC 3

// Makes durable what is needed to read the data back.
#define IOE_OPCODE_FDATASYNC 4

// Completes with -ETIME after timeout_us.
#define IOE_OPCODE_TIMEOUT 5

// In a chain: cancels the operation before it when that takes longer than timeout_us.
#define IOE_OPCODE_LINK_TIMEOUT 6

// Completes when the file is ready for `events` (POLLIN, POLLOUT, ...), with the events that hold.
#define IOE_OPCODE_POLL 7

// Empties the file slot, in its place in a chain.
#define IOE_OPCODE_CLOSE_SLOT 8

// Cancels all operations of this user_data: each still completes, the cancel itself doesn't.
#define IOE_OPCODE_CANCEL 9

// The next operation starts when this one succeeded whole; else the rest of the chain gets -ECANCELED.
#define IOE_OP_LINK (1 << 0)

// The next operation starts when this one has ended, however.
#define IOE_OP_HARD_LINK (1 << 1)

// A poll that completes again and again until it is cancelled.
#define IOE_OP_MULTISHOT (1 << 2)

// slot_or_fd is a descriptor, which the caller keeps open until the completion.
#define IOE_OP_RAW_FD (1 << 3)

// buffer_or_pointer is a pointer; its memory is borrowed until the completion.
#define IOE_OP_RAW_POINTER (1 << 4)

// The kernel chooses the buffer: for receiving, which comes with the network engine.
#define IOE_OP_SELECT_BUFFER (1 << 5)

// A write that is durable when it completes.
#define IOE_OP_DSYNC (1 << 6)

// The operation goes on: more completions of it follow.
#define IOE_CQE_MORE (1 << 0)

// Not a result, but news that memory is the caller's again.
#define IOE_CQE_NOTICE (1 << 1)

// The memory was copied, not sent from where it lay.
#define IOE_CQE_COPIED (1 << 2)

// The kernel chose the buffer.
#define IOE_CQE_BUFFER (1 << 3)

// For ring_file_set: any free slot.
#define IOE_SLOT_ANY -1

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

// A ring: submit operations, later receive their completions.
typedef struct ring_t ring_t;

// A write-ahead log.
typedef struct wal_t wal_t;

// Receives the library's messages: one line of UTF-8 without a line end, valid during the callback. `level` is
// one of IOE_LOG_.... Any thread of the process, several at once. It must not call the library, throw, or longjmp.
typedef void (*ioe_log_fn)(void *user_data, int level, const char *message);

// What a ring is opened with; see ring_options_init.
typedef struct {
    // sizeof(ring_options_t).
    size_t size;
    // IOE_DRIVER_...
    int driver;
    // IOE_RING_... that must be had: else the open fails with IOE_E_UNSUPPORTED and the reason.
    uint32_t flags;
    // IOE_RING_... that are taken if they can be had; ring_info tells.
    uint32_t flags_wanted;
    // With IOE_RING_RESTRICT: the sum of 1 << IOE_OPCODE_... of what is allowed.
    uint64_t allowed_opcodes;
    // Operations that can be submitted at once, and the longest chain; rounded up to a power of two. 256.
    uint32_t entries;
    // Completions that the kernel holds; 0: four times `entries`. More are kept, none is lost.
    uint32_t cq_entries;
    // CPU of the SQPOLL thread, with IOE_RING_SQ_AFF; -1: any.
    int32_t sqpoll_cpu;
    // The SQPOLL thread sleeps after so many idle milliseconds; 0: one second.
    uint32_t sqpoll_idle_ms;
    // With IOE_RING_ATTACH: the ring to share with. Used during the open only.
    ring_t *attach_to;
    // NUMA node of the buffers; -1: any.
    int32_t numa_node;
    // File slots, all empty at first.
    uint32_t file_slots;
    // Registered buffers.
    uint32_t buffer_count;
    // Bytes of each.
    size_t buffer_size;
    // Kernel-chosen buffers, which come with the network engine: 0, else IOE_E_UNSUPPORTED.
    uint32_t select_count;
    // Bytes of each: 0, else IOE_E_UNSUPPORTED.
    size_t select_size;
    // Huge pages behind the buffers, where the system has them.
    int huge_pages;
} ring_options_t;

// What this kernel allows, feature by feature: NULL when it is usable, else a sentence that says why not (the
// library's, valid for ever). With IOE_DRIVER_POSIX all but the flags of io_uring's own work all the same.
typedef struct {
    // sizeof(ring_capabilities_t), set by the caller.
    size_t size;
    // io_uring itself.
    const char *io_uring;
    // IOE_RING_SQPOLL.
    const char *sqpoll;
    // IOE_RING_SQ_AFF.
    const char *sq_aff;
    // IOE_RING_IOPOLL; whether a device has poll queues shows with its first read.
    const char *iopoll;
    // IOE_RING_ATTACH.
    const char *attach;
    // IOE_RING_CQSIZE.
    const char *cqsize;
    // IOE_RING_SUBMIT_ALL.
    const char *submit_all;
    // IOE_RING_COOP_TASKRUN.
    const char *coop_taskrun;
    // IOE_RING_TASKRUN_FLAG.
    const char *taskrun_flag;
    // IOE_RING_SINGLE_ISSUER.
    const char *single_issuer;
    // IOE_RING_DEFER_TASKRUN.
    const char *defer_taskrun;
    // IOE_RING_RESTRICT.
    const char *restrictions;
    // IOE_RING_NAPI.
    const char *napi;
    // File slots.
    const char *file_slots;
    // Registered buffers that can be replaced one by one.
    const char *registered_buffers;
    // IOE_OPCODE_LINK_TIMEOUT.
    const char *link_timeout;
    // IOE_OP_MULTISHOT with IOE_OPCODE_POLL.
    const char *multishot_poll;
} ring_capabilities_t;

// What a ring came out as; see ring_info.
typedef struct {
    // sizeof(ring_info_t), set by the caller.
    size_t size;
    // IOE_DRIVER_URING or IOE_DRIVER_POSIX.
    int driver;
    // IOE_RING_... in effect, also those the library set by itself.
    uint32_t flags;
    // Operations that can be submitted at once, and the longest chain.
    uint32_t entries;
    // Completions that the kernel holds.
    uint32_t cq_entries;
    // With IOE_RING_RESTRICT: the sum of 1 << IOE_OPCODE_... of what is allowed.
    uint64_t allowed_opcodes;
    // File slots.
    uint32_t file_slots;
    // Registered buffers.
    uint32_t buffer_count;
    // Bytes of each.
    size_t buffer_size;
    // Bytes that count against RLIMIT_MEMLOCK.
    uint64_t pinned_bytes;
    // What came out differently than asked and why, a sentence per line: a flag of flags_wanted that couldn't be
    // had, a smaller queue and the limit to raise, the reason why POSIX serves instead of io_uring. Never NULL;
    // the library's, valid until the ring is closed.
    const char *notes;
} ring_info_t;

// A registered buffer that was handed out. Frozen.
typedef struct {
    // Its first byte.
    void *data;
    // Its length.
    size_t len;
    // Its number, for operations.
    int32_t index;
    // 0.
    int32_t reserved;
} ioe_buffer_t;

// An operation to queue. Frozen. Fields that an opcode doesn't speak of are ignored.
typedef struct {
    // IOE_OPCODE_...
    uint16_t opcode;
    // IOE_OP_...
    uint16_t flags;
    // The file: a slot, or with IOE_OP_RAW_FD a descriptor.
    int32_t slot_or_fd;
    // The memory: a registered buffer's index, or with IOE_OP_RAW_POINTER an address.
    uint64_t buffer_or_pointer;
    // Where in that memory.
    uint64_t offset_in_buffer;
    // How many bytes.
    uint64_t len;
    // Position in the file; ignored by what has none.
    uint64_t offset;
    // The slot that an accepted connection goes into, which comes with the network engine.
    int32_t into_slot;
    // Events of a poll.
    uint32_t events;
    // Duration of IOE_OPCODE_TIMEOUT and IOE_OPCODE_LINK_TIMEOUT.
    uint64_t timeout_us;
    // Comes back in the completion.
    uint64_t user_data;
} ring_op_t;

// How an operation ended. Frozen.
typedef struct {
    // The operation's.
    uint64_t user_data;
    // A count or events, or -errno.
    int32_t result;
    // IOE_CQE_...
    uint32_t flags;
    // The first byte of a read's or write's memory; else NULL.
    void *data;
    // The registered buffer; -1: none.
    int32_t buffer;
    // 0.
    int32_t reserved;
} ring_completion_t;

// What a log is opened with; see wal_options_init.
typedef struct {
    // sizeof(wal_options_t).
    size_t size;
    // The ring to stand on, which then can't be closed before the log; NULL: one of its own.
    ring_t *ring;
    // IOE_DRIVER_... of its own ring; without effect on a shared one.
    int driver;
    // Length of a segment file; a larger record gets a segment of its own size. 64 MiB.
    size_t segment_bytes;
    // A checkpoint is written after so many bytes; 1: with every append; 0: never, which loses nothing. 1 MiB.
    size_t checkpoint_every;
    // IOE_SYNC_...; IOE_SYNC_AUTO is IOE_SYNC_LINKED here, which never blocks the owner.
    int sync;
    // The log is sealed after so many idle milliseconds. 10.
    uint32_t seal_after_ms;
    // Writes go past the page cache. 1.
    int direct;
} wal_options_t;

// How an append ended. Frozen.
typedef struct {
    // The append's.
    uint64_t user_data;
    // The record's sequence.
    uint64_t sequence;
    // 0: the record is durable; -errno (-ENOSPC): refused, nothing of it is in the log; IOE_E_INDETERMINATE: it may
    // or may not be durable; IOE_E_POISONED: an earlier one failed, this one was never written.
    int32_t result;
    // 0.
    int32_t reserved;
    // 0.
    uint64_t reserved2;
} wal_event_t;

// How a log is replayed; see wal_recover_options_init.
typedef struct {
    // sizeof(wal_recover_options_t).
    size_t size;
    // Goes past damage instead of refusing: what is delivered may lack records. 0.
    int salvage;
} wal_recover_options_t;

// Receives the records of a replay in order; `data` is valid during the callback. Not 0 stops the replay. It must not
// call the library, throw, or longjmp.
typedef int (*wal_replay_fn)(void *user_data, uint64_t sequence, const void *data, size_t len);

// What a replay found; see wal_recover.
typedef struct {
    // sizeof(wal_recovery_t), set by the caller.
    size_t size;
    // Records delivered.
    uint64_t records;
    // Their bytes.
    uint64_t bytes;
    // The first sequence delivered; 0 when there was none.
    uint64_t first_sequence;
    // The last sequence delivered; 0 when there was none.
    uint64_t last_sequence;
    // Segments read.
    uint64_t segments;
    // The highest sequence that the log proves durable.
    uint64_t proven_through;
    // Records behind that: whole, but perhaps not acknowledged.
    uint64_t unproven_records;
    // Their bytes.
    uint64_t unproven_bytes;
    // Bytes dropped at the end: a group that never was whole.
    uint64_t torn_bytes;
    // 1 when bytes were dropped at the end.
    int torn;
    // 1 when the log ended with a seal: nothing was under way.
    int sealed;
    // Ends that a crash can have left, but damage behind the last proof too: the two can't be told apart.
    uint64_t possible_damage;
    // Damaged places that a salvage went past.
    uint64_t damages;
    // Bytes it went past.
    uint64_t damaged_bytes;
} wal_recovery_t;

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

// Fills `o`, a struct of `size` bytes (sizeof(ring_options_t)), with the defaults.
//
// Errors: -EINVAL. Any thread, never blocks.
int ring_options_init(ring_options_t *o, size_t size);

// Opens a ring and sets `*out`, to be closed by ring_close. `o` NULL means the defaults: io_uring where it can be
// had, else POSIX calls with the same behaviour; no file slots, no buffers.
//
// Errors: -EINVAL, naming the field or the combination of flags; IOE_E_UNSUPPORTED when a flag of `flags`, the
// driver, or kernel-chosen buffers can't be had, with the reason; -ENOMEM, naming the limit to raise; -EMFILE.
// When memory is short, queues and buffers may come out smaller: ring_info tells. Any thread; the ring isn't bound
// yet. Doesn't block.
int ring_open(const ring_options_t *o, ring_t **out);

// Closes the ring; NULL does nothing. Operations in flight are cancelled and waited for; their completions are lost.
// Once it returns, the library and the kernel use none of the caller's memory, unless the owner has ended: then
// what the kernel may still be writing to is kept for ever.
//
// Errors: IOE_E_BUSY while objects (wal_t) stand on this ring; IOE_E_WRONG_THREAD elsewhere than on the owner,
// while it lives. Waits for what can't be cancelled.
int ring_close(ring_t *r);

// Asks the kernel what it allows and fills `out`, whose `size` the caller set.
//
// Errors: -EINVAL. Any thread. Makes and closes small rings, some hundred microseconds in all.
int ring_capabilities(ring_capabilities_t *out);

// Fills `out`, whose `size` the caller set, with what the ring came out as.
//
// Errors: -EINVAL, IOE_E_WRONG_THREAD. Never blocks.
int ring_info(ring_t *r, ring_info_t *out);

// Returns the one descriptor to watch (POLLIN), made by the first call; every object on this ring returns the same
// number. It is readable while a reap with time-out 0 would deliver something or make progress; level and edge
// triggering both work. Never read or close it; it is gone with the ring.
//
// Errors: IOE_E_UNSUPPORTED with IOE_RING_IOPOLL, IOE_E_WRONG_THREAD, -EMFILE. Doesn't bind. Never blocks.
int ring_fd(ring_t *r);

// Submits what is queued and waits until `min_complete` items are ready over all objects on the ring, for at most
// `timeout_ms` (-1: for ever, 0: not at all). Returns how many are ready: fewer when the time is up, or when
// ring_wake was called.
//
// Errors: -EINVAL; -EINTR when a signal came and nothing is ready; IOE_E_WRONG_THREAD. Binds. Blocks.
int ring_wait(ring_t *r, int min_complete, int timeout_ms);

// Makes the owner's wait return, or its next one, and the descriptor readable. Many at once are one.
//
// Errors: IOE_E_UNSUPPORTED with IOE_RING_IOPOLL. Any thread. Never blocks.
int ring_wake(ring_t *r);

// Puts a duplicate of `fd` into a file slot (IOE_SLOT_ANY: any free one) and returns the slot. The caller still
// closes `fd`. What is in flight on the slot's old file goes on.
//
// Errors: -EINVAL for a slot that isn't there; -EBADF; IOE_E_STALLED when none is free; IOE_E_WRONG_THREAD.
// Doesn't bind. Never blocks.
int ring_file_set(ring_t *r, int slot, int fd);

// Empties a file slot. What is in flight on its file goes on.
//
// Errors: -EINVAL for a slot that isn't there; IOE_E_STALE when it is empty; IOE_E_WRONG_THREAD. Doesn't bind. Never
// blocks.
int ring_file_clear(ring_t *r, int slot);

// Hands out a free registered buffer, to be used in operations and given back by ring_buffer_release.
//
// Errors: -EINVAL; IOE_E_STALLED when none is free; IOE_E_WRONG_THREAD. Doesn't bind. Never blocks.
int ring_buffer_acquire(ring_t *r, ioe_buffer_t *out);

// Gives a registered buffer back.
//
// Errors: -EINVAL for a buffer that isn't there; IOE_E_STALE when it wasn't handed out; IOE_E_BUSY while an
// operation uses it; IOE_E_WRONG_THREAD. Doesn't bind. Never blocks.
int ring_buffer_release(ring_t *r, int index);

// Replaces a registered buffer by the caller's `len` bytes at `data`, or unregisters it (`data` NULL), after waiting
// for what is in flight on it. The new memory is borrowed until it is replaced in its turn or the ring is closed;
// when it is replaced, and `tag` isn't 0, a completion with IOE_CQE_NOTICE and user_data `tag` tells.
//
// Errors: -EINVAL for a buffer that isn't there; -EFAULT, -ENOMEM with the address and the limit to raise;
// IOE_E_BUSY when an open chain uses the buffer; -EINTR; IOE_E_WRONG_THREAD. The old buffer is then as it was.
// Binds when it has to wait. Blocks while the buffer is in use.
int ring_buffer_replace(ring_t *r, int index, void *data, size_t len, uint64_t tag);

// Queues `count` operations: all of them or none. Returns `count`. They leave with the next submit, wait or reap of
// any object on the ring. An operation with IOE_OP_LINK or IOE_OP_HARD_LINK opens a chain, which stays in the
// library until its last operation, the first without a link, is there; submits and reaps leave an open chain. A full
// submission queue makes operations wait inside the library.
//
// Memory named by IOE_OP_RAW_POINTER, and descriptors named by IOE_OP_RAW_FD, are borrowed until the last completion
// of the operation. Order between chains is unspecified.
//
// Errors: -EINVAL, naming the operation and what is wrong with it; IOE_E_TOO_LARGE for a chain longer than `entries`;
// -EACCES for what IOE_RING_RESTRICT doesn't allow; IOE_E_UNSUPPORTED for what this ring can't do; IOE_E_STALE for a
// buffer that wasn't handed out; IOE_E_WRONG_THREAD. Doesn't bind. Never blocks.
int ring_queue(ring_t *r, const ring_op_t *ops, size_t count);

// Queues a read of `len` bytes at `offset` of the file in `slot` into a registered buffer, `offset_in_buffer` bytes
// into it. Returns 1.
//
// Errors, thread: as ring_queue.
int ring_read(ring_t *r,
              int slot,
              int buffer,
              size_t offset_in_buffer,
              size_t len,
              uint64_t offset,
              int flags,
              uint64_t user_data);

// Queues a write of `len` bytes at `offset` of the file in `slot` from a registered buffer, `offset_in_buffer` bytes
// into it. Returns 1.
//
// Errors, thread: as ring_queue.
int ring_write(ring_t *r,
               int slot,
               int buffer,
               size_t offset_in_buffer,
               size_t len,
               uint64_t offset,
               int flags,
               uint64_t user_data);

// Queues a sync of the file in `slot`: with `data_only` of what is needed to read the data back, else of everything.
// Returns 1.
//
// Errors, thread: as ring_queue.
int ring_fsync(ring_t *r, int slot, int data_only, int flags, uint64_t user_data);

// Queues a time-out, which completes with -ETIME after `timeout_us` microseconds. Returns 1.
//
// Errors, thread: as ring_queue.
int ring_timeout(ring_t *r, uint64_t timeout_us, uint64_t user_data);

// Asks all operations with this `user_data` to end early. Each still completes: with -ECANCELED, or with its result
// when it was too late. The cancel itself has no completion. Returns how many there were.
//
// Errors: IOE_E_WRONG_THREAD. Doesn't bind. Never blocks.
int ring_cancel(ring_t *r, uint64_t user_data);

// Submits what is queued, without waiting for anything.
//
// Errors: IOE_E_WRONG_THREAD; what the system says when the ring has failed as a whole. Binds. Never blocks.
int ring_submit(ring_t *r);

// Submits what is queued and hands out completions that are ready, at most `max`; returns how many, 0 or more. When
// it returns fewer than `max`, no more are ready. When one of them has -EINVAL or -EFAULT, ioe_last_error() says which
// memory or alignment was refused.
//
// Errors: -EINVAL; IOE_E_WRONG_THREAD; what the system says when the ring has failed as a whole. Binds. Never
// blocks.
int ring_reap(ring_t *r, ring_completion_t *out, int max);

// Fills `o`, a struct of `size` bytes (sizeof(wal_options_t)), with the defaults.
//
// Errors: -EINVAL. Any thread, never blocks.
int wal_options_init(wal_options_t *o, size_t size);

// Opens the log in the directory `dir`, which is made when it is missing (its parent must be there), and sets `*out`,
// to be closed by wal_close. `o` NULL means the defaults. What the log holds is recovered and made durable first, and
// kept until wal_release; wal_recover reads it, before this call or after wal_close.
//
// Errors: -EINVAL; IOE_E_BUSY when it is open elsewhere; IOE_E_CORRUPT with file and offset when it is damaged;
// IOE_E_VERSION; IOE_E_UNSUPPORTED for a driver that can't be had; -ENOTDIR, -ENOENT, -EACCES, -EROFS, -ENOSPC, -EIO.
// Any thread; the log isn't bound yet. Blocks: reads the whole log.
int wal_open(const char *dir, const wal_options_t *o, wal_t **out);

// Copies a record and queues it; sets `*sequence`, unless that is NULL, to the record's number: 1 more than the record
// before. It leaves with the next submit or reap, and its end is an event of wal_reap.
//
// Errors: -EINVAL; IOE_E_STALLED when too much is queued or too many events weren't reaped; IOE_E_TOO_LARGE;
// IOE_E_POISONED after a failed write; -ENOMEM; IOE_E_WRONG_THREAD. Nothing was taken then. Doesn't bind. Never blocks.
int wal_append(wal_t *w, const void *data, size_t len, uint64_t user_data, uint64_t *sequence);

// Sends off what is queued, without waiting for anything.
//
// Errors: IOE_E_WRONG_THREAD; what the system says when the ring has failed as a whole. Binds. Never blocks.
int wal_submit(wal_t *w);

// Sends off what is queued, waits until `min_complete` items are ready over all objects on the ring, for at most
// `timeout_ms` (-1: for ever, 0: not at all), and hands out this log's events: at most `max`, one for each record that
// was appended, strictly in the order of sequences. Returns how many, 0 or more. With a ring of its own it doesn't wait
// for events that can't come.
//
// Errors: -EINVAL; -EINTR when a signal came and nothing is ready; IOE_E_WRONG_THREAD. Binds. Blocks as asked.
int wal_reap(wal_t *w, wal_event_t *out, int max, int min_complete, int timeout_ms);

// Returns the one descriptor to watch (POLLIN), made by the first call: that of the ring, see ring_fd.
//
// Errors: IOE_E_UNSUPPORTED with IOE_RING_IOPOLL, IOE_E_WRONG_THREAD, -EMFILE. Doesn't bind. Never blocks.
int wal_fd(wal_t *w);

// The records up to and with this sequence aren't needed any more: their segments are used again, as soon as the log
// says so durably.
//
// Errors: -EINVAL for a sequence that wasn't given yet; IOE_E_WRONG_THREAD. Doesn't bind. Never blocks.
int wal_release(wal_t *w, uint64_t up_to_sequence);

// Closes the log; NULL does nothing. What is queued is written, what is under way is waited for, and the log is sealed;
// events that weren't reaped are lost. When the owner has ended, nothing is waited for, and the directory stays locked
// until the process ends.
//
// Errors: IOE_E_INDETERMINATE when records under way may or may not be durable; what stood in the way of writing them;
// the log is closed and the handle gone all the same. IOE_E_WRONG_THREAD elsewhere than on the owner, while it lives:
// nothing is closed then. Blocks: writes to the device.
int wal_close(wal_t *w);

// Fills `o`, a struct of `size` bytes (sizeof(wal_recover_options_t)), with the defaults.
//
// Errors: -EINVAL. Any thread, never blocks.
int wal_recover_options_init(wal_recover_options_t *o, size_t size);

// Replays the log in the directory `dir` without opening it: hands its records to `fn` in order, with `user_data`, and
// changes nothing. `fn` may be NULL, to count and check only. `stats`, whose `size` the caller set, is filled in on
// success, unless it is NULL. `o` NULL means the defaults.
//
// A log ends where a crash tore it; what is damaged below what was proven durable is IOE_E_CORRUPT, unless
// o->salvage is set. Records may have been delivered by then.
//
// Errors: -EINVAL; IOE_E_CANCELLED when `fn` returned not 0; IOE_E_BUSY while it is open; IOE_E_CORRUPT with file and
// offset; IOE_E_VERSION; -ENOENT, -ENOTDIR, -EACCES, -EIO. Any thread. Blocks: reads the whole log.
int wal_recover(const char *dir,
                const wal_recover_options_t *o,
                wal_replay_fn fn,
                void *user_data,
                wal_recovery_t *stats);

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

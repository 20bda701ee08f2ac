/* Linked operations: read, write and sync as one chain; what a soft and a hard link do when one fails or is short; a
 * chain goes whole or not at all. The link stands on the earlier of two operations. */
#include "test.h"

static ring_t *r;
static ioe_buffer_t buffer;
static ring_completion_t done[64];

static ring_op_t transfer(int opcode, int slot, size_t len, uint64_t offset, int flags, uint64_t user_data) {
    ring_op_t op = {0};
    op.opcode = (uint16_t)opcode;
    op.flags = (uint16_t)flags;
    op.slot_or_fd = slot;
    op.buffer_or_pointer = (uint64_t)buffer.index;
    op.len = len;
    op.offset = offset;
    op.user_data = user_data;
    return op;
}

static ring_op_t nop(int flags, uint64_t user_data) {
    ring_op_t op = {0};
    op.opcode = IOE_OPCODE_NOP;
    op.flags = (uint16_t)flags;
    op.user_data = user_data;
    return op;
}

static void copy_chain(int source, int sink, int sink_fd) {
    ring_op_t ops[3] = {
        transfer(IOE_OPCODE_READ, source, 32 * KIB, 0, IOE_OP_LINK, 1),
        transfer(IOE_OPCODE_WRITE, sink, 32 * KIB, 0, IOE_OP_LINK, 2),
        transfer(IOE_OPCODE_FDATASYNC, sink, 0, 0, 0, 3),
    };
    char *copied = malloc(32 * KIB);
    EQUAL(ring_queue(r, ops, 3), 3, "read, write, sync are queued as one chain");
    EQUAL(test_gather(r, done, 3), 3, "all three complete");
    CHECK(done[0].user_data == 1 && done[1].user_data == 2 && done[2].user_data == 3, "in their order");
    CHECK(done[0].result == 32768 && done[1].result == 32768 && done[2].result == 0, "each with its result");
    CHECK(pread(sink_fd, copied, 32 * KIB, 0) == 32768 && test_filled(copied, 32 * KIB, 5), "the copy is exact");
    free(copied);
}

static void failing_links(int source, int sink) {
    ring_op_t soft[3] = {
        transfer(IOE_OPCODE_READ, 13, 512, 0, IOE_OP_LINK, 1), /* an empty slot */
        transfer(IOE_OPCODE_WRITE, sink, 512, 0, IOE_OP_LINK, 2),
        transfer(IOE_OPCODE_FSYNC, sink, 0, 0, 0, 3),
    };
    EQUAL(ring_queue(r, soft, 3), 3, "a chain whose first operation will fail");
    EQUAL(test_gather(r, done, 3), 3, "every operation of it completes");
    EQUAL(test_result(done, 3, 1), -EBADF, "the first with its error");
    EQUAL(test_result(done, 3, 2), -ECANCELED, "the second cancelled");
    EQUAL(test_result(done, 3, 3), -ECANCELED, "the third cancelled");

    soft[0].flags = IOE_OP_HARD_LINK;
    EQUAL(ring_queue(r, soft, 3), 3, "the same behind a hard link");
    EQUAL(test_gather(r, done, 3), 3, "every operation of it completes");
    EQUAL(test_result(done, 3, 1), -EBADF, "the first with its error");
    EQUAL(test_result(done, 3, 2), 512, "the second goes ahead all the same");
    EQUAL(test_result(done, 3, 3), 0, "and so does the third");

    ring_op_t brief[2] = {
        transfer(IOE_OPCODE_READ, source, 32 * KIB, 60 * KIB, IOE_OP_LINK, 1), /* 4 KiB are left in the file */
        transfer(IOE_OPCODE_FSYNC, sink, 0, 0, 0, 2),
    };
    EQUAL(ring_queue(r, brief, 2), 2, "a chain whose read will be short");
    EQUAL(test_gather(r, done, 2), 2, "both complete");
    EQUAL(test_result(done, 2, 1), 4096, "the read is short, as it is");
    EQUAL(test_result(done, 2, 2), -ECANCELED, "and breaks the soft link");
    brief[0].flags = IOE_OP_HARD_LINK;
    EQUAL(ring_queue(r, brief, 2), 2, "the same behind a hard link");
    EQUAL(test_gather(r, done, 2), 2, "both complete");
    EQUAL(test_result(done, 2, 2), 0, "the hard link holds");
}

/* A write that the file size limit cuts short: the record is not durable, whatever the sync would have said. */
static void short_write(int sink, int sink_fd) {
    struct rlimit old, small;
    NEED(!getrlimit(RLIMIT_FSIZE, &old) && !ftruncate(sink_fd, 0), "the file size limit");
    small = old;
    small.rlim_cur = 6 * KIB;
    ring_op_t ops[2] = {
        transfer(IOE_OPCODE_WRITE, sink, 8 * KIB, 0, IOE_OP_LINK, 1),
        transfer(IOE_OPCODE_FDATASYNC, sink, 0, 0, 0, 2),
    };
    NEED(!setrlimit(RLIMIT_FSIZE, &small), "a small file size limit");
    int queued = ring_queue(r, ops, 2), have = test_gather(r, done, 2);
    NEED(!setrlimit(RLIMIT_FSIZE, &old), "the old limit");
    EQUAL(queued, 2, "a write that must be short, and its sync");
    EQUAL(have, 2, "both complete");
    EQUAL(test_result(done, 2, 1), 6 * KIB, "the write was short");
    EQUAL(test_result(done, 2, 2), -ECANCELED, "so the sync was cancelled");

    /* Outside a chain the library finishes what is short; there is no progress to be made here, so that is an error. */
    ring_op_t alone = transfer(IOE_OPCODE_WRITE, sink, 8 * KIB, 0, 0, 3);
    NEED(!setrlimit(RLIMIT_FSIZE, &small), "a small file size limit");
    queued = ring_queue(r, &alone, 1), have = test_gather(r, done, 1);
    NEED(!setrlimit(RLIMIT_FSIZE, &old), "the old limit");
    EQUAL(have, 1, "the same write outside a chain completes");
    CHECK(done[0].result == -EFBIG || done[0].result == 6 * KIB, "and says how far it came, %d", done[0].result);
    alone.user_data = 4;
    EQUAL(ring_queue(r, &alone, 1), 1, "without the limit");
    EQUAL(test_gather(r, done, 1), 1, "it completes");
    EQUAL(done[0].result, 8 * KIB, "whole");
}

static void whole_chains(void) {
    ring_op_t ops[9];
    for (int i = 0; i < 6; i++) NEED(ring_queue(r, &(ring_op_t){.opcode = IOE_OPCODE_NOP, .user_data = 100}, 1) == 1, "nop");
    for (int i = 0; i < 9; i++) ops[i] = nop(i < 8 ? IOE_OP_LINK : 0, (uint64_t)i);
    int code = ring_queue(r, ops, 9);
    EQUAL(code, IOE_E_TOO_LARGE, "a chain longer than the ring's entries can never go");
    ops[4].flags = 0;
    EQUAL(ring_queue(r, ops, 5), 5, "a chain longer than what is left of the queue waits for room");
    EQUAL(test_gather(r, done, 11), 11, "and all of it completes");
    int next = 0;
    for (int i = 0; i < 11; i++)
        if (done[i].user_data != 100) next = done[i].user_data == (uint64_t)next && !done[i].result ? next + 1 : -99;
    EQUAL(next, 5, "in its order");

    ring_op_t first = nop(IOE_OP_LINK, 1), last = nop(0, 2);
    EQUAL(ring_queue(r, &first, 1), 1, "an open chain is taken");
    EQUAL(ring_submit(r) >= 0, 1, "a submit leaves it");
    EQUAL(ring_wait(r, 1, 50), 0, "nothing of it runs");
    EQUAL(ring_reap(r, done, 8), 0, "nothing of it is there");
    EQUAL(ring_queue(r, &last, 1), 1, "its last operation comes");
    EQUAL(test_gather(r, done, 2), 2, "now both run");
    CHECK(done[0].user_data == 1 && done[1].user_data == 2, "in their order");

    ring_op_t mixed[3] = {nop(IOE_OP_LINK, 1), nop(0, 2), nop(0, 3)};
    mixed[2].opcode = 999;
    CHECK(ring_queue(r, mixed, 3) == -EINVAL, "one bad operation refuses the whole call");
    EQUAL(ring_wait(r, 1, 50), 0, "and nothing of it runs");
    EQUAL(ring_reap(r, done, 8), 0, "nothing of it is there");
}

int main(void) {
    signal(SIGXFSZ, SIG_IGN);
    ring_options_t o = test_ring_options();
    o.entries = 8;
    r = test_ring(&o);
    NEED(ring_buffer_acquire(r, &buffer) == IOE_OK, "a buffer");
    int source_fd = test_file(test_path("source"), 64 * KIB, 5), sink_fd = test_file(test_path("sink"), 0, 0);
    int source = ring_file_set(r, IOE_SLOT_ANY, source_fd), sink = ring_file_set(r, IOE_SLOT_ANY, sink_fd);
    NEED(source >= 0 && sink >= 0, "slots");
    copy_chain(source, sink, sink_fd);
    failing_links(source, sink);
    short_write(sink, sink_fd);
    whole_chains();
    EQUAL(ring_close(r), IOE_OK, "close");
    return test_finish();
}

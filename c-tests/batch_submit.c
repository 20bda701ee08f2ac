/* Operations gather until the next submit; a full submission queue loses nothing; nor does a full completion queue. */
#include "test.h"

enum { MANY = 5000 };

int main(void) {
    ring_options_t o = test_ring_options();
    o.entries = 16;
    ring_t *r = test_ring(&o);
    ioe_buffer_t buffer;
    static ring_completion_t done[MANY];
    static unsigned char seen[MANY];
    NEED(ring_buffer_acquire(r, &buffer) == IOE_OK, "a buffer");
    char *path = test_path("file");
    int fd = test_file(path, 0, 0);
    int slot = ring_file_set(r, IOE_SLOT_ANY, fd);
    NEED(slot >= 0, "a slot");

    test_fill(buffer.data, 512, 4);
    struct stat info;
    EQUAL(ring_write(r, slot, buffer.index, 0, 512, 0, 0, 1), 1, "one write is queued");
    struct timespec pause = {0, 50 * 1000000};
    nanosleep(&pause, NULL);
    CHECK(!fstat(fd, &info) && info.st_size == 0, "and not submitted before the next submit");
    CHECK(ring_submit(r) >= 0, "submit");
    EQUAL(test_gather(r, done, 1), 1, "it completes");
    EQUAL(done[0].result, 512, "whole");

    for (int i = 0; i < MANY; i++)
        NEED(ring_write(r, slot, buffer.index, 0, 512, (uint64_t)i * 512, 0, (uint64_t)i) == 1, "write %d of a queue of 16", i);
    CHECK(1, "%d operations are taken by a queue of 16", MANY);
    EQUAL(test_gather(r, done, MANY), MANY, "all of them complete");
    int once = 0, whole = 0;
    for (int i = 0; i < MANY; i++) {
        if (done[i].user_data < MANY && !seen[done[i].user_data]) seen[done[i].user_data] = 1, once++;
        whole += done[i].result == 512;
    }
    EQUAL(once, MANY, "each once, with its own value");
    EQUAL(whole, MANY, "each whole");
    CHECK(!fstat(fd, &info) && info.st_size == (off_t)MANY * 512, "the file has them all");
    EQUAL(ring_reap(r, done, 16), 0, "and nothing more comes");

    /* Submitted and not reaped: more completions than the completion queue holds. */
    for (int i = 0; i < MANY; i++) {
        ring_op_t op = {0};
        op.opcode = IOE_OPCODE_NOP;
        op.user_data = (uint64_t)i;
        NEED(ring_queue(r, &op, 1) == 1, "nop %d", i);
        if (i % 16 == 15) NEED(ring_submit(r) >= 0, "submit %d: %s", i, ioe_last_error());
    }
    EQUAL(test_gather(r, done, MANY), MANY, "nothing is lost when nobody reaps for long");
    memset(seen, 0, sizeof seen);
    once = 0;
    for (int i = 0; i < MANY; i++)
        if (done[i].user_data < MANY && !seen[done[i].user_data]) seen[done[i].user_data] = 1, once++;
    EQUAL(once, MANY, "each once, with its own value, though entries were used again");

    ring_op_t ops[40] = {{0}};
    for (int i = 0; i < 40; i++) ops[i].opcode = IOE_OPCODE_NOP, ops[i].user_data = (uint64_t)i;
    EQUAL(ring_queue(r, ops, 40), 40, "one call may queue more than the entries, when they aren't a chain");
    EQUAL(test_gather(r, done, 40), 40, "they complete");
    EQUAL(ring_queue(r, ops, 0), 0, "none is none");
    close(fd);
    EQUAL(ring_close(r), IOE_OK, "close");
    return test_finish();
}

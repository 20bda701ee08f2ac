/* Fixed files: a table of slots, sparse at first; set, used, replaced, cleared. */
#include "test.h"

static int read_slot(ring_t *r, int slot, const ioe_buffer_t *buffer, size_t len) {
    ring_completion_t done;
    memset(buffer->data, 0, len);
    int code = ring_read(r, slot, buffer->index, 0, len, 0, 0, 42);
    if (code != 1) return code;
    return test_gather(r, &done, 1) == 1 && done.user_data == 42 ? done.result : -99999;
}

int main(void) {
    ring_options_t o = test_ring_options();
    o.file_slots = 8;
    ring_t *r = test_ring(&o);
    ioe_buffer_t buffer;
    NEED(ring_buffer_acquire(r, &buffer) == IOE_OK, "a buffer");

    int code = read_slot(r, 3, &buffer, 100);
    CHECK(code == -EBADF || code == -EINVAL, "a slot that was never set reads nothing, code %d", code);

    int a = test_file(test_path("a"), 8192, 1), b = test_file(test_path("b"), 8192, 2);
    EQUAL(ring_file_set(r, 3, a), 3, "a chosen slot is returned");
    close(a);
    EQUAL(read_slot(r, 3, &buffer, 4096), 4096, "a slot works when the caller has closed its descriptor");
    CHECK(test_filled(buffer.data, 4096, 1), "and reads the first file");

    EQUAL(ring_file_set(r, 3, b), 3, "a slot is replaced while the ring runs");
    EQUAL(read_slot(r, 3, &buffer, 4096), 4096, "the replaced slot reads");
    CHECK(test_filled(buffer.data, 4096, 2), "the second file");

    int seen[8] = {0}, full = 0;
    seen[3] = 1;
    for (int i = 0; i < 7; i++) {
        int slot = ring_file_set(r, IOE_SLOT_ANY, b);
        if (slot >= 0 && slot < 8 && !seen[slot]) seen[slot] = 1, full++;
    }
    EQUAL(full, 7, "the library chooses each free slot once");
    code = ring_file_set(r, IOE_SLOT_ANY, b);
    CHECK(code < 0, "a full table has no further slot, code %d: %s", code, ioe_last_error());
    for (int i = 0; i < 8; i++) NEED(read_slot(r, i, &buffer, 512) == 512, "slot %d of the dense table reads", i);
    CHECK(1, "every slot of the dense table reads");

    EQUAL(ring_file_clear(r, 5), IOE_OK, "a slot is cleared");
    code = read_slot(r, 5, &buffer, 100);
    CHECK(code == -EBADF || code == -EINVAL, "and reads no more, code %d", code);
    EQUAL(ring_file_set(r, IOE_SLOT_ANY, b), 5, "and is the next to be chosen");

    CHECK(ring_file_set(r, 8, b) < 0, "a slot beyond the table is refused");
    CHECK(ring_file_set(r, -7, b) < 0, "a negative slot is refused");
    CHECK(ring_file_set(r, 1, -1) < 0, "a bad descriptor is refused");
    CHECK(ring_file_clear(r, 8) < 0, "clearing beyond the table is refused");
    EQUAL(read_slot(r, 1, &buffer, 512), 512, "a refused update leaves the slot as it was");

    /* The last operation of a chain gives the slot up. */
    ring_op_t ops[2] = {{0}, {0}};
    ring_completion_t done[2];
    ops[0].opcode = IOE_OPCODE_READ;
    ops[0].flags = IOE_OP_LINK;
    ops[0].slot_or_fd = 2;
    ops[0].buffer_or_pointer = (uint64_t)buffer.index;
    ops[0].len = 1024;
    ops[0].user_data = 1;
    ops[1].opcode = IOE_OPCODE_CLOSE_SLOT;
    ops[1].slot_or_fd = 2;
    ops[1].user_data = 2;
    EQUAL(ring_queue(r, ops, 2), 2, "a read and the slot's end are queued as a chain");
    EQUAL(test_gather(r, done, 2), 2, "both complete");
    EQUAL(test_result(done, 2, 1), 1024, "the read");
    EQUAL(test_result(done, 2, 2), 0, "the slot's end");
    CHECK(read_slot(r, 2, &buffer, 100) < 0, "the slot is empty afterwards");
    EQUAL(ring_file_set(r, IOE_SLOT_ANY, b), 2, "and free to be chosen");

    close(b);
    EQUAL(ring_close(r), IOE_OK, "close");
    return test_finish();
}

/* Registered buffers: acquired, written from, read into, at an offset; their limits; given back. */
#include "test.h"

int main(void) {
    ring_options_t o = test_ring_options();
    o.buffer_count = 4;
    o.buffer_size = 16 * KIB;
    ring_t *r = test_ring(&o);
    ioe_buffer_t buffers[4], extra = {NULL, 0, -5, 0};
    ring_completion_t done[4];
    for (int i = 0; i < 4; i++) {
        NEED(ring_buffer_acquire(r, &buffers[i]) == IOE_OK, "buffer %d", i);
        CHECK(buffers[i].data && buffers[i].len == 16 * KIB, "buffer %d has its length", i);
        for (int j = 0; j < i; j++)
            NEED(buffers[i].index != buffers[j].index && buffers[i].data != buffers[j].data, "buffers differ");
    }
    EQUAL(ring_buffer_acquire(r, &extra), IOE_E_STALLED, "when none is free the caller is told to wait");
    CHECK(extra.data == NULL && extra.index == -5, "and the out-parameter is untouched");

    int fd = test_file(test_path("file"), 0, 0);
    int slot = ring_file_set(r, IOE_SLOT_ANY, fd);
    NEED(slot >= 0, "a slot");
    test_fill(buffers[0].data, 16 * KIB, 9);
    EQUAL(ring_write(r, slot, buffers[0].index, 0, 16 * KIB, 0, 0, 1), 1, "a write from a registered buffer is queued");
    EQUAL(test_gather(r, done, 1), 1, "it completes");
    EQUAL(done[0].result, 16 * KIB, "whole");
    EQUAL(ring_read(r, slot, buffers[1].index, 0, 16 * KIB, 0, 0, 2), 1, "a read into another is queued");
    EQUAL(test_gather(r, done, 1), 1, "it completes");
    EQUAL(done[0].result, 16 * KIB, "whole");
    CHECK(test_filled(buffers[1].data, 16 * KIB, 9), "what was written is read");

    memset(buffers[2].data, 0xEE, 16 * KIB);
    EQUAL(ring_read(r, slot, buffers[2].index, 4096, 512, 1024, 0, 3), 1, "a read to an offset in the buffer");
    EQUAL(test_gather(r, done, 1), 1, "it completes");
    EQUAL(done[0].result, 512, "whole");
    CHECK(!memcmp((char *)buffers[2].data + 4096, (char *)buffers[0].data + 1024, 512), "at its place");
    int untouched = 1;
    for (size_t i = 0; i < 16 * KIB; i++)
        if ((i < 4096 || i >= 4608) && ((unsigned char *)buffers[2].data)[i] != 0xEE) untouched = 0;
    CHECK(untouched, "and nowhere else");

    EQUAL(ring_read(r, slot, buffers[1].index, 0, 16 * KIB, 8 * KIB, 0, 4), 1, "a read across the end of the file");
    EQUAL(test_gather(r, done, 1), 1, "it completes");
    EQUAL(done[0].result, 8 * KIB, "with what there is");

    CHECK(ring_read(r, slot, buffers[1].index, 0, 16 * KIB + 1, 0, 0, 5) < 0, "a length beyond the buffer is refused");
    CHECK(ring_read(r, slot, buffers[1].index, 16 * KIB, 1, 0, 0, 5) < 0, "an offset beyond it too");
    CHECK(ring_read(r, slot, buffers[1].index, SIZE_MAX - 4, 8, 0, 0, 5) < 0, "and a sum that wraps round");
    CHECK(ring_read(r, slot, 99, 0, 1, 0, 0, 5) < 0, "and a buffer that there isn't");

    EQUAL(ring_buffer_release(r, buffers[3].index), IOE_OK, "a buffer is given back");
    CHECK(ring_buffer_release(r, buffers[3].index) < 0, "twice is refused: %s", ioe_last_error());
    CHECK(ring_buffer_release(r, 99) < 0, "an unknown one too");
    EQUAL(ring_buffer_acquire(r, &extra), IOE_OK, "it can be had again");
    EQUAL(extra.index, buffers[3].index, "and is the one given back");

    /* Memory of the caller, without registration. */
    char *own = malloc(4096);
    ring_op_t op = {0};
    op.opcode = IOE_OPCODE_READ;
    op.flags = IOE_OP_RAW_POINTER | IOE_OP_RAW_FD;
    op.slot_or_fd = fd;
    op.buffer_or_pointer = (uint64_t)(uintptr_t)own;
    op.len = 4096;
    op.user_data = 6;
    EQUAL(ring_queue(r, &op, 1), 1, "a read into plain memory by a plain descriptor");
    EQUAL(test_gather(r, done, 1), 1, "it completes");
    EQUAL(done[0].result, 4096, "whole");
    CHECK(!memcmp(own, buffers[0].data, 4096), "with the same bytes");
    free(own);
    close(fd);
    EQUAL(ring_close(r), IOE_OK, "close");
    return test_finish();
}

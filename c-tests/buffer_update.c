/* Replacing one registered buffer, by its index and with a tag, while the ring runs. */
#include "test.h"

int main(void) {
    ring_options_t o = test_ring_options();
    o.buffer_count = 4;
    o.buffer_size = 64 * KIB;
    ring_t *r = test_ring(&o);
    ioe_buffer_t buffers[4];
    ring_completion_t done[64];
    for (int i = 0; i < 4; i++) NEED(ring_buffer_acquire(r, &buffers[i]) == IOE_OK, "buffer %d", i);
    int fd = test_file(test_path("file"), 64 * KIB, 7);
    int slot = ring_file_set(r, IOE_SLOT_ANY, fd);
    NEED(slot >= 0, "a slot");
    int index = buffers[2].index, busy = buffers[1].index;

    char *own = mmap(NULL, 128 * KIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    NEED(own != MAP_FAILED, "memory of our own");
    for (int i = 0; i < 16; i++) NEED(ring_read(r, slot, busy, 0, 64 * KIB, 0, 0, 500 + (uint64_t)i) == 1, "other work");
    EQUAL(ring_buffer_replace(r, index, own, 128 * KIB, 0x7A6), IOE_OK, "a buffer is replaced while the ring has work");
    EQUAL(ring_read(r, slot, index, 64 * KIB, 64 * KIB, 0, 0, 1), 1, "a read into the new memory, beyond the old length");
    int have = 0, tags = 0, others = 0, reads = 0;
    uint64_t deadline = now_ms() + 10000;
    while ((others < 16 || !reads) && now_ms() < deadline) {
        have = ring_wait(r, 1, 1000) < 0 ? 0 : ring_reap(r, done, 64);
        for (int i = 0; i < have; i++) {
            if (done[i].user_data >= 500 && done[i].user_data < 516) others += done[i].result == 65536;
            if (done[i].user_data == 1) reads += done[i].result == 65536;
            if (done[i].user_data == 0x7A6) tags++;
        }
    }
    EQUAL(others, 16, "the work that was under way completes");
    EQUAL(reads, 1, "the read completes");
    CHECK(test_filled(own + 64 * KIB, 64 * KIB, 7), "in our memory");
    EQUAL(tags, 0, "the tag doesn't come while its buffer is registered");

    EQUAL(ring_buffer_replace(r, index, NULL, 0, 0), IOE_OK, "the buffer is unregistered");
    have = test_gather(r, done, 1);
    CHECK(have == 1 && done[0].user_data == 0x7A6 && done[0].result == 0 && (done[0].flags & IOE_CQE_NOTICE),
          "its tag tells that nothing uses it any more");
    CHECK(ring_read(r, slot, index, 0, 512, 0, 0, 2) < 0 || (test_gather(r, done, 1) == 1 && done[0].result < 0),
          "what is unregistered can't be read into");
    memset(own, 0, 128 * KIB);
    EQUAL(munmap(own, 128 * KIB), 0, "the memory goes");

    EQUAL(ring_read(r, slot, busy, 0, 4096, 0, 0, 3), 1, "the other buffers work on");
    EQUAL(test_gather(r, done, 1), 1, "the read completes");
    EQUAL(done[0].result, 4096, "whole");

    CHECK(ring_buffer_replace(r, 99, buffers[0].data, 4096, 0) < 0, "an index beyond the table is refused");
    CHECK(ring_buffer_replace(r, -1, buffers[0].data, 4096, 0) < 0, "a negative one too");
    if (test_is_uring(r)) {
        int code = ring_buffer_replace(r, index, (void *)(uintptr_t)4096, 64 * KIB, 0);
        CHECK(code < 0 && strstr(ioe_last_error(), "0x1000"), "an address without memory is named: %d, %s", code, ioe_last_error());
    }
    close(fd);
    EQUAL(ring_close(r), IOE_OK, "close");
    return test_finish();
}

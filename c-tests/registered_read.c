/* One large registered buffer, and direct reads into it. */
#include "test.h"

#define LARGE (4 * MIB)

int main(void) {
    ring_options_t o = test_ring_options();
    o.buffer_count = 1;
    o.buffer_size = LARGE;
    ring_t *r = test_ring(&o);
    ioe_buffer_t buffer;
    ring_completion_t done[64];
    NEED(ring_buffer_acquire(r, &buffer) == IOE_OK, "the buffer");
    CHECK(buffer.len == LARGE, "it has 4 MiB");
    CHECK((uintptr_t)buffer.data % 4096 == 0, "and stands on a page");

    char *path = test_path("large");
    int plain = test_file(path, LARGE, 3);
    NEED(!fsync(plain), "the file on its device");
    int fd = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);
    int direct = fd >= 0;
    if (!direct) fd = open(path, O_RDONLY | O_CLOEXEC);
    printf("the file is read %s\n", direct ? "directly" : "through the page cache: this file system has no O_DIRECT");
    int slot = ring_file_set(r, IOE_SLOT_ANY, fd);
    NEED(slot >= 0, "a slot");
    EQUAL(ring_read(r, slot, buffer.index, 0, LARGE, 0, 0, 1), 1, "one read of it all is queued");
    EQUAL(test_gather(r, done, 1), 1, "it completes");
    EQUAL(done[0].result, LARGE, "whole");
    CHECK(test_filled(buffer.data, LARGE, 3), "with the file's bytes");

    memset(buffer.data, 0, LARGE);
    for (int i = 0; i < 64; i++) {
        size_t at = (size_t)((i * 37) % 64) * 64 * KIB; /* every place once, out of order */
        NEED(ring_read(r, slot, buffer.index, at, 64 * KIB, at, 0, (uint64_t)i) == 1, "read %d", i);
    }
    EQUAL(test_gather(r, done, 64), 64, "64 reads at once into parts of the same buffer complete");
    CHECK(test_filled(buffer.data, LARGE, 3), "and put it together again");

    if (direct) {
        EQUAL(ring_read(r, slot, buffer.index, 1, 4096, 0, 0, 2), 1, "a direct read to an address that isn't aligned");
        EQUAL(test_gather(r, done, 1), 1, "it completes");
        CHECK(done[0].result == -EINVAL || done[0].result == 4096, "refused by the system, or done: %d", done[0].result);
        if (done[0].result == -EINVAL)
            CHECK(strstr(ioe_last_error(), "address"), "and the address is named: %s", ioe_last_error());
    }
    close(plain);
    close(fd);
    EQUAL(ring_close(r), IOE_OK, "close");
    return test_finish();
}

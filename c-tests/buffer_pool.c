/* A pool of 64 slots of 64 KiB, registered at once, all in flight at once; and what asking for too much gets. */
#include "test.h"

enum { COUNT = 64 };

int main(void) {
    ring_options_t o = test_ring_options();
    o.buffer_count = COUNT;
    o.buffer_size = 64 * KIB;
    o.huge_pages = 1; /* when there are any */
    ring_t *r = test_ring(&o);
    ring_info_t info = {0};
    info.size = sizeof info;
    EQUAL(ring_info(r, &info), IOE_OK, "ring_info");
    EQUAL(info.buffer_count, COUNT, "64 buffers are granted");
    if (info.driver == IOE_DRIVER_URING) CHECK(info.pinned_bytes >= COUNT * 64 * KIB, "and counted as pinned");

    ioe_buffer_t slots[COUNT];
    ring_completion_t done[COUNT];
    int aligned = 1;
    for (int i = 0; i < COUNT; i++) {
        NEED(ring_buffer_acquire(r, &slots[i]) == IOE_OK, "slot %d", i);
        if ((uintptr_t)slots[i].data % 4096 || slots[i].len != 64 * KIB) aligned = 0;
    }
    CHECK(aligned, "every slot is aligned to 4096 and 64 KiB long");

    int fd = test_file(test_path("file"), 0, 0);
    int slot = ring_file_set(r, IOE_SLOT_ANY, fd);
    NEED(slot >= 0, "a file slot");
    for (int i = 0; i < COUNT; i++) {
        test_fill(slots[i].data, slots[i].len, 100 + (unsigned)i);
        NEED(ring_write(r, slot, slots[i].index, 0, 64 * KIB, (uint64_t)i * 64 * KIB, 0, (uint64_t)i) == 1, "write %d", i);
    }
    EQUAL(test_gather(r, done, COUNT), COUNT, "64 writes at once complete");
    for (int i = 0; i < COUNT; i++) NEED(test_result(done, COUNT, (uint64_t)i) == 65536, "write %d was whole", i);
    for (int i = 0; i < COUNT; i++) {
        memset(slots[i].data, 0, slots[i].len);
        NEED(ring_read(r, slot, slots[i].index, 0, 64 * KIB, (uint64_t)i * 64 * KIB, 0, (uint64_t)i) == 1, "read %d", i);
    }
    EQUAL(test_gather(r, done, COUNT), COUNT, "64 reads at once complete");
    int right = 0;
    for (int i = 0; i < COUNT; i++) right += test_filled(slots[i].data, slots[i].len, 100 + (unsigned)i);
    EQUAL(right, COUNT, "every slot has its own bytes");

    for (int i = 0; i < COUNT; i += 2) NEED(ring_buffer_release(r, slots[i].index) == IOE_OK, "release %d", i);
    int again = 0;
    ioe_buffer_t extra;
    while (ring_buffer_acquire(r, &extra) == IOE_OK && again < COUNT) again++;
    EQUAL(again, COUNT / 2, "what was given back can be had again, and no more");
    close(fd);
    EQUAL(ring_close(r), IOE_OK, "close");

    ring_t *never = NULL;
    o.buffer_size = SIZE_MAX / 2;
    CHECK(ring_open(&o, &never) < 0, "a pool beyond all memory is refused: %s", ioe_last_error());
    o.buffer_size = 1000; /* not a multiple of a page: allowed or refused, but said */
    int code = ring_open(&o, &never);
    CHECK(code == IOE_OK || strlen(ioe_last_error()) > 10, "an odd size works or is explained, code %d", code);
    if (code == IOE_OK) ring_close(never);
    return test_finish();
}

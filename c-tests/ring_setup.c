/* Ring set-up: every set-up flag either works or is refused with a reason; what can be had is had; wrong
 * combinations are refused by name; a ring can be locked to the operations it uses. */
#include "test.h"

static const struct { uint32_t flag; const char *name; int kernel_thread; } flags[] = {
    {IOE_RING_SQPOLL, "SQPOLL", 1},
    {IOE_RING_SQPOLL | IOE_RING_SQ_AFF, "SQPOLL with SQ_AFF", 1},
    {IOE_RING_IOPOLL, "IOPOLL", 1},
    {IOE_RING_CQSIZE, "CQSIZE", 0},
    {IOE_RING_SUBMIT_ALL, "SUBMIT_ALL", 0},
    {IOE_RING_COOP_TASKRUN, "COOP_TASKRUN", 0},
    {IOE_RING_COOP_TASKRUN | IOE_RING_TASKRUN_FLAG, "COOP_TASKRUN with TASKRUN_FLAG", 0},
    {IOE_RING_SINGLE_ISSUER, "SINGLE_ISSUER", 0},
    {IOE_RING_SINGLE_ISSUER | IOE_RING_DEFER_TASKRUN, "SINGLE_ISSUER with DEFER_TASKRUN", 0},
    {IOE_RING_NAPI, "NAPI", 1},
};

/* A ring is worth something when a write and a read go through it. */
static int round_trip(ring_t *r) {
    ring_completion_t done[2];
    ioe_buffer_t buffer;
    char *path = test_path("round-trip");
    int fd = test_file(path, 4096, 1), good = 0;
    int slot = ring_file_set(r, IOE_SLOT_ANY, fd);
    if (slot >= 0 && ring_buffer_acquire(r, &buffer) == IOE_OK) {
        memset(buffer.data, 0, 4096);
        good = ring_read(r, slot, buffer.index, 0, 4096, 0, 0, 7) == 1 && test_gather(r, done, 1) == 1 &&
               done[0].user_data == 7 && done[0].result == 4096 && test_filled(buffer.data, 4096, 1);
        ring_buffer_release(r, buffer.index);
    }
    if (slot >= 0) ring_file_clear(r, slot);
    close(fd);
    return good;
}

static ring_options_t with(uint32_t must, uint32_t wanted) {
    ring_options_t o = test_ring_options();
    o.flags = must;
    o.flags_wanted = wanted;
    if ((must | wanted) & IOE_RING_CQSIZE) o.cq_entries = 4096;
    if ((must | wanted) & IOE_RING_SQ_AFF) o.sqpoll_cpu = 0;
    return o;
}

static void each_flag(void) {
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        ring_t *r = NULL;
        ring_options_t o = with(flags[i].flag, 0);
        int code = ring_open(&o, &r);
        int posix = test_driver() == IOE_DRIVER_POSIX;
        if (code == IOE_OK) {
            ring_info_t info = {0};
            info.size = sizeof info;
            EQUAL(ring_info(r, &info), IOE_OK, "ring_info");
            if (info.driver == IOE_DRIVER_URING)
                CHECK((info.flags & flags[i].flag) == flags[i].flag, "%s is granted when it was a must", flags[i].name);
            else
                CHECK((info.flags & flags[i].flag) == 0, "%s is accepted but not granted by POSIX", flags[i].name);
            CHECK(!(posix && flags[i].kernel_thread), "POSIX doesn't pretend to have %s", flags[i].name);
            /* IOPOLL reads only with O_DIRECT on a device with poll queues: opening is what can be shown. */
            if (!(flags[i].flag & IOE_RING_IOPOLL)) CHECK(round_trip(r), "a read goes through with %s", flags[i].name);
            EQUAL(ring_close(r), IOE_OK, "close");
        } else {
            EQUAL(code, IOE_E_UNSUPPORTED, "a flag that can't be had is refused as unsupported");
            CHECK(strlen(ioe_last_error()) > 10, "and the reason is given for %s: %s", flags[i].name, ioe_last_error());
            CHECK(r == NULL, "the out-parameter is untouched");
        }
        o = with(0, flags[i].flag);
        code = ring_open(&o, &r);
        CHECK(code == IOE_OK, "%s as a wish never fails", flags[i].name);
        if (code == IOE_OK) {
            ring_info_t info = {0};
            info.size = sizeof info;
            EQUAL(ring_info(r, &info), IOE_OK, "ring_info");
            if (!(info.flags & IOE_RING_IOPOLL)) CHECK(round_trip(r), "a read goes through, %s wished for", flags[i].name);
            EQUAL(ring_close(r), IOE_OK, "close");
        }
    }
}

static void wrong_combinations(void) {
    static const struct { uint32_t flags; const char *word; } wrong[] = {
        {IOE_RING_SQPOLL | IOE_RING_SINGLE_ISSUER | IOE_RING_DEFER_TASKRUN, "SQPOLL"},
        {IOE_RING_SQPOLL | IOE_RING_COOP_TASKRUN, "SQPOLL"},
        {IOE_RING_SQ_AFF, "SQPOLL"},
        {IOE_RING_DEFER_TASKRUN, "SINGLE_ISSUER"},
        {IOE_RING_TASKRUN_FLAG, "TASKRUN"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        ring_t *r = NULL;
        ring_options_t o = with(wrong[i].flags, 0);
        int code = ring_open(&o, &r);
        if (test_driver() == IOE_DRIVER_POSIX && code == IOE_OK) {
            EQUAL(ring_close(r), IOE_OK, "POSIX takes a combination that only the kernel would refuse");
            continue;
        }
        CHECK(code == -EINVAL || code == IOE_E_UNSUPPORTED, "wrong combination %#x is refused, code %d", wrong[i].flags, code);
        CHECK(strstr(ioe_last_error(), wrong[i].word), "and %s is named: %s", wrong[i].word, ioe_last_error());
        if (code == IOE_OK) ring_close(r);
    }
    ring_t *r = NULL;
    ring_options_t o = with(1u << 30, 0);
    EQUAL(ring_open(&o, &r), -EINVAL, "an unknown flag is a bad argument");
}

static void attached(void) {
    ring_options_t o = test_ring_options();
    ring_t *first = test_ring(&o), *second = NULL;
    o.flags = IOE_RING_ATTACH;
    o.attach_to = first;
    int code = ring_open(&o, &second);
    if (test_is_uring(first)) {
        EQUAL(code, IOE_OK, "a ring is attached to another's workers");
        if (code == IOE_OK) CHECK(round_trip(second), "and works");
    } else {
        EQUAL(code, IOE_E_UNSUPPORTED, "POSIX can't attach, and says so");
    }
    if (code == IOE_OK) EQUAL(ring_close(second), IOE_OK, "close the attached one");
    EQUAL(ring_close(first), IOE_OK, "close the first");
}

static void restricted(void) {
    ring_options_t o = test_ring_options();
    o.flags = IOE_RING_RESTRICT;
    o.allowed_opcodes = (1u << IOE_OPCODE_READ) | (1u << IOE_OPCODE_NOP);
    ring_t *r = NULL;
    int code = ring_open(&o, &r);
    if (code != IOE_OK) {
        EQUAL(code, IOE_E_UNSUPPORTED, "a kernel without restrictions says so");
        return;
    }
    CHECK(round_trip(r), "an allowed operation passes");
    int fd = test_file(test_path("restricted"), 4096, 3);
    int slot = ring_file_set(r, IOE_SLOT_ANY, fd);
    ring_completion_t done;
    code = ring_write(r, slot, 0, 0, 512, 0, 0, 1);
    if (code == 1) code = test_gather(r, &done, 1) == 1 ? done.result : 0;
    CHECK(code < 0, "a forbidden operation is refused, code %d", code);
    char kept[512];
    CHECK(pread(fd, kept, 512, 0) == 512 && test_filled(kept, 512, 3), "and does nothing to the file");
    close(fd);
    EQUAL(ring_close(r), IOE_OK, "close");
}

int main(void) {
    ring_capabilities_t can = {0};
    can.size = sizeof can;
    EQUAL(ring_capabilities(&can), IOE_OK, "ring_capabilities");
    CHECK(!can.io_uring || strlen(can.io_uring) > 10, "io_uring: %s", can.io_uring ? can.io_uring : "usable");
    CHECK(!can.sqpoll || strlen(can.sqpoll) > 10, "SQPOLL: %s", can.sqpoll ? can.sqpoll : "usable");
    CHECK(!can.iopoll || strlen(can.iopoll) > 10, "IOPOLL: %s", can.iopoll ? can.iopoll : "usable");
    ring_options_t o = test_ring_options();
    ring_t *r = test_ring(&o);
    CHECK(round_trip(r), "a ring with the defaults works");
    ring_info_t info = {0};
    info.size = sizeof info;
    EQUAL(ring_info(r, &info), IOE_OK, "ring_info");
    CHECK(info.driver == IOE_DRIVER_URING || info.driver == IOE_DRIVER_POSIX, "the driver is named");
    CHECK(info.entries >= 1 && info.cq_entries >= info.entries, "sizes granted: %u and %u", info.entries, info.cq_entries);
    if (test_driver() == IOE_DRIVER_POSIX) EQUAL(info.driver, IOE_DRIVER_POSIX, "the driver asked for is the driver given");
    EQUAL(ring_close(r), IOE_OK, "close");
    EQUAL(ring_close(r), IOE_E_STALE, "a second close is stale and harms nothing");
    EQUAL(ring_close(NULL), 0, "closing NULL does nothing");
    each_flag();
    wrong_combinations();
    attached();
    restricted();
    return test_finish();
}

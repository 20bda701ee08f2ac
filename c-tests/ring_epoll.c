/* The one descriptor of a ring in a host's epoll, level and edge triggered, under every combination of set-up flags
 * (but IOPOLL, where it is refused): nothing is stranded, whatever is left behind signals again. */
#include <sys/epoll.h>

#include "test.h"

static const struct { uint32_t flags; const char *name; } modes[] = {
    {0, "the defaults"},
    {IOE_RING_COOP_TASKRUN, "COOP_TASKRUN"},
    {IOE_RING_COOP_TASKRUN | IOE_RING_TASKRUN_FLAG, "COOP_TASKRUN, TASKRUN_FLAG"},
    {IOE_RING_SINGLE_ISSUER, "SINGLE_ISSUER"},
    {IOE_RING_SINGLE_ISSUER | IOE_RING_COOP_TASKRUN, "SINGLE_ISSUER, COOP_TASKRUN"},
    {IOE_RING_SINGLE_ISSUER | IOE_RING_DEFER_TASKRUN, "SINGLE_ISSUER, DEFER_TASKRUN"},
    {IOE_RING_SINGLE_ISSUER | IOE_RING_DEFER_TASKRUN | IOE_RING_TASKRUN_FLAG, "SINGLE_ISSUER, DEFER_TASKRUN, TASKRUN_FLAG"},
    {IOE_RING_SUBMIT_ALL | IOE_RING_CQSIZE, "SUBMIT_ALL, CQSIZE"},
    {IOE_RING_SQPOLL, "SQPOLL"},
};

static ring_t *r;
static int watched, epoll;
static ring_completion_t done[64];

/* Whether the host's epoll wakes within the time. A spurious wake-up or EINTR counts as neither. */
static int wakes(int timeout_ms) {
    struct epoll_event event;
    uint64_t deadline = now_ms() + (uint64_t)timeout_ms;
    for (;;) {
        uint64_t now = now_ms();
        int n = epoll_wait(epoll, &event, 1, now < deadline ? (int)(deadline - now) : 0);
        if (n > 0) return event.data.fd == watched;
        if (n == 0 || errno != EINTR) return 0;
    }
}

/* What a host does on readiness: reap until nothing comes. */
static int drain(void) {
    int all = 0, got;
    while ((got = ring_reap(r, done + all, 64 - all)) > 0) all += got;
    return got < 0 ? got : all;
}

/* Readiness may be spurious; what counts is that everything comes while the host only reaps when it is woken. An edge
 * that was seen already (`woken`) doesn't come again. */
static int collect(int wanted, int woken) {
    int all = 0;
    uint64_t deadline = now_ms() + 5000;
    while (all < wanted && now_ms() < deadline) {
        if (!woken && !wakes(1000)) break;
        woken = 0;
        int got = drain();
        if (got < 0) return got;
        all += got;
    }
    return all;
}

static void nops(int count) {
    for (int i = 0; i < count; i++) {
        ring_op_t op = {0};
        op.opcode = IOE_OPCODE_NOP;
        op.user_data = (uint64_t)i;
        NEED(ring_queue(r, &op, 1) == 1, "nop");
    }
}

static void *wake_later(void *ring) {
    struct timespec pause = {0, 50 * 1000000};
    nanosleep(&pause, NULL);
    return (void *)(intptr_t)ring_wake(ring);
}

static void *write_later(void *fd) {
    struct timespec pause = {0, 30 * 1000000};
    nanosleep(&pause, NULL);
    return (void *)(intptr_t)write(*(int *)fd, "x", 1);
}

static void leftovers(const char *mode) {
    drain();
    nops(10);
    CHECK(ring_submit(r) >= 0, "%s: ten operations go", mode);
    CHECK(wakes(2000), "%s: the descriptor is readable", mode);
    int got = 0;
    while (got < 4) {
        int n = ring_reap(r, done, 4 - got);
        if (n <= 0 && !wakes(1000)) break;
        got += n > 0 ? n : 0;
    }
    EQUAL(got, 4, "four of ten are reaped");
    CHECK(wakes(1000), "%s: six left behind signal again", mode);
    EQUAL(collect(6, 1), 6, "and are there");

    nops(3);
    CHECK(wakes(1000), "%s: what is queued and not submitted signals, since a reap would get on with it", mode);
    EQUAL(collect(3, 1), 3, "the next reap sends it");

    nops(1);
    int first = drain();
    EQUAL(first + (first < 1 ? collect(1, 0) : 0), 1, "a reap sends what was queued elsewhere");
}

static void from_outside(const char *mode) {
    pthread_t thread;
    void *result;
    drain();
    while (wakes(0)) drain();
    NEED(!pthread_create(&thread, NULL, wake_later, r), "a thread");
    CHECK(wakes(3000), "%s: ring_wake from another thread wakes the host", mode);
    pthread_join(thread, &result);
    EQUAL((intptr_t)result, IOE_OK, "ring_wake");
    EQUAL(drain(), 0, "it delivers nothing");

    int pipes[2];
    char byte;
    NEED(!pipe2(pipes, O_CLOEXEC), "a pipe");
    ring_op_t op = {0};
    op.opcode = IOE_OPCODE_POLL;
    op.flags = IOE_OP_RAW_FD | IOE_OP_MULTISHOT;
    op.slot_or_fd = pipes[0];
    op.events = POLLIN;
    op.user_data = 9;
    EQUAL(ring_queue(r, &op, 1), 1, "a poll of many shots");
    CHECK(ring_submit(r) >= 0, "goes");
    for (int i = 0; i < 5; i++) {
        NEED(!pthread_create(&thread, NULL, write_later, &pipes[1]), "a thread");
        EQUAL(collect(1, 0), 1, "an event from outside wakes the host and is there");
        pthread_join(thread, NULL);
        NEED(read(pipes[0], &byte, 1) == 1, "the byte");
    }
    CHECK(ring_cancel(r, 9) >= 0, "cancel");
    EQUAL(collect(1, 0), 1, "its last completion");
    close(pipes[0]);
    close(pipes[1]);
}

static void timers_and_files(const char *mode) {
    drain();
    NEED(ring_timeout(r, 30000, 1) == 1 && ring_submit(r) >= 0, "a timer");
    EQUAL(collect(1, 0), 1, "a timer wakes the host");
    ioe_buffer_t buffer;
    NEED(ring_buffer_acquire(r, &buffer) == IOE_OK, "a buffer");
    int fd = test_file(test_path("file"), 64 * KIB, 2), slot = ring_file_set(r, IOE_SLOT_ANY, fd);
    NEED(slot >= 0, "a slot");
    int lost = 0;
    for (int round = 0; round < 50 && !lost; round++) {
        for (int i = 0; i < 8; i++) NEED(ring_read(r, slot, buffer.index, 0, 64 * KIB, 0, 0, 3) == 1, "read");
        NEED(ring_fsync(r, slot, 1, 0, 4) == 1 && ring_submit(r) >= 0, "sync");
        lost = collect(9, 0) != 9;
    }
    CHECK(!lost, "%s: fifty rounds of reads and a sync, none stranded", mode);
    ring_buffer_release(r, buffer.index);
    ring_file_clear(r, slot);
    close(fd);
}

static void one_mode(uint32_t flags, const char *name, int edge) {
    ring_options_t o = test_ring_options();
    char mode[128];
    snprintf(mode, sizeof mode, "%s, %s", name, edge ? "edge" : "level");
    o.flags_wanted = flags;
    if (flags & IOE_RING_CQSIZE) o.cq_entries = 1024;
    r = test_ring(&o);
    watched = ring_fd(r);
    CHECK(watched >= 0, "%s: a descriptor", mode);
    EQUAL(ring_fd(r), watched, "the same at every call");
    struct epoll_event event = {EPOLLIN | (edge ? EPOLLET : 0), {.fd = watched}};
    epoll = epoll_create1(EPOLL_CLOEXEC);
    NEED(epoll >= 0 && !epoll_ctl(epoll, EPOLL_CTL_ADD, watched, &event), "an epoll");
    leftovers(mode);
    from_outside(mode);
    timers_and_files(mode);
    drain();
    EQUAL(ring_close(r), IOE_OK, "close");
    close(epoll);
}

int main(void) {
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++)
        for (int edge = 0; edge < 2; edge++) one_mode(modes[i].flags, modes[i].name, edge);

    ring_options_t o = test_ring_options();
    o.flags = IOE_RING_IOPOLL;
    if (ring_open(&o, &r) == IOE_OK) {
        EQUAL(ring_fd(r), IOE_E_UNSUPPORTED, "an IOPOLL ring has no descriptor");
        EQUAL(ring_wake(r), IOE_E_UNSUPPORTED, "nor a wake");
        EQUAL(ring_timeout(r, 1000, 1), IOE_E_UNSUPPORTED, "nor timers");
        EQUAL(ring_close(r), IOE_OK, "close");
    } else {
        CHECK(strstr(ioe_last_error(), "IOPOLL"), "IOPOLL can't be had here: %s", ioe_last_error());
    }
    return test_finish();
}

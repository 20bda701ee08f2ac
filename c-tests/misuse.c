/* Misuse: every function with NULL, closed, never opened, foreign handles and absurd arguments; from another thread;
 * in a child after fork. An error each time, never a crash, and out-parameters stay as they were. */
#include "test.h"

static char byte_room[64];
static size_t room = sizeof byte_room;
static engine_view_t view;
static ring_completion_t completion;
static wal_event_t event;
static ioe_buffer_t buffer;
static uint64_t number = 77;
static char text[64];
static const ring_op_t nop = {.opcode = IOE_OPCODE_NOP};

static int sized_ring_info(void *h) {
    ring_info_t info = {0};
    info.size = sizeof info;
    return ring_info(h, &info);
}
static int f_ring_close(void *h) { return ring_close(h); }
static int f_ring_fd(void *h) { return ring_fd(h); }
static int f_ring_wait(void *h) { return ring_wait(h, 1, 0); }
static int f_ring_wake(void *h) { return ring_wake(h); }
static int f_ring_file_set(void *h) { return ring_file_set(h, IOE_SLOT_ANY, 0); }
static int f_ring_file_clear(void *h) { return ring_file_clear(h, 0); }
static int f_ring_buffer_acquire(void *h) { return ring_buffer_acquire(h, &buffer); }
static int f_ring_buffer_release(void *h) { return ring_buffer_release(h, 0); }
static int f_ring_buffer_replace(void *h) { return ring_buffer_replace(h, 0, byte_room, sizeof byte_room, 0); }
static int f_ring_queue(void *h) { return ring_queue(h, &nop, 1); }
static int f_ring_read(void *h) { return ring_read(h, 0, 0, 0, 1, 0, 0, 0); }
static int f_ring_write(void *h) { return ring_write(h, 0, 0, 0, 1, 0, 0, 0); }
static int f_ring_fsync(void *h) { return ring_fsync(h, 0, 0, 0, 0); }
static int f_ring_timeout(void *h) { return ring_timeout(h, 1, 0); }
static int f_ring_cancel(void *h) { return ring_cancel(h, 12345); }
static int f_ring_submit(void *h) { return ring_submit(h); }
static int f_ring_reap(void *h) { return ring_reap(h, &completion, 1); }

static int f_wal_close(void *h) { return wal_close(h); }
static int f_wal_append(void *h) { return wal_append(h, "x", 1, 0, &number); }
static int f_wal_submit(void *h) { return wal_submit(h); }
static int f_wal_reap(void *h) { return wal_reap(h, &event, 1, 0, 0); }
static int f_wal_fd(void *h) { return wal_fd(h); }
static int f_wal_release(void *h) { return wal_release(h, 0); }

static int f_engine_close(void *h) { return engine_close(h); }
static int f_engine_put(void *h) { return engine_put(h, "k", 1, "v", 1); }
static int f_engine_get(void *h) { return engine_get(h, "k", 1, byte_room, &room); }
static int f_engine_get_view(void *h) { return engine_get_view(h, "k", 1, &view); }
static int f_engine_delete(void *h) { return engine_delete(h, "k", 1); }
static int f_engine_batch_put(void *h) { return engine_batch_put(h, "k", 1, "v", 1); }
static int f_engine_flush_batch(void *h) { return engine_flush_batch(h); }
static int f_engine_durable_sequence(void *h) { return engine_durable_sequence(h, &number); }
static int f_engine_property(void *h) { return engine_property(h, "stats", byte_room, &room); }
static int f_engine_write(void *h) {
    engine_writebatch_t *b = NULL;
    if (engine_writebatch_create(&b)) return 1;
    int code = engine_write(h, b, IOE_DURABLE);
    engine_writebatch_destroy(b);
    return code;
}

static int f_writebatch_put(void *h) { return engine_writebatch_put(h, "k", 1, "v", 1); }
static int f_writebatch_delete(void *h) { return engine_writebatch_delete(h, "k", 1); }
static int f_writebatch_clear(void *h) { return engine_writebatch_clear(h); }
static int f_writebatch_count(void *h) { return engine_writebatch_count(h); }
static int f_writebatch_destroy(void *h) { return engine_writebatch_destroy(h); }

enum kind { RING, WAL, ENGINE, BATCH, KINDS };
static const struct call { const char *name; enum kind kind; int (*run)(void *handle); int closes, any_thread; } calls[] = {
    {"ring_info", RING, sized_ring_info, 0, 0},
    {"ring_fd", RING, f_ring_fd, 0, 0},
    {"ring_wait", RING, f_ring_wait, 0, 0},
    {"ring_wake", RING, f_ring_wake, 0, 1},
    {"ring_file_set", RING, f_ring_file_set, 0, 0},
    {"ring_file_clear", RING, f_ring_file_clear, 0, 0},
    {"ring_buffer_acquire", RING, f_ring_buffer_acquire, 0, 0},
    {"ring_buffer_release", RING, f_ring_buffer_release, 0, 0},
    {"ring_buffer_replace", RING, f_ring_buffer_replace, 0, 0},
    {"ring_queue", RING, f_ring_queue, 0, 0},
    {"ring_read", RING, f_ring_read, 0, 0},
    {"ring_write", RING, f_ring_write, 0, 0},
    {"ring_fsync", RING, f_ring_fsync, 0, 0},
    {"ring_timeout", RING, f_ring_timeout, 0, 0},
    {"ring_cancel", RING, f_ring_cancel, 0, 0},
    {"ring_submit", RING, f_ring_submit, 0, 0},
    {"ring_reap", RING, f_ring_reap, 0, 0},
    {"ring_close", RING, f_ring_close, 1, 0},
    {"wal_append", WAL, f_wal_append, 0, 0},
    {"wal_submit", WAL, f_wal_submit, 0, 0},
    {"wal_reap", WAL, f_wal_reap, 0, 0},
    {"wal_fd", WAL, f_wal_fd, 0, 0},
    {"wal_release", WAL, f_wal_release, 0, 0},
    {"wal_close", WAL, f_wal_close, 1, 0},
    {"engine_put", ENGINE, f_engine_put, 0, 1},
    {"engine_get", ENGINE, f_engine_get, 0, 1},
    {"engine_get_view", ENGINE, f_engine_get_view, 0, 1},
    {"engine_delete", ENGINE, f_engine_delete, 0, 1},
    {"engine_write", ENGINE, f_engine_write, 0, 1},
    {"engine_batch_put", ENGINE, f_engine_batch_put, 0, 1},
    {"engine_flush_batch", ENGINE, f_engine_flush_batch, 0, 1},
    {"engine_durable_sequence", ENGINE, f_engine_durable_sequence, 0, 1},
    {"engine_property", ENGINE, f_engine_property, 0, 1},
    {"engine_close", ENGINE, f_engine_close, 1, 1},
    {"engine_writebatch_put", BATCH, f_writebatch_put, 0, 1},
    {"engine_writebatch_delete", BATCH, f_writebatch_delete, 0, 1},
    {"engine_writebatch_clear", BATCH, f_writebatch_clear, 0, 1},
    {"engine_writebatch_count", BATCH, f_writebatch_count, 0, 1},
    {"engine_writebatch_destroy", BATCH, f_writebatch_destroy, 1, 1},
};
enum { CALLS = sizeof calls / sizeof *calls };

static void *open_one(enum kind kind, const char *name) {
    ring_options_t ro = test_ring_options();
    wal_options_t wo = test_wal_options();
    wal_t *w = NULL;
    engine_writebatch_t *b = NULL;
    switch (kind) {
    case RING: return test_ring(&ro);
    case WAL: NEED(wal_open(test_path(name), &wo, &w) == IOE_OK, "wal_open: %s", ioe_last_error()); return w;
    case ENGINE: return test_engine(test_path(name), NULL);
    default: NEED(engine_writebatch_create(&b) == IOE_OK, "create"); return b;
    }
}

static int close_one(enum kind kind, void *handle) {
    switch (kind) {
    case RING: return ring_close(handle);
    case WAL: return wal_close(handle);
    case ENGINE: return engine_close(handle);
    default: return engine_writebatch_destroy(handle);
    }
}

static void without_a_handle(void) {
    int local = 0;
    void *strange[] = {(void *)1,           (void *)0x1234,   (void *)UINTPTR_MAX, (void *)(UINTPTR_MAX / 2),
                       (void *)0x7fffffff, (void *)(uintptr_t)&local, (void *)(uintptr_t)text};
    for (int i = 0; i < CALLS; i++) {
        int code = calls[i].run(NULL);
        CHECK(code == (calls[i].closes ? 0 : -EINVAL), "%s(NULL): %d", calls[i].name, code);
        int stale = 0, count = sizeof strange / sizeof *strange;
        for (int j = 0; j < count; j++) stale += calls[i].run(strange[j]) == IOE_E_STALE;
        CHECK(stale == count, "%s of %d handles that were never opened: stale", calls[i].name, stale);
    }
}

static void closed_and_foreign(void) {
    void *closed[KINDS], *alive[KINDS];
    for (enum kind k = 0; k < KINDS; k++) {
        char name[32];
        snprintf(name, sizeof name, "closed-%d", k);
        closed[k] = open_one(k, name);
        NEED(close_one(k, closed[k]) == IOE_OK, "close: %s", ioe_last_error());
        snprintf(name, sizeof name, "alive-%d", k);
        alive[k] = open_one(k, name);
    }
    for (int i = 0; i < CALLS; i++) {
        EQUAL(calls[i].run(closed[calls[i].kind]), IOE_E_STALE, calls[i].name);
        for (enum kind k = 0; k < KINDS; k++) {
            if (k == calls[i].kind) continue;
            int code = calls[i].run(alive[k]);
            CHECK(code == IOE_E_STALE || code == -EINVAL, "%s with a handle of another kind: %d", calls[i].name, code);
        }
    }
    CHECK(number == 77 && room == sizeof byte_room && !view.data && !buffer.data, "out-parameters are untouched");
    for (enum kind k = 0; k < KINDS; k++) EQUAL(close_one(k, alive[k]), IOE_OK, "the handles all that was done to are whole");
}

struct elsewhere { void *handles[KINDS]; int wrong; };

static void *from_another_thread(void *argument) {
    struct elsewhere *state = argument;
    for (int i = 0; i < CALLS; i++) {
        if (calls[i].any_thread) continue;
        int code = calls[i].run(state->handles[calls[i].kind]);
        if (code != IOE_E_WRONG_THREAD) state->wrong++, printf("%s elsewhere: %d\n", calls[i].name, code);
    }
    return NULL;
}

static void threads(void) {
    struct elsewhere state = {{0}, 0};
    pthread_t thread;
    for (enum kind k = RING; k <= WAL; k++) state.handles[k] = open_one(k, "bound");
    CHECK(ring_submit(state.handles[RING]) >= 0 && wal_submit(state.handles[WAL]) >= 0, "a submit binds to this thread");
    NEED(!pthread_create(&thread, NULL, from_another_thread, &state), "a thread");
    pthread_join(thread, NULL);
    EQUAL(state.wrong, 0, "every bound function says so on another thread");
    EQUAL(ring_close(state.handles[RING]), IOE_OK, "the owner closes");
    EQUAL(wal_close(state.handles[WAL]), IOE_OK, "the owner closes");
}

static void forked(void) {
    void *handles[KINDS];
    for (enum kind k = 0; k < KINDS; k++) handles[k] = open_one(k, k == WAL ? "fork-wal" : "fork-store");
    EQUAL(engine_put(handles[ENGINE], "before", 6, "x", 1), IOE_OK, "put");
    CHECK(ring_submit(handles[RING]) >= 0 && wal_append(handles[WAL], "x", 1, 0, NULL) >= 0, "work begun");
    fflush(stdout);
    pid_t pid = fork();
    NEED(pid >= 0, "a child");
    if (!pid) {
        int wrong = 0;
        for (int i = 0; i < CALLS; i++) {
            int code = calls[i].run(handles[calls[i].kind]);
            /* A batch is memory of the process alone: the child may have its copy, or be told. */
            if (code != IOE_E_FORKED && calls[i].kind != BATCH) wrong++, printf("%s in the child: %d\n", calls[i].name, code);
        }
        engine_t *own = test_engine(test_path("childs"), NULL);
        if (engine_put(own, "k", 1, "v", 1) || engine_close(own)) wrong++;
        fflush(stdout);
        _exit(wrong ? 1 : 0);
    }
    int status;
    NEED(waitpid(pid, &status, 0) == pid, "the child's end");
    CHECK(WIFEXITED(status) && !WEXITSTATUS(status), "in a child every call says so, closing too, and it may open its own: %#x", status);
    EQUAL(engine_put(handles[ENGINE], "after", 5, "x", 1), IOE_OK, "the parent's store works on");
    EQUAL(wal_reap(handles[WAL], &event, 1, 1, 10000), 1, "and its log");
    EQUAL(ring_timeout(handles[RING], 1000, 1), 1, "and its ring");
    EQUAL(test_gather(handles[RING], &completion, 1), 1, "which completes");
    for (enum kind k = 0; k < KINDS; k++) EQUAL(close_one(k, handles[k]), IOE_OK, "the parent closes");
}

static void absurd_engine(void) {
    engine_t *e = open_one(ENGINE, "absurd"), *out = (engine_t *)9;
    EQUAL(engine_put(e, NULL, 1, "v", 1), -EINVAL, "a key of NULL with a length");
    EQUAL(engine_put(e, "k", 1, NULL, 1), -EINVAL, "a value of NULL with a length");
    EQUAL(engine_put(e, "k", SIZE_MAX, "v", 1), IOE_E_TOO_LARGE, "a key of all memory");
    EQUAL(engine_put(e, "k", 1, "v", SIZE_MAX), IOE_E_TOO_LARGE, "a value of all memory");
    EQUAL(engine_get(e, "k", 1, byte_room, NULL), -EINVAL, "no length");
    room = SIZE_MAX;
    int code = engine_get(e, "k", 1, byte_room, &room);
    CHECK(code == IOE_E_NOT_FOUND || code == -EINVAL, "a room of all memory: %d", code);
    room = sizeof byte_room;
    EQUAL(engine_get_view(e, "k", 1, NULL), -EINVAL, "no view");
    EQUAL(engine_property(e, NULL, byte_room, &room), -EINVAL, "no name");
    EQUAL(engine_durable_sequence(e, NULL), -EINVAL, "no out-parameter");
    EQUAL(engine_write(e, NULL, IOE_DURABLE), -EINVAL, "no batch");
    EQUAL(engine_writebatch_create(NULL), -EINVAL, "no out-parameter");
    EQUAL(engine_close(e), IOE_OK, "close");
    EQUAL(engine_open(NULL, NULL, &out), -EINVAL, "no folder");
    EQUAL(engine_open(test_path("x"), NULL, NULL), -EINVAL, "no out-parameter");
    EQUAL(engine_options_init(NULL, sizeof(engine_options_t)), -EINVAL, "no options");
    union { engine_options_t o; char bytes[sizeof(engine_options_t) + 64]; } newer;
    memset(&newer, 0, sizeof newer);
    newer.o = test_engine_options();
    newer.o.size = sizeof newer;
    newer.bytes[sizeof newer - 1] = 1;
    EQUAL(engine_open(test_path("x"), &newer.o, &out), -EINVAL, "a field that this library doesn't know, set");
    newer.bytes[sizeof newer - 1] = 0;
    newer.o.size = 3;
    EQUAL(engine_open(test_path("x"), &newer.o, &out), -EINVAL, "options too small to hold their size");
    engine_options_t o = test_engine_options();
    o.driver = 99;
    EQUAL(engine_open(test_path("x"), &o, &out), -EINVAL, "an unknown driver");
    o = test_engine_options();
    o.sync = -4;
    EQUAL(engine_open(test_path("x"), &o, &out), -EINVAL, "an unknown way to sync");
    o = test_engine_options();
    o.durability = 7;
    EQUAL(engine_open(test_path("x"), &o, &out), -EINVAL, "an unknown durability");
    CHECK(out == (engine_t *)9, "the out-parameter is untouched by all of it");
    struct stat info;
    CHECK(stat(test_path("x"), &info) < 0, "and no folder was made");
}

static void absurd_ring_and_log(void) {
    ring_t *r = open_one(RING, ""), *out = (ring_t *)9;
    wal_t *w = open_one(WAL, "absurd-wal"), *wal_out = (wal_t *)9;
    ring_op_t op = nop;
    EQUAL(ring_reap(r, NULL, 1), -EINVAL, "nowhere to reap to");
    EQUAL(ring_reap(r, &completion, -1), -EINVAL, "a negative number of completions");
    EQUAL(ring_queue(r, NULL, 1), -EINVAL, "no operations");
    CHECK(ring_queue(r, &op, SIZE_MAX) < 0, "operations without end");
    CHECK(ring_wait(r, -1, 0) == -EINVAL, "a wait for less than none");
    op.flags = 0xFFFF;
    EQUAL(ring_queue(r, &op, 1), -EINVAL, "unknown flags of an operation");
    op.flags = 0;
    for (int i = 20; i < 65536; i += 997) {
        op.opcode = (uint16_t)i;
        NEED(ring_queue(r, &op, 1) < 0, "opcode %d is unknown", i);
    }
    CHECK(1, "unknown opcodes are refused");
    EQUAL(ring_info(r, NULL), -EINVAL, "no info");
    EQUAL(ring_buffer_acquire(r, NULL), -EINVAL, "no buffer");
    EQUAL(ring_open(NULL, NULL), -EINVAL, "no out-parameter");
    ring_options_t o = test_ring_options();
    o.entries = UINT32_MAX;
    ring_t *bounded = NULL;
    int code = ring_open(&o, &bounded);
    if (code == IOE_OK) {
        ring_info_t info = {0};
        info.size = sizeof info;
        CHECK(!ring_info(bounded, &info) && info.entries <= 65536, "entries without end come out as %u", info.entries);
        EQUAL(ring_close(bounded), IOE_OK, "close");
    } else {
        CHECK(strlen(ioe_last_error()) > 10, "entries without end are refused: %s", ioe_last_error());
    }
    o = test_ring_options();
    o.file_slots = UINT32_MAX;
    CHECK(ring_open(&o, &out) < 0, "slots without end: %s", ioe_last_error());
    CHECK(out == (ring_t *)9, "the out-parameter is untouched");
    EQUAL(wal_append(w, NULL, 1, 0, NULL), -EINVAL, "a record of NULL with a length");
    CHECK(wal_append(w, "x", SIZE_MAX, 0, NULL) == IOE_E_TOO_LARGE, "a record of all memory");
    EQUAL(wal_reap(w, NULL, 1, 0, 0), -EINVAL, "nowhere to reap to");
    EQUAL(wal_reap(w, &event, -1, 0, 0), -EINVAL, "a negative number of events");
    EQUAL(wal_open(NULL, NULL, &wal_out), -EINVAL, "no folder");
    CHECK(wal_recover(NULL, NULL, NULL, NULL, NULL) == -EINVAL, "nothing to recover");
    CHECK(wal_release(w, UINT64_MAX) <= 0, "a release of all that will ever be");
    EQUAL(ring_close(r), IOE_OK, "close");
    EQUAL(wal_close(w), IOE_OK, "close");
    CHECK(strlen(ioe_strerror(-10001)) > 3 && strlen(ioe_strerror(INT32_MIN)) > 3 && strlen(ioe_strerror(12345)) > 3,
          "every code has a sentence");
    ioe_set_log(NULL, NULL, 0);
}

/* A close while other threads call: it waits for them, and they are told. */
static void *call_on(void *handle) {
    for (;;) {
        int code = engine_put(handle, "k", 1, "v", 1);
        if (code != IOE_OK) return (void *)(intptr_t)code;
    }
}

static void closed_under_way(void) {
    for (int round = 0; round < 10; round++) {
        pthread_t threads[3];
        void *e = open_one(ENGINE, "under-way"), *result;
        for (int i = 0; i < 3; i++) NEED(!pthread_create(&threads[i], NULL, call_on, e), "a thread");
        struct timespec pause = {0, round * 1000000};
        nanosleep(&pause, NULL);
        NEED(engine_close(e) == IOE_OK, "close while calls run: %s", ioe_last_error());
        for (int i = 0; i < 3; i++) {
            pthread_join(threads[i], &result);
            intptr_t code = (intptr_t)result;
            NEED(code == IOE_E_STALE || code == IOE_E_CLOSED, "a call that came too late: %d", (int)code);
        }
    }
    CHECK(1, "a close while calls run waits for them, and later ones are told");
}

int main(void) {
    without_a_handle();
    closed_and_foreign();
    threads();
    forked();
    absurd_engine();
    absurd_ring_and_log();
    closed_under_way();
    return test_finish();
}

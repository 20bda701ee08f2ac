/* A log on its own: append, submit, reap in order, with every way of making a record durable; reopened, everything
 * acknowledged is there; released records go. */
#include "test.h"

static int next_length(int i) { return i % 7 == 0 ? 0 : i % 11 == 0 ? 70000 : (i * 37) % 900; }

struct replay { uint64_t last; int count, wrong; };

static int check_record(void *user_data, uint64_t sequence, const void *data, size_t len) {
    struct replay *state = user_data;
    int i = (int)sequence;
    if (sequence != state->last + 1 || len != (size_t)next_length(i) || !test_filled(data, len, (unsigned)i)) state->wrong++;
    state->last = sequence;
    state->count++;
    return 0;
}

static int append(wal_t *w, int i, uint64_t *sequence) {
    size_t len = (size_t)next_length(i);
    char *data = malloc(len ? len : 1);
    test_fill(data, len, (unsigned)i);
    int code = wal_append(w, len ? data : NULL, len, 1000 + (uint64_t)i, sequence);
    memset(data, 0x55, len); /* it was copied */
    free(data);
    return code;
}

static void one_way(uint32_t sync, const char *name, uint64_t checkpoint_every) {
    char folder[64];
    snprintf(folder, sizeof folder, "log-%s-%d", name, (int)checkpoint_every);
    char *dir = test_path(folder);
    wal_options_t o = test_wal_options();
    o.sync = sync;
    o.checkpoint_every = checkpoint_every;
    o.segment_bytes = 256 * KIB;
    wal_t *w = NULL;
    int code = wal_open(dir, &o, &w);
    NEED(code == IOE_OK, "%s: wal_open: %s", name, ioe_last_error());
    wal_event_t events[64];
    int next = 1, acked = 0, in_order = 1, whole = 1;
    while (acked < 300) {
        for (int i = 0; i < 16 && next <= 300; i++, next++) {
            uint64_t sequence = 0;
            code = append(w, next, &sequence);
            if (code == IOE_E_STALLED) break;
            NEED(code >= 0, "%s: append %d: %d, %s", name, next, code, ioe_last_error());
            NEED(sequence == (uint64_t)next, "%s: append %d has sequence %d", name, next, (int)sequence);
        }
        NEED(wal_submit(w) >= 0, "submit: %s", ioe_last_error());
        int got = wal_reap(w, events, 64, 1, 10000);
        NEED(got > 0, "%s: reap: %d, %s", name, got, ioe_last_error());
        for (int i = 0; i < got; i++) {
            acked++;
            if (events[i].sequence != (uint64_t)acked || events[i].user_data != 1000 + (uint64_t)acked) in_order = 0;
            if (events[i].result < 0) whole = 0;
        }
    }
    CHECK(in_order, "%s: acknowledged strictly in order", name);
    CHECK(whole, "%s: none failed", name);
    EQUAL(wal_reap(w, events, 64, 0, 0), 0, "nothing more comes");
    EQUAL(wal_close(w), IOE_OK, "close");

    struct replay state = {0, 0, 0};
    wal_recovery_t stats = {0};
    stats.size = sizeof stats;
    EQUAL(wal_recover(dir, NULL, check_record, &state, &stats), IOE_OK, "replayed without opening");
    EQUAL(state.count, 300, "every record");
    EQUAL(state.wrong, 0, "each with its bytes and its number");
    EQUAL(stats.records, 300, "the statistics say so");

    EQUAL(wal_open(dir, &o, &w), IOE_OK, "opened again");
    uint64_t sequence = 0;
    CHECK(append(w, 301, &sequence) >= 0 && sequence == 301, "%s: numbers go on", name);
    EQUAL(wal_reap(w, events, 64, 1, 10000), 1, "a reap submits and waits");
    EQUAL(events[0].sequence, 301, "it is durable");
    EQUAL(wal_release(w, 301), IOE_OK, "all are released");
    EQUAL(wal_close(w), IOE_OK, "close");
    memset(&state, 0, sizeof state);
    EQUAL(wal_recover(dir, NULL, check_record, &state, &stats), IOE_OK, "replayed");
    CHECK(state.count <= 301, "released records may go, %d are left", state.count);
}

static void watched(void) {
    char *dir = test_path("watched");
    wal_options_t o = test_wal_options();
    wal_t *w = NULL;
    NEED(wal_open(dir, &o, &w) == IOE_OK, "wal_open: %s", ioe_last_error());
    int fd = wal_fd(w), acked = 0;
    CHECK(fd >= 0, "a descriptor to watch");
    for (int i = 1; i <= 40; i++) NEED(append(w, i, NULL) >= 0, "append %d", i);
    CHECK(wal_submit(w) >= 0, "submit");
    uint64_t deadline = now_ms() + 10000;
    while (acked < 40 && now_ms() < deadline) {
        struct pollfd p = {fd, POLLIN, 0};
        wal_event_t events[7];
        if (poll(&p, 1, 1000) != 1) break;
        int got;
        while ((got = wal_reap(w, events, 7, 0, 0)) > 0) acked += got;
    }
    EQUAL(acked, 40, "a host that only polls gets every acknowledgement");
    EQUAL(wal_close(w), IOE_OK, "close");
}

static void shared_ring(void) {
    ring_options_t ro = test_ring_options();
    ring_t *r = test_ring(&ro);
    wal_options_t o = test_wal_options();
    o.ring = r;
    wal_t *w = NULL;
    NEED(wal_open(test_path("shared"), &o, &w) == IOE_OK, "a log on a ring of ours: %s", ioe_last_error());
    EQUAL(wal_fd(w), ring_fd(r), "one descriptor for both");
    EQUAL(ring_close(r), IOE_E_BUSY, "a ring with a log on it isn't closed");
    wal_event_t events[8];
    ring_completion_t done[8];
    NEED(append(w, 1, NULL) >= 0 && ring_timeout(r, 10000, 5) == 1, "a record and a timer");
    int ready = ring_wait(r, 2, 10000);
    EQUAL(ready, 2, "one wait for both");
    EQUAL(wal_reap(w, events, 8, 0, 0), 1, "the log's is handed out by the log");
    EQUAL(ring_reap(r, done, 8), 1, "the ring's by the ring");
    EQUAL(wal_close(w), IOE_OK, "close the log");
    EQUAL(ring_close(r), IOE_OK, "close the ring");
}

int main(void) {
    one_way(IOE_SYNC_AUTO, "auto", 0);
    one_way(IOE_SYNC_LINKED, "linked", 1);
    one_way(IOE_SYNC_DSYNC, "dsync", 64 * KIB);
    one_way(IOE_SYNC_SYSCALL, "syscall", 0);
    watched();
    shared_ring();
    wal_t *w = NULL, *second = NULL;
    wal_options_t o = test_wal_options();
    char *dir = test_path("twice");
    NEED(wal_open(dir, &o, &w) == IOE_OK, "a log");
    EQUAL(wal_open(dir, &o, &second), IOE_E_BUSY, "open twice is busy");
    EQUAL(wal_close(w), IOE_OK, "close");
    return test_finish();
}

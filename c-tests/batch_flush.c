/* Batched puts: visible at once, gathered until 128 entries, 256 KiB or M milliseconds; a flush returns when all
 * before it is durable. What was flushed survives a kill. */
#include "test.h"

static int put(engine_t *e, int i) {
    char key[32], value[128];
    int key_len = snprintf(key, sizeof key, "key %06d", i), len = snprintf(value, sizeof value, "value of %d", i);
    return engine_batch_put(e, key, (size_t)key_len, value, (size_t)len);
}

static int has(engine_t *e, int i) {
    char key[32], expected[128], value[128];
    size_t len = sizeof value;
    int key_len = snprintf(key, sizeof key, "key %06d", i), want = snprintf(expected, sizeof expected, "value of %d", i);
    return engine_get(e, key, (size_t)key_len, value, &len) == IOE_OK && len == (size_t)want && !memcmp(value, expected, len);
}

/* A child puts 1,000, flushes, says so, and is killed while it puts more. */
static void killed_after_flush(char *dir, engine_options_t *o) {
    int pipes[2];
    NEED(!pipe2(pipes, O_CLOEXEC), "a pipe");
    pid_t child = fork();
    NEED(child >= 0, "a child");
    if (!child) {
        engine_t *e = test_engine(dir, o);
        for (int i = 0; i < 1000; i++)
            if (put(e, i) < 0) _exit(1);
        if (engine_flush_batch(e) < 0 || write(pipes[1], "x", 1) != 1) _exit(2);
        for (int i = 1000;; i++) put(e, i);
    }
    char byte;
    close(pipes[1]);
    EQUAL(read(pipes[0], &byte, 1), 1, "the child has flushed");
    kill(child, SIGKILL);
    int status;
    NEED(waitpid(child, &status, 0) == child && WIFSIGNALED(status), "and is killed");
    close(pipes[0]);
    engine_t *e = test_engine(dir, o);
    int there = 0;
    for (int i = 0; i < 1000; i++) there += has(e, i);
    EQUAL(there, 1000, "everything before the flush is there");
    EQUAL(engine_close(e), IOE_OK, "close");
}

int main(void) {
    engine_options_t o = test_engine_options();
    o.batch_max_entries = 128;
    o.batch_max_bytes = 256 * KIB;
    o.batch_max_delay_ms = 20;
    killed_after_flush(test_path("killed"), &o);

    char *dir = test_path("store");
    engine_t *e = test_engine(dir, &o);
    uint64_t before = 0, after = 0;
    EQUAL(engine_durable_sequence(e, &before), IOE_OK, "engine_durable_sequence");
    CHECK(put(e, 1) >= 0, "a batched put");
    CHECK(has(e, 1), "is visible at once");
    uint64_t deadline = now_ms() + 10000;
    do NEED(engine_durable_sequence(e, &after) == IOE_OK, "durable"); while (after == before && now_ms() < deadline);
    CHECK(after > before, "and durable by itself when its delay is over");

    for (int i = 0; i < 5000; i++) NEED(put(e, i) >= 0, "put %d: %s", i, ioe_last_error());
    int there = 0;
    for (int i = 0; i < 5000; i++) there += has(e, i);
    EQUAL(there, 5000, "5,000 are visible before any flush");
    EQUAL(engine_flush_batch(e), IOE_OK, "flush");
    EQUAL(engine_durable_sequence(e, &after), IOE_OK, "engine_durable_sequence");
    CHECK(after >= before + 5001, "everything before the flush is durable, %llu", (unsigned long long)after);
    EQUAL(engine_flush_batch(e), IOE_OK, "a flush of nothing");
    CHECK(put(e, 5000) >= 0, "one more");
    EQUAL(engine_close(e), IOE_OK, "close makes it durable");
    e = test_engine(dir, &o);
    there = 0;
    for (int i = 0; i <= 5000; i++) there += has(e, i);
    EQUAL(there, 5001, "all are there when it is opened again");
    EQUAL(engine_close(e), IOE_OK, "close");

    char *large = malloc(200 * KIB);
    test_fill(large, 200 * KIB, 1);
    e = test_engine(dir, &o);
    for (int i = 0; i < 10; i++) {
        char key[16];
        int len = snprintf(key, sizeof key, "large %d", i);
        NEED(engine_batch_put(e, key, (size_t)len, large, 200 * KIB) >= 0, "a large one");
    }
    EQUAL(engine_flush_batch(e), IOE_OK, "batches of large values");
    size_t room = 200 * KIB;
    char *value = malloc(room);
    EQUAL(engine_get(e, "large 7", 7, value, &room), IOE_OK, "one of them");
    CHECK(room == 200 * KIB && !memcmp(value, large, room), "with its bytes");
    EQUAL(engine_close(e), IOE_OK, "close");
    free(large);
    free(value);
    return test_finish();
}

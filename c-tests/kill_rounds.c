/* Kill -9 in mid-work, again and again: several threads put durably and report each acknowledgement over a pipe; the
 * process is killed at a random moment; every acknowledged key must be there with its value, every key that is there
 * must be one that was put, and a batch is there whole or not at all. Usage: kill_rounds [rounds [seed]] */
#include "test.h"

enum { THREADS = 4, KEYS = 64 };

struct ack { uint32_t thread, key, version; };

static uint64_t random_state;

static uint32_t random_below(uint32_t bound) {
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 33) % bound;
}

/* Values differ in length, so that groups differ in size. */
static size_t make_value(char *value, uint32_t thread, uint32_t key, uint32_t version) {
    size_t len = 16 + (version * 131 + key * 17) % 3000;
    int head = snprintf(value, 64, "%u %u %u;", thread, key, version);
    test_fill(value + head, len > (size_t)head ? len - (size_t)head : 0, version + key);
    return len > (size_t)head ? len : (size_t)head;
}

static engine_t *store;
static int report;
static uint32_t versions[THREADS][KEYS];

static void put_one(uint32_t id, uint32_t key, uint32_t version, int batch) {
    char name[32], twin[32], value[4096];
    int len = snprintf(name, sizeof name, "k%u.%u", id, key), twin_len = snprintf(twin, sizeof twin, "t%u.%u", id, key);
    size_t value_len = make_value(value, id, key, version);
    engine_writebatch_t *b;
    int code = engine_writebatch_create(&b);
    if (batch) {
        /* A key and its twin always change together. */
        code = code ? code : engine_writebatch_put(b, name, (size_t)len, value, value_len);
        code = code ? code : engine_writebatch_put(b, twin, (size_t)twin_len, value, value_len);
        code = code ? code : engine_write(store, b, IOE_DURABLE);
    } else {
        code = code ? code : engine_put(store, name, (size_t)len, value, value_len);
    }
    engine_writebatch_destroy(b);
    struct ack ack = {id, key, version};
    if (code != IOE_OK || write(report, &ack, sizeof ack) != (ssize_t)sizeof ack) {
        fprintf(stderr, "put: %d, %s\n", code, ioe_last_error());
        _exit(3);
    }
}

static void *work(void *argument) {
    uint32_t id = (uint32_t)(uintptr_t)argument;
    for (uint32_t round = 1;; round++) {
        uint32_t key = (round * 7 + id) % KEYS;
        put_one(id, key, ++versions[id][key], key % 2);
    }
    return NULL;
}

static void child(const char *dir, int pipe) {
    engine_options_t o = test_engine_options();
    o.memtable_bytes = MIB;
    store = test_engine(dir, &o);
    report = pipe;
    pthread_t threads[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, work, (void *)i)) _exit(4);
    pthread_join(threads[0], NULL);
    _exit(5);
}

/* The version that the store has of a key; 0: none; -1: a value that nobody put there. */
static long version_of(engine_t *e, char kind, uint32_t id, uint32_t key) {
    char name[32], value[4096], expected[4096];
    int len = snprintf(name, sizeof name, "%c%u.%u", kind, id, key);
    size_t room = sizeof value - 1;
    int code = engine_get(e, name, (size_t)len, value, &room);
    if (code == IOE_E_NOT_FOUND) return 0;
    if (code != IOE_OK) return -1;
    value[room] = 0;
    unsigned got_id, got_key, version;
    if (sscanf(value, "%u %u %u;", &got_id, &got_key, &version) != 3 || got_id != id || got_key != key) return -1;
    size_t want = make_value(expected, id, key, version);
    return want == room && !memcmp(expected, value, room) ? (long)version : -1;
}

static uint32_t acked[THREADS][KEYS];

/* Compares the store with the acknowledgements; a version one beyond the acknowledged one was under way. */
static int compare(engine_t *e, int round, unsigned long seed) {
    int faults = 0;
    for (uint32_t id = 0; id < THREADS; id++)
        for (uint32_t key = 0; key < KEYS; key++) {
            long version = version_of(e, 'k', id, key), twin = key % 2 ? version_of(e, 't', id, key) : version;
            long low = acked[id][key], high = low + 1;
            if (version < low || version > high || twin != version) {
                printf("FAILED round %d, seed %lu: key %u of thread %u has version %ld, its twin %ld; %ld was acknowledged\n",
                       round, seed, key, id, version, twin, low);
                faults++;
            }
            acked[id][key] = versions[id][key] = version < 0 ? 0 : (uint32_t)version;
        }
    return faults;
}

static long one_round(const char *dir, int round, unsigned long seed, long *total) {
    int pipes[2], status;
    NEED(!pipe2(pipes, O_CLOEXEC), "a pipe");
    fcntl(pipes[1], F_SETPIPE_SZ, 1 << 20);
    pid_t pid = fork();
    NEED(pid >= 0, "a child");
    if (!pid) child(dir, pipes[1]);
    close(pipes[1]);
    /* Waits for the first acknowledgement, then for a random while. */
    struct pollfd ready = {pipes[0], POLLIN, 0};
    poll(&ready, 1, 30000);
    struct timespec pause = {0, (long)random_below(120) * 1000000};
    nanosleep(&pause, NULL);
    kill(pid, SIGKILL);
    struct ack ack;
    long count = 0;
    while (read(pipes[0], &ack, sizeof ack) == (ssize_t)sizeof ack) {
        if (ack.version > acked[ack.thread][ack.key]) acked[ack.thread][ack.key] = ack.version;
        count++;
    }
    close(pipes[0]);
    NEED(waitpid(pid, &status, 0) == pid, "the child's end");
    NEED(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "the child was killed and did not fail, status %#x", status);
    engine_t *e = test_engine(dir, NULL);
    int faults = compare(e, round, seed);
    NEED(engine_close(e) == IOE_OK, "close");
    *total += count;
    return faults;
}

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 200;
    unsigned long seed = argc > 2 ? strtoul(argv[2], NULL, 10) : (unsigned long)time(NULL);
    char *dir = NULL, name[32];
    long total = 0, faults = 0;
    random_state = seed;
    printf("seed %lu\n", seed);
    for (int round = 0; round < rounds; round++) {
        /* Until tables exist the log only grows: a new store now and then keeps recovery short. */
        if (round % 10 == 0) {
            if (dir) test_remove(dir);
            snprintf(name, sizeof name, "store-%d", round / 10);
            dir = test_path(name);
            memset(acked, 0, sizeof acked);
            memset(versions, 0, sizeof versions);
        }
        faults += one_round(dir, round, seed, &total);
    }
    CHECK(!faults, "%d rounds of kill -9, %ld acknowledged puts, all there", rounds, total);
    CHECK(total > rounds, "there was something to lose");
    return test_finish();
}

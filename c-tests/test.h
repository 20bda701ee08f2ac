/* What the C programs share: checks that print a line each, a folder that goes away, and the driver to test.
 *
 * IOE_TEST_DRIVER=posix in the environment makes every program ask the library for the POSIX driver. The variable is
 * read here, by the tests: the library itself knows no such variable. */
#ifndef IOE_C_TESTS_TEST_H
#define IOE_C_TESTS_TEST_H

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "iouring_engine.h"

#define KIB ((size_t)1024)
#define MIB (1024 * KIB)

static int test_passed, test_failed;
static pid_t test_process;
static char test_root[512];

static inline void test_report(int good, const char *file, int line, const char *what, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

static inline void test_report(int good, const char *file, int line, const char *what, const char *format, ...) {
    va_list arguments;
    printf(good ? "ok " : "FAILED ");
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    if (good) {
        test_passed++;
        printf("\n");
    } else {
        test_failed++;
        printf(" [%s:%d: %s; last error: %s]\n", file, line, what, ioe_last_error());
    }
    fflush(stdout);
}

/* CHECK(condition, "what holds", ...): one line, and the program goes on. The condition comes first: both it and the
 * words may ask for ioe_last_error(), whose text is valid until the next such call. */
#define CHECK(condition, ...)                                                     \
    do {                                                                          \
        int test_good = !!(condition);                                            \
        test_report(test_good, __FILE__, __LINE__, #condition, __VA_ARGS__);      \
    } while (0)

/* The same for a number, with both values shown when they differ. */
static inline void test_equal(long long got, long long expected, const char *file, int line, const char *what,
                              const char *text) {
    if (got == expected)
        test_report(1, file, line, what, "%s", text);
    else
        test_report(0, file, line, what, "%s: got %lld (%s), expected %lld", text, got,
                    got < 0 ? ioe_strerror((int)got) : "", expected);
}
#define EQUAL(got, expected, text) test_equal((long long)(got), (long long)(expected), __FILE__, __LINE__, #got, text)

/* Ends the program: what follows could mean nothing. */
#define NEED(condition, ...)                                                      \
    do {                                                                          \
        if (!(condition)) {                                                       \
            test_report(0, __FILE__, __LINE__, #condition, __VA_ARGS__);          \
            exit(1);                                                              \
        }                                                                         \
    } while (0)

static inline int test_remove_one(const char *path, const struct stat *info, int kind, struct FTW *where) {
    (void)info, (void)kind, (void)where;
    return remove(path);
}

static inline void test_remove(const char *path) {
    nftw(path, test_remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static inline void test_clean(void) {
    if (getpid() == test_process && test_root[0]) test_remove(test_root);
}

/* A path in this program's own folder, which is removed when it ends. The string lives as long as the program. */
static inline char *test_path(const char *name) {
    static struct test_name {
        struct test_name *next;
        char path[1024];
    } *names;
    struct test_name *one = malloc(sizeof *one);
    if (!test_root[0]) {
        const char *base = getenv("TMPDIR");
        snprintf(test_root, sizeof test_root, "%s/ioe-c-test-XXXXXX", base && *base ? base : "/tmp");
        NEED(mkdtemp(test_root), "a folder for the test's files");
        test_process = getpid();
        atexit(test_clean);
    }
    NEED(one, "memory");
    one->next = names;
    names = one;
    snprintf(one->path, sizeof one->path, "%s/%s", test_root, name);
    return one->path;
}

static inline int test_finish(void) {
    printf("%d passed, %d failed\n", test_passed, test_failed);
    return test_failed || !test_passed ? 1 : 0;
}

/* The driver that this run tests. */
static inline int test_driver(void) {
    const char *name = getenv("IOE_TEST_DRIVER");
    return name && !strcmp(name, "posix") ? IOE_DRIVER_POSIX : IOE_DRIVER_AUTO;
}

static inline uint64_t now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* A pattern that differs at every place and for every seed. */
static inline void test_fill(void *data, size_t len, unsigned seed) {
    unsigned char *bytes = data;
    uint32_t state = seed * 2654435761u + 12345u;
    for (size_t i = 0; i < len; i++) {
        state = state * 1664525u + 1013904223u;
        bytes[i] = (unsigned char)(state >> 24);
    }
}

static inline int test_filled(const void *data, size_t len, unsigned seed) {
    unsigned char *expected = malloc(len ? len : 1);
    test_fill(expected, len, seed);
    int same = !memcmp(data, expected, len);
    free(expected);
    return same;
}

/* A file with the pattern in it, open for reading and writing. */
static inline int test_file(const char *path, size_t len, unsigned seed) {
    unsigned char *data = malloc(len ? len : 1);
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    NEED(fd >= 0, "a file to work on");
    test_fill(data, len, seed);
    NEED(pwrite(fd, data, len, 0) == (ssize_t)len, "its content");
    free(data);
    return fd;
}

/* Options with the tested driver in them. */
static inline ring_options_t test_ring_options(void) {
    ring_options_t o;
    NEED(ring_options_init(&o, sizeof o) == IOE_OK, "ring_options_init");
    o.driver = test_driver();
    o.file_slots = 16;
    o.buffer_count = 8;
    o.buffer_size = 64 * KIB;
    return o;
}

static inline ring_t *test_ring(const ring_options_t *o) {
    ring_t *r = NULL;
    int code = ring_open(o, &r);
    NEED(code == IOE_OK, "ring_open: %d, %s", code, ioe_strerror(code));
    return r;
}

static inline int test_is_uring(ring_t *r) {
    ring_info_t info = {0};
    info.size = sizeof info;
    NEED(ring_info(r, &info) == IOE_OK, "ring_info");
    return info.driver == IOE_DRIVER_URING;
}

/* Gathers completions until there are `count` or ten seconds have passed; returns how many there are. */
static inline int test_gather(ring_t *r, ring_completion_t *out, int count) {
    int have = 0;
    uint64_t deadline = now_ms() + 10000;
    while (have < count && now_ms() < deadline) {
        int waited = ring_wait(r, 1, 1000);
        if (waited < 0 && waited != -EINTR) {
            printf("ring_wait: %d, %s\n", waited, ioe_last_error());
            break;
        }
        int got = ring_reap(r, out + have, count - have);
        if (got < 0) {
            printf("ring_reap: %d, %s\n", got, ioe_last_error());
            break;
        }
        have += got;
    }
    return have;
}

/* The completion with this user value among those gathered. */
static inline const ring_completion_t *test_find(const ring_completion_t *all, int count, uint64_t user_data) {
    for (int i = 0; i < count; i++)
        if (all[i].user_data == user_data) return &all[i];
    return NULL;
}

static inline int test_result(const ring_completion_t *all, int count, uint64_t user_data) {
    const ring_completion_t *one = test_find(all, count, user_data);
    return one ? one->result : -99999;
}

static inline engine_options_t test_engine_options(void) {
    engine_options_t o;
    NEED(engine_options_init(&o, sizeof o) == IOE_OK, "engine_options_init");
    o.driver = test_driver();
    return o;
}

static inline engine_t *test_engine(const char *path, const engine_options_t *o) {
    engine_t *e = NULL;
    engine_options_t standard = test_engine_options();
    int code = engine_open(path, o ? o : &standard, &e);
    NEED(code == IOE_OK, "engine_open(%s): %d, %s", path, code, ioe_last_error());
    return e;
}

static inline wal_options_t test_wal_options(void) {
    wal_options_t o;
    NEED(wal_options_init(&o, sizeof o) == IOE_OK, "wal_options_init");
    o.driver = test_driver();
    return o;
}

#endif

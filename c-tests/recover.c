/* Recovery: a log that was cut, damaged, or left by a killed process is replayed up to its torn tail, or refused with
 * file and offset; the statistics say what was found. */
#include <dirent.h>

#include "test.h"

struct replay { int count, stop_at; uint64_t last; int wrong; };

static int count_record(void *user_data, uint64_t sequence, const void *data, size_t len) {
    struct replay *state = user_data;
    if (len != 1000 || !test_filled(data, len, (unsigned)sequence)) state->wrong++;
    state->count++;
    state->last = sequence;
    return state->stop_at && state->count == state->stop_at;
}

/* Appends records first..last, each a group of its own, each durable. */
static void append(wal_t *w, int first, int last) {
    char data[1000];
    wal_event_t event;
    for (int i = first; i <= last; i++) {
        uint64_t sequence = 0;
        test_fill(data, sizeof data, (unsigned)i);
        NEED(wal_append(w, data, sizeof data, 0, &sequence) >= 0, "append: %s", ioe_last_error());
        NEED(sequence == (uint64_t)i, "sequence %d", i);
        NEED(wal_reap(w, &event, 1, 1, 10000) == 1 && event.result >= 0, "durable: %s", ioe_last_error());
    }
}

static wal_t *open_log(const char *dir) {
    wal_options_t o = test_wal_options();
    wal_t *w = NULL;
    o.segment_bytes = 256 * KIB;
    o.seal_after_ms = 3600000; /* no seal proves the last records */
    int code = wal_open(dir, &o, &w);
    NEED(code == IOE_OK, "wal_open: %d, %s", code, ioe_last_error());
    return w;
}

/* A log of ten records whose owner was killed: no seal proves the last. */
static void make_killed(const char *dir) {
    int pipes[2], status;
    char byte;
    NEED(!pipe2(pipes, O_CLOEXEC), "a pipe");
    pid_t child = fork();
    NEED(child >= 0, "a child");
    if (!child) {
        append(open_log(dir), 1, 10);
        if (write(pipes[1], "x", 1) != 1) _exit(1);
        pause();
    }
    close(pipes[1]);
    NEED(read(pipes[0], &byte, 1) == 1, "the child's records");
    close(pipes[0]);
    kill(child, SIGKILL);
    NEED(waitpid(child, &status, 0) == child, "the child's end");
}

/* The segment that holds the records: the one with a frame in its second group. */
static int open_segment(const char *dir, char *path, size_t room) {
    DIR *folder = opendir(dir);
    NEED(folder, "the log's folder");
    struct dirent *entry;
    int fd = -1;
    while ((entry = readdir(folder)) && fd < 0) {
        uint32_t magic = 0;
        if (!strstr(entry->d_name, ".wal")) continue;
        snprintf(path, room, "%s/%s", dir, entry->d_name);
        fd = open(path, O_RDWR | O_CLOEXEC);
        if (fd >= 0 && (pread(fd, &magic, 4, 4 * 4096) != 4 || magic != 0xDEAD1234)) close(fd), fd = -1;
    }
    closedir(folder);
    NEED(fd >= 0, "a segment with records");
    return fd;
}

/* Where the frame of the n-th record lies, from 1. Frames follow one another, groups start on blocks. */
static off_t frame_of(int fd, int n) {
    for (off_t at = 3 * 4096; at < 64 * 4096;) {
        unsigned char header[64];
        uint32_t magic, len;
        NEED(pread(fd, header, 64, at) == 64, "a frame's header");
        memcpy(&magic, header, 4);
        memcpy(&len, header + 8, 4);
        if (magic == 0xDEAD1234 && header[4] == 1 && --n == 0) return at;
        at = magic == 0xDEAD1234 ? at + (64 + (off_t)len + 4 + 7) / 8 * 8 : (at / 4096 + 1) * 4096;
    }
    NEED(0, "the record's frame");
    return 0;
}

static struct replay replay(const char *dir, int *code, wal_recovery_t *stats) {
    struct replay state = {0, 0, 0, 0};
    wal_recovery_t own = {0};
    if (!stats) stats = &own;
    memset(stats, 0, sizeof *stats);
    stats->size = sizeof *stats;
    *code = wal_recover(dir, NULL, count_record, &state, stats);
    return state;
}

static void torn_tail(void) {
    char *dir = test_path("torn"), path[2048];
    int code;
    wal_recovery_t stats;
    make_killed(dir);
    struct replay state = replay(dir, &code, &stats);
    EQUAL(code, IOE_OK, "the log of a killed process is replayed");
    CHECK(state.count == 10 && !state.wrong, "with all it had acknowledged");

    /* One byte of the last record lost: the log opens without its last record only. */
    int fd = open_segment(dir, path, sizeof path);
    off_t last = frame_of(fd, 10);
    unsigned char byte = 0;
    NEED(pread(fd, &byte, 1, last + 64 + 999) == 1, "the last byte of the last record");
    byte ^= 1;
    NEED(pwrite(fd, &byte, 1, last + 64 + 999) == 1, "changed");
    state = replay(dir, &code, &stats);
    EQUAL(code, IOE_OK, "a torn last record doesn't keep the log shut");
    EQUAL(state.count, 9, "only that record is dropped");
    EQUAL(state.wrong, 0, "and none is wrong");
    CHECK(stats.torn, "the statistics count the torn tail");

    wal_t *w = open_log(dir);
    append(w, 10, 12);
    EQUAL(wal_close(w), IOE_OK, "the log is opened, written to and closed");
    state = replay(dir, &code, NULL);
    EQUAL(code, IOE_OK, "and replayed");
    CHECK(state.count == 12 && state.last == 12 && !state.wrong, "with the new records behind the old, and not the dropped one");
    close(fd);
}

static void damage(void) {
    char *dir = test_path("damaged"), path[2048];
    int code;
    make_killed(dir);
    int fd = open_segment(dir, path, sizeof path);
    off_t third = frame_of(fd, 3);
    unsigned char byte = 0;
    NEED(pread(fd, &byte, 1, third + 100) == 1, "a byte of the third record");
    byte ^= 0x10;
    NEED(pwrite(fd, &byte, 1, third + 100) == 1, "changed");
    struct replay state = replay(dir, &code, NULL);
    EQUAL(code, IOE_E_CORRUPT, "damage below what is proven is corruption, not an end");
    char offset[32];
    snprintf(offset, sizeof offset, "%lld", (long long)third);
    CHECK(strstr(ioe_last_error(), ".wal") && strstr(ioe_last_error(), offset), "named with file and offset: %s", ioe_last_error());
    CHECK(state.count <= 2 && !state.wrong, "no wrong record is delivered");
    wal_t *w = NULL;
    wal_options_t o = test_wal_options();
    EQUAL(wal_open(dir, &o, &w), IOE_E_CORRUPT, "opening is refused too");
    CHECK(w == NULL, "the out-parameter is untouched");
    byte ^= 0x10;
    NEED(pwrite(fd, &byte, 1, third + 100) == 1, "the byte put right");
    state = replay(dir, &code, NULL);
    EQUAL(code, IOE_OK, "put right, it is replayed: the refusal changed nothing");
    EQUAL(state.count, 10, "whole");
    close(fd);
}

static void crash_and_crash_again(void) {
    char *dir = test_path("again");
    int code;
    make_killed(dir);
    for (int round = 0; round < 3; round++) {
        pid_t child = fork();
        NEED(child >= 0, "a child");
        if (!child) {
            open_log(dir);
            raise(SIGKILL); /* right after the new log was made */
        }
        waitpid(child, NULL, 0);
        struct replay state = replay(dir, &code, NULL);
        EQUAL(code, IOE_OK, "crash, replay, and crash again: it opens");
        CHECK(state.count == 10 && !state.wrong, "with everything");
    }
}

static void bad_places(void) {
    int code;
    char *path = test_path("none");
    replay(path, &code, NULL);
    EQUAL(code, -ENOENT, "no such folder");
    path = test_path("empty");
    NEED(!mkdir(path, 0700), "an empty folder");
    struct replay state = replay(path, &code, NULL);
    CHECK(code == IOE_OK || code == -ENOENT, "an empty folder is an empty log or none, code %d", code);
    EQUAL(state.count, 0, "without records");
    path = test_path("file");
    close(test_file(path, 100, 1));
    replay(path, &code, NULL);
    EQUAL(code, -ENOTDIR, "a file in its place");
    path = test_path("foreign");
    NEED(!mkdir(path, 0700), "a folder");
    char *inside = test_path("foreign/1.wal");
    close(test_file(inside, 100000, 1));
    wal_t *w = NULL;
    wal_options_t o = test_wal_options();
    code = wal_open(path, &o, &w);
    CHECK(code == IOE_OK || code == IOE_E_CORRUPT, "a foreign file of a segment's name doesn't crash anything, code %d", code);
    if (code == IOE_OK) EQUAL(wal_close(w), IOE_OK, "close");
}

int main(void) {
    torn_tail();
    damage();
    crash_and_crash_again();
    bad_places();

    char *dir = test_path("stopped");
    wal_t *w = open_log(dir);
    append(w, 1, 20);
    EQUAL(wal_close(w), IOE_OK, "a log of twenty records");
    struct replay state = {0, 5, 0, 0};
    int code = wal_recover(dir, NULL, count_record, &state, NULL);
    CHECK(code == IOE_E_CANCELLED || code == IOE_OK, "a callback that says stop ends the replay, code %d", code);
    EQUAL(state.count, 5, "at once");
    return test_finish();
}

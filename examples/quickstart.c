/* Quick start: a durable store that loses nothing through a kill, shown on a real text.
 *
 * Each line of the text is put durably, its number being the key. The process that does so is a child, and is killed
 * with SIGKILL in mid-load; it reports each put that the store acknowledged over a pipe. The store is opened again,
 * and every acknowledged line must be there, byte for byte. Then the rest is put, and every line is read back.
 *
 * Usage: quickstart TEXT [FOLDER]     Exit status 0: nothing was lost. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "iouring_engine.h"

static char *text;
static struct line { const char *start; size_t len; } *lines;
static size_t line_count;

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void die(const char *what, int code) {
    const char *detail = ioe_last_error();
    fprintf(stderr, "%s: %s%s%s\n", what, ioe_strerror(code), *detail ? ": " : "", detail);
    exit(1);
}

static void progress(const char *what, size_t done, size_t total) {
    static double last;
    double now = seconds();
    if (!isatty(STDOUT_FILENO) || (done < total && now - last < 0.05)) return;
    last = now;
    int filled = total ? (int)(40 * done / total) : 40;
    printf("\r  %-22s [%.*s%*s] %zu of %zu ", what, filled, "########################################", 40 - filled, "",
           done, total);
    if (done == total) printf("\r%*s\r", 100, "");
    fflush(stdout);
}

static void read_text(const char *path) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat info;
    if (fd < 0 || fstat(fd, &info)) die(path, -errno);
    if (!S_ISREG(info.st_mode)) die(path, -EINVAL);
    size_t len = (size_t)info.st_size, have = 0;
    text = malloc(len + 1);
    if (!text) die(path, -ENOMEM);
    while (have < len) {
        ssize_t got = read(fd, text + have, len - have);
        if (got <= 0) die(path, got < 0 ? -errno : -EIO);
        have += (size_t)got;
    }
    close(fd);
    text[len] = 0;
    for (size_t at = 0; at < len;) {
        char *end = memchr(text + at, '\n', len - at);
        size_t line_len = end ? (size_t)(end - text) - at : len - at;
        if (line_count % 4096 == 0) {
            lines = realloc(lines, (line_count + 4096) * sizeof *lines);
            if (!lines) die(path, -ENOMEM);
        }
        lines[line_count++] = (struct line){text + at, line_len};
        at += line_len + 1;
    }
}

/* Numbers as big-endian bytes: their order as keys is their order as numbers. */
static void make_key(unsigned char key[8], size_t line) {
    for (int i = 0; i < 8; i++) key[i] = (unsigned char)(line >> (56 - 8 * i));
}

static engine_t *open_store(const char *folder) {
    engine_t *store = NULL;
    int code = engine_open(folder, NULL, &store);
    if (code != IOE_OK) die("the store can't be opened", code);
    return store;
}

static int put_line(engine_t *store, size_t i) {
    unsigned char key[8];
    make_key(key, i);
    return engine_put(store, key, sizeof key, lines[i].start, lines[i].len);
}

/* Puts lines until it is killed. */
static void child(const char *folder, int acknowledged) {
    engine_t *store = open_store(folder);
    for (size_t i = 0; i < line_count; i++) {
        int code = put_line(store, i);
        if (code != IOE_OK) die("a put failed", code);
        uint64_t line = i;
        if (write(acknowledged, &line, sizeof line) != (ssize_t)sizeof line) exit(1);
    }
    for (;;) pause();
}

/* Runs the child until half of the lines are acknowledged, then kills it. Returns how many were. */
static size_t load_and_kill(const char *folder) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC)) die("a pipe", -errno);
    pid_t pid = fork();
    if (pid < 0) die("a child process", -errno);
    if (pid == 0) {
        close(ends[0]);
        child(folder, ends[1]);
    }
    close(ends[1]);
    size_t count = 0, half = line_count / 2 ? line_count / 2 : 1;
    uint64_t line;
    int killed = 0;
    double start = seconds(), took = 0;
    while (read(ends[0], &line, sizeof line) == (ssize_t)sizeof line) {
        count = (size_t)line + 1;
        if (!killed) progress("putting lines", count, line_count);
        if (count >= half && !killed) {
            took = seconds() - start;
            kill(pid, SIGKILL);
            killed = 1;
        }
    }
    close(ends[0]);
    int status;
    waitpid(pid, &status, 0);
    progress("putting lines", line_count, line_count);
    if (!killed) {
        fprintf(stderr, "the loading process ended by itself, before it could be killed\n");
        exit(1);
    }
    printf("Loading: %zu durable puts in %.2f s, %.0f per second, one after the other.\n", half, took, (double)half / took);
    printf("Killed:  the loading process got SIGKILL in mid-load; it had reported %zu acknowledged puts.\n", count);
    return count;
}

/* How many of the first `count` lines the store has, byte for byte. */
static size_t found(engine_t *store, size_t count, const char *what) {
    size_t right = 0, room = 1;
    char *value = malloc(room);
    for (size_t i = 0; i < count; i++) {
        unsigned char key[8];
        make_key(key, i);
        size_t len = room;
        int code = engine_get(store, key, sizeof key, value, &len);
        if (code == IOE_E_TOO_SMALL) {
            room = len;
            value = realloc(value, room);
            if (!value) die("memory", -ENOMEM);
            code = engine_get(store, key, sizeof key, value, &len);
        }
        if (code != IOE_OK && code != IOE_E_NOT_FOUND) die("a get failed", code);
        right += code == IOE_OK && len == lines[i].len && !memcmp(value, lines[i].start, len);
        progress(what, i + 1, count);
    }
    free(value);
    return right;
}

/* What the store says about itself. */
static void show(engine_t *store, const char *property, const char *words) {
    char value[512];
    size_t len = sizeof value;
    if (engine_property(store, property, value, &len) == IOE_OK)
        printf("%s %.*s\n", words, (int)len, value);
}

int main(int argc, char **argv) {
    if (argc < 2) {
        fprintf(stderr, "usage: %s TEXT [FOLDER]\n", argv[0]);
        return 2;
    }
    char own[] = "/tmp/iouring-engine-quickstart-XXXXXX";
    const char *folder = argc > 2 ? argv[2] : mkdtemp(own);
    if (!folder) die("a folder for the store", -errno);
    read_text(argv[1]);
    if (!line_count) die(argv[1], -ENODATA);
    printf("Text:    %s, %zu lines, each a durable put of its own.\n", argv[1], line_count);
    fflush(stdout);

    size_t acknowledged = load_and_kill(folder);
    double start = seconds();
    engine_t *store = open_store(folder);
    printf("Opened:  again, %.1f ms, the log replayed.\n", (seconds() - start) * 1e3);
    size_t kept = found(store, acknowledged, "looking for them");
    printf("Kept:    %zu of %zu acknowledged lines are there, byte for byte.\n", kept, acknowledged);

    start = seconds();
    for (size_t i = acknowledged; i < line_count; i++) {
        int code = put_line(store, i);
        if (code != IOE_OK) die("a put failed", code);
        progress("putting the rest", i + 1, line_count);
    }
    double took = seconds() - start;
    if (acknowledged < line_count)
        printf("Rest:    %zu durable puts in %.2f s, %.0f per second.\n", line_count - acknowledged, took,
               (double)(line_count - acknowledged) / took);
    start = seconds();
    size_t right = found(store, line_count, "reading all back");
    took = seconds() - start;
    printf("Gets:    %zu of %zu lines found, %.0f gets per second.\n", right, line_count, (double)line_count / took);
    show(store, "driver", "Driver: ");
    show(store, "sync", "Sync:   ");
    int code = engine_close(store);
    if (code != IOE_OK) die("the store can't be closed", code);
    int lost = kept != acknowledged || right != line_count;
    printf("%s\n", lost ? "LOST: lines are missing." : "Nothing was lost.");
    if (argc <= 2 && !lost) {
        char command[128];
        snprintf(command, sizeof command, "rm -rf '%s'", folder);
        if (system(command)) fprintf(stderr, "%s is left behind\n", folder);
    } else {
        printf("The store is in %s\n", folder);
    }
    return lost;
}

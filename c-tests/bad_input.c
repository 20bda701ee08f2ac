/* What bad input gets: a folder that isn't ours, a file in its place, no permission, a full disk, a link for LOCK. A
 * code and a sentence saying which. Cases of permission run as an ordinary user (65534). */
#include <sys/vfs.h>

#include "test.h"

#define ORDINARY 65534

static int open_code(const char *dir) {
    engine_options_t o = test_engine_options();
    engine_t *e = NULL;
    int code = engine_open(dir, &o, &e);
    if (code == IOE_OK) engine_close(e);
    return code;
}

static void refused(const char *dir, int expected, const char *word, const char *what) {
    int code = open_code(dir);
    EQUAL(code, expected, what);
    CHECK(strstr(ioe_last_error(), word), "and the sentence names it (%s): %s", word, ioe_last_error());
}

/* Runs a case in a child that is an ordinary user, and takes its counts over. */
static void as_ordinary_user(void (*run)(const char *), const char *dir) {
    fflush(stdout);
    pid_t pid = fork();
    NEED(pid >= 0, "a child");
    if (!pid) {
        test_failed = test_passed = 0;
        if (geteuid() == 0 && (setgid(ORDINARY) || setuid(ORDINARY))) _exit(99);
        run(dir);
        _exit(test_failed ? 1 : 0);
    }
    int status;
    waitpid(pid, &status, 0);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0, "as an ordinary user, status %#x", status);
}

static void no_permission(const char *dir) {
    char inside[1100];
    refused(dir, -EACCES, dir, "a folder that this user may not enter");
    snprintf(inside, sizeof inside, "%s/new/store", dir);
    CHECK(open_code(inside) == -EACCES || open_code(inside) == -ENOENT, "nor one to be made inside it");
}

/* Rings and buffers beyond what an ordinary user may pin: fewer are granted, or the limit is named. */
static void memlock(const char *dir) {
    (void)dir;
    struct rlimit none = {64 * KIB, 64 * KIB};
    NEED(!setrlimit(RLIMIT_MEMLOCK, &none), "a low limit");
    ring_options_t o = test_ring_options();
    o.buffer_count = 64;
    o.buffer_size = 64 * KIB;
    ring_t *r = NULL;
    int code = ring_open(&o, &r);
    if (code == IOE_OK) {
        ring_info_t info = {0};
        info.size = sizeof info;
        EQUAL(ring_info(r, &info), IOE_OK, "ring_info");
        CHECK(info.driver == IOE_DRIVER_POSIX || info.buffer_count < 64 || info.pinned_bytes <= 8 * MIB,
              "less is granted than was asked for, and said: %u buffers", (unsigned)info.buffer_count);
        EQUAL(ring_close(r), IOE_OK, "close");
    } else {
        CHECK(strstr(ioe_last_error(), "memlock") || strstr(ioe_last_error(), "MEMLOCK"), "the limit is named: %s", ioe_last_error());
    }
}

static void lock_is_a_link(void) {
    char *dir = test_path("linked"), *target = test_path("target"), *lock = test_path("linked/LOCK");
    NEED(!mkdir(dir, 0700), "a folder");
    close(test_file(target, 5, 1));
    NEED(!symlink(target, lock), "a link for LOCK");
    int code = open_code(dir);
    CHECK(code == -ELOOP, "a link for LOCK is refused, code %d: %s", code, ioe_last_error());
    struct stat info;
    CHECK(!stat(target, &info) && info.st_size == 5, "and its target is untouched");
}

/* A disk that fills up while a store is written: refused cleanly, what was acknowledged stays readable. */
static void full_disk(void) {
    char *dir = test_path("small"), *store = test_path("small/store");
    NEED(!mkdir(dir, 0700), "a folder");
    char command[2400];
    snprintf(command, sizeof command,
             "truncate -s 160M '%s.img' && mkfs.ext4 -q -F '%s.img' && mount -o loop '%s.img' '%s'", dir, dir, dir, dir);
    if (geteuid() != 0 || system(command) != 0) {
        /* No loop device here: the file size limit refuses the writes instead, in a child. */
        printf("no file system of our own can be mounted here: RLIMIT_FSIZE stands in for the full disk\n");
        pid_t pid = fork();
        if (!pid) {
            struct rlimit small = {0, 0};
            signal(SIGXFSZ, SIG_IGN);
            setrlimit(RLIMIT_FSIZE, &small);
            int code = open_code(store);
            _exit(code < 0 && strlen(ioe_last_error()) > 5 ? 0 : 1);
        }
        int status;
        waitpid(pid, &status, 0);
        CHECK(WIFEXITED(status) && !WEXITSTATUS(status), "a store that can't write is refused with a sentence");
        return;
    }
    engine_options_t o = test_engine_options();
    engine_t *e = NULL;
    int code = engine_open(store, &o, &e), i = 0;
    char *value = malloc(MIB);
    test_fill(value, MIB, 6);
    NEED(code == IOE_OK, "a store on a small disk: %s", ioe_last_error());
    for (; i < 1000 && code == IOE_OK; i++) code = engine_put(e, &i, sizeof i, value, MIB);
    int last = i - 1;
    EQUAL(code, -ENOSPC, "a full disk refuses the put");
    CHECK(strlen(ioe_last_error()) > 10, "with a sentence: %s", ioe_last_error());
    size_t len = MIB;
    EQUAL(engine_get(e, &last, sizeof last, value, &len), IOE_E_NOT_FOUND, "what was refused isn't there");
    int there = 0;
    for (int j = 0; j < last; j++) {
        len = MIB;
        there += engine_get(e, &j, sizeof j, value, &len) == IOE_OK && test_filled(value, len, 6);
    }
    EQUAL(there, last, "what was acknowledged is");
    code = engine_close(e);
    CHECK(code == IOE_OK, "a full disk can be closed: %d, %s", code, ioe_last_error());
    code = engine_open(store, &o, &e);
    EQUAL(code, IOE_OK, "and opened");
    if (code == IOE_OK) EQUAL(engine_close(e), IOE_OK, "and closed again");
    free(value);
    snprintf(command, sizeof command, "umount '%s'", dir);
    EQUAL(system(command), 0, "unmounted");
}

static void read_only_place(void) {
    struct statfs info;
    if (!statfs("/proc", &info) && info.f_type == 0x9fa0) {
        int code = open_code("/proc/store");
        CHECK(code < 0, "a place where nothing can be made, code %d: %s", code, ioe_last_error());
    } else {
        CHECK(open_code("/dev/null/store") == -ENOTDIR, "a place where nothing can be made");
    }
}

int main(void) {
    char *path = test_path("file");
    close(test_file(path, 10, 1));
    refused(path, -ENOTDIR, path, "a file in the folder's place");

    path = test_path("foreign");
    NEED(!mkdir(path, 0700), "a folder of other people's");
    char *other = test_path("foreign/photo.jpg"), kept[1000];
    close(test_file(other, 1000, 1));
    refused(path, -ENOTEMPTY, path, "a folder of other files");
    int fd = open(other, O_RDONLY | O_CLOEXEC);
    CHECK(read(fd, kept, 1000) == 1000 && test_filled(kept, 1000, 1), "whose files are left alone");
    close(fd);
    struct stat info;
    CHECK(stat(test_path("foreign/LOCK"), &info) < 0, "and to which nothing is added");

    path = test_path("closed");
    NEED(!mkdir(path, 0700), "a folder");
    chmod(test_root, 0755);
    as_ordinary_user(no_permission, path);
    as_ordinary_user(memlock, path);
    lock_is_a_link();
    read_only_place();
    full_disk();

    char *long_path = malloc(6000);
    memset(long_path, 'x', 5999);
    long_path[0] = '/';
    long_path[5999] = 0;
    EQUAL(open_code(long_path), -ENAMETOOLONG, "a name that is too long");
    EQUAL(open_code(""), -ENOENT, "no name");
    free(long_path);
    return test_finish();
}

/* Durable puts: engine_put from 1 thread beside the floor (one 4 KiB write made durable, by the quickest system
 * calls, into a file written before), round by round.
 *   put --dir DIR [--seconds S] [--rounds R] [--driver posix]
 * Prints a line per round and the medians; the ratio is engine_put against the better floor of the same round. */
#include "bench.h"
#include <fcntl.h>
#include <iouring_engine.h>
#include <sys/uio.h>
#include <unistd.h>

enum { BLOCK = 4096, SPAN = 64 << 20 };

static char *block;

static int zeroed_file(const char *path) {
    unlink(path);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0) die("opening the floor's file", errno, path);
    void *zeros = calloc(1, 1 << 20);
    for (int at = 0; at < SPAN; at += 1 << 20)
        if (pwrite(fd, zeros, 1 << 20, at) != 1 << 20) die("zeroing the floor's file", errno, path);
    free(zeros);
    fsync(fd);
    close(fd);
    fd = open(path, O_RDWR | O_DIRECT | O_CLOEXEC);
    if (fd < 0) die("opening the floor's file with O_DIRECT", errno, path);
    return fd;
}

/* Rounds per second of one write made durable. */
static double floor_rate(int fd, int dsync, double span) {
    double start = seconds(), now = start;
    uint64_t count = 0;
    while ((now = seconds()) - start < span) {
        off_t at = (off_t)(count * BLOCK % SPAN);
        struct iovec part = {block, BLOCK};
        memset(block, (int)count, BLOCK);
        if (pwritev2(fd, &part, 1, at, dsync ? RWF_DSYNC : 0) != BLOCK) die("writing", errno, NULL);
        if (!dsync && fdatasync(fd)) die("fdatasync", errno, NULL);
        count++;
    }
    return (double)count / (now - start);
}

static double put_rate(engine_t *e, double span, uint64_t *next) {
    double start = seconds(), now = start;
    uint64_t count = 0;
    char key[17], value[100];
    memset(value, 'v', sizeof value);
    while ((now = seconds()) - start < span) {
        snprintf(key, sizeof key, "%016llx", (unsigned long long)mix((*next)++));
        int rc = engine_put(e, key, 16, value, sizeof value);
        if (rc) die("engine_put", rc, ioe_last_error());
        count++;
    }
    return (double)count / (now - start);
}

static engine_t *open_store(const char *dir, const char *driver) {
    engine_options_t o;
    engine_t *e;
    engine_options_init(&o, sizeof o);
    if (strcmp(driver, "posix") == 0) o.driver = IOE_DRIVER_POSIX;
    int rc = engine_open(dir, &o, &e);
    if (rc) die("engine_open", rc, ioe_last_error());
    return e;
}

int main(int argc, char **argv) {
    const char *dir = option(argc, argv, "--dir", "put-bench");
    double span = atof(option(argc, argv, "--seconds", "1"));
    int rounds = atoi(option(argc, argv, "--rounds", "7"));
    char path[4096];
    uint64_t next = (uint64_t)(seconds() * 1e6);
    if (rounds < 1 || rounds > 1000) die("--rounds takes 1 to 1000", rounds, NULL);
    double *ratio = calloc((size_t)rounds, sizeof *ratio), *put = calloc((size_t)rounds, sizeof *put);
    double *best = calloc((size_t)rounds, sizeof *best);
    if (!ratio || !put || !best || posix_memalign((void **)&block, BLOCK, BLOCK)) return 1;
    snprintf(path, sizeof path, "%s.floor", dir);
    int fd = zeroed_file(path);
    engine_t *e = open_store(dir, option(argc, argv, "--driver", "auto"));
    put_rate(e, span / 4, &next);
    for (int i = 0; i < rounds; i++) {
        double sync = floor_rate(fd, 0, span / 2), dsync = floor_rate(fd, 1, span / 2);
        best[i] = sync > dsync ? sync : dsync;
        put[i] = put_rate(e, span, &next);
        ratio[i] = put[i] / best[i];
        printf("round %d: pwrite+fdatasync %.0f/s  RWF_DSYNC %.0f/s  engine_put %.0f/s  ratio %.3f\n", i, sync,
               dsync, put[i], ratio[i]);
    }
    printf("median: floor %.0f/s  engine_put %.0f/s  ratio %.3f\n", median(best, (size_t)rounds),
           median(put, (size_t)rounds), median(ratio, (size_t)rounds));
    engine_close(e);
    close(fd);
    unlink(path);
    return 0;
}

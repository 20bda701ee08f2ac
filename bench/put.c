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

/* One write made durable, at the next place of the file; seconds it took. */
static double floor_once(int fd, int dsync, uint64_t *count) {
    off_t at = (off_t)(*count * BLOCK % SPAN);
    struct iovec part = {block, BLOCK};
    double start = seconds();
    memset(block, (int)*count, BLOCK);
    if (pwritev2(fd, &part, 1, at, dsync ? RWF_DSYNC : 0) != BLOCK) die("writing", errno, NULL);
    if (!dsync && fdatasync(fd)) die("fdatasync", errno, NULL);
    ++*count;
    return seconds() - start;
}

static double put_once(engine_t *e, uint64_t *next) {
    char key[17], value[100];
    memset(value, 'v', sizeof value);
    snprintf(key, sizeof key, "%016llx", (unsigned long long)mix((*next)++));
    double start = seconds();
    int rc = engine_put(e, key, 16, value, sizeof value);
    if (rc) die("engine_put", rc, ioe_last_error());
    return seconds() - start;
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

enum { WAYS = 3, SLICE = 16 };
static const char *const names[WAYS] = {"pwrite+fdatasync", "RWF_DSYNC", "engine_put"};

/* The ways in turn, a few operations each, so that a device that changes its speed changes it for all. */
static void round_of(engine_t *e, int fd, double span, uint64_t *next, double *times[WAYS], size_t *count, size_t max) {
    static uint64_t place;
    double start = seconds();
    *count = 0;
    while (seconds() - start < span && *count + SLICE <= max) {
        for (int way = 0; way < WAYS; way++)
            for (int i = 0; i < SLICE; i++)
                times[way][*count + (size_t)i] =
                    way == 2 ? put_once(e, next) : floor_once(fd, way == 1, &place);
        *count += SLICE;
    }
}

int main(int argc, char **argv) {
    const char *dir = option(argc, argv, "--dir", "put-bench");
    double span = atof(option(argc, argv, "--seconds", "2")), *times[WAYS], *rates[WAYS], p50[WAYS];
    int rounds = atoi(option(argc, argv, "--rounds", "7"));
    size_t count, max = 1 << 20;
    char path[4096];
    uint64_t next = (uint64_t)(seconds() * 1e6);
    if (rounds < 1 || rounds > 1000) die("--rounds takes 1 to 1000", rounds, NULL);
    double *mean_ratio = calloc((size_t)rounds, sizeof(double)), *p50_ratio = calloc((size_t)rounds, sizeof(double));
    for (int way = 0; way < WAYS; way++) {
        times[way] = calloc(max, sizeof(double));
        rates[way] = calloc((size_t)rounds, sizeof(double));
        if (!times[way] || !rates[way]) return 1;
    }
    if (!mean_ratio || !p50_ratio || posix_memalign((void **)&block, BLOCK, BLOCK)) return 1;
    snprintf(path, sizeof path, "%s.floor", dir);
    int fd = zeroed_file(path);
    engine_t *e = open_store(dir, option(argc, argv, "--driver", "auto"));
    for (int i = 0; i < rounds; i++) {
        round_of(e, fd, span, &next, times, &count, max);
        printf("round %d:", i);
        for (int way = 0; way < WAYS; way++) {
            double sum = 0;
            for (size_t k = 0; k < count; k++) sum += times[way][k];
            rates[way][i] = (double)count / sum;
            p50[way] = median(times[way], count) * 1e6;
            printf("  %s %.0f/s p50 %.1f us", names[way], rates[way][i], p50[way]);
        }
        mean_ratio[i] = rates[2][i] / (rates[0][i] > rates[1][i] ? rates[0][i] : rates[1][i]);
        p50_ratio[i] = (p50[0] < p50[1] ? p50[0] : p50[1]) / p50[2];
        printf("  ratio %.3f, of p50 %.3f\n", mean_ratio[i], p50_ratio[i]);
    }
    printf("median:");
    for (int way = 0; way < WAYS; way++) printf("  %s %.0f/s", names[way], median(rates[way], (size_t)rounds));
    printf("  ratio to the better %.3f, of p50 %.3f\n", median(mean_ratio, (size_t)rounds),
           median(p50_ratio, (size_t)rounds));
    engine_close(e);
    close(fd);
    unlink(path);
    return 0;
}

/* Random 4 KiB direct reads: ring_read with 64 pending from one thread, beside fio's io_uring engine on the same file
 * where fio is installed, round by round.
 *   read --file FILE [--megabytes M] [--seconds S] [--rounds R] [--depth D] [--driver posix]
 * The file is made when it isn't there. */
#include "bench.h"
#include <fcntl.h>
#include <iouring_engine.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BLOCK = 4096, MAX_DEPTH = 1024 };

static void make_file(const char *path, uint64_t bytes) {
    struct stat s;
    if (stat(path, &s) == 0 && (uint64_t)s.st_size >= bytes) return;
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0) die("making the file", errno, path);
    uint64_t *chunk = malloc(1 << 20);
    for (uint64_t at = 0; at < bytes; at += 1 << 20) {
        for (uint64_t i = 0; i < (1 << 20) / 8; i++) chunk[i] = mix(at + i);
        if (pwrite(fd, chunk, 1 << 20, (off_t)at) != 1 << 20) die("filling the file", errno, path);
    }
    free(chunk);
    fsync(fd);
    close(fd);
}

static double ring_rate(const char *path, uint64_t blocks, int depth, double span, const char *driver) {
    ring_options_t o;
    ring_t *r;
    ring_options_init(&o, sizeof o);
    if (strcmp(driver, "posix") == 0) o.driver = IOE_DRIVER_POSIX;
    o.entries = (uint32_t)depth;
    o.file_slots = 1;
    o.buffer_count = (uint32_t)depth;
    o.buffer_size = BLOCK;
    int rc = ring_open(&o, &r);
    if (rc) die("ring_open", rc, ioe_last_error());
    int fd = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);
    if (fd < 0) die("opening with O_DIRECT", errno, path);
    int slot = ring_file_set(r, IOE_SLOT_ANY, fd);
    if (slot < 0) die("ring_file_set", slot, ioe_last_error());
    close(fd);
    static ring_completion_t done[MAX_DEPTH];
    uint64_t state = mix((uint64_t)(seconds() * 1e9)), count = 0;
    for (int i = 0; i < depth; i++) {
        ioe_buffer_t b;
        if ((rc = ring_buffer_acquire(r, &b)) < 0) die("ring_buffer_acquire", rc, ioe_last_error());
        rc = ring_read(r, slot, b.index, 0, BLOCK, (state = mix(state)) % blocks * BLOCK, 0, (uint64_t)b.index);
        if (rc < 0) die("ring_read", rc, ioe_last_error());
    }
    double start = seconds(), now = start;
    while ((now = seconds()) - start < span) {
        if ((rc = ring_wait(r, 1, -1)) < 0 && rc != -EINTR) die("ring_wait", rc, ioe_last_error());
        int n = ring_reap(r, done, depth);
        if (n < 0) die("ring_reap", n, ioe_last_error());
        for (int i = 0; i < n; i++) {
            if (done[i].result != BLOCK) die("a read", done[i].result, ioe_last_error());
            rc = ring_read(r, slot, (int)done[i].user_data, 0, BLOCK, (state = mix(state)) % blocks * BLOCK, 0,
                           done[i].user_data);
            if (rc < 0) die("ring_read", rc, ioe_last_error());
        }
        count += (uint64_t)n;
    }
    if ((rc = ring_close(r)) < 0) die("ring_close", rc, ioe_last_error());
    return (double)count / (now - start);
}

/* fio's reads per second, or 0 when there is no fio. The eighth field of its terse output is the read rate. */
static double fio_rate(const char *path, int depth, double span) {
    char command[8192], line[65536];
    snprintf(command, sizeof command,
             "fio --name=r --filename='%s' --rw=randread --bs=4k --direct=1 --ioengine=io_uring --iodepth=%d "
             "--fixedbufs=1 --registerfiles=1 --time_based=1 --runtime=%.0f --minimal 2>/dev/null",
             path, depth, span < 1 ? 1 : span);
    FILE *p = popen(command, "r");
    double rate = 0;
    if (p && fgets(line, sizeof line, p)) {
        char *field = line;
        for (int i = 0; field && i < 7; i++) field = strchr(field, ';') ? strchr(field, ';') + 1 : NULL;
        if (field) rate = atof(field);
    }
    if (p) pclose(p);
    return rate;
}

int main(int argc, char **argv) {
    const char *path = option(argc, argv, "--file", "read-bench.data");
    const char *driver = option(argc, argv, "--driver", "auto");
    uint64_t bytes = (uint64_t)atoll(option(argc, argv, "--megabytes", "1024")) << 20;
    double span = atof(option(argc, argv, "--seconds", "2"));
    int rounds = atoi(option(argc, argv, "--rounds", "5")), depth = atoi(option(argc, argv, "--depth", "64"));
    if (rounds < 1 || rounds > 1000 || depth < 1 || depth > MAX_DEPTH || bytes < 1 << 20) {
        fprintf(stderr, "--rounds 1 to 1000, --depth 1 to %d, --megabytes 1 or more\n", MAX_DEPTH);
        return 2;
    }
    double *ratio = calloc((size_t)rounds, sizeof *ratio), *ours = calloc((size_t)rounds, sizeof *ours);
    double *fios = calloc((size_t)rounds, sizeof *fios);
    make_file(path, bytes);
    for (int i = 0; i < rounds; i++) {
        fios[i] = fio_rate(path, depth, span);
        double cpu = cpu_seconds();
        ours[i] = ring_rate(path, bytes / BLOCK, depth, span, driver);
        cpu = (cpu_seconds() - cpu) / (ours[i] * span) * 1e6;
        ratio[i] = fios[i] > 0 ? ours[i] / fios[i] : 0;
        printf("round %d: fio io_uring %.0f/s  ring_read %.0f/s (%.2f us CPU each)  ratio %.3f\n", i, fios[i],
               ours[i], cpu, ratio[i]);
    }
    printf("median: fio %.0f/s  ring_read %.0f/s  ratio %.3f%s\n", median(fios, (size_t)rounds),
           median(ours, (size_t)rounds), median(ratio, (size_t)rounds), fios[0] > 0 ? "" : " (fio isn't installed)");
    return 0;
}

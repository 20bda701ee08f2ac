/* What the measuring programs share: a clock, random numbers, medians, and options of the form --name value.
 * Every program measures the thing and its peer in turn, in one run, and prints medians and the ratio: the machine
 * may change its speed between rounds, the ratio of neighbours changes little. */
#ifndef IOE_BENCH_H
#define IOE_BENCH_H
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

static inline double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static inline double cpu_seconds(void) {
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)u.ru_utime.tv_sec + (double)u.ru_stime.tv_sec +
           (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

/* splitmix64: one state word, every bit of the output depends on it */
static inline uint64_t mix(uint64_t x) {
    x += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

static inline int compare_doubles(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static inline double median(double *values, size_t count) {
    qsort(values, count, sizeof *values, compare_doubles);
    return count == 0 ? 0 : count % 2 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

static inline const char *option(int argc, char **argv, const char *name, const char *otherwise) {
    for (int i = 1; i + 1 < argc; i++)
        if (strcmp(argv[i], name) == 0) return argv[i + 1];
    return otherwise;
}

static inline void die(const char *what, int code, const char *detail) {
    fprintf(stderr, "%s failed: %d %s\n", what, code, detail ? detail : "");
    exit(1);
}
#endif

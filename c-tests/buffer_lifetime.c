/* Memory can't go while the kernel writes to it: unregistering waits for what is in flight, and so does close. */
#include "test.h"

enum { READS = 64 };
#define LEN (READS * 64 * KIB)

/* Whether nothing writes to the memory for a while: it keeps the canary laid into it. */
static int stays(unsigned char *memory) {
    memset(memory, 0xC5, LEN);
    struct timespec pause = {0, 100 * 1000000};
    nanosleep(&pause, NULL);
    for (size_t i = 0; i < LEN; i++)
        if (memory[i] != 0xC5) return 0;
    return 1;
}

static ring_t *start(const char *path, unsigned char *memory, int *index) {
    ring_options_t o = test_ring_options();
    o.entries = READS;
    ring_t *r = test_ring(&o);
    ioe_buffer_t buffer;
    NEED(ring_buffer_acquire(r, &buffer) == IOE_OK, "a buffer");
    *index = buffer.index;
    NEED(ring_buffer_replace(r, buffer.index, memory, LEN, 0) == IOE_OK, "our memory in its place: %s", ioe_last_error());
    int fd = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);
    if (fd < 0) fd = open(path, O_RDONLY | O_CLOEXEC);
    int slot = ring_file_set(r, IOE_SLOT_ANY, fd);
    NEED(slot >= 0, "a slot");
    close(fd);
    for (int i = 0; i < READS; i++) {
        uint64_t at = (uint64_t)i * 64 * KIB;
        NEED(ring_read(r, slot, buffer.index, at, 64 * KIB, at, 0, (uint64_t)i) == 1, "read %d", i);
    }
    NEED(ring_submit(r) >= 0, "all of them under way");
    return r;
}

int main(void) {
    char *path = test_path("large");
    int fd = test_file(path, LEN, 8), index;
    NEED(!fsync(fd), "the file on its device");
    unsigned char *memory = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    NEED(memory != MAP_FAILED, "memory");
    ring_completion_t done[READS];
    int rounds = 5, quiet = 0, complete = 0;

    for (int i = 0; i < rounds; i++) {
        ring_t *r = start(path, memory, &index);
        NEED(ring_buffer_replace(r, index, NULL, 0, 0) == IOE_OK, "unregister with reads in flight: %s", ioe_last_error());
        quiet += stays(memory);
        int have = test_gather(r, done, READS), whole = 0;
        for (int j = 0; j < have; j++) whole += done[j].result == 65536;
        complete += whole == READS;
        NEED(ring_close(r) == IOE_OK, "close");
    }
    EQUAL(quiet, rounds, "after unregistering nothing writes to the memory");
    EQUAL(complete, rounds, "and every read that was in flight completed whole");

    quiet = 0;
    for (int i = 0; i < rounds; i++) {
        ring_t *r = start(path, memory, &index);
        NEED(ring_close(r) == IOE_OK, "close with reads in flight");
        quiet += stays(memory);
    }
    EQUAL(quiet, rounds, "after close nothing writes to the memory");
    EQUAL(munmap(memory, LEN), 0, "the memory goes");
    close(fd);
    return test_finish();
}

/* Files, timers and polls through one interface and one wait. */
#include <sys/time.h>

#include "test.h"

static ring_t *r;
static ring_completion_t done[64];

static ring_op_t poll_op(int fd, int flags, uint64_t user_data) {
    ring_op_t op = {0};
    op.opcode = IOE_OPCODE_POLL;
    op.flags = (uint16_t)(IOE_OP_RAW_FD | flags);
    op.slot_or_fd = fd;
    op.events = POLLIN;
    op.user_data = user_data;
    return op;
}

static void files_and_timers(int slot, int buffer) {
    uint64_t start = now_ms();
    EQUAL(ring_timeout(r, 150000, 30), 1, "a timer of 150 ms");
    EQUAL(ring_timeout(r, 20000, 10), 1, "a timer of 20 ms");
    EQUAL(ring_timeout(r, 80000, 20), 1, "a timer of 80 ms");
    EQUAL(ring_read(r, slot, buffer, 0, 4096, 0, 0, 1), 1, "a read of a file");
    EQUAL(test_gather(r, done, 4), 4, "one wait serves them all");
    EQUAL(test_result(done, 4, 1), 4096, "the read");
    uint64_t order[3], timers = 0;
    for (int i = 0; i < 4; i++) {
        if (done[i].user_data == 1) continue;
        EQUAL(done[i].result, -ETIME, "a timer ends with ETIME");
        if (timers < 3) order[timers++] = done[i].user_data;
    }
    CHECK(timers == 3 && order[0] == 10 && order[1] == 20 && order[2] == 30, "the timers come by their time");
    CHECK(now_ms() - start >= 149, "and not before its time");
}

static void cancelling(void) {
    EQUAL(ring_timeout(r, 60000000, 5), 1, "a timer of a minute");
    EQUAL(ring_timeout(r, 60000000, 5), 1, "another with the same value");
    EQUAL(ring_timeout(r, 60000000, 6), 1, "and one with its own");
    CHECK(ring_submit(r) >= 0, "submitted");
    CHECK(ring_cancel(r, 5) >= 0, "what has the value is cancelled");
    EQUAL(test_gather(r, done, 2), 2, "both still complete");
    CHECK(done[0].user_data == 5 && done[1].user_data == 5, "with their values");
    CHECK(done[0].result == -ECANCELED || done[0].result == IOE_E_CANCELLED, "cancelled, %d", done[0].result);
    EQUAL(ring_wait(r, 1, 50), 0, "the cancel itself doesn't complete, and the third is left alone");
    CHECK(ring_cancel(r, 6) >= 0, "it goes too");
    EQUAL(test_gather(r, done, 1), 1, "and completes");
    EQUAL(done[0].user_data, 6, "with its value");
}

static void polls(void) {
    int pipes[2];
    NEED(!pipe2(pipes, O_CLOEXEC), "a pipe");
    ring_op_t op = poll_op(pipes[0], 0, 1);
    EQUAL(ring_queue(r, &op, 1), 1, "a poll of an empty pipe");
    EQUAL(ring_wait(r, 1, 50), 0, "isn't ready");
    NEED(write(pipes[1], "x", 1) == 1, "a byte");
    EQUAL(test_gather(r, done, 1), 1, "it completes when there is something");
    CHECK(done[0].result > 0 && (done[0].result & POLLIN), "with what is ready, %d", done[0].result);
    char byte;
    NEED(read(pipes[0], &byte, 1) == 1, "the byte");

    op = poll_op(pipes[0], IOE_OP_MULTISHOT, 2);
    EQUAL(ring_queue(r, &op, 1), 1, "a poll of many shots");
    for (int i = 0; i < 3; i++) {
        CHECK(ring_wait(r, 1, 20) == 0, "nothing yet");
        NEED(write(pipes[1], "x", 1) == 1, "a byte");
        EQUAL(test_gather(r, done, 1), 1, "a shot");
        CHECK(done[0].user_data == 2 && (done[0].flags & IOE_CQE_MORE), "more will come");
        NEED(read(pipes[0], &byte, 1) == 1, "the byte");
    }
    CHECK(ring_cancel(r, 2) >= 0, "it is cancelled");
    EQUAL(test_gather(r, done, 1), 1, "the last completion");
    CHECK(done[0].user_data == 2 && !(done[0].flags & IOE_CQE_MORE) && done[0].result < 0, "says that no more come");

    ring_op_t slow[2] = {poll_op(pipes[0], IOE_OP_LINK, 3), {0}};
    slow[1].opcode = IOE_OPCODE_LINK_TIMEOUT;
    slow[1].timeout_us = 30000;
    slow[1].user_data = 4;
    EQUAL(ring_queue(r, slow, 2), 2, "a poll that may take 30 ms");
    EQUAL(test_gather(r, done, 2), 2, "both end");
    EQUAL(test_result(done, 2, 3), -ECANCELED, "the poll cancelled");
    EQUAL(test_result(done, 2, 4), -ETIME, "by its time limit");
    NEED(write(pipes[1], "x", 1) == 1, "a byte");
    EQUAL(ring_queue(r, slow, 2), 2, "the same when there is something");
    EQUAL(test_gather(r, done, 2), 2, "both end");
    CHECK(test_result(done, 2, 3) > 0, "the poll with its events");
    EQUAL(test_result(done, 2, 4), -ECANCELED, "the time limit unused");
    close(pipes[0]);
    close(pipes[1]);
}

static void waiting(void) {
    uint64_t start = now_ms();
    EQUAL(ring_wait(r, 1, 0), 0, "a wait without time returns at once");
    CHECK(now_ms() - start < 1000, "at once");
    start = now_ms();
    EQUAL(ring_wait(r, 1, 60), 0, "a wait with time returns with nothing");
    CHECK(now_ms() - start >= 59, "after its time");
    for (int i = 0; i < 5; i++) EQUAL(ring_timeout(r, 1000, (uint64_t)i), 1, "a timer");
    CHECK(ring_wait(r, 5, 10000) >= 5, "a wait for five returns when five are ready");
    EQUAL(ring_reap(r, done, 64), 5, "and they are there");
}

static void on_alarm(int signal) { (void)signal; }

/* A signal ends a wait: with what is ready, else with EINTR. */
static void interrupted(void) {
    struct sigaction action = {0}, old;
    action.sa_handler = on_alarm;
    NEED(!sigaction(SIGALRM, &action, &old), "a signal handler");
    struct itimerval soon = {{0, 20000}, {0, 20000}}, never = {{0, 0}, {0, 0}};
    NEED(!setitimer(ITIMER_REAL, &soon, NULL), "a signal soon, and again");
    EQUAL(ring_wait(r, 1, 60000), -EINTR, "a wait that is interrupted with nothing ready says so");
    EQUAL(ring_timeout(r, 1, 1), 1, "a timer");
    int ready = ring_wait(r, 2, 60000);
    while (ready == -EINTR) ready = ring_wait(r, 2, 60000); /* the signal came before the timer */
    NEED(!setitimer(ITIMER_REAL, &never, NULL), "no more signals");
    EQUAL(ready, 1, "a wait that is interrupted returns what is ready");
    EQUAL(ring_reap(r, done, 64), 1, "and it is there");
    NEED(!sigaction(SIGALRM, &old, NULL), "the old handler");
}

int main(void) {
    ring_options_t o = test_ring_options();
    r = test_ring(&o);
    ioe_buffer_t buffer;
    NEED(ring_buffer_acquire(r, &buffer) == IOE_OK, "a buffer");
    int fd = test_file(test_path("file"), 4096, 1), slot = ring_file_set(r, IOE_SLOT_ANY, fd);
    NEED(slot >= 0, "a slot");
    files_and_timers(slot, buffer.index);
    cancelling();
    polls();
    waiting();
    interrupted();
    close(fd);
    EQUAL(ring_close(r), IOE_OK, "close");
    return test_finish();
}

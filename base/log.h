/* Log lines for the host's callback. Lines from our own threads wait in a bounded ring for the
 * host's next call: we never run the host's code on a thread of ours. A full ring drops the newest
 * line and counts it.
 *
 * Holds: lines come out in order per thread; a line is at most SC_LIMIT_LOG_LINE_BYTES; of lines
 * with one limit (struct sc_log_limit) one goes out in SC_LIMIT_LOG_EVERY_NS, and says of how many.
 * Does not: allocate after init, print.
 * Threads: sc_log_write any; sc_log_drain from host threads only.
 * Tests: tests/unit/base/test_log.c */
#ifndef SC_BASE_LOG_H
#define SC_BASE_LOG_H

#include "base/alloc.h"
#include "base/limits.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Levels are the ABI's SPEC_LOG_*: 0 error, 1 warn, 2 info, 3 debug. */
struct sc_log_line {
    int32_t level;
    char text[SC_LIMIT_LOG_LINE_BYTES];
};

struct sc_log {
    /* Set by init, constant after. */
    void (*callback)(int32_t level, const char *line, void *user);
    void *user;
    int32_t level_max;

    /* Guarded by lock (rank 90: taken last, held for a copy only). */
    pthread_mutex_t lock;
    struct sc_log_line lines[SC_LIMIT_LOG_LINES];
    uint64_t head, tail;   /* lines ever handed out, ever queued */
    uint64_t dropped_told; /* of dropped, those that a line to the host has named */
    bool draining;         /* one thread at a time hands lines out, so that they keep their order */

    /* Any thread, relaxed: a statistic. */
    _Atomic uint64_t dropped;
};

/* Lines that one cause may bring by the thousand, such as a disk that is full. Zero at first. Any
 * thread. */
struct sc_log_limit {
    _Atomic uint64_t due_ns; /* none goes out before */
    _Atomic uint64_t held;   /* since the last that went out */
};

void sc_log_init(struct sc_log *log, void (*callback)(int32_t level, const char *line, void *user),
                 void *user, int32_t level_max);
void sc_log_done(struct sc_log *log);
/* Queues one line; SC_LOG is the usual spelling. Lower case, value after its name. */
void sc_log_write(struct sc_log *log, int32_t level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The same, unless one with this limit went out within SC_LIMIT_LOG_EVERY_NS: then it is only
 * counted, and the next that goes out ends with that count. now_ns: any clock that never goes back.
 * Of two threads at once either one's line may be the one. */
void sc_log_write_limited(struct sc_log *log, struct sc_log_limit *limit, uint64_t now_ns,
                          int32_t level, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
/* Hands the lines that wait now to the host's callback, on the calling (host's) thread, without the
 * lock: the callback may call us. Another thread is at it already: returns at once. */
void sc_log_drain(struct sc_log *log);

#define SC_LOG(log, level, ...) sc_log_write((log), (level), __VA_ARGS__)

#endif

/* log: lines for the host's log function. Lines of the plugin's threads wait in a ring for the
 * host's next call, because host code does not run on the plugin's threads. A full ring drops the
 * newest line and counts it.
 *
 * Invariants: each thread's lines stay in order. A line has at most SC_LIMIT_LOG_LINE_BYTES. Lines
 * with one sc_log_limit appear once per SC_LIMIT_LOG_EVERY_NS, with a count. Nothing is allocated
 * after init.
 * Threads: sc_log_write any; sc_log_drain host threads only. Tests: tests/unit/base/test_log.c */
#ifndef SC_BASE_LOG_H
#define SC_BASE_LOG_H

#include "base/alloc.h"
#include "base/limits.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* level: SPEC_LOG_* (0 error, 1 warn, 2 info, 3 debug). */
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
    uint64_t head, tail;   /* lines delivered, lines queued, since init */
    uint64_t dropped_told; /* part of `dropped` that was reported to the host */
    bool draining;         /* one thread at a time delivers lines, to keep their order */

    /* Any thread, relaxed. */
    _Atomic uint64_t dropped;
};

/* Rate limit for lines that one cause may repeat, such as a full disk. Initially zero. Any
 * thread. */
struct sc_log_limit {
    _Atomic uint64_t due_ns; /* time of the next line */
    _Atomic uint64_t held;   /* lines suppressed since the last one */
};

void sc_log_init(struct sc_log *log, void (*callback)(int32_t level, const char *line, void *user),
                 void *user, int32_t level_max);
void sc_log_done(struct sc_log *log);
/* Queues one line, usually through SC_LOG. Style: lower case, value after its name. */
void sc_log_write(struct sc_log *log, int32_t level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* As sc_log_write, unless a line with this limit appeared within SC_LIMIT_LOG_EVERY_NS. Then it is
 * only counted, and the next line ends with that count. now_ns: any monotonic clock. Either of two
 * concurrent lines may appear. */
void sc_log_write_limited(struct sc_log *log, struct sc_log_limit *limit, uint64_t now_ns,
                          int32_t level, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
/* Delivers the waiting lines to the host's function on the calling host thread, without the lock,
 * so that it may call the plugin. Returns at once if another thread is delivering. */
void sc_log_drain(struct sc_log *log);

#define SC_LOG(log, level, ...) sc_log_write((log), (level), __VA_ARGS__)

#endif

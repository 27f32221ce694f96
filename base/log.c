/* The log ring (log.h says what holds).
 *
 *   write (any thread) -> lines[tail % N] ... lines[head % N] -> drain (a host's thread) ->
 * callback
 *
 * Holds: head <= tail <= head + SC_LIMIT_LOG_LINES; the callback runs without the lock.
 * Does not: allocate, print, block longer than a copy of one line.
 * Threads: write any, drain from host threads only.
 * Tests: tests/unit/base/test_log.c */
#include "base/log.h"

#include "abi/spec_connector.h"
#include "base/assert.h"
#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void sc_log_init(struct sc_log *log, void (*callback)(int32_t level, const char *line, void *user),
                 void *user, int32_t level_max)
{
    log->callback = callback;
    log->user = user;
    log->level_max = level_max;
    pthread_mutex_init(&log->lock, NULL); /* with no attributes it cannot fail */
    log->head = 0;
    log->tail = 0;
    log->dropped_told = 0;
    log->draining = false;
    atomic_init(&log->dropped, 0);
}

void sc_log_done(struct sc_log *log)
{
    pthread_mutex_destroy(&log->lock);
}

void sc_log_write(struct sc_log *log, int32_t level, const char *format, ...)
{
    if (log->callback == NULL || level > log->level_max)
        return;
    struct sc_log_line line = {.level = level};
    va_list args;
    va_start(args, format);
    int wanted = vsnprintf(line.text, sizeof(line.text), format, args);
    va_end(args);
    sc_status_text_finish(line.text, sizeof(line.text), wanted);

    pthread_mutex_lock(&log->lock);
    bool is_full = log->tail - log->head >= SC_LIMIT_LOG_LINES;
    if (!is_full)
        log->lines[log->tail++ % SC_LIMIT_LOG_LINES] = line;
    pthread_mutex_unlock(&log->lock);
    if (is_full)
        atomic_fetch_add_explicit(&log->dropped, 1, memory_order_relaxed);
}

/* Takes the drain for this thread; the lines up to *ret_end are its work. */
static bool drain_begin(struct sc_log *log, uint64_t *ret_end, uint64_t *ret_dropped_new)
{
    pthread_mutex_lock(&log->lock);
    uint64_t dropped = atomic_load_explicit(&log->dropped, memory_order_relaxed);
    bool is_taken = !log->draining && (log->head != log->tail || dropped != log->dropped_told);
    if (is_taken) {
        SC_ASSERT(NULL, log->tail - log->head <= SC_LIMIT_LOG_LINES);
        log->draining = true;
        *ret_end = log->tail;
        *ret_dropped_new = dropped - log->dropped_told;
        log->dropped_told = dropped;
    }
    pthread_mutex_unlock(&log->lock);
    return is_taken;
}

/* Copies the next line out, or ends the drain when there is none below end. */
static bool drain_next(struct sc_log *log, uint64_t end, struct sc_log_line *ret_line)
{
    pthread_mutex_lock(&log->lock);
    bool has_line = log->head < end;
    if (has_line)
        *ret_line = log->lines[log->head++ % SC_LIMIT_LOG_LINES];
    else
        log->draining = false;
    pthread_mutex_unlock(&log->lock);
    return has_line;
}

void sc_log_drain(struct sc_log *log)
{
    uint64_t end, dropped_new;
    if (log->callback == NULL || !drain_begin(log, &end, &dropped_new))
        return;
    struct sc_log_line line;
    while (drain_next(log, end, &line))
        log->callback(line.level, line.text, log->user);
    if (dropped_new > 0 && log->level_max >= SPEC_LOG_WARN) {
        snprintf(line.text, sizeof(line.text), "log lines dropped %" PRIu64, dropped_new);
        log->callback(SPEC_LOG_WARN, line.text, log->user);
    }
}

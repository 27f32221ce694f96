/* log: the ring.
 *
 *   write (any thread) -> lines[tail % N] ... lines[head % N] -> drain (a host's) -> callback
 *
 * Invariants: head <= tail <= head + SC_LIMIT_LOG_LINES. */
#include "base/log.h"

#include "abi/spec_connector.h"
#include "base/assert.h"
#include "base/counter.h"
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
    pthread_mutex_init(&log->lock, NULL); /* cannot fail without attributes */
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

/* Queues a line that ends with `tail`; a long text is cut, the tail is not. */
__attribute__((format(printf, 4, 0))) static void
line_queue(struct sc_log *log, int32_t level, const char *tail, const char *format, va_list args)
{
    struct sc_log_line line = {.level = level};
    size_t room = sizeof(line.text) - strlen(tail);
    int wanted = vsnprintf(line.text, room, format, args);
    sc_status_text_finish(line.text, room, wanted);
    strcat(line.text, tail);

    pthread_mutex_lock(&log->lock);
    bool is_full = log->tail - log->head >= SC_LIMIT_LOG_LINES;
    if (!is_full)
        log->lines[log->tail++ % SC_LIMIT_LOG_LINES] = line;
    pthread_mutex_unlock(&log->lock);
    if (is_full)
        sc_count(&log->dropped, 1);
}

static bool is_heard(const struct sc_log *log, int32_t level)
{
    return log->callback != NULL && level <= log->level_max;
}

void sc_log_write(struct sc_log *log, int32_t level, const char *format, ...)
{
    if (!is_heard(log, level))
        return;
    va_list args;
    va_start(args, format);
    line_queue(log, level, "", format, args);
    va_end(args);
}

/* Returns true if a line may appear now; it reports ret_held suppressed ones. */
static bool limit_passes(struct sc_log_limit *limit, uint64_t now_ns, uint64_t *ret_held)
{
    uint64_t due_ns = atomic_load_explicit(&limit->due_ns, memory_order_relaxed);
    bool passes = now_ns >= due_ns && atomic_compare_exchange_strong_explicit(
                                          &limit->due_ns, &due_ns, now_ns + SC_LIMIT_LOG_EVERY_NS,
                                          memory_order_relaxed, memory_order_relaxed);
    if (passes)
        *ret_held = atomic_exchange_explicit(&limit->held, 0, memory_order_relaxed);
    else
        sc_count(&limit->held, 1);
    return passes;
}

void sc_log_write_limited(struct sc_log *log, struct sc_log_limit *limit, uint64_t now_ns,
                          int32_t level, const char *format, ...)
{
    uint64_t held;
    if (!is_heard(log, level) || !limit_passes(limit, now_ns, &held))
        return;
    char tail[48] = "";
    if (held > 0)
        snprintf(tail, sizeof(tail), " (and %" PRIu64 " before it)", held);
    va_list args;
    va_start(args, format);
    line_queue(log, level, tail, format, args);
    va_end(args);
}

/* Claims the drain for this thread, for lines up to *ret_end. */
static bool drain_begin(struct sc_log *log, uint64_t *ret_end, uint64_t *ret_dropped_new)
{
    pthread_mutex_lock(&log->lock);
    uint64_t dropped = sc_counted(&log->dropped);
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

/* Copies the next line, or ends the drain if there is none below end. */
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

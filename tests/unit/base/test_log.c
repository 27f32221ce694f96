/* The log ring: order, bounds, and that the host's code runs only inside its own call.
 *
 * Holds: the callback asserts that it runs on the draining thread.
 * Threads: four writers in one test, else one. */
#include "base/log.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct sink {
    struct sc_log log;
    pthread_t host;
    uint64_t count;
    uint64_t reentries; /* drains from inside the callback */
    int32_t levels[300];
    char lines[300][SC_LIMIT_LOG_LINE_BYTES];
};

static void on_line(int32_t level, const char *line, void *user)
{
    struct sink *sink = user;
    assert_true(pthread_equal(pthread_self(), sink->host));
    assert_true(sink->count < 300);
    sink->levels[sink->count] = level;
    snprintf(sink->lines[sink->count++], SC_LIMIT_LOG_LINE_BYTES, "%s", line);
    if (sink->reentries > 0) {
        sink->reentries--;
        sc_log_drain(&sink->log);
    }
}

static int sink_make(void **state)
{
    struct sink *sink = calloc(1, sizeof(*sink));
    if (sink == NULL)
        return -1;
    sink->host = pthread_self();
    sc_log_init(&sink->log, on_line, sink, 2);
    *state = sink;
    return 0;
}

static int sink_free(void **state)
{
    struct sink *sink = *state;
    sc_log_done(&sink->log);
    free(sink);
    return 0;
}

static void lines_wait_for_the_drain_and_keep_their_order(void **state)
{
    struct sink *sink = *state;
    SC_LOG(&sink->log, 0, "first %d", 1);
    SC_LOG(&sink->log, 2, "second %s", "two");
    assert_int_equal(sink->count, 0);
    sc_log_drain(&sink->log);
    assert_int_equal(sink->count, 2);
    assert_string_equal(sink->lines[0], "first 1");
    assert_string_equal(sink->lines[1], "second two");
    assert_int_equal(sink->levels[0], 0);
    assert_int_equal(sink->levels[1], 2);
    sc_log_drain(&sink->log);
    assert_int_equal(sink->count, 2);
}

static void lines_above_the_level_are_not_made(void **state)
{
    struct sink *sink = *state;
    SC_LOG(&sink->log, 3, "debug");
    sc_log_drain(&sink->log);
    assert_int_equal(sink->count, 0);
    assert_int_equal(atomic_load(&sink->log.dropped), 0);
}

static void a_long_line_is_cut_and_control_characters_are_blanks(void **state)
{
    struct sink *sink = *state;
    char text[1000];
    memset(text, 'x', sizeof(text));
    text[sizeof(text) - 1] = '\0';
    text[3] = '\n';
    SC_LOG(&sink->log, 1, "%s", text);
    sc_log_drain(&sink->log);
    assert_int_equal(strlen(sink->lines[0]), SC_LIMIT_LOG_LINE_BYTES - 1);
    assert_memory_equal(sink->lines[0], "xxx xx", 6);
}

static void a_full_ring_drops_the_newest_counts_and_says_so_once(void **state)
{
    struct sink *sink = *state;
    for (int i = 0; i < SC_LIMIT_LOG_LINES + 5; i++)
        SC_LOG(&sink->log, 1, "line %d", i);
    assert_int_equal(atomic_load(&sink->log.dropped), 5);
    sc_log_drain(&sink->log);
    assert_int_equal(sink->count, SC_LIMIT_LOG_LINES + 1);
    assert_string_equal(sink->lines[0], "line 0");
    assert_string_equal(sink->lines[SC_LIMIT_LOG_LINES - 1], "line 127");
    assert_string_equal(sink->lines[SC_LIMIT_LOG_LINES], "log lines dropped 5");
    SC_LOG(&sink->log, 1, "after");
    sc_log_drain(&sink->log);
    assert_int_equal(sink->count, SC_LIMIT_LOG_LINES + 2);
    assert_string_equal(sink->lines[SC_LIMIT_LOG_LINES + 1], "after");
}

static void a_callback_may_call_back(void **state)
{
    struct sink *sink = *state;
    sink->reentries = 10;
    SC_LOG(&sink->log, 1, "a");
    SC_LOG(&sink->log, 1, "b");
    sc_log_drain(&sink->log);
    assert_int_equal(sink->count, 2);
    assert_string_equal(sink->lines[0], "a");
    assert_string_equal(sink->lines[1], "b");
}

static void without_a_callback_nothing_is_kept(void **state)
{
    (void)state;
    struct sc_log *log = calloc(1, sizeof(*log));
    assert_non_null(log);
    sc_log_init(log, NULL, NULL, 3);
    for (int i = 0; i < SC_LIMIT_LOG_LINES * 2; i++)
        SC_LOG(log, 0, "line");
    sc_log_drain(log);
    assert_int_equal(log->tail, 0);
    assert_int_equal(atomic_load(&log->dropped), 0);
    sc_log_done(log);
    free(log);
}

static void a_limit_lets_one_line_in_a_while_out_that_counts_the_others(void **state)
{
    struct sink *sink = *state;
    struct sc_log_limit limit = {0}, other = {0};
    char text[300];
    memset(text, 'x', sizeof(text));
    text[sizeof(text) - 1] = '\0';
    uint64_t start_ns = 5;
    for (int i = 0; i < 1000; i++)
        sc_log_write_limited(&sink->log, &limit, start_ns + (uint64_t)i, 1, "line %d", i);
    sc_log_write_limited(&sink->log, &other, start_ns, 1, "another");
    sc_log_write_limited(&sink->log, &other, start_ns, 3, "not heard, not counted");
    uint64_t due_ns = start_ns + SC_LIMIT_LOG_EVERY_NS;
    sc_log_write_limited(&sink->log, &limit, due_ns - 1, 1, "early");
    sc_log_write_limited(&sink->log, &limit, due_ns, 1, "%s", text);
    sc_log_write_limited(&sink->log, &limit, due_ns + SC_LIMIT_LOG_EVERY_NS, 1, "last");
    sc_log_write_limited(&sink->log, &other, due_ns, 1, "another");
    sc_log_drain(&sink->log);
    assert_int_equal(sink->count, 5);
    assert_string_equal(sink->lines[0], "line 0");
    assert_string_equal(sink->lines[1], "another");
    const char *tail = "x (and 1000 before it)";
    assert_int_equal(strlen(sink->lines[2]), SC_LIMIT_LOG_LINE_BYTES - 1);
    assert_string_equal(sink->lines[2] + strlen(sink->lines[2]) - strlen(tail), tail);
    assert_string_equal(sink->lines[3], "last");
    assert_string_equal(sink->lines[4], "another");
}

struct limited {
    struct sink *sink;
    struct sc_log_limit limit;
};

static void *write_limited(void *argument)
{
    struct limited *limited = argument;
    for (uint64_t i = 0; i < 50; i++)
        sc_log_write_limited(&limited->sink->log, &limited->limit, i * SC_LIMIT_LOG_EVERY_NS / 4, 1,
                             "line");
    return NULL;
}

/* Every line went out or was counted, once. */
static void limits_count_right_beside_each_other(void **state)
{
    struct sink *sink = *state;
    struct limited limited = {.sink = sink};
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, write_limited, &limited), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    sc_log_drain(&sink->log);
    uint64_t told = atomic_load(&limited.limit.held);
    for (uint64_t i = 0; i < sink->count; i++) {
        const char *count = strstr(sink->lines[i], "(and ");
        told += 1 + (count != NULL ? strtoull(count + 5, NULL, 10) : 0);
    }
    assert_int_equal(told, 200);
    assert_in_range(sink->count, 1, 13); /* a due time passes 13 times */
}

static void *write_lines(void *argument)
{
    static _Atomic int next_name;
    struct sink *sink = argument;
    int name = atomic_fetch_add(&next_name, 1);
    for (int i = 0; i < 60; i++)
        SC_LOG(&sink->log, 1, "%d %d", name, i);
    return NULL;
}

static void lines_of_four_threads_come_in_each_ones_order(void **state)
{
    struct sink *sink = *state;
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, write_lines, sink), 0);
    for (int i = 0; i < 100; i++)
        sc_log_drain(&sink->log);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    sc_log_drain(&sink->log);
    int last[4] = {-1, -1, -1, -1};
    uint64_t lines = 0;
    for (uint64_t i = 0; i < sink->count; i++) {
        int name, number;
        if (sscanf(sink->lines[i], "%d %d", &name, &number) != 2)
            continue; /* a line about dropped ones */
        assert_in_range(name, 0, 3);
        assert_true(number > last[name]);
        last[name] = number;
        lines++;
    }
    assert_int_equal(lines + atomic_load(&sink->log.dropped), 4 * 60);
}

int main(void)
{
#define SINK_TEST(test) cmocka_unit_test_setup_teardown(test, sink_make, sink_free)
    const struct CMUnitTest tests[] = {
        SINK_TEST(lines_wait_for_the_drain_and_keep_their_order),
        SINK_TEST(lines_above_the_level_are_not_made),
        SINK_TEST(a_long_line_is_cut_and_control_characters_are_blanks),
        SINK_TEST(a_full_ring_drops_the_newest_counts_and_says_so_once),
        SINK_TEST(a_callback_may_call_back),
        cmocka_unit_test(without_a_callback_nothing_is_kept),
        SINK_TEST(a_limit_lets_one_line_in_a_while_out_that_counts_the_others),
        SINK_TEST(limits_count_right_beside_each_other),
        SINK_TEST(lines_of_four_threads_come_in_each_ones_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Estimates as words of the log: what was written is read, anything else is refused; and what is
 * agreed on, which is read whole beside one who changes it.
 *
 * Threads: one, and one that changes beside it. */
#include "plugin/load_or_compute/estimate_record.h"

#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define KIND  2u
#define WORDS SC_PLUGIN_ESTIMATE_NOTE_WORDS

static struct sc_plugin_estimate_note note_make(double x)
{
    struct sc_plugin_estimate estimate = {.token_ns = x,
                                          .position_ns = x / 3,
                                          .byte_ns = x + 1,
                                          .row_bytes = {x * 2, x * 3},
                                          .host_ns = {x + 2, 0},
                                          .pass_tokens = 512,
                                          .is_apart = true};
    return (struct sc_plugin_estimate_note){
        .from_ns = (uint64_t)x + (UINT64_C(1) << 60), .layers = 36, .next = estimate};
}

static bool is_same(const struct sc_plugin_estimate_note *a,
                    const struct sc_plugin_estimate_note *b)
{
    uint64_t x[2 * SC_PLUGIN_ESTIMATE_WORDS], y[2 * SC_PLUGIN_ESTIMATE_WORDS];
    sc_plugin_estimate_encode(&a->next, x);
    sc_plugin_estimate_encode(&a->before, x + SC_PLUGIN_ESTIMATE_WORDS);
    sc_plugin_estimate_encode(&b->next, y);
    sc_plugin_estimate_encode(&b->before, y + SC_PLUGIN_ESTIMATE_WORDS);
    return a->from_ns == b->from_ns && a->layers == b->layers && memcmp(x, y, sizeof(x)) == 0;
}

static void words_say_what_was_noted(void **state)
{
    (void)state;
    uint16_t words[WORDS];
    struct sc_plugin_estimate_note note = note_make(12345.678), read;
    for (uint32_t i = 0; i < 3; i++) {
        sc_plugin_estimate_note_encode(&note, KIND, words);
        assert_int_equal(words[0] >> 8, KIND);
        assert_true(sc_plugin_estimate_note_decode(words, WORDS, &read));
        assert_true(is_same(&note, &read));
        note.before = note.next;
        note.next = (struct sc_plugin_estimate){.byte_ns = i};
    }
}

static void put(uint16_t *words, uint32_t i, double value) /* the i-th number behind the time */
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof(bits));
    for (uint32_t j = 0; j < 4; j++)
        words[6 + 4 * i + j] = (uint16_t)(bits >> 16 * j);
}

/* Of a log that somebody made: nothing is believed that no measure gives. */
static void words_that_are_no_estimate_are_refused(void **state)
{
    (void)state;
    static const double WRONG[] = {-1, -1e-300, 1.0001e15, 1e300, INFINITY, -INFINITY, NAN};
    uint16_t words[WORDS + 4] = {0}, wrong[WORDS + 4];
    struct sc_plugin_estimate_note note = note_make(77), read = note_make(5), was = read;
    note.before = note.next;
    sc_plugin_estimate_note_encode(&note, KIND, words);
    for (uint64_t count = 0; count < WORDS + 4; count++)
        assert_true(count == WORDS || !sc_plugin_estimate_note_decode(words, count, &read));
    for (uint32_t i = 0; i < 2 * SC_PLUGIN_ESTIMATE_WORDS; i++)
        for (uint32_t k = 0; k < sizeof(WRONG) / sizeof(WRONG[0]); k++) {
            memcpy(wrong, words, sizeof(words));
            put(wrong, i, WRONG[k]);
            assert_false(sc_plugin_estimate_note_decode(wrong, WORDS, &read));
        }
    for (uint32_t i = 0; i < 2; i++) { /* a flag is one or none */
        memcpy(wrong, words, sizeof(words));
        wrong[6 + 4 * (9 * i + 8)] = 2;
        assert_false(sc_plugin_estimate_note_decode(wrong, WORDS, &read));
    }
    static const uint16_t LAYERS[] = {0, 1025, UINT16_MAX};
    for (uint32_t i = 0; i < 3; i++) {
        memcpy(wrong, words, sizeof(words));
        wrong[1] = LAYERS[i];
        assert_false(sc_plugin_estimate_note_decode(wrong, WORDS, &read));
    }
    memcpy(wrong, words, sizeof(words));
    wrong[0] ^= 2; /* another form */
    assert_false(sc_plugin_estimate_note_decode(wrong, WORDS, &read));
    assert_true(is_same(&read, &was)); /* untouched */
    assert_true(sc_plugin_estimate_note_decode(words, WORDS, &read));
}

static void *change(void *user)
{
    for (uint32_t i = 1; i <= 20000; i++) {
        struct sc_plugin_estimate_note note = note_make(i);
        note.before = note.next;
        sc_plugin_agreed_set(user, &note);
    }
    return NULL;
}

static void what_is_agreed_on_is_read_whole(void **state)
{
    (void)state;
    static struct sc_plugin_agreed agreed;
    struct sc_plugin_estimate_note read;
    assert_false(sc_plugin_agreed_get(&agreed, &read));
    assert_int_equal(read.layers, 0);
    assert_true(read.from_ns == 0 && read.next.token_ns == 0 && read.before.token_ns == 0);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, change, &agreed), 0);
    for (double last = 0; last < 20000;) {
        if (!sc_plugin_agreed_get(&agreed, &read))
            continue; /* it has not begun, or is at it all the time */
        struct sc_plugin_estimate_note whole = note_make(read.next.token_ns);
        whole.before = whole.next;
        assert_true(is_same(&read, &whole));
        assert_true(read.next.token_ns >= last);
        last = read.next.token_ns;
    }
    assert_int_equal(pthread_join(thread, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_say_what_was_noted),
        cmocka_unit_test(words_that_are_no_estimate_are_refused),
        cmocka_unit_test(what_is_agreed_on_is_read_whole),
    };
    return cmocka_run_group_tests_name("plugin_fill_note", tests, NULL, NULL);
}

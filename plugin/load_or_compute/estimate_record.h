/* An estimate as a note in the log of rank 0, and as the other processes of the store have it.
 *
 *   rank 0's writer --words--> log --words--> all ranks, and readers
 *   words    [kind, form][layers] then u64s: [from][estimate from then on][estimate before]
 *   agreed   the last such note, twice in memory: one is read while the other is written
 *
 * A note says which estimate counts from a moment on, a little later than it was written, and which
 * one until then. So whoever has read the last note knows both, and all of them take up the new one
 * at the same moment.
 *
 * Holds: words that are not exactly such, or of no estimate (a number that is not finite, negative,
 * or of no size that a measure has), are refused; a note is read whole, or not at all.
 * Does not: look at a clock, write (load_or_compute.c).
 * Threads: set: one at a time; get: any, beside it; the rest: any.
 * Tests: tests/unit/plugin/test_estimate_record.c */
#ifndef SC_PLUGIN_LOAD_OR_COMPUTE_ESTIMATE_RECORD_H
#define SC_PLUGIN_LOAD_OR_COMPUTE_ESTIMATE_RECORD_H

#include "plugin/load_or_compute/split.h"

#include <stdatomic.h>

/* An estimate as numbers, one by one. */
#define SC_PLUGIN_ESTIMATE_WORDS 9u
void sc_plugin_estimate_encode(const struct sc_plugin_estimate *estimate,
                               uint64_t ret_words[SC_PLUGIN_ESTIMATE_WORDS]);
/* Of words that were encoded. */
struct sc_plugin_estimate sc_plugin_estimate_decode(const uint64_t words[SC_PLUGIN_ESTIMATE_WORDS]);

struct sc_plugin_estimate_note {
    uint64_t from_ns; /* the log's: wall clock; agreed's: whoever sets it */
    uint64_t layers;  /* of the rank that measured */
    struct sc_plugin_estimate next, before;
};

#define SC_PLUGIN_ESTIMATE_NOTE_LONGS (2u + 2u * SC_PLUGIN_ESTIMATE_WORDS)
#define SC_PLUGIN_ESTIMATE_NOTE_WORDS (2u + 4u * (1u + 2u * SC_PLUGIN_ESTIMATE_WORDS))

/* kind: the note's, high byte of the first word. */
void sc_plugin_estimate_note_encode(const struct sc_plugin_estimate_note *note, uint32_t kind,
                                    uint16_t ret_words[SC_PLUGIN_ESTIMATE_NOTE_WORDS]);
bool sc_plugin_estimate_note_decode(const uint16_t *words, uint64_t count,
                                    struct sc_plugin_estimate_note *ret_note);

struct sc_plugin_agreed {
    _Atomic uint64_t serial; /* notes so far; the last is in slots[serial % 2] */
    _Atomic uint64_t slots[2][SC_PLUGIN_ESTIMATE_NOTE_LONGS];
};

void sc_plugin_agreed_set(struct sc_plugin_agreed *agreed,
                          const struct sc_plugin_estimate_note *note);
/* false: there is none yet; *ret_note is all 0. */
bool sc_plugin_agreed_get(const struct sc_plugin_agreed *agreed,
                          struct sc_plugin_estimate_note *ret_note);

#endif

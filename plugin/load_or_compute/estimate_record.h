/* estimate_record: an estimate as a note in rank 0's log, and as other processes of the store hold
 * it.
 *
 *   rank 0's writer --words--> log --words--> all ranks, and readers
 *   words    [kind, form][layers] then u64s: [from][estimate from then on][estimate before]
 *   agreed   the last note, in one of two slots: one is read while the other is written
 *
 * A note holds two estimates: one valid from a moment shortly after its writing, one until then. So
 * all processes that read the last note switch at the same moment.
 *
 * Invariants: malformed words and impossible numbers (not finite, negative, too large) are refused.
 * A note is read whole or not at all.
 * Threads: set: one at a time; get: any, beside it; the rest: any.
 * Tests: tests/unit/plugin/test_estimate_record.c */
#ifndef SC_PLUGIN_LOAD_OR_COMPUTE_ESTIMATE_RECORD_H
#define SC_PLUGIN_LOAD_OR_COMPUTE_ESTIMATE_RECORD_H

#include "plugin/load_or_compute/split.h"

#include <stdatomic.h>

/* An estimate as numbers. */
#define SC_PLUGIN_ESTIMATE_WORDS 9u
void sc_plugin_estimate_encode(const struct sc_plugin_estimate *estimate,
                               uint64_t ret_words[SC_PLUGIN_ESTIMATE_WORDS]);
struct sc_plugin_estimate sc_plugin_estimate_decode(const uint64_t words[SC_PLUGIN_ESTIMATE_WORDS]);

struct sc_plugin_estimate_note {
    uint64_t from_ns; /* log: wall clock; agreed: the setter's clock */
    uint64_t layers;  /* of the rank that measured */
    struct sc_plugin_estimate next, before;
};

#define SC_PLUGIN_ESTIMATE_NOTE_LONGS (2u + 2u * SC_PLUGIN_ESTIMATE_WORDS)
#define SC_PLUGIN_ESTIMATE_NOTE_WORDS (2u + 4u * (1u + 2u * SC_PLUGIN_ESTIMATE_WORDS))

/* `kind`: high byte of the first word. */
void sc_plugin_estimate_note_encode(const struct sc_plugin_estimate_note *note, uint32_t kind,
                                    uint16_t ret_words[SC_PLUGIN_ESTIMATE_NOTE_WORDS]);
bool sc_plugin_estimate_note_decode(const uint16_t *words, uint64_t count,
                                    struct sc_plugin_estimate_note *ret_note);

struct sc_plugin_agreed {
    _Atomic uint64_t serial; /* notes so far; the last is slots[serial % 2] */
    _Atomic uint64_t slots[2][SC_PLUGIN_ESTIMATE_NOTE_LONGS];
};

void sc_plugin_agreed_set(struct sc_plugin_agreed *agreed,
                          const struct sc_plugin_estimate_note *note);
/* Returns false and zeros if there is none yet, or notes follow each other too fast. */
bool sc_plugin_agreed_get(const struct sc_plugin_agreed *agreed,
                          struct sc_plugin_estimate_note *ret_note);

#endif

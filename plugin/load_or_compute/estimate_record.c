/* estimate_record: estimates in the log and among processes. Contract: estimate_record.h. */
#include "plugin/load_or_compute/estimate_record.h"

#include "base/limits.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

#define FORM       1u   /* format version of the words */
#define NUMBER_MAX 1e15 /* bound of any measure; 1e15 ns are eleven days */
#define FORM_WORDS 2u
#define NUMBERS    (SC_PLUGIN_ESTIMATE_WORDS - 1)
#define READS_MOST 64u /* a note arrives every few seconds */

_Static_assert(offsetof(struct sc_plugin_estimate, is_apart) == NUMBERS * sizeof(uint64_t),
               "numbers, and a flag behind them");

void sc_plugin_estimate_encode(const struct sc_plugin_estimate *estimate,
                               uint64_t ret_words[SC_PLUGIN_ESTIMATE_WORDS])
{
    memcpy(ret_words, estimate, NUMBERS * sizeof(*ret_words));
    ret_words[NUMBERS] = estimate->is_apart;
}

struct sc_plugin_estimate sc_plugin_estimate_decode(const uint64_t words[SC_PLUGIN_ESTIMATE_WORDS])
{
    struct sc_plugin_estimate estimate = {.is_apart = words[NUMBERS] != 0};
    memcpy(&estimate, words, NUMBERS * sizeof(*words));
    return estimate;
}

static bool estimate_is_one(const uint64_t words[SC_PLUGIN_ESTIMATE_WORDS])
{
    bool is_one = words[NUMBERS] <= 1;
    for (uint32_t i = 0; i < NUMBERS; i++) {
        double number;
        memcpy(&number, &words[i], sizeof(number));
        is_one = is_one && number >= 0 && number <= NUMBER_MAX; /* false for NaN */
    }
    return is_one;
}

static void longs_of(const struct sc_plugin_estimate_note *note,
                     uint64_t ret_longs[SC_PLUGIN_ESTIMATE_NOTE_LONGS])
{
    ret_longs[0] = note->layers;
    ret_longs[1] = note->from_ns;
    sc_plugin_estimate_encode(&note->next, ret_longs + 2);
    sc_plugin_estimate_encode(&note->before, ret_longs + 2 + SC_PLUGIN_ESTIMATE_WORDS);
}

static struct sc_plugin_estimate_note note_of(const uint64_t longs[SC_PLUGIN_ESTIMATE_NOTE_LONGS])
{
    return (struct sc_plugin_estimate_note){
        .layers = longs[0],
        .from_ns = longs[1],
        .next = sc_plugin_estimate_decode(longs + 2),
        .before = sc_plugin_estimate_decode(longs + 2 + SC_PLUGIN_ESTIMATE_WORDS)};
}

void sc_plugin_estimate_note_encode(const struct sc_plugin_estimate_note *note, uint32_t kind,
                                    uint16_t ret_words[SC_PLUGIN_ESTIMATE_NOTE_WORDS])
{
    uint64_t longs[SC_PLUGIN_ESTIMATE_NOTE_LONGS];
    longs_of(note, longs);
    *ret_words++ = (uint16_t)(kind << 8 | FORM);
    *ret_words++ = (uint16_t)note->layers;
    for (uint32_t i = 1; i < SC_PLUGIN_ESTIMATE_NOTE_LONGS; i++)
        for (uint32_t shift = 0; shift < 64; shift += 16)
            *ret_words++ = (uint16_t)(longs[i] >> shift);
}

bool sc_plugin_estimate_note_decode(const uint16_t *words, uint64_t count,
                                    struct sc_plugin_estimate_note *ret_note)
{
    uint64_t longs[SC_PLUGIN_ESTIMATE_NOTE_LONGS] = {0};
    if (count != SC_PLUGIN_ESTIMATE_NOTE_WORDS || (words[0] & 0xff) != FORM || words[1] == 0 ||
        words[1] > SC_LIMIT_LAYERS)
        return false;
    longs[0] = words[1];
    for (uint32_t i = 0; i < count - FORM_WORDS; i++)
        longs[1 + i / 4] |= (uint64_t)words[FORM_WORDS + i] << 16 * (i % 4);
    if (!estimate_is_one(longs + 2) || !estimate_is_one(longs + 2 + SC_PLUGIN_ESTIMATE_WORDS))
        return false;
    *ret_note = note_of(longs);
    return true;
}

/* A slot's stores are released one by one. A reader that sees one of them also sees the previous
 * note's serial, and so detects that its slot is being overwritten. */
void sc_plugin_agreed_set(struct sc_plugin_agreed *agreed,
                          const struct sc_plugin_estimate_note *note)
{
    uint64_t serial = atomic_load_explicit(&agreed->serial, memory_order_relaxed) + 1;
    uint64_t longs[SC_PLUGIN_ESTIMATE_NOTE_LONGS];
    longs_of(note, longs);
    for (uint32_t i = 0; i < SC_PLUGIN_ESTIMATE_NOTE_LONGS; i++)
        atomic_store_explicit(&agreed->slots[serial % 2][i], longs[i], memory_order_release);
    atomic_store_explicit(&agreed->serial, serial, memory_order_release);
}

bool sc_plugin_agreed_get(const struct sc_plugin_agreed *agreed,
                          struct sc_plugin_estimate_note *ret_note)
{
    uint64_t serial = atomic_load_explicit(&agreed->serial, memory_order_acquire);
    *ret_note = (struct sc_plugin_estimate_note){0};
    for (uint32_t reads = 0; serial > 0 && reads < READS_MOST; reads++) {
        uint64_t longs[SC_PLUGIN_ESTIMATE_NOTE_LONGS], last = serial;
        for (uint32_t i = 0; i < SC_PLUGIN_ESTIMATE_NOTE_LONGS; i++)
            longs[i] = atomic_load_explicit(&agreed->slots[serial % 2][i], memory_order_acquire);
        serial = atomic_load_explicit(&agreed->serial, memory_order_acquire);
        if (serial == last) {
            *ret_note = note_of(longs);
            return true;
        }
    }
    return false;
}

/* calibrate.h: stores the calibration as words of one record of the store's log.
 *
 *   words    [kind, version][layers][channels][row bytes: K, V][has queries] then, of each layer,
 *            [table of K: channels / 4][table of V][rows][mean squares of queries: channels]
 *   tables   packed as in blocks, for parts that have one
 *   squares  the upper half of a float32
 *
 * If one record is too small, queries are left out, then everything. Only the time until a process
 * quantises well depends on it: blocks contain their tables. If a log has several records, the last
 * one counts. A loaded record is not written again.
 *
 * Invariants: malformed words change nothing; what this process calibrated is never replaced.
 * Threads: load: open's thread or the follower; write: background threads and close.
 * Tests: tests/unit/plugin/test_quant.c */
#include "plugin/quant/calibrate.h"

#include "store/store.h"

#include <math.h>
#include <string.h>

#define VERSION    1u
#define FORM_WORDS 6u

static uint64_t channels_of(const struct sc_plugin_learning *learning)
{
    return learning->head_count * learning->head_size;
}

static uint64_t layer_words(const struct sc_plugin_learning *learning, bool has_queries)
{
    uint64_t channels = channels_of(learning);
    return ((learning->row_bytes[0] > 0) + (learning->row_bytes[1] > 0)) * channels / 4 +
           (has_queries ? 1 + channels : 0);
}

/* Returns 0 if one record cannot hold it. */
static uint64_t words_of(const struct sc_plugin_learning *learning, bool has_queries)
{
    uint64_t words = FORM_WORDS + learning->layer_count * layer_words(learning, has_queries);
    bool has_tables = learning->row_bytes[0] > 0 || learning->row_bytes[1] > 0;
    return has_tables && channels_of(learning) <= UINT16_MAX && words <= SC_STORE_NOTE_WORDS_MAX
               ? words
               : 0;
}

uint64_t sc_plugin_learnt_words(const struct sc_plugin_learning *learning)
{
    uint64_t words = words_of(learning, true);
    return words > 0 ? words : words_of(learning, false);
}

static void form_make(const struct sc_plugin_learning *learning, uint32_t kind,
                      uint16_t ret_words[FORM_WORDS])
{
    const uint16_t form[FORM_WORDS] = {
        (uint16_t)(kind << 8 | VERSION),  (uint16_t)learning->layer_count,
        (uint16_t)channels_of(learning),  (uint16_t)learning->row_bytes[0],
        (uint16_t)learning->row_bytes[1], words_of(learning, true) > 0};
    memcpy(ret_words, form, sizeof(form));
}

/* Lock held. Returns the end of the words. */
static uint16_t *queries_put(const struct sc_plugin_learning *learning,
                             const struct sc_plugin_learnt *learnt, uint16_t *words)
{
    uint64_t channels = channels_of(learning);
    *words++ = (uint16_t)(learnt->rows < UINT16_MAX ? learnt->rows : UINT16_MAX);
    for (uint64_t c = 0; c < channels; c++) {
        float mean = learnt->rows > 0 ? learnt->queries[c] / (float)learnt->rows : 0;
        uint32_t bits;
        memcpy(&bits, &mean, sizeof(bits));
        *words++ = (uint16_t)(bits >> 16);
    }
    return words;
}

/* Lock held. Tells whether the rows have doubled since the loaded note. */
static bool has_learnt_rows(const struct sc_plugin_learnt *learnt)
{
    return learnt->rows > 0 && learnt->rows >= 2 * learnt->rows_noted;
}

bool sc_plugin_learnt_put(struct sc_plugin_learning *learning, uint32_t kind, uint64_t *written,
                          uint16_t *ret_words)
{
    if (learning->learnt == NULL || sc_plugin_learnt_words(learning) == 0)
        return false;
    bool has_queries = words_of(learning, true) > 0, has_all = true;
    uint64_t known = 0;
    uint16_t *words = ret_words + FORM_WORDS;
    form_make(learning, kind, ret_words);
    pthread_mutex_lock(&learning->lock);
    for (uint64_t i = 0; i < 2 * learning->layer_count; i++) {
        const struct sc_plugin_learnt *learnt = &learning->learnt[i];
        const struct sc_plugin_table *table = atomic_load(&learnt->table);
        if (learning->row_bytes[i % 2] > 0) {
            has_all &= table != NULL;
            known += learnt->tables + has_learnt_rows(learnt);
            if (table != NULL)
                memcpy(words, table->packed, learning->tables->packed_bytes);
            words += learning->tables->packed_bytes / 2;
        }
        if (i % 2 == 1 && has_queries)
            words = queries_put(learning, learnt - 1, words);
    }
    pthread_mutex_unlock(&learning->lock);
    bool is_new = has_all && known != *written;
    *written = has_all ? known : *written;
    return is_new;
}


static bool queries_are_some(const uint16_t *words, uint64_t channels)
{
    for (uint64_t c = 0; c < channels; c++)
        if (words[c] >= 0x7f80) /* infinite, NaN, or negative */
            return false;
    return true;
}

/* Lock held. Takes the note's queries, unless this process observed some. */
static void queries_take(const struct sc_plugin_learning *learning, struct sc_plugin_learnt *learnt,
                         const uint16_t *words)
{
    uint64_t channels = channels_of(learning);
    bool is_own = learnt->rows != learnt->rows_noted;
    if (is_own || words[0] == 0 || !queries_are_some(words + 1, channels))
        return;
    learnt->rows = learnt->rows_noted = words[0];
    for (uint64_t c = 0; c < channels; c++) {
        uint32_t bits = (uint32_t)words[1 + c] << 16;
        float mean;
        memcpy(&mean, &bits, sizeof(mean));
        learnt->queries[c] = fminf(mean, 1e12f) * (float)learnt->rows;
    }
}

void sc_plugin_learnt_load(struct sc_plugin_learning *learning, uint32_t kind,
                           const uint16_t *words, uint64_t count)
{
    uint16_t form[FORM_WORDS];
    if (learning->learnt == NULL || count == 0 || count != sc_plugin_learnt_words(learning))
        return;
    form_make(learning, kind, form);
    if (memcmp(form, words, sizeof(form)) != 0)
        return;
    words += FORM_WORDS;
    pthread_mutex_lock(&learning->lock);
    for (uint64_t i = 0; i < 2 * learning->layer_count; i++) {
        struct sc_plugin_learnt *learnt = &learning->learnt[i];
        if (learning->row_bytes[i % 2] > 0) {
            const struct sc_plugin_table *table = sc_plugin_tables_add(
                learning->tables, (const uint8_t *)words, learning->row_bytes[i % 2]);
            if (learnt->tables == 0 && table != NULL) { /* none was made here */
                atomic_store_explicit(&learnt->table, table, memory_order_release);
                learnt->slabs_next = SC_PLUGIN_SLABS_NEXT;
            }
            words += learning->tables->packed_bytes / 2;
        }
        if (i % 2 == 1 && form[FORM_WORDS - 1] != 0) {
            queries_take(learning, learnt - 1, words);
            words += 1 + channels_of(learning);
        }
    }
    pthread_mutex_unlock(&learning->lock);
}

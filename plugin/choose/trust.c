/* What a connector has learnt of its guesses, kept with the store: words of one record of the log.
 *
 *   words   [form][layers] then, of each layer and of all together, [rankings][right x 10]
 *           [times parted][share][times expected whole][share]      shares of SHARE
 *   form    kind of note, predictor, planner: of other guesses nothing is believed
 *
 * Holds: words that are not exactly such change nothing; what this process measured itself is never
 * replaced by what another one left.
 * Does not: decide when guesses are read (guess.c).
 * Threads: load: open's, or who follows; note any; write: background threads and close, one at a
 * time by the lock.
 * Tests: tests/unit/plugin/test_guess.c, tests/unit/store/test_averages.c */
#include "plugin/choose/select.h"

#include <string.h>

#define LAYER_WORDS (SC_PLUGIN_DECILES + 5u)
#define FORM_WORDS  2u
#define SHARE       50000u /* is 1000000 ppm */
#define PPM_A_SHARE (1000000u / SHARE)
#define REQUESTS    16u /* of so many layers each, until it is worth a record */

_Static_assert(FORM_WORDS + (SC_LIMIT_LAYERS + 1) * LAYER_WORDS <= SC_STORE_NOTE_WORDS_MAX,
               "one record holds the trust of every model");

static uint16_t form_of(const spec_connector *conn)
{
    return (uint16_t)(SC_PLUGIN_NOTE_TRUST << 8 | conn->config.predictor << 4 |
                      conn->config.planner);
}

static uint64_t words_of(const spec_connector *conn)
{
    return FORM_WORDS + (conn->dims.layer_count + UINT64_C(1)) * LAYER_WORDS;
}

spec_status sc_plugin_trusts_open(spec_connector *conn, struct spec_error *reterr)
{
    uint64_t words = SC_STORE_NOTE_HEAD + words_of(conn);
    if (conn->config.predictor == SC_PREDICT_NONE || conn->config.identify == SC_IDENTIFY_KEYS)
        return SPEC_OK;
    conn->ahead.words = sc_alloc_array(&conn->alloc, words, sizeof(uint16_t));
    conn->ahead.trusts = sc_alloc_array(&conn->alloc, conn->dims.layer_count + UINT64_C(1),
                                        sizeof(*conn->ahead.trusts));
    return conn->ahead.words != NULL && conn->ahead.trusts != NULL
               ? SPEC_OK
               : sc_fail(reterr, SPEC_E_NO_MEMORY, "trust of %" PRIu32 " layers",
                         conn->dims.layer_count);
}

void sc_plugin_trusts_close(spec_connector *conn)
{
    sc_alloc_free(&conn->alloc, conn->ahead.trusts);
    sc_alloc_free(&conn->alloc, conn->ahead.words);
}

/* ---- Words ---------------------------------------------------------------------------------- */

static uint16_t count_word(const _Atomic uint32_t *count)
{
    uint32_t n = atomic_load_explicit(count, memory_order_acquire);
    return n < UINT16_MAX ? (uint16_t)n : UINT16_MAX;
}

static uint16_t share_word(const _Atomic uint32_t *ppm)
{
    return (uint16_t)(atomic_load_explicit(ppm, memory_order_relaxed) / PPM_A_SHARE);
}

static void trust_encode(const struct sc_plugin_trust *trust, uint16_t *ret_words)
{
    *ret_words++ = count_word(&trust->count);
    for (uint32_t d = 0; d < SC_PLUGIN_DECILES; d++)
        *ret_words++ = share_word(&trust->right_ppm[d]);
    *ret_words++ = count_word(&trust->parted_count);
    *ret_words++ = share_word(&trust->parted_ppm);
    *ret_words++ = count_word(&trust->whole_count);
    *ret_words = share_word(&trust->whole_ppm);
}

static bool trust_is_one(const uint16_t *words)
{
    bool is_one = words[SC_PLUGIN_DECILES + 2] <= SHARE && words[SC_PLUGIN_DECILES + 4] <= SHARE;
    for (uint32_t d = 0; d < SC_PLUGIN_DECILES; d++)
        is_one = is_one && words[1 + d] <= SHARE;
    return is_one;
}

static void share_set(_Atomic uint32_t *ppm, uint16_t word)
{
    atomic_store_explicit(ppm, word * PPM_A_SHARE, memory_order_relaxed);
}

/* Unless it was measured here. */
static void trust_decode(struct sc_plugin_trust *trust, const uint16_t *words)
{
    const uint16_t *parted = words + 1 + SC_PLUGIN_DECILES;
    if (count_word(&trust->count) > 0 || count_word(&trust->parted_count) > 0)
        return;
    for (uint32_t d = 0; d < SC_PLUGIN_DECILES; d++)
        share_set(&trust->right_ppm[d], words[1 + d]);
    share_set(&trust->parted_ppm, parted[1]);
    share_set(&trust->whole_ppm, parted[3]);
    atomic_store_explicit(&trust->whole_count, parted[2], memory_order_release);
    atomic_store_explicit(&trust->parted_count, parted[0], memory_order_release);
    atomic_store_explicit(&trust->count, words[0], memory_order_release);
}

void sc_plugin_trusts_load(const uint16_t *words, uint64_t count, void *user)
{
    spec_connector *conn = user;
    uint64_t layers = conn->dims.layer_count + UINT64_C(1);
    if (conn->ahead.trusts == NULL || count != words_of(conn) || words[0] != form_of(conn) ||
        words[1] != conn->dims.layer_count)
        return;
    for (uint64_t i = 0; i < layers; i++)
        if (!trust_is_one(words + FORM_WORDS + i * LAYER_WORDS))
            return;
    for (uint64_t i = 0; i < layers; i++)
        trust_decode(&conn->ahead.trusts[i], words + FORM_WORDS + i * LAYER_WORDS);
    atomic_store_explicit(&conn->ahead.written, sc_plugin_trusts_learnt(conn),
                          memory_order_relaxed);
}

/* ---- Writing -------------------------------------------------------------------------------- */

uint32_t sc_plugin_trusts_learnt(const spec_connector *conn)
{
    const struct sc_plugin_trust *all = &conn->ahead.trusts[conn->dims.layer_count];
    return atomic_load_explicit(&all->count, memory_order_acquire) +
           atomic_load_explicit(&all->parted_count, memory_order_acquire);
}

bool sc_plugin_trusts_due(const spec_connector *conn)
{
    uint32_t written = atomic_load_explicit(&conn->ahead.written, memory_order_relaxed);
    return sc_plugin_trusts_learnt(conn) - written >= REQUESTS * conn->dims.layer_count;
}

void sc_plugin_trusts_write(void *user, bool whatever_changed)
{
    spec_connector *conn = user;
    struct spec_error error = {.struct_size = sizeof(error)};
    if (conn->ahead.trusts == NULL || conn->ranks.role != SPEC_ROLE_WRITER)
        return;
    pthread_mutex_lock(&conn->ahead.write_lock);
    uint32_t learnt = sc_plugin_trusts_learnt(conn);
    bool is_new = learnt != atomic_load_explicit(&conn->ahead.written, memory_order_relaxed);
    if (whatever_changed ? is_new : sc_plugin_trusts_due(conn)) {
        uint16_t *words = conn->ahead.words + SC_STORE_NOTE_HEAD;
        words[0] = form_of(conn);
        words[1] = (uint16_t)conn->dims.layer_count;
        for (uint64_t i = 0; i <= conn->dims.layer_count; i++)
            trust_encode(&conn->ahead.trusts[i], words + FORM_WORDS + i * LAYER_WORDS);
        /* What the log does not take now is written with what is learnt next: it is no more. */
        if (sc_store_note_put(conn->store, conn->ahead.words, words_of(conn), &error) != SPEC_OK)
            SC_LOG(&conn->log, SPEC_LOG_DEBUG, "trust is not written: %s", error.text);
        atomic_store_explicit(&conn->ahead.written, learnt, memory_order_relaxed);
    }
    pthread_mutex_unlock(&conn->ahead.write_lock);
}

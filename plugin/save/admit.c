/* admit: a filter of seen chunks, and how much of a pass it admits. Contract: admit.h.
 *
 * A chain hash names all tokens up to its end. So what is stored at its second occurrence is a
 * prefix again. A pass is judged by its whole chunks, or as far as the request's tokens are known.
 * A chunk is noted by the pass that ends it, so that no request finds its own. A known end inside a
 * chunk is noted for prompts, not for each decoded token. */
#include "plugin/save/admit.h"
#include "plugin/connector.h"

#define WORD_BITS   64u
#define BLOCK_WORDS 8u /* a cache line */
#define ACCESS_BITS 16u
#define WORDS       (SC_PLUGIN_SIGHTS * ACCESS_BITS / WORD_BITS) /* per generation */
#define BLOCKS      (WORDS / BLOCK_WORDS)
#define STEP_PART   4u /* passes below a quarter of a chunk are decoding steps */
#define MARKS       4u /* bits set per hash */
#define MARK_BITS   9u /* select one of a block's 512 bits */
_Static_assert((BLOCKS & (BLOCKS - 1)) == 0, "a block is found by a mask");
_Static_assert(1u << MARK_BITS == BLOCK_WORDS * WORD_BITS, "a mark is any bit of its block");

spec_status sc_plugin_admit_open(spec_connector *conn, struct spec_error *reterr)
{
    if (conn->config.admit == SC_ADMIT_ALL || !sc_plugin_may_store(conn))
        return SPEC_OK;
    conn->admit.words = sc_alloc_array(&conn->alloc, 2 * WORDS, sizeof(*conn->admit.words));
    if (conn->admit.words == NULL)
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "sights of chunks");
    return SPEC_OK;
}

static _Atomic uint64_t *block_of(struct sc_plugin_admit *admit, uint32_t generation,
                                  struct sc_hash hash)
{
    return admit->words + generation * WORDS + (hash.lo & (BLOCKS - 1)) * BLOCK_WORDS;
}

static bool block_has(const _Atomic uint64_t *block, uint64_t marks)
{
    for (uint32_t i = 0; i < MARKS; i++, marks >>= MARK_BITS) {
        uint64_t bit = marks & ((1u << MARK_BITS) - 1);
        uint64_t word = atomic_load_explicit(&block[bit / WORD_BITS], memory_order_relaxed);
        if ((word >> bit % WORD_BITS & 1) == 0)
            return false;
    }
    return true;
}

static void block_add(_Atomic uint64_t *block, uint64_t marks)
{
    for (uint32_t i = 0; i < MARKS; i++, marks >>= MARK_BITS) {
        uint64_t bit = marks & ((1u << MARK_BITS) - 1);
        atomic_fetch_or_explicit(&block[bit / WORD_BITS], UINT64_C(1) << bit % WORD_BITS,
                                 memory_order_relaxed);
    }
}

/* Clears the other generation and makes it current. Called by the thread that filled this one. */
static void turn_over(struct sc_plugin_admit *admit, uint32_t full)
{
    uint32_t other = 1 - full;
    for (uint64_t i = 0; i < WORDS; i++)
        atomic_store_explicit(&admit->words[other * WORDS + i], 0, memory_order_relaxed);
    atomic_store(&admit->current, other);
    atomic_store(&admit->noted, 0);
}

bool sc_plugin_admit_sees(struct sc_plugin_admit *admit, struct sc_hash hash, bool notes)
{
    uint32_t current = atomic_load(&admit->current);
    _Atomic uint64_t *block = block_of(admit, current, hash);
    if (block_has(block, hash.hi))
        return true;
    bool sees = block_has(block_of(admit, 1 - current, hash), hash.hi);
    if (!notes)
        return sees;
    block_add(block, hash.hi);
    if (atomic_fetch_add(&admit->noted, 1) + 1 == SC_PLUGIN_SIGHTS)
        turn_over(admit, current);
    return sees;
}

void sc_plugin_admit_forget(struct sc_plugin_admit *admit)
{
    for (uint64_t i = 0; admit->words != NULL && i < 2 * WORDS; i++)
        atomic_store_explicit(&admit->words[i], 0, memory_order_relaxed);
    atomic_store(&admit->noted, 0);
}

/* Returns the first token of the pass whose chunk is new, or the pass's end. */
static uint64_t seen_end(spec_connector *conn, const struct sc_plugin_request *request,
                         const struct sc_chain *chain, uint64_t first, uint64_t end)
{
    uint64_t chunk = conn->config.chunk_tokens, seen = first, at_token = first, known;
    struct sc_chain at = *chain;
    for (uint64_t position = first; position < end;
         position = position - position % chunk + chunk) {
        uint64_t chunk_end = position - position % chunk + chunk;
        uint64_t piece_end = chunk_end < end ? chunk_end : end;
        known = chunk_end < request->token_count ? chunk_end : request->token_count;
        sc_chain_extend(&at, request->tokens + at_token, known - at_token,
                        (struct sc_marks){request->marks, request->mark_count});
        at_token = known;
        bool is_step = known < chunk_end && end - first < chunk / STEP_PART;
        bool notes = piece_end == known && !is_step;
        bool sees = sc_plugin_admit_sees(&conn->admit, sc_chain_at(&at), notes);
        if (seen == position && (sees || piece_end <= request->stored_tokens))
            seen = piece_end;
    }
    return seen;
}

uint64_t sc_plugin_admit_tokens(spec_connector *conn, const struct sc_plugin_request *request,
                                const struct sc_chain *chain, uint64_t first, uint64_t count)
{
    if (conn->admit.words == NULL)
        return count;
    return seen_end(conn, request, chain, first, first + count) - first;
}

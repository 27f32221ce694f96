/* fetch_selectors: reads one layer's selector keys of some pieces into slabs of host memory.
 *
 * Selector keys are quantised rows, probe keys or row tags. They are read into the caller's memory,
 * verified as a load verifies them, and published in slabs that were begun for them.
 *
 *   begin -> wish, add .. -> next: reads -> (task) -> next: verified, published; reads .. -> end
 *
 *   memory   [as a load's: store/read/selector_memory.c][frame of each block of probe rows or tags]
 *
 * Plan, verification and slabs are a selector's (store/read/selector.h). But a selector takes
 * memory and frames from loads, and its slabs are admitted by rank.
 *
 * Threads: one at a time; completions only count.
 * Tests: tests/unit/plugin/test_host_prefetch_choice.c */
#ifndef SC_STORE_READ_FETCH_SELECTORS_H
#define SC_STORE_READ_FETCH_SELECTORS_H

#include "store/read/selector.h"

#define SC_STORE_SELECTOR_FETCH_PIECES 64u
#define SC_STORE_SELECTOR_FETCH_BLOCKS 16u /* in flight together */

struct sc_store_selector_fetch {
    struct sc_store *store;
    struct sc_task *task;   /* posted when the reads of next have completed; constant */

    uint8_t *bytes;
    uint64_t bytes_max, bytes_wished;
    uint32_t count;
    struct sc_store_range ranges[SC_STORE_SELECTOR_FETCH_PIECES];
    struct sc_host_slab_fill fills[SC_STORE_SELECTOR_FETCH_PIECES];

    struct sc_store_selector_plan plan;
    struct sc_store_selector_memory memory;
    bool is_laid, is_planned;
    bool has_block;     /* plan.block is not submitted yet */
    uint64_t frames_at;
    uint32_t block_count;
    struct sc_store_selector_fetch_block {
        struct sc_store_selector_block block;
        uint8_t *frame;
        struct sc_io_op reads[SC_STORE_SELECTOR_SECTIONS];
    } blocks[SC_STORE_SELECTOR_FETCH_BLOCKS];
    _Atomic uint32_t flying;
};

/* Returns a plan for these wants; the caller sets its ranges. */
struct sc_store_selector_plan
sc_store_selector_fetch_plan(const struct sc_store *store,
                             const struct sc_store_match_fetch_wants *wants, uint32_t layer);
/* Returns the memory that one piece takes alone. */
uint64_t sc_store_selector_fetch_bytes(const struct sc_store *store,
                                       const struct sc_store_match_fetch_wants *wants,
                                       const struct sc_store_range *whole);

/* bytes [bytes_max], whole pages, are borrowed until the end of the last piece. */
void sc_store_selector_fetch_begin(struct sc_store_selector_fetch *fetch,
                                   const struct sc_store_match_fetch_wants *wants, uint32_t layer,
                                   uint8_t *bytes, uint64_t bytes_max);
/* Describes the slab of a piece; `whole` has all its readable rows. Returns false if it has no
 * keys. */
bool sc_store_selector_fetch_wish(struct sc_store_selector_fetch *fetch,
                                  const struct sc_store_range *whole,
                                  struct sc_host_slab_wish *ret_wish);
/* Returns true if the piece of the last wish fits beside those before it. */
bool sc_store_selector_fetch_fits(const struct sc_store_selector_fetch *fetch,
                                  const struct sc_host_slab_wish *wish);
/* Adds that piece; its slab was begun in fills[count]. */
void sc_store_selector_fetch_add(struct sc_store_selector_fetch *fetch,
                                 const struct sc_host_slab_wish *wish);
/* Verifies what was read and submits further reads. Returns true if the task will be posted. */
bool sc_store_selector_fetch_next(struct sc_store_selector_fetch *fetch);
/* Ends piece i after next returned false or a cancel: its slab is published or abandoned. Returns
 * OK if it is published or loads can do without; CORRUPT as a load of the match would. */
spec_status sc_store_selector_fetch_end(struct sc_store_selector_fetch *fetch, uint32_t i);

#endif

/* What rows of some pieces are chosen by, in one layer: codes, probe keys or row tags, read into
 * memory of the caller's, verified, into slabs that were begun for it.
 *
 *   begin -> wish, add .. -> next: reads -> (task) -> next: verified, published; reads .. -> end
 *
 *   memory   [as a load's: store/read/selector_memory.c][frame of each block of probe rows or tags]
 *
 * Plan, verification and slabs are those of a selector (store/read/selector.h); but a selector
 * takes its memory and frames from loads, and its slabs are admitted by what they are worth.
 *
 * Holds: what is published was verified as a load verifies it.
 * Does not: wait, choose pieces, keep slabs (fetch_match.c), retry.
 * Threads: one at a time; completions only count.
 * Tests: tests/unit/plugin/test_host_prefetch_choice.c */
#ifndef SC_STORE_READ_FETCH_SELECTORS_H
#define SC_STORE_READ_FETCH_SELECTORS_H

#include "store/read/selector.h"

#define SC_STORE_SELECTOR_FETCH_PIECES 64u
#define SC_STORE_SELECTOR_FETCH_BLOCKS 16u /* in flight together */

struct sc_store_selector_fetch {
    struct sc_store *store; /* constant */
    struct sc_task *task;   /* posted when what next reads has come; constant */

    uint8_t *bytes; /* the caller's */
    uint64_t bytes_max, bytes_wished;
    uint32_t count;
    struct sc_store_range ranges[SC_STORE_SELECTOR_FETCH_PIECES];
    struct sc_host_slab_fill fills[SC_STORE_SELECTOR_FETCH_PIECES];

    struct sc_store_selector_plan plan;
    struct sc_store_selector_memory memory;
    bool is_laid, is_planned;
    bool has_block;     /* plan.block is not in flight yet */
    uint64_t frames_at; /* behind the memory's start */
    uint32_t block_count;
    struct sc_store_selector_fetch_block {
        struct sc_store_selector_block block;
        uint8_t *frame;
        struct sc_io_op reads[SC_STORE_SELECTOR_SECTIONS];
    } blocks[SC_STORE_SELECTOR_FETCH_BLOCKS];
    _Atomic uint32_t flying;
};

/* What a plan of so much is; ranges are the caller's to set. */
struct sc_store_selector_plan
sc_store_selector_fetch_plan(const struct sc_store *store,
                             const struct sc_store_match_fetch_wants *wants, uint32_t layer);
/* How much memory a piece takes, alone. */
uint64_t sc_store_selector_fetch_bytes(const struct sc_store *store,
                                       const struct sc_store_match_fetch_wants *wants,
                                       const struct sc_store_range *whole);

/* bytes [bytes_max], whole pages, are lent until end of the last piece. */
void sc_store_selector_fetch_begin(struct sc_store_selector_fetch *fetch,
                                   const struct sc_store_match_fetch_wants *wants, uint32_t layer,
                                   uint8_t *bytes, uint64_t bytes_max);
/* The slab of the piece, all of whose rows that may be read the range is. false: there is nothing
 * to be had that rows are chosen by. */
bool sc_store_selector_fetch_wish(struct sc_store_selector_fetch *fetch,
                                  const struct sc_store_range *whole,
                                  struct sc_host_slab_wish *ret_wish);
/* Whether the piece that was wished for last fits in with those before it. */
bool sc_store_selector_fetch_fits(const struct sc_store_selector_fetch *fetch,
                                  const struct sc_host_slab_wish *wish);
/* Its slab was begun in fills[count]. */
void sc_store_selector_fetch_add(struct sc_store_selector_fetch *fetch,
                                 const struct sc_host_slab_wish *wish);
/* Verifies what came, and reads on. true: the task is posted when that has come. */
bool sc_store_selector_fetch_next(struct sc_store_selector_fetch *fetch);
/* Of piece i, once next was false or the stage was cancelled: its slab is published, or abandoned.
 * OK: it is there, or loads go without it; CORRUPT: as a load of the match says. */
spec_status sc_store_selector_fetch_end(struct sc_store_selector_fetch *fetch, uint32_t i);

#endif

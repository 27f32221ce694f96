/* How a destination is written: a table of functions a kind of memory, chosen where the memory is
 * checked (memory.c). Nothing else in the plugin follows a destination's addresses.
 *
 *   reader   verified rows --------------> place_rows ---.
 *            rows, verified on their way   sink: spans --+--> destination --> score --> sums
 *   selector   verified codes -------------> place_quant --'         '--<-- compact        a head
 *
 * Holds: what is placed was verified, in host memory. No two calls of an item place a token's rows
 * at the same time. A call is for a run of rows: what it costs is paid a run.
 * Does not: choose, read or verify; look at positions, slots and bits, which the host's memory has.
 * Threads: who loads for the item; place_quant and fence a second one beside him; BEGIN and END the
 * host's own, inside its call; SETTLED whoever serves the item, once.
 * Tests: tests/unit/plugin/test_target.c */
#ifndef SC_PLUGIN_ARGS_TARGET_H
#define SC_PLUGIN_ARGS_TARGET_H

#include "kernels/importance.h"
#include "plugin/args/memory.h"
#include "store/load.h"

/* One load into a destination. */
struct sc_plugin_placing {
    const struct sc_plugin_memory *memory;
    struct sc_kernels_move how; /* rows as they come, and what becomes of them */
};

enum sc_plugin_fence {
    SC_FENCE_BEGIN,   /* the host's call: behind what it did to the memory before */
    SC_FENCE_PLACED,  /* what this thread placed is there for whom it tells of that next */
    SC_FENCE_SETTLED, /* nobody places for the item any more, and its status is to be told */
    SC_FENCE_END      /* the host's call: before what it does to the memory next */
};

struct sc_plugin_target {
    /* Tokens `row` and on, of `count`, come next; `ahead` of them (0: unknown) while the caller
     * verifies. Returns how many at least should come at once; 0: it does not matter. */
    uint64_t (*expect)(const struct sc_plugin_placing *to, uint64_t row, uint64_t ahead,
                       uint64_t count);
    /* Where rows of a whole load may be moved while they are verified; span_bytes 0: nowhere. */
    struct sc_store_sink (*sink)(struct sc_plugin_placing *to);
    /* `count` rows, from the from-th of those that came on, to tokens `at` and on.
     *   wanted  enum sc_store_part_wanted: what came of them */
    void (*place_rows)(const struct sc_plugin_placing *to, const struct sc_store_rows *rows,
                       uint64_t from, uint64_t count, uint32_t wanted, uint64_t at);
    /* What K's (parts[0]) and V's rows are as codes, to tokens `at` and on, but those in `skipped`
     * (bits). */
    void (*place_quant)(const struct sc_plugin_placing *to,
                        const struct sc_kernels_quantised parts[2], uint64_t count, uint64_t at,
                        const uint64_t *skipped);
    /* place_quant only says what is to be decoded, elsewhere: no second thread is woken for it. */
    bool decodes_elsewhere;
    /* Not OK: what was placed since BEGIN may not be there, which the item fails with: SETTLED and
     * END say so, with a text. What BEGIN says the caller keeps in the memory's `begun`, and
     * SETTLED says it again, or what PLACED met. END that is not OK has waited: nothing of the item
     * is written any more. */
    spec_status (*fence)(const struct sc_plugin_memory *memory, enum sc_plugin_fence when,
                         struct spec_error *reterr);
    /* Sums of importance of KV heads [head_first, head_end), as sc_kernels_importance_heads has
     * them, by the keys that stand there: `what` says of its prefix how many.
     * NULL: it cannot be scored; its items' heads are never given rows of their own. */
    void (*score)(const struct sc_plugin_placing *to, const struct sc_kernels_importance *what,
                  uint64_t head_first, uint64_t head_end, void *scratch, float *ret_sums);
    /* One head's rows, ascending, to tokens 0 .. count - 1. */
    void (*compact)(const struct sc_plugin_placing *to, uint64_t head, const uint32_t *rows,
                    uint64_t count);
};

extern const struct sc_plugin_target sc_plugin_target_host;

#endif

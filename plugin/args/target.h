/* target: how a destination is written, one table of functions per kind of memory. memory.c chooses
 * the table; nothing else in the plugin uses a destination's addresses.
 *
 *   reader     verified rows -------------> place_rows ---.
 *              rows, while being verified   sink: spans --+--> destination --> score --> sums
 *   selector   verified quantised rows ---> place_quant --'         '--<-- compact       per head
 *
 * Invariants: everything placed was verified, in host memory. No two calls of an item place the
 * same token's rows at once. Each call handles a run of rows, to spread its cost.
 * Threads: the one that loads for the item; place_quant and fence also a second one. BEGIN and END:
 * the host's, in its call; SETTLED: the one that serves the item, once.
 * Tests: tests/unit/plugin/test_target.c */
#ifndef SC_PLUGIN_ARGS_TARGET_H
#define SC_PLUGIN_ARGS_TARGET_H

#include "kernels/importance.h"
#include "plugin/args/memory.h"
#include "store/load.h"

struct sc_plugin_placing {
    const struct sc_plugin_memory *memory;
    struct sc_kernels_move how; /* format of the rows and their conversion */
};

enum sc_plugin_fence {
    SC_FENCE_BEGIN,   /* host's call: orders after the host's earlier work on the memory */
    SC_FENCE_PLACED,  /* makes what this thread placed visible to those that it notifies next */
    SC_FENCE_SETTLED, /* all placing for the item has ended; its status is reported next */
    SC_FENCE_END      /* host's call: orders before the host's later work on the memory */
};

struct sc_plugin_target {
    /* Announces that tokens [row, count) follow, `ahead` of them being verified (0: unknown).
     * Returns the preferred minimum of tokens per call; 0: any. */
    uint64_t (*expect)(const struct sc_plugin_placing *to, uint64_t row, uint64_t ahead,
                       uint64_t count);
    /* Returns where a whole load's rows may be moved while verified; span_bytes 0: nowhere. */
    struct sc_store_sink (*sink)(struct sc_plugin_placing *to);
    /* Places `count` rows, from rows[from] on, at tokens `at` and on.
     *   wanted  enum sc_store_part_wanted: the part of the rows that was read */
    void (*place_rows)(const struct sc_plugin_placing *to, const struct sc_store_rows *rows,
                       uint64_t from, uint64_t count, uint32_t wanted, uint64_t at);
    /* Dequantises K (parts[0]) and V to tokens `at` and on, except those in `skipped` (bits). */
    void (*place_quant)(const struct sc_plugin_placing *to,
                        const struct sc_kernels_quantised parts[2], uint64_t count, uint64_t at,
                        const uint64_t *skipped);
    /* place_quant only enqueues work: no second thread is woken for it */
    bool decodes_elsewhere;
    /* Errors: what was placed since BEGIN may be missing; the item fails. The caller keeps BEGIN's
     * status in `begun`. SETTLED returns it, or PLACED's error. SETTLED and END set the error's
     * text. A failing END has waited: nothing of the item is written later. */
    spec_status (*fence)(const struct sc_plugin_memory *memory, enum sc_plugin_fence when,
                         struct spec_error *reterr);
    /* Sums importance of KV heads [head_first, head_end) as sc_kernels_importance_heads does, by
     * the destination's keys. NULL: not scorable; heads never get rows of their own. */
    void (*score)(const struct sc_plugin_placing *to, const struct sc_kernels_importance *what,
                  uint64_t head_first, uint64_t head_end, void *scratch, float *ret_sums);
    /* Moves one head's rows, ascending, to tokens 0 .. count - 1. */
    void (*compact)(const struct sc_plugin_placing *to, uint64_t head, const uint32_t *rows,
                    uint64_t count);
};

extern const struct sc_plugin_target sc_plugin_target_host;

#endif

/* row_set: selects the rows of a layer from keys and queries.
 *
 *   sums of importance [R] -> scores (granules, rows that are always kept) -> the best k rows
 *
 * Threads: any, a scratch each.
 * Tests: tests/unit/plugin/test_select.c, test_prefetch.c, conformance (abi_061_* .. abi_069_*) */
#ifndef SC_PLUGIN_SELECT_ROW_SET_H
#define SC_PLUGIN_SELECT_ROW_SET_H

#include "base/status.h"

struct sc_plugin_item;
struct sc_plugin_scratch;
struct sc_plugin_want;

/* Selects by the probe heads' keys [R][probe row]. Sets item->row_count, similarity and threshold.
 *   ret_rows   [R] the set for all heads, ascending
 *   ret_agree  false: the heads want different rows, and ret_rows is invalid
 * Errors: those of sc_plugin_scoring_fetch. */
spec_status sc_plugin_select_by_probes(struct sc_plugin_scratch *scratch,
                                       struct sc_plugin_item *item, const uint8_t *keys,
                                       uint32_t *ret_rows, bool *ret_agree,
                                       struct spec_error *reterr);
/* The same by keys of all heads in the destination; at most SC_PLUGIN_HEADS_TOGETHER probe heads.
 * Leaves the probe heads' sums and their total in scratch->sums. Returns true if they agree. */
bool sc_plugin_select_by_probes_here(struct sc_plugin_scratch *scratch, struct sc_plugin_item *item,
                                     uint32_t *ret_rows);
/* Selects one set by the quantised keys of all heads. It contains all rows without quantised rows,
 * item->forced_rows of them. Errors: those of sc_plugin_scoring_fetch. */
spec_status sc_plugin_select_by_quant(struct sc_plugin_scratch *scratch,
                                      struct sc_plugin_item *item, uint32_t *ret_rows,
                                      struct spec_error *reterr);
/* Selects without scores, for a layered delivery: rows without quantised rows, rows that are always
 * kept, then the lowest. */
void sc_plugin_select_kept(struct sc_plugin_scratch *scratch, struct sc_plugin_item *item,
                           uint32_t *ret_rows);
/* Selects without keys (sc_baseline_can_score). Returns false if the policy has no scores. */
bool sc_plugin_select_by_baseline(struct sc_plugin_scratch *scratch, struct sc_plugin_item *item,
                                  uint32_t *ret_rows);
/* Selects row_count rows per head into scratch->sets, if all heads are probes. Errors: those of
 * sc_plugin_scoring_fetch. */
spec_status sc_plugin_select_by_all(struct sc_plugin_scratch *scratch, struct sc_plugin_item *item,
                                    const uint8_t *keys, struct spec_error *reterr);
/* Returns how many rows each head gets, by the keys of all heads in the destination. */
uint64_t sc_plugin_select_count(struct sc_plugin_scratch *scratch,
                                const struct sc_plugin_item *item);
/* Selects one head's rows by its keys in the destination. Call it for heads 0, 1, 2 ..; nothing
 * else may use scratch->sums between the calls, because several heads are scored in one pass. */
void sc_plugin_select_head(struct sc_plugin_scratch *scratch, const struct sc_plugin_item *item,
                           uint64_t head, uint32_t *ret_rows);

/* Ranks the first k rows by sums of importance, best first. Uses ranked, scores and granules. */
void sc_plugin_rank(struct sc_plugin_scratch *scratch, const struct sc_plugin_want *want,
                    const float *sums, uint64_t k, uint32_t *ret_rows);
/* Returns true if the probe heads' sets of k rows, by the sums of sc_plugin_probe_sums, hold for
 * all heads; else the layer is read whole. Uses all of the scratch but sums. */
bool sc_plugin_probes_agree(struct sc_plugin_scratch *scratch, const struct sc_plugin_want *want,
                            uint64_t k);

#endif

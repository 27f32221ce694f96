/* row_scores: sums of importance of a layer's rows, on the CPU or on a device.
 * Threads: any, a scratch each.
 * Tests: tests/unit/plugin/test_select.c, test_device_queries.c */
#ifndef SC_PLUGIN_SELECT_ROW_SCORES_H
#define SC_PLUGIN_SELECT_ROW_SCORES_H

#include "base/status.h"

struct sc_kernels_importance;
struct sc_plugin_afar;
struct sc_plugin_item;
struct sc_plugin_request;
struct sc_plugin_scratch;

/* The source of the queries. */
struct sc_plugin_asker {
    struct sc_plugin_item *item;       /* NULL: a hint's */
    const struct sc_plugin_afar *hint; /* the hint's device location; a worker scores */
};

/* Sums importance over all heads, by quantised keys; a row without quantised rows has 0.
 *   what      all but its prefix is set
 *   codes     of the request's ranges (sc_store_selector_keys)
 *   ret_sums  in scratch->sums
 * Errors: of an item those of sc_plugin_scoring_fetch; of a hint IO. */
spec_status sc_plugin_quant_scores(struct sc_plugin_scratch *scratch,
                                   const struct sc_plugin_asker *asker,
                                   struct sc_kernels_importance *what,
                                   const struct sc_plugin_request *request, const uint8_t *codes,
                                   const float **ret_sums, struct spec_error *reterr);
/* Sums importance over the probe heads, by keys [R][probe row]. scratch->sums has each head's sums,
 * then the total. Otherwise as sc_plugin_quant_scores. */
spec_status sc_plugin_probe_sums(struct sc_plugin_scratch *scratch,
                                 const struct sc_plugin_asker *asker,
                                 struct sc_kernels_importance *what, const uint8_t *keys,
                                 uint64_t row_total, const float **ret_total,
                                 struct spec_error *reterr);
/* Adds the heads' sums [heads][rows] in their order. */
void sc_plugin_sums_total(const spec_connector *conn, const float *sums, uint64_t heads,
                          uint64_t rows, float *ret_total);

#endif

/* row_scores: sums of importance, on the CPU or on a device. Contract: row_scores.h.
 *
 *   nothing in device memory                     the CPU
 *   rows, queries or new keys in device memory   the device (device_scores.h); if it cannot, the
 *                                                CPU, after a copy to the host
 *
 * Invariants: shapes and the configuration alone decide who computes, and the order of a sum's
 * terms. */
#include "plugin/select/row_scores.h"
#include "plugin/args/dtype_table.h"
#include "plugin/device/device_scores.h"
#include "plugin/quant/quant.h"
#include "plugin/select/budget.h"
#include "plugin/select/item.h"
#include "plugin/select/scratch.h"

#include <string.h>

#define SHARED_VALUES (1u << 20) /* values of keys; below this no worker wakes */

/* ---- Who computes --------------------------------------------------------------------------- */

static const struct sc_plugin_afar none_there = {.device = NULL};

/* Describes what the asker has in device memory; returns false if that is nothing. */
static bool is_there(spec_connector *conn, const struct sc_plugin_asker *asker,
                     struct sc_plugin_score *ret_score)
{
    const struct sc_plugin_item *item = asker->item;
    *ret_score = (struct sc_plugin_score){.device = &conn->device, .fresh = &none_there};
    if (item == NULL) {
        ret_score->queries = asker->hint;
        ret_score->slot = asker->hint->slot;
        ret_score->never_waits = true; /* a worker does not wait */
        return asker->hint->device != NULL;
    }
    ret_score->queries = &item->scoring.queries_afar;
    ret_score->fresh = &item->scoring.fresh_afar;
    ret_score->slot = sc_plugin_request_slot(conn, item->request);
    return item->memory.batch != NULL || ret_score->queries->device != NULL ||
           ret_score->fresh->device != NULL;
}

/* Sums importance on the device. Returns true if that succeeded or failed for good (*ret_status).
 * Returns false if the CPU must do it: what an item has on the device was copied, or *ret_status
 * says why not. what: with its prefix. ret_sums: [the prefix's count], or that per head. */
static bool device_sums(const struct sc_plugin_scratch *scratch,
                        const struct sc_plugin_asker *asker, struct sc_kernels_importance *what,
                        bool is_total, uint64_t head_count, float *ret_sums,
                        spec_status *ret_status, struct spec_error *reterr)
{
    struct sc_plugin_item *item = asker->item;
    struct sc_plugin_score score;
    *ret_status = SPEC_OK;
    if (!is_there(scratch->conn, asker, &score))
        return false;
    score.what = what;
    score.head_count = head_count;
    score.is_total = is_total;
    if (sc_plugin_score_takes(&score)) {
        spec_status status = sc_plugin_score_sum(&score, ret_sums, reterr);
        if (item == NULL && status == SPEC_E_BUSY)
            return false; /* its rows are in host memory, too */
        if (item != NULL)
            item->scoring.lost = status;
        *ret_status = status;
        return true;
    }
    if (item == NULL)
        return false;
    *ret_status = sc_plugin_scoring_fetch(scratch, item, reterr);
    what->queries = item->scoring.queries;
    what->fresh = item->scoring.fresh;
    return false;
}

/* ---- Probes --------------------------------------------------------------------------------- */

void sc_plugin_sums_total(const spec_connector *conn, const float *sums, uint64_t heads,
                          uint64_t rows, float *ret_total)
{
    memset(ret_total, 0, rows * sizeof(float));
    for (uint64_t h = 0; h < heads; h++)
        sc_kernels_add(conn->kernels, ret_total, sums + h * rows, rows);
}

spec_status sc_plugin_probe_sums(struct sc_plugin_scratch *scratch,
                                 const struct sc_plugin_asker *asker,
                                 struct sc_kernels_importance *what, const uint8_t *keys,
                                 uint64_t row_total, const float **ret_total,
                                 struct spec_error *reterr)
{
    spec_connector *conn = scratch->conn;
    uint64_t probes = conn->choice.probe_heads;
    float *total = scratch->sums + probes * row_total;
    spec_status status;
    what->prefix = (struct sc_kernels_keys){
        .memory = {.k_base = (uint8_t *)(uintptr_t)keys, /* only read */
                   .token_stride_bytes = conn->choice.probe_row_bytes,
                   .head_stride_bytes = conn->choice.probe_row_bytes / probes},
        .count = row_total,
        .dtype = sc_plugin_kernels_dtype(conn->shape.dtype)};
    *ret_total = total;
    bool is_done = device_sums(scratch, asker, what, false, probes, scratch->sums, &status, reterr);
    if (status != SPEC_OK)
        return status;
    if (!is_done)
        sc_kernels_importance_heads(what, 0, probes, scratch->importance, scratch->sums);
    sc_plugin_sums_total(conn, scratch->sums, probes, row_total, total);
    return SPEC_OK;
}

/* ---- Codes ---------------------------------------------------------------------------------- */

/* Lists the slabs with quantised rows for the kernels; returns the number of their keys. */
static uint64_t slabs_gather(const struct sc_plugin_scratch *scratch,
                             const struct sc_plugin_request *request, const uint8_t *codes,
                             uint64_t *ret_slab_count)
{
    uint64_t keys = 0, count = 0;
    struct sc_store_slab slab;
    for (uint64_t i = 0, row = 0, rows; i < request->range_count; i++, row += rows) {
        rows = request->ranges[i].row_count;
        if (!sc_store_slab_of(codes, i, &slab))
            continue;
        scratch->slabs[count++] = (struct sc_kernels_slab){
            sc_plugin_quant_k(scratch->conn, &slab, request->from_token + row, rows), keys};
        keys += rows;
    }
    *ret_slab_count = count;
    return keys;
}

/* Copies the scores of quantised rows, which are packed, to their rows; other rows get 0. */
static void scores_spread(const struct sc_plugin_request *request, const uint8_t *codes,
                          const float *scores, float *ret_scores)
{
    struct sc_store_slab slab;
    for (uint64_t i = 0, row = 0; i < request->range_count; row += request->ranges[i++].row_count) {
        uint64_t count = request->ranges[i].row_count;
        if (sc_store_slab_of(codes, i, &slab)) {
            memcpy(ret_scores + row, scores, count * sizeof(*scores));
            scores += count;
        } else {
            memset(ret_scores + row, 0, count * sizeof(*scores));
        }
    }
}

/* The upper half of the heads; a worker may sum it for the caller. */
struct upper_half {
    struct sc_task task;
    const struct sc_kernels_importance *what;
    struct sc_plugin_scratch *scratch;
    _Atomic uint32_t ended;
};

static void upper_step(struct sc_task *task)
{
    struct upper_half *upper = SC_TASK_OWNER(task, struct upper_half, task);
    struct sc_exec *exec = upper->scratch->conn->exec; /* `upper` is invalid once ended */
    _Atomic uint32_t *ended = &upper->ended;
    uint64_t heads = upper->scratch->conn->shape.kv_head_count;
    sc_kernels_importance_sum(upper->what, heads / 2, heads, upper->scratch->importance,
                              upper->scratch->sums, upper->scratch->scores);
    atomic_store(ended, 1);
    sc_exec_wake(exec, ended);
}

/* Sums both halves, each in a fixed order, so that sums do not depend on who computes. helper: a
 * second scratch, or NULL. Returns the upper heads' sums; the lower heads' are in
 * scratch->scores. */
static const float *halves_sum(struct sc_plugin_scratch *scratch, struct sc_plugin_scratch *helper,
                               const struct sc_kernels_importance *what)
{
    spec_connector *conn = scratch->conn;
    uint64_t heads = conn->shape.kv_head_count;
    struct upper_half upper = {.task.step = upper_step, .what = what, .scratch = helper};
    if (helper != NULL)
        sc_exec_post(conn->exec, &upper.task, SC_IO_CLASS_DEMAND);
    sc_kernels_importance_sum(what, 0, heads / 2, scratch->importance, scratch->sums,
                              scratch->scores);
    if (helper == NULL || sc_exec_cancel(conn->exec, &upper.task)) {
        sc_kernels_importance_sum(what, heads / 2, heads, scratch->importance, scratch->sums,
                                  scratch->granules);
        return scratch->granules;
    }
    while (atomic_load(&upper.ended) == 0)
        (void)sc_exec_wait(conn->exec, &upper.ended, 0, SC_EXEC_FOREVER);
    return helper->scores;
}

/* Scores on the CPU into scratch->scores. */
static void quant_score(struct sc_plugin_scratch *scratch, const struct sc_kernels_importance *what,
                        bool may_share)
{
    spec_connector *conn = scratch->conn;
    uint64_t keys = what->prefix.count;
    struct sc_plugin_scratch *helper = NULL;
    if (may_share && !sc_exec_is_loop(conn->exec) && keys * what->prefix.channels >= SHARED_VALUES)
        helper = sc_plugin_scratch_take(conn, keys > what->fresh.count ? keys : what->fresh.count,
                                        1); /* a past deadline: no wait */
    const float *upper = halves_sum(scratch, helper, what);
    sc_kernels_add(conn->kernels, scratch->scores, upper, keys);
    if (helper != NULL)
        sc_plugin_scratch_put(helper);
}

spec_status sc_plugin_quant_scores(struct sc_plugin_scratch *scratch,
                                   const struct sc_plugin_asker *asker,
                                   struct sc_kernels_importance *what,
                                   const struct sc_plugin_request *request, const uint8_t *codes,
                                   const float **ret_sums, struct spec_error *reterr)
{
    const spec_connector *conn = scratch->conn;
    uint64_t rows = sc_plugin_row_total(request), slab_count;
    uint64_t keys = slabs_gather(scratch, request, codes, &slab_count);
    spec_status status;
    what->prefix = (struct sc_kernels_keys){.slabs = scratch->slabs,
                                            .slab_count = slab_count,
                                            .channels = (uint64_t)conn->shape.kv_head_count *
                                                        conn->shape.head_size,
                                            .count = keys,
                                            .dtype = sc_plugin_kernels_dtype(conn->shape.dtype)};
    *ret_sums = scratch->sums + rows;
    bool is_done = device_sums(scratch, asker, what, true, conn->shape.kv_head_count,
                               scratch->scores, &status, reterr);
    if (status != SPEC_OK)
        return status;
    if (!is_done)
        quant_score(scratch, what, asker->item != NULL);
    scores_spread(request, codes, scratch->scores, scratch->sums + rows);
    return SPEC_OK;
}

/* driver: joins a loaded plugin to the runner's requests through the ABI, layer by layer.
 *
 *   begin            lookup -> matched tokens
 *   before_layer     begin_layer
 *   before_attention get_important -> prefix rows into the cache; if they are complete,
 *                    get_important_submit for the next layer, which then needs no queries
 *                    prefetch_next with queries foreseen before the attention (optional)
 *   after_attention  prefetch_next with queries foreseen after it, or without;
 *                    ahead: get_important_submit for the next layer, which get_important refines
 *   after_layer      store of the prefix's new rows
 *   settle           wait for tickets, release
 *
 * Bidirectional load, between begin and the passes, which load nothing then:
 *   front            get_important_submit of all layers (SPEC_ITEM_BIDIRECTIONAL), once;
 *                    next_chunk, whose tokens are computed; at MET get_important_wait,
 *                    and next_chunk to MET again
 *
 * A layer of the cache has room for all R matched rows, of which the connector fills the first k,
 * then the prompt's new rows. With fewer than R rows every pass of the prompt asks again and
 * replaces them; decoding continues with the last pass's rows.
 *
 * Errors: an ABI error becomes one line of text. A lost range releases the request and asks for a
 * restart. Stored rows are durable and visible before the next request begins.
 * Threads: one. Tests: tests/unit/engine/test_driver.c */
#ifndef CONFORMANCE_ENGINE_CLI_DRIVER_H
#define CONFORMANCE_ENGINE_CLI_DRIVER_H

#include "conformance/engine/cli/engine_run.h"
#include "conformance/engine/cli/report.h"

struct eng_driver;
struct spec_select;

/* What one get_important delivered. New rows, the pass's own keys included, stand in the cache from
 * row `matched` on; the pass's own come last. */
struct eng_selection {
    const struct eng_attention_view *view;
    uint64_t request, pass; /* request: its index */
    uint64_t matched, row_count;
    const uint32_t *positions; /* [lists][row_count], ascending */
    uint64_t lists;            /* 1, or KV heads where sets are per head */
    bool fallback, dense;
    float similarity, threshold;
    uint64_t union_rows, prefetched_rows, wanted_bytes, read_bytes, unused_bytes, io_ops;
    uint64_t probe_ns, io_exposed_ns;
    uint64_t window_ns; /* since the first prefetch_next that was for this layer; 0: none was */
};

struct eng_driver_params {
    const char *connector; /* path of the shared object */
    const char *config;    /* path or JSON text */
    const char *model_dir; /* its weight files make the namespace */
    const struct eng_model *model;
    enum eng_dtype kv_dtype;
    bool store;                /* false: read only what is there */
    bool settle;               /* close waits until nothing is being built in the background */
    bool store_query;          /* also the query's rows, not only the prefix's */
    struct eng_report *report; /* for --trace; may be NULL */
    const struct spec_select *select; /* for every get_important, copied; NULL: as configured */
    bool ahead; /* layered: a layer's place is told while the one below is computed; no hint then */
    enum eng_hint hint;
    enum eng_fill fill;        /* ENDS: whole rows, whatever is said of choosing them */
    uint64_t fill_tokens;      /* computed at a time from the front; 0 reads as 512 */
    uint64_t fill_deadline_ns; /* of the loading; 0: none */
    uint64_t probe_heads;      /* as select.probe_heads is configured; 0 reads as 3 */
    bool probe_queries;        /* queries of the probe heads alone */
    bool no_new_keys;          /* scores run over the prefix alone */
    /* Called after each get_important, which both ends have none of; may be NULL. */
    eng_status (*observe)(void *user, const struct eng_selection *selection,
                          struct eng_error *reterr);
    void *observe_user;
    void (*log)(int32_t level, const char *line, void *user); /* may be NULL */
    void *log_user;
};

eng_status eng_driver_open(const struct eng_driver_params *params, struct eng_driver **ret_driver,
                           struct eng_error *reterr);
/* Takes NULL. */
/* Waits until the plugin has made what it makes in the background: codes of what it has stored. */
void eng_driver_settle(const struct eng_driver *driver);
void eng_driver_close(struct eng_driver *driver);

/* Constant while the driver is open. */
const struct eng_source *eng_driver_source(const struct eng_driver *driver);

/* The connector's counters. */
struct spec_stats;
eng_status eng_driver_stats(const struct eng_driver *driver, struct spec_stats *ret_stats,
                            struct eng_error *reterr);

/* Asks for work in the background: SPEC_MAINTAIN_*. */
eng_status eng_driver_maintain(const struct eng_driver *driver, uint32_t flags,
                               struct eng_error *reterr);

/* Why the last request's rows could not be stored (disk full, staging full), or NULL. */
const char *eng_driver_store_problem(const struct eng_driver *driver);

#endif

/* config: the configuration, JSON from a file or inline, checked against one table.
 * docs/reference/config.md lists the same keys; a test compares both.
 *
 * Invariants: after a parse every member has a checked value. Unknown and duplicate keys are
 * errors.
 * Errors: they have the key's path, the value found and the values allowed.
 * Threads: any; the result is constant. Tests: tests/unit/base/test_config.c,
 * tests/fuzz/fuzz_config.c */
#ifndef SC_BASE_CONFIG_H
#define SC_BASE_CONFIG_H

#include "base/alloc.h"
#include "base/limits.h"
#include "base/policy.h"
#include "base/status.h"

enum sc_config_preset {
    SC_PRESET_RECOMPUTE,
    SC_PRESET_AS_LIKE,
    SC_PRESET_AS_H2O_LRU,
    SC_PRESET_AS_H2O_LFU,
    SC_PRESET_SPI,
    SC_PRESET_RANDOM,
    SC_PRESET_IMPRESS_ITF,
    SC_PRESET_SPEC_ITF,
    SC_PRESET_HINTED,
    SC_PRESET_LAYERED,
    SC_PRESET_LAYERED_UNIFORM,
    SC_PRESET_INT8,
    SC_PRESET_CAKE,
    SC_PRESET_IMPRESS,
    SC_PRESET_SPEC,
    SC_PRESET_ATTENTION_STORE,
    SC_PRESET_IMPRESS_ITF_RO,
    SC_PRESETS
};
enum sc_config_identify {
    SC_IDENTIFY_PROBES,
    SC_IDENTIFY_KEYS,
    SC_IDENTIFY_STATIC,
    SC_IDENTIFY_QUANTISED
};
enum sc_config_base { SC_BASE_NONE, SC_BASE_QUANTISED };
enum sc_config_bit_allocation { SC_BITS_UNIFORM, SC_BITS_PER_CHANNEL };
enum sc_config_quantise { SC_QUANTISE_AUTO, SC_QUANTISE_NO, SC_QUANTISE_YES };
enum sc_config_similarity { SC_SIMILARITY_JACCARD, SC_SIMILARITY_MASS };
enum sc_config_predictor {
    SC_PREDICTOR_NONE,
    SC_PREDICTOR_RANDOM,
    SC_PREDICTOR_SINK,
    SC_PREDICTOR_STATIC,
    SC_PREDICTOR_LAYER,
    SC_PREDICTOR_HINT
};
enum sc_config_load_policy {
    SC_LOAD_POLICY_LOAD,
    SC_LOAD_POLICY_SPLIT,
    SC_LOAD_POLICY_BIDIRECTIONAL
};
enum sc_config_scope { SC_REORDER_SPAN, SC_REORDER_NODE };
enum sc_config_planner { SC_PLANNER_CHUNK, SC_PLANNER_RANGE };
enum sc_config_staging { SC_STAGING_AUTO, SC_STAGING_NEVER, SC_STAGING_ALWAYS };
enum sc_config_admit { SC_ADMIT_ALL, SC_ADMIT_SECOND };
enum sc_config_backend { SC_BACKEND_AUTO, SC_BACKEND_URING, SC_BACKEND_PREAD };

#define SC_CONFIG_AUTO UINT64_MAX /* a size that open decides */

enum sc_config_writers { SC_WRITERS_AUTO, SC_WRITERS_ONE, SC_WRITERS_MANY };

/* One member per key; config_keys.c has the keys' ranges and defaults. */
struct sc_config {
    char path[SC_LIMIT_PATH_BYTES]; /* "path": the store's directory; required */
    uint32_t preset;                /* "preset": enum sc_config_preset, without "+range" */
    uint32_t chunk_tokens;
    uint64_t disk_bytes;            /* "disk_bytes": 0 = min(20 GiB, half of what is free) */
    uint64_t segment_bytes;
    uint64_t staging_bytes;
    uint64_t host_bytes;            /* "host_bytes": SC_CONFIG_AUTO; 0: no host tier */
    uint32_t host_write_through;    /* "host_write_through": "no" (0) | "yes" (1) */
    uint32_t host_policy;           /* "host_policy": enum sc_policy (base/policy.h) */
    uint32_t upper_policy;          /* "upper_policy": 0: host_policy, else enum sc_policy + 1 */
    uint64_t upper_bytes;           /* "upper_bytes": SC_CONFIG_AUTO; 0: no upper tier */
    uint32_t io_backend;
    uint32_t io_threads;
    uint64_t io_in_flight_bytes;
    uint64_t io_op_bytes;
    uint32_t load_policy;           /* "load_policy": enum sc_config_load_policy */
    uint64_t compute_tokens_per_s;  /* "compute.tokens_per_s": 0: unknown */
    uint32_t max_requests;
    uint32_t max_request_tokens;
    uint64_t request_bytes;         /* "request_bytes": SC_CONFIG_AUTO */
    uint64_t index_bytes_max;
    uint64_t lease_ns_max;
    uint32_t budget;                /* "select.budget": SPEC_BUDGET_* */
    uint32_t metric;                /* "select.metric": SPEC_METRIC_* */
    uint64_t retain_ppm;
    uint64_t select_count;
    uint64_t mass_ppm;
    uint32_t identify;              /* "select.identify": enum sc_config_identify */
    uint64_t gpu_device;            /* "gpu.device": SC_CONFIG_AUTO, or an ordinal */
    uint64_t gpu_staging_bytes;
    uint64_t gpu_query_bytes;
    uint64_t gpu_score_bytes;
    uint64_t gpu_store_bytes;
    uint64_t upper_bus_bytes_per_s; /* "upper_bus_bytes_per_s": 25 GB; 0: not counted */
    uint32_t base;                  /* "select.base": enum sc_config_base */
    uint32_t quantise;              /* "layered.quantise": enum sc_config_quantise */
    uint32_t quarters_k, quarters_v; /* "layered.bits_k", "layered.bits_v", in quarters: 4 .. 32 */
    uint32_t bit_allocation;         /* "layered.bit_allocation": enum sc_config_bit_allocation */
    uint64_t exact_ppm;
    uint64_t exact_first;            /* "layered.keep_first", "layered.keep_last": rows */
    uint64_t exact_last;
    uint64_t refine_bytes;          /* "layered.refine_bytes": 64 MiB, for all requests */
    uint32_t reorder_scope;         /* "reorder.scope": enum sc_config_scope */
    uint64_t reorder_interval_s;    /* "reorder.interval_s": 0: only when asked for */
    uint64_t reorder_repeat_ppm;    /* "reorder.repeat_ppm": 0: never again */
    uint64_t reorder_bytes_max;     /* "reorder.bytes_max": 256 MiB, for one layer */
    uint32_t probe_heads;           /* "select.probe_heads": 0: no probe keys are stored */
    uint32_t alpha_milli;
    uint32_t similarity;            /* "select.similarity": enum sc_config_similarity */
    uint64_t similarity_mass_ppm;
    uint64_t keep_first, keep_last; /* "select.keep_first", "select.keep_last": rows */
    uint32_t dense_layers;
    uint64_t select_min_tokens;     /* "select.min_tokens": 256; shorter matches are whole */
    uint64_t min_share_ppm;         /* "select.min_share_ppm": smaller shares are whole */
    uint32_t unit;                  /* "select.unit": rows of a granule; 1: single rows */
    uint32_t predictor;             /* "prefetch.predictor": enum sc_config_predictor */
    uint64_t selector_bytes;
    uint64_t average_bytes; /* "select.average_bytes": memory limit, 64 MiB */
    uint64_t min_precision_ppm;
    uint32_t hint_rows;
    uint32_t submit_threads;
    uint32_t planner;               /* "read.planner": enum sc_config_planner */
    uint64_t gap_bytes;             /* "read.gap_bytes": 0: from the device model */
    uint32_t layout;                /* "store.layout": as enum sc_store_layout */
    uint64_t checkpoint_bytes;
    uint64_t maintain_bytes_per_s;  /* "maintain.bytes_per_s": 64 MiB; 0: no limit */
    uint64_t store_min_tokens;
    uint64_t write_budget;          /* "store.write_budget": bytes a day; 0: none */
    uint32_t admit;                 /* "store.admit": enum sc_config_admit */
    uint32_t evict_policy;          /* "evict.policy": enum sc_policy (base/policy.h) */
    uint32_t allow_shared;          /* "store.allow_shared": "no" (0) | "yes" (1) */
    uint32_t writers;               /* "store.writers": enum sc_config_writers */
    uint32_t allow_network_fs;      /* "store.allow_network_fs": "no" (0) | "yes" (1) */
    uint32_t store_lossy;           /* "store.lossy": "yes" (1) | "no" (0) */
    uint32_t store_pruned;          /* "store.pruned": "no" (0) | "yes" (1) */
    uint64_t objects_hold_ms;
    uint64_t objects_timeout_ms;
    uint32_t objects_staging;       /* "objects.staging": enum sc_config_staging */
    uint64_t objects_log_ppm;
    uint32_t objects_submitted_max;
};

/* Parses text: a path of a JSON file, or JSON if its first non-blank byte is '{'. alloc is used for
 * the file's bytes only; json-c uses libc. Sizes are integers or as "4GiB", "64MiB", "512KiB",
 * "10GB".
 * Errors: CONFIG (the key's path, or line and column if the text is not JSON), IO (the file),
 * INVALID (NULL), NO_MEMORY. */
spec_status sc_config_parse(struct sc_alloc *alloc, const char *text, struct sc_config *ret_config,
                            struct spec_error *reterr);

/* Returns the eviction order of the tier above host memory: enum sc_policy. */
uint32_t sc_config_upper_policy(const struct sc_config *config);

/* Returns true if fewer than all rows may be delivered without an item asking for it. */
bool sc_config_selects(const struct sc_config *config);
/* Returns true if stored rows are also quantised. */
bool sc_config_stores_quantised(const struct sc_config *config);

#endif

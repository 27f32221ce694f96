/* recurrent: layers that keep a recurrent state instead of rows (SPEC_GROUP_STATE; decision 0049).
 *
 *   the model's layers   0 S   1 S   2 rows   3 S   4 S   5 rows      as calls name them
 *   the store's                      0                    1           those with rows
 *   a branch at m        rows of layer 0: [S0 | S1]       of layer 1: [S3 | S4]
 *
 * The states after m tokens are stored as rows of artificial tokens, a branch (hashing/radix.h) of
 * the run that ends at m. Index, records, tags, leases, eviction, epochs and rank sets treat them
 * as rows. A match of such a model ends at a branch. save/save_recurrent.c stores branches;
 * load/load_recurrent.c matches and loads them. If no layer has rows, tokens get blank rows in one
 * layer, which are never loaded: the index finds tokens by their rows.
 *
 * Invariants: a branch is committed after its pass's rows, and found only if whole. States are not
 * selected, quantised, prefetched to host memory or delivered to a device. Threads: per call.
 * Tests: conformance (abi_212_*, abi_213_*), tests/unit/plugin/test_recurrent*.c */
#ifndef SC_PLUGIN_ARGS_RECURRENT_H
#define SC_PLUGIN_ARGS_RECURRENT_H

#include "base/status.h"
#include "hashing/digest.h"
#include "plugin/args/memory.h"

#define SC_PLUGIN_RECURRENT_TOKEN     UINT32_MAX /* artificial; only behind a branch's mark */
#define SC_PLUGIN_RECURRENT_TOKEN_END (UINT32_MAX - 1)

struct sc_plugin_layer_form;

struct sc_plugin_recurrent {
    /* Set by open, constant after. */
    uint32_t count;                     /* recurrent layers; 0: no other member is used */
    uint32_t layer_count;               /* of the model */
    struct sc_plugin_layer_form *forms; /* [layer_count] */
    uint32_t *rows_next;                /* [layer_count] store's next layer with rows */
    bool is_alone;                      /* no layer has rows: tokens have blank ones */
    uint64_t rows_each;                 /* rows of one state */
    uint64_t bytes;                     /* bytes of all states, as loads read them */
    uint64_t together;                  /* states in one of the store's layers */
    uint64_t segments_max;              /* maximum of a branch */
    uint64_t saves_max;                 /* extents of a branch, maximum */
    struct sc_sha256 mark;
    struct sc_plugin_recurrent_pass *passes; /* [pass_count] save/save_recurrent.h */
    uint32_t pass_count;

    struct sc_plugin_recurrent_pass *free; /* guarded by saves.lock */
};

/* Splits a checked model's layers: conn->layers gets those with rows. Takes over `forms`. */
spec_status sc_plugin_recurrent_layers(spec_connector *conn, const struct spec_model *model,
                                       struct sc_plugin_layer_form *forms,
                                       struct spec_error *reterr);
void sc_plugin_recurrent_close(spec_connector *conn);

/* Layers as calls number them. Any thread, as all below. */
uint32_t sc_plugin_layers_named(const spec_connector *conn);
bool sc_plugin_keeps_recurrent(const spec_connector *conn, uint32_t layer);
/* Returns the store's number of a layer with rows; else of the next such layer, or their count. */
uint32_t sc_plugin_row_layer(const spec_connector *conn, uint32_t layer);
/* Returns a recurrent layer's index among the recurrent layers. */
uint32_t sc_plugin_recurrent_number(const spec_connector *conn, uint32_t layer);
uint64_t sc_plugin_recurrent_rows(const spec_connector *conn);

/* Reads and checks the host's description of a state: state_bytes at k_base, in host memory. */
spec_status sc_plugin_recurrent_memory(const spec_connector *conn, uint32_t layer, const char *name,
                                       const struct spec_memory *host,
                                       struct sc_plugin_memory *ret_memory,
                                       struct spec_error *reterr);

#endif

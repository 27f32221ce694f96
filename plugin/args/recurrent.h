/* Layers that keep a state instead of rows (SPEC_GROUP_STATE; docs/decisions/0049).
 *
 *   the model's layers   0 S   1 S   2 rows   3 S   4 S   5 rows      as calls name them
 *   the store's                      0                    1           those with rows
 *   a branch at m        rows of layer 0: [S0 | S1]       of layer 1: [S3 | S4]
 *
 * All states that stand for the tokens before m are rows of tokens that no prompt has, which hang
 * on the run that ends at m as a branch (hashing/radix.h): index, records, tags, leases, eviction,
 * epochs and rank sets know them as they know any rows. A match of such a model ends where a branch
 * is. Stored by save/save_recurrent.c, matched and loaded by load/load_recurrent.c.
 *
 * Where no layer has rows, tokens have blank ones in one layer that nobody loads: the index knows
 * tokens by their rows.
 *
 * Holds: a branch is committed behind the rows of its pass; it is whole or not found.
 * Does not: choose, code or stage states; deliver them to a device.
 * Threads: per call, below.
 * Tests: conformance (abi_212_*, abi_213_*), tests/unit/plugin/test_recurrent.c,
 * test_recurrent_space.c */
#ifndef SC_PLUGIN_ARGS_RECURRENT_H
#define SC_PLUGIN_ARGS_RECURRENT_H

#include "base/status.h"
#include "hashing/digest.h"
#include "plugin/args/memory.h"

#define SC_PLUGIN_RECURRENT_TOKEN     UINT32_MAX /* of a branch's rows; behind its mark only */
#define SC_PLUGIN_RECURRENT_TOKEN_END (UINT32_MAX - 1)

struct sc_plugin_layer_form;

struct sc_plugin_recurrent {
    /* Set by open, constant after. */
    uint32_t count;                     /* layers that keep one; 0: nothing here is used */
    uint32_t layer_count;               /* of the model */
    struct sc_plugin_layer_form *forms; /* [layer_count] */
    uint32_t *rows_next;                /* [layer_count] rows' number from it on */
    bool is_alone;                      /* no layer has rows: tokens have blank ones */
    uint64_t rows_each;                 /* that a state takes */
    uint64_t bytes;                     /* of all states, as loads read them */
    uint64_t together;                  /* states in one of the store's layers */
    uint64_t segments_max;              /* of a branch */
    uint64_t saves_max;                 /* extents that one is written into */
    struct sc_sha256 mark;
    struct sc_plugin_recurrent_pass *passes; /* [pass_count] save/save_recurrent.h */
    uint32_t pass_count;

    struct sc_plugin_recurrent_pass *free; /* guarded by saves.lock */
};

/* Layers of a model that was checked, of which some keep a state: conn->layers becomes those with
 * rows. `forms` is the connector's from here on. Open. */
spec_status sc_plugin_recurrent_layers(spec_connector *conn, const struct spec_model *model,
                                       struct sc_plugin_layer_form *forms,
                                       struct spec_error *reterr);
void sc_plugin_recurrent_close(spec_connector *conn);

/* As calls count layers. Any thread, as the rest. */
uint32_t sc_plugin_layers_named(const spec_connector *conn);
bool sc_plugin_keeps_recurrent(const spec_connector *conn, uint32_t layer);
/* The store's number of a layer with rows; of one with a state, that of the next one with rows, or
 * how many there are. */
uint32_t sc_plugin_row_layer(const spec_connector *conn, uint32_t layer);
/* The number, among those that keep one, of a layer with a state. */
uint32_t sc_plugin_recurrent_number(const spec_connector *conn, uint32_t layer);
/* Rows of a branch. */
uint64_t sc_plugin_recurrent_rows(const spec_connector *conn);

/* Reads and checks the host's description of a state: state_bytes at k_base, of host memory. */
spec_status sc_plugin_recurrent_memory(const spec_connector *conn, uint32_t layer, const char *name,
                                       const struct spec_memory *host,
                                       struct sc_plugin_memory *ret_memory,
                                       struct spec_error *reterr);

#endif

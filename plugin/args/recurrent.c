/* recurrent: maps recurrent layers to the store's layers. Contract: recurrent.h. */
#include "plugin/args/recurrent.h"

#include "plugin/args/args.h"
#include "plugin/args/dtype_table.h"
#include "plugin/args/target.h"
#include "plugin/connector.h"

#include <string.h>

/* row bytes if all layers are recurrent: a state has few rows, and a token's row stays small */
#define BLANK_BYTES 1024u

uint32_t sc_plugin_layers_named(const spec_connector *conn)
{
    return conn->states.count > 0 ? conn->states.layer_count : conn->dims.layer_count;
}

bool sc_plugin_keeps_recurrent(const spec_connector *conn, uint32_t layer)
{
    return conn->states.count > 0 && conn->states.forms[layer].kind == SPEC_GROUP_STATE;
}

uint32_t sc_plugin_row_layer(const spec_connector *conn, uint32_t layer)
{
    return conn->states.count > 0 ? conn->states.rows_next[layer] : layer;
}

uint32_t sc_plugin_recurrent_number(const spec_connector *conn, uint32_t layer)
{
    return conn->states.is_alone ? layer : layer - conn->states.rows_next[layer];
}

uint64_t sc_plugin_recurrent_rows(const spec_connector *conn)
{
    return conn->states.rows_each * conn->states.together;
}

static uint64_t ceil_of(uint64_t count, uint64_t each)
{
    return (count + each - 1) / each;
}

spec_status sc_plugin_recurrent_layers(spec_connector *conn, const struct spec_model *model,
                                       struct sc_plugin_layer_form *forms,
                                       struct spec_error *reterr)
{
    struct sc_plugin_recurrent *states = &conn->states;
    uint32_t rows = 0;
    uint64_t bytes = 0;
    states->forms = forms;
    states->layer_count = model->layer_count;
    conn->layers = sc_alloc_array(&conn->alloc, model->layer_count, sizeof(*conn->layers));
    states->rows_next =
        sc_alloc_array(&conn->alloc, model->layer_count, sizeof(*states->rows_next));
    if (conn->layers == NULL || states->rows_next == NULL)
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "%" PRIu32 " layers", model->layer_count);
    for (uint32_t l = 0; l < model->layer_count; l++) {
        bool keeps = forms[l].kind == SPEC_GROUP_STATE;
        if (keeps)
            bytes = forms[l].state_bytes > bytes ? forms[l].state_bytes : bytes;
        states->rows_next[l] = rows;
        if (!keeps)
            conn->layers[rows++] = forms[l];
    }
    states->count = model->layer_count - rows;
    states->is_alone = rows == 0;
    if (states->is_alone) {
        conn->layers[rows++] = (struct sc_plugin_layer_form){
            .shape = {.kv_head_count = 1, .dtype = SPEC_DTYPE_BYTES, .row_bytes = BLANK_BYTES}};
        for (uint32_t l = 0; l < model->layer_count; l++)
            states->rows_next[l] = rows; /* not loaded */
    }
    conn->dims.layer_count = rows;
    states->rows_each = ceil_of(bytes, conn->layers[0].shape.row_bytes);
    states->together = ceil_of(states->count, rows);
    for (uint32_t l = 0; l < states->layer_count; l++)
        if (forms[l].kind == SPEC_GROUP_STATE)
            states->bytes += ceil_of(forms[l].state_bytes, conn->layers[0].shape.row_bytes) *
                             conn->layers[0].shape.row_bytes;
    struct sc_digest digest;
    sc_digest_init(&digest, "states");
    states->mark = sc_digest_done_whole(&digest);
    return SPEC_OK;
}

void sc_plugin_recurrent_close(spec_connector *conn)
{
    sc_alloc_free(&conn->alloc, conn->states.rows_next);
    sc_alloc_free(&conn->alloc, conn->states.forms);
}

spec_status sc_plugin_recurrent_memory(const spec_connector *conn, uint32_t layer, const char *name,
                                       const struct spec_memory *host,
                                       struct sc_plugin_memory *ret_memory,
                                       struct spec_error *reterr)
{
    struct spec_memory memory;
    uint64_t bytes = conn->states.forms[layer].state_bytes;
    spec_status status = sc_plugin_args_read(&memory, &sc_plugin_form_memory, host, name, reterr);
    if (status != SPEC_OK)
        return status;
    if (memory.device == SPEC_DEVICE_CUDA)
        return sc_fail(reterr, SPEC_E_UNSUPPORTED, "%s: states are in host memory alone", name);
    if (memory.device != SPEC_DEVICE_HOST || memory.device_index != 0)
        return sc_fail(reterr, SPEC_E_INVALID,
                       "%s: device is %" PRIu32 ", expected SPEC_DEVICE_HOST with index 0", name,
                       memory.device);
    if (memory.k_base == NULL || memory.k_bytes < bytes)
        return sc_fail(reterr, SPEC_E_INVALID,
                       "%s: %" PRIu64 " bytes at %p, expected the layer's state_bytes %" PRIu64,
                       name, memory.k_bytes, memory.k_base, bytes);
    if (memory.v_base != NULL || memory.v_bytes != 0 || memory.slots != NULL)
        return sc_fail(reterr, SPEC_E_INVALID, "%s: a state has no V and no slots", name);
    *ret_memory = (struct sc_plugin_memory){.at = {.k_base = memory.k_base},
                                            .target = &sc_plugin_target_host};
    return SPEC_OK;
}

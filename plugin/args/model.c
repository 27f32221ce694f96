/* model: checks the model given to open and computes the form of each layer's rows.
 *
 *   members   one uniform kind of layer
 *   groups    layers of several kinds, each layer in one group (docs/decisions/0017, 0048)
 *
 * Contradictory descriptions are INVALID. Groups that only repeat the members have no effect.
 * Threads: any (open only). Tests: conformance (abi_010_*, abi_183_*, abi_210_*) */
#include "base/alloc.h"
#include "base/limits.h"
#include "plugin/args/args.h"
#include "plugin/args/dtype_table.h"
#include "plugin/args/identify.h"
#include "plugin/connector.h"

#include <math.h>

#define ROW_ALIGN 16u /* bytes; alignment of rows of models with differing layers */

static spec_status check_members(const struct spec_model *model, struct spec_error *reterr)
{
    if (model->layer_count == 0 || model->layer_count > SC_LIMIT_LAYERS)
        return sc_fail(reterr, SPEC_E_INVALID,
                       "model: layer_count is %" PRIu32 ", 1 .. %u expected", model->layer_count,
                       SC_LIMIT_LAYERS);
    if (model->kv_head_count == 0 || model->kv_head_count > SC_LIMIT_KV_HEADS)
        return sc_fail(reterr, SPEC_E_INVALID,
                       "model: kv_head_count is %" PRIu32 ", 1 .. %u expected",
                       model->kv_head_count, SC_LIMIT_KV_HEADS);
    if (model->query_head_count == 0 || model->query_head_count % model->kv_head_count != 0)
        return sc_fail(reterr, SPEC_E_INVALID,
                       "model: query_head_count is %" PRIu32
                       ", a multiple of kv_head_count %" PRIu32 " expected",
                       model->query_head_count, model->kv_head_count);
    if (model->head_size == 0 || model->head_size > SC_LIMIT_HEAD_SIZE)
        return sc_fail(reterr, SPEC_E_INVALID, "model: head_size is %" PRIu32 ", 1 .. %u expected",
                       model->head_size, SC_LIMIT_HEAD_SIZE);
    if (sc_plugin_dtype_bytes(model->kv_dtype) == 0)
        return sc_fail(reterr, SPEC_E_INVALID,
                       "model: kv_dtype is %" PRIu32 ", SPEC_DTYPE_* expected", model->kv_dtype);
    if (model->kv_layout != SPEC_KV_ROWS || model->rope_kind > SPEC_ROPE_INTERLEAVED)
        return sc_fail(reterr, SPEC_E_INVALID,
                       "model: kv_layout %" PRIu32 " or rope_kind %" PRIu32 " is unknown",
                       model->kv_layout, model->rope_kind);
    if (model->kv_scale_count > 0 && model->kv_scales == NULL)
        return sc_fail(reterr, SPEC_E_INVALID, "model: kv_scales is NULL with a count");
    if (model->tp_rank >= (model->tp_size > 0 ? model->tp_size : 1))
        return sc_fail(reterr, SPEC_E_INVALID, "model: tp_rank %" PRIu32 " of tp_size %" PRIu32,
                       model->tp_rank, model->tp_size);
    if (model->reserved != 0)
        return sc_fail(reterr, SPEC_E_INVALID, "model: reserved must be 0");
    if (model->head_size_v > SC_LIMIT_HEAD_SIZE)
        return sc_fail(reterr, SPEC_E_INVALID,
                       "model: head_size_v is %" PRIu32 ", at most %u expected", model->head_size_v,
                       SC_LIMIT_HEAD_SIZE);
    return SPEC_OK;
}

/* ---- Groups ---------------------------------------------------------------------------------- */

struct layers_seen {
    uint64_t bits[SC_LIMIT_LAYERS / 64];
    uint64_t count;
};

/* Adds the group's layers. A layer that another group has is INVALID. */
static spec_status see_layers(const struct spec_model *model, const struct spec_layer_group *group,
                              uint64_t i, struct layers_seen *seen, struct spec_error *reterr)
{
    if (group->layers == NULL || group->layer_count == 0 || group->layer_count > model->layer_count)
        return sc_fail(reterr, SPEC_E_INVALID,
                       "model: groups[%" PRIu64 "] has %" PRIu64 " layers, 1 .. %" PRIu32
                       " expected",
                       i, group->layers != NULL ? group->layer_count : 0, model->layer_count);
    for (uint64_t l = 0; l < group->layer_count; l++) {
        uint32_t layer = group->layers[l];
        if (layer >= model->layer_count || (l > 0 && layer <= group->layers[l - 1]))
            return sc_fail(reterr, SPEC_E_INVALID,
                           "model: groups[%" PRIu64 "] names layer %" PRIu32
                           ", expected ascending ones below %" PRIu32,
                           i, layer, model->layer_count);
        uint64_t bit = UINT64_C(1) << (layer % 64);
        if (seen->bits[layer / 64] & bit)
            return sc_fail(reterr, SPEC_E_INVALID, "model: layer %" PRIu32 " is in two groups",
                           layer);
        seen->bits[layer / 64] |= bit;
    }
    seen->count += group->layer_count;
    return SPEC_OK;
}

/* Checks heads and sizes by kind: a latent row is one head without V. */
static bool has_its_members(const struct spec_layer_group *group)
{
    bool is_state = group->kind == SPEC_GROUP_STATE, is_latent = group->kind == SPEC_GROUP_LATENT;
    bool is_window = group->kind == SPEC_GROUP_WINDOW;
    if ((group->window != 0) != is_window || (group->state_bytes != 0) != is_state)
        return false;
    if (is_state)
        return group->kv_head_count == 0 && group->head_size == 0 && group->head_size_v == 0 &&
               group->state_bytes <= SC_LIMIT_STATE_BYTES;
    if (is_latent && (group->kv_head_count != 1 || group->head_size_v != 0))
        return false;
    return group->kv_head_count > 0 && group->kv_head_count <= SC_LIMIT_KV_HEADS &&
           group->head_size > 0 && group->head_size <= SC_LIMIT_HEAD_SIZE &&
           group->head_size_v <= SC_LIMIT_HEAD_SIZE;
}

static spec_status check_group(const struct spec_model *model, uint64_t i, struct layers_seen *seen,
                               struct spec_error *reterr)
{
    struct spec_layer_group group;
    spec_status status = sc_plugin_args_read_at(&group, &sc_plugin_form_layer_group, model->groups,
                                                i, "model: groups", reterr);
    if (status != SPEC_OK)
        return status;
    if (group.kind > SPEC_GROUP_STATE)
        return sc_fail(reterr, SPEC_E_INVALID,
                       "model: groups[%" PRIu64 "] is of kind %" PRIu32 ", SPEC_GROUP_* expected",
                       i, group.kind);
    if (group.dtype != 0 && sc_plugin_dtype_bytes(group.dtype) == 0)
        return sc_fail(reterr, SPEC_E_INVALID,
                       "model: groups[%" PRIu64 "] has dtype %" PRIu32
                       ", SPEC_DTYPE_* or 0 expected",
                       i, group.dtype);
    if (!has_its_members(&group))
        return sc_fail(reterr, SPEC_E_INVALID,
                       "model: groups[%" PRIu64
                       "]: heads, sizes, window or state_bytes are not those of its kind",
                       i);
    return see_layers(model, &group, i, seen, reterr);
}

static spec_status check_groups(const struct spec_model *model, struct spec_error *reterr)
{
    struct layers_seen seen = {.count = 0};
    if (model->group_count > model->layer_count || model->groups == NULL)
        return sc_fail(reterr, SPEC_E_INVALID,
                       "model: %" PRIu64 " groups at %s, at most one a layer expected",
                       model->group_count, model->groups == NULL ? "NULL" : "an address");
    for (uint64_t i = 0; i < model->group_count; i++) {
        spec_status status = check_group(model, i, &seen, reterr);
        if (status != SPEC_OK)
            return status;
    }
    if (seen.count != model->layer_count)
        return sc_fail(reterr, SPEC_E_INVALID,
                       "model: the groups have %" PRIu64 " layers, the model %" PRIu32, seen.count,
                       model->layer_count);
    return SPEC_OK;
}

spec_status sc_plugin_model_check(const struct spec_model *model, struct spec_error *reterr)
{
    spec_status status = check_members(model, reterr);
    return status == SPEC_OK && model->group_count > 0 ? check_groups(model, reterr) : status;
}

/* ---- Layer forms ----------------------------------------------------------------------------- */

/* Returns the bytes of one token's K and V without padding. */
static uint64_t row_bytes_of(const struct sc_plugin_shape *shape)
{
    return (uint64_t)shape->kv_head_count * ((uint64_t)shape->head_size + shape->head_size_v) *
           sc_plugin_dtype_bytes(shape->dtype);
}

static struct sc_plugin_layer_form members_layer(const struct spec_model *model)
{
    uint32_t size_v = model->head_size_v != 0 ? model->head_size_v : model->head_size;
    return (struct sc_plugin_layer_form){.shape = {.kv_head_count = model->kv_head_count,
                                                   .head_size = model->head_size,
                                                   .dtype = model->kv_dtype,
                                                   .head_size_v = size_v},
                                         .rope_theta = model->rope_theta,
                                         .kind = SPEC_GROUP_FULL};
}

static struct sc_plugin_layer_form group_layer(const struct spec_model *model,
                                               const struct spec_layer_group *group)
{
    uint32_t size_v = group->head_size_v != 0 ? group->head_size_v : group->head_size;
    if (group->kind == SPEC_GROUP_STATE)
        return (struct sc_plugin_layer_form){.kind = group->kind,
                                             .state_bytes = group->state_bytes};
    return (struct sc_plugin_layer_form){
        .shape = {.kv_head_count = group->kv_head_count,
                  .head_size = group->head_size,
                  .dtype = group->dtype != 0 ? group->dtype : model->kv_dtype,
                  .head_size_v = group->kind == SPEC_GROUP_LATENT ? 0 : size_v},
        .window = group->window,
        .rope_theta = group->rope_theta != 0 ? group->rope_theta : model->rope_theta,
        .kind = group->kind};
}

static bool are_alike(const struct sc_plugin_layer_form *a, const struct sc_plugin_layer_form *b)
{
    return a->kind == b->kind && a->shape.kv_head_count == b->shape.kv_head_count &&
           a->shape.head_size == b->shape.head_size && a->shape.dtype == b->shape.dtype &&
           a->shape.head_size_v == b->shape.head_size_v && a->window == b->window &&
           !(a->rope_theta < b->rope_theta) && !(a->rope_theta > b->rope_theta) &&
           (isnan(a->rope_theta) != 0) == (isnan(b->rope_theta) != 0);
}

static spec_status layers_set(const struct spec_model *model, struct sc_plugin_layer_form *layers,
                              struct spec_error *reterr)
{
    for (uint64_t i = 0; i < model->group_count; i++) {
        struct spec_layer_group group;
        spec_status status = sc_plugin_args_read_at(&group, &sc_plugin_form_layer_group,
                                                    model->groups, i, "model: groups", reterr);
        if (status != SPEC_OK)
            return status;
        for (uint64_t l = 0; l < group.layer_count; l++)
            layers[group.layers[l]] = group_layer(model, &group);
    }
    return SPEC_OK;
}

spec_status sc_plugin_model_layers(const struct spec_model *model, struct sc_alloc *alloc,
                                   struct sc_plugin_layer_form **ret_layers,
                                   struct spec_error *reterr)
{
    const struct sc_plugin_layer_form plain = members_layer(model);
    struct sc_plugin_layer_form *layers =
        sc_alloc_array(alloc, model->layer_count, sizeof(*layers));
    if (layers == NULL)
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "%" PRIu32 " layers", model->layer_count);
    for (uint32_t l = 0; l < model->layer_count; l++)
        layers[l] = plain;
    spec_status status = layers_set(model, layers, reterr);
    bool is_plain = plain.shape.head_size_v == plain.shape.head_size;
    uint64_t most = 0;
    for (uint32_t l = 0; l < model->layer_count; l++) {
        uint64_t bytes = row_bytes_of(&layers[l].shape);
        is_plain = is_plain && are_alike(&layers[l], &plain);
        most = bytes > most ? bytes : most;
    }
    for (uint32_t l = 0; l < model->layer_count; l++) /* all rows of a store have one length */
        layers[l].shape.row_bytes = (most + ROW_ALIGN - 1) / ROW_ALIGN * ROW_ALIGN;
    if (is_plain || status != SPEC_OK) {
        sc_alloc_free(alloc, layers);
        layers = NULL;
    }
    *ret_layers = layers;
    return status;
}

bool sc_plugin_model_is_recurrent(const struct spec_model *model,
                                  const struct sc_plugin_layer_form *layers)
{
    bool keeps = false;
    for (uint32_t l = 0; layers != NULL && l < model->layer_count; l++)
        keeps = keeps || layers[l].kind == SPEC_GROUP_STATE;
    return keeps;
}

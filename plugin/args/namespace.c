/* namespace: digests of everything that makes one model's KV differ from another's.
 *
 *   descriptor   canonical JSON; spec-ctl names the first field that differs
 *   namespace    digest of all fields, equal on every machine
 *   family       digest without the fields that differ between ranks of one model (decision 0005)
 *
 * Each field has one tag in both digests, whose meaning never changes.
 * Threads: any (open only). Tests: conformance (abi_010_*, abi_011_*) */
#include "plugin/args/identify.h"
#include "plugin/connector.h"

#include <json-c/json.h>
#include <stdio.h>

/* Each field is added to digest and text by one call, so that they cannot differ. */
struct description {
    struct sc_digest digest;
    struct sc_digest family;
    bool of_rank; /* fields added now are left out of the family */
    struct json_object *text;
    bool failed; /* json-c ran out of memory */
};

static void field_add(struct description *d, const char *name, struct json_object *value)
{
    if (value == NULL || json_object_object_add(d->text, name, value) != 0)
        d->failed = true;
}

static void describe_u64(struct description *d, uint32_t tag, const char *name, uint64_t value)
{
    sc_digest_u64(&d->digest, tag, value);
    if (!d->of_rank)
        sc_digest_u64(&d->family, tag, value);
    field_add(d, name, json_object_new_uint64(value));
}

static void describe_text(struct description *d, uint32_t tag, const char *name, const char *value)
{
    sc_digest_text(&d->digest, tag, value != NULL ? value : "");
    if (!d->of_rank)
        sc_digest_text(&d->family, tag, value != NULL ? value : "");
    field_add(d, name, json_object_new_string(value != NULL ? value : ""));
}

static void describe_hash(struct description *d, uint32_t tag, const char *name,
                          struct sc_hash hash)
{
    char hex[2 * SC_HASH_BYTES + 1];
    snprintf(hex, sizeof(hex), "%016" PRIx64 "%016" PRIx64, hash.hi, hash.lo);
    sc_digest_hash(&d->digest, tag, hash);
    if (!d->of_rank)
        sc_digest_hash(&d->family, tag, hash);
    field_add(d, name, json_object_new_string(hex));
}

static void describe_f64(struct description *d, uint32_t tag, double value)
{
    sc_digest_f64(&d->digest, tag, value);
    sc_digest_f64(&d->family, tag, value);
}

/* Returns the model's layers; NULL if all are as its members say. */
static const struct sc_plugin_layer_form *forms_of(const spec_connector *conn)
{
    return conn->states.count > 0 ? conn->states.forms : conn->layers;
}

/* Orders layers by what they keep, apart from their number of heads. Returns -1, 0 or 1. */
static int kinds_order(const struct sc_plugin_layer_form *a, const struct sc_plugin_layer_form *b)
{
    const uint64_t ours[] = {a->kind, a->shape.head_size, a->shape.head_size_v, a->shape.dtype,
                             a->window};
    const uint64_t theirs[] = {b->kind, b->shape.head_size, b->shape.head_size_v, b->shape.dtype,
                               b->window};
    for (uint32_t i = 0; i < sizeof(ours) / sizeof(ours[0]); i++)
        if (ours[i] != theirs[i])
            return ours[i] < theirs[i] ? -1 : 1;
    return memcmp(&a->rope_theta, &b->rope_theta, sizeof(a->rope_theta));
}

/* Returns true if some layer's kind is not the members'. Ranks may split heads differently. */
static bool has_other_kinds(const spec_connector *conn, const struct spec_model *model)
{
    const struct sc_plugin_layer_form plain = {.shape = {.head_size = model->head_size,
                                                         .head_size_v = model->head_size,
                                                         .dtype = model->kv_dtype},
                                               .rope_theta = model->rope_theta,
                                               .kind = SPEC_GROUP_FULL};
    const struct sc_plugin_layer_form *forms = forms_of(conn);
    for (uint32_t l = 0; forms != NULL && l < model->layer_count; l++)
        if (kinds_order(&forms[l], &plain) != 0)
            return true;
    return false;
}

/* Hashes the distinct kinds of layers in a fixed order: equal for all ranks of a model. */
static struct sc_hash kinds_hash(const spec_connector *conn, const struct spec_model *model)
{
    struct sc_digest digest;
    const struct sc_plugin_layer_form *last = NULL;
    sc_digest_init(&digest, "layer-kinds");
    for (uint32_t tag = 0;; tag += 6) {
        const struct sc_plugin_layer_form *next = NULL;
        for (uint32_t l = 0; l < model->layer_count; l++) {
            const struct sc_plugin_layer_form *layer = &forms_of(conn)[l];
            if ((last == NULL || kinds_order(layer, last) > 0) &&
                (next == NULL || kinds_order(layer, next) < 0))
                next = layer;
        }
        if (next == NULL)
            return sc_digest_done(&digest);
        sc_digest_u64(&digest, tag, next->kind);
        sc_digest_u64(&digest, tag + 1, next->shape.head_size);
        sc_digest_u64(&digest, tag + 2, next->shape.head_size_v);
        sc_digest_u64(&digest, tag + 3, next->shape.dtype);
        sc_digest_u64(&digest, tag + 4, next->window);
        sc_digest_f64(&digest, tag + 5, next->rope_theta);
        last = next;
    }
}

/* Hashes each layer's form, for models with differing layers. */
static struct sc_hash layers_hash(const spec_connector *conn, const struct spec_model *model)
{
    struct sc_digest digest;
    sc_digest_init(&digest, "layers");
    for (uint32_t l = 0; l < model->layer_count; l++) {
        const struct sc_plugin_layer_form *layer = &forms_of(conn)[l];
        const uint64_t members[] = {layer->kind,
                                    layer->shape.kv_head_count,
                                    layer->shape.head_size,
                                    layer->shape.head_size_v,
                                    layer->shape.dtype,
                                    layer->shape.row_bytes,
                                    layer->window | layer->state_bytes}; /* no layer has both */
        const uint32_t count = sizeof(members) / sizeof(members[0]), tag = l * (count + 1);
        for (uint32_t i = 0; i < count; i++)
            sc_digest_u64(&digest, tag + i, members[i]);
        sc_digest_f64(&digest, tag + count, layer->rope_theta);
    }
    return sc_digest_done(&digest);
}

static void describe_model(struct description *d, const spec_connector *conn,
                           const struct spec_model *model)
{
    d->of_rank = true; /* ranks split layers or heads, not always evenly */
    describe_u64(d, 3, "layers", model->layer_count);
    describe_u64(d, 4, "kv_heads", model->kv_head_count);
    describe_u64(d, 5, "query_heads", model->query_head_count);
    d->of_rank = false;
    describe_u64(d, 6, "head_size", model->head_size);
    describe_u64(d, 7, "kv_dtype", model->kv_dtype);
    describe_u64(d, 8, "kv_layout", model->kv_layout);
    describe_u64(d, 9, "rope_kind", model->rope_kind);
    describe_f64(d, 10, model->rope_theta);
    field_add(d, "rope_theta", json_object_new_double(model->rope_theta));
    describe_text(d, 11, "rope_scaling", model->rope_scaling_kind);
    struct json_object *scaling = json_object_new_array();
    field_add(d, "rope_scaling_values", scaling);
    for (uint32_t i = 0; i < 8 && !d->failed; i++) {
        describe_f64(d, 12 + i, model->rope_scaling[i]);
        json_object_array_add(scaling, json_object_new_double(model->rope_scaling[i]));
    }
    d->of_rank = true;
    describe_hash(d, 20, "kv_scales",
                  sc_hash_bytes(model->kv_scales, model->kv_scale_count * sizeof(float)));
    describe_u64(d, 21, "tp_rank", model->tp_rank);
    d->of_rank = false;
    describe_u64(d, 22, "tp_size", model->tp_size > 0 ? model->tp_size : 1);
    describe_u64(d, 23, "chunk_tokens", conn->config.chunk_tokens);
    describe_u64(d, 24, "store_format", SC_STORE_ROWS_FORMAT);
    if (conn->config.layout != SC_STORE_PAIRED) /* the layouts' rows differ */
        describe_u64(d, 25, "layout", conn->config.layout);
    d->of_rank = true; /* as for layers and heads above */
    if (conn->layers != NULL)
        describe_hash(d, 26, "layers_are", layers_hash(conn, model));
    d->of_rank = false;
    if (has_other_kinds(conn, model))
        describe_hash(d, 27, "layer_kinds", kinds_hash(conn, model));
}

static spec_status weights_hash(spec_connector *conn, const struct spec_model *model,
                                struct sc_hash *ret_hash, struct spec_error *reterr)
{
    if (model->kv_scale_count > UINT64_MAX / sizeof(float))
        return sc_fail(reterr, SPEC_E_INVALID, "model: kv_scale_count %" PRIu64 " is no count",
                       model->kv_scale_count);
    if (model->weights_path_count > 0 && model->weights_paths == NULL)
        return sc_fail(reterr, SPEC_E_INVALID, "model: weights_paths is NULL with a count");
    if (model->weights_path_count > 0)
        return sc_plugin_fingerprint(conn, model->weights_paths, model->weights_path_count,
                                     ret_hash, reterr);
    if (model->weights_id.data == NULL || model->weights_id.byte_count == 0)
        return sc_fail(reterr, SPEC_E_INVALID,
                       "model: neither weights_paths nor weights_id is given; without one of them "
                       "KV of other weights could be reused");
    struct sc_digest digest;
    sc_digest_init(&digest, "weights-id");
    sc_digest_bytes(&digest, 1, model->weights_id.data, model->weights_id.byte_count);
    *ret_hash = sc_digest_done(&digest);
    return SPEC_OK;
}

spec_status sc_plugin_namespace(spec_connector *conn, const struct spec_model *model,
                                struct sc_hash *ret_digest, struct sc_hash *ret_family,
                                char **ret_descriptor, struct spec_error *reterr)
{
    struct sc_hash weights;
    spec_status status = weights_hash(conn, model, &weights, reterr);
    if (status != SPEC_OK)
        return status;
    sc_hash_to_bytes(weights, conn->weights);
    struct description d = {.text = json_object_new_object()};
    if (d.text == NULL)
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "namespace descriptor");
    sc_digest_init(&d.digest, "namespace");
    sc_digest_init(&d.family, "family");
    describe_hash(&d, 1, "weights", weights);
    describe_text(&d, 2, "revision", model->revision);
    describe_model(&d, conn, model);
    const char *text =
        d.failed ? NULL : json_object_to_json_string_ext(d.text, JSON_C_TO_STRING_PLAIN);
    *ret_descriptor = text != NULL ? sc_alloc_string(&conn->alloc, text) : NULL;
    json_object_put(d.text);
    if (*ret_descriptor == NULL)
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "namespace descriptor");
    *ret_digest = sc_digest_done(&d.digest);
    *ret_family = sc_digest_done(&d.family);
    return SPEC_OK;
}

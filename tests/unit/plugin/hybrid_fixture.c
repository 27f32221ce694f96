/* A model with states. See hybrid_fixture.h. */
#include "tests/unit/plugin/hybrid_fixture.h"

void hybrid_make(struct hybrid *hybrid, bool is_sim, const char *extra)
{
    static const uint64_t STATE_BYTES[HYBRID_LAYERS] = {300, 0, 5000, 4999, 0, 700};
    memset(hybrid, 0, sizeof(*hybrid));
    memcpy(hybrid->state_bytes, STATE_BYTES, sizeof(STATE_BYTES));
    rig_init(&hybrid->rig, is_sim, extra);
    rig_shape(&hybrid->rig, HYBRID_LAYERS, 2, 8, SPEC_DTYPE_F16);
}

void hybrid_beside(struct hybrid *hybrid, const struct hybrid *first, uint32_t role, uint32_t rank)
{
    memset(hybrid, 0, sizeof(*hybrid));
    memcpy(hybrid->state_bytes, first->state_bytes, sizeof(first->state_bytes));
    rig_beside(&hybrid->rig, &first->rig, role, rank);
}

spec_status hybrid_try_open(struct hybrid *hybrid)
{
    const struct rig *rig = &hybrid->rig;
    struct spec_model model = rig_model(rig);
    for (uint32_t l = 0; l < HYBRID_LAYERS; l++) {
        bool keeps = hybrid->state_bytes[l] > 0;
        hybrid->layers[l] = l;
        hybrid->groups[l] =
            (struct spec_layer_group){.struct_size = sizeof(hybrid->groups[l]),
                                      .kind = keeps ? SPEC_GROUP_STATE : SPEC_GROUP_FULL,
                                      .layers = &hybrid->layers[l],
                                      .layer_count = 1,
                                      .kv_head_count = keeps ? 0 : rig->heads,
                                      .head_size = keeps ? 0 : rig->head_size,
                                      .state_bytes = hybrid->state_bytes[l]};
    }
    model.groups = hybrid->groups;
    model.group_count = HYBRID_LAYERS;
    return rig_try_open_model(&hybrid->rig, &model);
}

void hybrid_open(struct hybrid *hybrid)
{
    if (hybrid_try_open(hybrid) != SPEC_OK)
        fail_msg("open: %s", hybrid->rig.error.text);
}

void hybrid_state(const struct hybrid *hybrid, const struct prompt *prompt, uint64_t end,
                  uint32_t layer, uint8_t *ret_bytes)
{
    uint64_t x = prompt->history[end - 1] + layer;
    for (uint64_t i = 0; i < hybrid->state_bytes[layer]; i++)
        ret_bytes[i] = (uint8_t)(i % 8 == 0 ? (x = rig_mix(x)) : x >> (i % 8 * 8));
}

struct spec_memory hybrid_memory(const struct hybrid *hybrid, uint8_t *bytes, uint32_t layer)
{
    return (struct spec_memory){.struct_size = sizeof(struct spec_memory),
                                .dtype = SPEC_DTYPE_F16,
                                .k_base = bytes,
                                .k_bytes = hybrid->state_bytes[layer]};
}

spec_status hybrid_store_on(struct hybrid *hybrid, spec_request request,
                            const struct prompt *prompt, uint64_t first, uint64_t count,
                            uint32_t layer, uint32_t computed_on, spec_ticket *ret_ticket)
{
    if (hybrid->state_bytes[layer] == 0) {
        assert_int_equal(computed_on, SPEC_PROVENANCE_EXACT);
        return rig_store_layer(&hybrid->rig, request, prompt, first, count, layer, ret_ticket);
    }
    uint8_t *bytes = malloc(hybrid->state_bytes[layer]);
    assert_non_null(bytes);
    hybrid_state(hybrid, prompt, first + count, layer, bytes);
    const struct spec_memory memory = hybrid_memory(hybrid, bytes, layer);
    const struct spec_store_params params = {.struct_size = sizeof(params),
                                             .layer = layer,
                                             .request = request,
                                             .computed_on = computed_on,
                                             .first_token = first,
                                             .token_count = count,
                                             .memory = &memory};
    spec_status status = sc_plugin_store(hybrid->rig.conn, &params, 1, ret_ticket, NULL);
    free(bytes); /* it was copied */
    return status;
}

spec_status hybrid_store(struct hybrid *hybrid, spec_request request, const struct prompt *prompt,
                         uint64_t first, uint64_t count, uint32_t layer, spec_ticket *ret_ticket)
{
    return hybrid_store_on(hybrid, request, prompt, first, count, layer, SPEC_PROVENANCE_EXACT,
                           ret_ticket);
}

spec_status hybrid_fill(struct hybrid *hybrid, const struct prompt *prompt)
{
    struct spec_lookup_result found = rig_lookup(&hybrid->rig, prompt);
    uint64_t first = found.matched_tokens;
    spec_ticket ticket = 0;
    spec_status status = SPEC_OK;
    for (uint32_t l = 0; l < HYBRID_LAYERS && first < prompt->count; l++)
        assert_int_equal(
            hybrid_store(hybrid, found.request, prompt, first, prompt->count - first, l, &ticket),
            SPEC_OK);
    if (first < prompt->count)
        status = rig_wait(&hybrid->rig, ticket);
    rig_release(&hybrid->rig, found.request);
    return status;
}

static spec_status state_load(struct hybrid *hybrid, spec_request request,
                              const struct prompt *prompt, uint64_t end, uint32_t layer)
{
    uint64_t count = hybrid->state_bytes[layer] + RIG_GUARD;
    uint8_t *bytes = malloc(2 * count), *right = bytes + count;
    assert_non_null(bytes);
    memset(bytes, 0xa5, 2 * count);
    hybrid_state(hybrid, prompt, end, layer, right);
    struct spec_memory memory = hybrid_memory(hybrid, bytes, layer);
    struct spec_important item = rig_item(request, layer, &memory);
    spec_status status = sc_plugin_get_important(hybrid->rig.conn, &item, 1, NULL);
    assert_int_equal(item.row_count, status == SPEC_OK);
    assert_true(status != SPEC_OK || memcmp(bytes, right, count) == 0);
    free(bytes);
    return status;
}

spec_status hybrid_load(struct hybrid *hybrid, spec_request request, const struct prompt *prompt,
                        uint64_t from, uint64_t end, uint32_t layer)
{
    struct rig *rig = &hybrid->rig;
    if (hybrid->state_bytes[layer] > 0)
        return state_load(hybrid, request, prompt, end, layer);
    struct area area = rig_area(rig, end - from + 1);
    struct spec_important item = rig_item(request, layer, &area.memory);
    spec_status status = sc_plugin_get_important(rig->conn, &item, 1, NULL);
    assert_true(status != SPEC_OK ||
                rig_area_is_right(rig, &area, prompt, from, end - from, layer));
    rig_area_free(&area);
    return status;
}

uint64_t hybrid_read(struct hybrid *hybrid, const struct prompt *prompt)
{
    struct spec_lookup_result found = rig_lookup(&hybrid->rig, prompt);
    for (uint32_t l = 0; l < HYBRID_LAYERS && found.matched_tokens > 0; l++)
        assert_int_equal(hybrid_load(hybrid, found.request, prompt, 0, found.matched_tokens, l),
                         SPEC_OK);
    rig_release(&hybrid->rig, found.request);
    return found.matched_tokens;
}

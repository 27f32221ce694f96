/* Contract: select_call.h. */
#include "tests/unit/plugin/select_call.h"

struct select_call call_make(const struct world *world, spec_request request, uint32_t layer,
                             uint64_t from)
{
    struct select_call shot = {.area = rig_area(&world->rig, world->matched - from),
                               .pass = world_pass(world, layer, world->rig.dtype),
                               .positions =
                                   calloc(world->rig.heads * CALL_ROWS_MAX, sizeof(uint32_t))};
    assert_non_null(shot.positions);
    shot.select = (struct spec_select){.struct_size = sizeof(shot.select)};
    shot.item = (struct spec_important){.struct_size = sizeof(shot.item),
                                        .request = request,
                                        .layer = layer,
                                        .positions = shot.positions,
                                        .position_capacity = world->rig.heads * CALL_ROWS_MAX};
    return shot;
}

void call_aim(struct select_call *shot)
{
    shot->item.queries = &shot->pass.q;
    shot->item.new_keys = &shot->pass.fresh.memory;
    shot->item.destination = &shot->area.memory;
    shot->item.select = &shot->select;
}

void call_free(struct select_call *shot)
{
    rig_area_free(&shot->area);
    pass_free(&shot->pass);
    free(shot->positions);
}

spec_status call_fire(struct world *world, struct select_call *shot)
{
    call_aim(shot);
    struct spec_error error = {.struct_size = sizeof(error)};
    spec_status status = sc_plugin_get_important(world->rig.conn, &shot->item, 1, &error);
    if (status != SPEC_OK && error.text[0] == 0)
        fail_msg("%s without a text", sc_status_name(status));
    return status;
}

void call_assert_rows(const struct world *world, const struct select_call *shot)
{
    const struct spec_important *item = &shot->item;
    bool parted = (item->result_flags & SPEC_IMPORTANT_FALLBACK) != 0;
    uint64_t d = world->rig.head_size, element = sc_plugin_dtype_bytes(world->rig.dtype);
    uint8_t bytes[8];
    assert_int_equal(item->next_position, world->matched);
    for (uint64_t h = 0; h < world->rig.heads; h++) {
        const uint32_t *positions = item->positions + (parted ? h * item->row_count : 0);
        for (uint64_t r = 0; r < item->row_count; r++) {
            assert_true(r == 0 || positions[r] > positions[r - 1]);
            for (uint32_t part = 0; part < 2; part++)
                for (uint64_t i = 0; i < d; i++) {
                    const struct spec_memory *memory = &shot->area.memory;
                    const uint8_t *at = part == 0 ? memory->k_base : memory->v_base;
                    at += r * rig_part_bytes(&world->rig) + (h * d + i) * element;
                    world_put(bytes, world->rig.dtype,
                              world_kv(world, positions[r], item->layer, part, h, i));
                    assert_memory_equal(at, bytes, element);
                }
        }
    }
}

void call_alone(struct world *world, uint32_t layer, struct select_call *shot)
{
    spec_request request = look(world, 0);
    *shot = call_make(world, request, layer, 0);
    assert_int_equal(call_fire(world, shot), SPEC_OK);
    rig_release(&world->rig, request);
}

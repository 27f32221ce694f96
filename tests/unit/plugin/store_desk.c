/* Holds, Threads: tests/unit/plugin/store_desk.h. */
#include "tests/unit/plugin/store_desk.h"

#include "plugin/device/d2h_batch.h"

void desk_shape(struct desk *desk, const char *extra, uint64_t rows)
{
    *desk = (struct desk){.there_count = 0};
    device_host_open(&desk->host, 0);
    rig_init(&desk->rig, true, extra);
    rig_shape(&desk->rig, DESK_LAYERS, 3, 16, SPEC_DTYPE_F16);
    desk->prompt = rig_prompt(rows, 0, 0, rows);
}

void desk_begin(struct desk *desk)
{
    rig_open(&desk->rig);
    desk->found = rig_lookup(&desk->rig, &desk->prompt);
}

void desk_open(struct desk *desk, const char *extra, uint64_t rows)
{
    desk_shape(desk, extra, rows);
    desk_begin(desk);
}

void desk_sources_free(struct desk *desk)
{
    device_ok(desk->host.cu->cuStreamSynchronize(desk->host.stream));
    while (desk->there_count > 0) {
        there_free(&desk->theres[--desk->there_count]);
        free(desk->slots[desk->there_count]);
        desk->slots[desk->there_count] = NULL;
    }
}

void desk_close(struct desk *desk)
{
    fake_policy(FAKE_EAGER, 1);
    if (desk->found.request != 0)
        rig_release(&desk->rig, desk->found.request);
    rig_end(&desk->rig, &desk->prompt);
    desk_sources_free(desk);
    device_host_end(&desk->host, "desk");
}

/* ---- Sources -------------------------------------------------------------------------------- */

static void blocks_shape(const struct rig *rig, struct area *area, enum dress dress)
{
    struct spec_memory *memory = &area->memory;
    uint64_t element = sc_plugin_dtype_bytes(rig->dtype), head = rig->head_size * element;
    memory->block_tokens = DESK_BLOCK;
    memory->block_stride_bytes = DESK_BLOCK * memory->token_stride_bytes;
    if (dress != COLUMNS)
        return;
    memory->v_base = (uint8_t *)memory->k_base + DESK_BLOCK * head;
    memory->k_bytes = 2 * area->part_bytes;
    memory->v_bytes = memory->k_bytes - DESK_BLOCK * head;
    memory->token_stride_bytes = element;
    memory->k_element_stride_bytes = DESK_BLOCK * element;
    memory->v_token_stride_bytes = head;
    memory->head_stride_bytes = 2 * DESK_BLOCK * head;
    memory->block_stride_bytes = rig->heads * memory->head_stride_bytes;
}

static void token_put(const struct rig *rig, const struct spec_memory *memory, uint64_t slot,
                      uint32_t part, const uint8_t *row)
{
    uint64_t element = sc_plugin_dtype_bytes(rig->dtype);
    uint64_t block = memory->block_tokens != 0 ? memory->block_tokens : UINT64_MAX;
    uint64_t v_stride = memory->v_token_stride_bytes, k_element = memory->k_element_stride_bytes;
    uint64_t token = part == 1 && v_stride != 0 ? v_stride : memory->token_stride_bytes;
    uint64_t step = part == 0 && k_element != 0 ? k_element : element;
    uint8_t *base = (uint8_t *)(part == 0 ? memory->k_base : memory->v_base) +
                    slot / block * memory->block_stride_bytes + slot % block * token;
    for (uint64_t h = 0; h < rig->heads; h++)
        for (uint64_t d = 0; d < rig->head_size; d++)
            memcpy(base + h * memory->head_stride_bytes + d * step,
                   row + (h * rig->head_size + d) * element, element);
}

struct area desk_area(const struct rig *rig, const struct prompt *prompt, uint64_t first,
                      uint64_t count, uint32_t layer, enum dress dress, int64_t *slots)
{
    uint64_t room = (count + DESK_BLOCK - 1) / DESK_BLOCK * DESK_BLOCK;
    struct area area = rig_area(rig, room);
    uint8_t *row = malloc(rig_part_bytes(rig));
    assert_non_null(row);
    if (dress != DENSE) {
        blocks_shape(rig, &area, dress);
        for (uint64_t j = 0; j < count; j++)
            slots[j] = (int64_t)(room - 1 - j);
        area.memory.slots = slots;
        area.memory.slot_count = count;
    }
    for (uint64_t j = 0; j < count; j++)
        for (uint32_t part = 0; part < 2; part++) {
            rig_row(rig, prompt, first + j, layer, part, row);
            token_put(rig, &area.memory, dress != DENSE ? (uint64_t)slots[j] : j, part, row);
        }
    free(row);
    return area;
}

struct there *desk_to_device(struct desk *desk, struct area *area)
{
    assert_true(desk->there_count < DESK_SOURCES);
    struct there *there = &desk->theres[desk->there_count++];
    uint8_t *v_base = area->memory.v_base;
    uint8_t *v_last = area->bytes + RIG_GUARD + (RIG_GUARD + area->part_bytes + 63) / 64 * 64;
    if (area->memory.k_element_stride_bytes != 0) /* K and V are one piece: all of it goes */
        area->memory.v_base = v_last;
    *there = there_make(&desk->host, area);
    area->memory.v_base = (uint8_t *)(uintptr_t)there->at + (v_base - area->bytes);
    return there;
}

spec_status desk_put(struct desk *desk, const struct spec_memory *memory, uint64_t first,
                     uint64_t count, uint32_t layer)
{
    struct spec_store_params params =
        rig_store_params(desk->found.request, layer, first, count, memory);
    params.flags = desk->wait_ns > 0 ? SPEC_STORE_WAIT : 0;
    params.wait_ns = desk->wait_ns;
    desk->rig.error = (struct spec_error){.struct_size = sizeof(desk->rig.error)};
    spec_status status =
        sc_plugin_store(desk->rig.conn, &params, 1, &desk->ticket, &desk->rig.error);
    assert_int_equal(desk->rig.error.code, status);
    return status;
}

spec_status desk_store_layer(struct desk *desk, uint64_t first, uint64_t count, uint32_t layer,
                             enum dress dress)
{
    int64_t *slots = calloc(count, sizeof(*slots));
    assert_non_null(slots);
    struct area area = desk_area(&desk->rig, &desk->prompt, first, count, layer, dress, slots);
    struct there *there = desk_to_device(desk, &area);
    spec_status status = desk_put(desk, &area.memory, first, count, layer);
    memset(slots, 0, count * sizeof(*slots)); /* host memory is the caller's at return */
    desk->slots[desk->there_count - 1] = slots;
    (void)desk->host.cu->cuMemcpyHtoDAsync(there->at, there->pinned, there->bytes,
                                           desk->host.stream);
    rig_area_free(&area);
    return status;
}

spec_status desk_store_host_layer(struct desk *desk, uint64_t first, uint64_t count, uint32_t layer)
{
    return rig_store_layer(&desk->rig, desk->found.request, &desk->prompt, first, count, layer,
                           &desk->ticket);
}

void desk_store_pass(struct desk *desk, enum dress dress)
{
    for (uint32_t layer = 0; layer < desk->rig.layers; layer++)
        assert_int_equal(desk_store_layer(desk, 0, desk->prompt.count, layer, dress), SPEC_OK);
    assert_int_not_equal(desk->ticket, 0);
}

void desk_assert_read(struct desk *desk)
{
    spec_status status = SPEC_PENDING;
    assert_int_equal(rig_read(&desk->rig, &desk->prompt, &status), desk->prompt.count);
}

void desk_assert_stored(struct desk *desk)
{
    assert_int_equal(rig_wait(&desk->rig, desk->ticket), SPEC_OK);
    desk_assert_read(desk);
}

void sources_make(struct desk *desk, struct sources *sources, enum dress dress)
{
    uint64_t count = desk->prompt.count;
    *sources = (struct sources){.slots = {NULL}};
    assert_true(desk->rig.layers <= DESK_LAYERS_MAX);
    for (uint32_t layer = 0; layer < desk->rig.layers; layer++) {
        sources->slots[layer] = calloc(count, sizeof(int64_t));
        assert_non_null(sources->slots[layer]);
        sources->areas[layer] =
            desk_area(&desk->rig, &desk->prompt, 0, count, layer, dress, sources->slots[layer]);
        (void)desk_to_device(desk, &sources->areas[layer]);
    }
}

void sources_done(struct sources *sources)
{
    for (uint32_t layer = 0; layer < DESK_LAYERS_MAX; layer++) {
        rig_area_free(&sources->areas[layer]);
        free(sources->slots[layer]);
    }
}

spec_status sources_store(struct desk *desk, const struct sources *sources)
{
    spec_status status = SPEC_OK;
    for (uint32_t layer = 0; layer < desk->rig.layers && status == SPEC_OK; layer++)
        status = desk_put(desk, &sources->areas[layer].memory, 0, desk->prompt.count, layer);
    if (status == SPEC_OK)
        return rig_wait(&desk->rig, desk->ticket);
    assert_true(status == SPEC_E_IO || status == SPEC_E_UNSUPPORTED);
    assert_int_equal(sc_plugin_store_abort(desk->rig.conn, desk->found.request, 0, NULL), SPEC_OK);
    return status;
}

void desk_assert_idle(struct desk *desk)
{
    spec_connector *conn = desk->rig.conn;
    uint64_t d2h_batches = 0;
    assert_true(rig_saves_are_free(&desk->rig));
    for (const struct sc_plugin_d2h_batch *at = conn->device.d2h_batches.free; at != NULL;
         at = at->next)
        d2h_batches++;
    assert_int_equal(d2h_batches, SC_PLUGIN_D2H_BATCHES);
    assert_int_equal(sc_gpu_staging_used(&conn->device.d2h_batches.ring), 0);
    assert_null(conn->saves.queue.head);
}

void desk_assert_goes_on(struct desk *desk)
{
    assert_int_equal(rig_fill(&desk->rig, &desk->prompt), SPEC_OK);
    desk_assert_read(desk);
}

/* Stores from a device are the host's stores: what is read back is what stood there, at the place
 * in the host's stream where the call was, in every policy of the fake driver
 * (tests/cuda/fake/fake.h).
 *
 *   the host's stream   rows to the source | the store | other bytes over the source
 *
 * Rows are a function of their prompt (plugin_fixture.h), so that what is loaded is compared with
 * no other store.
 *
 * Holds: tickets end, once, and with them all that flies; nothing is left in the driver. */
#include "tests/unit/plugin/device_fixture.h"

#include "plugin/device/parcel.h"

#define LAYERS  3u
#define SOURCES 32u
#define BLOCK   16u /* tokens */
#define SMALL   ", \"gpu\": {\"stage_bytes\": \"1MiB\", \"store_bytes\": \"4MiB\"}"

/* A host whose sources live until its stream is through with them. */
struct desk {
    struct device_host host;
    struct rig rig;
    struct prompt prompt;
    struct spec_lookup_result found;
    spec_ticket ticket;
    struct there theres[SOURCES];
    uint32_t there_count;
};

static void desk_shape(struct desk *desk, const char *extra, uint64_t rows)
{
    *desk = (struct desk){.there_count = 0};
    device_host_open(&desk->host, 0);
    rig_init(&desk->rig, true, extra);
    rig_shape(&desk->rig, LAYERS, 3, 16, SPEC_DTYPE_F16);
    desk->prompt = rig_prompt(rows, 0, 0, rows);
}

static void desk_begin(struct desk *desk)
{
    rig_open(&desk->rig);
    desk->found = rig_lookup(&desk->rig, &desk->prompt);
}

static void desk_open(struct desk *desk, const char *extra, uint64_t rows)
{
    desk_shape(desk, extra, rows);
    desk_begin(desk);
}

static void sources_free(struct desk *desk)
{
    device_ok(desk->host.cu->cuStreamSynchronize(desk->host.stream));
    while (desk->there_count > 0)
        there_free(&desk->theres[--desk->there_count]);
}

static void desk_close(struct desk *desk)
{
    fake_policy(FAKE_EAGER, 1);
    if (desk->found.request != 0)
        rig_release(&desk->rig, desk->found.request);
    rig_prompt_free(&desk->prompt);
    rig_done(&desk->rig);
    sources_free(desk);
    device_host_close(&desk->host);
    device_assert_clean("desk");
}

/* ---- Sources -------------------------------------------------------------------------------- */

enum dress { DENSE, PAGED, COLUMNS, DRESSES };

static void blocks_shape(const struct rig *rig, struct area *area, enum dress dress)
{
    struct spec_memory *memory = &area->memory;
    uint64_t element = sc_plugin_dtype_bytes(rig->dtype), head = rig->head_size * element;
    memory->block_tokens = BLOCK;
    memory->block_stride_bytes = BLOCK * memory->token_stride_bytes;
    if (dress != COLUMNS)
        return;
    memory->v_base = (uint8_t *)memory->k_base + BLOCK * head;
    memory->k_bytes = 2 * area->part_bytes;
    memory->v_bytes = memory->k_bytes - BLOCK * head;
    memory->token_stride_bytes = element;
    memory->k_element_stride_bytes = BLOCK * element;
    memory->v_token_stride_bytes = head;
    memory->head_stride_bytes = 2 * BLOCK * head;
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

/* A layer's rows as the prompt has them, in plain memory. */
static struct area area_make(const struct rig *rig, const struct prompt *prompt, uint64_t first,
                             uint64_t count, uint32_t layer, enum dress dress, int64_t *slots)
{
    uint64_t room = (count + BLOCK - 1) / BLOCK * BLOCK;
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

/* The area's bytes are at the device from here on, and go with the desk; the last of a COLUMNS'
 * guard is not looked at. */
static struct there *to_device(struct desk *desk, struct area *area)
{
    assert_true(desk->there_count < SOURCES);
    struct there *there = &desk->theres[desk->there_count++];
    uint8_t *v_base = area->memory.v_base;
    uint8_t *v_last = area->bytes + RIG_GUARD + (RIG_GUARD + area->part_bytes + 63) / 64 * 64;
    if (area->memory.k_element_stride_bytes != 0) /* K and V are one piece: all of it goes */
        area->memory.v_base = v_last;
    *there = there_make(&desk->host, area);
    area->memory.v_base = (uint8_t *)(uintptr_t)there->at + (v_base - area->bytes);
    return there;
}

static spec_status put(struct desk *desk, const struct spec_memory *memory, uint64_t first,
                       uint64_t count, uint32_t layer)
{
    const struct spec_store_params params = {.struct_size = sizeof(params),
                                             .request = desk->found.request,
                                             .layer = layer,
                                             .first_token = first,
                                             .token_count = count,
                                             .memory = memory};
    desk->rig.error = (struct spec_error){.struct_size = sizeof(desk->rig.error)};
    spec_status status =
        sc_plugin_store(desk->rig.conn, &params, 1, &desk->ticket, &desk->rig.error);
    assert_int_equal(desk->rig.error.code, status);
    return status;
}

/* Stores a layer from the device and writes over the source at once, behind the call. */
static spec_status store_layer(struct desk *desk, uint64_t first, uint64_t count, uint32_t layer,
                               enum dress dress)
{
    int64_t *slots = calloc(count, sizeof(*slots));
    assert_non_null(slots);
    struct area area = area_make(&desk->rig, &desk->prompt, first, count, layer, dress, slots);
    struct there *there = to_device(desk, &area);
    spec_status status = put(desk, &area.memory, first, count, layer);
    memset(slots, 0x7f, count * sizeof(*slots)); /* host memory is the caller's at return */
    free(slots);
    (void)desk->host.cu->cuMemcpyHtoDAsync(there->at, there->pinned, there->bytes,
                                           desk->host.stream);
    rig_area_free(&area);
    return status;
}

static spec_status store_host_layer(struct desk *desk, uint64_t first, uint64_t count,
                                    uint32_t layer)
{
    return rig_store_layer(&desk->rig, desk->found.request, &desk->prompt, first, count, layer,
                           &desk->ticket);
}

static void store_pass(struct desk *desk, enum dress dress)
{
    for (uint32_t layer = 0; layer < LAYERS; layer++)
        assert_int_equal(store_layer(desk, 0, desk->prompt.count, layer, dress), SPEC_OK);
    assert_int_not_equal(desk->ticket, 0);
}

static void assert_stored(struct desk *desk)
{
    spec_status status = SPEC_PENDING;
    assert_int_equal(rig_wait(&desk->rig, desk->ticket), SPEC_OK);
    assert_int_equal(rig_read(&desk->rig, &desk->prompt, &status), desk->prompt.count);
}

/* ---- Bytes ---------------------------------------------------------------------------------- */

static const char *const WAYS[] = {
    "\"preset\": \"as-like\"" SMALL,
    "\"preset\": \"as-like\", \"store\": {\"layout\": \"split\"}" SMALL,
    "\"preset\": \"hinted\", \"select\": {\"retain_ppm\": 1000000}" SMALL,
};
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static void what_stood_there_is_stored(void **state)
{
    (void)state;
    for (uint32_t policy = FAKE_EAGER; policy <= FAKE_RANDOM; policy++)
        for (uint32_t w = 0; w < COUNT(WAYS); w++)
            for (uint32_t dress = DENSE; dress < DRESSES; dress++) {
                struct desk desk;
                fake_policy((enum fake_policy)policy, w + 3 * dress + 1);
                desk_open(&desk, WAYS[w], 130);
                store_pass(&desk, (enum dress)dress);
                assert_stored(&desk);
                desk_close(&desk);
            }
}

static void a_pass_of_several_extents_arrives_whole(void **state)
{
    (void)state;
    for (uint32_t policy = FAKE_LAZY; policy <= FAKE_RANDOM; policy++) {
        struct desk desk;
        fake_policy((enum fake_policy)policy, policy);
        desk_open(&desk, "\"preset\": \"as-like\"", 2 * SC_PLUGIN_SAVE_TOKENS + 100);
        store_pass(&desk, PAGED);
        assert_stored(&desk);
        desk_close(&desk);
    }
}

static void layers_of_host_memory_come_between(void **state)
{
    (void)state;
    for (uint32_t policy = FAKE_EAGER; policy <= FAKE_RANDOM; policy++)
        for (uint32_t mask = 0; mask < 1u << LAYERS; mask++) {
            struct desk desk;
            fake_policy((enum fake_policy)policy, mask + 1);
            desk_open(&desk, WAYS[mask % 2], 130);
            for (uint32_t layer = 0; layer < LAYERS; layer++)
                assert_int_equal((mask >> layer & 1) != 0 ? store_layer(&desk, 0, 130, layer, PAGED)
                                                          : store_host_layer(&desk, 0, 130, layer),
                                 SPEC_OK);
            assert_stored(&desk);
            desk_close(&desk);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_stood_there_is_stored),
        cmocka_unit_test(a_pass_of_several_extents_arrives_whole),
        cmocka_unit_test(layers_of_host_memory_come_between),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Rows and codes placed by hand, in orders drawn at random: the device's memory ends as plain
 * memory does that gets the same calls by the host's target.
 *
 *   batch   rows | even codes | planes, turned   runs, ascending, some skipped
 *            ... PLACED, and again from the first token on, over what stands there
 *   twin     the same calls, at once
 *
 * Holds: sources are overwritten as soon as a call is over, scales when PLACED is (a selector's
 * memory is another layer's then, at the same addresses); some tokens have no slot; guards stay.
 * A failure prints its seed. */
#include "tests/unit/plugin/device_fixture.h"

#include "kernels/bitplanes.h"
#include "plugin/args/target.h"
#include "plugin/device/h2d_batch.h"

#define TOKENS   96u
#define BATCHES  5u
#define STEPS    160u
#define SEEDS    6u /* of a policy */
#define HEADS    2u
#define SIZE     64u
#define CHANNELS (HEADS * SIZE)
#define RUN_MAX  72u
#define SCALES   3u /* buffers of a part */
#define ROTARY   16u

struct source { /* of a call */
    uint8_t rows[RUN_MAX * 2 * CHANNELS * 2];
    uint8_t codes[2][RUN_MAX * CHANNELS + 64];
    float rope[RUN_MAX * ROTARY];
};

struct batch {
    struct device_host *host;
    struct area area, twin;
    struct there there;
    struct sc_plugin_memory memory, twin_memory;
    struct sc_plugin_placing to, twin_to;
    int64_t slots[TOKENS];
    uint8_t scales[SCALES][2][CHANNELS * 4];
    uint64_t next; /* token */
};

struct table {
    uint8_t to[CHANNELS];
    struct sc_kernels_bitplanes planes;
    struct sc_kernels_bitplanes_group groups[HEADS];
};

struct scene {
    struct device_host host;
    struct rig rig;
    uint64_t random;
    bool values_turn; /* otherwise than keys */
    struct source source;
    struct table tables[2];
    struct sc_kernels_rotary rotary[2];
    struct batch batches[BATCHES];
};

static uint64_t draw(struct scene *scene, uint64_t below)
{
    scene->random = rig_mix(scene->random);
    return scene->random % below;
}

static void bytes_draw(struct scene *scene, uint8_t *bytes, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        bytes[i] = (uint8_t)draw(scene, 256);
}

/* float16 of 0 to 2, so that nothing is beyond what codes may stand for. */
static void halves_draw(struct scene *scene, uint8_t *bytes, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        bytes[2 * i] = (uint8_t)draw(scene, 256);
        bytes[2 * i + 1] = (uint8_t)draw(scene, 0x40);
    }
}

static void table_make(struct scene *scene, struct table *table)
{
    for (uint32_t c = 0; c < CHANNELS; c += 8) /* planes are whole bytes */
        memset(table->to + c, (int)draw(scene, 6), 8);
    assert_true(sc_kernels_bitplanes_init(&table->planes, HEADS, SIZE, table->to, table->groups));
}

/* ---- Courses -------------------------------------------------------------------------------- */

static void scales_draw(struct scene *scene, struct batch *batch)
{
    for (uint32_t i = 0; i < SCALES; i++)
        for (uint32_t part = 0; part < 2; part++)
            halves_draw(scene, batch->scales[i][part], CHANNELS * 2);
}

/* Some tokens of a permutation lie nowhere. */
static void slots_draw(struct scene *scene, struct batch *batch)
{
    for (uint64_t i = 0; i < TOKENS; i++)
        batch->slots[i] = (int64_t)i;
    for (uint64_t i = TOKENS - 1; i > 0; i--) {
        uint64_t other = draw(scene, i + 1);
        int64_t slot = batch->slots[i];
        batch->slots[i] = batch->slots[other];
        batch->slots[other] = slot;
    }
    for (uint64_t i = 0; i < TOKENS; i += 1 + draw(scene, 12))
        batch->slots[i] = -1;
}

static struct area area_new(struct scene *scene, struct batch *batch, bool widens, bool has_slots)
{
    struct rig rig = scene->rig;
    rig.dtype = widens ? SPEC_DTYPE_F32 : SPEC_DTYPE_F16;
    struct area area = rig_area(&rig, TOKENS);
    if (has_slots) {
        area.memory.slots = batch->slots;
        area.memory.slot_count = TOKENS;
        area.memory.block_tokens = 16;
        area.memory.block_stride_bytes = 16 * area.memory.token_stride_bytes;
    }
    return area;
}

static struct sc_plugin_placing placing(struct scene *scene, const struct sc_plugin_memory *memory)
{
    spec_connector *conn = scene->rig.conn;
    return (struct sc_plugin_placing){.memory = memory,
                                      .how = {.kernels = conn->kernels,
                                              .memory = &memory->at,
                                              .head_count = HEADS,
                                              .head_size = SIZE,
                                              .element_bytes = 2,
                                              .dtype = sc_plugin_kernels_dtype(SPEC_DTYPE_F16),
                                              .widens = memory->widens}};
}

static void batch_begin(struct scene *scene, struct batch *batch, uint64_t number)
{
    spec_connector *conn = scene->rig.conn;
    bool widens = draw(scene, 2) == 0, has_slots = draw(scene, 3) > 0;
    struct sc_plugin_device_seat seat = {&conn->device, number};
    const struct sc_plugin_memory_need need = {"test", SC_MEMORY_DESTINATION, &conn->shape, TOKENS};
    const struct sc_plugin_memory_way way = {sc_plugin_h2d_batch_check, &seat};
    slots_draw(scene, batch);
    scales_draw(scene, batch);
    batch->next = 0;
    batch->twin = area_new(scene, batch, widens, has_slots);
    batch->area = area_new(scene, batch, widens, has_slots);
    batch->there = there_make(&scene->host, &batch->area);
    assert_int_equal(sc_plugin_memory_check(&batch->twin.memory, &need, &batch->twin_memory, NULL),
                     SPEC_OK);
    assert_int_equal(
        sc_plugin_memory_check_on(&batch->area.memory, &need, &way, &batch->memory, NULL), SPEC_OK);
    batch->to = placing(scene, &batch->memory);
    batch->twin_to = placing(scene, &batch->twin_memory);
    batch->memory.begun = batch->memory.target->fence(&batch->memory, SC_FENCE_BEGIN, NULL);
    assert_int_equal(batch->memory.begun, SPEC_OK);
}

static void batch_placed(struct scene *scene, struct batch *batch)
{
    (void)batch->memory.target->fence(&batch->memory, SC_FENCE_PLACED, NULL);
    batch->next = 0;
    scales_draw(scene, batch);
}

static void batch_end(struct batch *batch, uint64_t seed)
{
    const struct sc_plugin_target *target = batch->memory.target;
    assert_int_equal(target->fence(&batch->memory, SC_FENCE_SETTLED, NULL), SPEC_OK);
    assert_int_equal(target->fence(&batch->memory, SC_FENCE_END, NULL), SPEC_OK);
    there_read(&batch->there, &batch->area);
    for (uint64_t i = 0; i < batch->there.used; i++)
        if (batch->area.bytes[i] != batch->twin.bytes[i])
            fail_msg("seed %lu: byte %lu of %lu", seed, i, batch->there.used);
    there_free(&batch->there);
    rig_area_free(&batch->area);
    rig_area_free(&batch->twin);
}

/* ---- Calls ---------------------------------------------------------------------------------- */

static void rows_place(struct scene *scene, struct batch *batch, uint64_t count, uint64_t at)
{
    static const uint32_t WANTED[] = {SC_STORE_WANT_ROWS, SC_STORE_WANT_ROWS, SC_STORE_WANT_K,
                                      SC_STORE_WANT_V};
    uint64_t part = CHANNELS * 2;
    uint32_t wanted = WANTED[draw(scene, 4)];
    const struct sc_store_rows rows = {.rows = scene->source.rows,
                                       .v = scene->source.rows + part,
                                       .stride = 2 * part,
                                       .row_count = count};
    halves_draw(scene, scene->source.rows, count * 2 * CHANNELS);
    batch->memory.target->place_rows(&batch->to, &rows, 0, count, wanted, at);
    batch->twin_memory.target->place_rows(&batch->twin_to, &rows, 0, count, wanted, at);
}

static struct sc_kernels_quantised even_part(struct scene *scene, const struct batch *batch,
                                             uint32_t scales, uint32_t part)
{
    static const uint32_t BITS[] = {2, 3, 4, 5, 6, 8};
    return (struct sc_kernels_quantised){.scales = batch->scales[scales][part],
                                         .codes = scene->source.codes[part],
                                         .bits = BITS[draw(scene, 6)]};
}

/* Of K and V by one table: keys are turned; values are not, or in another way. */
static struct sc_kernels_quantised planes_part(struct scene *scene, const struct batch *batch,
                                               const struct table *table, uint32_t scales,
                                               uint32_t part)
{
    struct source *source = &scene->source;
    struct sc_kernels_quantised quantised = {.scales = batch->scales[scales][part],
                                             .codes = source->codes[part],
                                             .planes = &table->planes};
    if (part == 0 || scene->values_turn) {
        quantised.rotary = &scene->rotary[part];
        quantised.rope = source->rope;
    }
    return quantised;
}

static void codes_place(struct scene *scene, struct batch *batch, uint64_t count, uint64_t at)
{
    struct source *source = &scene->source;
    uint64_t skipped[(TOKENS + 63) / 64];
    struct sc_kernels_quantised parts[2];
    double frequencies[ROTARY / 2];
    uint32_t scales = (uint32_t)draw(scene, SCALES), table = (uint32_t)draw(scene, 2);
    bool is_even = draw(scene, 2) == 0;
    bytes_draw(scene, source->codes[0], sizeof(source->codes));
    bytes_draw(scene, (uint8_t *)skipped, sizeof(skipped));
    for (uint32_t i = 0; i < ROTARY / 2; i++)
        frequencies[i] = 1.0 / (1 + i);
    for (uint64_t i = 0; i < count; i++)
        sc_kernels_rope_row(draw(scene, 5000), frequencies, ROTARY, source->rope + i * ROTARY);
    for (uint32_t part = 0; part < 2; part++)
        parts[part] = is_even ? even_part(scene, batch, scales, part)
                              : planes_part(scene, batch, &scene->tables[table], scales, part);
    const uint64_t *skips = draw(scene, 3) > 0 ? skipped : NULL;
    batch->memory.target->place_quant(&batch->to, parts, count, at, skips);
    batch->twin_memory.target->place_quant(&batch->twin_to, parts, count, at, skips);
}

static void step(struct scene *scene, struct batch *batch)
{
    uint64_t count = 1 + draw(scene, draw(scene, 6) == 0 ? RUN_MAX : RUN_MAX / 4);
    if (batch->next + count > TOKENS || draw(scene, 20) == 0) {
        batch_placed(scene, batch);
        return;
    }
    if (draw(scene, 3) == 0)
        rows_place(scene, batch, count, batch->next);
    else
        codes_place(scene, batch, count, batch->next);
    memset(&scene->source, 0xee, sizeof(scene->source));
    batch->next += count;
}

static void run(enum fake_policy policy, uint64_t seed, bool values_turn)
{
    static struct scene scene;
    memset(&scene, 0, sizeof(scene));
    scene.random = rig_mix(seed + 1000 * policy);
    scene.values_turn = values_turn;
    scene.rotary[seed % 2] = (struct sc_kernels_rotary){SC_KERNELS_ROTARY_HALF, ROTARY};
    scene.rotary[1 - seed % 2] = (struct sc_kernels_rotary){SC_KERNELS_ROTARY_INTERLEAVED, ROTARY};
    fake_policy(policy, seed);
    device_host_open(&scene.host, 0);
    rig_begin_shape(&scene.rig, true,
                    "\"preset\": \"layered-uniform\", \"max_requests\": 20, "
                    "\"gpu\": {\"staging_bytes\": \"1MiB\"}",
                    1, HEADS, SIZE, SPEC_DTYPE_F16);
    for (uint32_t i = 0; i < 2; i++)
        table_make(&scene, &scene.tables[i]);
    for (uint64_t i = 0; i < BATCHES; i++) /* the last shares the first one's streams */
        batch_begin(&scene, &scene.batches[i], i < BATCHES - 1 ? i : SC_PLUGIN_DEVICE_SLOTS);
    for (uint32_t i = 0; i < STEPS; i++)
        step(&scene, &scene.batches[draw(&scene, BATCHES)]);
    for (uint64_t i = 0; i < BATCHES; i++)
        batch_end(&scene.batches[i], seed);
    fake_policy(FAKE_EAGER, 1);
    rig_done(&scene.rig);
    device_host_end(&scene.host, "orders");
}

static void what_is_placed_is_what_the_hosts_target_places(void **state)
{
    (void)state;
    for (uint32_t policy = FAKE_EAGER; policy <= FAKE_RANDOM; policy++)
        for (uint64_t seed = 1; seed <= SEEDS; seed++)
            run((enum fake_policy)policy, seed, false);
}

static void one_table_may_turn_in_two_ways(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 4; seed++)
        run(FAKE_LAZY, seed, true);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_placed_is_what_the_hosts_target_places),
        cmocka_unit_test(one_table_may_turn_in_two_ways),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

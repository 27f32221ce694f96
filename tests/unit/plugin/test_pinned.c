/* Boxes that run out: many rows through few of them, requests beside each other, rows that are
 * larger than a box usually is. Every row arrives, and nothing else is written.
 *
 *   rows  ->  [box 2 MiB] x 4  ->  the device, which is as late as it may be
 *
 * Rows are a function of their prompt (plugin_fixture.h), so that what stands at the device is
 * compared with no other load. */
#include "tests/unit/plugin/device_fixture.h"

#include "plugin/device/h2d_batch.h"

#include <signal.h>

#define ROWS   3000u
#define LAYERS 2u

struct pile {
    struct device_host host;
    struct rig rig;
    struct prompt prompt;
    uint64_t rows;
};

static void pile_open(struct pile *pile, const char *extra, uint32_t heads, uint32_t head_size,
                      uint64_t rows)
{
    device_host_open(&pile->host, 0);
    rig_init(&pile->rig, true, extra);
    rig_shape(&pile->rig, LAYERS, heads, head_size, SPEC_DTYPE_F16);
    pile->rig.stage = "128MiB"; /* a pass is stored at once */
    pile->rows = rows;
    pile->prompt = rig_prompt(rows, 0, 0, rows);
    rig_open(&pile->rig);
    assert_int_equal(rig_fill(&pile->rig, &pile->prompt), SPEC_OK);
}

static void pile_close(struct pile *pile)
{
    rig_end(&pile->rig, &pile->prompt);
    device_host_end(&pile->host, "pile");
}

/* A load of its own: request, destination, item. */
struct load {
    struct spec_lookup_result found;
    struct area area;
    struct there there;
    uint8_t *k, *v; /* of the area, in plain memory */
    int64_t *slots;
    struct spec_important item;
    spec_ticket ticket;
};

static void load_make(struct pile *pile, struct load *load, uint32_t layer)
{
    *load = (struct load){.area = rig_area(&pile->rig, pile->rows)};
    load->k = load->area.memory.k_base;
    load->v = load->area.memory.v_base;
    load->found = rig_lookup(&pile->rig, &pile->prompt);
    assert_int_equal(load->found.matched_tokens, pile->rows);
    load->there = there_make(&pile->host, &load->area);
    load->item = (struct spec_important){.struct_size = sizeof(load->item),
                                         .request = load->found.request,
                                         .layer = layer,
                                         .destination = &load->area.memory};
}

/* Its rows stand where they should, from the host's stream's next work on. */
static void load_check(struct pile *pile, struct load *load)
{
    struct area area = load->area;
    assert_int_equal(load->item.status, SPEC_OK);
    assert_int_equal(load->item.row_count, pile->rows);
    there_read(&load->there, &area);
    area.memory.k_base = load->k;
    area.memory.v_base = load->v;
    assert_true(
        rig_area_is_right(&pile->rig, &area, &pile->prompt, 0, pile->rows, load->item.layer));
}

static void load_free(struct pile *pile, struct load *load)
{
    there_free(&load->there);
    rig_release(&pile->rig, load->found.request);
    rig_area_free(&load->area);
}

static const char *const FEW = "\"preset\": \"as-like\", \"gpu\": {\"staging_bytes\": \"1MiB\"}";

/* Rows of 4 KiB of K and as much of V: 23 MiB a layer through 8 MiB. */
static void more_rows_than_boxes_hold(void **state)
{
    (void)state;
    struct pile pile;
    fake_policy(FAKE_EAGER, 1);
    pile_open(&pile, FEW, 8, 256, ROWS);
    for (uint32_t policy = FAKE_LAZY; policy <= FAKE_RANDOM; policy++)
        for (uint64_t seed = 1; seed <= 2; seed++) {
            struct load load;
            load_make(&pile, &load, (uint32_t)(seed % LAYERS));
            fake_policy((enum fake_policy)policy, seed);
            assert_int_equal(sc_plugin_get_important(pile.rig.conn, &load.item, 1, NULL), SPEC_OK);
            assert_int_equal(pile.rig.conn->device.pinned_count, 4);
            load_check(&pile, &load);
            load_free(&pile, &load);
        }
    fake_policy(FAKE_EAGER, 1);
    pile_close(&pile);
}

/* One call, and submissions: loads of several requests are in the air together. */
static void requests_share_few_boxes(void **state)
{
    (void)state;
    enum { COUNT = 6 };
    struct pile pile;
    fake_policy(FAKE_EAGER, 1);
    pile_open(&pile, FEW, 8, 128, 700);
    for (uint32_t policy = FAKE_LAZY; policy <= FAKE_RANDOM; policy++) {
        struct load loads[COUNT];
        struct spec_important items[COUNT];
        for (uint32_t i = 0; i < COUNT; i++)
            load_make(&pile, &loads[i], i % LAYERS);
        fake_policy((enum fake_policy)policy, 7);
        for (uint32_t i = 0; i < COUNT; i++)
            items[i] = loads[i].item;
        assert_int_equal(sc_plugin_get_important(pile.rig.conn, items, COUNT, NULL), SPEC_OK);
        for (uint32_t i = 0; i < COUNT; i++) {
            loads[i].item = items[i];
            load_check(&pile, &loads[i]);
            there_put(&loads[i].there);
            assert_int_equal(
                sc_plugin_submit(pile.rig.conn, &loads[i].item, 1, &loads[i].ticket, NULL),
                SPEC_OK);
        }
        for (uint32_t i = COUNT; i-- > 0;)
            assert_int_equal(
                sc_plugin_submit_wait(pile.rig.conn, loads[i].ticket, UINT64_MAX, NULL), SPEC_OK);
        for (uint32_t i = 0; i < COUNT; i++) {
            load_check(&pile, &loads[i]);
            load_free(&pile, &loads[i]);
        }
    }
    fake_policy(FAKE_EAGER, 1);
    pile_close(&pile);
}

/* A model whose rows are so large that a box has to be more than it usually is. */
static void rows_larger_than_usual_have_larger_boxes(void **state)
{
    (void)state;
    struct pile pile;
    fake_policy(FAKE_EAGER, 1);
    pile_open(&pile, "\"preset\": \"as-like\"", 512, 128, 70);
    assert_true(pile.rig.conn->device.pinned_buffer_bytes > 2u << 20);
    for (uint32_t layer = 0; layer < LAYERS; layer++) {
        struct load load;
        load_make(&pile, &load, layer);
        fake_policy(FAKE_LAZY, 1);
        struct spec_error error = {.struct_size = sizeof(error)};
        if (sc_plugin_get_important(pile.rig.conn, &load.item, 1, &error) != SPEC_OK)
            fail_msg("%s", error.text);
        load_check(&pile, &load);
        load_free(&pile, &load);
    }
    fake_policy(FAKE_EAGER, 1);
    pile_close(&pile);
}

/* ---- Courses by hand ------------------------------------------------------------------------ */

/* A batch that has begun to fill a box, and waits for its disk. */
struct filling {
    struct load load;
    struct sc_plugin_memory memory;
    struct sc_plugin_placing to;
};

static void filling_begin(struct pile *pile, struct filling *filling, uint64_t request)
{
    spec_connector *conn = pile->rig.conn;
    struct sc_plugin_device_seat seat = {&conn->device, request};
    const struct sc_plugin_memory_need need = {"test", SC_MEMORY_DESTINATION, &conn->shape,
                                               pile->rows};
    const struct sc_plugin_memory_way way = {sc_plugin_h2d_batch_check, &seat};
    *filling = (struct filling){.load.area = rig_area(&pile->rig, pile->rows)};
    filling->load.k = filling->load.area.memory.k_base;
    filling->load.v = filling->load.area.memory.v_base;
    filling->load.there = there_make(&pile->host, &filling->load.area);
    assert_int_equal(
        sc_plugin_memory_check_on(&filling->load.area.memory, &need, &way, &filling->memory, NULL),
        SPEC_OK);
    filling->to =
        (struct sc_plugin_placing){.memory = &filling->memory,
                                   .how = {.kernels = conn->kernels,
                                           .memory = &filling->memory.at,
                                           .head_count = conn->shape.kv_head_count,
                                           .head_size = conn->shape.head_size,
                                           .element_bytes = 2,
                                           .dtype = sc_plugin_kernels_dtype(conn->shape.dtype)}};
    filling->memory.begun = filling->memory.target->fence(&filling->memory, SC_FENCE_BEGIN, NULL);
    assert_int_equal(filling->memory.begun, SPEC_OK);
}

static void filling_place(struct pile *pile, struct filling *filling, uint64_t row)
{
    uint64_t part = rig_part_bytes(&pile->rig);
    uint8_t *bytes = malloc(2 * part);
    assert_non_null(bytes);
    rig_row(&pile->rig, &pile->prompt, row, filling->load.item.layer, 0, bytes);
    rig_row(&pile->rig, &pile->prompt, row, filling->load.item.layer, 1, bytes + part);
    const struct sc_store_rows rows = {
        .rows = bytes, .v = bytes + part, .stride = 2 * part, .row_count = 1};
    filling->memory.target->place_rows(&filling->to, &rows, 0, 1, SC_STORE_WANT_ROWS, row);
    memset(bytes, 0xee, 2 * part);
    free(bytes);
}

static void filling_end(struct pile *pile, struct filling *filling)
{
    const struct sc_plugin_target *target = filling->memory.target;
    assert_int_equal(target->fence(&filling->memory, SC_FENCE_SETTLED, NULL), SPEC_OK);
    assert_int_equal(target->fence(&filling->memory, SC_FENCE_END, NULL), SPEC_OK);
    struct area area = filling->load.area;
    there_read(&filling->load.there, &area);
    area.memory.k_base = filling->load.k;
    area.memory.v_base = filling->load.v;
    assert_true(rig_area_is_right(&pile->rig, &area, &pile->prompt, 0, pile->rows,
                                  filling->load.item.layer));
    there_free(&filling->load.there);
    rig_area_free(&filling->load.area);
}

/* As many batches wait for the disk as there are boxes, each with a row in one; the next batch
 * gets a box all the same, since those that have boxes may wait for whoever wants this one. */
static void boxes_that_are_half_full_go_off_for_who_needs_one(void **state)
{
    (void)state;
    struct pile pile;
    for (uint32_t policy = FAKE_EAGER; policy <= FAKE_RANDOM; policy++) {
        struct filling fillings[10];
        fake_policy(FAKE_EAGER, 1);
        pile_open(&pile, FEW, 2, 8, 3);
        fake_policy((enum fake_policy)policy, 3);
        (void)alarm(60); /* else it would wait for ever */
        for (uint64_t i = 0; i < 10; i++)
            filling_begin(&pile, &fillings[i], i);
        for (uint64_t row = 0; row < pile.rows; row++)
            for (uint64_t i = 0; i < 10; i++)
                filling_place(&pile, &fillings[i], row);
        (void)alarm(0);
        for (uint64_t i = 0; i < 10; i++)
            filling_end(&pile, &fillings[i]);
        fake_policy(FAKE_EAGER, 1);
        pile_close(&pile);
    }
}

/* What the device refuses is told when the item settles, and to that item alone. */
static void what_a_batch_met_is_told_when_it_settles(void **state)
{
    (void)state;
    struct pile pile;
    struct filling filling;
    struct spec_error error = {.struct_size = sizeof(error)};
    fake_policy(FAKE_EAGER, 1);
    pile_open(&pile, FEW, 2, 8, 3);
    filling_begin(&pile, &filling, 0);
    const struct sc_plugin_target *target = filling.memory.target;
    filling_place(&pile, &filling, 0);
    fake_fault("cuMemcpyHtoDAsync", 1, SC_CU_OUT_OF_MEMORY);
    (void)target->fence(&filling.memory, SC_FENCE_PLACED, NULL);
    assert_true(fake_fired());
    fake_fault(NULL, 0, 0);
    assert_int_equal(target->fence(&filling.memory, SC_FENCE_SETTLED, &error), SPEC_E_IO);
    assert_non_null(strstr(error.text, "cuMemcpyHtoDAsync"));
    assert_int_equal(target->fence(&filling.memory, SC_FENCE_SETTLED, NULL), SPEC_OK);
    assert_int_equal(target->fence(&filling.memory, SC_FENCE_END, &error), SPEC_E_UNSUPPORTED);
    assert_true(there_is_untouched(&filling.load.there, &filling.load.area));
    there_free(&filling.load.there);
    rig_area_free(&filling.load.area);
    pile_close(&pile);
}

/* The device's boxes have the same rows of the layer before, which would stand there if kernels did
 * not wait. */
static void kernels_come_behind_their_copies(void **state)
{
    (void)state;
    struct pile pile;
    fake_policy(FAKE_EAGER, 1);
    pile_open(&pile, FEW, 2, 8, 3);
    for (uint32_t n = 0; n < 20; n++) {
        struct filling filling;
        fake_policy(n < 11 ? FAKE_EAGER : FAKE_LAZY, 1);
        filling_begin(&pile, &filling, 0);
        filling.load.item.layer = n;
        for (uint64_t row = 0; row < pile.rows; row++)
            filling_place(&pile, &filling, row);
        filling_end(&pile, &filling);
    }
    fake_policy(FAKE_EAGER, 1);
    pile_close(&pile);
}

/* A load that could not be put behind the host's work places nothing, and the next item of the same
 * request does. */
static void what_has_not_begun_places_nothing(void **state)
{
    (void)state;
    struct pile pile;
    struct filling fillings[2];
    struct spec_error error = {.struct_size = sizeof(error)};
    fake_policy(FAKE_EAGER, 1);
    pile_open(&pile, FEW, 2, 8, 3);
    for (uint64_t i = 0; i < 2; i++)
        filling_begin(&pile, &fillings[i], 0);
    fake_capture(pile.host.stream, 1);
    struct sc_plugin_memory *memory = &fillings[1].memory;
    memory->begun = memory->target->fence(memory, SC_FENCE_BEGIN, NULL);
    fake_capture(pile.host.stream, 0);
    assert_int_equal(memory->begun, SPEC_E_INVALID);
    for (uint64_t row = 0; row < pile.rows; row++)
        filling_place(&pile, &fillings[0], row);
    filling_end(&pile, &fillings[0]);
    for (uint64_t row = 0; row < pile.rows; row++)
        filling_place(&pile, &fillings[1], row);
    assert_int_equal(memory->target->fence(memory, SC_FENCE_SETTLED, &error), SPEC_E_INVALID);
    assert_int_not_equal(error.text[0], 0);
    assert_int_equal(memory->target->fence(memory, SC_FENCE_END, NULL), SPEC_OK);
    assert_true(there_is_untouched(&fillings[1].load.there, &fillings[1].load.area));
    there_free(&fillings[1].load.there);
    rig_area_free(&fillings[1].load.area);
    pile_close(&pile);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(more_rows_than_boxes_hold),
        cmocka_unit_test(requests_share_few_boxes),
        cmocka_unit_test(rows_larger_than_usual_have_larger_boxes),
        cmocka_unit_test(boxes_that_are_half_full_go_off_for_who_needs_one),
        cmocka_unit_test(what_has_not_begun_places_nothing),
        cmocka_unit_test(what_a_batch_met_is_told_when_it_settles),
        cmocka_unit_test(kernels_come_behind_their_copies),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

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

#include <pthread.h>

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
    int64_t *slots[SOURCES]; /* of the source, or NULL */
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
    while (desk->there_count > 0) {
        there_free(&desk->theres[--desk->there_count]);
        free(desk->slots[desk->there_count]);
        desk->slots[desk->there_count] = NULL;
    }
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
    memset(slots, 0, count * sizeof(*slots)); /* host memory is the caller's at return */
    desk->slots[desk->there_count - 1] = slots;
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

static void assert_read(struct desk *desk)
{
    spec_status status = SPEC_PENDING;
    assert_int_equal(rig_read(&desk->rig, &desk->prompt, &status), desk->prompt.count);
}

static void assert_stored(struct desk *desk)
{
    assert_int_equal(rig_wait(&desk->rig, desk->ticket), SPEC_OK);
    assert_read(desk);
}

/* A pass whose sources are there before it begins: between its calls the host makes none. */
struct sources {
    struct area areas[LAYERS];
    int64_t *slots[LAYERS];
};

static void sources_make(struct desk *desk, struct sources *sources, enum dress dress)
{
    uint64_t count = desk->prompt.count;
    for (uint32_t layer = 0; layer < LAYERS; layer++) {
        sources->slots[layer] = calloc(count, sizeof(int64_t));
        assert_non_null(sources->slots[layer]);
        sources->areas[layer] =
            area_make(&desk->rig, &desk->prompt, 0, count, layer, dress, sources->slots[layer]);
        (void)to_device(desk, &sources->areas[layer]);
    }
}

static void sources_done(struct sources *sources)
{
    for (uint32_t layer = 0; layer < LAYERS; layer++) {
        rig_area_free(&sources->areas[layer]);
        free(sources->slots[layer]);
    }
}

/* The pass, and how it ended: as a call or the ticket says. */
static spec_status sources_store(struct desk *desk, const struct sources *sources)
{
    spec_status status = SPEC_OK;
    for (uint32_t layer = 0; layer < LAYERS && status == SPEC_OK; layer++)
        status = put(desk, &sources->areas[layer].memory, 0, desk->prompt.count, layer);
    if (status == SPEC_OK)
        return rig_wait(&desk->rig, desk->ticket);
    assert_true(status == SPEC_E_IO || status == SPEC_E_UNSUPPORTED);
    assert_int_equal(sc_plugin_store_abort(desk->rig.conn, desk->found.request, 0, NULL), SPEC_OK);
    return status;
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

/* Rows that are coded and chosen: stored by host memory, and from the device. */
static void world_begin(struct world *world, struct device_host *host, const char *extra)
{
    *world = (struct world){.matched = 130, .group = 2, .agree = 8, .is_uneven = true};
    rig_init(&world->rig, true, extra);
    rig_shape(&world->rig, LAYERS, 3, 16, SPEC_DTYPE_F16);
    world->rig.query_group = 2;
    world->prompt = rig_prompt(133, 0, 0, 130 + FRESH_ROWS);
    rig_open(&world->rig);
    if (host == NULL) {
        world_store(world);
        wait_for_codes(world);
        return;
    }
    struct there theres[LAYERS];
    const struct prompt stored = {130, world->prompt.tokens, world->prompt.history};
    spec_request request = rig_lookup(&world->rig, &stored).request;
    spec_ticket ticket = 0;
    for (uint32_t layer = 0; layer < LAYERS; layer++) {
        struct area area = world_area(world, 0, 130, layer);
        theres[layer] = there_make(host, &area);
        const struct spec_store_params params = {.struct_size = sizeof(params),
                                                 .request = request,
                                                 .layer = layer,
                                                 .token_count = 130,
                                                 .memory = &area.memory};
        assert_int_equal(sc_plugin_store(world->rig.conn, &params, 1, &ticket, NULL), SPEC_OK);
        device_ok(host->cu->cuMemcpyHtoDAsync(theres[layer].at, theres[layer].pinned,
                                              theres[layer].bytes, host->stream));
        rig_area_free(&area);
    }
    assert_int_equal(rig_wait(&world->rig, ticket), SPEC_OK);
    rig_release(&world->rig, request);
    wait_for_codes(world);
    device_ok(host->cu->cuStreamSynchronize(host->stream));
    for (uint32_t layer = 0; layer < LAYERS; layer++)
        there_free(&theres[layer]);
}

static void codes_are_those_of_the_hosts_rows(void **state)
{
    (void)state;
    static const char *const ways[] = {
        "\"preset\": \"layered-even\"" SMALL,
        "\"preset\": \"layered\", \"store\": {\"layout\": \"split\"}" SMALL,
        "\"preset\": \"layered\", \"layered\": {\"planes\": \"k8v8\", \"exact\": \"planes\"}" SMALL,
    };
    for (uint32_t i = 0; i < COUNT(ways); i++) {
        struct device_host host;
        struct world plain, world;
        fake_policy(FAKE_LAZY, i + 1);
        device_host_open(&host, 0);
        world_begin(&plain, NULL, ways[i]);
        world_begin(&world, &host, ways[i]);
        spec_request requests[2] = {look(&plain, 0), look(&world, 0)};
        for (uint32_t layer = 0; layer < LAYERS; layer++) {
            struct shot a, b;
            shot_make(&a, &plain, requests[0], layer, 0, 100000);
            shot_make(&b, &world, requests[1], layer, 0, 100000);
            assert_int_equal(fire(&plain, &a), SPEC_OK);
            assert_int_equal(fire(&world, &b), SPEC_OK);
            assert_memory_equal(a.area.bytes, b.area.bytes, 3 * RIG_GUARD + 2 * a.area.part_bytes);
            assert_memory_equal(a.exact, b.exact, sizeof(a.exact));
            shot_free(&a);
            shot_free(&b);
        }
        rig_release(&plain.rig, requests[0]);
        rig_release(&world.rig, requests[1]);
        world_done(&plain);
        world_done(&world);
        fake_policy(FAKE_EAGER, 1);
        device_host_close(&host);
        device_assert_clean("codes");
    }
}

/* ---- What is refused ------------------------------------------------------------------------ */

/* Nothing has changed: the same layer is stored behind it. */
static void assert_refused(struct desk *desk, const struct spec_memory *memory, uint32_t layer,
                           const char *what)
{
    uint64_t enqueued = fake_enqueued();
    int depth = fake_depth(), mode = fake_mode();
    spec_status status = put(desk, memory, 0, desk->prompt.count, layer);
    if (status != SPEC_E_INVALID)
        fail_msg("%s: %s: %s", what, sc_status_name(status), desk->rig.error.text);
    assert_int_equal(fake_enqueued(), enqueued);
    assert_int_equal(fake_depth(), depth);
    assert_int_equal(fake_mode(), mode);
}

static void wrong_layers(struct desk *desk, const struct spec_memory *right, uint32_t layer)
{
    struct spec_memory memory = *right;
    uint8_t *plain = calloc(1, 2 * right->k_bytes);
    assert_non_null(plain);
    fake_capture(desk->host.stream, 1);
    assert_refused(desk, &memory, layer, "a captured stream");
    fake_capture(desk->host.stream, 0);
    memory.k_base = plain;
    assert_refused(desk, &memory, layer, "K in plain memory");
    memory = *right;
    memory.v_base = desk->theres[0].pinned;
    assert_refused(desk, &memory, layer, "V in pinned memory");
    memory = *right;
    memory.k_bytes = UINT64_C(1) << 40;
    assert_refused(desk, &memory, layer, "K that ends elsewhere");
    memory = *right;
    memory.device_index = -1;
    assert_refused(desk, &memory, layer, "no device");
    memory.device_index = 1;
    if (desk->rig.conn->device.gpu != NULL)
        assert_refused(desk, &memory, layer, "a second device");
    int64_t slots[130] = {[3] = -1};
    memory = *right;
    memory.slots = slots;
    memory.slot_count = 130;
    assert_refused(desk, &memory, layer, "a negative slot");
    free(plain);
}

static void what_is_wrong_is_invalid_and_changes_nothing(void **state)
{
    (void)state;
    struct desk desk;
    fake_policy(FAKE_LAZY, 1);
    desk_open(&desk, WAYS[0], 130);
    for (uint32_t layer = 0; layer < LAYERS; layer++) {
        struct area area = area_make(&desk.rig, &desk.prompt, 0, 130, layer, DENSE, NULL);
        (void)to_device(&desk, &area);
        wrong_layers(&desk, &area.memory, layer);
        assert_int_equal(put(&desk, &area.memory, 0, 130, layer), SPEC_OK);
        rig_area_free(&area);
    }
    assert_stored(&desk);
    desk_close(&desk);
}

static void captures_on_other_streams_stay_whole(void **state)
{
    (void)state;
    struct desk desk;
    struct sources sources;
    sc_cu_stream other;
    fake_policy(FAKE_LAZY, 1);
    desk_open(&desk, WAYS[0], 130);
    sources_make(&desk, &sources, PAGED);
    device_ok(desk.host.cu->cuStreamCreate(&other, SC_CU_STREAM_NON_BLOCKING));
    fake_capture(other, 1);
    assert_int_equal(sources_store(&desk, &sources), SPEC_OK); /* attaches, too */
    fake_capture(other, 0);
    assert_read(&desk);
    sources_done(&sources);
    device_ok(desk.host.cu->cuStreamDestroy(other));
    desk_close(&desk);
}

/* ---- Ends ----------------------------------------------------------------------------------- */

/* All saves, tickets, flights and parcels are back. */
static void assert_idle(struct desk *desk)
{
    spec_connector *conn = desk->rig.conn;
    uint64_t saves = 0, parcels = 0;
    rig_settle(&desk->rig);
    for (const struct sc_plugin_save *at = conn->saves.free; at != NULL; at = at->next)
        saves++;
    for (const struct sc_plugin_parcel *at = conn->device.parcels.free; at != NULL; at = at->next)
        parcels++;
    assert_int_equal(saves, conn->saves.count);
    assert_int_equal(parcels, SC_PLUGIN_PARCELS);
    assert_int_equal(sc_gpu_stage_used(&conn->device.parcels.ring), 0);
    assert_null(conn->saves.queue.head);
}

/* The whole of it by host memory, in a request of its own. */
static void assert_goes_on(struct desk *desk)
{
    assert_int_equal(rig_fill(&desk->rig, &desk->prompt), SPEC_OK);
    assert_read(desk);
}

enum end { ABORT, RELEASE, RESET, ENDS };

static void end_it(struct desk *desk, enum end how)
{
    spec_connector *conn = desk->rig.conn;
    if (how == ABORT)
        assert_int_equal(sc_plugin_store_abort(conn, desk->found.request, 0, NULL), SPEC_OK);
    if (how == RESET)
        assert_int_equal(sc_plugin_reset(conn, NULL), SPEC_OK);
    if (how != ABORT) {
        assert_int_equal(sc_plugin_release(conn, desk->found.request, NULL), SPEC_OK);
        desk->found = rig_lookup(&desk->rig, &desk->prompt);
    }
}

/* After so many layers of a pass, of which the last one is stored or not: what flies comes back,
 * and what is stored next by the same request is right, though memory is short. */
static void end_after(enum fake_policy policy, enum end how, uint32_t layers)
{
    struct desk desk;
    spec_status status = SPEC_PENDING;
    fake_policy(policy, layers + 1);
    desk_open(&desk, WAYS[0], 130);
    for (uint32_t layer = 0; layer < layers; layer++)
        assert_int_equal(store_layer(&desk, 0, 130, layer, PAGED), SPEC_OK);
    end_it(&desk, how);
    if (layers == LAYERS)
        assert_int_equal(rig_wait(&desk.rig, desk.ticket), how == RESET ? SPEC_E_DROPPED : SPEC_OK);
    if (how == ABORT && layers == LAYERS) { /* it was over: nothing is left to be aborted */
        assert_int_equal(rig_read(&desk.rig, &desk.prompt, &status), 130);
        desk_close(&desk);
        return;
    }
    uint64_t first = how == RELEASE && layers == LAYERS ? 130 : 0;
    if (first == 0) {
        store_pass(&desk, DENSE);
        assert_stored(&desk);
    }
    assert_idle(&desk);
    desk_close(&desk);
}

static void a_pass_may_end_while_it_flies(void **state)
{
    (void)state;
    for (uint32_t policy = FAKE_EAGER; policy <= FAKE_RANDOM; policy++)
        for (uint32_t how = 0; how < ENDS; how++)
            for (uint32_t layers = 1; layers <= LAYERS; layers++)
                end_after((enum fake_policy)policy, (enum end)how, layers);
}

/* What has all its layers is there after the next open; what lacks some is not. */
static void close_waits_for_what_flies(void **state)
{
    (void)state;
    for (uint32_t policy = FAKE_EAGER; policy <= FAKE_RANDOM; policy++)
        for (uint32_t layers = 1; layers <= LAYERS; layers++) {
            struct desk desk;
            spec_status status = SPEC_PENDING;
            fake_policy((enum fake_policy)policy, layers);
            desk_open(&desk, WAYS[1], 130);
            for (uint32_t layer = 0; layer < layers; layer++)
                assert_int_equal(store_layer(&desk, 0, 130, layer, COLUMNS), SPEC_OK);
            rig_close(&desk.rig);
            desk.found.request = 0;
            rig_open(&desk.rig);
            assert_int_equal(rig_read(&desk.rig, &desk.prompt, &status),
                             layers == LAYERS ? 130 : 0);
            desk_close(&desk);
        }
}

/* ---- No room -------------------------------------------------------------------------------- */

/* 3 layers of 128 KiB of rows are in the air, and room for two passes and a half: who finds none is
 * told so by his ticket, the others' rows are right, and later there is room again. */
static void what_finds_no_room_is_given_up(void **state)
{
    (void)state;
    for (uint32_t policy = FAKE_LAZY; policy <= FAKE_STARVE; policy++) {
        enum { PASSES = 4, ROWS = 690 };
        struct desk desk;
        spec_ticket tickets[PASSES];
        spec_request requests[PASSES];
        struct prompt prompts[PASSES];
        uint32_t stored = 0;
        fake_policy((enum fake_policy)policy, 1);
        desk_shape(&desk,
                   "\"preset\": \"as-like\", \"gpu\": {\"stage_bytes\": \"1MiB\", "
                   "\"store_bytes\": \"1MiB\"}",
                   ROWS);
        desk_begin(&desk);
        rig_release(&desk.rig, desk.found.request);
        struct prompt own = desk.prompt;
        for (uint32_t i = 0; i < PASSES; i++) {
            prompts[i] = rig_prompt(i + 1, 0, 0, ROWS);
            requests[i] = rig_lookup(&desk.rig, &prompts[i]).request;
        }
        for (uint32_t i = 0; i < PASSES; i++) { /* nobody looks what has come meanwhile */
            desk.prompt = prompts[i];
            desk.found.request = requests[i];
            store_pass(&desk, PAGED);
            tickets[i] = desk.ticket;
        }
        for (uint32_t i = 0; i < PASSES; i++) {
            spec_status told = rig_wait(&desk.rig, tickets[i]), status;
            assert_true(told == SPEC_OK || told == SPEC_E_DROPPED || told == SPEC_E_BUSY);
            assert_int_equal(rig_read(&desk.rig, &prompts[i], &status), told == SPEC_OK ? ROWS : 0);
            stored += told == SPEC_OK;
            rig_release(&desk.rig, requests[i]);
        }
        assert_true(stored > 0 && stored < PASSES);
        desk.prompt = own;
        desk.found = rig_lookup(&desk.rig, &desk.prompt);
        store_pass(&desk, DENSE);
        assert_stored(&desk);
        assert_idle(&desk);
        for (uint32_t i = 0; i < PASSES; i++)
            rig_prompt_free(&prompts[i]);
        desk_close(&desk);
    }
}

/* ---- A device that fails -------------------------------------------------------------------- */

static const char *const CALLS[] = {
#define X(name, version, arguments) #name,
    SC_CU_CALLS(X)
#undef X
};

#define ON_0                                                                                       \
    "\"preset\": \"as-like\", \"gpu\": {\"device\": 0, \"stage_bytes\": \"1MiB\", "                \
    "\"store_bytes\": \"4MiB\"}"

/* Told to be there: so it is. Else it is a miss, or right all the same, and host memory stores it.
 */
static void assert_told_right(struct desk *desk, spec_status told, const char *what, int n)
{
    spec_status status = SPEC_PENDING;
    uint64_t read = rig_read(&desk->rig, &desk->prompt, &status);
    if (read != (told == SPEC_OK ? desk->prompt.count : 0))
        fail_msg("%s number %d: told %s, read %" PRIu64, what, n, sc_status_name(told), read);
    if (told != SPEC_OK)
        assert_goes_on(desk);
    assert_idle(desk);
}

/* false: the fault was not met. */
static bool store_with_fault(enum fake_policy policy, const char *call, int n)
{
    struct desk desk;
    struct sources sources;
    fake_policy(policy, 2);
    desk_open(&desk, ON_0, 70);
    sources_make(&desk, &sources, PAGED);
    fake_fault(call, n, SC_CU_LAUNCH_FAILED);
    spec_status status = sources_store(&desk, &sources);
    rig_settle(&desk.rig);
    bool fired = fake_fired() != 0;
    fake_fault(NULL, 0, 0);
    assert_true(fired || status == SPEC_OK);
    assert_told_right(&desk, status, call, n);
    rig_close(&desk.rig); /* whatever the host's stream still does, it is not to our memory */
    desk.found.request = 0;
    sources_done(&sources);
    desk_close(&desk);
    return fired;
}

static void each_call_of_a_store_may_fail(void **state)
{
    (void)state;
    unsigned met = 0;
    for (uint32_t policy = FAKE_EAGER; policy <= FAKE_STARVE; policy++)
        for (size_t i = 0; i < COUNT(CALLS); i++)
            for (int n = 1; store_with_fault((enum fake_policy)policy, CALLS[i], n); n++)
                met++;
    assert_true(met > 60);
}

static bool store_until_crash(enum fake_policy policy, int n)
{
    struct desk desk;
    struct sources sources;
    fake_policy(policy, (uint64_t)n);
    desk_open(&desk, ON_0, 70);
    sources_make(&desk, &sources, DENSE);
    fake_crash(n, SC_CU_LAUNCH_FAILED);
    spec_status status = sources_store(&desk, &sources);
    fake_crash(0, 0);
    assert_told_right(&desk, status, "crash", n);
    rig_close(&desk.rig);
    desk.found.request = 0;
    fake_sticky(0);
    sources_done(&sources);
    rig_open(&desk.rig);
    desk_close(&desk);
    return status != SPEC_OK;
}

static void a_context_may_die_at_each_step(void **state)
{
    (void)state;
    for (uint32_t policy = FAKE_EAGER; policy <= FAKE_RANDOM; policy++) {
        int n = 1;
        while (store_until_crash((enum fake_policy)policy, n))
            n++;
        assert_true(n > 5);
    }
}

/* An extent ends behind the host's back, and its object would be another's: what the host stores
 * next for the pass is nobody's, and disturbs none. */
static void a_pass_whose_extent_has_ended_disturbs_nobody(void **state)
{
    (void)state;
    for (uint32_t by_host = 0; by_host < 2; by_host++) {
        struct desk desk;
        struct sources sources;
        fake_policy(FAKE_EAGER, 1);
        desk_open(&desk, ON_0, 70);
        sources_make(&desk, &sources, PAGED);
        struct prompt other = rig_prompt(5, 0, 0, 70);
        spec_request second = rig_lookup(&desk.rig, &other).request;
        spec_ticket ticket = 0;
        spec_status status = SPEC_PENDING;
        assert_int_equal(put(&desk, &sources.areas[0].memory, 0, 70, 0), SPEC_OK);
        fake_fault("cuEventQuery", 1, SC_CU_LAUNCH_FAILED);
        rig_settle(&desk.rig); /* it is lost */
        fake_fault(NULL, 0, 0);
        for (uint32_t layer = 0; layer < LAYERS; layer++) {
            assert_int_equal(rig_store_layer(&desk.rig, second, &other, 0, 70, layer, &ticket),
                             SPEC_OK);
            if (layer > 0 && by_host != 0)
                assert_int_equal(store_host_layer(&desk, 0, 70, layer), SPEC_OK);
            if (layer > 0 && by_host == 0)
                assert_int_equal(put(&desk, &sources.areas[1].memory, 0, 70, 1),
                                 SPEC_E_UNSUPPORTED);
        }
        assert_int_equal(rig_wait(&desk.rig, ticket), SPEC_OK);
        assert_int_equal(rig_read(&desk.rig, &other, &status), 70);
        if (by_host != 0)
            assert_int_equal(rig_wait(&desk.rig, desk.ticket), SPEC_E_IO);
        assert_int_equal(rig_read(&desk.rig, &desk.prompt, &status), 0);
        rig_release(&desk.rig, second);
        rig_release(&desk.rig, desk.found.request);
        desk.found = rig_lookup(&desk.rig, &desk.prompt);
        assert_goes_on(&desk);
        assert_idle(&desk);
        rig_prompt_free(&other);
        sources_done(&sources);
        desk_close(&desk);
    }
}

/* ---- Memory, threads ------------------------------------------------------------------------ */

static void nothing_is_allocated_once_it_is_attached(void **state)
{
    (void)state;
    struct desk desk;
    fake_policy(FAKE_LAZY, 1);
    desk_open(&desk, ON_0, 130);
    store_pass(&desk, PAGED);
    assert_stored(&desk);
    sc_alloc_seal(&desk.rig.conn->alloc);
    struct prompt next = rig_prompt(9, 0, 0, 130);
    rig_release(&desk.rig, desk.found.request);
    rig_prompt_free(&desk.prompt);
    desk.prompt = next;
    desk.found = rig_lookup(&desk.rig, &desk.prompt);
    store_pass(&desk, PAGED);
    assert_stored(&desk);
    sc_alloc_unseal(&desk.rig.conn->alloc);
    desk_close(&desk);
}

/* A host thread with a stream of its own: prompts that it stores, from the device or with layers of
 * host memory between, and reads back by host memory, or gives up on the way. */
struct actor {
    struct desk desk; /* its rig is a copy */
    uint64_t seed;
    uint32_t stored, lost;
};

static void *act(void *user)
{
    struct actor *actor = user;
    struct desk *desk = &actor->desk;
    device_host_open(&desk->host, 0);
    for (uint32_t turn = 0; turn < 4; turn++) {
        desk->prompt = rig_prompt(actor->seed * 100 + turn, 0, 0, 70);
        desk->found = rig_lookup(&desk->rig, &desk->prompt);
        uint32_t layers = turn == 2 ? 2 : LAYERS, mask = (uint32_t)(actor->seed + turn) % 4;
        for (uint32_t layer = 0; layer < layers; layer++)
            if (layer > 0 && (mask >> (layer - 1) & 1) != 0)
                assert_int_equal(store_host_layer(desk, 0, 70, layer), SPEC_OK);
            else
                assert_int_equal(store_layer(desk, 0, 70, layer, (enum dress)(turn % DRESSES)),
                                 SPEC_OK);
        spec_status status = SPEC_E_DROPPED;
        if (layers == LAYERS) {
            status = rig_wait(&desk->rig, desk->ticket);
            assert_true(status == SPEC_OK || status == SPEC_E_DROPPED || status == SPEC_E_BUSY);
        }
        rig_release(&desk->rig, desk->found.request);
        spec_status loaded = SPEC_PENDING;
        assert_int_equal(rig_read(&desk->rig, &desk->prompt, &loaded), status == SPEC_OK ? 70 : 0);
        actor->stored += status == SPEC_OK;
        actor->lost += status != SPEC_OK;
        rig_prompt_free(&desk->prompt);
        sources_free(desk);
    }
    device_host_close(&desk->host);
    return NULL;
}

static void threads_store_and_load_beside_each_other(void **state)
{
    (void)state;
    enum { ACTORS = 4 };
    static struct actor actors[ACTORS];
    for (uint32_t policy = FAKE_LAZY; policy <= FAKE_RANDOM; policy++) {
        struct rig rig;
        pthread_t threads[ACTORS];
        fake_policy((enum fake_policy)policy, policy);
        rig_init(&rig, false, ON_0);
        rig_shape(&rig, LAYERS, 3, 16, SPEC_DTYPE_F16);
        rig_open(&rig);
        for (uint32_t i = 0; i < ACTORS; i++) {
            memset(&actors[i], 0, sizeof(actors[i]));
            actors[i].desk.rig = rig;
            actors[i].seed = i + 1;
            assert_int_equal(pthread_create(&threads[i], NULL, act, &actors[i]), 0);
        }
        for (uint32_t i = 0; i < ACTORS; i++) {
            assert_int_equal(pthread_join(threads[i], NULL), 0);
            assert_int_equal(actors[i].stored, 3);
        }
        fake_policy(FAKE_EAGER, 1);
        rig_done(&rig);
        device_assert_clean("threads");
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_stood_there_is_stored),
        cmocka_unit_test(a_pass_of_several_extents_arrives_whole),
        cmocka_unit_test(layers_of_host_memory_come_between),
        cmocka_unit_test(codes_are_those_of_the_hosts_rows),
        cmocka_unit_test(what_is_wrong_is_invalid_and_changes_nothing),
        cmocka_unit_test(captures_on_other_streams_stay_whole),
        cmocka_unit_test(a_pass_may_end_while_it_flies),
        cmocka_unit_test(close_waits_for_what_flies),
        cmocka_unit_test(what_finds_no_room_is_given_up),
        cmocka_unit_test(each_call_of_a_store_may_fail),
        cmocka_unit_test(a_context_may_die_at_each_step),
        cmocka_unit_test(a_pass_whose_extent_has_ended_disturbs_nobody),
        cmocka_unit_test(nothing_is_allocated_once_it_is_attached),
        cmocka_unit_test(threads_store_and_load_beside_each_other),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

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
#include "tests/unit/plugin/store_desk.h"

#define LAYERS DESK_LAYERS
#define SMALL  ", \"gpu\": {\"staging_bytes\": \"1MiB\", \"store_bytes\": \"4MiB\"}"

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
                desk_store_pass(&desk, (enum dress)dress);
                desk_assert_stored(&desk);
                desk_close(&desk);
            }
}

static void a_pass_of_several_extents_arrives_whole(void **state)
{
    (void)state;
    for (uint32_t policy = FAKE_LAZY; policy <= FAKE_RANDOM; policy++) {
        struct desk desk;
        fake_policy((enum fake_policy)policy, policy);
        desk_open(&desk, "\"preset\": \"as-like\", \"gpu\": {\"store_bytes\": \"16MiB\"}",
                  2 * SC_PLUGIN_SAVE_TOKENS + 100);
        desk_store_pass(&desk, PAGED);
        desk_assert_stored(&desk);
        desk_close(&desk);
    }
}

/* A pass of three times what staging holds, on a disk that is slower than the host. */
static void a_host_that_waits_loses_nothing(void **state)
{
    (void)state;
    for (uint32_t policy = FAKE_EAGER; policy <= FAKE_RANDOM; policy++) {
        struct desk desk;
        fake_policy((enum fake_policy)policy, policy);
        desk_shape(&desk, "\"preset\": \"as-like\", \"gpu\": {\"store_bytes\": \"16MiB\"}", 8000);
        rig_shape(&desk.rig, DESK_LAYERS, 12, 32, SPEC_DTYPE_F16);
        desk_begin(&desk);
        sc_io_sim_disk_rate(desk.rig.disk, 100000000);
        desk.wait_ns = UINT64_C(20000000000);
        desk_store_pass(&desk, DENSE);
        desk_assert_stored(&desk);
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
                assert_int_equal((mask >> layer & 1) != 0
                                     ? desk_store_layer(&desk, 0, 130, layer, PAGED)
                                     : desk_store_host_layer(&desk, 0, 130, layer),
                                 SPEC_OK);
            desk_assert_stored(&desk);
            desk_close(&desk);
        }
}

/* Rows that are coded and chosen: stored by host memory, and from the device. */
static void world_begin(struct world *world, struct device_host *host, const char *extra)
{
    *world = (struct world){.matched = 130, .group = 2, .agree = 8, .is_uneven = true};
    world_make(world, true, extra, LAYERS, 3, 16, 133);
    rig_open(&world->rig);
    if (host == NULL) {
        world_store(world);
        wait_for_quant(world);
        return;
    }
    struct there theres[LAYERS];
    const struct prompt stored = {130, world->prompt.tokens, world->prompt.history};
    spec_request request = rig_lookup(&world->rig, &stored).request;
    spec_ticket ticket = 0;
    for (uint32_t layer = 0; layer < LAYERS; layer++) {
        struct area area = world_area(world, 0, 130, layer);
        theres[layer] = there_make(host, &area);
        const struct spec_store_params params =
            rig_store_params(request, layer, 0, 130, &area.memory);
        assert_int_equal(sc_plugin_store(world->rig.conn, &params, 1, &ticket, NULL), SPEC_OK);
        device_ok(host->cu->cuMemcpyHtoDAsync(theres[layer].at, theres[layer].pinned,
                                              theres[layer].bytes, host->stream));
        rig_area_free(&area);
    }
    assert_int_equal(rig_wait(&world->rig, ticket), SPEC_OK);
    rig_release(&world->rig, request);
    wait_for_quant(world);
    device_ok(host->cu->cuStreamSynchronize(host->stream));
    for (uint32_t layer = 0; layer < LAYERS; layer++)
        there_free(&theres[layer]);
}

static void codes_are_those_of_the_hosts_rows(void **state)
{
    (void)state;
    static const char *const ways[] = {
        "\"preset\": \"layered-uniform\"" SMALL,
        "\"preset\": \"layered\", \"store\": {\"layout\": \"split\"}" SMALL,
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
        device_host_end(&host, "codes");
    }
}

/* ---- What is refused ------------------------------------------------------------------------ */

/* Nothing has changed: the same layer is stored behind it. */
static void assert_refused(struct desk *desk, const struct spec_memory *memory, uint32_t layer,
                           const char *what)
{
    uint64_t enqueued = fake_enqueued();
    int depth = fake_depth(), mode = fake_mode();
    spec_status status = desk_put(desk, memory, 0, desk->prompt.count, layer);
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
        struct area area = desk_area(&desk.rig, &desk.prompt, 0, 130, layer, DENSE, NULL);
        (void)desk_to_device(&desk, &area);
        wrong_layers(&desk, &area.memory, layer);
        assert_int_equal(desk_put(&desk, &area.memory, 0, 130, layer), SPEC_OK);
        rig_area_free(&area);
    }
    desk_assert_stored(&desk);
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
    desk_assert_read(&desk);
    sources_done(&sources);
    device_ok(desk.host.cu->cuStreamDestroy(other));
    desk_close(&desk);
}

/* ---- Ends ----------------------------------------------------------------------------------- */

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
        assert_int_equal(desk_store_layer(&desk, 0, 130, layer, PAGED), SPEC_OK);
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
        desk_store_pass(&desk, DENSE);
        desk_assert_stored(&desk);
    }
    desk_assert_idle(&desk);
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

/* Rows of the whole prompt, of which the request knew the first 100 tokens: the others come with
 * layer 0. */
static void store_decoded(struct desk *desk, spec_request request, const struct prompt *prompt,
                          uint32_t layer, spec_ticket *ret_ticket)
{
    struct area area = desk_area(&desk->rig, prompt, 0, prompt->count, layer, DENSE, NULL);
    struct spec_store_params params =
        rig_store_params(request, layer, 0, prompt->count, &area.memory);
    params.tokens = layer == 0 ? prompt->tokens + 100 : NULL;
    params.tokens_count = layer == 0 ? prompt->count - 100 : 0;
    assert_int_equal(sc_plugin_store(desk->rig.conn, &params, 1, ret_ticket, NULL), SPEC_OK);
    rig_area_free(&area);
}

/* A request joins the save of another one and brings its last layers from the device. While these
 * are in flight, the other one takes its decoded tokens back and stores others in their places. The
 * rows are found under the tokens that they were computed for. */
static void tokens_that_are_taken_back_while_it_flies_are_not_read(void **state)
{
    (void)state;
    for (uint32_t layers = 1; layers < LAYERS; layers++) {
        struct desk desk;
        struct prompt other = rig_prompt(9, 0, 1, 130);
        fake_policy(FAKE_EAGER, layers);
        desk_open(&desk, WAYS[0], 130);
        memcpy(other.tokens, desk.prompt.tokens, 100 * sizeof(uint32_t));
        memcpy(other.history, desk.prompt.history, 100 * sizeof(uint64_t));
        struct prompt start = {100, desk.prompt.tokens, desk.prompt.history};
        spec_request first = rig_lookup(&desk.rig, &start).request;
        spec_ticket ticket = 0;
        for (uint32_t layer = 0; layer < layers; layer++)
            store_decoded(&desk, first, &desk.prompt, layer, &ticket);
        for (uint32_t layer = 0; layer < LAYERS; layer++) {
            assert_int_equal(desk_store_layer(&desk, 0, 130, layer, PAGED), SPEC_OK);
            fake_hold(desk.host.stream, 1); /* the device is attached by now */
        }
        assert_int_equal(sc_plugin_store_abort(desk.rig.conn, first, 0, NULL), SPEC_OK);
        for (uint32_t layer = 0; layer < LAYERS; layer++)
            store_decoded(&desk, first, &other, layer, &ticket);
        fake_hold(desk.host.stream, 0);
        desk_assert_stored(&desk);
        assert_int_equal(rig_wait(&desk.rig, ticket), SPEC_OK);
        assert_int_equal(rig_read(&desk.rig, &other, NULL), 130);
        rig_release(&desk.rig, first);
        desk_assert_idle(&desk);
        rig_prompt_free(&other);
        desk_close(&desk);
    }
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
                assert_int_equal(desk_store_layer(&desk, 0, 130, layer, COLUMNS), SPEC_OK);
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
                   "\"preset\": \"as-like\", \"gpu\": {\"staging_bytes\": \"1MiB\", "
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
            desk_store_pass(&desk, PAGED);
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
        desk_store_pass(&desk, DENSE);
        desk_assert_stored(&desk);
        desk_assert_idle(&desk);
        rig_prompts_free_all(prompts, PASSES);
        desk_close(&desk);
    }
}

/* Two requests share a save. A layer of the first one finds no room on its way from the device: the
 * other one, whose rows are in host memory, brings it. */
static void another_one_brings_what_finds_no_room(void **state)
{
    (void)state;
    for (uint32_t layers = 0; layers < LAYERS; layers++) { /* that the first one brings before */
        struct desk desk;
        fake_policy(FAKE_EAGER, 1);
        desk_shape(&desk,
                   "\"preset\": \"as-like\", \"gpu\": {\"staging_bytes\": \"1MiB\", "
                   "\"store_bytes\": \"1MiB\"}",
                   1000);
        rig_shape(&desk.rig, DESK_LAYERS, 12, 32, SPEC_DTYPE_F16);
        desk_begin(&desk);
        spec_request other = rig_lookup(&desk.rig, &desk.prompt).request;
        spec_ticket ticket = 0;
        for (uint32_t layer = 0; layer < LAYERS; layer++) {
            if (layer < layers)
                assert_int_equal(desk_store_host_layer(&desk, 0, 1000, layer), SPEC_OK);
            else
                assert_int_equal(desk_store_layer(&desk, 0, 1000, layer, DENSE), SPEC_OK);
            assert_int_equal(
                rig_store_layer(&desk.rig, other, &desk.prompt, 0, 1000, layer, &ticket), SPEC_OK);
        }
        assert_int_equal(rig_wait(&desk.rig, ticket), SPEC_OK);
        desk_assert_read(&desk);
        (void)rig_wait(&desk.rig, desk.ticket);
        rig_release(&desk.rig, other);
        desk_assert_idle(&desk);
        desk_close(&desk);
    }
}

/* ---- Shared saves ---------------------------------------------------------------------------- */

#define MEMBERS 4u
#define KNOWN   100u /* tokens that both prompts begin with */

/* A request that stores one of two prompts, whose ends come with layer 0. */
struct member {
    spec_request request;
    uint32_t which, layer;
    spec_ticket ticket;
};

static void member_store(struct desk *desk, struct member *member, const struct prompt *prompts,
                         bool is_there)
{
    const struct prompt *prompt = &prompts[member->which];
    uint32_t layer = member->layer++;
    int64_t *slots = calloc(prompt->count, sizeof(*slots));
    struct area area =
        desk_area(&desk->rig, prompt, 0, prompt->count, layer, is_there ? PAGED : DENSE, slots);
    struct there *there = is_there ? desk_to_device(desk, &area) : NULL;
    struct spec_store_params params =
        rig_store_params(member->request, layer, 0, prompt->count, &area.memory);
    params.tokens = layer == 0 ? prompt->tokens + KNOWN : NULL;
    params.tokens_count = layer == 0 ? prompt->count - KNOWN : 0;
    assert_int_equal(sc_plugin_store(desk->rig.conn, &params, 1, &member->ticket, NULL), SPEC_OK);
    if (there != NULL) {
        desk->slots[desk->there_count - 1] = slots;
        (void)desk->host.cu->cuMemcpyHtoDAsync(there->at, there->pinned, there->bytes,
                                               desk->host.stream);
    } else {
        free(slots);
    }
    rig_area_free(&area);
    if (desk->there_count == DESK_SOURCES)
        desk_sources_free(desk);
}

/* Requests with the same tokens bring layers from both memories in any order, take their last ids
 * back, and begin again with others. */
static void shared_orders_play(uint64_t seed)
{
    struct desk desk;
    uint64_t random = seed;
    struct prompt prompts[2] = {rig_prompt(7, KNOWN, 1, 130), rig_prompt(7, KNOWN, 2, 130)};
    struct prompt start = {KNOWN, prompts[0].tokens, prompts[0].history};
    struct member members[MEMBERS];
    spec_ticket tickets[64];
    uint32_t whose[64], count = 0;
    fake_policy((enum fake_policy)(seed % 4), seed);
    desk_open(&desk, WAYS[seed % 2], 130);
    for (uint32_t i = 0; i < MEMBERS; i++)
        members[i] =
            (struct member){.request = rig_lookup(&desk.rig, &start).request, .which = i % 2};
    for (uint32_t act = 0; act < 80 && count < 60; act++) {
        random = rig_mix(random);
        struct member *member = &members[random % MEMBERS];
        uint64_t what = random >> 8 & 15;
        if (what < 12) {
            member_store(&desk, member, prompts, (random >> 16 & 1) != 0);
        } else if (what < 14 && member->layer > 0) {
            assert_int_equal(sc_plugin_store_abort(desk.rig.conn, member->request, 0, NULL),
                             SPEC_OK);
            member->layer = 0;
            member->which = random >> 24 & 1;
        } else if (what == 15) {
            rig_pass_ns(&desk.rig, random >> 32 & 0xfffff);
        }
        if (member->layer < LAYERS)
            continue;
        whose[count] = member->which;
        tickets[count++] = member->ticket;
        rig_release(&desk.rig, member->request);
        *member = (struct member){.request = rig_lookup(&desk.rig, &start).request,
                                  .which = random >> 24 & 1};
    }
    for (uint32_t i = 0; i < MEMBERS; i++)
        rig_release(&desk.rig, members[i].request);
    for (uint32_t i = 0; i < count; i++) {
        spec_status told = rig_wait(&desk.rig, tickets[i]);
        if (told != SPEC_OK || rig_matched(&desk.rig, &prompts[whose[i]]) != 130)
            fail_msg("seed %" PRIu64 ": pass %" PRIu32 " of %" PRIu32 " says %s", seed, i, count,
                     sc_status_name(told));
    }
    for (uint32_t which = 0; which < 2; which++)
        assert_int_not_equal(rig_read(&desk.rig, &prompts[which], NULL), UINT64_MAX);
    desk_assert_idle(&desk);
    rig_prompts_free_all(prompts, 2);
    desk_close(&desk);
}

static void saves_are_shared_by_both_memories(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 40; seed++)
        shared_orders_play(seed);
}

/* ---- A device that fails -------------------------------------------------------------------- */

static const char *const CALLS[] = {
#define X(name, version, arguments) #name,
    SC_CU_CALLS(X)
#undef X
};

#define ON_0                                                                                       \
    "\"preset\": \"as-like\", \"gpu\": {\"device\": 0, \"staging_bytes\": \"1MiB\", "              \
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
        desk_assert_goes_on(desk);
    desk_assert_idle(desk);
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
        assert_int_equal(desk_put(&desk, &sources.areas[0].memory, 0, 70, 0), SPEC_OK);
        fake_fault("cuEventQuery", 1, SC_CU_LAUNCH_FAILED);
        rig_settle(&desk.rig); /* it is lost */
        fake_fault(NULL, 0, 0);
        for (uint32_t layer = 0; layer < LAYERS; layer++) {
            assert_int_equal(rig_store_layer(&desk.rig, second, &other, 0, 70, layer, &ticket),
                             SPEC_OK);
            if (layer > 0 && by_host != 0)
                assert_int_equal(desk_store_host_layer(&desk, 0, 70, layer), SPEC_OK);
            if (layer > 0 && by_host == 0)
                assert_int_equal(desk_put(&desk, &sources.areas[1].memory, 0, 70, 1),
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
        desk_assert_goes_on(&desk);
        desk_assert_idle(&desk);
        rig_prompt_free(&other);
        sources_done(&sources);
        desk_close(&desk);
    }
}

/* ---- Memory -------------------------------------------------------------------------------- */

static void nothing_is_allocated_once_it_is_attached(void **state)
{
    (void)state;
    struct desk desk;
    fake_policy(FAKE_LAZY, 1);
    desk_open(&desk, ON_0, 130);
    desk_store_pass(&desk, PAGED);
    desk_assert_stored(&desk);
    sc_alloc_seal(&desk.rig.conn->alloc);
    struct prompt next = rig_prompt(9, 0, 0, 130);
    rig_release(&desk.rig, desk.found.request);
    rig_prompt_free(&desk.prompt);
    desk.prompt = next;
    desk.found = rig_lookup(&desk.rig, &desk.prompt);
    desk_store_pass(&desk, PAGED);
    desk_assert_stored(&desk);
    sc_alloc_unseal(&desk.rig.conn->alloc);
    desk_close(&desk);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_stood_there_is_stored),
        cmocka_unit_test(a_pass_of_several_extents_arrives_whole),
        cmocka_unit_test(a_host_that_waits_loses_nothing),
        cmocka_unit_test(layers_of_host_memory_come_between),
        cmocka_unit_test(codes_are_those_of_the_hosts_rows),
        cmocka_unit_test(what_is_wrong_is_invalid_and_changes_nothing),
        cmocka_unit_test(captures_on_other_streams_stay_whole),
        cmocka_unit_test(a_pass_may_end_while_it_flies),
        cmocka_unit_test(tokens_that_are_taken_back_while_it_flies_are_not_read),
        cmocka_unit_test(close_waits_for_what_flies),
        cmocka_unit_test(what_finds_no_room_is_given_up),
        cmocka_unit_test(another_one_brings_what_finds_no_room),
        cmocka_unit_test(saves_are_shared_by_both_memories),
        cmocka_unit_test(each_call_of_a_store_may_fail),
        cmocka_unit_test(a_context_may_die_at_each_step),
        cmocka_unit_test(a_pass_whose_extent_has_ended_disturbs_nobody),
        cmocka_unit_test(nothing_is_allocated_once_it_is_attached),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Queries and new keys on a device choose what the same in plain memory choose, whatever the
 * destination is: every byte, every position and every bit of an item, in every policy of the fake
 * driver (tests/cuda/fake/fake.h).
 *
 *   the host's stream   Q and new keys come to stand there | the load | other bytes over them
 *
 * Holds: what comes before a call on the host's stream is what is scored, what comes behind it is
 * not, by the device or, where it may not, by the host's processor. What is wrong is refused, with
 * nothing enqueued; each call of the driver fails once, and the item has a status, or is right. */
#include "tests/unit/plugin/device_fixture.h"

#define MATCHED      130u
#define LAYERS       3u
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static struct device_host host;
static bool scores_here; /* the device has no room to score in: what is asked comes to the host */

struct way {
    const char *extra;
    uint32_t given;
};

static const struct way WAYS[] = {
    {"\"preset\": \"impress-itf\", \"select\": {\"alpha_milli\": 1000}", SPEC_SELECT_BUDGET},
    {"\"preset\": \"impress-itf\", \"select\": {\"identify\": \"keys\"}", SPEC_SELECT_BUDGET},
    {"\"preset\": \"hinted\"", SPEC_SELECT_BUDGET},
    {"\"preset\": \"layered-uniform\"", SPEC_SELECT_EXACT},
    {"\"preset\": \"layered\"", SPEC_SELECT_EXACT},
};

static const struct rig_rope HALF = {.kind = SPEC_ROPE_HALF, .theta = 10000};

static void way_open(struct world *world, const struct way *way, const char *more)
{
    static const char GPU[] = ", \"gpu\": {", NO_ROOM[] = "\"score_bytes\": 0";
    char extra[512];
    const char *gpu = strstr(more, GPU);
    if (!scores_here)
        (void)snprintf(extra, sizeof(extra), "%s%s", way->extra, more);
    else if (gpu == NULL)
        (void)snprintf(extra, sizeof(extra), "%s%s%s%s}", way->extra, more, GPU, NO_ROOM);
    else
        (void)snprintf(extra, sizeof(extra), "%s%.*s%s%s, %s", way->extra, (int)(gpu - more), more,
                       GPU, NO_ROOM, gpu + strlen(GPU));
    *world = (struct world){.matched = MATCHED, .group = 2, .agree = 3, .is_uneven = true};
    world_make(world, true, extra, LAYERS, 3, 16, MATCHED + 3);
    world->rig.rope = HALF;
    world_open_stored(world);
    wait_for_quant(world);
}

/* New keys the other way round, in blocks. */
static void keys_dress(struct spec_memory *keys, int64_t slots[FRESH_ROWS])
{
    for (uint32_t j = 0; j < FRESH_ROWS; j++)
        slots[j] = FRESH_ROWS - 1 - j;
    keys->slots = slots;
    keys->slot_count = FRESH_ROWS;
    keys->block_tokens = 2;
    keys->block_stride_bytes = 2 * keys->token_stride_bytes;
}

static void way_shot(struct shot *shot, const struct world *world, const struct way *way,
                     spec_request request, uint32_t layer, int64_t *slots)
{
    shot_make(shot, world, request, layer, 0, 100000);
    shot->select.given = way->given;
    shot->select.retain_ppm = 200000;
    if (slots != NULL)
        keys_dress(&shot->pass.fresh.memory, slots);
}

static void assert_same(const struct shot *a, const struct shot *b, bool may_part)
{
    assert_int_equal(a->item.row_count, b->item.row_count);
    assert_int_equal(a->item.exact_rows, b->item.exact_rows);
    assert_memory_equal(a->exact, b->exact, sizeof(a->exact));
    if (!may_part)
        assert_int_equal(a->item.result_flags, b->item.result_flags);
    assert_memory_equal(a->positions, b->positions, sizeof(a->positions));
    assert_memory_equal(a->area.bytes, b->area.bytes, 3 * RIG_GUARD + 2 * a->area.part_bytes);
}

/* where: bits: queries, new keys, destination. */
static void way_compare(struct world *world, const struct way *way, spec_request request,
                        uint32_t layer, uint32_t where)
{
    int64_t slots[2][FRESH_ROWS];
    bool is_dressed = layer % 2 == 1;
    struct shot plain, asked;
    way_shot(&plain, world, way, request, layer, is_dressed ? slots[0] : NULL);
    assert_int_equal(fire(world, &plain), SPEC_OK);
    way_shot(&asked, world, way, request, layer, is_dressed ? slots[1] : NULL);
    struct pass_there pass = pass_there_make(&host, &asked.pass, where & 1, (where & 2) != 0);
    struct there there = {.bytes = 0};
    if ((where & 4) != 0)
        there = there_make(&host, &asked.area);
    spec_status status = fire(world, &asked);
    pass_there_spoil(&pass);
    if (status != SPEC_OK)
        fail_msg("%s: %s", way->extra, world->rig.error.text);
    if ((where & 4) != 0)
        there_read(&there, &asked.area);
    /* A device's heads get no rows of their own: all of them come. */
    bool parts = (plain.item.result_flags & SPEC_IMPORTANT_FALLBACK) != 0;
    if (!parts || (where & 4) == 0)
        assert_same(&plain, &asked, false);
    pass_there_free(&pass);
    if ((where & 4) != 0)
        there_free(&there);
    shot_free(&plain);
    shot_free(&asked);
}

/* Of heads that differ, and of none but the probes', no kernel scores what stands at its place. */
static void assert_scored_where(const struct world *world, const struct way *way)
{
    bool may_part = strstr(way->extra, "\"keys\"") != NULL;
    if (!may_part)
        assert_int_equal(world->rig.conn->device.scores.taken > 0, !scores_here);
}

static void ask_all(void)
{
    for (uint32_t policy = FAKE_EAGER; policy <= FAKE_RANDOM; policy++)
        for (uint32_t w = 0; w < COUNT(WAYS); w++) {
            struct world world;
            fake_policy((enum fake_policy)policy, w + 1);
            device_host_open(&host, 0);
            way_open(&world, &WAYS[w], "");
            spec_request request = look(&world, 0);
            for (uint32_t where = 1; where < 8; where++)
                way_compare(&world, &WAYS[w], request, where % LAYERS, where);
            assert_scored_where(&world, &WAYS[w]);
            world_leave(&world, request);
            device_host_end(&host, "queries");
        }
}

static void what_is_asked_there_is_what_is_asked_here(void **state)
{
    (void)state;
    ask_all();
}

static void it_is_also_where_the_device_may_not_score(void **state)
{
    (void)state;
    scores_here = true;
    ask_all();
    scores_here = false;
}

/* ---- What is brought ------------------------------------------------------------------------ */

struct lie { /* how rows lie there: [rows] slots of two heads of 16 elements */
    uint64_t rows, element_bytes, gap; /* gap: bytes behind each head */
    bool has_slots;
};

static const struct lie LIES[] = {
    {1, 2, 0, false},    {7, 4, 4, false},
    {7, 2, 6, true},     {90000, 2, 0, false}, /* 5.8 MB: three boxes */
    {90000, 2, 2, true},
};

static void lie_compare(spec_connector *conn, const struct lie *lie)
{
    uint64_t head_bytes = 16 * lie->element_bytes, step = head_bytes + lie->gap;
    uint64_t bytes = lie->rows * 2 * step;
    uint8_t *from = malloc(bytes), *right = malloc(lie->rows * 2 * head_bytes);
    uint8_t *found = malloc(lie->rows * 2 * head_bytes + 64);
    int64_t *slots = malloc(lie->rows * sizeof(int64_t));
    assert_true(from != NULL && right != NULL && found != NULL && slots != NULL);
    for (uint64_t i = 0; i < bytes; i++)
        from[i] = (uint8_t)rig_mix(i);
    for (uint64_t i = 0; i < lie->rows; i++) {
        slots[i] = (int64_t)((i * 77773) % lie->rows); /* a prime */
        uint64_t slot = lie->has_slots ? (uint64_t)slots[i] : i;
        for (uint64_t h = 0; h < 2; h++)
            memcpy(right + (2 * i + h) * head_bytes, from + (2 * slot + h) * step, head_bytes);
    }
    struct plain_there there = plain_there_make(&host, from, bytes);
    plain_there_spoil(&there);
    plain_there_put(&there);
    uint8_t *base = (uint8_t *)(uintptr_t)there.at;
    struct sc_plugin_afar afar = {.device = &conn->device,
                                  .slot = 3,
                                  .at = {.k_base = base,
                                         .v_base = base,
                                         .token_stride_bytes = 2 * step,
                                         .head_stride_bytes = step,
                                         .slots = lie->has_slots ? slots : NULL,
                                         .element_bytes = lie->element_bytes},
                                  .row_count = lie->rows,
                                  .head_count = 2,
                                  .head_size = 16,
                                  .stream = host.stream};
    sc_plugin_afar_begin(&afar);
    memset(found, 0x77, lie->rows * 2 * head_bytes + 64);
    assert_int_equal(sc_plugin_afar_fetch(&afar, found, NULL), SPEC_OK);
    assert_memory_equal(found, right, lie->rows * 2 * head_bytes);
    for (uint64_t i = 0; i < 64; i++)
        assert_int_equal(found[lie->rows * 2 * head_bytes + i], 0x77);
    plain_there_free(&there);
    free(slots);
    free(found);
    free(right);
    free(from);
}

static void what_is_brought_is_what_stands_there(void **state)
{
    (void)state;
    for (uint32_t policy = FAKE_EAGER; policy <= FAKE_RANDOM; policy++) {
        struct world world;
        fake_policy((enum fake_policy)policy, 2);
        device_host_open(&host, 0);
        way_open(&world, &WAYS[4], ", \"gpu\": {\"device\": 0}");
        for (uint32_t i = 0; i < COUNT(LIES); i++)
            lie_compare(world.rig.conn, &LIES[i]);
        world_done(&world);
        device_host_end(&host, "brought");
    }
}

/* ---- Submitted, ahead, scored anew ---------------------------------------------------------- */

/* Delivered ahead, then chosen by queries of one memory. Returns the area's bytes. */
static void ahead_fire(struct world *world, struct shot *shot, spec_request request, bool is_there,
                       bool rescores)
{
    spec_ticket ticket;
    way_shot(shot, world, &WAYS[4], request, 1, NULL);
    const struct spec_queries *queries = shot->item.queries;
    const struct spec_memory *keys = shot->item.new_keys;
    shot->item.flags = SPEC_ITEM_AHEAD;
    shot->item.queries = NULL;
    shot->item.new_keys = NULL;
    ticket = rig_submit_whole(&world->rig, &shot->item, 1);
    shot->item.flags = 0;
    shot->item.queries = queries;
    shot->item.new_keys = keys;
    shot->item.refine_of = ticket;
    struct pass_there pass = pass_there_make(&host, &shot->pass, is_there, is_there);
    for (uint32_t i = 0; i < (rescores ? 2u : 1u); i++) {
        shot->item.flags = i > 0 ? SPEC_ITEM_RESCORE : 0;
        (void)rig_submit_whole(&world->rig, &shot->item, 1);
        assert_int_equal(shot->item.status, SPEC_OK);
    }
    pass_there_spoil(&pass);
    pass_there_free(&pass);
}

static void what_is_ahead_is_chosen_by_queries_there(void **state)
{
    (void)state;
    for (uint32_t policy = FAKE_EAGER; policy <= FAKE_RANDOM; policy++) {
        struct world world;
        struct shot plain, asked;
        fake_policy((enum fake_policy)policy, 3);
        device_host_open(&host, 0);
        way_open(&world, &WAYS[4], "");
        spec_request request = look(&world, 0);
        ahead_fire(&world, &plain, request, false, policy % 2);
        ahead_fire(&world, &asked, request, true, policy % 2);
        assert_same(&plain, &asked, false);
        shot_free(&plain);
        shot_end(&asked, &world, request);
        device_host_end(&host, "ahead");
    }
}

/* ---- Hints ---------------------------------------------------------------------------------- */

struct ranking { /* that a hint led to */
    uint64_t count;
    uint32_t rows[MATCHED];
};

static struct ranking ranking_of(struct world *world, spec_request handle)
{
    const struct sc_plugin_request *request = sc_plugin_request_find(world->rig.conn, handle);
    struct ranking ranking = {.count = request->predictions[1].count};
    memcpy(ranking.rows, request->readers[1].rows, ranking.count * sizeof(uint32_t));
    return ranking;
}

/* Layer 0 is asked for, layer 1 hinted at with its own queries; once that has been looked at, if
 * it waits, its ranking is told. Then layer 1 is asked for. */
static struct ranking hint_fire(struct world *world, bool is_there, bool waits)
{
    struct shot shots[2];
    struct ranking ranking = {.count = 0};
    spec_request request = look(world, 0);
    spec_connector *conn = world->rig.conn;
    for (uint32_t layer = 0; layer < 2; layer++)
        way_shot(&shots[layer], world, &WAYS[2], request, layer, NULL);
    assert_int_equal(sc_plugin_begin_layer(conn, &request, 1, 0, NULL), SPEC_OK);
    assert_int_equal(fire(world, &shots[0]), SPEC_OK);
    struct spec_queries own = shots[1].pass.q; /* its item is asked in plain memory */
    shots[1].item.queries = &own;
    struct pass_there pass = pass_there_make(&host, &shots[1].pass, is_there, false);
    assert_int_equal(sc_plugin_prefetch_next(conn, request, 0, &shots[1].pass.q, NULL), SPEC_OK);
    pass_there_spoil(&pass);
    if (is_there && waits)
        device_ok(host.cu->cuStreamSynchronize(host.stream));
    for (uint32_t i = 0; i < 100 && waits; i++)
        rig_pass_ns(&world->rig, 100000);
    if (waits)
        ranking = ranking_of(world, request);
    assert_int_equal(fire(world, &shots[1]), SPEC_OK);
    pass_there_free(&pass);
    rig_release(&world->rig, request);
    shot_free(&shots[0]);
    shot_free(&shots[1]);
    return ranking;
}

static void hint_all(void)
{
    for (uint32_t policy = FAKE_EAGER; policy <= FAKE_RANDOM; policy++) {
        struct world world;
        fake_policy((enum fake_policy)policy, 5);
        device_host_open(&host, 0);
        way_open(&world, &WAYS[2], ", \"gpu\": {\"device\": 0}");
        struct ranking plain = hint_fire(&world, false, true);
        assert_true(plain.count > 0);
        struct ranking asked = hint_fire(&world, true, true);
        if (policy == FAKE_EAGER || asked.count > 0) { /* else nobody waited for what brings it */
            assert_int_equal(asked.count, plain.count);
            assert_memory_equal(asked.rows, plain.rows, plain.count * sizeof(uint32_t));
            assert_int_equal(world.rig.conn->device.scores.taken > 0, !scores_here);
        }
        for (uint32_t i = 0; i < 4; i++)
            (void)hint_fire(&world, true, false); /* some are on their way when others come */
        world_done(&world);
        device_host_end(&host, "hints");
    }
}

static void a_hint_there_is_a_hint(void **state)
{
    (void)state;
    hint_all();
    scores_here = true;
    hint_all();
    scores_here = false;
}

/* ---- What is wrong -------------------------------------------------------------------------- */

struct scene {
    struct world world;
    spec_request request;
    struct shot shot;
    struct pass_there pass;
};

static void scene_begin(struct scene *scene, const char *more, enum fake_policy policy)
{
    fake_policy(policy, 1);
    device_host_open(&host, 0);
    way_open(&scene->world, &WAYS[4], more);
    scene->request = look(&scene->world, 0);
    way_shot(&scene->shot, &scene->world, &WAYS[4], scene->request, 1, NULL);
    scene->pass = pass_there_make(&host, &scene->shot.pass, true, true);
}

static spec_status fire_one(struct world *world, struct shot *shot)
{
    world->rig.error = (struct spec_error){.struct_size = sizeof(world->rig.error)};
    return sc_plugin_get_important(world->rig.conn, &shot->item, 1, &world->rig.error);
}

static void scene_end(struct scene *scene)
{
    pass_there_free(&scene->pass);
    shot_free(&scene->shot);
    rig_release(&scene->world.rig, scene->request);
    world_done(&scene->world);
    device_host_end(&host, "scene");
}

static void assert_refused(struct scene *scene, spec_status expected, const char *text)
{
    uint64_t enqueued = fake_enqueued();
    spec_status status = fire_one(&scene->world, &scene->shot);
    if (status != expected || strstr(scene->world.rig.error.text, text) == NULL)
        fail_msg("%s: %s, expected %s: %s", sc_status_name(status), scene->world.rig.error.text,
                 sc_status_name(expected), text);
    assert_int_equal(fake_enqueued(), enqueued);
    assert_int_equal(fake_depth(), 1); /* the host's */
    assert_int_equal(fake_mode(), 0);
}

static void what_is_wrong_is_refused(void **state)
{
    (void)state;
    struct scene scene;
    scene_begin(&scene, "", FAKE_LAZY);
    struct spec_queries *queries = &scene.shot.pass.q;
    struct spec_memory *keys = &scene.shot.pass.fresh.memory;
    fake_capture(host.stream, 1);
    assert_refused(&scene, SPEC_E_INVALID, "queries");
    keys->stream = NULL;
    assert_refused(&scene, SPEC_E_INVALID, "queries");
    queries->stream = NULL;
    keys->stream = host.stream;
    assert_refused(&scene, SPEC_E_INVALID, "new_keys");
    fake_capture(host.stream, 0);
    queries->stream = host.stream;
    const void *data = queries->data;
    queries->data = scene.shot.pass.queries; /* of the host */
    assert_refused(&scene, SPEC_E_INVALID, "queries");
    queries->data = data;
    queries->byte_count += UINT64_C(1) << 32; /* beyond what was allocated */
    assert_refused(&scene, SPEC_E_INVALID, "queries");
    queries->byte_count -= UINT64_C(1) << 32;
    void *base = keys->k_base;
    keys->k_base = scene.shot.pass.fresh.bytes;
    assert_refused(&scene, SPEC_E_INVALID, "new_keys");
    keys->k_base = base;
    queries->device_index = 1;
    assert_refused(&scene, SPEC_E_INVALID, "device_index");
    queries->device_index = 0;
    assert_int_equal(fire_one(&scene.world, &scene.shot), SPEC_OK);
    scene_end(&scene);
}

static void more_than_there_is_room_for_is_told(void **state)
{
    (void)state;
    struct scene scene;
    scene_begin(&scene, ", \"gpu\": {\"query_bytes\": 4096}", FAKE_LAZY);
    scene.shot.pass.q.row_stride_bytes = 0; /* the same row again and again */
    scene.shot.pass.q.first_position = MATCHED;
    scene.shot.item.new_keys = NULL;
    assert_int_equal(fire_one(&scene.world, &scene.shot), SPEC_OK);
    scene.shot.pass.q.row_count = 4096 / (6 * 16 * 2);
    assert_int_equal(fire_one(&scene.world, &scene.shot), SPEC_OK);
    scene.shot.pass.q.row_count += 1;
    assert_refused(&scene, SPEC_E_INVALID, "gpu.query_bytes");
    scene_end(&scene);
}

/* Where a set is known without them, queries that are no good are no error, and nobody reads them:
 * here more than there is room for. */
static void what_is_not_needed_is_not_brought(void **state)
{
    (void)state;
    struct scene scene;
    spec_ticket ticket;
    scene_begin(&scene, ", \"gpu\": {\"query_bytes\": 4096}, \"max_request_tokens\": 16384",
                FAKE_LAZY);
    spec_connector *conn = scene.world.rig.conn;
    scene.shot.pass.q.row_stride_bytes = 0;
    scene.shot.item.new_keys = NULL;
    scene.shot.select.exact_ppm = 0;
    for (uint32_t rows = 5; rows <= 4096; rows += 4091) { /* some, and too many */
        scene.shot.pass.q.row_count = rows;
        scene.shot.item.refine_of = 0;
        assert_int_equal(sc_plugin_submit(conn, &scene.shot.item, 1, &ticket, NULL), SPEC_OK);
        assert_int_equal(sc_plugin_submit_wait(conn, ticket, UINT64_MAX, NULL), SPEC_OK);
        assert_int_equal(scene.shot.item.status, SPEC_OK);
        assert_int_equal(scene.shot.item.exact_rows, 0);
    }
    scene_end(&scene);
}

/* ---- Descriptions --------------------------------------------------------------------------- */

static void change(struct spec_queries *queries, struct spec_memory *keys, uint64_t drawn)
{
    static const uint64_t NUMBERS[] = {
        0,          1,          2,          4,          96,
        192,        1152,       UINT32_MAX, UINT64_MAX, UINT64_MAX - 1,
        1ull << 63, 1ull << 32, 1ull << 20, 64};
    static int64_t slots[FRESH_ROWS];
    uint64_t number = NUMBERS[(drawn >> 8) % COUNT(NUMBERS)];
    for (uint32_t i = 0; i < FRESH_ROWS; i++)
        slots[i] =
            (drawn >> 16) % 2 == 0 ? (int64_t)((drawn >> (17 + i)) % FRESH_ROWS) : (int64_t)number;
    switch (drawn % 18) {
    case 0:
        queries->row_stride_bytes = number;
        break;
    case 1:
        queries->head_stride_bytes = number;
        break;
    case 2:
        queries->row_count = (uint32_t)number;
        break;
    case 3:
        queries->byte_count = number;
        break;
    case 4:
        queries->dtype = (uint32_t)(number % 12);
        break;
    case 5:
        queries->heads = (uint32_t)(number % 3);
        break;
    case 6:
        queries->first_position = number;
        break;
    case 7:
        queries->device = (uint32_t)(1 + number % 3);
        break; /* 0: of the host, which it is not */
    case 8:
        queries->device_index = (int32_t)number;
        break;
    case 9:
        keys->token_stride_bytes = number;
        break;
    case 10:
        keys->head_stride_bytes = number;
        break;
    case 11:
        keys->k_bytes = number;
        break;
    case 12:
        keys->k_element_stride_bytes = number;
        break;
    case 13:
        keys->block_tokens = number;
        break;
    case 14:
        keys->block_stride_bytes = number;
        break;
    case 15:
        keys->v_base = (void *)(uintptr_t)number;
        break;
    case 16:
        keys->dtype = (uint32_t)(number % 12);
        break;
    default:
        keys->slots = slots;
        keys->slot_count = (drawn >> 32) % 2 == 0 ? FRESH_ROWS : number;
        break;
    }
}

static bool is_of_device(uint64_t drawn)
{
    return drawn % 18 == 7 || drawn % 18 == 8;
}

/* One or two members say anything: what lies there is asked with or refused as the same is of the
 * host, and nothing else is touched (sanitizers, and the fake's guards). */
static void any_description_is_taken_or_refused_as_the_hosts(void **state)
{
    (void)state;
    uint64_t taken = 0, refused = 0;
    for (uint32_t w = 0; w < COUNT(WAYS); w++) {
        struct world world;
        fake_policy(FAKE_LAZY, 1);
        device_host_open(&host, 0);
        way_open(&world, &WAYS[w], "");
        spec_request request = look(&world, 0);
        for (uint64_t n = 0; n < 300; n++) {
            struct shot plain, asked;
            uint64_t drawn = rig_mix(n + 1000 * w), also = rig_mix(drawn);
            way_shot(&plain, &world, &WAYS[w], request, 1, NULL);
            way_shot(&asked, &world, &WAYS[w], request, 1, NULL);
            struct pass_there there = pass_there_make(&host, &asked.pass, true, true);
            change(&plain.pass.q, &plain.pass.fresh.memory, drawn);
            change(&asked.pass.q, &asked.pass.fresh.memory, drawn);
            if (n % 3 == 0) {
                change(&plain.pass.q, &plain.pass.fresh.memory, also);
                change(&asked.pass.q, &asked.pass.fresh.memory, also);
            }
            spec_status there_is = fire_one(&world, &asked);
            char why[sizeof(world.rig.error.text)];
            memcpy(why, world.rig.error.text, sizeof(why));
            /* Which device, and whether so many bytes are there, is asked of that alone. */
            bool is_device = is_of_device(drawn) || (n % 3 == 0 && is_of_device(also)) ||
                             (strstr(why, "address") != NULL || strstr(why, " at 0x") != NULL);
            spec_status here_is = is_device ? there_is : fire_one(&world, &plain);
            if (there_is != here_is)
                fail_msg("%s: %lu: there %s (%s), here %s", WAYS[w].extra, n,
                         sc_status_name(there_is), why, sc_status_name(here_is));
            if (there_is == SPEC_OK && !is_device)
                assert_same(&plain, &asked, false);
            taken += there_is == SPEC_OK;
            refused += there_is != SPEC_OK;
            spec_status hinted =
                sc_plugin_prefetch_next(world.rig.conn, request, 0, &asked.pass.q, NULL);
            assert_true(hinted == SPEC_OK || there_is != SPEC_OK);
            pass_there_free(&there);
            shot_free(&plain);
            shot_free(&asked);
        }
        world_leave(&world, request);
        device_host_end(&host, "descriptions");
    }
    assert_true(taken > 100 && refused > 100);
}

/* ---- A device that fails -------------------------------------------------------------------- */

static const char *const CALLS[] = {
#define X(name, version, arguments) #name,
    SC_CU_CALLS(X)
#undef X
};

/* After a failure host memory is asked and loaded as ever. */
static void assert_goes_on(struct scene *scene, const struct shot *right)
{
    struct shot plain;
    way_shot(&plain, &scene->world, &WAYS[4], scene->request, 1, NULL);
    assert_int_equal(fire_one(&scene->world, &plain), SPEC_OK);
    assert_same(right, &plain, false);
    shot_free(&plain);
}

static spec_status fire_half(struct world *world, struct shot *shot)
{
    spec_ticket ticket;
    world->rig.error = (struct spec_error){.struct_size = sizeof(world->rig.error)};
    spec_status status =
        sc_plugin_submit(world->rig.conn, &shot->item, 1, &ticket, &world->rig.error);
    return status != SPEC_OK
               ? status
               : sc_plugin_submit_wait(world->rig.conn, ticket, UINT64_MAX, &world->rig.error);
}

static bool fault_once(const char *name, int n, bool crashes)
{
    struct scene scene;
    struct shot plain;
    scene_begin(&scene, "", FAKE_LAZY);
    way_shot(&plain, &scene.world, &WAYS[4], scene.request, 1, NULL);
    assert_int_equal(fire_one(&scene.world, &plain), SPEC_OK);
    if (crashes)
        fake_crash((n + 1) / 2, 719);
    else
        fake_fault(name, (n + 1) / 2, 2);
    spec_status status =
        n % 2 == 0 ? fire_half(&scene.world, &scene.shot) : fire_one(&scene.world, &scene.shot);
    bool met = crashes ? status != SPEC_OK : fake_fired() != 0;
    fake_fault(NULL, 0, 0);
    fake_crash(0, 0);
    fake_sticky(0);
    if (status == SPEC_OK)
        assert_same(&plain, &scene.shot, false);
    else if (status != SPEC_E_IO && status != SPEC_E_UNSUPPORTED && status != SPEC_E_INVALID)
        fail_msg("%s %d: %s: %s", name, n, sc_status_name(status), scene.world.rig.error.text);
    assert_goes_on(&scene, &plain);
    shot_free(&plain);
    scene_end(&scene);
    return met;
}

static void every_call_fails_once(void **state)
{
    (void)state;
    uint32_t faults = 0;
    for (uint32_t c = 0; c < COUNT(CALLS); c++)
        for (int n = 1; n < 200 && fault_once(CALLS[c], n, false); n++)
            faults++;
    assert_true(faults > 40);
}

static void a_context_dies_at_each_step(void **state)
{
    (void)state;
    uint32_t deaths = 0;
    for (int n = 1; n < 60 && fault_once("", n, true); n++)
        deaths++;
    assert_true(deaths >= 4);
}

static void it_does_so_where_the_device_may_not_score(void **state)
{
    scores_here = true;
    every_call_fails_once(state);
    a_context_dies_at_each_step(state);
    scores_here = false;
}

/* A hint that meets a failure is none, or is told; what is asked for is right, whichever it is. */
static bool hint_fault(const char *name, int n, bool crashes)
{
    struct world world;
    struct shot plain, asked;
    fake_policy(FAKE_LAZY, 1);
    device_host_open(&host, 0);
    way_open(&world, &WAYS[2], ", \"gpu\": {\"device\": 0}");
    spec_connector *conn = world.rig.conn;
    spec_request request = look(&world, 0);
    way_shot(&plain, &world, &WAYS[2], request, 1, NULL);
    assert_int_equal(fire_one(&world, &plain), SPEC_OK);
    way_shot(&asked, &world, &WAYS[2], request, 1, NULL);
    struct spec_queries own = asked.pass.q;
    asked.item.queries = &own;
    struct pass_there pass = pass_there_make(&host, &asked.pass, true, false);
    device_ok(host.cu->cuStreamSynchronize(host.stream));
    assert_int_equal(sc_plugin_begin_layer(conn, &request, 1, 0, NULL), SPEC_OK);
    if (crashes)
        fake_crash(n, 719);
    else
        fake_fault(name, n, 2);
    spec_status status = sc_plugin_prefetch_next(conn, request, 0, &asked.pass.q, NULL);
    for (uint32_t i = 0; i < 10; i++)
        rig_pass_ns(&world.rig, 100000);
    bool is_met = crashes ? conn->device.gpu->failed_text[0] != 0 : fake_fired() != 0;
    fake_fault(NULL, 0, 0);
    fake_crash(0, 0);
    fake_sticky(0);
    if (status != SPEC_OK && status != SPEC_E_IO && status != SPEC_E_UNSUPPORTED &&
        status != SPEC_E_INVALID)
        fail_msg("%s %d: %s", name, n, sc_status_name(status));
    assert_int_equal(fire_one(&world, &asked), SPEC_OK);
    assert_same(&plain, &asked, false);
    pass_there_free(&pass);
    shot_free(&asked);
    shot_end(&plain, &world, request);
    device_host_end(&host, "a hint that fails");
    return is_met;
}

static void each_call_of_a_hint_may_fail(void **state)
{
    (void)state;
    uint32_t faults = 0, deaths = 0;
    for (uint32_t c = 0; c < COUNT(CALLS); c++)
        for (int n = 1; n < 100 && hint_fault(CALLS[c], n, false); n++)
            faults++;
    for (int n = 1; n < 20 && hint_fault("", n, true); n++)
        deaths++;
    assert_true(faults >= 10);
    assert_true(deaths >= 2); /* packed, copied */
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_brought_is_what_stands_there),
        cmocka_unit_test(what_is_asked_there_is_what_is_asked_here),
        cmocka_unit_test(it_is_also_where_the_device_may_not_score),
        cmocka_unit_test(what_is_ahead_is_chosen_by_queries_there),
        cmocka_unit_test(a_hint_there_is_a_hint),
        cmocka_unit_test(what_is_wrong_is_refused),
        cmocka_unit_test(more_than_there_is_room_for_is_told),
        cmocka_unit_test(what_is_not_needed_is_not_brought),
        cmocka_unit_test(any_description_is_taken_or_refused_as_the_hosts),
        cmocka_unit_test(every_call_fails_once),
        cmocka_unit_test(a_context_dies_at_each_step),
        cmocka_unit_test(it_does_so_where_the_device_may_not_score),
        cmocka_unit_test(each_call_of_a_hint_may_fail),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

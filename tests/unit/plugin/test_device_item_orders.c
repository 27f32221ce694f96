/* Requests whose selectors take each other's places, in memory for two or three layers, in orders
 * drawn at random: what each item delivers, on whatever device or here, is what one item alone
 * delivers.
 *
 *   look | hint | load here or there, asked from here or there, ahead, late | wait | refine |
 * release disks that fail, flip and dawdle; hosts' streams that stand still; a device that dies
 *
 * Holds: of an item that is OK each row is, by its bits, what was stored, or what its codes were
 * before anything went wrong, guards included; its set is that of the same question asked alone,
 * unless it says otherwise; in the end no selector is held, and nothing is left in the driver. A
 * failure prints its seed; SC_SEED=N runs that seed alone.
 * Threads: one. */
#include "tests/unit/plugin/device_fixture.h"
#include "tests/unit/plugin/stage_actor.h"

#define MATCHED      200u
#define LAYERS       4u
#define REQUESTS     7u
#define HOSTS        3u /* the last one's stream stands still now and then */
#define ITEMS        5u /* on their way at a time */
#define STEPS        90u
#define SEEDS        8u /* of a kind */
#define SHARES       3u
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static const uint32_t EXACT_PPM[SHARES] = {0, 50000, 300000};

static const struct rig_rope HALF = {.kind = SPEC_ROPE_HALF, .theta = 10000};

struct way {
    const char *extra, *select;
    uint32_t given;
};

static const struct way WAYS[] = {
    {"\"preset\": \"layered-uniform\"", "", SPEC_SELECT_EXACT},
    {"\"preset\": \"layered\"", "", SPEC_SELECT_EXACT},
    {"\"preset\": \"layered-uniform\", \"prefetch\": {\"predictor\": \"hint\"}", "",
     SPEC_SELECT_EXACT},
    {"\"preset\": \"impress-itf\"", "\"alpha_milli\": 1000, ", SPEC_SELECT_BUDGET},
};

static const char *const MEMORY[] = {"128KiB", "192KiB", "448KiB", "1MiB", "3MiB"};

static const char *const ROOMS[] = {"\"staging_bytes\": \"1MiB\"", "\"score_bytes\": \"96KiB\"",
                                    "\"score_bytes\": 0", "\"staging_bytes\": \"64MiB\""};

/* What items alone deliver. */
struct truth {
    uint8_t *codes[LAYERS]; /* rows of areas; NULL: there are none */
    struct shot sets[LAYERS][SHARES];
};

struct item {
    bool is_used, is_there, is_asked, may_fail; /* is_asked: by queries */
    uint32_t host, layer, share;
    uint64_t request; /* its place */
    spec_ticket ticket;
    struct shot shot;
    struct pass_there pass;
    struct there there;
};

struct scene {
    uint64_t seed, random;
    const struct way *way;
    struct device_host hosts[HOSTS];
    struct world world;
    struct truth truth;
    spec_request requests[REQUESTS];
    struct item items[ITEMS];
    uint32_t next[REQUESTS]; /* a layer that is likely to be asked for */
    uint64_t fault;          /* above 0: it is to come */
    bool fails, dies;        /* what may be */
    bool stands, has_faults, is_dead;
    struct pass_there old_passes[2 * STEPS]; /* freed when no stream stands: a free waits for all */
    struct there olds[2 * STEPS];
    uint32_t old_pass_count, old_count;
    uint64_t right, same, whole, failed, refined; /* items */
};

static uint64_t draw(struct scene *scene, uint64_t below)
{
    scene->random = rig_mix(scene->random);
    return scene->random % below;
}

/* ---- The truth ------------------------------------------------------------------------------ */

static void shot_of(struct scene *scene, struct shot *shot, spec_request request, uint32_t layer,
                    uint32_t share)
{
    shot_make(shot, &scene->world, request, layer, 0, EXACT_PPM[share]);
    shot->select.given = scene->way->given;
    shot->select.retain_ppm = 100000 + EXACT_PPM[share];
}

static void truth_make(struct scene *scene)
{
    struct truth *truth = &scene->truth;
    for (uint32_t layer = 0; layer < LAYERS; layer++) {
        spec_request request = look(&scene->world, 0);
        for (uint32_t share = 0; share < SHARES; share++) {
            struct shot *set = &truth->sets[layer][share];
            shot_of(scene, set, request, layer, share);
            assert_int_equal(fire(&scene->world, set), SPEC_OK);
            if (share == 0 && scene->way->given == SPEC_SELECT_EXACT) {
                assert_int_equal(exact_count(set), 0);
                truth->codes[layer] = set->area.bytes;
            }
        }
        rig_release(&scene->world.rig, request);
    }
}

static void truth_free(struct scene *scene)
{
    for (uint32_t layer = 0; layer < LAYERS; layer++)
        for (uint32_t share = 0; share < SHARES; share++)
            shot_free(&scene->truth.sets[layer][share]);
}

static uint64_t v_first(const struct shot *shot)
{
    return (RIG_GUARD + shot->area.part_bytes + RIG_GUARD + 63) / 64 * 64;
}

/* Each is what its bits say, wherever it came from. */
static void rows_check(struct scene *scene, const struct item *item)
{
    const struct shot *shot = &item->shot;
    uint64_t bytes = rig_part_bytes(&scene->world.rig);
    uint8_t row[1024];
    assert_true(bytes <= sizeof(row));
    if ((shot->item.result_flags & SPEC_IMPORTANT_FALLBACK) != 0)
        return; /* each head has rows of its own: test_device_queries.c */
    for (uint64_t n = 0; n < 2 * shot->item.row_count; n++) {
        uint64_t j = n / 2, part = n % 2, first = part == 0 ? RIG_GUARD : v_first(shot);
        const uint8_t *right = row;
        const char *what = "exact";
        if (scene->way->given != SPEC_SELECT_EXACT || is_exact(shot, j)) {
            stored_row(&scene->world, shot->positions[j], item->layer, (uint32_t)part, row);
        } else {
            what = "coded";
            right = scene->truth.codes[item->layer] + first + shot->positions[j] * bytes;
        }
        if (memcmp(shot->area.bytes + first + j * bytes, right, bytes) != 0)
            fail_msg("seed %lu: layer %u row %lu part %lu, %s, %s", scene->seed, item->layer, j,
                     part, what, item->is_there ? "there" : "here");
    }
    assert_true(rig_is_poison(shot->area.bytes, RIG_GUARD));
    assert_true(rig_is_poison(shot->area.bytes + RIG_GUARD + shot->area.part_bytes, RIG_GUARD));
    assert_true(rig_is_poison(shot->area.bytes + v_first(shot) + shot->area.part_bytes, RIG_GUARD));
}

/* Where nothing went wrong, an item that was asked for a set has the one that it has alone. */
static void set_check(struct scene *scene, const struct item *item)
{
    const struct shot *set = &scene->truth.sets[item->layer][item->share];
    const struct spec_important *a = &item->shot.item, *b = &set->item;
    uint32_t flags = SPEC_IMPORTANT_FALLBACK | SPEC_IMPORTANT_DENSE | SPEC_IMPORTANT_PARTIAL;
    bool is_whole = a->row_count == MATCHED && exact_count(&item->shot) == MATCHED;
    scene->whole += is_whole;
    if (is_whole || !item->is_asked || ((a->result_flags | b->result_flags) & flags) != 0 ||
        scene->has_faults)
        return;
    if (a->row_count != b->row_count ||
        memcmp(item->shot.positions, set->positions, a->row_count * sizeof(uint32_t)) != 0 ||
        memcmp(item->shot.exact, set->exact, sizeof(set->exact)) != 0)
        fail_msg("seed %lu: layer %u, share %u: another set, %s", scene->seed, item->layer,
                 item->share, item->is_there ? "there" : "here");
    scene->same++;
}

/* ---- What goes wrong ------------------------------------------------------------------------ */

static const char *const CALLS[] = {"cuMemcpyHtoDAsync", "cuEventRecord",     "cuLaunchKernel",
                                    "cuStreamWaitEvent", "cuEventQuery",      "cuCtxPushCurrent",
                                    "cuMemcpyDtoHAsync", "cuEventSynchronize"};

/* Around the connector's calls: those of the host itself do not fail. */
static void danger(struct scene *scene)
{
    if (scene->fault > 0 && !scene->is_dead)
        fake_fault(CALLS[scene->fault % COUNT(CALLS)], 1 + (int)(scene->fault / COUNT(CALLS)), 700);
}

static void safe(struct scene *scene)
{
    if (scene->fault > 0 && !scene->is_dead) {
        scene->is_dead = fake_fired() != 0;
        fake_fault("cuInit", 0, 0);
    }
}

static void disk_turn(struct scene *scene)
{
    struct sc_io_sim_disk *disk = scene->world.rig.disk;
    bool on = draw(scene, 2) == 0;
    if (on)
        scene->has_faults = true;
    sc_io_sim_fault_scope(disk, "seg");
    sc_io_sim_fault_ppm(disk, SC_SIM_READ_EIO, on ? 30000 : 0);
    sc_io_sim_fault_ppm(disk, SC_SIM_SHORT, on ? 200000 : 0);
    sc_io_sim_fault_ppm(disk, SC_SIM_LATE, on ? 100000 : 0);
    sc_io_sim_fault_ppm(disk, SC_SIM_FLIP, on && draw(scene, 4) == 0 ? 20000 : 0);
}

/* ---- Items ---------------------------------------------------------------------------------- */

static void streams_go(struct scene *scene)
{
    fake_hold(scene->hosts[HOSTS - 1].stream, 0);
    scene->stands = false;
    while (scene->old_count > 0)
        there_free(&scene->olds[--scene->old_count]);
    while (scene->old_pass_count > 0)
        pass_there_free(&scene->old_passes[--scene->old_pass_count]);
}

static void pass_leave(struct scene *scene, struct pass_there *pass)
{
    if (scene->stands)
        scene->old_passes[scene->old_pass_count++] = *pass;
    else
        pass_there_free(pass);
}

/* Its call is over; what is there of it is looked at later. */
static void item_wait(struct scene *scene, struct item *item)
{
    if (item->ticket == 0)
        return;
    danger(scene);
    item->shot.item.status =
        sc_plugin_submit_wait(scene->world.rig.conn, item->ticket, UINT64_MAX, NULL);
    safe(scene);
    item->ticket = 0;
    pass_there_spoil(&item->pass);
}

/* More of a layered delivery's rows become exact, where they lie; its codes may have to be read
 * again. */
static void item_refine(struct scene *scene, struct item *item)
{
    spec_ticket ticket = item->ticket;
    item_wait(scene, item);
    if (ticket == 0 || item->shot.item.status != SPEC_OK || item->host == HOSTS - 1 ||
        scene->way->given != SPEC_SELECT_EXACT ||
        scene->requests[item->request] != item->shot.item.request)
        return;
    aim(&item->shot, ticket, 500000);
    danger(scene);
    item->shot.item.status =
        sc_plugin_get_important(scene->world.rig.conn, &item->shot.item, 1, NULL);
    safe(scene);
    scene->refined += item->shot.item.status == SPEC_OK;
    item->is_asked = false; /* not for this set */
}

static void item_end(struct scene *scene, struct item *item)
{
    struct shot *shot = &item->shot;
    if (draw(scene, 2) == 0)
        item_refine(scene, item);
    item_wait(scene, item);
    spec_status status = shot->item.status;
    if (item->is_there && item->host == HOSTS - 1)
        streams_go(scene);
    if (item->is_there)
        there_read(&item->there, &shot->area);
    if (status == SPEC_OK) {
        scene->right++;
        rows_check(scene, item);
        set_check(scene, item);
    } else {
        scene->failed++;
        if (!scene->has_faults && !scene->is_dead && !item->may_fail)
            fail_msg("seed %lu: %s", scene->seed, sc_status_name(status));
    }
    pass_leave(scene, &item->pass);
    if (item->is_there && scene->stands)
        scene->olds[scene->old_count++] = item->there;
    else if (item->is_there)
        there_free(&item->there);
    shot_free(shot);
    memset(item, 0, sizeof(*item));
}

static void items_end(struct scene *scene, uint64_t request)
{
    for (uint32_t i = 0; i < ITEMS; i++)
        if (scene->items[i].is_used && (request == REQUESTS || scene->items[i].request == request))
            item_end(scene, &scene->items[i]);
}

static void items_wait(struct scene *scene, uint64_t request)
{
    for (uint32_t i = 0; i < ITEMS; i++)
        if (scene->items[i].is_used && scene->items[i].request == request)
            item_wait(scene, &scene->items[i]);
}

/* What the request has behind the stream that stands still would stand before what comes. */
static void still_end(struct scene *scene, uint64_t request)
{
    for (uint32_t i = 0; i < ITEMS; i++)
        if (scene->items[i].is_used && scene->items[i].is_there &&
            scene->items[i].host == HOSTS - 1 && scene->items[i].request == request)
            streams_go(scene);
}

static void item_begin(struct scene *scene)
{
    struct item *item = &scene->items[draw(scene, ITEMS)];
    uint64_t request = draw(scene, REQUESTS), kind = draw(scene, 8);
    if (item->is_used)
        item_end(scene, item);
    still_end(scene, request);
    items_wait(scene, request); /* one after the other, of a request */
    if (scene->requests[request] == 0)
        return;
    *item = (struct item){.is_used = true,
                          .request = request,
                          .layer = draw(scene, 3) > 0 ? scene->next[request]
                                                      : (uint32_t)draw(scene, LAYERS),
                          .share = (uint32_t)draw(scene, SHARES),
                          .is_there = draw(scene, 4) > 0,
                          .is_asked = true};
    bool is_still = scene->stands && scene->way->given == SPEC_SELECT_EXACT && draw(scene, 3) == 0;
    item->host = is_still ? HOSTS - 1 : (uint32_t)draw(scene, HOSTS - 1);
    struct device_host *host = &scene->hosts[item->host];
    scene->next[request] = item->layer;
    shot_of(scene, &item->shot, scene->requests[request], item->layer, item->share);
    bool queries = !is_still && draw(scene, 2) == 0, keys = !is_still && draw(scene, 3) == 0;
    if (is_still) {
        item->is_there = true;
        item->is_asked = false;
        item->shot.item.flags = SPEC_ITEM_AHEAD;
        item->shot.item.queries = NULL;
        item->shot.item.new_keys = NULL;
    }
    if (item->is_there)
        item->there = there_make(host, &item->shot.area);
    if (!is_still)
        item->pass = pass_there_make(host, &item->shot.pass, queries, keys);
    danger(scene);
    if (is_still || kind < 4) {
        spec_status status =
            sc_plugin_submit(scene->world.rig.conn, &item->shot.item, 1, &item->ticket, NULL);
        safe(scene);
        if (status == SPEC_OK)
            return;
        item->ticket = 0;
        item->shot.item.status = status;
        pass_there_spoil(&item->pass);
    } else {
        spec_status status =
            sc_plugin_get_important(scene->world.rig.conn, &item->shot.item, 1, NULL);
        safe(scene);
        item->shot.item.status = status;
        pass_there_spoil(&item->pass);
    }
    if (draw(scene, 2) == 0)
        item_end(scene, item);
}

static void hint(struct scene *scene)
{
    uint64_t request = draw(scene, REQUESTS);
    uint32_t layer = (uint32_t)draw(scene, LAYERS - 1);
    if (scene->requests[request] == 0)
        return;
    scene->next[request] = layer + 1;
    struct pass pass = world_pass(&scene->world, layer + 1, SPEC_DTYPE_F32);
    struct pass_there there =
        pass_there_make(&scene->hosts[draw(scene, HOSTS - 1)], &pass, draw(scene, 4) > 0, false);
    danger(scene);
    (void)sc_plugin_begin_layer(scene->world.rig.conn, &scene->requests[request], 1, layer, NULL);
    (void)sc_plugin_prefetch_next(scene->world.rig.conn, scene->requests[request], layer, &pass.q,
                                  NULL);
    safe(scene);
    pass_there_spoil(&there);
    pass_leave(scene, &there);
    pass_free(&pass);
}

static void renew(struct scene *scene)
{
    uint64_t request = draw(scene, REQUESTS);
    struct spec_lookup_result found;
    if (draw(scene, 2) == 0)
        items_wait(scene, request);
    for (uint32_t i = 0; i < ITEMS; i++)
        if (scene->items[i].request == request)
            scene->items[i].may_fail = true; /* it may not have begun */
    if (scene->requests[request] != 0)
        rig_release(&scene->world.rig, scene->requests[request]);
    scene->requests[request] = 0;
    if (scene->stands) /* its slot stands still, too */
        return;
    if (rig_try_lookup(&scene->world.rig, &scene->world.prompt, 0, RIG_MAX, &found) != SPEC_OK)
        return;
    if (found.matched_tokens == MATCHED) {
        items_wait(scene, request);
        scene->requests[request] = found.request;
    } else if (found.request != 0) {
        rig_release(&scene->world.rig, found.request);
    }
}

static void step(struct scene *scene)
{
    switch (draw(scene, 12)) {
    case 0:
    case 1:
        hint(scene);
        break;
    case 2:
    case 3:
        renew(scene);
        break;
    case 4:
        if (scene->stands) {
            streams_go(scene);
        } else if (!scene->dies) { /* what fails is waited for */
            fake_hold(scene->hosts[HOSTS - 1].stream, 1);
            scene->stands = true;
        }
        break;
    case 5:
        if (scene->fails)
            disk_turn(scene);
        break;
    case 6:
        rig_pass_ns(&scene->world.rig, draw(scene, 3000000));
        break;
    case 7:
        if (scene->dies && !scene->is_dead && draw(scene, 4) == 0)
            scene->fault = 1 + draw(scene, 10 * COUNT(CALLS));
        break;
    default:
        item_begin(scene);
        break;
    }
}

/* ---- Runs ----------------------------------------------------------------------------------- */

static void scene_open(struct scene *scene)
{
    static char extra[700];
    const char *memory = MEMORY[draw(scene, COUNT(MEMORY))];
    (void)snprintf(extra, sizeof(extra), "%s, \"select\": {%s\"selector_bytes\": \"64MiB\"}",
                   scene->way->extra, scene->way->select);
    scene->world = (struct world){.matched = MATCHED, .group = 2, .agree = 3, .is_uneven = true};
    world_make(&scene->world, true, extra, LAYERS, 2, 32, MATCHED + 3);
    if (draw(scene, 2) == 0)
        scene->world.rig.rope = HALF;
    world_open_stored(&scene->world);
    wait_for_quant(&scene->world);
    truth_make(scene);
    rig_close(&scene->world.rig);
    (void)snprintf(extra, sizeof(extra),
                   "%s, \"select\": {%s\"selector_bytes\": \"%s\"}, \"gpu\": {%s%s}",
                   scene->way->extra, scene->way->select, memory,
                   draw(scene, 3) > 0 ? "\"device\": 0, " : "", ROOMS[draw(scene, COUNT(ROOMS))]);
    rig_open(&scene->world.rig);
}

static void scene_close(struct scene *scene)
{
    spec_connector *conn = scene->world.rig.conn;
    struct sc_plugin_device *device = &conn->device;
    streams_go(scene);
    items_end(scene, REQUESTS);
    for (uint32_t i = 0; i < REQUESTS; i++)
        if (scene->requests[i] != 0)
            rig_release(&scene->world.rig, scene->requests[i]);
    fake_fault("cuInit", 0, 0);
    for (uint32_t i = 0; i < SC_PLUGIN_DEVICE_PAIRS && device->gpu != NULL; i++) {
        (void)sc_gpu_events_wait(device->gpu, &device->gpu->slots[i].copies, 0);
        (void)sc_gpu_events_wait(device->gpu, &device->gpu->slots[i].kernels, 0);
    }
    sc_io_sim_fault_ppm(scene->world.rig.disk, SC_SIM_READ_EIO, 0);
    rig_landed(&scene->world.rig);
    uint64_t held = sc_store_selector_bytes_used(conn->store);
    if (held != 0)
        fail_msg("seed %lu: %lu bytes are held", scene->seed, held);
    truth_free(scene);
    world_done(&scene->world);
    for (uint32_t i = 0; i < HOSTS; i++)
        device_host_close(&scene->hosts[HOSTS - 1 - i]);
    fake_policy(FAKE_EAGER, 1);
    device_assert_clean("item orders");
}

/* What a run is about, and what came of all. */
struct kind {
    bool fails, dies; /* the disk, now and then; the device, once */
    uint64_t right, same, whole, failed, refined;
};

static void run(uint64_t seed, void *user)
{
    static struct scene scene;
    struct kind *kind = user;
    memset(&scene, 0, sizeof(scene));
    scene.seed = seed;
    scene.random = rig_mix(seed * 4 + kind->fails * 2 + kind->dies);
    scene.fails = kind->fails;
    scene.dies = kind->dies;
    scene.way = &WAYS[draw(&scene, COUNT(WAYS))];
    fake_policy(FAKE_EAGER, seed);
    for (uint32_t i = 0; i < HOSTS; i++)
        device_host_open(&scene.hosts[i], 0);
    scene_open(&scene);
    fake_policy((enum fake_policy)(seed % 4), seed);
    for (uint32_t i = 0; i < REQUESTS; i++)
        scene.requests[i] = look(&scene.world, 0);
    for (uint32_t i = 0; i < STEPS; i++)
        step(&scene);
    scene_close(&scene);
    kind->right += scene.right;
    kind->same += scene.same;
    kind->whole += scene.whole;
    kind->failed += scene.failed;
    kind->refined += scene.refined;
}

static void run_all(struct kind *kind)
{
    bool is_all = actor_seeds_run(SEEDS, run, kind);
    print_message("right %" PRIu64 ", the same set %" PRIu64 ", whole %" PRIu64 ", failed %" PRIu64
                  ", refined %" PRIu64 "\n",
                  kind->right, kind->same, kind->whole, kind->failed, kind->refined);
    assert_true(!is_all || (kind->right > kind->whole && kind->whole > 0));
    assert_true(!is_all || kind->fails || kind->same > 0);
    assert_true(!is_all || kind->refined > 0);
    assert_true(!is_all || !kind->dies || kind->failed > 0);
}

static void what_is_delivered_is_what_one_item_delivers(void **state)
{
    (void)state;
    run_all(&(struct kind){.fails = false});
}

static void it_is_where_reads_fail(void **state)
{
    (void)state;
    run_all(&(struct kind){.fails = true});
}

static void it_is_until_the_device_dies_and_behind_it(void **state)
{
    (void)state;
    run_all(&(struct kind){.dies = true});
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_delivered_is_what_one_item_delivers),
        cmocka_unit_test(it_is_where_reads_fail),
        cmocka_unit_test(it_is_until_the_device_dies_and_behind_it),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Scorings on a device as somebody would break them: shapes at every border and numbers that are
 * none, rooms and boxes of which there is exactly one, children that are forked while one waits for
 * room, ends of all kinds (deadlines, release, reset, close, a device that fails) in the middle of
 * one.
 *
 *   who scores   .. finds no room: waits | the end comes | room comes free -> right, or a status
 *
 * Holds: a set is the one that plain memory chooses, or there is a status; what waited goes on or
 * ends, and rooms, boxes and flights come back in the end. */
#include "tests/unit/plugin/score_desk.h"
#include "tests/unit/plugin/waits.h"

#include <float.h>
#include <math.h>
#include <sys/wait.h>

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* ---- Boxes ---------------------------------------------------------------------------------- */

static const struct question SMALL = {.keys = CODES,
                                      .count = 130,
                                      .heads = 3,
                                      .size = 16,
                                      .group = 2,
                                      .rows = 5,
                                      .fresh = 5,
                                      .dtype = SC_KERNELS_F16,
                                      .query_dtype = SC_KERNELS_F16,
                                      .fresh_dtype = SC_KERNELS_F16,
                                      .is_total = true};
/* 4.6 MB: three boxes. */
static const struct question LARGE = {.keys = ROWS,
                                      .count = 4500,
                                      .heads = 2,
                                      .size = 128,
                                      .group = 1,
                                      .rows = 2,
                                      .dtype = SC_KERNELS_F32,
                                      .query_dtype = SC_KERNELS_F16,
                                      .is_total = true};

/* Nobody but hints asks, and no hint waits: what earlier ones sent off is free once it has landed,
 * though nobody looks. */
static void a_hint_finds_the_boxes_of_those_before_it(void **state)
{
    (void)state;
    struct scene *scene = scene_make(&SMALL);
    uint64_t count = sum_count(scene->how);
    float *right = ref_sums(scene), *found = malloc(count * sizeof(float));
    struct stand stand;
    assert_non_null(found);
    fake_policy(FAKE_EAGER, 1);
    stand_open(&stand, true, "\"staging_bytes\": \"1MiB\"");
    for (uint32_t i = 0; i < 50; i++) {
        spec_status status = stand_hint(&stand, scene, found);
        if (status != SPEC_OK)
            fail_msg("hint %" PRIu32 " of %" PRIu64 " boxes: %s", i,
                     stand.rig.conn->device.pinned_count, sc_status_name(status));
        sums_compare(found, right, count);
    }
    stand_close(&stand);
    free(found);
    free(right);
    scene_free(scene);
}

/* A hint that found no box is over: it takes none for what is left, though one has come free. */
static void a_hint_without_a_box_gives_up(void **state)
{
    (void)state;
    struct question how = SMALL;
    struct stand stand;
    struct sc_plugin_pinned *box, *taken = NULL;
    float *found = calloc(how.count, sizeof(float));
    assert_non_null(found);
    how.fresh = 0;
    how.rows = 12000; /* 2.3 MB: the first box goes off, and there is no other */
    struct scene *scene = scene_make(&how);
    fake_policy(FAKE_LAZY, 1);
    stand_open(&stand, true, "\"staging_bytes\": \"1MiB\", \"score_bytes\": \"32MiB\"");
    struct sc_plugin_device *device = &stand.rig.conn->device;
    assert_true(stand_takes(&stand, scene));
    for (uint64_t i = 1; i < device->pinned_count; i++) {
        box = sc_plugin_pinned_try(device);
        assert_non_null(box);
        box->next = taken;
        taken = box;
    }
    uint32_t given = atomic_load(&device->pinned_word);
    assert_int_equal(stand_hint(&stand, scene, found), SPEC_E_BUSY);
    assert_int_equal(atomic_load(&device->pinned_word), given + 1); /* the one that went off */
    while ((box = taken) != NULL) {
        taken = box->next;
        sc_plugin_pinned_give(box);
    }
    stand_close(&stand);
    scene_free(scene);
    free(found);
}

/* ---- Shapes --------------------------------------------------------------------------------- */

#define SHAPE(keys, count, heads, size, group, rows, fresh, types, last, slots, total, gap)        \
    {                                                                                              \
        keys, count, heads, size, group, rows, fresh, types, last, slots, total, gap               \
    }
#define F16S   SC_KERNELS_F16, SC_KERNELS_F16, SC_KERNELS_F16
#define BF16S  SC_KERNELS_BF16, SC_KERNELS_BF16, SC_KERNELS_BF16
#define F32S   SC_KERNELS_F32, SC_KERNELS_F32, SC_KERNELS_F32
#define MIXED  SC_KERNELS_F16, SC_KERNELS_BF16, SC_KERNELS_F32
#define MIXED2 SC_KERNELS_BF16, SC_KERNELS_F32, SC_KERNELS_F16

static const struct question BORDERS[] = {
    SHAPE(CODES, 1, 1, 1, 1, 1, 1, F16S, false, false, true, 0),
    SHAPE(ROWS, 1, 1, 1, 1, 1, 0, BF16S, true, false, false, 0),
    SHAPE(CODES, 2, 5, 3, 1, 2, 2, MIXED, false, true, true, 2),
    SHAPE(CODES, 63, 7, 9, 3, 1, 1, BF16S, true, false, true, 2),
    SHAPE(CODES, 64, 3, 17, 5, 3, 9, F16S, true, true, false, 6),
    SHAPE(CODES, 65, 1, 31, 1, 16, 16, F16S, false, true, true, 2),
    SHAPE(ROWS, 63, 3, 33, 7, 2, 3, F16S, false, true, true, 10),
    SHAPE(ROWS, 64, 1, 127, 1, 17, 64, BF16S, false, false, true, 2),
    SHAPE(ROWS, 65, 1, 129, 2, 2, 65, F16S, false, true, true, 4),
    SHAPE(CODES, 129, 1, 255, 1, 2, 33, BF16S, false, true, true, 2),
    SHAPE(ROWS, 33, 1, 256, 1, 2, 31, F32S, false, true, false, 4),
    SHAPE(CODES, 33, 2, 256, 1, 2, 32, F16S, false, false, true, 0),
    SHAPE(CODES, 97, 1, 40, 64, 2, 2, F16S, false, false, true, 0), /* a group of 64 */
    SHAPE(ROWS, 97, 1, 16, 71, 1, 7, MIXED2, false, true, true, 4),
    SHAPE(CODES, 70, 13, 7, 1, 1, 0, MIXED2, false, false, false, 0),
    SHAPE(ROWS, 3, 1, 8, 1, 1, 300, F16S, true, true, true, 0), /* more new keys than old ones */
    SHAPE(CODES, 700, 1, 8, 1, 1, 1, F16S, false, false, true, 0),
    SHAPE(FREE, 130, 3, 16, 2, 2, 2, F16S, false, true, true, 0), /* more tables than go once */
    SHAPE(FREE, 33, 2, 8, 1, 1, 1, MIXED2, true, false, false, 2),
};

/* One of each in a policy and places of its own; both kinds of kernels. */
static void shapes_at_the_borders(void **state)
{
    (void)state;
    static const uint32_t CAPABILITIES[] = {75, 80, 90};
    for (uint32_t c = 0; c < COUNT(CAPABILITIES); c++) {
        struct scene *scenes[COUNT(BORDERS)];
        struct stand stand;
        fake_policy((enum fake_policy)(FAKE_LAZY + c), c + 1);
        stand_open(&stand, true, "\"staging_bytes\": \"1MiB\", \"score_bytes\": \"2MiB\"");
        stand.rig.conn->device.gpu->capability = CAPABILITIES[c]; /* images begin at 8.0 */
        for (uint32_t q = 0; q < COUNT(BORDERS); q++) {
            struct scene *scene = scenes[q] = scene_make(&BORDERS[q]);
            uint64_t count = sum_count(scene->how);
            float *right = ref_sums(scene), *found = malloc((count + 1) * sizeof(float));
            float *again = malloc(count * sizeof(float));
            assert_true(found != NULL && again != NULL);
            memset(found, 0x77, (count + 1) * sizeof(float));
            stand_score(&stand, scene, (q + c) % 4, found);
            sums_compare(found, right, count);
            assert_int_equal(((const uint8_t *)(found + count))[0], 0x77);
            stand_score(&stand, scene, (q + c + 1) % 4, again);
            assert_memory_equal(found, again, count * sizeof(float));
            free(again);
            free(found);
            free(right);
        }
        stand_close(&stand);
        for (uint32_t q = 0; q < COUNT(BORDERS); q++)
            scene_free(scenes[q]); /* a table of widths is known by its address until close */
    }
}

/* A layer none of whose rows have codes yet: nothing is scored, and what would have gone up for it
 * does not come to stand in the room of who scores next. */
static void no_keys_at_all(void **state)
{
    (void)state;
    struct question none = SMALL;
    none.count = 0;
    struct scene *empty = scene_make(&none), *scene = scene_make(&SMALL);
    uint64_t count = sum_count(scene->how);
    float *right = ref_sums(scene), *found = malloc(count * sizeof(float));
    assert_non_null(found);
    empty->what.prefix.slabs = empty->slabs;
    for (uint64_t seed = 0; seed < 8; seed++) {
        struct stand stand;
        fake_policy(seed == 0 ? FAKE_LAZY : FAKE_RANDOM, seed);
        stand_open(&stand, true, "\"staging_bytes\": \"1MiB\", \"score_bytes\": \"1MiB\"");
        struct sc_gpu_slot *slots = stand.rig.conn->device.gpu->slots;
        stand_score(&stand, empty, (uint32_t)seed % 4, found);
        if (seed == 0)
            assert_int_equal(sc_gpu_events_pending(&slots[3].copies), 0);
        assert_int_equal(stand_hint(&stand, scene, found), SPEC_OK);
        sums_compare(found, right, count);
        stand_close(&stand);
    }
    free(found);
    free(right);
    scene_free(scene);
    scene_free(empty);
}

/* ---- Numbers -------------------------------------------------------------------------------- */

/* What stands at one place of a scene's queries, keys or new keys. */
static const float STRANGE[] = {NAN,      INFINITY,  -INFINITY, -0.0f,    FLT_MIN / 4,
                                65504.0f, -65504.0f, FLT_MAX,   -FLT_MAX, 6e-8f};

static void strange_put(uint8_t *to, uint32_t dtype, float value)
{
    sc_kernels_dtypes[dtype].narrow(to, &value, 1);
}

/* Numbers where ref/ has numbers, none where it has none; of scores of thousands, which float32 has
 * to some thousandths, no more is said. */
static void strange_compare(const char *what, float value, const float *found,
                            const float *expected, uint64_t count)
{
    double most = 0;
    for (uint64_t j = 0; j < count; j++)
        most = isfinite(expected[j]) ? fmax(most, (double)expected[j]) : most;
    for (uint64_t j = 0; j < count; j++) {
        bool is_same = isnan(expected[j]) == isnan(found[j]) &&
                       (!(fabsf(value) < 1000) || isnan(found[j]) ||
                        fabs((double)found[j] - (double)expected[j]) <= SCENE_TOLERANCE * most);
        if (!is_same)
            fail_msg("%g in %s: key %" PRIu64 ": found %g, expected %g", (double)value, what, j,
                     (double)found[j], (double)expected[j]);
    }
}

static void strange_ask(struct stand *stand, const struct question *how, uint32_t where,
                        uint32_t part, float value)
{
    static const char *const NAMES[] = {"queries", "keys", "new keys"};
    struct scene *scene = scene_make(how);
    uint64_t count = sum_count(how);
    float *found = malloc(count * sizeof(float));
    assert_non_null(found);
    if (part == 0)
        strange_put(scene->queries, how->query_dtype, value);
    else if (part == 1)
        strange_put(scene->keys, how->dtype, value);
    else
        strange_put(scene->fresh, how->fresh_dtype, value);
    float *right = ref_sums(scene);
    stand_score(stand, scene, where, found);
    strange_compare(NAMES[part], value, found, right, count);
    free(right);
    free(found);
    scene_free(scene);
}

static void numbers_of_all_kinds(void **state)
{
    (void)state;
    static const struct question ASKED[] = {
        SHAPE(CODES, 70, 2, 20, 2, 2, 2, F16S, false, false, true, 0),
        SHAPE(CODES, 70, 2, 20, 2, 2, 2, F32S, false, false, false, 0),
        SHAPE(ROWS, 70, 2, 20, 2, 2, 2, BF16S, false, false, false, 0),
        SHAPE(ROWS, 70, 2, 20, 2, 2, 2, F32S, false, false, true, 0),
    };
    for (uint32_t capability = 75; capability <= 80; capability += 5) {
        struct stand stand;
        fake_policy(FAKE_LAZY, 1);
        stand_open(&stand, true, "\"staging_bytes\": \"1MiB\", \"score_bytes\": \"1MiB\"");
        stand.rig.conn->device.gpu->capability = capability;
        for (uint32_t q = 0; q < COUNT(ASKED); q++)
            for (uint32_t n = 0; n < COUNT(STRANGE); n++)
                for (uint32_t part = 0; part < 3; part++)
                    if (part != 1 || ASKED[q].keys == ROWS) /* codes are made of numbers */
                        strange_ask(&stand, &ASKED[q], n % 4, part, STRANGE[n]);
        stand_close(&stand);
    }
}

/* ---- What ends in the middle of one --------------------------------------------------------- */

/* All room to score in, or all boxes, are somebody's until a task of the connector's comes to it:
 * virtual time, so that it comes when somebody waits, and not before. */
struct end {
    struct sc_task task;
    struct world *world;
    spec_connector *conn;
    struct sc_gpu_range range;
    struct sc_plugin_pinned *boxes;
    void (*act)(struct end *end); /* before they come free; NULL: nothing */
    struct shot *shot;
    bool has_come;
};

static void end_step(struct sc_task *task)
{
    struct end *end = SC_TASK_OWNER(task, struct end, task);
    struct sc_plugin_pinned *box;
    if (end->act != NULL)
        end->act(end);
    sc_gpu_staging_give(&end->conn->device.scores, &end->range);
    while ((box = end->boxes) != NULL) {
        end->boxes = box->next;
        sc_plugin_pinned_give(box);
    }
    end->has_come = true;
}

static void end_begin(struct end *end, spec_connector *conn, bool room, uint64_t boxes)
{
    struct sc_plugin_device *device = &conn->device;
    *end = (struct end){.task.step = end_step, .conn = conn};
    if (room)
        assert_true(sc_gpu_staging_take(&device->scores, device->params.score_bytes, &end->range));
    for (uint64_t i = 0; i < boxes; i++) {
        struct sc_plugin_pinned *box = sc_plugin_pinned_try(device);
        assert_non_null(box);
        box->next = end->boxes;
        end->boxes = box;
    }
    sc_exec_post_at(conn->exec, &end->task, SC_IO_CLASS_DEMAND,
                    sc_exec_now_ns(conn->exec) + UINT64_C(5000000));
}

/* What a hint's streams score takes neither room nor a box that somebody has, however soon they
 * come free: a worker that waited could wait for the host that waits for it. */
static void a_hint_waits_for_nothing(void **state)
{
    (void)state;
    struct scene *scene = scene_make(&LARGE);
    uint64_t count = sum_count(scene->how);
    float *found = malloc(count * sizeof(float));
    struct stand stand;
    assert_non_null(found);
    fake_policy(FAKE_LAZY, 1);
    stand_open(&stand, true, "\"staging_bytes\": \"1MiB\", \"score_bytes\": \"8MiB\"");
    spec_connector *conn = stand.rig.conn;
    for (uint64_t left = 0; left <= conn->device.pinned_count; left++) {
        bool is_room =
            left == conn->device.pinned_count; /* then boxes are free, and it needs three */
        struct end end;
        if (left == 3)
            continue;
        end_begin(&end, conn, is_room, conn->device.pinned_count - left);
        assert_int_equal(stand_hint(&stand, scene, found), SPEC_E_BUSY);
        assert_false(end.has_come);
        rig_pass_ns(&stand.rig, 10000000);
        assert_true(end.has_come);
    }
    assert_int_equal(stand_hint(&stand, scene, found), SPEC_OK);
    stand_close(&stand);
    free(found);
    scene_free(scene);
}

/* Each call of the driver fails once, or the context dies at a step: sums are right or there is a
 * status, and what it had comes back. */
static bool fault_once(const struct scene *scene, const float *right, const char *name, int n)
{
    uint64_t count = sum_count(scene->how);
    float *found = malloc(count * sizeof(float));
    struct stand stand;
    assert_non_null(found);
    fake_policy((enum fake_policy)(n % 4), (uint64_t)n);
    stand_open(&stand, true, "\"staging_bytes\": \"1MiB\", \"score_bytes\": \"8MiB\"");
    struct sc_gpu_device *gpu = stand.rig.conn->device.gpu;
    if (name == NULL)
        fake_crash(n, 719);
    else
        fake_fault(name, n, 2);
    spec_status status = stand_hint(&stand, scene, found);
    bool is_met = name == NULL ? sc_gpu_has_failed(gpu) : fake_fired() != 0;
    fake_fault(NULL, 0, 0);
    fake_crash(0, 0);
    fake_sticky(0);
    if (status == SPEC_OK)
        sums_compare(found, right, count);
    else
        assert_true(status == SPEC_E_IO || status == SPEC_E_UNSUPPORTED);
    assert_true(is_met || status == SPEC_OK);
    spec_status again = stand_hint(&stand, scene, found);
    assert_int_equal(again, sc_gpu_has_failed(gpu) ? SPEC_E_UNSUPPORTED : SPEC_OK);
    stand_close(&stand);
    free(found);
    return is_met;
}

static void each_call_of_the_driver_may_fail(void **state)
{
    (void)state;
    static const char *const CALLS[] = {
#define X(name, version, arguments) #name,
        SC_CU_CALLS(X)
#undef X
    };
    uint32_t faults = 0, deaths = 0;
    struct scene *scene = scene_make(&SMALL);
    float *right = ref_sums(scene);
    for (uint32_t c = 0; c < COUNT(CALLS); c++)
        for (int n = 1; n < 60 && fault_once(scene, right, CALLS[c], n); n++)
            faults++;
    for (int n = 1; n < 60 && fault_once(scene, right, NULL, n); n++)
        deaths++;
    print_message("%" PRIu32 " calls failed, %" PRIu32 " steps\n", faults, deaths);
    assert_true(faults >= 15);
    assert_true(deaths >= 5); /* up, four kernels, back */
    free(right);
    scene_free(scene);
}

#define MATCHED  130u
#define LAYERS   2u
#define SMALLEST                                                                                   \
    ", \"gpu\": {\"device\": 0, \"staging_bytes\": \"1MiB\", \"score_bytes\": \"64KiB\"}"

static const char *const WAYS[] = {
    "\"preset\": \"layered-uniform\"",
    "\"preset\": \"layered\"",
    "\"preset\": \"hinted\"",
};

/* A connector with a device, a host, and one item that lies there. */
struct show {
    struct device_host host;
    struct world world;
    spec_request request;
    struct shot shot;
    struct pass_there pass;
};

static void shot_of(struct shot *shot, const struct world *world, spec_request request,
                    uint32_t exact_ppm)
{
    bool is_layered = world->rig.conn->config.base == SC_BASE_QUANTISED;
    shot_make(shot, world, request, 1, 0, exact_ppm);
    shot->select.given = is_layered ? SPEC_SELECT_EXACT : SPEC_SELECT_BUDGET;
    shot->select.retain_ppm = exact_ppm > 0 ? exact_ppm : 1;
}

static void show_open_early(struct show *show, bool is_sim, const char *way, const char *more,
                            uint64_t matched)
{
    static char extra[512]; /* the rig keeps it */
    struct world *world = &show->world;
    (void)snprintf(extra, sizeof(extra), "%s%s", way, more);
    device_host_open(&show->host, 0);
    *world = (struct world){.matched = matched, .group = 2, .agree = 3, .is_uneven = true};
    world_make(world, is_sim, extra, LAYERS, 3, 16, matched + 3);
    world_open_stored(world);
    show->request = look(world, 0); /* before there are codes */
}

static void show_open(struct show *show, bool is_sim, const char *way, const char *more,
                      uint64_t matched)
{
    show_open_early(show, is_sim, way, more, matched);
    rig_release(&show->world.rig, show->request);
    wait_for_quant(&show->world);
    show->request = look(&show->world, 0);
}

static void show_shot(struct show *show, uint32_t exact_ppm)
{
    shot_of(&show->shot, &show->world, show->request, exact_ppm);
    show->pass = pass_there_make(&show->host, &show->shot.pass, true, true);
}

/* As most cases begin: a shot that has to wait for room. */
static void show_start(struct show *show, uint32_t way)
{
    fake_policy(FAKE_LAZY, way + 1);
    show_open(show, true, WAYS[way], SMALLEST, MATCHED);
    show_shot(show, 200000);
}

static void show_shot_free(struct show *show)
{
    pass_there_free(&show->pass);
    shot_free(&show->shot);
}

static void show_close(struct show *show)
{
    if (show->world.rig.conn != NULL) {
        rig_release(&show->world.rig, show->request);
        stand_assert_idle(show->world.rig.conn);
    }
    world_done(&show->world);
    device_host_end(&show->host, "a show");
}

/* Of plain memory, whose bytes the found one has. */
static void assert_is_plain(struct show *show, const struct shot *found, uint32_t exact_ppm)
{
    struct shot plain;
    shot_of(&plain, &show->world, show->request, exact_ppm);
    assert_int_equal(fire(&show->world, &plain), SPEC_OK);
    assert_int_equal(plain.item.row_count, found->item.row_count);
    assert_int_equal(plain.item.exact_rows, found->item.exact_rows);
    assert_memory_equal(plain.exact, found->exact, sizeof(plain.exact));
    assert_memory_equal(plain.positions, found->positions, sizeof(plain.positions));
    assert_memory_equal(plain.area.bytes, found->area.bytes,
                        3 * RIG_GUARD + 2 * plain.area.part_bytes);
    shot_free(&plain);
}

/* The item is served while all room is somebody's until that end comes. */
static spec_status show_fire(struct show *show, void (*act)(struct end *end), uint64_t deadline_ns)
{
    spec_connector *conn = show->world.rig.conn;
    struct end end;
    spec_ticket ticket;
    show->shot.item.deadline_ns = deadline_ns;
    end_begin(&end, conn, true, 0);
    end.act = act;
    end.shot = &show->shot;
    assert_int_equal(sc_plugin_submit(conn, &show->shot.item, 1, &ticket, NULL), SPEC_OK);
    spec_status status = sc_plugin_submit_wait(conn, ticket, UINT64_MAX, NULL);
    fake_sticky(0);
    pass_there_spoil(&show->pass); /* it is the host's again */
    assert_true(status == SPEC_E_TIMEOUT || atomic_load(&conn->device.scores.refused) > 0);
    rig_pass_ns(&show->world.rig, 10000000);
    assert_true(end.has_come);
    return status;
}

_Noreturn static void be_a_child(struct end *end)
{
    const struct spec_api *api = spec_connector_api(SPEC_ABI_MAJOR);
    struct spec_important *item = &end->shot->item;
    uint64_t calls = fake_calls();
    spec_ticket ticket;
    int code = api->get_important(end->conn, item, 1, NULL) != SPEC_E_FORKED;
    code |= api->get_important_submit(end->conn, item, 1, &ticket, NULL) != SPEC_E_FORKED ? 2 : 0;
    code |= api->release(end->conn, item->request, NULL) != SPEC_E_FORKED ? 4 : 0;
    api->close(end->conn);
    code |= fake_calls() != calls ? 8 : 0;
    _exit(code);
}

static void act_fork(struct end *end)
{
    int code = -1;
    pid_t child = fork();
    if (child == 0)
        be_a_child(end);
    assert_int_equal(waitpid(child, &code, 0), child);
    assert_int_equal(code, 0);
}

static void act_release(struct end *end)
{
    assert_int_equal(sc_plugin_release(end->conn, end->shot->item.request, NULL), SPEC_OK);
}

static void act_crash(struct end *end)
{
    (void)end;
    fake_sticky(719);
}

static void a_child_that_is_forked_in_the_middle_touches_nothing(void **state)
{
    (void)state;
    for (uint32_t w = 0; w < COUNT(WAYS); w++) {
        struct show show;
        show_start(&show, w);
        assert_int_equal(show_fire(&show, act_fork, 0), SPEC_OK);
        assert_is_plain(&show, &show.shot, 200000);
        show_shot_free(&show);
        show_close(&show);
    }
}

/* Rows that are exact are what was stored; what came late is told, or comes coarse. */
static void a_deadline_may_pass_while_one_waits_for_room(void **state)
{
    (void)state;
    for (uint32_t w = 0; w < COUNT(WAYS); w++)
        for (uint64_t deadline_ns = 1; deadline_ns <= 100000000; deadline_ns *= 100) {
            struct show show;
            show_start(&show, w);
            spec_status status = show_fire(&show, NULL, deadline_ns);
            if (deadline_ns > 10000000) {
                assert_int_equal(status, SPEC_OK);
                assert_is_plain(&show, &show.shot, 200000);
            } else if (status != SPEC_E_TIMEOUT) {
                assert_int_equal(status, SPEC_OK);
                if (w == 0)
                    assert_rows(&show.world, &show.shot, 0, 4, 2);
            }
            show_shot_free(&show);
            show_shot(&show, 200000);
            assert_int_equal(fire(&show.world, &show.shot), SPEC_OK);
            assert_is_plain(&show, &show.shot, 200000);
            show_shot_free(&show);
            show_close(&show);
        }
}

static void a_request_may_go_while_one_waits_for_room(void **state)
{
    (void)state;
    for (uint32_t w = 0; w < COUNT(WAYS); w++) {
        struct show show;
        show_start(&show, w);
        spec_status status = show_fire(&show, act_release, 0);
        assert_true(status == SPEC_OK || status == SPEC_E_STALE);
        show.request = look(&show.world, 0);
        if (status == SPEC_OK)
            assert_is_plain(&show, &show.shot, 200000);
        show_shot_free(&show);
        show_close(&show);
    }
}

static void a_device_may_fail_while_one_waits_for_room(void **state)
{
    (void)state;
    for (uint32_t w = 0; w < COUNT(WAYS); w++) {
        struct show show;
        show_start(&show, w);
        spec_status status = show_fire(&show, act_crash, 0);
        assert_true(status == SPEC_E_IO || status == SPEC_E_UNSUPPORTED);
        show_shot_free(&show);
        shot_of(&show.shot, &show.world, show.request, 200000);
        assert_int_equal(fire(&show.world, &show.shot), SPEC_OK);
        assert_is_plain(&show, &show.shot, 200000);
        shot_free(&show.shot);
        show_close(&show);
    }
}

/* ---- Streams -------------------------------------------------------------------------------- */

/* Between the submit and its wait the stream is captured, or another one, or it is gone. */
static void streams_may_be_captured_or_gone_behind_the_submit(void **state)
{
    (void)state;
    for (uint32_t policy = FAKE_EAGER; policy <= FAKE_RANDOM; policy++)
        for (uint32_t how = 0; how < 3; how++) {
            struct show show;
            spec_ticket ticket;
            sc_cu_stream stream, other;
            fake_policy((enum fake_policy)policy, how + 1);
            show_open(&show, true, WAYS[0], SMALLEST, MATCHED);
            const struct sc_cu *cu = show.host.cu;
            spec_connector *conn = show.world.rig.conn;
            show_shot(&show, 200000);
            device_ok(cu->cuStreamCreate(&stream, SC_CU_STREAM_NON_BLOCKING));
            device_ok(cu->cuStreamCreate(&other, SC_CU_STREAM_NON_BLOCKING));
            pass_there_spoil(&show.pass);
            device_ok(cu->cuStreamSynchronize(show.host.stream));
            device_ok(cu->cuMemcpyHtoDAsync(show.pass.queries.at, show.pass.queries.before,
                                            show.pass.queries.bytes, stream));
            device_ok(cu->cuMemcpyHtoDAsync(show.pass.keys.at, show.pass.keys.before,
                                            show.pass.keys.bytes, stream));
            show.shot.pass.q.stream = show.shot.pass.fresh.memory.stream = stream;
            assert_int_equal(sc_plugin_submit(conn, &show.shot.item, 1, &ticket, NULL), SPEC_OK);
            if (how < 2)
                fake_capture(how == 0 ? stream : other, 1);
            else
                device_ok(cu->cuStreamDestroy(stream));
            assert_int_equal(sc_plugin_submit_wait(conn, ticket, UINT64_MAX, NULL), SPEC_OK);
            if (how < 2)
                fake_capture(how == 0 ? stream : other, 0);
            assert_is_plain(&show, &show.shot, 200000);
            if (how < 2)
                device_ok(cu->cuStreamDestroy(stream));
            device_ok(cu->cuStreamDestroy(other));
            show_shot_free(&show);
            show_close(&show);
        }
}

/* What is asked with is the host's, or lies there on a stream of its own; it is scored there, or
 * comes to the host: the call is through, in both halves, while the destination's stream stands
 * still (who waits for it ends the process). */
static void nobody_waits_for_the_destination(void **state)
{
    (void)state;
    static const char NO_ROOM[] =
        ", \"gpu\": {\"device\": 0, \"staging_bytes\": \"1MiB\", \"score_bytes\": 0}";
    for (uint32_t how = 0; how < 8 * COUNT(WAYS); how++) { /* bits: submitted, there, no room */
        bool is_there = (how & 2) != 0;
        struct show show;
        struct device_host other; /* its stream */
        spec_ticket ticket;
        fake_policy(FAKE_EAGER, 1);
        show_open(&show, true, WAYS[how / 8], (how & 4) != 0 ? NO_ROOM : SMALLEST, MATCHED);
        device_host_open(&other, 0);
        spec_connector *conn = show.world.rig.conn;
        shot_of(&show.shot, &show.world, show.request, 200000);
        struct there there = there_make(&show.host, &show.shot.area);
        struct pass_there pass = pass_there_make(&other, &show.shot.pass, is_there, is_there);
        device_ok(show.host.cu->cuStreamSynchronize(show.host.stream));
        fake_hold(show.host.stream, 1);
        if ((how & 1) == 0) {
            assert_int_equal(fire(&show.world, &show.shot), SPEC_OK);
        } else {
            assert_int_equal(sc_plugin_submit(conn, &show.shot.item, 1, &ticket, NULL), SPEC_OK);
            assert_int_equal(sc_plugin_submit_wait(conn, ticket, UINT64_MAX, NULL), SPEC_OK);
        }
        pass_there_spoil(&pass);
        fake_hold(show.host.stream, 0);
        there_read(&there, &show.shot.area);
        assert_is_plain(&show, &show.shot, 200000);
        pass_there_free(&pass);
        device_host_close(&other);
        there_free(&there);
        shot_free(&show.shot);
        show_close(&show);
    }
}

/* ---- Sets ----------------------------------------------------------------------------------- */

/* Chunks of 64 tokens, one row more or less, and shares from none to all: the set of plain memory,
 * by both kinds of kernels. */
static void a_set_does_not_hang_on_who_scores(void **state)
{
    (void)state;
    static const uint64_t MATCHES[] = {1, 63, 64, 65, 129};
    static const uint32_t SHARES[] = {0, 1, 500000, 1000000};
    uint32_t taken = 0;
    for (uint32_t w = 0; w < COUNT(WAYS); w++)
        for (uint32_t m = 0; m < COUNT(MATCHES); m++) {
            struct show show;
            fake_policy((enum fake_policy)((w + m) % 4), m + 1);
            show_open(&show, true, WAYS[w], SMALLEST, MATCHES[m]);
            struct sc_gpu_device *gpu = show.world.rig.conn->device.gpu;
            for (uint32_t i = 0; i < 2 * COUNT(SHARES); i++) {
                gpu->capability = i % 2 == 0 ? 75 : 90;
                show_shot(&show, SHARES[i / 2]);
                struct there there = there_make(&show.host, &show.shot.area);
                assert_int_equal(fire(&show.world, &show.shot), SPEC_OK);
                pass_there_spoil(&show.pass);
                there_read(&there, &show.shot.area);
                assert_is_plain(&show, &show.shot, SHARES[i / 2]);
                there_free(&there);
                show_shot_free(&show);
            }
            taken += show.world.rig.conn->device.scores.taken > 0;
            show_close(&show);
        }
    assert_true(taken > COUNT(MATCHES));
}

/* Of one head, of all, at the first row or the last: the same set, or the same status. */
static void queries_that_are_no_numbers(void **state)
{
    (void)state;
    static const float VALUES[] = {NAN, INFINITY, -INFINITY, 65504.0f};
    for (uint32_t w = 0; w < COUNT(WAYS); w++) {
        struct show show;
        fake_policy((enum fake_policy)w, w + 1);
        show_open(&show, true, WAYS[w], SMALLEST, MATCHED);
        for (uint32_t n = 0; n < 3 * COUNT(VALUES); n++) {
            struct shot plain;
            uint64_t values = FRESH_ROWS * 6 * 16, first = n % 3 == 1 ? values - 1 : 0;
            uint64_t end = n % 3 == 2 ? values : first + 1;
            shot_of(&plain, &show.world, show.request, 200000);
            shot_of(&show.shot, &show.world, show.request, 200000);
            for (uint64_t i = first; i < end; i++) {
                strange_put(plain.pass.queries + 2 * i, SC_KERNELS_F16, VALUES[n / 3]);
                strange_put(show.shot.pass.queries + 2 * i, SC_KERNELS_F16, VALUES[n / 3]);
            }
            show.pass = pass_there_make(&show.host, &show.shot.pass, true, true);
            spec_status status = fire(&show.world, &plain);
            assert_int_equal(fire(&show.world, &show.shot), status);
            assert_memory_equal(plain.exact, show.shot.exact, sizeof(plain.exact));
            assert_memory_equal(plain.area.bytes, show.shot.area.bytes,
                                3 * RIG_GUARD + 2 * plain.area.part_bytes);
            show_shot_free(&show);
            shot_free(&plain);
        }
        show_close(&show);
    }
}

/* Asked for before rows have codes, and when they have: each time the set of plain memory, by
 * queries of the host's for a destination that is there. */
static void a_layer_that_has_no_codes_yet(void **state)
{
    (void)state;
    for (uint32_t w = 0; w < COUNT(WAYS); w++) {
        struct show show;
        fake_policy((enum fake_policy)w, w + 1);
        show_open_early(&show, true, WAYS[w], SMALLEST, MATCHED);
        const spec_connector *conn = show.world.rig.conn;
        for (uint32_t n = 0; n < 6; n++) {
            shot_of(&show.shot, &show.world, show.request, 200000);
            struct there there = there_make(&show.host, &show.shot.area);
            assert_int_equal(fire(&show.world, &show.shot), SPEC_OK);
            there_read(&there, &show.shot.area);
            assert_is_plain(&show, &show.shot, 200000);
            assert_int_equal(conn->device.scores.taken > 0, n == 5);
            there_free(&there);
            shot_free(&show.shot);
            if (n != 4)
                continue;
            wait_for_quant(&show.world);
            rig_release(&show.world.rig, show.request); /* which has a selector without them */
            show.request = look(&show.world, 0);
        }
        show_close(&show);
    }
}

/* Where room is for nothing, or a page, who asks is served all the same, and by whom follows from
 * that alone. */
static void the_smallest_rooms(void **state)
{
    (void)state;
    static const char *const ROOMS[] = {"0", "1", "255", "256", "4096", "1048576"};
    for (uint32_t r = 0; r < COUNT(ROOMS); r++) {
        struct show show;
        char more[160];
        (void)snprintf(more, sizeof(more),
                       ", \"gpu\": {\"device\": 0, \"staging_bytes\": \"1MiB\", "
                       "\"score_bytes\": %s}",
                       ROOMS[r]);
        fake_policy((enum fake_policy)(r % 4), r + 1);
        show_open(&show, true, WAYS[r % COUNT(WAYS)], more, MATCHED);
        for (uint32_t i = 0; i < 2; i++) {
            show_shot(&show, 200000);
            assert_int_equal(fire(&show.world, &show.shot), SPEC_OK);
            pass_there_spoil(&show.pass);
            assert_is_plain(&show, &show.shot, 200000);
            show_shot_free(&show);
        }
        uint64_t taken = show.world.rig.conn->device.scores.taken;
        assert_int_equal(taken, r == COUNT(ROOMS) - 1 ? 2 : 0);
        show_close(&show);
    }
}

/* ---- Several at once ------------------------------------------------------------------------ */

/* Each needs three boxes, of which there are four, and one for what comes back; room is for all. */
static void as_few_boxes_as_there_may_be(void **state)
{
    (void)state;
    struct scene *scene = scene_make(&LARGE);
    float *right = ref_sums(scene);
    struct stand stand;
    fake_policy(FAKE_LAZY, 1);
    stand_open(&stand, false, "\"staging_bytes\": \"1MiB\", \"score_bytes\": \"32MiB\"");
    assert_int_equal(stand.rig.conn->device.pinned_count, 4);
    stand_score_beside(&stand, scene, right, 3, 1, 1);
    stand_close(&stand);
    free(right);
    scene_free(scene);
}

/* Gives the room back when somebody waits for the submission that waits for it. */
static void *give_late(void *user)
{
    struct end *end = user;
    end->has_come = await_waiter(&end->conn->submits.word);
    sc_gpu_staging_give(&end->conn->device.scores, &end->range);
    return NULL;
}

/* A thread of ours waits for room when everything is reset, or the connector closes. */
static void a_reset_or_close_while_one_waits_for_room(void **state)
{
    (void)state;
    for (uint32_t how = 0; how < 4; how++) { /* bits: close, released before */
        struct show show;
        struct end end = {.act = NULL};
        pthread_t thread;
        spec_ticket ticket;
        fake_policy(FAKE_EAGER, 1);
        show_open(&show, false, WAYS[how / 2], ", \"submit\": {\"threads\": 1}" SMALLEST, MATCHED);
        spec_connector *conn = end.conn = show.world.rig.conn;
        show_shot(&show, 200000);
        assert_true(
            sc_gpu_staging_take(&conn->device.scores, conn->device.params.score_bytes, &end.range));
        assert_int_equal(sc_plugin_submit(conn, &show.shot.item, 1, &ticket, NULL), SPEC_OK);
        assert_true(await_waiter(&conn->device.score_word));
        assert_int_equal(pthread_create(&thread, NULL, give_late, &end), 0);
        if ((how & 2) != 0)
            assert_int_equal(sc_plugin_release(conn, show.request, NULL), SPEC_OK);
        if ((how & 1) != 0) {
            rig_close(&show.world.rig);
        } else {
            assert_int_equal(sc_plugin_reset(conn, NULL), SPEC_OK);
            spec_status status = sc_plugin_submit_wait(conn, ticket, UINT64_MAX, NULL);
            assert_true(status == SPEC_OK || status == SPEC_E_STALE);
            if ((how & 2) == 0)
                rig_release(&show.world.rig, show.request);
            assert_int_equal(pthread_join(thread, NULL), 0);
            stand_assert_idle(conn);
            rig_close(&show.world.rig);
        }
        if ((how & 1) != 0)
            assert_int_equal(pthread_join(thread, NULL), 0);
        assert_true(end.has_come);
        show_shot_free(&show);
        show_close(&show);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_hint_finds_the_boxes_of_those_before_it),
        cmocka_unit_test(a_hint_without_a_box_gives_up),
        cmocka_unit_test(shapes_at_the_borders),
        cmocka_unit_test(no_keys_at_all),
        cmocka_unit_test(numbers_of_all_kinds),
        cmocka_unit_test(a_hint_waits_for_nothing),
        cmocka_unit_test(each_call_of_the_driver_may_fail),
        cmocka_unit_test(a_child_that_is_forked_in_the_middle_touches_nothing),
        cmocka_unit_test(a_deadline_may_pass_while_one_waits_for_room),
        cmocka_unit_test(a_request_may_go_while_one_waits_for_room),
        cmocka_unit_test(a_device_may_fail_while_one_waits_for_room),
        cmocka_unit_test(streams_may_be_captured_or_gone_behind_the_submit),
        cmocka_unit_test(nobody_waits_for_the_destination),
        cmocka_unit_test(a_set_does_not_hang_on_who_scores),
        cmocka_unit_test(queries_that_are_no_numbers),
        cmocka_unit_test(a_layer_that_has_no_codes_yet),
        cmocka_unit_test(the_smallest_rooms),
        cmocka_unit_test(as_few_boxes_as_there_may_be),
        cmocka_unit_test(a_reset_or_close_while_one_waits_for_room),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Layers that keep states, at random: passes that end anywhere, part and are dropped; small disks,
 * resets, power cuts, failing memory, threads.
 *
 *   twin   the ends of all passes that were ever begun, by the hash of all tokens before them
 *
 * Holds: a match ends where a pass was begun that ended there, and every layer of it is right, or
 * its load says that it is not. */
#include "tests/unit/plugin/hybrid_fixture.h"
#include "tests/unit/threads.h"

#define LAYERS     HYBRID_LAYERS
#define STATE_MOST 5000u
#define ENDS       4096u
#define CUT        UINT64_C(1000000)

struct scene {
    struct hybrid model;
    pthread_mutex_t lock;
    uint64_t ends[ENDS], end_count; /* guarded by the lock */
    _Atomic uint64_t hits, passes;
};

struct player {
    struct scene *scene;
    uint64_t random;
    bool may_fail; /* reads and writes may */
};

static uint64_t draw(struct player *player, uint64_t bound)
{
    player->random = rig_mix(player->random);
    return player->random % bound;
}

/* ---- The scene ------------------------------------------------------------------------------ */

static void scene_make(struct scene *scene, bool is_sim, const char *extra)
{
    memset(scene, 0, sizeof(*scene));
    hybrid_make(&scene->model, is_sim, extra);
    pthread_mutex_init(&scene->lock, NULL);
}

static void scene_done(struct scene *scene)
{
    pthread_mutex_destroy(&scene->lock);
    rig_done(&scene->model.rig);
}

static void end_add(struct scene *scene, uint64_t history)
{
    pthread_mutex_lock(&scene->lock);
    assert_true(scene->end_count < ENDS);
    scene->ends[scene->end_count++] = history;
    pthread_mutex_unlock(&scene->lock);
}

static bool end_has(struct scene *scene, uint64_t history)
{
    bool has = false;
    pthread_mutex_lock(&scene->lock);
    for (uint64_t i = 0; i < scene->end_count && !has; i++)
        has = scene->ends[i] == history;
    pthread_mutex_unlock(&scene->lock);
    return has;
}

/* ---- Layers --------------------------------------------------------------------------------- */

/* Whether it came; then it is right. */
static bool layer_load(struct player *player, spec_request request, const struct prompt *prompt,
                       uint64_t from, uint64_t end, uint32_t layer)
{
    spec_status status = hybrid_load(&player->scene->model, request, prompt, from, end, layer);
    bool is_lost = status == SPEC_E_STALE || status == SPEC_E_CORRUPT || status == SPEC_E_IO;
    if (status != SPEC_OK && !(player->may_fail && is_lost))
        fail_msg("layer %u: %s", layer, sc_status_name(status));
    return status == SPEC_OK;
}

/* ---- Steps ---------------------------------------------------------------------------------- */

static struct prompt prompt_draw(struct player *player)
{
    static const uint64_t SHARED[] = {0, 50, 64, 120, 200};
    return rig_prompt(draw(player, 3), SHARED[draw(player, 5)], draw(player, 3),
                      10 + draw(player, 300));
}

/* A pass [first, end); false: it was dropped in its midst. */
static bool pass_store(struct player *player, spec_request request, const struct prompt *prompt,
                       uint64_t first, uint64_t end, spec_ticket *ticket)
{
    struct rig *rig = &player->scene->model.rig;
    uint64_t most = draw(player, 10) == 0 ? 1 + draw(player, LAYERS - 1) : LAYERS;
    end_add(player->scene, prompt->history[end - 1]);
    for (uint32_t l = 0; l < most; l++) {
        spec_status status =
            hybrid_store(&player->scene->model, request, prompt, first, end - first, l, ticket);
        if (status == SPEC_E_STALE && player->may_fail)
            return false;
        if (status != SPEC_OK)
            fail_msg("store: layer %u: %s", l, sc_status_name(status));
    }
    if (most < LAYERS)
        (void)sc_plugin_store_abort(rig->conn, request, first, NULL);
    return most == LAYERS;
}

/* Passes to the prompt's end; what all of them said in the end. */
static spec_status passes_store(struct player *player, const struct prompt *prompt)
{
    struct rig *rig = &player->scene->model.rig;
    struct spec_lookup_result found = {.struct_size = sizeof(found)};
    spec_status all = rig_try_lookup(rig, prompt, 0, 0, &found);
    if (all != SPEC_OK)
        return all;
    uint64_t first = found.matched_tokens;
    while (first < prompt->count && all == SPEC_OK) {
        uint64_t left = prompt->count - first, end = first + 1 + draw(player, left);
        spec_ticket ticket = 0;
        if (draw(player, 3) == 0)
            end = prompt->count;
        if (!pass_store(player, found.request, prompt, first, end, &ticket)) {
            if (player->may_fail && draw(player, 2) == 0)
                break;
            continue;
        }
        if (ticket == 0)
            break;
        spec_status status = rig_wait(rig, ticket);
        all = all == SPEC_OK ? status : all;
        player->scene->passes++;
        first = end;
    }
    (void)sc_plugin_release(rig->conn, found.request, NULL);
    return first == prompt->count ? all : SPEC_E_DROPPED;
}

/* Returns where the match ends. */
static uint64_t match_check(struct player *player, const struct prompt *prompt, uint64_t from)
{
    struct rig *rig = &player->scene->model.rig;
    struct spec_lookup_result found = {.struct_size = sizeof(found)};
    if (rig_try_lookup(rig, prompt, from, RIG_MAX, &found) != SPEC_OK)
        return 0;
    uint64_t end = found.matched_tokens;
    assert_true(end == from || end_has(player->scene, prompt->history[end - 1]));
    for (uint32_t l = 0; l < LAYERS && end > from; l++)
        if (!layer_load(player, found.request, prompt, from, end, l))
            break;
    player->scene->hits += end > from;
    (void)sc_plugin_release(rig->conn, found.request, NULL);
    return end;
}

static void step(struct player *player)
{
    struct prompt prompt = prompt_draw(player);
    if (draw(player, 2) == 0)
        (void)passes_store(player, &prompt);
    else
        (void)match_check(player, &prompt, draw(player, 3) == 0 ? draw(player, prompt.count) : 0);
    rig_prompt_free(&prompt);
}

/* ---- Tests ---------------------------------------------------------------------------------- */

static void what_was_stored_is_matched_where_it_ended(void **state)
{
    (void)state;
    static struct scene scene;
    for (uint64_t seed = 1; seed <= 3; seed++) {
        scene_make(&scene, true, seed == 2 ? "\"chunk_tokens\": 16" : "\"chunk_tokens\": 64");
        hybrid_open(&scene.model);
        struct player player = {.scene = &scene, .random = seed};
        for (uint32_t i = 0; i < 60; i++) {
            struct prompt prompt = prompt_draw(&player);
            spec_status status;
            do
                status = passes_store(&player, &prompt);
            while (status == SPEC_E_DROPPED);
            assert_int_equal(status, SPEC_OK);
            assert_int_equal(match_check(&player, &prompt, 0), prompt.count);
            if (i % 20 == 19) {
                rig_close(&scene.model.rig);
                hybrid_open(&scene.model);
                assert_int_equal(match_check(&player, &prompt, 0), prompt.count);
            }
            rig_check_index(&scene.model.rig);
            rig_prompt_free(&prompt);
        }
        scene_done(&scene);
    }
}

/* A pass all of whose layers but one are exact; returns what its ticket says. */
static spec_status store_on(struct hybrid *model, const struct prompt *prompt, uint32_t told_at,
                            uint32_t computed_on)
{
    struct spec_lookup_result found = rig_lookup(&model->rig, prompt);
    uint64_t first = found.matched_tokens, count = prompt->count - first;
    spec_ticket ticket = 0;
    for (uint32_t l = 0; l < LAYERS; l++)
        assert_int_equal(hybrid_store_on(model, found.request, prompt, first, count, l,
                                         l == told_at ? computed_on : SPEC_PROVENANCE_EXACT,
                                         &ticket),
                         SPEC_OK);
    spec_status status = rig_wait(&model->rig, ticket);
    rig_release(&model->rig, found.request);
    return status;
}

/* Rows and states of a pass are worth what its last layer says, though all rows came before it. */
static void what_the_last_state_says_counts_for_all_rows(void **state)
{
    (void)state;
    static struct hybrid model;
    for (uint32_t layer = 0; layer < LAYERS; layer++) {
        hybrid_make(&model, true, "\"chunk_tokens\": 16");
        hybrid_open(&model);
        struct rig *rig = &model.rig;
        struct prompt prompt = rig_prompt(1, 0, 0, 100);
        struct spec_lookup_result found = {.struct_size = sizeof(found)};
        const struct spec_lookup_params exact =
            rig_lookup_params(&prompt, 0, RIG_MAX, SPEC_LOOKUP_REQUIRE_EXACT);
        if (model.state_bytes[layer] > 0) {
            assert_int_equal(store_on(&model, &prompt, layer, SPEC_PROVENANCE_PRUNED),
                             SPEC_E_DROPPED);
            found = rig_lookup(rig, &prompt);
            assert_int_equal(found.stored_tokens, 0);
            rig_release(rig, found.request);
            assert_int_equal(store_on(&model, &prompt, layer, SPEC_PROVENANCE_LOSSY), SPEC_OK);
            found = rig_lookup(rig, &prompt);
            assert_int_equal(found.matched_tokens, prompt.count);
            assert_int_equal(found.provenance.kind, SPEC_PROVENANCE_LOSSY);
            rig_release(rig, found.request);
            assert_int_equal(sc_plugin_lookup(rig->conn, &exact, &found, NULL), SPEC_OK);
            assert_int_equal(found.matched_tokens, 0);
            assert_int_equal(found.stored_tokens, 0);
            rig_release(rig, found.request);
        }
        rig_end(rig, &prompt);
    }
}

static void on_small_disks_over_resets_and_reopens(void **state)
{
    (void)state;
    static struct scene scene;
    static const char *const EXTRAS[] = {
        "\"disk_bytes\": \"2MiB\", \"segment_bytes\": \"1MiB\", \"lease_ns_max\": 1000000000",
        "\"disk_bytes\": \"4MiB\", \"segment_bytes\": \"1MiB\", \"chunk_tokens\": 16, "
        "\"lease_ns_max\": 0",
        "\"disk_bytes\": \"4MiB\", \"segment_bytes\": \"1MiB\", \"host_bytes\": \"256KiB\", "
        "\"lease_ns_max\": 1000000000"};
    for (uint64_t seed = 0; seed < 3; seed++) {
        scene_make(&scene, true, EXTRAS[seed]);
        hybrid_open(&scene.model);
        struct player player = {.scene = &scene, .random = seed + 10, .may_fail = true};
        for (uint32_t i = 0; i < 400; i++) {
            uint64_t what = draw(&player, 60);
            step(&player);
            if (what == 0) {
                rig_close(&scene.model.rig);
                hybrid_open(&scene.model);
            } else if (what == 1) {
                (void)sc_plugin_reset(scene.model.rig.conn, NULL);
            } else if (what < 6) {
                rig_pass_ns(&scene.model.rig, UINT64_C(1500000000));
            }
        }
        rig_settle(&scene.model.rig);
        rig_check_index(&scene.model.rig);
        print_message("seed %lu: %lu passes, %lu hits\n", seed, scene.passes, scene.hits);
        assert_true(scene.hits > 20);
        scene_done(&scene);
    }
}

static void over_power_cuts(void **state)
{
    (void)state;
    static struct scene scene;
    scene_make(&scene, true, "\"segment_bytes\": \"1MiB\", \"disk_bytes\": \"32MiB\"");
    sc_io_sim_disk_close(scene.model.rig.disk);
    struct sc_io_sim_disk_params params = {
        .alloc = &scene.model.rig.disk_alloc, .seed = 1, .journal = 2};
    assert_int_equal(sc_io_sim_disk_open(&params, &scene.model.rig.disk, NULL), SPEC_OK);
    struct player player = {.scene = &scene, .random = 77, .may_fail = true};
    for (uint32_t i = 0; i < 60; i++) {
        hybrid_open(&scene.model);
        struct prompt prompt = prompt_draw(&player);
        (void)match_check(&player, &prompt, 0);
        sc_io_sim_power_off_after(scene.model.rig.disk, 5 + draw(&player, 150));
        for (uint32_t j = 0; j < 6; j++)
            step(&player);
        sc_io_sim_power_off(scene.model.rig.disk);
        rig_close(&scene.model.rig);
        assert_int_equal(sc_io_sim_disk_crash(scene.model.rig.disk, i, NULL), SPEC_OK);
        rig_prompt_free(&prompt);
    }
    hybrid_open(&scene.model);
    print_message("%lu passes, %lu hits\n", scene.passes, scene.hits);
    assert_true(scene.hits > 10);
    scene_done(&scene);
}

/* Each allocation of an open fails once. */
static void an_open_without_memory_gives_all_of_it_back(void **state)
{
    (void)state;
    static struct scene scene;
    scene_make(&scene, true, "\"disk_bytes\": \"8MiB\", \"segment_bytes\": \"1MiB\"");
    spec_status status = SPEC_E_NO_MEMORY;
    for (int64_t n = 0; status != SPEC_OK; n++) {
        atomic_store(&scene.model.rig.memory.countdown, n);
        status = hybrid_try_open(&scene.model);
        atomic_store(&scene.model.rig.memory.countdown, -1);
        if (status == SPEC_OK)
            break;
        if (status != SPEC_E_NO_MEMORY)
            fail_msg("allocation %ld: %s: %s", n, sc_status_name(status),
                     scene.model.rig.error.text);
        assert_int_equal(atomic_load(&scene.model.rig.memory.live_blocks), 0);
    }
    struct player player = {.scene = &scene, .random = 5};
    struct prompt prompt = rig_prompt(1, 0, 0, 100);
    while (passes_store(&player, &prompt) != SPEC_OK)
        ;
    assert_int_equal(match_check(&player, &prompt, 0), 100);
    rig_prompt_free(&prompt);
    scene_done(&scene);
}

/* Of a branch that two requests hold a piece fails; the next pass that ends there has its own
 * states whole or none: also for who reads the log from its beginning, before and after they let
 * go. */
static void a_branch_is_of_one_pass(void **state)
{
    (void)state;
    static struct scene scene;
    struct prompt prompt = rig_prompt(1, 0, 0, 100), other = prompt;
    struct spec_lookup_result held[2];
    scene_make(&scene, true, "\"chunk_tokens\": 16, \"lease_ns_max\": 0");
    hybrid_open(&scene.model);
    struct player player = {.scene = &scene, .random = 9, .may_fail = true};
    while (passes_store(&player, &prompt) != SPEC_OK)
        ;
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(rig_try_lookup(&scene.model.rig, &prompt, 0, RIG_MAX, &held[i]), SPEC_OK);
    assert_int_equal(held[0].matched_tokens, 100);
    sc_fault_arm(&scene.model.rig.conn->fault, SC_FAULT_READ, 0);
    assert_false(layer_load(&player, held[0].request, &prompt, 0, 100, 2)); /* its second half */
    /* The same tokens, and what another batch makes of them. */
    other.history = malloc(prompt.count * sizeof(uint64_t));
    assert_non_null(other.history);
    for (uint64_t i = 0; i < prompt.count; i++)
        other.history[i] = rig_mix(prompt.history[i] + 77);
    end_add(&scene, other.history[99]);
    struct spec_lookup_result found = rig_lookup(&scene.model.rig, &other);
    spec_ticket ticket = 0;
    for (uint32_t l = 0; l < LAYERS; l++)
        (void)hybrid_store(&scene.model, found.request, &other, found.matched_tokens,
                           100 - found.matched_tokens, l, &ticket);
    (void)rig_wait(&scene.model.rig, ticket);
    rig_release(&scene.model.rig, found.request);
    for (uint32_t i = 0; i < 3; i++) {
        uint8_t bytes[STATE_MOST], mine[STATE_MOST], theirs[STATE_MOST];
        found = (struct spec_lookup_result){.struct_size = sizeof(found)};
        assert_int_equal(rig_try_lookup(&scene.model.rig, &prompt, 0, RIG_MAX, &found), SPEC_OK);
        for (uint32_t l = 0; l < LAYERS && found.matched_tokens == 100; l++) {
            struct spec_memory memory = hybrid_memory(&scene.model, bytes, l);
            struct spec_important item = rig_item(found.request, l, &memory);
            if (scene.model.state_bytes[l] == 0 ||
                sc_plugin_get_important(scene.model.rig.conn, &item, 1, NULL) != SPEC_OK)
                continue;
            hybrid_state(&scene.model, &prompt, 100, l, mine);
            hybrid_state(&scene.model, &other, 100, l, theirs);
            assert_true(memcmp(bytes, mine, scene.model.state_bytes[l]) == 0 ||
                        memcmp(bytes, theirs, scene.model.state_bytes[l]) == 0);
        }
        rig_release(&scene.model.rig, found.request);
        if (i == 0) {
            struct sc_io_sim_disk *disk = NULL; /* as if the process were killed now */
            assert_int_equal(sc_io_sim_disk_copy(scene.model.rig.disk, &disk, NULL), SPEC_OK);
            rig_release(&scene.model.rig, held[0].request);
            rig_release(&scene.model.rig, held[1].request);
            rig_close(&scene.model.rig);
            sc_io_sim_disk_close(scene.model.rig.disk);
            scene.model.rig.disk = disk;
            hybrid_open(&scene.model);
        }
    }
    free(other.history);
    rig_prompt_free(&prompt);
    scene_done(&scene);
}

/* A model of another rank's layers: the match ends where all ranks have states. */
static void ranks_end_where_each_has_its_states(void **state)
{
    (void)state;
    static struct scene scenes[2];
    scene_make(&scenes[0], true, "\"disk_bytes\": \"64MiB\"");
    scenes[0].model.rig.rank_count = 2;
    hybrid_open(&scenes[0].model);
    memset(&scenes[1], 0, sizeof(scenes[1]));
    pthread_mutex_init(&scenes[1].lock, NULL);
    hybrid_beside(&scenes[1].model, &scenes[0].model, 0, 1);
    hybrid_open(&scenes[1].model);
    struct player players[2] = {{.scene = &scenes[0], .random = 3},
                                {.scene = &scenes[1], .random = 4}};
    struct prompt prompt = rig_prompt(1, 0, 0, 300);
    static const uint64_t PASSES[2][3] = {{100, 200, 300}, {200, 250, 300}};
    for (uint32_t rank = 0; rank < 2; rank++) {
        struct spec_lookup_result found = rig_lookup(&scenes[rank].model.rig, &prompt);
        uint64_t first = 0;
        for (uint32_t i = 0; i < 3; i++) {
            spec_ticket ticket = 0;
            for (uint32_t l = 0; l < LAYERS; l++)
                assert_int_equal(hybrid_store(&scenes[rank].model, found.request, &prompt, first,
                                              PASSES[rank][i] - first, l, &ticket),
                                 SPEC_OK);
            assert_int_equal(rig_wait(&scenes[rank].model.rig, ticket), SPEC_OK);
            for (uint32_t s = 0; s < 2; s++)
                end_add(&scenes[s], prompt.history[PASSES[rank][i] - 1]);
            first = PASSES[rank][i];
        }
        rig_release(&scenes[rank].model.rig, found.request);
    }
    rig_pass_ns(&scenes[0].model.rig, UINT64_C(2000000000)); /* each reads the other's log */
    rig_pass_ns(&scenes[1].model.rig, UINT64_C(2000000000));
    static const uint64_t TOKENS[] = {300, 299, 249, 199}, EXPECTED[] = {300, 200, 200, 0};
    for (uint32_t i = 0; i < 4; i++)
        for (uint32_t rank = 0; rank < 2; rank++) {
            struct prompt start = {TOKENS[i], prompt.tokens, prompt.history};
            assert_int_equal(match_check(&players[rank], &start, 0), EXPECTED[i]);
        }
    rig_prompt_free(&prompt);
    rig_close(&scenes[1].model.rig);
    pthread_mutex_destroy(&scenes[1].lock);
    rig_leave(&scenes[1].model.rig);
    scene_done(&scenes[0]);
}

static void *play(void *argument)
{
    struct player *player = argument;
    for (uint32_t i = 0; i < 60; i++) {
        step(player);
        if (i % 30 == 17 && draw(player, 2) == 0)
            (void)sc_plugin_reset(player->scene->model.rig.conn, NULL);
    }
    return NULL;
}

static void six_threads_at_once(void **state)
{
    (void)state;
    static struct scene scene;
    struct player players[6];
    scene_make(&scene, false,
               "\"disk_bytes\": \"8MiB\", \"segment_bytes\": \"1MiB\", \"max_requests\": 8, "
               "\"lease_ns_max\": 2000000000");
    hybrid_open(&scene.model);
    for (uint32_t i = 0; i < 6; i++)
        players[i] = (struct player){.scene = &scene, .random = i + 100, .may_fail = true};
    threads_run(play, players, sizeof(players[0]), 6);
    rig_settle(&scene.model.rig);
    rig_background(&scene.model.rig);
    rig_check_index(&scene.model.rig);
    scene_done(&scene);
}

/* States stand behind a pass' last token, which lies behind the limit: nothing is stored. */
static void a_pass_beyond_the_limit_is_not_stored(void **state)
{
    (void)state;
    struct hybrid hybrid;
    struct prompt within = rig_prompt(70, 0, 0, 100), beyond = rig_prompt(71, 0, 0, 130);
    hybrid_make(&hybrid, true, "\"max_request_tokens\": 100");
    hybrid_open(&hybrid);
    assert_int_equal(hybrid_fill(&hybrid, &beyond), SPEC_E_BUSY);
    assert_int_equal(hybrid_read(&hybrid, &beyond), 0);
    assert_int_equal(hybrid_fill(&hybrid, &within), SPEC_OK);
    assert_true(hybrid_read(&hybrid, &within) > 0);
    rig_end(&hybrid.rig, &within, &beyond);
}

/* A pass that ends at the limit, of which a later layer says that it goes on behind it: what that
 * layer has is the state of another token. */
static void each_layer_of_a_pass_has_the_range_of_the_first(void **state)
{
    (void)state;
    struct hybrid hybrid;
    struct prompt prompt = rig_prompt(72, 0, 0, 130);
    hybrid_make(&hybrid, true, "\"max_request_tokens\": 100");
    hybrid_open(&hybrid);
    struct spec_lookup_result found = rig_lookup(&hybrid.rig, &prompt);
    spec_ticket ticket = 0;
    spec_status status = hybrid_store(&hybrid, found.request, &prompt, 0, 100, 0, &ticket);
    assert_int_equal(status, SPEC_OK);
    status = hybrid_store(&hybrid, found.request, &prompt, 0, 130, 1, &ticket);
    assert_int_equal(status, SPEC_E_INVALID);
    for (uint32_t l = 1; l < HYBRID_LAYERS; l++) {
        status = hybrid_store(&hybrid, found.request, &prompt, 0, 100, l, &ticket);
        assert_int_equal(status, SPEC_OK);
    }
    assert_int_equal(rig_wait(&hybrid.rig, ticket), SPEC_OK);
    status = hybrid_store(&hybrid, found.request, &prompt, 100, 10, 0, &ticket);
    assert_int_equal(status, SPEC_OK);
    status = hybrid_store(&hybrid, found.request, &prompt, 100, 30, 1, &ticket);
    assert_int_equal(status, SPEC_E_INVALID);
    rig_release(&hybrid.rig, found.request);
    assert_true(hybrid_read(&hybrid, &prompt) > 0);
    rig_end(&hybrid.rig, &prompt);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_layer_of_a_pass_has_the_range_of_the_first),
        cmocka_unit_test(a_pass_beyond_the_limit_is_not_stored),
        cmocka_unit_test(what_was_stored_is_matched_where_it_ended),
        cmocka_unit_test(what_the_last_state_says_counts_for_all_rows),
        cmocka_unit_test(on_small_disks_over_resets_and_reopens),
        cmocka_unit_test(over_power_cuts),
        cmocka_unit_test(an_open_without_memory_gives_all_of_it_back),
        cmocka_unit_test(a_branch_is_of_one_pass),
        cmocka_unit_test(ranks_end_where_each_has_its_states),
        cmocka_unit_test(six_threads_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

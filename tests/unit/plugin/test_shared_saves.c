/* Requests that compute the same tokens at the same time: their rows are written once, whoever
 * begins, leaves or fails. Every row that comes back is compared.
 *
 * Threads: one, but for the last case. */
#include "tests/unit/plugin/plugin_fixture.h"
#include "tests/unit/threads.h"

#define LAYERS  8u
#define HERD    16u
#define CHUNK   16u
#define SHARED  128u /* tokens */
#define OPTIONS "\"chunk_tokens\": 16, \"max_requests\": 64"

/* The bar of the contract: bytes written for a herd, in bytes of its tokens. */
#define WRITTEN_MOST(bytes) ((bytes)*13 / 10)

struct herd {
    struct rig rig;
    uint64_t count;
    struct prompt prompts[HERD];
    spec_request requests[HERD];
    spec_ticket tickets[HERD];
};

/* `count` prompts of `tokens` each, which have the first `shared` in common. */
static void herd_begin(struct herd *herd, uint64_t count, uint64_t shared, uint64_t tokens)
{
    *herd = (struct herd){.count = count};
    rig_begin_shape(&herd->rig, true, OPTIONS, LAYERS, 2, 8, SPEC_DTYPE_F16);
    for (uint64_t i = 0; i < count; i++) {
        herd->prompts[i] = rig_prompt(7, shared, i, tokens);
        herd->requests[i] = rig_lookup(&herd->rig, &herd->prompts[i]).request;
    }
}

static void herd_release(struct herd *herd)
{
    for (uint64_t i = 0; i < herd->count; i++)
        if (herd->requests[i] != 0)
            rig_release(&herd->rig, herd->requests[i]);
}

/* Nothing that was taken for the herd is still taken. */
static void herd_assert_idle(struct herd *herd)
{
    const spec_connector *conn = herd->rig.conn;
    assert_true(rig_saves_are_free(&herd->rig));
    assert_int_equal(atomic_load(&conn->saves.sharers.listed), 0);
    assert_int_equal(sc_counted(&conn->stats.tickets_open), 0);
}

static void herd_end(struct herd *herd)
{
    herd_release(herd);
    herd_assert_idle(herd);
    rig_prompts_free_all(herd->prompts, herd->count);
    rig_done(&herd->rig);
}

/* Layer `layer` of members [first, count), in one call. */
static void store_array(struct herd *herd, uint64_t first, uint32_t layer)
{
    struct rig *rig = &herd->rig;
    struct area areas[HERD];
    struct spec_store_params params[HERD];
    for (uint64_t i = first; i < herd->count; i++) {
        const struct prompt *prompt = &herd->prompts[i];
        areas[i] = rig_area(rig, prompt->count);
        rig_area_fill(rig, &areas[i], prompt, 0, prompt->count, layer);
        params[i] = rig_store_params(herd->requests[i], layer, 0, prompt->count, &areas[i].memory);
    }
    struct spec_error error = {.struct_size = sizeof(error)};
    assert_int_equal(sc_plugin_store(rig->conn, params + first, herd->count - first,
                                     herd->tickets + first, &error),
                     SPEC_OK);
    for (uint64_t i = first; i < herd->count; i++)
        rig_area_free(&areas[i]);
}

static void store_one(struct herd *herd, uint64_t i, uint32_t layer)
{
    assert_int_equal(rig_store_layer(&herd->rig, herd->requests[i], &herd->prompts[i], 0,
                                     herd->prompts[i].count, layer, &herd->tickets[i]),
                     SPEC_OK);
}

enum order { ARRAY, LAYER_BY_LAYER, ONE_BY_ONE };

/* Layers [begin, end) of members [first, count). */
static void store_layers(struct herd *herd, enum order order, uint64_t first, uint32_t begin,
                         uint32_t end)
{
    if (order == ONE_BY_ONE) {
        for (uint64_t i = first; i < herd->count; i++)
            for (uint32_t layer = begin; layer < end; layer++)
                store_one(herd, i, layer);
        return;
    }
    for (uint32_t layer = begin; layer < end; layer++)
        if (order == ARRAY)
            store_array(herd, first, layer);
        else
            for (uint64_t i = first; i < herd->count; i++)
                store_one(herd, i, layer);
}

/* Members [first, count) are told that all of theirs is stored, and it is. */
static void assert_stored(struct herd *herd, uint64_t first)
{
    struct rig *rig = &herd->rig;
    for (uint64_t i = first; i < herd->count; i++) {
        spec_status status;
        uint64_t kept;
        assert_int_equal(
            sc_plugin_wait_kept(rig->conn, &herd->tickets[i], 1, UINT64_MAX, &status, &kept, NULL),
            SPEC_OK);
        assert_int_equal(status, SPEC_OK);
        assert_int_equal(kept, herd->prompts[i].count);
    }
    for (uint64_t i = first; i < herd->count; i++)
        assert_int_equal(rig_read(rig, &herd->prompts[i], NULL), herd->prompts[i].count);
}

static uint64_t row_bytes(const struct herd *herd, uint64_t tokens)
{
    return tokens * herd->rig.conn->dims.row_bytes * LAYERS;
}

/* ---- One prompt ------------------------------------------------------------------------------ */

static void one_prompt_of_many_is_written_once(void **state)
{
    (void)state;
    for (enum order order = ARRAY; order <= ONE_BY_ONE; order++)
        for (uint64_t tokens = 4000; tokens <= 9001; tokens += 5001) { /* also of several extents */
            struct herd herd;
            herd_begin(&herd, HERD, tokens, tokens);
            uint64_t before = rig_store_stats(&herd.rig).write_bytes;
            store_layers(&herd, order, 0, 0, LAYERS);
            assert_stored(&herd, 0);
            uint64_t bytes = rig_store_stats(&herd.rig).write_bytes - before;
            assert_true(bytes >= row_bytes(&herd, tokens));
            assert_true(bytes <= WRITTEN_MOST(row_bytes(&herd, tokens)));
            rig_reopen(&herd.rig);
            for (uint64_t i = 0; i < HERD; i++)
                herd.requests[i] = 0;
            assert_int_equal(rig_read(&herd.rig, &herd.prompts[0], NULL), tokens);
            herd_end(&herd);
        }
}

/* The first one ends after each number of layers, in each way; the others go on from there. */
static void the_first_one_goes_half_way(void **state)
{
    (void)state;
    for (enum order order = ARRAY; order <= LAYER_BY_LAYER; order++)
        for (uint32_t way = 0; way < 2; way++)
            for (uint32_t layers = 1; layers < LAYERS; layers++) {
                struct herd herd;
                herd_begin(&herd, 4, 200, 200);
                uint64_t before = rig_store_stats(&herd.rig).write_bytes;
                store_layers(&herd, order, 0, 0, layers);
                if (way == 0)
                    assert_int_equal(
                        sc_plugin_store_abort(herd.rig.conn, herd.requests[0], 0, NULL), SPEC_OK);
                else
                    rig_release(&herd.rig, herd.requests[0]);
                store_layers(&herd, order, 1, layers, LAYERS);
                if (way == 1)
                    herd.requests[0] = 0;
                assert_stored(&herd, 1);
                uint64_t bytes = rig_store_stats(&herd.rig).write_bytes - before;
                assert_true(bytes <= WRITTEN_MOST(row_bytes(&herd, 200)));
                herd_end(&herd);
            }
}

/* One after the other begins, and goes before it has brought its last layer: each layer is
 * another's. */
static void each_layer_comes_from_another_one(void **state)
{
    (void)state;
    struct herd herd;
    herd_begin(&herd, LAYERS, 100, 100);
    for (uint64_t i = 0; i < LAYERS; i++) {
        for (uint32_t layer = 0; layer <= i; layer++)
            store_one(&herd, i, layer);
        if (i > 0)
            assert_int_equal(sc_plugin_store_abort(herd.rig.conn, herd.requests[i - 1], 0, NULL),
                             SPEC_OK);
    }
    spec_status status;
    uint64_t kept;
    assert_int_equal(sc_plugin_wait_kept(herd.rig.conn, &herd.tickets[LAYERS - 1], 1, UINT64_MAX,
                                         &status, &kept, NULL),
                     SPEC_OK);
    assert_int_equal(status, SPEC_OK);
    assert_int_equal(kept, 100);
    assert_int_equal(rig_read(&herd.rig, &herd.prompts[0], NULL), 100);
    herd_end(&herd);
}

/* All go: nothing is visible, and nothing stays. */
static void all_of_them_go(void **state)
{
    (void)state;
    struct herd herd;
    herd_begin(&herd, 4, 200, 200);
    store_layers(&herd, ARRAY, 0, 0, LAYERS - 1);
    for (uint64_t i = 0; i < herd.count; i++)
        assert_int_equal(sc_plugin_store_abort(herd.rig.conn, herd.requests[i], 0, NULL), SPEC_OK);
    rig_settle(&herd.rig);
    assert_int_equal(rig_matched(&herd.rig, &herd.prompts[0]), 0);
    store_layers(&herd, ARRAY, 0, 0, LAYERS); /* and they may begin again */
    assert_stored(&herd, 0);
    herd_end(&herd);
}

/* A layer of a member, whose rows are those of `prompt`, with other parameters. */
static void store_with(struct herd *herd, uint64_t i, const struct prompt *prompt,
                       struct spec_store_params params)
{
    struct rig *rig = &herd->rig;
    struct area area = rig_area(rig, prompt->count);
    rig_area_fill(rig, &area, prompt, 0, prompt->count, params.layer);
    params.struct_size = sizeof(params);
    params.request = herd->requests[i];
    params.token_count = prompt->count;
    params.memory = &area.memory;
    assert_int_equal(sc_plugin_store(rig->conn, &params, 1, &herd->tickets[i], NULL), SPEC_OK);
    rig_area_free(&area);
}

/* The one that began takes its decoded tokens back after some layers and stores others in their
 * places, before the rows that it shared are committed: those rows are found under the first
 * tokens, also where the other one had brought its last layer by then. */
static void tokens_that_are_taken_back_are_not_read(void **state)
{
    (void)state;
    for (uint32_t before = 1; before < LAYERS; before++)
        for (uint32_t overtakes = 0; overtakes < 2; overtakes++) {
            struct herd herd;
            herd_begin(&herd, 2, 200, 200);
            struct prompt start = herd.prompts[0], other = rig_prompt(7, 100, 5, 200);
            start.count = 100;
            rig_release(&herd.rig, herd.requests[0]);
            herd.requests[0] = rig_lookup(&herd.rig, &start).request;
            for (uint32_t layer = 0; layer < before; layer++) {
                struct spec_store_params params = {.layer = layer};
                if (layer == 0) /* ids come with the pass */
                    params.tokens = herd.prompts[0].tokens + 100;
                params.tokens_count = layer == 0 ? 100 : 0;
                store_with(&herd, 0, &herd.prompts[0], params);
            }
            for (uint32_t layer = 0; overtakes && layer < LAYERS; layer++)
                store_one(&herd, 1, layer);
            if (!overtakes)
                store_one(&herd, 1, 0);
            assert_int_equal(sc_plugin_store_abort(herd.rig.conn, herd.requests[0], 0, NULL),
                             SPEC_OK);
            for (uint32_t layer = 0; layer < LAYERS; layer++) {
                struct spec_store_params params = {.layer = layer};
                if (layer == 0)
                    params.tokens = other.tokens + 100;
                params.tokens_count = layer == 0 ? 100 : 0;
                store_with(&herd, 0, &other, params);
                if (!overtakes && layer > 0)
                    store_one(&herd, 1, layer);
            }
            rig_prompt_free(&herd.prompts[0]);
            herd.prompts[0] = other;
            assert_stored(&herd, 0);
            herd_end(&herd);
        }
}

/* ---- Prompts that part ----------------------------------------------------------------------- */

/* In one call, and one after the other: what they share is written once, and the ends are stored.
 */
static void tails_are_stored_behind_what_is_shared(void **state)
{
    (void)state;
    for (uint32_t way = 0; way < 2; way++)
        for (uint64_t tail = 1; tail < 40; tail += 19) {
            struct herd herd;
            herd_begin(&herd, HERD, SHARED * 8, SHARED * 8 + tail);
            uint64_t before = rig_store_stats(&herd.rig).write_bytes;
            store_layers(&herd, way == 0 ? ARRAY : ONE_BY_ONE, 0, 0, LAYERS);
            assert_stored(&herd, 0);
            uint64_t bytes = rig_store_stats(&herd.rig).write_bytes - before;
            uint64_t least = row_bytes(&herd, SHARED * 8 + HERD * tail);
            /* Each tail is an extent, with a page of tags and one of rows a layer. */
            assert_true(bytes <= WRITTEN_MOST(least) + HERD * LAYERS * 8192);
            herd_end(&herd);
        }
}

/* Layer by layer, each in a call of its own: who began cannot be followed to its end, and goes
 * half-way. */
static void half_of_a_save_is_not_relied_on(void **state)
{
    (void)state;
    for (uint32_t layers = 1; layers < LAYERS; layers++) {
        struct herd herd;
        herd_begin(&herd, 4, 10 * CHUNK, 12 * CHUNK + 3);
        store_layers(&herd, LAYER_BY_LAYER, 0, 0, layers);
        assert_int_equal(sc_plugin_store_abort(herd.rig.conn, herd.requests[0], 0, NULL), SPEC_OK);
        store_layers(&herd, LAYER_BY_LAYER, 1, layers, LAYERS);
        assert_stored(&herd, 1);
        herd_end(&herd);
    }
}

/* Of each length, at each border, and groups that part one after the other. */
static void prompts_part_anywhere(void **state)
{
    (void)state;
    static const uint64_t COMMON[] = {0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 5 * CHUNK - 1, 5 * CHUNK};
    for (uint64_t c = 0; c < sizeof(COMMON) / sizeof(*COMMON); c++)
        for (enum order order = ARRAY; order <= ONE_BY_ONE; order++) {
            struct herd herd;
            herd_begin(&herd, 6, COMMON[c], 6 * CHUNK + 3);
            struct prompt longer = rig_prompt(7, 3 * CHUNK + 5, 99, 5 * CHUNK);
            rig_release(&herd.rig, herd.requests[3]);
            rig_prompt_free(&herd.prompts[3]);
            herd.prompts[3] = longer;
            herd.requests[3] = rig_lookup(&herd.rig, &longer).request;
            store_layers(&herd, order, 0, 0, LAYERS);
            assert_stored(&herd, 0);
            herd_end(&herd);
        }
}

/* Extra keys part prompts as tokens do. */
static void extra_keys_part_prompts(void **state)
{
    (void)state;
    struct herd herd;
    herd_begin(&herd, 2, 200, 200);
    struct spec_extra_key key = {
        .struct_size = sizeof(key), .first_token = 100, .value = {"image", 5}};
    struct spec_lookup_params params = rig_lookup_params(&herd.prompts[1], 0, RIG_MAX, 0);
    params.extra_keys = &key;
    params.extra_key_count = 1;
    rig_release(&herd.rig, herd.requests[1]);
    herd.requests[1] = rig_lookup_as(&herd.rig, &params).request;
    store_layers(&herd, ARRAY, 0, 0, LAYERS);
    for (uint64_t i = 0; i < 2; i++)
        assert_int_equal(rig_wait(&herd.rig, herd.tickets[i]), SPEC_OK);
    assert_int_equal(rig_matched(&herd.rig, &herd.prompts[0]), 200);
    struct spec_lookup_result found = rig_lookup_as(&herd.rig, &params);
    assert_int_equal(found.matched_tokens, 200);
    rig_release(&herd.rig, found.request);
    key.value = (struct spec_bytes){"other", 5};
    found = rig_lookup_as(&herd.rig, &params);
    assert_int_equal(found.matched_tokens, 100); /* what stands before the key */
    rig_release(&herd.rig, found.request);
    herd_end(&herd);
}

/* One request stores a prompt in a pass of two saves and stops half-way. Another one has stored the
 * first part by itself: its second part does not wait until the first request goes on. */
static void a_request_that_stops_holds_nobody_up(void **state)
{
    (void)state;
    static const uint64_t ENDS[] = {2048, SC_PLUGIN_SAVE_TOKENS, 5000};
    struct herd herd;
    herd_begin(&herd, 2, 5000, 5000);
    struct rig *rig = &herd.rig;
    store_one(&herd, 0, 0);
    uint64_t first = 0;
    for (uint64_t i = 0; i < 3; i++) {
        spec_status status = SPEC_PENDING;
        spec_ticket ticket =
            rig_store(rig, herd.requests[1], &herd.prompts[1], first, ENDS[i] - first);
        first = ENDS[i];
        (void)sc_plugin_wait(rig->conn, &ticket, 1, UINT64_C(10000000000), &status, NULL);
        assert_int_equal(status, SPEC_OK);
        assert_int_equal(rig_matched(rig, &herd.prompts[1]), first);
    }
    for (uint32_t layer = 1; layer < LAYERS; layer++)
        store_one(&herd, 0, layer);
    assert_int_equal(rig_wait(rig, herd.tickets[0]), SPEC_OK);
    assert_int_equal(rig_read(rig, &herd.prompts[0], NULL), 5000);
    herd_end(&herd);
}

/* ---- Worth, failures, resets ----------------------------------------------------------------- */

static void assert_exact(struct herd *herd)
{
    struct spec_lookup_params params =
        rig_lookup_params(&herd->prompts[0], 0, RIG_MAX, SPEC_LOOKUP_REQUIRE_EXACT);
    struct spec_lookup_result found = rig_lookup_as(&herd->rig, &params);
    assert_int_equal(found.matched_tokens, herd->prompts[0].count);
    rig_release(&herd->rig, found.request);
}

/* A pass computed on worse rows stores none where a better one is under way; and a better one does
 * not rely on a worse. */
static void the_worth_is_that_of_who_packed(void **state)
{
    (void)state;
    for (uint32_t worse = 0; worse < 2; worse++) {
        struct herd herd;
        herd_begin(&herd, 2, 200, 200);
        for (uint32_t layer = 0; layer < LAYERS; layer++)
            for (uint64_t i = 0; i < 2; i++) {
                bool is_worse = i == worse && layer >= 3; /* it learns so half-way */
                store_with(&herd, i, &herd.prompts[i],
                           (struct spec_store_params){.layer = layer,
                                                      .computed_on = is_worse
                                                                         ? SPEC_PROVENANCE_LOSSY
                                                                         : SPEC_PROVENANCE_EXACT});
            }
        assert_stored(&herd, 0);
        assert_exact(&herd);
        herd_end(&herd);
    }
}

/* What another stores better than it would be is not taken for it: it is stored again. */
static void a_better_pass_does_not_rely_on_a_worse(void **state)
{
    (void)state;
    struct herd herd;
    herd_begin(&herd, 2, 200, 200);
    for (uint32_t layer = 0; layer < LAYERS; layer++) {
        store_with(
            &herd, 0, &herd.prompts[0],
            (struct spec_store_params){.layer = layer, .computed_on = SPEC_PROVENANCE_LOSSY});
        store_one(&herd, 1, layer);
    }
    assert_stored(&herd, 0);
    assert_exact(&herd);
    herd_end(&herd);
}

/* A write fails: everybody is told, nothing is visible, and the next ones store it. */
static void a_write_that_fails_fails_for_all(void **state)
{
    (void)state;
    for (uint64_t shared = 200; shared <= 230; shared += 30) {
        struct herd herd;
        herd_begin(&herd, 4, shared, 230);
        sc_io_sim_fault_scope(herd.rig.disk, "/seg-");
        sc_io_sim_fault_nth(herd.rig.disk, SC_SIM_WRITE_EIO, 1);
        store_layers(&herd, ARRAY, 0, 0, LAYERS);
        uint64_t failed = 0;
        for (uint64_t i = 0; i < herd.count; i++) {
            uint64_t kept;
            spec_status status;
            assert_int_equal(sc_plugin_wait_kept(herd.rig.conn, &herd.tickets[i], 1, UINT64_MAX,
                                                 &status, &kept, NULL),
                             SPEC_OK);
            failed += status != SPEC_OK;
            assert_true(status != SPEC_OK ? kept < 230 : kept == 230);
            assert_true(rig_matched(&herd.rig, &herd.prompts[i]) >= kept);
        }
        assert_true(shared < 230 ? failed > 0 : failed == herd.count);
        herd_end(&herd);
    }
}

/* A reset between: nobody is told that it is stored, nothing is found. */
static void a_reset_ends_it_for_all(void **state)
{
    (void)state;
    struct herd herd;
    herd_begin(&herd, 4, 200, 200);
    store_layers(&herd, ONE_BY_ONE, 0, 0, LAYERS); /* written, none committed */
    assert_int_equal(sc_plugin_reset(herd.rig.conn, NULL), SPEC_OK);
    for (uint64_t i = 0; i < herd.count; i++)
        assert_int_equal(rig_wait(&herd.rig, herd.tickets[i]), SPEC_E_DROPPED);
    assert_int_equal(rig_matched(&herd.rig, &herd.prompts[0]), 0);
    herd_end(&herd);
}

/* How long each of those that share a save wants the rows to be kept counts: of the one that began,
 * and of the one that joined, whichever of them brings the last layer. */
static void the_hints_of_all_that_share_count(void **state)
{
    (void)state;
    for (uint64_t hinted = 0; hinted < 2; hinted++)
        for (uint64_t last = 0; last < 2; last++) {
            struct herd herd;
            herd_begin(&herd, 2, 200, 200);
            struct spec_lookup_params params = rig_lookup_params(&herd.prompts[0], 0, RIG_MAX, 0);
            params.priority = 3;
            rig_release(&herd.rig, herd.requests[hinted]);
            herd.requests[hinted] = rig_lookup_as(&herd.rig, &params).request;
            uint64_t place = sc_radix_place(sc_radix_hint(3, 0)) - 1;
            assert_false(sc_radix_has_later(herd.rig.conn->radix, place));
            store_one(&herd, 0, 0);
            store_one(&herd, 1, 0);
            for (uint32_t layer = 1; layer < LAYERS; layer++)
                store_one(&herd, last, layer);
            for (uint32_t layer = 1; layer < LAYERS; layer++)
                store_one(&herd, 1 - last, layer);
            assert_stored(&herd, 0);
            assert_true(sc_radix_has_later(herd.rig.conn->radix, place));
            herd_end(&herd);
        }
}

/* ---- Threads --------------------------------------------------------------------------------- */

struct member {
    struct herd *herd;
    uint64_t index;
    uint64_t random;
    uint64_t stored;
};

static void *store_at_once(void *user)
{
    struct member *member = user;
    struct herd *herd = member->herd;
    const struct prompt *prompt = &herd->prompts[member->index];
    for (uint32_t round = 0; round < 20; round++) {
        member->random = rig_mix(member->random);
        uint32_t ends = member->random % 3 == 0 ? (uint32_t)(member->random >> 8) % LAYERS : LAYERS;
        struct spec_lookup_result found;
        if (rig_try_lookup(&herd->rig, prompt, 0, RIG_MAX, &found) != SPEC_OK)
            continue;
        spec_ticket ticket = 0;
        bool is_whole = true;
        for (uint32_t layer = 0; layer < ends && is_whole; layer++)
            is_whole = rig_store_layer(&herd->rig, found.request, prompt, 0, prompt->count, layer,
                                       &ticket) == SPEC_OK;
        if (ticket != 0 && rig_wait(&herd->rig, ticket) == SPEC_OK)
            member->stored++;
        rig_release(&herd->rig, found.request);
        if (member->index == 0 && round % 5 == 4)
            assert_int_equal(sc_plugin_reset(herd->rig.conn, NULL), SPEC_OK);
    }
    return NULL;
}

/* Some go half-way, one resets: what is stored is right, and nobody waits for ever. */
static void threads_store_one_prompt_and_some_leave(void **state)
{
    (void)state;
    enum { MEMBERS = 6 };
    struct herd herd = {.count = MEMBERS};
    struct member members[MEMBERS];
    uint64_t stored = 0;
    rig_begin_shape(&herd.rig, false, OPTIONS, LAYERS, 2, 8, SPEC_DTYPE_F16);
    for (uint64_t i = 0; i < MEMBERS; i++) {
        herd.prompts[i] = rig_prompt(7, i % 2 == 0 ? 150 : 100, i / 3, 150);
        members[i] = (struct member){&herd, i, i + 1, 0};
    }
    threads_run(store_at_once, members, sizeof(*members), MEMBERS);
    for (uint64_t i = 0; i < MEMBERS; i++)
        stored += members[i].stored;
    assert_true(stored > 0);
    herd_assert_idle(&herd);
    for (uint64_t i = 0; i < MEMBERS; i++) {
        assert_int_equal(rig_fill(&herd.rig, &herd.prompts[i]), SPEC_OK);
        assert_int_equal(rig_read(&herd.rig, &herd.prompts[i], NULL), 150);
    }
    rig_prompts_free_all(herd.prompts, MEMBERS);
    rig_done(&herd.rig);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_prompt_of_many_is_written_once),
        cmocka_unit_test(the_first_one_goes_half_way),
        cmocka_unit_test(each_layer_comes_from_another_one),
        cmocka_unit_test(all_of_them_go),
        cmocka_unit_test(tokens_that_are_taken_back_are_not_read),
        cmocka_unit_test(tails_are_stored_behind_what_is_shared),
        cmocka_unit_test(half_of_a_save_is_not_relied_on),
        cmocka_unit_test(prompts_part_anywhere),
        cmocka_unit_test(extra_keys_part_prompts),
        cmocka_unit_test(a_request_that_stops_holds_nobody_up),
        cmocka_unit_test(the_worth_is_that_of_who_packed),
        cmocka_unit_test(a_better_pass_does_not_rely_on_a_worse),
        cmocka_unit_test(a_write_that_fails_fails_for_all),
        cmocka_unit_test(a_reset_ends_it_for_all),
        cmocka_unit_test(the_hints_of_all_that_share_count),
        cmocka_unit_test(threads_store_one_prompt_and_some_leave),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Provenance: what is computed on inexact rows says so wherever it is found, never improves down a
 * path, is stored or not as configured, and makes way for what is better.
 *
 *   truth   tokens of one prompt, rows of two: `exact` and `pruned` differ in every row from SHARED
 *           on, so that a row tells which pass it is from
 *
 * What get_important would have set is set here: the request's `delivered`. */
#include "plugin/args/provenance.h"
#include "tests/unit/plugin/plugin_fixture.h"
#include "tests/unit/threads.h"

#define MS     UINT64_C(1000000)
#define TURN   (30 * MS)
#define SHARED 32u
#define CHUNKS "\"chunk_tokens\": 16, \"store\": {\"pruned\": \"yes\"}"

static const struct spec_provenance PRUNED = {
    .kind = SPEC_PROVENANCE_PRUNED, .retain_ppm = 250000, .metric = SPEC_METRIC_LAST};
static const struct spec_provenance LOSSY = {
    .kind = SPEC_PROVENANCE_LOSSY, .bits_k = 4, .bits_v = 2, .exact_ppm = 50000};
static const struct spec_provenance EXACT;

struct truth {
    struct prompt exact, pruned;
};

static struct truth truth_of(uint64_t seed, uint64_t count)
{
    struct truth truth = {rig_prompt(seed, 0, 0, count), rig_prompt(seed, 0, 0, count)};
    for (uint64_t p = SHARED; p < count; p++)
        truth.pruned.history[p] = rig_mix(truth.pruned.history[p] + 99);
    return truth;
}

static void truth_free(struct truth *truth)
{
    rig_prompts_free(&truth->exact, &truth->pruned);
}

static struct spec_lookup_result lookup_as(struct rig *rig, const struct prompt *prompt,
                                           uint32_t flags, uint64_t max_tokens)
{
    struct spec_lookup_result result = {.struct_size = sizeof(result)};
    struct spec_lookup_params params = rig_lookup_params(prompt, 0, max_tokens, flags);
    assert_int_equal(sc_plugin_lookup(rig->conn, &params, &result, NULL), SPEC_OK);
    return result;
}

/* Matched tokens and what they are worth; the request is gone. */
static struct spec_lookup_result look(struct rig *rig, const struct prompt *prompt, uint32_t flags)
{
    struct spec_lookup_result result = lookup_as(rig, prompt, flags, prompt->count);
    rig_release(rig, result.request);
    return result;
}

static void deliver(struct rig *rig, spec_request request, const struct spec_provenance *what)
{
    struct sc_plugin_request *open = sc_plugin_request_find(rig->conn, request);
    assert_non_null(open);
    sc_plugin_provenance_add(&open->delivered, what);
}

/* One pass over [first, count) behind a lookup of at most `first` tokens; the ticket's status. */
static spec_status store_as(struct rig *rig, const struct prompt *prompt, uint64_t first,
                            uint64_t count, uint32_t flags, const struct spec_provenance *what)
{
    struct spec_lookup_result result = lookup_as(rig, prompt, flags, first > 0 ? first : 1);
    assert_int_equal(first > 0 ? result.matched_tokens : 0, first);
    deliver(rig, result.request, what);
    spec_status status =
        rig_wait(rig, rig_store(rig, result.request, prompt, first, count - first));
    rig_release(rig, result.request);
    return status;
}

static void check_worth(const struct spec_provenance *is, const struct spec_provenance *expected)
{
    struct spec_provenance whole = *expected;
    whole.computed_on = whole.kind; /* rows are held */
    assert_memory_equal(is, &whole, sizeof(whole));
}

/* Loads a request's rows; how many are of the exact pass and of the pruned one. No other comes. */
struct rows {
    spec_status status;
    uint64_t exact, pruned, wrong;
};

static void count_rows(const struct rig *rig, const struct truth *truth, const struct area *area,
                       uint64_t count, uint32_t layer, struct rows *rows)
{
    uint8_t row[2][256];
    uint64_t bytes = rig_part_bytes(rig);
    for (uint64_t p = 0; p < count; p++) {
        bool is[2] = {true, true};
        for (uint32_t part = 0; part < 2; part++) {
            const uint8_t *base = part == 0 ? area->memory.k_base : area->memory.v_base;
            rig_row(rig, &truth->exact, p, layer, part, row[0]);
            rig_row(rig, &truth->pruned, p, layer, part, row[1]);
            for (uint32_t i = 0; i < 2; i++)
                is[i] = is[i] && memcmp(base + p * bytes, row[i], bytes) == 0;
        }
        rows->exact += is[0];
        rows->pruned += !is[0] && is[1];
        rows->wrong += !is[0] && !is[1];
    }
}

static struct rows load(struct rig *rig, const struct truth *truth, spec_request request,
                        uint64_t count)
{
    struct rows rows = {0};
    struct area area = rig_area(rig, count + 1);
    for (uint32_t layer = 0; layer < rig->layers && rows.status == SPEC_OK && count > 0; layer++) {
        struct spec_important item = rig_item(request, layer, &area.memory);
        rows.status = sc_plugin_get_important(rig->conn, &item, 1, NULL);
        if (rows.status == SPEC_OK)
            count_rows(rig, truth, &area, count, layer, &rows);
    }
    rig_area_free(&area);
    return rows;
}

/* What is promised as exact is of the exact pass; no row is of none. */
static uint64_t wrong_rows(struct rig *rig, const struct truth *truth, uint32_t flags,
                           uint64_t *ret_matched)
{
    struct spec_lookup_result result = lookup_as(rig, &truth->exact, flags, truth->exact.count);
    struct rows rows = load(rig, truth, result.request, result.matched_tokens);
    (void)sc_plugin_release(rig->conn, result.request, NULL);
    *ret_matched = rows.status == SPEC_OK ? result.matched_tokens : 0;
    bool said_exact = result.provenance.kind == SPEC_PROVENANCE_EXACT;
    uint64_t wrong = rows.wrong + (said_exact ? rows.pruned : 0);
    return rows.status == SPEC_OK ? wrong + (flags != 0 && !said_exact) : 0;
}

/* ---- Adding ---------------------------------------------------------------------------------- */

static void the_worst_of_each_in_any_order(void **state)
{
    (void)state;
    const struct spec_provenance parts[] = {
        EXACT,
        PRUNED,
        LOSSY,
        {.kind = 2, .computed_on = 2, .retain_ppm = 100000},
        {.kind = 1, .computed_on = 1, .bits_k = 2, .bits_v = 8, .exact_ppm = 70000},
        {.kind = 1, .bits_k = 5, .exact_ppm = 0},
    };
    static const uint32_t ORDERS[][6] = {
        {0, 1, 2, 3, 4, 5}, {5, 4, 3, 2, 1, 0}, {3, 1, 5, 0, 4, 2}, {2, 2, 4, 5, 3, 1}};
    for (uint32_t o = 0; o < 4; o++) {
        struct spec_provenance worst = {0};
        for (uint32_t i = 0; i < 6; i++)
            sc_plugin_provenance_add(&worst, &parts[ORDERS[o][i]]);
        const struct spec_provenance expected = {.kind = 2,
                                                 .computed_on = 2,
                                                 .bits_k = 2,
                                                 .bits_v = 2,
                                                 .exact_ppm = 0,
                                                 .retain_ppm = 100000,
                                                 .metric = SPEC_METRIC_LAST};
        assert_memory_equal(&worst, &expected, sizeof(worst));
    }
    struct spec_provenance alone = LOSSY;
    sc_plugin_provenance_add(&alone, &EXACT);
    assert_memory_equal(&alone, &LOSSY, sizeof(alone));
    alone = EXACT;
    sc_plugin_provenance_add(&alone, &EXACT);
    assert_memory_equal(&alone, &EXACT, sizeof(alone));
}

/* ---- Storing and finding --------------------------------------------------------------------- */

/* [0, 32) exact, [32, 70) lossy, [70, 100) pruned: a match is worth its worst part. */
static void fill_path(struct rig *rig, const struct truth *truth)
{
    assert_int_equal(store_as(rig, &truth->exact, 0, SHARED, 0, &EXACT), SPEC_OK);
    assert_int_equal(store_as(rig, &truth->exact, SHARED, 70, 0, &LOSSY), SPEC_OK);
    assert_int_equal(store_as(rig, &truth->exact, 70, 100, 0, &PRUNED), SPEC_OK);
}

static void check_path(struct rig *rig, const struct truth *truth)
{
    struct spec_provenance both = LOSSY;
    sc_plugin_provenance_add(&both, &PRUNED);
    for (uint64_t max = 1; max <= 100; max++) {
        struct spec_lookup_result result = lookup_as(rig, &truth->exact, 0, max);
        assert_int_equal(result.matched_tokens, max);
        check_worth(&result.provenance, max <= SHARED ? &EXACT : max <= 70 ? &LOSSY : &both);
        rig_release(rig, result.request);
        result = lookup_as(rig, &truth->exact, SPEC_LOOKUP_REQUIRE_EXACT, max);
        assert_int_equal(result.matched_tokens, max < SHARED ? max : SHARED);
        check_worth(&result.provenance, &EXACT);
        rig_release(rig, result.request);
    }
    struct spec_lookup_result result; /* what is not loaded counts too: the rest hangs on it */
    assert_int_equal(rig_try_lookup(rig, &truth->exact, 90, RIG_MAX, &result), SPEC_OK);
    assert_int_equal(result.matched_tokens, 100);
    check_worth(&result.provenance, &both);
    rig_release(rig, result.request);
}

static void a_match_is_worth_its_worst_piece_also_later(void **state)
{
    (void)state;
    struct rig rig;
    struct truth truth = truth_of(1, 100);
    rig_begin(&rig, true, CHUNKS);
    fill_path(&rig, &truth);
    check_path(&rig, &truth);
    rig_reopen(&rig);
    check_path(&rig, &truth);
    assert_int_equal(sc_store_checkpoint(rig.conn->store, NULL), SPEC_OK);
    rig_reopen(&rig);
    check_path(&rig, &truth);
    truth_free(&truth);
    rig_done(&rig);
}

static void readers_and_leases_say_the_same(void **state)
{
    (void)state;
    struct rig writer, reader;
    struct truth truth = truth_of(2, 100);
    rig_begin(&writer, true, CHUNKS);
    rig_open_beside(&reader, &writer, SPEC_ROLE_READER, 0);
    fill_path(&writer, &truth);
    rig_pass_ns(&reader, TURN);
    check_path(&reader, &truth);
    struct spec_lookup_result found = look(&writer, &truth.exact, 0);
    struct rig *rigs[] = {&writer, &reader};
    for (uint32_t i = 0; i < 2; i++) {
        struct spec_lookup_result result = {.struct_size = sizeof(result)};
        assert_int_equal(rig_attach(rigs[i], found.lease, 0, &result), SPEC_OK);
        assert_memory_equal(&result.provenance, &found.provenance, sizeof(found.provenance));
        rig_release(rigs[i], result.request);
    }
    rig_leave(&reader);
    rig_done(&writer);
    truth_free(&truth);
}

/* Two ranks whose copies are not worth the same: the worse counts, and exact ends with it. */
static void a_rank_set_is_worth_its_worst_rank(void **state)
{
    (void)state;
    struct rig first, second;
    struct truth truth = truth_of(3, 96);
    rig_init(&first, true, CHUNKS);
    first.rank_count = 2;
    rig_open(&first);
    rig_open_beside(&second, &first, SPEC_ROLE_WRITER, 1);
    struct rig *rigs[] = {&first, &second};
    for (uint32_t i = 0; i < 2; i++) { /* a lookup promises nothing yet: the pass is whole */
        struct spec_lookup_result result = rig_lookup(rigs[i], &truth.exact);
        assert_int_equal(result.matched_tokens, 0);
        assert_int_equal(rig_wait(rigs[i], rig_store(rigs[i], result.request, &truth.exact, 0, 48)),
                         SPEC_OK);
        deliver(rigs[i], result.request, i == 0 ? &EXACT : &PRUNED);
        assert_int_equal(
            rig_wait(rigs[i], rig_store(rigs[i], result.request, &truth.exact, 48, 48)), SPEC_OK);
        rig_release(rigs[i], result.request);
    }
    for (uint32_t i = 0; i < 2; i++)
        rig_pass_ns(rigs[i], TURN);
    for (uint32_t i = 0; i < 2; i++) {
        struct spec_lookup_result result = look(rigs[i], &truth.exact, 0);
        assert_int_equal(result.matched_tokens, 96);
        check_worth(&result.provenance, &PRUNED);
        result = look(rigs[i], &truth.exact, SPEC_LOOKUP_REQUIRE_EXACT);
        assert_int_equal(result.matched_tokens, 48);
        check_worth(&result.provenance, &EXACT);
    }
    rig_leave(&second);
    rig_done(&first);
    truth_free(&truth);
}

/* Layer 0 was stored before a later layer was delivered in part. */
static void what_comes_between_layers_counts(void **state)
{
    (void)state;
    for (uint32_t after = 0; after < 3; after++) {
        struct rig rig;
        spec_ticket ticket = 0;
        struct truth truth = truth_of(4, 64);
        rig_begin(&rig, true, CHUNKS);
        struct spec_lookup_result result = rig_lookup(&rig, &truth.exact);
        for (uint32_t layer = 0; layer < rig.layers; layer++) {
            assert_int_equal(
                rig_store_layer(&rig, result.request, &truth.exact, 0, 64, layer, &ticket),
                SPEC_OK);
            if (layer == after)
                deliver(&rig, result.request, &PRUNED);
            if (layer + 1 < rig.layers)
                assert_int_equal(rig_wait(&rig, ticket), SPEC_OK);
        }
        assert_int_equal(rig_wait(&rig, ticket), SPEC_OK);
        rig_release(&rig, result.request);
        result = look(&rig, &truth.exact, 0);
        assert_int_equal(result.matched_tokens, 64);
        check_worth(&result.provenance, after + 1 < rig.layers ? &PRUNED : &EXACT);
        truth_free(&truth);
        rig_done(&rig);
    }
}

/* A child of an inexact parent is at least as bad, whatever its own request was delivered. */
static void down_a_path_it_never_improves(void **state)
{
    (void)state;
    struct rig rig;
    struct truth truth = truth_of(5, 96);
    rig_begin(&rig, true, CHUNKS);
    assert_int_equal(store_as(&rig, &truth.exact, 0, SHARED, 0, &EXACT), SPEC_OK);
    assert_int_equal(store_as(&rig, &truth.exact, SHARED, 64, 0, &PRUNED), SPEC_OK);
    assert_int_equal(store_as(&rig, &truth.exact, 64, 96, 0, &EXACT), SPEC_OK); /* all delivered */
    const struct sc_chain_scope scope = {.family = rig.conn->family};
    struct sc_radix_query query = {.root = sc_chain_root(sc_radix_secret(rig.conn->radix), &scope),
                                   .tokens = truth.exact.tokens,
                                   .token_count = 96};
    struct sc_radix_match match;
    sc_radix_match(rig.conn->radix, &query, NULL, 0, &match);
    assert_int_equal(match.token_count, 96);
    assert_int_equal(match.last_flags, SPEC_PROVENANCE_PRUNED);
    struct sc_store_provenance kept;
    assert_true(sc_store_piece_provenance(rig.conn->store, match.last_piece, &kept));
    assert_int_equal(kept.computed_on, SPEC_PROVENANCE_PRUNED);
    assert_int_equal(kept.retain_ppm, PRUNED.retain_ppm);
    truth_free(&truth);
    rig_done(&rig);
}

/* The exact parent fails while its child is on its way, and a worse one takes its place before the
 * child is committed. */
static void a_parent_that_got_worse_makes_its_child_worse(void **state)
{
    (void)state;
    struct rig rig;
    struct truth truth = truth_of(6, 96);
    rig_begin(&rig, true, CHUNKS);
    assert_int_equal(store_as(&rig, &truth.exact, 0, 48, 0, &EXACT), SPEC_OK);
    spec_request child = lookup_as(&rig, &truth.exact, 0, 48).request;
    struct sc_plugin_request *open = sc_plugin_request_find(rig.conn, child);
    uint64_t last = open->range_count - 1;
    sc_plugin_piece_fail(rig.conn, open->segments[last].node, open->segments[last].value.piece);
    rig_background(&rig);
    assert_int_equal(store_as(&rig, &truth.exact, 32, 48, 0, &PRUNED), SPEC_OK);
    assert_int_equal(rig_wait(&rig, rig_store(&rig, child, &truth.exact, 48, 48)), SPEC_OK);
    rig_release(&rig, child);
    struct spec_lookup_result result = look(&rig, &truth.exact, SPEC_LOOKUP_REQUIRE_EXACT);
    assert_int_equal(result.matched_tokens, 32);
    /* The exact parent comes back: its own tokens are exact again, and the child went with it. */
    assert_int_equal(store_as(&rig, &truth.exact, 32, 48, SPEC_LOOKUP_REQUIRE_EXACT, &EXACT),
                     SPEC_OK);
    result = look(&rig, &truth.exact, 0);
    assert_int_equal(result.matched_tokens, 48);
    check_worth(&result.provenance, &EXACT);
    truth_free(&truth);
    rig_done(&rig);
}

/* ---- Configuration --------------------------------------------------------------------------- */

static void check_refused(const char *extra, const struct spec_provenance *what, bool stored)
{
    struct rig rig;
    struct truth truth = truth_of(7, 96);
    rig_begin(&rig, true, extra);
    assert_int_equal(store_as(&rig, &truth.exact, 0, 48, 0, &EXACT), SPEC_OK);
    rig_settle(&rig);
    struct sc_store_stats before, after;
    sc_store_stats(rig.conn->store, &before);
    uint64_t dropped = atomic_load(&rig.conn->stats.dropped_chunks);
    assert_int_equal(store_as(&rig, &truth.exact, 48, 96, 0, what),
                     stored ? SPEC_OK : SPEC_E_DROPPED);
    rig_settle(&rig);
    sc_store_stats(rig.conn->store, &after);
    assert_int_equal(look(&rig, &truth.exact, 0).matched_tokens, stored ? 96 : 48);
    assert_int_equal(atomic_load(&rig.conn->stats.dropped_chunks) - dropped, stored ? 0 : 3);
    if (!stored) {
        assert_int_equal(after.write_ops, before.write_ops);
        assert_int_equal(after.log_bytes, before.log_bytes);
        /* Known only after layer 0: given up from then on. */
        spec_ticket ticket;
        spec_request request = lookup_as(&rig, &truth.exact, 0, 48).request;
        for (uint32_t layer = 0; layer < rig.layers; layer++) {
            assert_int_equal(rig_store_layer(&rig, request, &truth.exact, 48, 48, layer, &ticket),
                             SPEC_OK);
            deliver(&rig, request, what);
        }
        assert_int_equal(rig_wait(&rig, ticket), SPEC_E_DROPPED);
        rig_release(&rig, request);
        rig_settle(&rig);
        assert_int_equal(look(&rig, &truth.exact, 0).matched_tokens, 48);
        assert_int_equal(atomic_load(&rig.conn->stats.dropped_chunks) - dropped, 6);
        sc_store_stats(rig.conn->store, &after);
        assert_int_equal(after.extent_bytes, before.extent_bytes);
    }
    truth_free(&truth);
    rig_done(&rig);
}

static void configuration_decides_what_is_stored(void **state)
{
    (void)state;
    check_refused("\"chunk_tokens\": 16", &PRUNED, false);
    check_refused("\"chunk_tokens\": 16", &LOSSY, true);
    check_refused(CHUNKS, &PRUNED, true);
    check_refused("\"chunk_tokens\": 16, \"store\": {\"lossy\": \"no\"}", &LOSSY, false);
    check_refused("\"chunk_tokens\": 16, \"store\": {\"lossy\": \"no\"}", &EXACT, true);
}

/* ---- Better for worse ------------------------------------------------------------------------ */

/* [0, 32) exact, [32, count) pruned, rows of the pruned pass. */
static void fill_pruned(struct rig *rig, const struct truth *truth, uint64_t count)
{
    assert_int_equal(store_as(rig, &truth->exact, 0, SHARED, 0, &EXACT), SPEC_OK);
    assert_int_equal(store_as(rig, &truth->pruned, SHARED, count, 0, &PRUNED), SPEC_OK);
}

static void the_better_is_found_and_the_worse_goes(void **state)
{
    (void)state;
    for (uint64_t end = SHARED + 1; end <= 96; end += 7) {
        struct rig rig;
        struct truth truth = truth_of(8, 96);
        rig_begin(&rig, true, CHUNKS ", \"lease_ns_max\": 0");
        assert_int_equal(store_as(&rig, &truth.exact, 0, SHARED, 0, &EXACT), SPEC_OK);
        struct sc_store_stats lone, after;
        sc_store_stats(rig.conn->store, &lone);
        assert_int_equal(store_as(&rig, &truth.pruned, SHARED, 96, 0, &PRUNED), SPEC_OK);
        /* A reader of the worse rows goes on. */
        spec_request old = lookup_as(&rig, &truth.exact, 0, 96).request;
        assert_int_equal(
            store_as(&rig, &truth.exact, SHARED, end, SPEC_LOOKUP_REQUIRE_EXACT, &EXACT), SPEC_OK);
        rig_background(&rig);
        struct rows rows = load(&rig, &truth, old, 96);
        assert_int_equal(rows.status, SPEC_OK);
        assert_int_equal(rows.exact, rig.layers * SHARED);
        assert_int_equal(rows.pruned, rig.layers * (96 - SHARED));
        struct spec_lookup_result result = lookup_as(&rig, &truth.exact, 0, 96);
        assert_int_equal(result.matched_tokens, end);
        check_worth(&result.provenance, &EXACT);
        rows = load(&rig, &truth, result.request, end);
        assert_int_equal(rows.exact, rig.layers * end);
        rig_release(&rig, result.request);
        rig_release(&rig, old);
        rig_background(&rig);
        sc_store_stats(rig.conn->store, &after);
        assert_int_equal(after.piece_count, lone.piece_count + (end - SHARED + 15) / 16);
        rig_reopen(&rig);
        result = lookup_as(&rig, &truth.exact, SPEC_LOOKUP_REQUIRE_EXACT, 96);
        assert_int_equal(result.matched_tokens, end);
        rows = load(&rig, &truth, result.request, end);
        assert_int_equal(rows.exact, rig.layers * end);
        rig_release(&rig, result.request);
        truth_free(&truth);
        rig_done(&rig);
    }
}

static void among_equals_the_first_wins_and_worse_changes_nothing(void **state)
{
    (void)state;
    static const struct spec_provenance *const ORDER[] = {&PRUNED, &PRUNED, &LOSSY, &LOSSY, &PRUNED,
                                                          &EXACT,  &EXACT,  &LOSSY, &PRUNED};
    static const uint64_t NEW_CHUNKS[] = {1, 0, 1, 0, 0, 1, 0, 0, 0};
    struct rig rig;
    struct truth truth = truth_of(9, 48);
    rig_begin(&rig, true, CHUNKS);
    assert_int_equal(store_as(&rig, &truth.exact, 0, SHARED, 0, &EXACT), SPEC_OK);
    for (uint32_t i = 0; i < 9; i++) {
        uint64_t stored = atomic_load(&rig.conn->stats.stored_chunks);
        uint64_t equal = atomic_load(&rig.conn->stats.duplicate_chunks);
        assert_int_equal(store_as(&rig, &truth.exact, SHARED, 48, 0, ORDER[i]), SPEC_OK);
        assert_int_equal(atomic_load(&rig.conn->stats.stored_chunks) - stored, NEW_CHUNKS[i]);
        assert_int_equal(atomic_load(&rig.conn->stats.duplicate_chunks) - equal, 1 - NEW_CHUNKS[i]);
    }
    assert_int_equal(look(&rig, &truth.exact, SPEC_LOOKUP_REQUIRE_EXACT).matched_tokens, 48);
    truth_free(&truth);
    rig_done(&rig);
}

/* The process dies while what was replaced is still held by somebody, so that no record says that
 * it is gone: the better one is found, and the space of the worse comes back. */
static void what_was_replaced_does_not_come_back_with_a_crash(void **state)
{
    (void)state;
    struct rig rig;
    struct truth truth = truth_of(10, 96);
    rig_begin(&rig, true, CHUNKS ", \"lease_ns_max\": 0");
    fill_pruned(&rig, &truth, 96);
    spec_request old = lookup_as(&rig, &truth.exact, 0, 96).request;
    assert_int_equal(store_as(&rig, &truth.exact, SHARED, 64, SPEC_LOOKUP_REQUIRE_EXACT, &EXACT),
                     SPEC_OK);
    rig_background(&rig);
    struct sc_io_sim_disk *disk = NULL;
    assert_int_equal(sc_io_sim_disk_copy(rig.disk, &disk, NULL), SPEC_OK);
    rig_release(&rig, old);
    rig_close(&rig);
    sc_io_sim_disk_close(rig.disk);
    rig.disk = disk;
    rig_open(&rig);
    struct sc_store_stats stats;
    for (uint32_t i = 0; i < 2; i++) {
        struct spec_lookup_result result = look(&rig, &truth.exact, 0);
        assert_int_equal(result.matched_tokens, 64);
        check_worth(&result.provenance, &EXACT);
        rig_background(&rig);
        sc_store_stats(rig.conn->store, &stats);
        assert_int_equal(stats.piece_count, 4);
        rig_reopen(&rig);
    }
    truth_free(&truth);
    rig_done(&rig);
}

/* The power goes at any change of the disk: no row is promised as better than it is. */
static void a_crash_at_any_moment_tells_no_lie(void **state)
{
    (void)state;
    struct rig rig;
    struct truth truth = truth_of(11, 112);
    rig_init(&rig, true, CHUNKS);
    sc_io_sim_disk_close(rig.disk);
    struct sc_io_sim_disk_params params = {.alloc = &rig.disk_alloc, .seed = 1, .journal = 2};
    assert_int_equal(sc_io_sim_disk_open(&params, &rig.disk, NULL), SPEC_OK);
    rig_open(&rig);
    fill_pruned(&rig, &truth, 96);
    spec_request old = lookup_as(&rig, &truth.exact, 0, 96).request;
    assert_int_equal(store_as(&rig, &truth.exact, SHARED, 64, SPEC_LOOKUP_REQUIRE_EXACT, &EXACT),
                     SPEC_OK);
    assert_int_equal(store_as(&rig, &truth.pruned, 64, 112, 0, &PRUNED), SPEC_OK);
    rig_release(&rig, old);
    rig_background(&rig);
    assert_int_equal(sc_store_checkpoint(rig.conn->store, NULL), SPEC_OK);
    assert_int_equal(store_as(&rig, &truth.exact, 64, 112, SPEC_LOOKUP_REQUIRE_EXACT, &EXACT),
                     SPEC_OK);
    rig_background(&rig);
    uint64_t events = sc_io_sim_disk_events(rig.disk), found = 0, exact = 0, matched;
    for (uint64_t i = 0; i <= events; i++) {
        struct rig after = rig;
        after.conn = NULL;
        memset(&after.memory, 0, sizeof(after.memory));
        atomic_init(&after.memory.countdown, -1);
        assert_int_equal(sc_io_sim_disk_fork(rig.disk, i, i + 1, &after.disk, NULL), SPEC_OK);
        rig_open(&after);
        for (uint32_t turn = 0; turn < 2; turn++) {
            assert_int_equal(wrong_rows(&after, &truth, 0, &matched), 0);
            found += matched;
            assert_int_equal(wrong_rows(&after, &truth, SPEC_LOOKUP_REQUIRE_EXACT, &matched), 0);
            exact += matched;
        }
        rig_close(&after);
        sc_io_sim_disk_close(after.disk);
    }
    assert_true(found > exact && exact > 0);
    truth_free(&truth);
    rig_done(&rig);
}

/* A reader sees the better one with its writer's record; what hung on the worse is read on a lease
 * until that ends. */
static void leases_on_what_was_replaced_are_kept_by_readers(void **state)
{
    (void)state;
    struct rig writer, reader;
    struct truth truth = truth_of(12, 96);
    rig_begin(&writer, true, CHUNKS ", \"lease_ns_max\": 1000000000");
    rig_open_beside(&reader, &writer, SPEC_ROLE_READER, 0);
    fill_pruned(&writer, &truth, 96);
    rig_pass_ns(&reader, TURN);
    struct spec_lookup_result lease = look(&writer, &truth.exact, 0);
    struct spec_lookup_result held = lookup_as(&reader, &truth.exact, 0, 96);
    assert_int_equal(held.matched_tokens, 96);
    assert_int_equal(store_as(&writer, &truth.exact, SHARED, 48, SPEC_LOOKUP_REQUIRE_EXACT, &EXACT),
                     SPEC_OK);
    rig_background(&writer);
    rig_pass_ns(&reader, TURN);
    struct spec_lookup_result result = look(&reader, &truth.exact, 0);
    assert_int_equal(result.matched_tokens, 48);
    check_worth(&result.provenance, &EXACT);
    struct spec_lookup_result attached = {.struct_size = sizeof(attached)};
    assert_int_equal(rig_attach(&reader, lease.lease, 0, &attached), SPEC_OK);
    assert_int_equal(attached.state, SPEC_LOOKUP_HIT);
    check_worth(&attached.provenance, &PRUNED);
    spec_request requests[] = {held.request, attached.request};
    for (uint32_t i = 0; i < 2; i++) {
        struct rows rows = load(&reader, &truth, requests[i], 96);
        assert_int_equal(rows.status, SPEC_OK);
        assert_int_equal(rows.pruned, reader.layers * 64);
        assert_int_equal(rows.wrong, 0);
        rig_release(&reader, requests[i]);
    }
    rig_pass_ns(&reader, 1200 * MS); /* the lease is over: nothing is kept for it */
    rig_background(&reader);
    struct sc_radix_stats stats;
    sc_radix_stats(reader.conn->radix, &stats);
    assert_int_equal(stats.hidden, 0);
    assert_int_equal(stats.tokens, 48);
    rig_leave(&reader);
    rig_done(&writer);
    truth_free(&truth);
}

/* ---- With threads ---------------------------------------------------------------------------- */

#define PROMPTS 24u

struct looker {
    struct rig *rig;
    struct truth *truths;
    _Atomic uint32_t *stop;
    uint64_t wrong, found;
};

static void *look_on(void *user)
{
    struct looker *looker = user;
    /* Once more over all of them when all are stored, so that every looker finds some. */
    for (uint64_t i = 0, last_round = 0; last_round < PROMPTS; i++) {
        last_round += atomic_load(looker->stop);
        struct truth *truth = &looker->truths[i % PROMPTS];
        struct spec_lookup_params params = rig_lookup_params(&truth->exact, 0, RIG_MAX, 0);
        struct spec_lookup_result result = {.struct_size = sizeof(result)};
        if (sc_plugin_lookup(looker->rig->conn, &params, &result, NULL) != SPEC_OK) {
            looker->wrong++;
            continue;
        }
        struct rows rows = load(looker->rig, truth, result.request, result.matched_tokens);
        looker->wrong += rows.status != SPEC_OK || rows.wrong > 0 ||
                         (result.provenance.kind == SPEC_PROVENANCE_EXACT && rows.pruned > 0);
        looker->found += result.matched_tokens > 0;
        (void)sc_plugin_release(looker->rig->conn, result.request, NULL);
    }
    return NULL;
}

static void lookups_beside_a_replacement_tell_no_lie(void **state)
{
    (void)state;
    struct rig rig;
    struct truth truths[PROMPTS];
    struct looker lookers[2];
    _Atomic uint32_t stop = 0;
    rig_begin(&rig, false, CHUNKS);
    for (uint32_t i = 0; i < PROMPTS; i++)
        truths[i] = truth_of(100 + i, 96);
    for (uint32_t i = 0; i < 2; i++)
        lookers[i] = (struct looker){&rig, truths, &stop, 0, 0};
    const struct threads threads = threads_begin(look_on, lookers, sizeof(lookers[0]), 2);
    for (uint32_t i = 0; i < PROMPTS; i++) {
        fill_pruned(&rig, &truths[i], 96);
        assert_int_equal(
            store_as(&rig, &truths[i].exact, SHARED, 96, SPEC_LOOKUP_REQUIRE_EXACT, &EXACT),
            SPEC_OK);
    }
    atomic_store(&stop, 1);
    threads_join(&threads);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(lookers[i].wrong, 0);
        assert_true(lookers[i].found >= PROMPTS);
    }
    for (uint32_t i = 0; i < PROMPTS; i++) {
        assert_int_equal(look(&rig, &truths[i].exact, SPEC_LOOKUP_REQUIRE_EXACT).matched_tokens,
                         96);
        truth_free(&truths[i]);
    }
    rig_done(&rig);
}

/* What came ahead and was never refined counts as delivered once the layer is computed. A store
 * that is refused computed nothing: the host may refine the layer and ask again. */
static void a_store_that_is_refused_changes_nothing(void **state)
{
    (void)state;
    struct rig rig;
    rig_begin(&rig, true, CHUNKS);
    struct prompt prompt = rig_prompt(9, 0, 0, 48);
    struct spec_lookup_result found = rig_lookup(&rig, &prompt);
    struct sc_plugin_request *request = sc_plugin_request_find(rig.conn, found.request);
    request->ahead = LOSSY;
    request->unrefined[0] = 1;
    spec_ticket *tickets = calloc(SC_LIMIT_TICKETS, sizeof(*tickets)), ticket;
    assert_non_null(tickets);
    for (uint64_t i = 0; i < SC_LIMIT_TICKETS; i++)
        assert_true((tickets[i] = sc_plugin_ticket_take(rig.conn, 1)) != 0);
    assert_int_equal(rig_store_layer(&rig, found.request, &prompt, 0, prompt.count, 0, &ticket),
                     SPEC_E_BUSY);
    assert_memory_equal(&request->delivered, &EXACT, sizeof(EXACT));
    assert_int_equal(request->pass_layer, 0);
    assert_int_equal(atomic_load(&rig.conn->stats.tickets_open), SC_LIMIT_TICKETS);
    for (uint64_t i = 0; i < SC_LIMIT_TICKETS; i++) {
        sc_plugin_ticket_forget(rig.conn, tickets[i]);
        sc_plugin_ticket_resolve(rig.conn, tickets[i], SPEC_OK);
    }
    request->unrefined[0] = 0; /* refined meanwhile */
    assert_int_equal(rig_wait(&rig, rig_store(&rig, found.request, &prompt, 0, prompt.count)),
                     SPEC_OK);
    rig_release(&rig, found.request);
    assert_int_equal(look(&rig, &prompt, SPEC_LOOKUP_REQUIRE_EXACT).matched_tokens, 48);
    free(tickets);
    rig_end(&rig, &prompt);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_worst_of_each_in_any_order),
        cmocka_unit_test(a_match_is_worth_its_worst_piece_also_later),
        cmocka_unit_test(readers_and_leases_say_the_same),
        cmocka_unit_test(a_rank_set_is_worth_its_worst_rank),
        cmocka_unit_test(what_comes_between_layers_counts),
        cmocka_unit_test(a_store_that_is_refused_changes_nothing),
        cmocka_unit_test(down_a_path_it_never_improves),
        cmocka_unit_test(a_parent_that_got_worse_makes_its_child_worse),
        cmocka_unit_test(configuration_decides_what_is_stored),
        cmocka_unit_test(the_better_is_found_and_the_worse_goes),
        cmocka_unit_test(among_equals_the_first_wins_and_worse_changes_nothing),
        cmocka_unit_test(what_was_replaced_does_not_come_back_with_a_crash),
        cmocka_unit_test(a_crash_at_any_moment_tells_no_lie),
        cmocka_unit_test(leases_on_what_was_replaced_are_kept_by_readers),
        cmocka_unit_test(lookups_beside_a_replacement_tell_no_lie),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Prefixes whose chain hashes are one: which only one who has read the store's secret can make, as
 * these tests do. The newcomer is dropped, nothing makes room for it, and no lease on the one opens
 * the other.
 *
 *   a step over 16 tokens is a message of 88 bytes; its bytes 16..31, tokens 0..3, are two words a,
 * b that XXH3 takes in as fold((a ^ k0) x (b ^ k1)) and as a + b: both products are 0 where a is
 * k0, or b is k1 (docs/reference/hashing.md; tools/make_hash_vectors.py)
 *
 * Threads: one, and in the last test those of the connectors. */
#include "tests/unit/plugin/plugin_fixture.h"

#define CHUNK       16u
#define MS          UINT64_C(1000000)
#define TURN        (30 * MS)
#define CONFIG      "\"chunk_tokens\": 16"
#define LONG_LEASES CONFIG ", \"lease_ns_max\": 600000000000" /* however slow threads are */

/* Two prompts that differ in their first four tokens, with one chain after 16. */
struct twins {
    struct prompt of[2];
};

static void set_word(struct prompt *prompt, uint64_t word, uint64_t value)
{
    memcpy(prompt->tokens + 2 * word, &value, sizeof(value));
}

static struct twins twins_make(const struct rig *rig, uint64_t seed, uint64_t count)
{
    const struct sc_chain_secret *secret = sc_radix_secret(rig->conn->radix);
    uint64_t k0, k1;
    memcpy(&k0, secret->lanes + 32, sizeof(k0));
    memcpy(&k1, secret->lanes + 40, sizeof(k1));
    struct twins twins;
    for (uint64_t i = 0; i < 2; i++) {
        struct prompt *prompt = &twins.of[i];
        *prompt = rig_prompt(seed, count, 0, count);
        set_word(prompt, 0, i == 0 ? k0 : k0 + seed - k1);
        set_word(prompt, 1, i == 0 ? seed : k1);
        uint64_t history = 1; /* rows of what the tokens are now */
        for (uint64_t p = 0; p < count; p++)
            prompt->history[p] = history = rig_mix(history ^ prompt->tokens[p]);
    }
    struct sc_hash root = {seed, seed};
    assert_memory_not_equal(twins.of[0].tokens, twins.of[1].tokens, CHUNK * sizeof(uint32_t));
    assert_true(sc_hash_equal(
        sc_chain_step(secret, root, 0, twins.of[0].tokens, CHUNK, (struct sc_marks){NULL, 0}),
        sc_chain_step(secret, root, 0, twins.of[1].tokens, CHUNK, (struct sc_marks){NULL, 0})));
    return twins;
}

static void twins_free(struct twins *twins)
{
    rig_prompts_free(&twins->of[0], &twins->of[1]);
}

static struct sc_radix_stats index_stats(const struct rig *rig)
{
    struct sc_radix_stats stats;
    sc_radix_stats(rig->conn->radix, &stats);
    return stats;
}

/* ---- Commits -------------------------------------------------------------------------------- */

#define OTHERS 40u

static void check_others(struct rig *rig)
{
    for (uint64_t i = 0; i < OTHERS; i++) {
        struct prompt prompt = rig_prompt(100 + i, 0, 0, 40);
        assert_int_equal(rig_read(rig, &prompt, NULL), 40);
        rig_prompt_free(&prompt);
    }
}

static void a_colliding_prompt_is_dropped_and_evicts_nothing(void **state)
{
    (void)state;
    struct rig rig;
    rig_begin(&rig, true, CONFIG);
    for (uint64_t i = 0; i < OTHERS; i++) {
        struct prompt prompt = rig_prompt(100 + i, 0, 0, 40);
        assert_int_equal(rig_fill(&rig, &prompt), SPEC_OK);
        rig_prompt_free(&prompt);
    }
    struct twins twins = twins_make(&rig, 7, 40);
    assert_int_equal(rig_fill(&rig, &twins.of[0]), SPEC_OK);
    for (uint64_t i = 1; i <= 30; i++) { /* as often as somebody likes */
        assert_int_equal(rig_fill(&rig, &twins.of[1]), SPEC_E_DROPPED);
        rig_background(&rig);
        assert_int_equal(index_stats(&rig).collisions, i);
    }
    assert_int_equal(atomic_load(&rig.conn->stats.evicted_chunks), 0);
    assert_int_equal(atomic_load(&rig.conn->stats.dropped_chunks),
                     30 * 3);                   /* and what hung on it */
    for (uint32_t turn = 0; turn < 2; turn++) { /* now, and of the log */
        check_others(&rig);
        assert_int_equal(rig_read(&rig, &twins.of[0], NULL), 40);
        assert_int_equal(rig_read(&rig, &twins.of[1], NULL), 0);
        rig_reopen(&rig);
    }
    twins_free(&twins);
    rig_done(&rig);
}

/* What a pass stored before the chunk that collides stays. */
static void what_stands_before_a_collision_is_stored(void **state)
{
    (void)state;
    struct rig rig;
    rig_begin(&rig, true, CONFIG);
    struct twins twins = twins_make(&rig, 9, CHUNK);
    for (uint64_t i = 0; i < 2; i++) { /* a chunk that both have, then the twins */
        struct prompt one = rig_prompt(50, 60, 0, 2 * CHUNK + 5);
        memcpy(one.tokens + CHUNK, twins.of[i].tokens, CHUNK * sizeof(uint32_t));
        uint64_t history = 1;
        for (uint64_t p = 0; p < one.count; p++)
            one.history[p] = history = rig_mix(history ^ one.tokens[p]);
        assert_int_equal(rig_fill(&rig, &one), i == 0 ? SPEC_OK : SPEC_E_DROPPED);
        assert_int_equal(rig_read(&rig, &one, NULL), i == 0 ? one.count : CHUNK);
        rig_prompt_free(&one);
    }
    twins_free(&twins);
    rig_done(&rig);
}

/* What follows the second of two twins in the log follows neither: not where the log ends before it
 * says that they are void, and not in who reads it by then. The first keeps what follows it. */
static void nothing_follows_a_chunk_that_collides(void **state)
{
    (void)state;
    struct rig rig, reader;
    rig_begin(&rig, true, CONFIG);
    struct twins twins = twins_make(&rig, 11, 3 * CHUNK + 3);
    twins.of[0].count = CHUNK + 3;
    assert_int_equal(rig_fill(&rig, &twins.of[0]), SPEC_OK);
    rig_open_beside(&reader, &rig, SPEC_ROLE_READER, 0);
    assert_int_equal(rig_fill(&rig, &twins.of[1]), SPEC_E_DROPPED);
    struct sc_io_sim_disk *disk = NULL; /* as kill -9 leaves it now */
    assert_int_equal(sc_io_sim_disk_copy(rig.disk, &disk, NULL), SPEC_OK);
    twins.of[0].count = 3 * CHUNK + 3; /* the first chunk of the one, the rest of both */
    assert_int_equal(rig_read(&reader, &twins.of[0], NULL), CHUNK + 3);
    rig_leave(&reader);
    rig_close(&rig);
    sc_io_sim_disk_close(rig.disk);
    rig.disk = disk;
    for (uint32_t turn = 0; turn < 2; turn++) {
        rig_open(&rig);
        assert_int_equal(rig_read(&rig, &twins.of[0], NULL), CHUNK + 3);
        assert_int_equal(rig_read(&rig, &twins.of[1], NULL), 0);
        rig_close(&rig);
    }
    rig_open(&rig);
    assert_int_equal(rig_fill(&rig, &twins.of[0]), SPEC_OK);
    for (uint32_t turn = 0; turn < 2; turn++) {
        assert_int_equal(rig_read(&rig, &twins.of[0], NULL), 3 * CHUNK + 3);
        rig_reopen(&rig);
    }
    twins_free(&twins);
    rig_done(&rig);
}

/* ---- Merged pieces --------------------------------------------------------------------------- */

/* What the disk has now, as kill -9 leaves it: of the second twin nothing, of the first at least
 * `least` tokens, all right; also when that life merges what it finds, goes on with the first,
 * tries the second again, and is followed by another. */
static void check_twins_of(const struct rig *rig, const struct twins *twins, uint64_t least)
{
    struct rig other;
    struct sc_io_sim_disk *disk = NULL;
    rig_beside(&other, rig, 0, 0);
    assert_int_equal(sc_io_sim_disk_copy(rig->disk, &disk, NULL), SPEC_OK);
    other.disk = disk;
    for (uint32_t life = 0; life < 3; life++) {
        rig_open(&other);
        uint64_t found = rig_read(&other, &twins->of[0], NULL);
        assert_true(found >= least && found <= twins->of[0].count);
        assert_int_equal(rig_read(&other, &twins->of[1], NULL), 0);
        sc_plugin_kick(other.conn, SC_JOB_COMPACT);
        rig_pass_ns(&other, 1000 * MS);
        struct spec_lookup_result result = rig_lookup(&other, &twins->of[0]);
        for (uint64_t p = result.matched_tokens; p < twins->of[0].count; p++)
            assert_int_equal(
                rig_wait(&other, rig_store(&other, result.request, &twins->of[0], p, 1)), SPEC_OK);
        rig_release(&other, result.request);
        assert_int_equal(rig_fill(&other, &twins->of[1]), SPEC_E_DROPPED);
        rig_pass_ns(&other, 1000 * MS);
        assert_int_equal(rig_read(&other, &twins->of[0], NULL), twins->of[0].count);
        assert_int_equal(rig_read(&other, &twins->of[1], NULL), 0);
        if (life == 1)
            assert_int_equal(sc_store_checkpoint(other.conn->store, NULL), SPEC_OK);
        rig_close(&other);
        least = CHUNK; /* what follows a twin in the log may have no parent there */
    }
    sc_io_sim_disk_close(disk);
}

/* The first twin is stored token by token, and merged, before the second comes, while it is there,
 * and afterwards. Wherever the log ends, and in who reads it, nothing of the second passes for the
 * first's. */
static void twins_and_merged_pieces_are_not_mixed(void **state)
{
    (void)state;
    uint64_t chunks = 0;
    for (uint32_t when = 0; when < 3; when++) {
        struct rig rig, reader;
        rig_begin(&rig, true,
                  when == 1 ? CONFIG ", \"lease_ns_max\": 100000000, \"maintain\": "
                                     "{\"bytes_per_s\": \"64KiB\"}"
                            : CONFIG ", \"lease_ns_max\": 100000000");
        struct twins twins = twins_make(&rig, 13, 2 * CHUNK + 3);
        const struct prompt *first = &twins.of[0];
        rig_open_beside(&reader, &rig, SPEC_ROLE_READER, 0);
        struct spec_lookup_result decoder = rig_lookup(&rig, first);
        for (uint64_t p = 0; p < first->count; p++) {
            assert_int_equal(rig_wait(&rig, rig_store(&rig, decoder.request, first, p, 1)),
                             SPEC_OK);
            if (p + 1 == CHUNK && when == 0) /* it is merged, and the old ones are gone */
                rig_pass_ns(&rig, 1000 * MS);
            if (p + 1 == CHUNK + 5 || p + 1 == first->count)
                assert_int_equal(rig_fill(&rig, &twins.of[1]), SPEC_E_DROPPED);
            if (p + 1 < CHUNK)
                continue;
            if (p % 5 == 0 || p + 1 == first->count) /* 15, 20: in front of the second, behind it */
                check_twins_of(&rig, &twins, p < CHUNK + 4 ? p + 1 : CHUNK);
            if (when == 2) /* in pieces, with the second behind, then merged */
                rig_pass_ns(&rig, 100 * MS);
            rig_pass_ns(&reader, 60 * MS);
            uint64_t found = rig_read(&reader, first, NULL);
            assert_true(found >= CHUNK && found <= p + 1);
            assert_int_equal(rig_read(&reader, &twins.of[1], NULL), 0);
        }
        rig_release(&rig, decoder.request);
        rig_pass_ns(&rig, 60000 * MS);
        chunks += atomic_load(&rig.conn->stats.compacted_chunks);
        check_twins_of(&rig, &twins, CHUNK);
        rig_pass_ns(&reader, 60 * MS);
        assert_true(rig_read(&reader, first, NULL) >= CHUNK);
        assert_int_equal(rig_read(&reader, &twins.of[1], NULL), 0);
        rig_leave(&reader);
        twins_free(&twins);
        rig_done(&rig);
    }
    assert_true(chunks >= 6);
}

/* A record of merged rows whose chunk collides is not believed, and nothing follows it; nor is one
 * whose parent is doubted. */
static void a_merged_record_that_collides_is_not_believed(void **state)
{
    (void)state;
    struct rig rig;
    rig_begin(&rig, true, CONFIG);
    struct twins twins = twins_make(&rig, 17, 2 * CHUNK);
    assert_int_equal(rig_fill(&rig, &twins.of[0]), SPEC_OK);
    struct prompt one = {CHUNK, twins.of[0].tokens, twins.of[0].history};
    struct spec_lookup_result result = rig_lookup(&rig, &one);
    struct sc_plugin_request *request = sc_plugin_request_find(rig.conn, result.request);
    struct sc_radix_segment run;
    assert_true(sc_radix_get(rig.conn->radix, request->pinned, &run));
    struct sc_store_piece piece = {.id = 1000, .row_count = CHUNK, .tokens = twins.of[1].tokens};
    memcpy(piece.root, request->root.bytes, sizeof(piece.root));
    memcpy(piece.chunk_hash, piece.root, sizeof(piece.chunk_hash));
    sc_hash_to_bytes(run.hash, piece.hash);
    rig_release(&rig, result.request);
    uint64_t mark = 0;
    bool lacks_memory = false;
    struct sc_radix *radix = rig.conn->radix;
    assert_true(sc_radix_find(radix, run.hash, CHUNK).generation != 0);
    assert_true(sc_plugin_index_holds(radix, &piece)); /* its tokens give the hash */
    assert_false(sc_plugin_piece_index(rig.conn, radix, &lacks_memory, &piece, &mark));
    assert_int_equal(sc_radix_find(radix, run.hash, CHUNK).generation, 0);
    /* It stays doubted when it gets another piece. */
    assert_true(sc_radix_move(radix, run.node, 0, &run.value, NULL));
    assert_int_equal(sc_radix_find(radix, run.hash, CHUNK).generation, 0);
    /* The second chunk of the first twin, merged: its parent is doubted by now. */
    piece.first_position = piece.chunk_first = CHUNK;
    piece.tokens = twins.of[0].tokens + CHUNK;
    sc_hash_to_bytes(run.hash, piece.chunk_hash);
    struct sc_hash end = sc_chain_step(sc_radix_secret(radix), run.hash, CHUNK, piece.tokens, CHUNK,
                                       (struct sc_marks){NULL, 0});
    sc_hash_to_bytes(end, piece.hash);
    assert_true(sc_plugin_index_holds(radix, &piece));
    assert_true(sc_radix_find(radix, end, 2 * CHUNK).generation != 0);
    assert_false(sc_plugin_piece_index(rig.conn, radix, &lacks_memory, &piece, &mark));
    assert_int_equal(sc_radix_find(radix, end, 2 * CHUNK).generation, 0);
    assert_false(lacks_memory);
    assert_int_equal(rig_read(&rig, &twins.of[0], NULL), 2 * CHUNK); /* found by its tokens */
    twins_free(&twins);
    rig_done(&rig);
}

/* ---- Leases --------------------------------------------------------------------------------- */

static spec_status attach(struct rig *rig, const uint8_t *lease,
                          struct spec_lookup_result *ret_result)
{
    *ret_result = (struct spec_lookup_result){.struct_size = sizeof(*ret_result)};
    return rig_attach(rig, lease, 0, ret_result);
}

static void assert_loads(struct rig *rig, const struct spec_lookup_result *result,
                         const struct prompt *prompt)
{
    rig_load_all(rig, result->request, prompt, 0, result->matched_tokens);
    rig_release(rig, result->request);
}

/* The one goes because a row of it fails; the other takes its place, and its hashes. */
static void exchange(struct rig *rig, const struct twins *twins)
{
    struct spec_lookup_result result = rig_lookup(rig, &twins->of[0]);
    sc_io_sim_fault_nth(rig->disk, SC_SIM_READ_EIO, 0);
    assert_int_equal(rig_load(rig, result.request, &twins->of[0], 0, result.matched_tokens, 0),
                     SPEC_E_IO);
    rig_release(rig, result.request);
    rig_background(rig);
    assert_int_equal(rig_fill(rig, &twins->of[1]), SPEC_OK);
    rig_background(rig);
    assert_int_equal(index_stats(rig).collisions, 0);
}

static void a_lease_does_not_open_another_prefix_with_its_hashes(void **state)
{
    (void)state;
    for (uint64_t count = CHUNK; count <= 2 * CHUNK; count += CHUNK / 2) {
        struct rig writer, reader;
        rig_begin(&writer, true, CONFIG);
        struct twins twins = twins_make(&writer, 3, count);
        assert_int_equal(rig_fill(&writer, &twins.of[0]), SPEC_OK);
        struct spec_lookup_result found = rig_lookup(&writer, &twins.of[0]), result;
        assert_int_equal(found.matched_tokens, count);
        rig_release(&writer, found.request);
        rig_open_beside(&reader, &writer, SPEC_ROLE_READER, 0);
        exchange(&writer, &twins);
        assert_int_equal(attach(&writer, found.lease, &result), SPEC_E_STALE);
        rig_pass_ns(&reader, TURN);
        struct spec_lookup_result other = rig_lookup(&reader, &twins.of[1]);
        assert_int_equal(other.matched_tokens, count);
        rig_release(&reader, other.request);
        /* To who reads, the first is there until the lease ends: by its piece, not by its hash. */
        assert_int_equal(attach(&reader, found.lease, &result), SPEC_OK);
        assert_loads(&reader, &result, &twins.of[0]);
        assert_int_equal(attach(&reader, other.lease, &result), SPEC_OK);
        assert_loads(&reader, &result, &twins.of[1]);
        rig_leave(&reader);
        rig_done(&writer);
        twins_free(&twins);
    }
}

/* Two ranks and a scheduler of rank 0. */
struct ranks {
    struct rig rank[2], scheduler;
};

static void ranks_open(struct ranks *ranks, bool is_sim)
{
    rig_init(&ranks->rank[0], is_sim, is_sim ? CONFIG : LONG_LEASES);
    ranks->rank[0].rank_count = 2;
    rig_beside(&ranks->rank[1], &ranks->rank[0], SPEC_ROLE_WRITER, 1);
    rig_beside(&ranks->scheduler, &ranks->rank[0], SPEC_ROLE_READER, 0);
    rig_open(&ranks->rank[0]);
    rig_open(&ranks->rank[1]);
}

static void ranks_close(struct ranks *ranks)
{
    rig_leave(&ranks->scheduler);
    rig_leave(&ranks->rank[1]);
    rig_done(&ranks->rank[0]);
}

static void ranks_fill(struct ranks *ranks, const struct prompt *prompt)
{
    for (uint32_t i = 0; i < 2; i++) {
        struct spec_lookup_result result = rig_lookup(&ranks->rank[i], prompt);
        assert_int_equal(rig_wait(&ranks->rank[i], rig_store(&ranks->rank[i], result.request,
                                                             prompt, 0, prompt->count)),
                         SPEC_OK);
        rig_release(&ranks->rank[i], result.request);
    }
}

/* A lease of another rank names a piece of that rank's log: what it is of is asked there. */
static void a_lease_of_another_rank_goes_by_its_tokens(void **state)
{
    (void)state;
    struct ranks ranks;
    ranks_open(&ranks, true);
    struct twins twins = twins_make(&ranks.rank[0], 5, 2 * CHUNK + 3);
    ranks_fill(&ranks, &twins.of[0]);
    rig_open(&ranks.scheduler);
    struct spec_lookup_result found = rig_lookup(&ranks.scheduler, &twins.of[0]), result;
    assert_int_equal(found.matched_tokens, 2 * CHUNK + 3);
    rig_release(&ranks.scheduler, found.request);
    struct rig *worker = &ranks.rank[1];
    assert_int_equal(attach(worker, found.lease, &result), SPEC_OK);
    assert_int_equal(result.state, SPEC_LOOKUP_PENDING); /* it has not heard of rank 0's piece */
    assert_int_equal(result.request, 0);
    rig_pass_ns(worker, TURN);
    assert_int_equal(attach(worker, found.lease, &result), SPEC_OK);
    assert_int_equal(result.state, SPEC_LOOKUP_HIT);
    assert_loads(worker, &result, &twins.of[0]);
    exchange(worker, &twins); /* its own has the other now, by the same hashes */
    assert_int_equal(attach(worker, found.lease, &result), SPEC_E_STALE);
    assert_int_equal(atomic_load(&worker->conn->stats.requests_open), 0);
    twins_free(&twins);
    ranks_close(&ranks);
}

/* What the rank that gave it has dropped since is STALE elsewhere; what it splits is not. */
static void a_lease_of_another_rank_is_followed_there(void **state)
{
    (void)state;
    struct ranks ranks;
    ranks_open(&ranks, true);
    struct prompt prompt = rig_prompt(60, 0, 0, 45), other = rig_prompt(60, 20, 3, 45);
    memcpy(other.tokens, prompt.tokens, 20 * sizeof(uint32_t));
    memcpy(other.history, prompt.history, 20 * sizeof(uint64_t));
    uint64_t history = other.history[19];
    for (uint64_t p = 20; p < other.count; p++)
        other.history[p] = history = rig_mix(history ^ other.tokens[p]);
    ranks_fill(&ranks, &prompt);
    rig_open(&ranks.scheduler);
    struct spec_lookup_result found = rig_lookup(&ranks.scheduler, &prompt), result;
    assert_int_equal(found.matched_tokens, 45);
    rig_release(&ranks.scheduler, found.request);
    assert_int_equal(rig_fill(&ranks.rank[0], &other), SPEC_OK); /* parts a run at 20 */
    rig_pass_ns(&ranks.rank[1], TURN);
    assert_int_equal(attach(&ranks.rank[1], found.lease, &result), SPEC_OK);
    assert_int_equal(result.state, SPEC_LOOKUP_HIT);
    assert_loads(&ranks.rank[1], &result, &prompt);
    rig_pass_ns(&ranks.rank[0], TURN); /* it knows what rank 1 has */
    result = rig_lookup(&ranks.rank[0], &prompt);
    sc_io_sim_fault_nth(ranks.rank[0].disk, SC_SIM_READ_EIO, 0);
    assert_int_equal(rig_load(&ranks.rank[0], result.request, &prompt, 0, 45, 0), SPEC_E_IO);
    rig_release(&ranks.rank[0], result.request);
    rig_background(&ranks.rank[0]);
    rig_pass_ns(&ranks.rank[1], TURN);
    assert_int_equal(attach(&ranks.rank[1], found.lease, &result), SPEC_E_STALE);
    rig_prompts_free(&prompt, &other);
    ranks_close(&ranks);
}

/* Leases of rank 0 open in rank 1 while its executor follows rank 0's log. */
static void leases_open_while_the_other_rank_is_followed(void **state)
{
    (void)state;
    struct ranks ranks;
    ranks_open(&ranks, false);
    rig_open(&ranks.scheduler);
    for (uint64_t i = 0; i < 30; i++) {
        struct prompt prompt = rig_prompt(200 + i, 20, i, 70);
        struct spec_lookup_result found = {0}, result;
        ranks_fill(&ranks, &prompt);
        while (found.matched_tokens < 70) {
            found = rig_lookup(&ranks.scheduler, &prompt);
            rig_release(&ranks.scheduler, found.request);
            rig_pass_ns(&ranks.scheduler, MS);
        }
        do
            assert_int_equal(attach(&ranks.rank[1], found.lease, &result), SPEC_OK);
        while (result.state == SPEC_LOOKUP_PENDING);
        assert_int_equal(result.matched_tokens, 70);
        assert_loads(&ranks.rank[1], &result, &prompt);
        rig_prompt_free(&prompt);
    }
    ranks_close(&ranks);
}

/* ---- The secret ----------------------------------------------------------------------------- */

/* Stores of one configuration have secrets of their own; a reader that was there before the store
 * has its writer's. */
static void every_store_has_a_secret_of_its_own(void **state)
{
    (void)state;
    struct rig rigs[2], reader;
    for (uint32_t i = 0; i < 2; i++)
        rig_init(&rigs[i], false, CONFIG);
    rig_open_beside(&reader, &rigs[0], SPEC_ROLE_READER, 0);
    assert_null(sc_radix_secret(reader.conn->radix));
    struct prompt prompt = rig_prompt(1, 0, 0, 40);
    assert_int_equal(rig_read(&reader, &prompt, NULL), 0);
    for (uint32_t i = 0; i < 2; i++)
        rig_open(&rigs[i]);
    assert_int_equal(rig_fill(&rigs[0], &prompt), SPEC_OK);
    const struct sc_chain_secret *first = sc_radix_secret(rigs[0].conn->radix);
    const struct sc_chain_secret *second = sc_radix_secret(rigs[1].conn->radix);
    assert_memory_not_equal(first->secret, second->secret, sizeof(first->secret));
    assert_memory_not_equal(first->lanes, second->lanes, sizeof(first->lanes));
    while (rig_read(&reader, &prompt, NULL) < 40)
        rig_pass_ns(&reader, MS);
    assert_memory_equal(sc_radix_secret(reader.conn->radix), first, sizeof(*first));
    rig_prompt_free(&prompt);
    rig_leave(&reader);
    for (uint32_t i = 0; i < 2; i++)
        rig_done(&rigs[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_colliding_prompt_is_dropped_and_evicts_nothing),
        cmocka_unit_test(what_stands_before_a_collision_is_stored),
        cmocka_unit_test(nothing_follows_a_chunk_that_collides),
        cmocka_unit_test(twins_and_merged_pieces_are_not_mixed),
        cmocka_unit_test(a_merged_record_that_collides_is_not_believed),
        cmocka_unit_test(a_lease_does_not_open_another_prefix_with_its_hashes),
        cmocka_unit_test(a_lease_of_another_rank_goes_by_its_tokens),
        cmocka_unit_test(a_lease_of_another_rank_is_followed_there),
        cmocka_unit_test(leases_open_while_the_other_rank_is_followed),
        cmocka_unit_test(every_store_has_a_secret_of_its_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

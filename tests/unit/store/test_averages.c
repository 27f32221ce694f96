/* Averages: what was put last of a live piece is told at open, after a checkpoint and to a
 * follower; what was never put, or is void, is not.
 *
 * Threads: the seeded loop. */
#include "tests/unit/store/store_fixture.h"

#include "store/internal.h"
#include "tests/unit/store/average_code.h"

#define IDS_MAX 4096u

static const struct world_setup small = {"small", WORLD_ON(SIM, 0), WORLD_SHAPE(PAIRED, 3, 48, 0),
                                         WORLD_DISK(16, 1, 64)};

/* What was put, or told: which version of codes, 0 none. */
struct heard {
    uint32_t version[IDS_MAX];
    uint32_t times;
};

static uint16_t code_of(uint64_t piece, uint64_t version, uint64_t i)
{
    return (uint16_t)mix(piece * 7919 + version * 104729 + i);
}

static void on_average(const struct sc_store_average *average, struct heard *heard)
{
    assert_true(average->piece < IDS_MAX);
    for (uint64_t i = 0; i < (uint64_t)average->row_count * small.layers; i++)
        assert_int_equal(average->codes[i], code_of(average->piece, average->requests, i));
    heard->version[average->piece] = average->requests;
    heard->times++;
}

static struct heard told, followed;

static void world_on_average(const struct sc_store_average *average, void *user)
{
    (void)user;
    on_average(average, &told);
}

static void follower_on_average(const struct sc_store_average *average, void *user)
{
    (void)user;
    on_average(average, &followed);
}

static struct world *average_world(uint64_t seed)
{
    struct world *world = world_make(&small, seed);
    world->params.on_average = world_on_average;
    world_open_ok(world);
    return world;
}

static spec_status put(struct world *world, const uint64_t *ids, uint32_t count, uint32_t version)
{
    struct sc_store_average *averages = calloc(count, sizeof(*averages));
    assert_non_null(averages);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t row_count = 1; /* of a piece that is not there */
        for (uint32_t p = 0; p < world->piece_count; p++)
            if (world->pieces[p].id == ids[i])
                row_count = world->pieces[p].row_count;
        uint16_t *codes = calloc((uint64_t)row_count * small.layers, sizeof(*codes));
        assert_non_null(codes);
        for (uint64_t c = 0; c < (uint64_t)row_count * small.layers; c++)
            codes[c] = code_of(ids[i], version, c);
        averages[i] = (struct sc_store_average){ids[i], version, row_count, codes};
    }
    spec_status status = sc_store_average_put(world->store, averages, count, &world->error);
    for (uint32_t i = 0; i < count; i++)
        free((void *)(uintptr_t)averages[i].codes);
    free(averages);
    return status;
}

static void put_one(struct world *world, uint64_t id, uint32_t version)
{
    if (put(world, &id, 1, version) != SPEC_OK)
        fail_msg("put: %s", world->error.text);
}

static void reopen(struct world *world)
{
    world_close(world);
    memset(&told, 0, sizeof(told));
    world_open_ok(world);
}

static uint64_t log_bytes(struct world *world)
{
    struct sc_store_stats stats = stats_of(world);
    assert_int_equal(stats.corrupt_records, 0);
    return stats.log_bytes;
}

static void average_codes_are_a_log_scale(void **state)
{
    (void)state;
    assert_int_equal(average_code(1.0), 65535);
    assert_int_equal(average_code(2.0), 65535);
    assert_int_equal(average_code(0.5), 63487);     /* 65535 - 2047.97 */
    assert_int_equal(average_code(0x1p-16), 32767); /* 65535 + round(-32767.5) */
    assert_int_equal(average_code(0x1p-32), 1);
    assert_int_equal(average_code(0x1.fffffep-33), 0);
    assert_int_equal(average_code(0.0), 0);
    assert_int_equal(average_code(-1.0), 0);
    assert_int_equal(average_code((double)__builtin_nanf("")), 0);
    assert_true(average_share(0) == 0.0);
    assert_true(average_share(65535) == 1.0);
    for (uint32_t code = 1; code <= 65535; code++) {
        double share = average_share((uint16_t)code);
        assert_true(share > average_share((uint16_t)(code - 1)));
        assert_int_equal(average_code(share), code > 1 ? code : 1);
    }
}

static void average_put_last_is_told_after_a_reopen_and_a_checkpoint(void **state)
{
    (void)state;
    struct world *world = average_world(3);
    assert_int_equal(world_store(world, 1, 0, 300), SPEC_OK); /* pieces 1 .. 5 */
    assert_int_equal(world_store(world, 2, 10, 90), SPEC_OK); /* 6, 7 */
    put_one(world, 1, 1);
    put_one(world, 3, 2);
    const uint64_t many[] = {1, 5, 7, 900, 5};
    assert_int_equal(put(world, many, 5, 3), SPEC_OK); /* 900 is not there; 5 comes twice */
    put_one(world, 7, 4);
    static const uint32_t expected[] = {0, 3, 0, 2, 0, 3, 0, 4, 0};
    for (uint32_t round = 0; round < 4; round++) {
        if (round == 2)
            assert_int_equal(sc_store_checkpoint(world->store, NULL), SPEC_OK);
        reopen(world);
        for (uint32_t id = 0; id < 9; id++)
            assert_int_equal(told.version[id], expected[id]);
        assert_int_equal(told.version[900], 0);
        assert_int_equal(told.times, 4); /* a close copies the newest alone */
        (void)log_bytes(world);
    }
    put_one(world, 2, 9); /* after a checkpoint as before */
    reopen(world);
    assert_int_equal(told.version[2], 9);
    assert_int_equal(told.times, 5);
    world_free(world);
}

static void average_of_void_pieces_is_left_out_and_forgotten(void **state)
{
    (void)state;
    struct world *world = average_world(4);
    world_store_two(world, 128, 64);
    const uint64_t ids[] = {1, 2, 3};
    assert_int_equal(put(world, ids, 3, 5), SPEC_OK);
    sc_store_piece_drop(world->store, 2);
    uint64_t before = log_bytes(world);
    put_one(world, 2, 6); /* nothing is written for it */
    assert_int_equal(log_bytes(world), before);
    reopen(world);
    assert_int_equal(told.version[1], 5);
    assert_int_equal(told.version[2], 0);
    assert_int_equal(told.version[3], 5);
    assert_int_equal(sc_store_epoch_set(world->store, 1, NULL), SPEC_OK);
    assert_int_equal(world_store(world, 3, 0, 64), SPEC_OK); /* piece 4 */
    put_one(world, 4, 7);
    reopen(world);
    assert_int_equal(told.version[1], 0);
    assert_int_equal(told.version[3], 0);
    assert_int_equal(told.version[4], 7);
    world_free(world);
}

static void average_that_does_not_fit_its_piece_is_refused(void **state)
{
    (void)state;
    struct world *world = average_world(5);
    static uint16_t codes[3 * 64];
    assert_int_equal(world_store(world, 1, 0, 64), SPEC_OK);
    uint64_t before = log_bytes(world);
    struct sc_store_average averages[2] = {{1, 1, 64, codes}, {1, 1, 63, codes}};
    assert_int_equal(sc_store_average_put(world->store, averages, 2, &world->error),
                     SPEC_E_INVALID);
    averages[1].row_count = 64;
    averages[1].requests = 0;
    assert_int_equal(sc_store_average_put(world->store, averages, 2, &world->error),
                     SPEC_E_INVALID);
    assert_int_equal(log_bytes(world), before);
    assert_int_equal(sc_store_average_put(world->store, averages, 0, &world->error), SPEC_OK);
    assert_int_equal(log_bytes(world), before);
    world_free(world);
}

static void average_longer_than_a_record_is_refused(void **state)
{
    (void)state;
    struct world_setup setup = small;
    setup.layers = 64;
    setup.k_row_bytes = 2;
    setup.disk_bytes = 16u << 20; /* of which the log of such chunks has half */
    struct world *world = world_make(&setup, 6);
    world->config.chunk_tokens = 4096;
    world_open_ok(world);
    world_store_two(world, 4096, 2047);
    uint16_t *codes = calloc(64 * 4096, sizeof(*codes));
    assert_non_null(codes);
    struct sc_store_average averages[2] = {{1, 1, 4096, codes}, {2, 1, 2047, codes}};
    assert_int_equal(sc_store_average_put(world->store, &averages[0], 1, &world->error),
                     SPEC_E_INVALID);
    assert_int_equal(sc_store_average_put(world->store, &averages[1], 1, &world->error), SPEC_OK);
    world_reopen(world);
    (void)log_bytes(world);
    free(codes);
    world_free(world);
}

/* More than one append holds; and a log that newer records fill is due, and shrinks. */
static void average_records_that_newer_ones_replace_go_with_a_checkpoint(void **state)
{
    (void)state;
    struct world *world = average_world(7);
    uint64_t *ids = calloc(IDS_MAX, sizeof(*ids));
    assert_non_null(ids);
    for (uint64_t key = 1; key <= 40; key++)
        assert_int_equal(world_store(world, key, 0, 640), SPEC_OK);
    uint32_t count = world->piece_count;
    assert_int_equal(count, 400);
    for (uint32_t i = 0; i < count; i++)
        ids[i] = world->pieces[i].id;
    world->config.checkpoint_bytes = 64u << 10;
    assert_int_equal(sc_store_checkpoint(world->store, NULL), SPEC_OK);
    uint64_t before = log_bytes(world);
    assert_false(sc_store_checkpoint_due(world->store));
    uint32_t version = 1;
    for (; version <= 12 && !sc_store_checkpoint_due(world->store); version++)
        if (put(world, ids, count, version) != SPEC_OK)
            fail_msg("put %u: %s", version, world->error.text);
    assert_true(version > 2 && version <= 12);
    uint64_t full = log_bytes(world);
    assert_int_equal(sc_store_checkpoint(world->store, NULL), SPEC_OK);
    assert_false(sc_store_checkpoint_due(world->store));
    assert_true(log_bytes(world) < full);
    assert_true(log_bytes(world) > before);
    reopen(world);
    assert_int_equal(told.times, count);
    for (uint32_t i = 0; i < count; i++)
        assert_int_equal(told.version[ids[i]], version - 1);
    free(ids);
    world_free(world);
}

static void average_without_room_changes_nothing(void **state)
{
    (void)state;
    struct world *world = average_world(8);
    assert_int_equal(world_store(world, 1, 0, 640), SPEC_OK);
    uint32_t version = 1;
    spec_status status = SPEC_OK;
    uint64_t full = 0;
    for (; version < 100000 && status == SPEC_OK; version++) {
        const uint64_t ids[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
        full = log_bytes(world);
        status = put(world, ids, 10, version);
    }
    assert_int_equal(status, SPEC_E_NO_SPACE);
    assert_int_equal(log_bytes(world), full);
    reopen(world); /* its close wrote a short log */
    for (uint32_t id = 1; id <= 10; id++)
        assert_int_equal(told.version[id], version - 2);
    put_one(world, 1, 42);
    world_free(world);
}

static bool piece_believed(const struct sc_store_piece *piece, uint64_t *ret_mark, void *user)
{
    (void)piece;
    (void)user;
    *ret_mark = 0;
    return true;
}

static void average_is_told_to_a_follower(void **state)
{
    (void)state;
    struct world *world = average_world(9);
    struct sc_store_params params = world->params;
    struct sc_store *follower = NULL;
    bool more = true;
    memset(&followed, 0, sizeof(followed));
    params.role = SC_STORE_READER;
    params.on_piece = piece_believed;
    params.on_written = NULL;
    params.on_average = follower_on_average;
    assert_int_equal(world_store(world, 1, 0, 200), SPEC_OK);
    put_one(world, 1, 1);
    assert_int_equal(sc_store_open(&params, &follower, &world->error), SPEC_OK);
    assert_int_equal(followed.version[1], 1);
    put_one(world, 1, 2);
    put_one(world, 4, 2);
    sc_store_piece_drop(world->store, 2);
    assert_int_equal(sc_store_follow(follower, &more, &world->error), SPEC_OK);
    assert_int_equal(followed.version[1], 2);
    assert_int_equal(followed.version[4], 2);
    assert_int_equal(sc_store_checkpoint(world->store, NULL), SPEC_OK);
    put_one(world, 3, 5);
    followed.times = 0;
    for (more = true; more;)
        assert_int_equal(sc_store_follow(follower, &more, &world->error), SPEC_OK);
    assert_int_equal(followed.version[3], 5);
    assert_int_equal(followed.times, 3); /* the shorter log, read from its start */
    uint16_t codes[3 * 64] = {0};
    struct sc_store_average average = {1, 1, 64, codes};
    assert_int_equal(sc_store_average_put(follower, &average, 1, &world->error),
                     SPEC_E_UNSUPPORTED);
    sc_store_close(follower);
    world_free(world);
}

/* Another model's averages are not told of, and not lost. */
static void average_of_another_namespace_outlives_this_ones_checkpoint(void **state)
{
    (void)state;
    struct world *world = average_world(10);
    assert_int_equal(world_store(world, 1, 0, 64), SPEC_OK);
    put_one(world, 1, 3);
    world->params.space.digest[0] ^= 1;
    reopen(world);
    assert_int_equal(told.times, 0);
    put_one(world, 1, 4); /* not this one's: nothing happens */
    assert_int_equal(world_store(world, 2, 0, 64), SPEC_OK);
    put_one(world, 2, 5);
    assert_int_equal(sc_store_checkpoint(world->store, NULL), SPEC_OK);
    reopen(world);
    assert_int_equal(told.times, 1);
    world->params.space.digest[0] ^= 1;
    reopen(world);
    assert_int_equal(told.times, 1);
    assert_int_equal(told.version[1], 3);
    world_free(world);
}

/* ---- Notes ---------------------------------------------------------------------------------- */

static struct { /* what on_note said last of a kind */
    uint16_t words[8];
    uint64_t count, times;
} notes[SC_STORE_NOTE_KINDS + 1];

static void on_note(const uint16_t *words, uint64_t count, void *user)
{
    (void)user;
    uint32_t kind = words[0] >> 8;
    assert_true(count > 0 && count <= 8);
    assert_in_range(kind, 1, SC_STORE_NOTE_KINDS);
    memcpy(notes[kind].words, words, count * sizeof(*words));
    notes[kind].count = count;
    notes[kind].times++;
}

static void words_make(uint32_t kind, uint16_t first, uint16_t ret_words[SC_STORE_NOTE_HEAD + 8])
{
    for (uint16_t i = 0; i < 8; i++)
        ret_words[SC_STORE_NOTE_HEAD + i] = (uint16_t)(first + i);
    ret_words[SC_STORE_NOTE_HEAD] = (uint16_t)(kind << 8 | first % 256);
}

static spec_status note_put(struct world *world, uint32_t kind, uint16_t first, uint64_t count)
{
    uint16_t words[SC_STORE_NOTE_HEAD + 8] = {0};
    words_make(kind, first, words);
    return sc_store_note_put(world->store, words, count, &world->error);
}

static void note_is(uint32_t kind, uint16_t first, uint64_t count, uint64_t times)
{
    uint16_t words[SC_STORE_NOTE_HEAD + 8] = {0};
    words_make(kind, first, words);
    assert_int_equal(notes[kind].times, times);
    assert_int_equal(notes[kind].count, count);
    assert_memory_equal(notes[kind].words, words + SC_STORE_NOTE_HEAD, count * sizeof(*words));
    memset(&notes[kind], 0, sizeof(notes[kind]));
}

/* What was put last is told at open, after checkpoints, and to a follower; another namespace's is
 * neither told nor lost. */
static void note_put_last_is_told_and_kept_by_checkpoints(void **state)
{
    (void)state;
    struct world *world = average_world(11);
    memset(notes, 0, sizeof(notes));
    assert_int_equal(note_put(world, 2, 1, 0), SPEC_E_INVALID);
    assert_int_equal(note_put(world, 2, 1, SC_STORE_NOTE_WORDS_MAX + 1), SPEC_E_INVALID);
    assert_int_equal(note_put(world, 2, 1, 3), SPEC_OK); /* nothing is stored: nothing happens */
    world->params.on_note = on_note;
    reopen(world);
    note_is(2, 0, 0, 0);
    assert_int_equal(world_store(world, 1, 0, 64), SPEC_OK);
    put_one(world, 1, 7);
    for (uint16_t n = 1; n <= 3; n++)
        assert_int_equal(note_put(world, 2, 100 * n, 5), SPEC_OK);
    reopen(world);
    note_is(2, 300, 5, 3); /* in order: the last counts */
    uint64_t before = log_bytes(world);
    assert_int_equal(sc_store_checkpoint(world->store, NULL), SPEC_OK);
    assert_true(log_bytes(world) < before);
    reopen(world);
    note_is(2, 300, 5, 1);
    assert_int_equal(told.version[1], 7);
    assert_int_equal(note_put(world, 2, 400, 8), SPEC_OK);
    world->params.space.digest[0] ^= 1;
    reopen(world);
    note_is(2, 0, 0, 0);
    assert_int_equal(world_store(world, 2, 0, 64), SPEC_OK);
    assert_int_equal(note_put(world, 2, 900, 1), SPEC_OK);
    assert_int_equal(sc_store_checkpoint(world->store, NULL), SPEC_OK);
    reopen(world);
    note_is(2, 900, 1, 1);
    world->params.space.digest[0] ^= 1;
    reopen(world);
    note_is(2, 400, 8, 1);
    log_bytes(world); /* no record is corrupt */
    world_free(world);
}

static void note_is_told_to_a_follower_and_refused_of_it(void **state)
{
    (void)state;
    struct world *world = average_world(12);
    struct sc_store_params params = world->params;
    struct sc_store *follower = NULL;
    bool more = false;
    memset(notes, 0, sizeof(notes));
    assert_int_equal(world_store(world, 1, 0, 64), SPEC_OK);
    assert_int_equal(note_put(world, 2, 10, 2), SPEC_OK);
    params.role = SC_STORE_READER;
    params.on_average = follower_on_average;
    params.on_note = on_note;
    assert_int_equal(sc_store_open(&params, &follower, &world->error), SPEC_OK);
    note_is(2, 10, 2, 1);
    assert_int_equal(note_put(world, 2, 20, 2), SPEC_OK);
    assert_int_equal(sc_store_follow(follower, &more, &world->error), SPEC_OK);
    note_is(2, 20, 2, 1);
    uint16_t words[SC_STORE_NOTE_HEAD + 1] = {0, 0, 2 << 8};
    assert_int_equal(sc_store_note_put(follower, words, 1, &world->error), SPEC_E_UNSUPPORTED);
    sc_store_close(follower);
    world_free(world);
}

/* Kinds do not replace each other, in the log, in checkpoints, or to a peer of the family. */
static void notes_of_each_kind_stand_beside_each_other(void **state)
{
    (void)state;
    struct world *world = average_world(13);
    struct sc_store *peer = NULL;
    bool more = false;
    memset(notes, 0, sizeof(notes));
    world->params.on_note = on_note;
    assert_int_equal(note_put(world, 0, 5, 3), SPEC_E_INVALID);
    assert_int_equal(note_put(world, SC_STORE_NOTE_KINDS + 1, 5, 3), SPEC_E_INVALID);
    reopen(world);
    assert_int_equal(world_store(world, 1, 0, 64), SPEC_OK);
    assert_int_equal(note_put(world, 1, 10, 5), SPEC_OK);
    assert_int_equal(note_put(world, 2, 20, 8), SPEC_OK);
    assert_int_equal(note_put(world, 2, 30, 8), SPEC_OK);
    assert_int_equal(note_put(world, SC_STORE_NOTE_KINDS, 40, 1), SPEC_OK);
    struct sc_store_params params = world->params;
    params.role = SC_STORE_PEER;
    params.space.digest[0] ^= 1; /* another rank's, of the family */
    assert_int_equal(sc_store_open(&params, &peer, &world->error), SPEC_OK);
    note_is(1, 10, 5, 1);
    note_is(2, 30, 8, 2);
    note_is(SC_STORE_NOTE_KINDS, 40, 1, 1);
    assert_int_equal(note_put(world, 1, 50, 5), SPEC_OK);
    assert_int_equal(sc_store_checkpoint(world->store, NULL), SPEC_OK);
    do /* reads the log from its start again, and hears of what is new alone */
        assert_int_equal(sc_store_follow(peer, &more, &world->error), SPEC_OK);
    while (more);
    note_is(1, 50, 5, 1);
    note_is(2, 0, 0, 0);
    sc_store_close(peer);
    params.space.family[0] ^= 1; /* of another model */
    assert_int_equal(sc_store_open(&params, &peer, &world->error), SPEC_OK);
    note_is(1, 0, 0, 0);
    sc_store_close(peer);
    reopen(world);
    note_is(1, 50, 5, 1);
    note_is(2, 30, 8, 1);
    note_is(SC_STORE_NOTE_KINDS, 40, 1, 1);
    log_bytes(world); /* no record is corrupt */
    world_free(world);
}

/* As another version's writer may, or a hand that has the log. */
static void record_append(struct world *world, uint64_t serial, uint32_t kind)
{
    struct sc_store *store = world->store;
    struct sc_store_append append;
    uint16_t words[SC_STORE_NOTE_HEAD + 8] = {1};
    words_make(kind, 70, words);
    pthread_mutex_lock(&store->log.lock);
    sc_store_append_begin(store, &append);
    sc_store_append_frame(&append);
    sc_store_record_encode_average(&append.writer, 0, serial, words, SC_STORE_NOTE_HEAD + 8);
    assert_int_equal(sc_store_append_commit(store, &append, &world->error), SPEC_OK);
    pthread_mutex_unlock(&store->log.lock);
}

static void notes_of_kinds_that_are_not_known_are_ignored(void **state)
{
    (void)state;
    struct world *world = average_world(14);
    memset(notes, 0, sizeof(notes));
    world->params.on_note = on_note;
    reopen(world);
    assert_int_equal(world_store(world, 1, 0, 64), SPEC_OK);
    assert_int_equal(note_put(world, 2, 20, 8), SPEC_OK);
    record_append(world, 7, 0);
    record_append(world, 8, SC_STORE_NOTE_KINDS + 1);
    record_append(world, 9, 255);
    reopen(world);
    note_is(2, 20, 8, 1);
    assert_int_equal(note_put(world, 2, 30, 8), SPEC_OK);
    uint64_t before = log_bytes(world);
    assert_int_equal(sc_store_checkpoint(world->store, NULL), SPEC_OK);
    assert_true(log_bytes(world) < before);
    reopen(world);
    note_is(2, 30, 8, 1);
    record_append(world, UINT32_MAX, 3); /* no number is left: nothing is written that lies */
    reopen(world);
    memset(notes, 0, sizeof(notes));
    assert_int_equal(note_put(world, 2, 40, 8), SPEC_E_CORRUPT);
    assert_int_equal(world_store(world, 2, 0, 64), SPEC_OK); /* it goes on */
    reopen(world);
    note_is(2, 30, 8, 1);
    log_bytes(world);
    world_free(world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(average_codes_are_a_log_scale),
        cmocka_unit_test(average_put_last_is_told_after_a_reopen_and_a_checkpoint),
        cmocka_unit_test(average_of_void_pieces_is_left_out_and_forgotten),
        cmocka_unit_test(average_that_does_not_fit_its_piece_is_refused),
        cmocka_unit_test(average_longer_than_a_record_is_refused),
        cmocka_unit_test(average_records_that_newer_ones_replace_go_with_a_checkpoint),
        cmocka_unit_test(average_without_room_changes_nothing),
        cmocka_unit_test(average_is_told_to_a_follower),
        cmocka_unit_test(note_put_last_is_told_and_kept_by_checkpoints),
        cmocka_unit_test(note_is_told_to_a_follower_and_refused_of_it),
        cmocka_unit_test(notes_of_each_kind_stand_beside_each_other),
        cmocka_unit_test(notes_of_kinds_that_are_not_known_are_ignored),
        cmocka_unit_test(average_of_another_namespace_outlives_this_ones_checkpoint),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Resets outlive damage, failed appends and other processes: rows of a reset epoch are never
 * delivered again, by the writer or by a follower. And a checkpoint never leaves out what is in
 * use, though its source was damaged meanwhile.
 *
 * Threads: the seeded loop. */
#include "store/replay/checkpoint.h"
#include "tests/unit/store/follower_fixture.h"

#define RANK_DIR "/sim/store/rank-0000-of-0001"
#define LOG_PATH RANK_DIR "/log"
#define LOG_MAX  (2u << 20)

static const struct world_setup small = {"small", WORLD_ON(SIM, 0), WORLD_SHAPE(PAIRED, 2, 48, 0),
                                         WORLD_DISK(4, 1, 64), .staging_bytes = 2u << 20};
static const struct world_setup large = {"large", WORLD_ON(SIM, 0), WORLD_SHAPE(PAIRED, 2, 48, 0),
                                         WORLD_DISK(256, 8, 64), .staging_bytes = 2u << 20};

static uint8_t log_bytes[LOG_MAX];

static void find_log(const char *path, uint64_t bytes, void *user)
{
    if (strcmp(path, LOG_PATH) == 0)
        *(uint64_t *)user = bytes;
}

static uint64_t log_read(const struct world *world)
{
    uint64_t count = 0;
    sc_io_sim_disk_files(world->disk, find_log, &count);
    assert_true(count > 0 && count < LOG_MAX);
    assert_true(sc_io_sim_disk_peek(world->disk, LOG_PATH, 0, log_bytes, count));
    return count;
}

/* Offset of the last frame of this type (and id, unless 0). */
static uint64_t frame_find(const struct world *world, uint64_t type, uint64_t id,
                           uint64_t *ret_bytes)
{
    uint64_t count = log_read(world), found = UINT64_MAX;
    for (uint64_t at = 0, bytes; at < count; at += bytes) {
        struct sc_store_record record = {0};
        const uint8_t *payload = sc_store_frame_payload(log_bytes + at);
        bytes = sc_store_frame_bytes(log_bytes + at);
        assert_true(sc_store_record_peek(payload, bytes - SC_STORE_FRAME_BYTES, &record));
        if (record.type == type && (id == 0 || record.id == id)) {
            found = at;
            *ret_bytes = bytes;
        }
    }
    assert_true(found != UINT64_MAX);
    return found;
}

static void damage(const struct world *world, uint64_t at, uint64_t bytes)
{
    for (uint64_t i = 0; i < bytes; i += 3)
        disk_flip(world, LOG_PATH, at + i, 0x5a);
}

static void writer_dies(struct world *world)
{
    world->store->log.journal.synced_end = world->store->log.journal.end.offset;
    world_close(world);
}

static uint32_t seen_of(const struct world *world, uint64_t key)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < world->piece_count; i++)
        count += world->pieces[i].key == key && world->pieces[i].seen;
    return count;
}

/* ---- Followers ------------------------------------------------------------------------------- */

/* The record of epoch 3 is lost, so the writer's epochs begin anew; a follower has seen it. */
static void a_follower_obeys_epochs_that_come_again(void **state)
{
    (void)state;
    for (uint32_t role = 0; role < 2; role++) {
        uint64_t bytes;
        struct world *world = world_new(&small, 5);
        assert_int_equal(world_store(world, 1, 0, 64), SPEC_OK);
        assert_int_equal(sc_store_epoch_set(world->store, 3, &world->error), SPEC_OK);
        world->piece_count = 0;
        assert_int_equal(world_store(world, 2, 0, 64), SPEC_OK);
        struct follower *follower =
            follower_new(world, role == 0 ? SC_STORE_READER : SC_STORE_PEER);
        follow(follower);
        writer_dies(world);
        uint64_t at = frame_find(world, SC_STORE_RECORD_EPOCH, 0, &bytes);
        damage(world, at, bytes);
        world_open_ok(world);
        assert_int_equal(seen_of(world, 2), 1);
        for (uint64_t epoch = 1; epoch <= 4; epoch++) {
            assert_int_equal(world_store(world, 3 + epoch, 0, 64), SPEC_OK);
            follow(follower);
            assert_int_equal(sc_store_epoch_set(world->store, epoch, &world->error), SPEC_OK);
            for (uint32_t i = 0; i < 3; i++)
                follow(follower);
            assert_int_equal(stats_of(world).piece_count, 0);
            assert_int_equal(follower->told_count, 0);
        }
        follower_free(follower);
        world_free(world);
    }
}

/* The reset's record landed although its append failed, and could not be taken back; the reader has
 * read it. The checkpoint leaves it out, and the reset comes a second time. */
static void a_follower_obeys_a_reset_that_failed_once(void **state)
{
    (void)state;
    uint32_t tried = 0;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        struct world *world = world_make(&small, seed);
        world->config.lease_ns_max = 0;
        world_open_ok(world);
        assert_int_equal(world_store(world, 1, 0, 64), SPEC_OK);
        struct follower *follower = follower_new(world, SC_STORE_READER);
        sc_io_sim_fault_scope(world->disk, "0001/log");
        sc_io_sim_fault_nth(world->disk, SC_SIM_WRITE_PART, 0);
        sc_io_sim_fault_nth(world->disk, SC_SIM_WRITE_EIO, 1);
        spec_status status = sc_store_epoch_set(world->store, 1, &world->error);
        sc_io_sim_fault_ppm(world->disk, SC_SIM_WRITE_PART, 0);
        sc_io_sim_fault_ppm(world->disk, SC_SIM_WRITE_EIO, 0);
        follow(follower);
        if (status != SPEC_OK && world->store->log.is_broken && follower->epoch == 1) {
            assert_int_equal(sc_store_checkpoint(world->store, &world->error), SPEC_OK);
            assert_int_equal(world_store(world, 2, 0, 64), SPEC_OK);
            follow(follower);
            assert_int_equal(sc_store_epoch_set(world->store, 1, &world->error), SPEC_OK);
            for (uint32_t i = 0; i < 4; i++)
                follow(follower);
            assert_int_equal(follower->told_count, 0);
            tried++;
        }
        follower_free(follower);
        world_free(world);
    }
    assert_true(tried > 5);
}

/* ---- The end of the log ---------------------------------------------------------------------- */

/* Whatever of a last record is wrong: if it may have been a reset, nothing before it is believed,
 * and not later either. */
static void a_last_record_that_may_be_a_reset_voids_what_was_before(void **state)
{
    (void)state;
    for (uint32_t where = 0; where < 3; where++) {
        uint64_t bytes;
        struct world *world = world_new(&small, 6);
        assert_int_equal(world_store(world, 1, 0, 64), SPEC_OK);
        assert_int_equal(sc_store_epoch_set(world->store, 3, &world->error), SPEC_OK);
        writer_dies(world);
        uint64_t at = frame_find(world, SC_STORE_RECORD_EPOCH, 0, &bytes);
        if (where == 0)
            damage(world, at, bytes); /* all of it */
        if (where == 1)
            damage(world, at, 12); /* its header, */
        if (where > 0)
            damage(world, at + SC_STORE_FRAME_BYTES + 2, 9); /* its payload */
        struct follower *follower = follower_new(world, SC_STORE_READER);
        for (uint32_t i = 0; i < 4; i++)
            follow(follower);
        assert_int_equal(sc_store_follow_ns(follower->store), 0); /* it promises nothing */
        sc_io_sim_fault_scope(world->disk, "log.new"); /* the log cannot be written anew */
        sc_io_sim_fault_ppm(world->disk, SC_SIM_WRITE_EIO, where > 0 ? 1000000 : 0);
        world_open_ok(world);
        sc_io_sim_fault_ppm(world->disk, SC_SIM_WRITE_EIO, 0);
        assert_int_equal(seen_of(world, 1), 0);
        assert_int_equal(stats_of(world).piece_count, 0);
        world_wait_ns(world, world->config.lease_ns_max);
        assert_int_equal(world_store(world, 2, 0, 64), SPEC_OK);
        for (uint32_t i = 0; i < 3; i++)
            follow(follower);
        assert_int_equal(follower->told_count, 1);
        if (where == 2) /* from the log that ends in what is damaged */
            assert_int_equal(sc_store_checkpoint(world->store, &world->error), SPEC_OK);
        writer_dies(world);
        world_open_ok(world);
        assert_int_equal(seen_of(world, 1), 0);
        assert_int_equal(seen_of(world, 2), 1);
        follower_free(follower);
        world_free(world);
    }
}

/* More damage than is restored: the reset behind it holds. */
static void a_reset_behind_too_much_damage_holds(void **state)
{
    (void)state;
    struct world *world = world_new(&large, 5);
    for (uint64_t key = 1; key <= 2080; key++)
        assert_int_equal(world_store(world, key, 0, 16), SPEC_OK);
    assert_int_equal(sc_store_epoch_set(world->store, 3, &world->error), SPEC_OK);
    assert_int_equal(world_store(world, 9001, 0, 64), SPEC_OK);
    writer_dies(world);
    uint64_t bytes, frames = 0, end = frame_find(world, SC_STORE_RECORD_EPOCH, 0, &bytes);
    for (uint64_t at = 0; at < end; at += sc_store_frame_bytes(log_bytes + at), frames++)
        disk_flip(world, LOG_PATH, at + 16, 1); /* one byte of the chain */
    assert_true(frames > SC_STORE_DAMAGED_MAX);
    world_open_ok(world);
    assert_int_equal(stats_of(world).piece_count, seen_of(world, 9001));
    world_free(world);
}

/* ---- Two that append ------------------------------------------------------------------------- */

static void other_resets(const struct world *world, uint64_t epoch)
{
    struct sc_store_writer to = {log_bytes, log_read(world), LOG_MAX, false};
    struct sc_store_log_end end = world->store->log.journal.end;
    end.offset = world->store->log.journal.file_end;
    uint64_t begin = sc_store_frame_begin(&to);
    sc_store_record_encode_epoch(&to, 1, epoch, 1);
    sc_store_frame_end(&to, begin, true, &end);
    assert_true(sc_io_sim_disk_resize(world->disk, LOG_PATH, to.used));
    assert_true(sc_io_sim_disk_poke(world->disk, LOG_PATH, 0, log_bytes, to.used));
}

/* The loser of a race does not undo what won: by no checkpoint, and by no zeros. */
static void a_loser_leaves_the_winners_reset(void **state)
{
    (void)state;
    for (uint32_t fails = 0; fails < 2; fails++) {
        struct world *world = world_new(&small, 5);
        assert_int_equal(world_store(world, 1, 0, 64), SPEC_OK);
        other_resets(world, 7);
        sc_io_sim_fault_scope(world->disk, "/log");
        if (fails == 1)
            sc_io_sim_fault_nth(world->disk, SC_SIM_WRITE_EIO, 0);
        assert_int_equal(world_store(world, 2, 0, 64), SPEC_E_IO);
        assert_false(sc_store_checkpoint_due(world->store));
        assert_int_equal(sc_store_checkpoint(world->store, &world->error), SPEC_E_IO);
        writer_dies(world);
        world_open_ok(world);
        assert_int_equal(sc_store_epoch(world->store), 7);
        assert_int_equal(stats_of(world).piece_count, 0);
        world_free(world);
    }
}

/* ---- Checkpoints ----------------------------------------------------------------------------- */

/* A gap that was known at open excuses no other. */
static void a_checkpoint_leaves_out_nothing_that_was_damaged_since(void **state)
{
    (void)state;
    for (uint32_t known = 0; known < 3; known++) {
        uint64_t bytes;
        struct world *world = world_new(&small, 5);
        for (uint64_t key = 1; key <= 6; key++)
            assert_int_equal(world_store(world, key, 0, 64), SPEC_OK);
        writer_dies(world);
        if (known > 0) {
            uint64_t at = frame_find(world, SC_STORE_RECORD_EXTENT, 3, &bytes);
            damage(world, at, bytes);
        }
        sc_io_sim_fault_scope(world->disk, "log.new"); /* or it was written anew at open */
        sc_io_sim_fault_ppm(world->disk, SC_SIM_WRITE_EIO, known == 2 ? 1000000 : 0);
        world_open_ok(world);
        sc_io_sim_fault_ppm(world->disk, SC_SIM_WRITE_EIO, 0);
        world_wait_ns(world, world->config.lease_ns_max);
        assert_int_equal(world_store(world, 7, 0, 64), SPEC_OK);
        assert_int_equal(sc_store_epoch_set(world->store, 5, &world->error), SPEC_OK);
        assert_int_equal(world_store(world, 8, 0, 64), SPEC_OK);
        assert_int_equal(world_store(world, 9, 0, 64), SPEC_OK);
        (void)log_read(world);
        uint64_t at = 0; /* of the epoch's frame; searched, because there may be a gap before */
        for (uint64_t i = 0; i < world->store->log.journal.end.offset && at == 0; i++)
            if (i + SC_STORE_FRAME_BYTES + 40 < world->store->log.journal.end.offset &&
                memcmp(log_bytes + i, "SCL2", 4) == 0) {
                struct sc_store_record record = {0};
                uint64_t frame_bytes = sc_store_frame_bytes(log_bytes + i);
                if (sc_store_record_peek(log_bytes + i + SC_STORE_FRAME_BYTES,
                                         frame_bytes - SC_STORE_FRAME_BYTES, &record) &&
                    record.type == SC_STORE_RECORD_EPOCH)
                    at = i;
            }
        assert_true(at > 0);
        damage(world, at, 100); /* the epoch, and a part of what follows */
        assert_int_equal(sc_store_checkpoint(world->store, &world->error), SPEC_E_CORRUPT);
        assert_int_equal(sc_store_epoch(world->store), 5);
        world_free(world);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_follower_obeys_epochs_that_come_again),
        cmocka_unit_test(a_follower_obeys_a_reset_that_failed_once),
        cmocka_unit_test(a_last_record_that_may_be_a_reset_voids_what_was_before),
        cmocka_unit_test(a_reset_behind_too_much_damage_holds),
        cmocka_unit_test(a_loser_leaves_the_winners_reset),
        cmocka_unit_test(a_checkpoint_leaves_out_nothing_that_was_damaged_since),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

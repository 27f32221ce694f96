/* Checkpoints: the shorter log says what the longer one said, at every moment of its making, with
 * every fault, and beside a writer that goes on.
 *
 * Threads: the seeded loop; one test has threads of its own. */
#include "tests/unit/store/store_fixture.h"

#include "store/internal.h"
#include "tests/unit/store/space_check.h"

#include <pthread.h>

#define RANK_DIR "/sim/store/rank-0000-of-0001"
#define LOG_PATH RANK_DIR "/log"
#define NEW_PATH RANK_DIR "/log.new"
#define LEASE_NS 10000000000ull

#define MODELS 5000u /* more than one log has records of */

static const struct world_setup models = {
    "models",     WORLD_ON(SIM, 0),         WORLD_SHAPE(PAIRED, 3, 48, 0), WORLD_DISK(8, 1, 64),
    .journal = 2, .staging_bytes = 2u << 20};

static const struct world_setup small = {
    "small",      WORLD_ON(SIM, 0),         WORLD_SHAPE(PAIRED, 3, 48, 0), WORLD_DISK(8, 1, 64),
    .journal = 2, .staging_bytes = 2u << 20}; /* it opens 1,300 times */

struct found {
    const char *path;
    uint64_t bytes;
    bool is_there;
};

static void find_file(const char *path, uint64_t bytes, void *user)
{
    struct found *found = user;
    if (strcmp(path, found->path) == 0) {
        found->bytes = bytes;
        found->is_there = true;
    }
}

static struct found file_find(struct world *world, const char *path)
{
    struct found found = {.path = path};
    sc_io_sim_disk_files(world->disk, find_file, &found);
    return found;
}

static void checkpoint_ok(struct world *world)
{
    if (sc_store_checkpoint(world->store, &world->error) != SPEC_OK)
        fail_msg("checkpoint: %s", world->error.text);
    assert_false(file_find(world, NEW_PATH).is_there);
}

/* What the last open told of is what the twin has; its rows are right, or (rows_may_miss) fail. */
static void check_twin(struct world *world, bool rows_may_miss)
{
    struct sc_store_reader *reader = world_reader(world);
    assert_int_equal(world->open_count, world->piece_count);
    for (uint32_t i = 0; i < world->piece_count; i++) {
        assert_true(world->pieces[i].seen);
        for (uint32_t layer = 0; layer < world->setup->layers; layer++) {
            struct loaded loaded = world_load_piece(world, reader, layer, &world->pieces[i]);
            if (loaded.status == SPEC_OK || !rows_may_miss) {
                assert_int_equal(loaded.status, SPEC_OK);
                assert_int_equal(loaded.rows, world->pieces[i].row_count);
            }
        }
    }
    sc_store_readers_close(reader, 1);
    space_check(world->store);
}

/* As kill -9 does: nothing is done at close, and what was written stays. */
static void world_kill(struct world *world)
{
    struct sc_io_sim_disk *after = NULL;
    assert_int_equal(sc_io_sim_disk_copy(world->disk, &after, NULL), SPEC_OK);
    world_close(world);
    sc_io_sim_disk_close(world->disk);
    world_disk(world, after);
}

static struct world *filled(uint64_t seed, uint64_t lease_ns)
{
    struct world *world = world_make(&small, seed);
    world->config.lease_ns_max = lease_ns;
    world_open_ok(world);
    for (uint64_t key = 1; key <= 8; key++)
        assert_int_equal(world_store(world, key, key * 7, (uint32_t)(20 * key)), SPEC_OK);
    return world;
}

/* ---- What is kept -----------------------------------------------------------------------------
 */

static void checkpoint_keeps_what_lives(void **state)
{
    (void)state;
    struct world *world = filled(1, 0);
    uint64_t next = sc_store_piece_next(world->store);
    world_drop(world, world->piece_count - 2, 2); /* the newest ids */
    world_drop(world, 0, 5);
    uint64_t before = file_find(world, LOG_PATH).bytes;
    checkpoint_ok(world);
    struct sc_store_stats stats = stats_of(world);
    assert_int_equal(stats.checkpoints, 1);
    assert_int_equal(stats.log_bytes, file_find(world, LOG_PATH).bytes);
    assert_true(stats.log_bytes < before);
    assert_int_equal(sc_store_piece_next(world->store), next);
    for (uint32_t round = 0; round < 3; round++) {
        world_kill(world);
        world_open_ok(world);
        check_twin(world, false);
        assert_int_equal(sc_store_piece_next(world->store), next); /* no id is given twice */
        if (round == 1)
            checkpoint_ok(world); /* of a checkpoint */
    }
    assert_int_equal(world_store(world, 50, 0, 64), SPEC_OK);
    assert_int_equal(world->pieces[world->piece_count - 1].id, next);
    world_free(world);
}

static void checkpoint_goes_on_where_the_log_ended(void **state)
{
    (void)state;
    struct world *world = filled(2, 0);
    for (uint64_t key = 100; key < 130; key++) {
        world_drop(world, 0, 1);
        checkpoint_ok(world);
        assert_int_equal(world_store(world, key, 0, 70), SPEC_OK);
    }
    struct sc_store_stats stats = stats_of(world);
    assert_int_equal(stats.checkpoints, 30);
    assert_int_equal(stats.corrupt_records, 0);
    world_kill(world);
    world_open_ok(world);
    check_twin(world, false);
    sc_store_stats(world->store, &stats);
    assert_int_equal(stats.corrupt_records, 0);
    world_free(world);
}

/* Pages that a reader may read on a lease are held over a checkpoint and a reopen, and not longer
 * than without one. */
static void checkpoint_keeps_the_quarantine(void **state)
{
    (void)state;
    struct world *world = filled(3, LEASE_NS);
    world_drop(world, 0, 4);
    world_wait_ns(world, LEASE_NS / 2);
    world_drop(world, 3, 6);
    uint64_t held = stats_of(world).quarantine_bytes;
    assert_true(held > 0);
    checkpoint_ok(world);
    assert_int_equal(stats_of(world).quarantine_bytes, held);
    world_kill(world);
    world_open_ok(world);
    check_twin(world, false);
    assert_int_equal(stats_of(world).quarantine_bytes, held);
    world_wait_ns(world, LEASE_NS / 2 + LEASE_NS / 16);
    uint64_t later = stats_of(world).quarantine_bytes;
    assert_true(later > 0 && later < held);
    uint64_t before = file_find(world, LOG_PATH).bytes;
    checkpoint_ok(world);
    assert_true(file_find(world, LOG_PATH).bytes < before); /* without those that are over */
    world_kill(world);
    world_open_ok(world);
    check_twin(world, false);
    assert_int_equal(stats_of(world).quarantine_bytes, later);
    world_wait_ns(world, LEASE_NS);
    assert_int_equal(stats_of(world).quarantine_bytes, 0);
    check_twin(world, false);
    world_free(world);
}

static uint64_t epoch_heard, epoch_calls;

static void hear_epoch(uint64_t epoch, void *user)
{
    struct world *world = user;
    epoch_heard = epoch;
    epoch_calls++;
    world->open_count = 0;
}

static void checkpoint_keeps_the_epoch(void **state)
{
    (void)state;
    for (uint32_t lease = 0; lease < 2; lease++) {
        struct world *world = filled(4, lease * LEASE_NS);
        for (uint64_t epoch = 1; epoch <= 3; epoch++) {
            assert_int_equal(sc_store_epoch_set(world->store, epoch, &world->error), SPEC_OK);
            world->piece_count = 0;
            assert_int_equal(world_store(world, 20 + epoch, 0, 100), SPEC_OK);
        }
        uint64_t held = stats_of(world).quarantine_bytes;
        checkpoint_ok(world);
        epoch_calls = 0;
        world->params.on_epoch = hear_epoch;
        world_kill(world);
        world_open_ok(world);
        check_twin(world, false);
        assert_int_equal(epoch_heard, 3);
        assert_int_equal(epoch_calls, 1); /* earlier ones add nothing */
        assert_int_equal(sc_store_epoch(world->store), 3);
        assert_int_equal(stats_of(world).quarantine_bytes, held);
        assert_int_equal(held > 0, lease == 1);
        assert_int_equal(sc_store_epoch_set(world->store, 4, &world->error), SPEC_OK);
        world_free(world);
    }
}

/* Another model's rows in the same directory. */
static void checkpoint_keeps_other_namespaces(void **state)
{
    (void)state;
    struct world *world = filled(5, 0);
    world_drop(world, 0, 3);
    world_close(world);
    struct sc_store_params params = world->params;
    world->params.space.digest[0] ^= 1;
    world_open_ok(world);
    assert_int_equal(world->open_count, 0);
    checkpoint_ok(world);
    world_close(world);
    world->params = params;
    world_open_ok(world);
    check_twin(world, false);
    world_free(world);
}

/* ---- Models that come and go ------------------------------------------------------------------
 */

static void model_set(struct world *world, uint64_t model)
{
    for (uint32_t i = 0; i < 8; i++)
        world->params.space.digest[i] = world->params.space.family[i] = (uint8_t)(model >> 8 * i);
}

/* Ids of namespaces in the log that is open, ascending; how many there are. */
static uint64_t space_ids(const struct world *world, uint32_t ret_ids[SC_STORE_SPACES_MAX])
{
    const struct sc_store_spaces *spaces = &world->store->log.spaces;
    uint64_t count = 0;
    for (uint64_t i = 0; i < spaces->entry_count; i++)
        if (!sc_store_space_at(spaces, i)->is_left_out)
            ret_ids[count++] = sc_store_space_at(spaces, i)->id;
    assert_int_equal(count, spaces->record_count);
    return count;
}

/* As many models as disk_bytes had no room for, one after the other. Each stores, and some are
 * killed; what a model has stored goes before the next comes. Model 0 alone keeps its rows. */
static void checkpoint_leaves_out_models_of_which_nothing_is_stored(void **state)
{
    (void)state;
    struct world *world = world_make(&models, 21);
    static char descriptor[900];
    uint64_t last_id = 0, checkpoints = 0;
    uint32_t kept_count = 0;
    struct world_piece kept[4]; /* of model 0 */
    memset(descriptor, 'x', sizeof(descriptor) - 1);
    world->params.space.descriptor = descriptor;
    world->config.lease_ns_max = 0;
    for (uint64_t model = 0; model < MODELS; model++) {
        model_set(world, model);
        world_open_ok(world);
        assert_int_equal(world->open_count, 0);
        uint32_t first = world->piece_count;
        spec_status status = world_store(world, 1 + model % 50, 0, 20);
        if (sc_store_checkpoint_due(world->store)) { /* as the connector's jobs do */
            checkpoint_ok(world);
            checkpoints++;
            status = status != SPEC_OK ? world_store(world, 1 + model % 50, 0, 20) : status;
        }
        if (status != SPEC_OK)
            fail_msg("model %llu: %s", (unsigned long long)model, world->error.text);
        uint32_t id = atomic_load(&world->store->log.space_id);
        assert_true(id > last_id); /* no id is given twice */
        last_id = id;
        if (model > 0)
            world_drop(world, first, world->piece_count - first);
        if (model % 16 == 5)
            world_kill(world);
        else
            world_close(world);
        if (model == 0) {
            kept_count = world->piece_count;
            assert_true(kept_count > 0 && kept_count <= 4);
            memcpy(kept, world->pieces, kept_count * sizeof(kept[0]));
        }
        world->piece_count = 0;
    }
    assert_true(checkpoints > 0);
    model_set(world, 0);
    world->piece_count = kept_count;
    memcpy(world->pieces, kept, kept_count * sizeof(kept[0]));
    world_open_ok(world);
    assert_int_equal(atomic_load(&world->store->log.space_id), 1);
    check_twin(world, false);
    world_free(world);
}

/* A power cut at each event of a checkpoint that leaves a model out, and of a store of the next
 * one: who comes then has its own rows, under an id that nobody had. */
static void checkpoint_cut_while_a_model_is_left_out(void **state)
{
    (void)state;
    struct world *world = filled(22, 0);
    uint32_t ids[SC_STORE_SPACES_MAX];
    world_close(world);
    struct sc_store_params params = world->params;
    uint32_t piece_count = world->piece_count;
    for (uint64_t model = 1; model < 4; model++) {
        model_set(world, model);
        world_open_ok(world);
        world->piece_count = piece_count;
        assert_int_equal(world_store(world, 40 + model, 0, 20), SPEC_OK);
        world_drop(world, piece_count, world->piece_count - piece_count);
        world_kill(world);
    }
    model_set(world, 9);
    world_open_ok(world);
    assert_int_equal(space_ids(world, ids), 4);
    assert_int_equal(sc_io_file_sync(world->store->io, world->store->log.journal.file, NULL),
                     SPEC_OK);
    uint64_t begin = sc_io_sim_disk_events(world->disk);
    checkpoint_ok(world);
    assert_int_equal(space_ids(world, ids), 1);
    assert_int_equal(ids[0], 1);
    uint64_t end = sc_io_sim_disk_events(world->disk);
    struct sc_io_sim_disk *disk = world->disk;
    struct sc_store *store = world->store;
    for (uint64_t events = begin; events <= end; events++) {
        for (uint64_t seed = 0; seed < 8; seed++) {
            struct sc_io_sim_disk *cut = NULL;
            assert_int_equal(sc_io_sim_disk_fork(disk, events, seed, &cut, NULL), SPEC_OK);
            world_disk(world, cut);
            model_set(world, 10);
            world->piece_count = piece_count;
            world_open_ok(world);
            assert_int_equal(world->open_count, 0);
            assert_int_equal(world_store(world, 60, 0, 20), SPEC_OK);
            assert_true(atomic_load(&world->store->log.space_id) > 4);
            world_close(world);
            world->piece_count = piece_count;
            memcpy(&world->params.space, &params.space, sizeof(params.space));
            world_open_ok(world);
            check_twin(world, true);
            world_close(world);
            sc_io_sim_disk_close(cut);
        }
    }
    world_disk(world, disk);
    world->store = store;
    world_free(world);
}

/* ---- What goes wrong ---------------------------------------------------------------------------
 */

/* Power is cut at each event of the checkpoint: the old log or the new one, complete. */
static void checkpoint_cut_anywhere_leaves_a_whole_log(void **state)
{
    (void)state;
    struct world *world = filled(6, LEASE_NS);
    for (uint64_t i = 0; i < world->store->disk.segment_count; i++)
        assert_int_equal(
            sc_io_file_sync(world->store->io, world->store->disk.segments[i].file, NULL), SPEC_OK);
    world_close(world); /* syncs the log */
    world_open_ok(world);
    world_drop(world, 2, 5);
    assert_int_equal(sc_io_file_sync(world->store->io, world->store->log.journal.file, NULL),
                     SPEC_OK);
    uint64_t begin = sc_io_sim_disk_events(world->disk);
    checkpoint_ok(world);
    uint64_t end = sc_io_sim_disk_events(world->disk);
    assert_true(end >= begin + 4); /* made, written, synced, renamed */
    struct sc_io_sim_disk *disk = world->disk;
    struct sc_store *store = world->store;
    uint64_t held = stats_of(world).quarantine_bytes;
    for (uint64_t events = begin; events <= end; events++) {
        for (uint64_t seed = 0; seed < 40; seed++) {
            struct sc_io_sim_disk *cut = NULL;
            assert_int_equal(sc_io_sim_disk_fork(disk, events, seed, &cut, NULL), SPEC_OK);
            world_disk(world, cut);
            world_open_ok(world);
            check_twin(world, true);
            assert_int_equal(stats_of(world).quarantine_bytes, held);
            assert_false(file_find(world, NEW_PATH).is_there);
            checkpoint_ok(world);
            world_reopen(world);
            check_twin(world, true);
            world_close(world);
            sc_io_sim_disk_close(cut);
        }
    }
    world_disk(world, disk);
    world->store = store;
    world_free(world);
}

/* Every n-th write, reserve, sync fails once: an error, or a checkpoint; and the store goes on. */
static void checkpoint_that_fails_leaves_the_old_log(void **state)
{
    (void)state;
    static const enum sc_io_sim_fault kinds[] = {SC_SIM_WRITE_EIO, SC_SIM_NO_SPACE, SC_SIM_SYNC_EIO,
                                                 SC_SIM_READ_EIO};
    for (uint32_t kind = 0; kind < 4; kind++) {
        uint32_t failed = 0;
        for (uint64_t n = 0;; n++) {
            struct world *world = filled(7, 0);
            world_drop(world, 2, 5);
            sc_io_sim_fault_nth(world->disk, kinds[kind], n);
            spec_status status = sc_store_checkpoint(world->store, &world->error);
            bool fired = sc_io_sim_fault_fired(world->disk, kinds[kind]) > 0;
            assert_true(fired || status == SPEC_OK); /* a rename that was not synced may stand */
            failed += status != SPEC_OK;
            assert_false(file_find(world, NEW_PATH).is_there);
            sc_io_sim_fault_ppm(world->disk, kinds[kind], 0);
            struct sc_store_stats stats = stats_of(world);
            assert_int_equal(stats.checkpoints, status == SPEC_OK);
            assert_int_equal(stats.log_bytes, file_find(world, LOG_PATH).bytes);
            if (fired) {
                assert_int_equal(world_store(world, 60, 0, 64), SPEC_OK);
                checkpoint_ok(world); /* retried */
            }
            world_kill(world);
            world_open_ok(world);
            check_twin(world, false);
            world_free(world);
            if (!fired)
                break;
        }
        assert_true(failed > 0);
    }
}

static const struct world_setup on_files = {"paired 1 KiB rows, in a directory", WORLD_ON(PREAD, 2),
                                            WORLD_SHAPE(PAIRED, 2, 512, 0), WORLD_DISK(8, 1, 64)};

/* Somebody removes the whole directory of an open store, or all that is in it, and a second writer
 * makes its own there: the first one neither replaces that one's log nor writes into its segments.
 */
static void checkpoint_of_a_removed_store_leaves_what_came_instead(void **state)
{
    (void)state;
    for (uint32_t way = 0; way < 2; way++) {
        struct world *first = world_new(&on_files, 1), *second = world_make(&on_files, 2);
        for (uint64_t key = 1; key <= 4; key++)
            assert_int_equal(world_store(first, key, 0, 64), SPEC_OK);
        char rank[SC_LIMIT_PATH_BYTES + 64], names[3][SC_LIMIT_PATH_BYTES + 128];
        (void)snprintf(rank, sizeof(rank), "%s/rank-0000-of-0001", first->config.path);
        (void)snprintf(names[0], sizeof(names[0]), "%s/lock", rank);
        (void)snprintf(names[1], sizeof(names[1]), "%s/log", rank);
        (void)snprintf(names[2], sizeof(names[2]), "%s/seg-00000000", rank);
        for (uint32_t i = 0; i < 3 && way == 1; i++)
            assert_int_equal(unlink(names[i]), 0);
        if (way == 0)
            remove_tree(first->config.path);
        (void)snprintf(second->config.path, sizeof(second->config.path), "%s", first->config.path);
        world_open_ok(second);
        for (uint64_t key = 11; key <= 14; key++)
            assert_int_equal(world_store(second, key, 0, 64), SPEC_OK);
        spec_status status = sc_store_checkpoint(first->store, &first->error);
        assert_int_equal(status, SPEC_E_IO);
        for (uint64_t key = 21; key <= 80; key++) /* more than its segment holds */
            (void)world_store(first, key, 0, 64);
        world_drop(first, 0, 2);
        (void)sc_store_checkpoint(first->store, &first->error);
        for (uint64_t key = 31; key <= 44; key++)
            assert_int_equal(world_store(second, key, 0, 64), SPEC_OK);
        assert_int_equal(sc_store_checkpoint(second->store, &second->error), SPEC_OK);
        world_close(first);
        world_close(second);
        world_open_ok(second);
        check_twin(second, false);
        assert_int_equal(second->open_count, 4 + 14);
        world_free(second);
        world_free(first);
    }
}

/* All that disk_bytes allows is used or promised: nothing more is taken, and the log can be written
 * anew all the same, within the same bound. */
static void checkpoint_has_room_when_nothing_else_has(void **state)
{
    (void)state;
    struct world *world = filled(8, 0);
    world_drop(world, 2, 2);
    uint64_t before = file_find(world, LOG_PATH).bytes;
    uint64_t disk_bytes_max = world->store->disk.bytes_max;
    uint64_t used = sc_store_disk_used(world->store);
    world->store->disk.bytes_max = used - SC_IO_PAGE_BYTES; /* what rounding leaves */
    assert_int_equal(world_store(world, 60, 0, 64), SPEC_E_NO_SPACE);
    assert_true(used - world->store->disk.segment_bytes >= 2 * before); /* it is counted twice */
    checkpoint_ok(world);
    assert_true(file_find(world, LOG_PATH).bytes <= before);
    assert_true(sc_store_disk_used(world->store) <= used);
    world->store->disk.bytes_max = disk_bytes_max;
    assert_int_equal(world_store(world, 60, 0, 64), SPEC_OK);
    world_kill(world);
    world_open_ok(world);
    check_twin(world, false);
    world_free(world);
}

static void checkpoint_of_a_damaged_log_leaves_it(void **state)
{
    (void)state;
    struct world *world = filled(9, 0);
    uint64_t bytes = file_find(world, LOG_PATH).bytes;
    for (uint64_t i = 0; i < 40; i++) /* more than a header */
        disk_flip(world, LOG_PATH, bytes / 2 + i, 1);
    assert_int_equal(sc_store_checkpoint(world->store, &world->error), SPEC_E_CORRUPT);
    assert_non_null(strstr(world->error.text, "damaged at byte"));
    assert_false(file_find(world, NEW_PATH).is_there);
    for (uint64_t i = 0; i < 40; i++)
        disk_flip(world, LOG_PATH, bytes / 2 + i, 1);
    checkpoint_ok(world);
    world_free(world);
}

/* Records that are damaged while the store is open. */
static void checkpoint_restores_what_it_copies(void **state)
{
    (void)state;
    struct world *world = filled(9, 0);
    uint64_t bytes = file_find(world, LOG_PATH).bytes;
    for (uint64_t at = 5; at < bytes; at = 2 * at + 13) {
        disk_flip(world, LOG_PATH, at, 8);
        checkpoint_ok(world);
        world_kill(world);
        world_open_ok(world);
        assert_int_equal(stats_of(world).corrupt_records, 0);
        check_twin(world, false);
        bytes = file_find(world, LOG_PATH).bytes;
    }
    world_free(world);
}

static void checkpoint_left_by_a_crash_is_removed(void **state)
{
    (void)state;
    struct world *world = filled(10, 0);
    struct sc_io_file *file = NULL;
    assert_int_equal(sc_io_file_open(world->store->io, NEW_PATH,
                                     SC_IO_OPEN_CREATE | SC_IO_OPEN_WRITE, &file, NULL),
                     SPEC_OK);
    assert_int_equal(sc_io_file_pwrite(world->store->io, file, "half", 4, 0, NULL), SPEC_OK);
    sc_io_file_close(world->store->io, file);
    world_kill(world);
    assert_true(file_find(world, NEW_PATH).is_there);
    world_open_ok(world);
    assert_false(file_find(world, NEW_PATH).is_there);
    check_twin(world, false);
    world_free(world);
}

/* ---- When ---------------------------------------------------------------------------------------
 */

static void checkpoint_is_due_when_enough_is_void(void **state)
{
    (void)state;
    struct world *world = filled(11, 0);
    world->config.checkpoint_bytes = 1u << 20;
    assert_false(sc_store_checkpoint_due(world->store)); /* it is short */
    uint64_t key = 100;
    while (world->store->log.journal.end.offset < 256u << 10) {
        assert_int_equal(world_store(world, key++, 0, 1), SPEC_OK);
        if (world->piece_count > 200)
            world_drop(world, 0, 60);
    }
    assert_true(sc_store_checkpoint_due(world->store));
    checkpoint_ok(world);
    assert_false(sc_store_checkpoint_due(world->store));
    world_free(world);
    world = world_make(&small, 11);
    world->config.disk_bytes = 32u << 20;
    world_open_ok(world);
    for (key = 100; world->store->log.journal.end.offset < 300u << 10; key++)
        assert_int_equal(world_store(world, key, 0, 640), SPEC_OK);
    assert_false(sc_store_checkpoint_due(world->store)); /* it is long, and all of it lives */
    world_free(world);
}

static void close_makes_a_checkpoint_when_it_is_worth_it(void **state)
{
    (void)state;
    struct world *world = filled(12, 0);
    uint64_t before = file_find(world, LOG_PATH).bytes;
    world_close(world);
    assert_int_equal(file_find(world, LOG_PATH).bytes, before); /* all of it lives */
    world_open_ok(world);
    world_drop(world, 0, world->piece_count / 2);
    world_close(world);
    uint64_t after = file_find(world, LOG_PATH).bytes;
    assert_true(after < before * 3 / 4);
    world_open_ok(world);
    check_twin(world, false);
    assert_int_equal(world->store->log.journal.head.number, 1);
    world_reopen(world);
    assert_int_equal(world->store->log.journal.head.number, 1);
    /* A failure is a line of the log, and the old log. */
    world_drop(world, 0, world->piece_count / 2);
    sc_io_sim_fault_nth(world->disk, SC_SIM_SYNC_EIO, 0);
    world_close(world);
    sc_log_drain(&world->log);
    assert_non_null(strstr(world->last_line, "keeps what is void"));
    world_open_ok(world);
    check_twin(world, false);
    world_free(world);
}

/* What a host's allocator does meanwhile: here, a pass that is stored and dropped, and its lease.
 */
struct meanwhile {
    struct world *world;
    bool is_armed;
};

static void *meanwhile_alloc(uint64_t bytes, uint64_t align_bytes, void *user)
{
    struct meanwhile *meanwhile = user;
    struct world *world = meanwhile->world;
    if (meanwhile->is_armed &&
        bytes / 1024 == sizeof(uint64_t)) { /* ids of void pieces: in the bulk */
        meanwhile->is_armed = false;
        assert_int_equal(world_store(world, 100, 0, 200), SPEC_OK);
        while (world->pieces[world->piece_count - 1].key == 100)
            world_drop(world, world->piece_count - 1, 1);
        world_wait_ns(world, 2 * LEASE_NS);
        assert_int_equal(stats_of(world).quarantine_bytes, 0); /* its places may be given again */
    }
    return aligned_alloc(align_bytes, bytes);
}

static void meanwhile_free(void *memory, uint64_t bytes, void *user)
{
    (void)bytes;
    (void)user;
    free(memory);
}

/* Ids that came and went while the log was copied are not given again. */
static void checkpoint_keeps_ids_that_came_and_went_meanwhile(void **state)
{
    (void)state;
    struct world *world = world_make(&small, 9);
    struct meanwhile meanwhile = {.world = world};
    world->alloc.host_alloc = meanwhile_alloc;
    world->alloc.host_free = meanwhile_free;
    world->alloc.user = &meanwhile;
    world->config.lease_ns_max = LEASE_NS;
    world_open_ok(world);
    for (uint64_t key = 1; key <= 8; key++)
        assert_int_equal(world_store(world, key, key * 7, (uint32_t)(20 * key)), SPEC_OK);
    world_drop(world, 0, 1);
    meanwhile.is_armed = true;
    checkpoint_ok(world);
    assert_false(meanwhile.is_armed);
    uint64_t next = sc_store_piece_next(world->store);
    for (uint32_t round = 0; round < 3; round++) {
        world_kill(world);
        world_open_ok(world);
        check_twin(world, false);
        assert_int_equal(sc_store_piece_next(world->store), next);
        if (round == 1)
            checkpoint_ok(world);
    }
    world_free(world);
}

/* ---- Twins
 * --------------------------------------------------------------------------------------- */

static void checkpoints_between_random_operations(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        uint64_t random = seed, key = 1, epoch = 0;
        struct world *world = world_make(&small, seed);
        world->config.lease_ns_max = seed % 3 * LEASE_NS;
        if (seed % 2 == 0)
            world->params.on_epoch = hear_epoch;
        world_open_ok(world);
        for (uint32_t step = 0; step < 80; step++) {
            uint64_t what = random_below(&random, 20);
            if (what < 8)
                (void)world_store(world, key++, random_below(&random, 100),
                                  (uint32_t)random_below(&random, 300) + 1);
            else if (what < 12 && world->piece_count > 0)
                world_drop(world, (uint32_t)random_below(&random, world->piece_count), 1);
            else if (what < 15)
                checkpoint_ok(world);
            else if (what == 15)
                world_wait_ns(world, random_below(&random, LEASE_NS));
            else if (what == 16 && random_below(&random, 3) == 0) {
                assert_int_equal(sc_store_epoch_set(world->store, ++epoch, NULL), SPEC_OK);
                world->piece_count = 0;
            } else if (what >= 17) {
                if (what == 17)
                    world_close(world);
                else
                    world_kill(world);
                world_open_ok(world);
                check_twin(world, false);
                assert_int_equal(sc_store_epoch(world->store), epoch);
            }
        }
        world_free(world);
    }
}

/* Stores and drops on one thread, checkpoints on another. */
struct churn {
    struct world *world;
    _Atomic uint32_t stops, checkpoints;
};

static void *churn_run(void *arg)
{
    struct churn *churn = arg;
    while (atomic_load(&churn->stops) == 0) {
        if (sc_store_checkpoint(churn->world->store, NULL) == SPEC_OK)
            (void)atomic_fetch_add(&churn->checkpoints, 1);
    }
    return NULL;
}

static void checkpoint_beside_a_writer_loses_nothing(void **state)
{
    (void)state;
    static const struct world_setup threads = {
        "threads", WORLD_ON(PREAD, 2), WORLD_SHAPE(PAIRED, 2, 48, 0), WORLD_DISK(64, 4, 64)};
    struct world *world = world_make(&threads, 1);
    world->config.lease_ns_max = 1000000;
    world_open_ok(world);
    enum { KEYS = 600, KEYS_MOST = KEYS + 12000 }; /* two minutes more */
    struct churn churn = {.world = world};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, churn_run, &churn), 0);
    uint64_t random = 1, epoch = 0;
    /* Until the other thread came to it; it is not outrun while nothing makes the log shorter. */
    for (uint64_t key = 1;
         key <= KEYS || (atomic_load(&churn.checkpoints) == 0 && key <= KEYS_MOST); key++) {
        if (key > KEYS)
            (void)usleep(10000);
        (void)world_store(world, key, 0, (uint32_t)random_below(&random, 150) + 1);
        if (key % 2 == 0 && world->piece_count > 2)
            world_drop(world, (uint32_t)random_below(&random, world->piece_count - 2), 2);
        if (key % 200 == 0) {
            assert_int_equal(sc_store_epoch_set(world->store, ++epoch, NULL), SPEC_OK);
            world->piece_count = 0;
        }
    }
    atomic_store(&churn.stops, 1);
    assert_int_equal(pthread_join(thread, NULL), 0);
    if (atomic_load(&churn.checkpoints) == 0)
        fail_msg("no checkpoint was made beside %u stores", (unsigned)KEYS_MOST);
    for (uint32_t round = 0; round < 2; round++) {
        world_reopen(world);
        check_twin(world, false);
        assert_int_equal(sc_store_epoch(world->store), epoch);
    }
    world_free(world);
}

/* The writer named its namespace itself, and nothing of it is stored: it goes on under its id. */
static void the_own_namespace_stays_in_an_empty_log(void **state)
{
    (void)state;
    struct world *world = world_new(&small, 31);
    assert_int_equal(world_store(world, 1, 0, 64), SPEC_OK);
    world_drop(world, 0, 1);
    assert_int_equal(sc_store_checkpoint(world->store, &world->error), SPEC_OK);
    assert_int_equal(world_store(world, 2, 0, 64), SPEC_OK);
    world_reopen(world);
    rows_ok(world, 2);
    world_free(world);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_own_namespace_stays_in_an_empty_log),
        cmocka_unit_test(checkpoint_keeps_what_lives),
        cmocka_unit_test(checkpoint_goes_on_where_the_log_ended),
        cmocka_unit_test(checkpoint_keeps_the_quarantine),
        cmocka_unit_test(checkpoint_keeps_ids_that_came_and_went_meanwhile),
        cmocka_unit_test(checkpoint_keeps_the_epoch),
        cmocka_unit_test(checkpoint_keeps_other_namespaces),
        cmocka_unit_test(checkpoint_leaves_out_models_of_which_nothing_is_stored),
        cmocka_unit_test(checkpoint_cut_while_a_model_is_left_out),
        cmocka_unit_test(checkpoint_cut_anywhere_leaves_a_whole_log),
        cmocka_unit_test(checkpoint_that_fails_leaves_the_old_log),
        cmocka_unit_test(checkpoint_of_a_removed_store_leaves_what_came_instead),
        cmocka_unit_test(checkpoint_has_room_when_nothing_else_has),
        cmocka_unit_test(checkpoint_of_a_damaged_log_leaves_it),
        cmocka_unit_test(checkpoint_restores_what_it_copies),
        cmocka_unit_test(checkpoint_left_by_a_crash_is_removed),
        cmocka_unit_test(checkpoint_is_due_when_enough_is_void),
        cmocka_unit_test(close_makes_a_checkpoint_when_it_is_worth_it),
        cmocka_unit_test(checkpoints_between_random_operations),
        cmocka_unit_test(checkpoint_beside_a_writer_loses_nothing),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

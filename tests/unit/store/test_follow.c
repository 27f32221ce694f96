/* Followers: what a reader or peer was told of is what the writer has, whatever the writer does
 * meanwhile and wherever its last write stands; and nothing on disk changes by it.
 *
 * Threads: the seeded loop. */
#include "store/log/where.h"
#include "tests/unit/store/copy_check.h"
#include "tests/unit/store/follower_fixture.h"

#define RANK_DIR "/sim/store/rank-0000-of-0001"
#define LOG_PATH RANK_DIR "/log"

static const struct world_setup small = {"small", WORLD_ON(SIM, 0), WORLD_SHAPE(PAIRED, 3, 48, 0),
                                         WORLD_DISK(8, 1, 64), .journal = 1};

static void reset(struct world *world)
{
    uint64_t epoch = sc_store_epoch(world->store) + 1;
    assert_int_equal(sc_store_epoch_set(world->store, epoch, &world->error), SPEC_OK);
    world->piece_count = 0;
}

/* ---- Tests ----------------------------------------------------------------------------------- */

static void follow_waits_for_what_is_not_there(void **state)
{
    (void)state;
    for (uint32_t role = SC_STORE_READER; role <= SC_STORE_PEER; role++) {
        struct world *world = world_make(&small, 1);
        struct follower *follower = follower_new(world, role);
        assert_int_equal(sc_io_sim_disk_events(world->disk), 0);
        follow(follower);
        assert_int_equal(sc_store_follow_ns(follower->store), 0);
        assert_int_equal(sc_io_sim_disk_events(world->disk), 0); /* not even the directory */
        world_open_ok(world);
        follow(follower);
        assert_true(sc_store_follow_ns(follower->store) > 0);
        check_same(follower);
        assert_int_equal(world_store(world, 1, 0, 130), SPEC_OK);
        follow(follower);
        assert_int_equal(follower->told_count, 3);
        check_same(follower);
        world_drop(world, 2, 1);
        follow(follower);
        assert_int_equal(follower->told_count, 2);
        check_same(follower);
        if (role == SC_STORE_READER)
            check_rows_told(follower);
        follower_free(follower);
        world_free(world);
    }
}

static void follow_opens_with_what_is_there(void **state)
{
    (void)state;
    struct world *world = world_new(&small, 2);
    for (uint64_t key = 1; key <= 5; key++)
        assert_int_equal(world_store(world, key, 0, 100), SPEC_OK);
    world_drop(world, 3, 1);
    for (uint32_t role = SC_STORE_READER; role <= SC_STORE_PEER; role++) {
        struct follower *follower = follower_new(world, role);
        check_same(follower);
        assert_true(sc_store_follow_ns(follower->store) > 0);
        follower_free(follower);
    }
    world_free(world);
}

/* A promise is as old as the last poll that found nothing new, not as the last call. */
static void follow_promises_from_before_the_poll(void **state)
{
    (void)state;
    struct world *world = world_make(&small, 3);
    struct follower *follower = follower_make(world, SC_STORE_READER);
    world_open_ok(world);
    follower_open(follower);
    uint64_t before_ns = sc_exec_wall_ns(world->exec);
    assert_int_equal(world_store(world, 1, 0, 64), SPEC_OK); /* moves the clock */
    assert_true(sc_store_follow_ns(follower->store) <= before_ns);
    uint64_t now_ns = sc_exec_wall_ns(world->exec);
    assert_true(now_ns > before_ns);
    follow(follower);
    assert_int_equal(sc_store_follow_ns(follower->store), now_ns);
    assert_int_equal(world_store(world, 2, 0, 64), SPEC_OK);
    follower->piece_ns = 5000000; /* drops during this time may be missed */
    uint64_t loop_ns = sc_exec_now_ns(world->exec);
    now_ns = sc_exec_wall_ns(world->exec);
    follow(follower);
    assert_int_equal(sc_exec_now_ns(world->exec), loop_ns + 5000000);
    assert_int_equal(sc_store_follow_ns(follower->store), now_ns);
    assert_int_equal(sc_store_follow_now_ns(follower->store), loop_ns);
    follower_free(follower);
    world_free(world);
}

/* A reader of a model whose record a checkpoint leaves out and that comes again, while other models
 * come: it is told of its own rows, each time, and never of another's. */
static void follow_finds_a_model_that_comes_again(void **state)
{
    (void)state;
    struct world *world = world_new(&small, 30);
    struct sc_store_params params = world->params;
    world->config.lease_ns_max = 0;
    struct follower *follower = follower_new(world, SC_STORE_READER);
    uint32_t last_id = 0;
    for (uint64_t round = 0; round < 6; round++) {
        bool is_own = round % 2 == 0;
        world->params.space = params.space;
        world->params.space.digest[1] ^= (uint8_t)round * (is_own ? 0 : 1);
        world->params.space.family[1] ^= (uint8_t)round * (is_own ? 0 : 1);
        world_reopen(world);
        uint32_t first = world->piece_count;
        assert_int_equal(world_store(world, 1 + round, 0, 20), SPEC_OK);
        assert_true(atomic_load(&world->store->log.space_id) > last_id); /* a new one, each time */
        last_id = atomic_load(&world->store->log.space_id);
        follow(follower);
        if (is_own) {
            check_same(follower);
            assert_int_equal(atomic_load(&follower->store->log.space_id), last_id);
        } else {
            assert_int_equal(follower->told_count, 0);
        }
        for (uint32_t i = 0; i < follower->told_count; i++) {
            const struct sc_store_range range = {.piece = follower->told[i].id,
                                                 .row_count = follower->told[i].piece.row_count};
            assert_true(sc_store_range_is_there(follower->store, &range));
        }
        world_drop(world, first, world->piece_count - first);
        if (round % 3 == 1)
            follow(follower);
        /* Another model's process leaves this one out. */
        world->params.space.digest[2] ^= 0x55;
        world_reopen(world);
        assert_int_equal(sc_store_checkpoint(world->store, &world->error), SPEC_OK);
        assert_int_equal(world->store->log.spaces.record_count, 0);
        if (round % 3 == 2)
            follow(follower);
    }
    struct sc_store_stats stats;
    sc_store_stats(follower->store, &stats);
    assert_int_equal(stats.corrupt_records, 0);
    follower_free(follower);
    world_free(world);
}

static void follow_hears_of_resets(void **state)
{
    (void)state;
    struct world *world = world_make(&small, 4);
    struct follower *readers[2];
    for (uint32_t i = 0; i < 2; i++)
        readers[i] = follower_make(world, SC_STORE_READER + i);
    reset((world_open_ok(world), world)); /* before anything was stored */
    for (uint32_t i = 0; i < 2; i++) {
        follower_open(readers[i]);
        assert_int_equal(readers[i]->epoch, 1);
    }
    assert_int_equal(world_store(world, 1, 0, 130), SPEC_OK);
    for (uint32_t i = 0; i < 2; i++) {
        follow(readers[i]);
        assert_int_equal(readers[i]->told_count, 3);
    }
    reset(world);
    assert_int_equal(world_store(world, 2, 0, 64), SPEC_OK);
    for (uint32_t i = 0; i < 2; i++) {
        follow(readers[i]);
        assert_int_equal(readers[i]->epoch, 2);
        assert_int_equal(readers[i]->told_count, 1);
        assert_int_equal(readers[i]->drops, 0);
        check_same(readers[i]);
    }
    /* No effect: not beyond. */
    uint64_t events = sc_io_sim_disk_events(world->disk);
    assert_int_equal(sc_store_epoch_set(world->store, 1, NULL), SPEC_OK);
    assert_int_equal(sc_store_epoch_set(world->store, 2, NULL), SPEC_OK);
    assert_int_equal(sc_io_sim_disk_events(world->disk), events);
    /* And after a reopen of the writer. */
    world_close(world);
    world->params.on_epoch = NULL;
    world_open_ok(world);
    assert_int_equal(sc_store_epoch(world->store), 2);
    assert_int_equal(world->open_count, 1);
    check_same(readers[0]);
    assert_int_equal(sc_store_epoch_set(readers[0]->store, 9, NULL), SPEC_E_UNSUPPORTED);
    for (uint32_t i = 0; i < 2; i++)
        follower_free(readers[i]);
    world_free(world);
}

/* A reader is told of its own model; a peer of the family; each only so. */
static void follow_tells_of_its_own(void **state)
{
    (void)state;
    struct world *world = world_new(&small, 5);
    assert_int_equal(world_store(world, 1, 0, 64), SPEC_OK);
    struct follower *other = follower_make(world, SC_STORE_READER);
    other->params.space.digest[3] ^= 1;
    follower_open(other);
    assert_int_equal(other->told_count, 0);
    assert_true(sc_store_follow_ns(other->store) > 0);
    struct follower *stranger = follower_make(world, SC_STORE_PEER);
    stranger->params.space.family[3] ^= 1;
    follower_open(stranger);
    assert_int_equal(stranger->told_count, 0);
    follower_free(other);
    follower_free(stranger);
    world_free(world);
}

/* Read only when there may be more; what is known grows all the same. */
static void follow_reads_what_changed(void **state)
{
    (void)state;
    struct world *world = world_new(&small, 12);
    assert_int_equal(world_store(world, 1, 0, 64), SPEC_OK);
    struct follower *follower = follower_new(world, SC_STORE_READER);
    uint64_t known_ns = 0;
    follow(follower);
    for (uint32_t i = 0; i < 3; i++) {
        world_wait_ns(world, 25000000);
        assert_false(sc_store_follow_due(follower->store));
        assert_true(sc_store_follow_ns(follower->store) > known_ns);
        known_ns = sc_store_follow_ns(follower->store);
        assert_int_equal(known_ns, sc_exec_wall_ns(world->exec));
    }
    world_drop(world, 0, 1);
    assert_true(sc_store_follow_due(follower->store)); /* and again, as long as nobody looked */
    assert_true(sc_store_follow_due(follower->store));
    assert_int_equal(sc_store_follow_ns(follower->store), known_ns);
    follow(follower);
    check_same(follower);
    assert_false(sc_store_follow_due(follower->store));
    assert_int_equal(sc_store_checkpoint(world->store, NULL), SPEC_OK);
    assert_true(sc_store_follow_due(follower->store));
    follower_free(follower);
    world_free(world);
}

/* A frame that cannot be read is looked at again, though nothing changes: it may be damage. */
static void follow_reads_on_behind_what_it_refused(void **state)
{
    (void)state;
    struct world *world = world_new(&small, 13);
    assert_int_equal(world_store(world, 1, 0, 64), SPEC_OK);
    struct follower *follower = follower_new(world, SC_STORE_READER);
    follow(follower);
    uint64_t end = world->store->log.journal.end.offset;
    assert_true(sc_io_sim_disk_resize(world->disk, LOG_PATH, end + 100)); /* zeros, so far */
    bool more = true;
    for (uint32_t i = 0; i < 5; i++) {
        assert_true(sc_store_follow_due(follower->store));
        assert_int_equal(sc_store_follow(follower->store, &more, &follower->error), SPEC_OK);
    }
    assert_true(sc_io_sim_disk_resize(world->disk, LOG_PATH, end));
    follow(follower);
    assert_false(sc_store_follow_due(follower->store));
    follower_free(follower);
    world_free(world);
}

/* The log as it is while the writer's append is under way: any number of its bytes. */
static void follow_waits_for_half_a_frame(void **state)
{
    (void)state;
    struct world *world = world_new(&small, 6);
    assert_int_equal(world_store(world, 1, 0, 64), SPEC_OK);
    uint64_t begin = world->store->log.journal.end.offset;
    assert_int_equal(world_store(world, 2, 0, 130), SPEC_OK);
    world_drop(world, 0, 1);
    uint64_t end = world->store->log.journal.end.offset;
    uint8_t *bytes = malloc(end);
    assert_true(sc_io_sim_disk_peek(world->disk, LOG_PATH, 0, bytes, end));
    for (uint64_t cut = begin; cut < end; cut++) {
        for (uint32_t garbage = 0; garbage < 2; garbage++) {
            struct follower *follower = follower_make(world, SC_STORE_PEER);
            /* Bytes behind the cut are not there, or are zeros as yet. */
            assert_true(sc_io_sim_disk_resize(world->disk, LOG_PATH, cut));
            if (garbage == 1)
                assert_true(sc_io_sim_disk_resize(world->disk, LOG_PATH, end));
            follower_open(follower);
            follow(follower);
            assert_true(follower->told_count >= 1);
            assert_true(follower->told_count + follower->drops <= 4);
            assert_true(sc_io_sim_disk_resize(world->disk, LOG_PATH, end));
            assert_true(sc_io_sim_disk_poke(world->disk, LOG_PATH, 0, bytes, end));
            follow(follower);
            check_same(follower);
            follower_free(follower);
        }
    }
    free(bytes);
    world_free(world);
}

/* Offset of the log's n-th frame. */
static uint64_t frame_at(const struct world *world, const uint8_t *log, uint64_t bytes, uint64_t n)
{
    struct sc_store_log_end end = sc_store_log_start(world->store);
    struct sc_store_frame frame;
    for (uint64_t i = 0; i < n; i++)
        assert_int_equal(
            sc_store_frame_check(log + end.offset, bytes - end.offset, end.offset, &end, &frame),
            SC_STORE_FRAME_OK);
    return end.offset;
}

static void length_flip(struct world *world, const uint8_t *log, uint64_t at, bool is_wrong)
{
    uint8_t top = (uint8_t)(log[at + 6] ^ (is_wrong ? 0x01 : 0)); /* 64 KiB more */
    assert_true(sc_io_sim_disk_poke(world->disk, LOG_PATH, at + 6, &top, 1));
}

/* A log that is read from its start again, and whose frames' lengths are read wrong for a while, a
 * frame at a time: none of them is its end. */
static void follow_takes_no_wrong_length_for_the_end(void **state)
{
    (void)state;
    struct world *world = world_new(&small, 8);
    for (uint64_t key = 1; key <= 6; key++)
        assert_int_equal(world_store(world, key, 0, 130), SPEC_OK);
    struct follower *follower = follower_new(world, SC_STORE_READER);
    assert_int_equal(sc_store_checkpoint(world->store, NULL), SPEC_OK);
    uint64_t end = world->store->log.journal.end.offset;
    uint8_t *log = malloc(end);
    assert_true(sc_io_sim_disk_peek(world->disk, LOG_PATH, 0, log, end));
    for (uint64_t n = 2; n <= 6; n++) {
        uint64_t at = frame_at(world, log, end, n);
        length_flip(world, log, at, true);
        follow(follower);
        length_flip(world, log, at, false);
        assert_int_equal(follower->drops, 0);
    }
    follow(follower);
    check_same(follower);
    check_rows_told(follower);
    free(log);
    follower_free(follower);
    world_free(world);
}

/* An append that failed is cut off, and the next one stands in its place, as long as it was. */
static void follow_forgets_what_was_cut_off(void **state)
{
    (void)state;
    struct world *world = world_new(&small, 7);
    assert_int_equal(world_store(world, 1, 0, 64), SPEC_OK);
    uint64_t begin = world->store->log.journal.end.offset;
    struct sc_io_sim_disk *whole = NULL;
    assert_int_equal(sc_io_sim_disk_copy(world->disk, &whole, NULL), SPEC_OK);
    assert_int_equal(world_store(world, 2, 0, 64), SPEC_OK);
    uint64_t end = world->store->log.journal.end.offset;
    uint8_t *bytes = malloc(end);
    struct follower *follower = follower_new(world, SC_STORE_PEER);
    assert_int_equal(follower->told_count, 2);
    /* The same store again, from before, stores another prompt of the same length. */
    struct sc_io_sim_disk *first = world->disk;
    world_close(world);
    world_disk(world, whole);
    world_open_ok(world);
    assert_int_equal(world_store(world, 3, 0, 64), SPEC_OK);
    assert_int_equal(world->store->log.journal.end.offset, end);
    assert_true(sc_io_sim_disk_peek(whole, LOG_PATH, 0, bytes, end));
    for (uint32_t step = 0; step < 2; step++) {
        if (step == 0) {
            assert_true(sc_io_sim_disk_resize(first, LOG_PATH, begin));
        } else {
            assert_true(sc_io_sim_disk_resize(first, LOG_PATH, end));
            assert_true(sc_io_sim_disk_poke(first, LOG_PATH, 0, bytes, end));
        }
        follow(follower);
        assert_int_equal(follower->told_count, 1); /* an id never comes to mean other rows */
        assert_int_equal(follower->told[0].piece.key, 1);
    }
    free(bytes);
    follower_free(follower);
    sc_io_sim_disk_close(first);
    world_free(world);
}

static void follow_stops_at_a_newer_version(void **state)
{
    (void)state;
    struct world *world = world_new(&small, 8);
    assert_int_equal(world_store(world, 1, 0, 64), SPEC_OK);
    struct follower *follower = follower_new(world, SC_STORE_PEER);
    struct sc_store_append append;
    sc_store_append_begin(world->store, &append);
    sc_store_append_frame(&append);
    memcpy(append.writer.bytes + append.writer.used, "\x83\xA1v\x02\xA1t\x04\xA2id\x01", 11);
    append.writer.used += 11;
    assert_int_equal(sc_store_append_commit(world->store, &append, NULL), SPEC_OK);
    bool more = true;
    assert_int_equal(sc_store_follow(follower->store, &more, &follower->error), SPEC_E_VERSION);
    assert_non_null(strstr(follower->error.text, "version 2"));
    for (uint32_t i = 0; i < 3; i++)
        follow(follower); /* said once */
    struct follower *late = follower_make(world, SC_STORE_READER);
    assert_int_equal(sc_store_open(&late->params, &late->store, &late->error), SPEC_E_VERSION);
    follower_free(late);
    follower_free(follower);
    world_free(world);
}

static void follow_refuses_what_is_not_a_store(void **state)
{
    (void)state;
    struct world *world = world_new(&small, 9);
    world_close(world);
    assert_true(sc_io_sim_disk_poke(world->disk, "/sim/store/store.msgpack", 0, "{\"a\"", 4));
    for (uint32_t role = SC_STORE_READER; role <= SC_STORE_PEER; role++) {
        struct follower *follower = follower_make(world, role);
        assert_int_equal(sc_store_open(&follower->params, &follower->store, &follower->error),
                         SPEC_E_VERSION);
        follower_free(follower);
    }
    world_free(world);
}

static void follow_of_a_piece_that_fails_is_void_here_only(void **state)
{
    (void)state;
    struct world *world = world_new(&small, 10);
    assert_int_equal(world_store(world, 1, 0, 130), SPEC_OK);
    struct follower *follower = follower_make(world, SC_STORE_READER);
    follower->refuse_id = 3;
    follower_open(follower);
    assert_int_equal(follower->told_count, 2);
    uint64_t events = sc_io_sim_disk_events(world->disk);
    uint8_t hash[SC_STORE_HASH_BYTES];
    sc_store_piece_drop(follower->store, 2);
    assert_false(sc_store_piece_hash(follower->store, 2, hash));
    assert_true(sc_store_piece_hash(world->store, 2, hash));
    assert_int_equal(sc_io_sim_disk_events(world->disk), events);
    sc_store_piece_drop(world->store, 2); /* and then there: no on_drop for what is void here */
    follow(follower);
    assert_int_equal(follower->drops, 0);
    assert_int_equal(follower->told_count, 2);
    follower_free(follower);
    world_free(world);
}

/* How many pieces have no rows behind so many bytes of the second segment. */
static uint32_t pieces_within(const struct world *world, uint64_t bytes)
{
    uint32_t within = 0;
    for (uint32_t i = 0; i < world->piece_count; i++) {
        const struct sc_store_piece_entry *entry =
            sc_store_table_live(&world->store->table, world->pieces[i].id);
        const struct sc_store_extent_entry *extent =
            sc_store_table_extent(&world->store->table, entry->extent);
        bool goes_on = false;
        for (uint32_t p = 0; p < extent->part_count; p++) {
            const struct sc_store_part *part = &extent->parts[p];
            uint64_t pages = sc_store_part_pages(part, extent->stride);
            goes_on =
                goes_on || (part->segment == 1 && part->offset + pages * SC_IO_PAGE_BYTES > bytes);
        }
        within += !goes_on;
    }
    return within;
}

/* Rows in a segment that cannot be opened, or behind its end, are not told of; all others are. */
static void follow_without_a_segment_misses_its_pieces(void **state)
{
    (void)state;
    static const uint64_t LENGTHS[] = {640u << 10, 320u << 10, 4096};
    struct world *world = world_new(&small, 11);
    for (uint64_t key = 1; key <= 100 && world->store->disk.segment_count < 3; key++)
        assert_int_equal(world_store(world, key, 0, 640), SPEC_OK);
    assert_int_equal(world->store->disk.segment_count, 3);
    uint32_t held[3];
    for (uint32_t i = 0; i < 3; i++) {
        held[i] = pieces_within(world, LENGTHS[i]);
        assert_true(held[i] > 0 && held[i] < (i > 0 ? held[i - 1] : world->piece_count));
    }
    world_close(world);
    for (uint32_t i = 0; i < 3; i++) {
        assert_true(sc_io_sim_disk_resize(world->disk, RANK_DIR "/seg-00000001", LENGTHS[i]));
        struct follower *follower = follower_new(world, SC_STORE_READER);
        assert_int_equal(follower->told_count, held[i]);
        check_rows_told(follower);
        follower_free(follower);
    }
    world_free(world);
}

/* Puts another file under a name of the disk. */
static void replace_file(struct world *world, const char *path, const uint8_t *bytes,
                         uint64_t count)
{
    struct sc_io_params params = {.alloc = &world->alloc,
                                  .exec = world->exec,
                                  .log = &world->log,
                                  .custom = sc_io_sim_custom(world->disk)};
    struct sc_io *io = NULL;
    struct sc_io_file *file = NULL;
    assert_int_equal(sc_io_open(&params, &io, NULL), SPEC_OK);
    (void)sc_io_unlink(io, path, NULL);
    if (bytes != NULL) {
        assert_int_equal(
            sc_io_file_open(io, path, SC_IO_OPEN_CREATE | SC_IO_OPEN_WRITE, &file, NULL), SPEC_OK);
        assert_int_equal(sc_io_file_pwrite(io, file, bytes, count, 0, NULL), SPEC_OK);
        sc_io_file_close(io, file);
    }
    sc_io_close(io);
}

/* A store that was removed and made anew: other ids, other rows. */
static void follow_of_another_store_under_the_path_starts_anew(void **state)
{
    (void)state;
    static uint8_t identity[256], log[8192];
    struct world *world = world_new(&small, 12), *next = world_make(&small, 13);
    assert_int_equal(world_store(world, 1, 0, 130), SPEC_OK);
    struct follower *follower = follower_new(world, SC_STORE_PEER);
    assert_int_equal(follower->told_count, 3);
    reset(world);
    assert_int_equal(world_store(world, 2, 0, 64), SPEC_OK);
    follow(follower);
    assert_int_equal(follower->epoch, 1);
    world_close(world);
    replace_file(world, LOG_PATH, NULL, 0);
    uint64_t known_ns = sc_store_follow_ns(follower->store);
    follow(follower); /* what is known stays, and gets older */
    assert_int_equal(follower->told_count, 1);
    assert_int_equal(sc_store_follow_ns(follower->store), known_ns);

    world_open_ok(next);
    assert_int_equal(world_store(next, 7, 0, 130), SPEC_OK);
    sc_store_piece_drop(next->store, 2);
    uint64_t log_bytes = next->store->log.journal.end.offset, identity_bytes = 0;
    assert_true(sc_io_sim_disk_peek(next->disk, LOG_PATH, 0, log, log_bytes));
    while (sc_io_sim_disk_peek(next->disk, "/sim/store/store.msgpack", identity_bytes,
                               identity + identity_bytes, 1))
        identity_bytes++;
    replace_file(world, "/sim/store/store.msgpack", identity, identity_bytes);
    assert_true(log_bytes < sizeof(log));
    replace_file(world, LOG_PATH, log, log_bytes);
    follow(follower);
    assert_int_equal(follower->epoch, 0);
    assert_int_equal(follower->told_count, 2);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(follower->told[i].piece.key, 7);
        assert_true(follower->told[i].id > 4); /* an id never comes to mean other rows */
    }
    follower_free(follower);
    world_free(next);
    world_free(world);
}

/* A shorter log in the place of the one that is open: what is known stays, without a word. */
static void follow_keeps_what_a_checkpoint_keeps(void **state)
{
    (void)state;
    struct world *world = world_new(&small, 14);
    for (uint64_t key = 1; key <= 6; key++)
        assert_int_equal(world_store(world, key, 0, 130), SPEC_OK);
    struct follower *ahead = follower_make(world, SC_STORE_READER);
    struct follower *behind = follower_make(world, SC_STORE_PEER);
    follower_open(behind);
    world_drop(world, 15, 3);
    world_drop(world, 4, 2);
    follower_open(ahead);
    assert_int_equal(ahead->told_count, 13);
    assert_int_equal(sc_store_checkpoint(world->store, NULL), SPEC_OK);
    follow(ahead);
    follow(behind);
    assert_int_equal(ahead->drops, 5); /* told by open, none by the checkpoint */
    assert_int_equal(behind->drops, 5);
    check_same(ahead); /* the next id too: pieces 16 to 18 are known to be void */
    check_same(behind);
    check_rows_told(ahead);
    assert_int_equal(world_store(world, 7, 0, 64), SPEC_OK);
    follow(ahead);
    check_same(ahead);
    struct follower *late = follower_new(world, SC_STORE_READER);
    check_same(late);
    follower_free(late);
    follower_free(behind);
    follower_free(ahead);
    world_free(world);
}

/* Random stores, drops, resets, checkpoints and reopens of the writer beside followers that look
 * now and then.
 */
static void follow_is_the_writers_twin(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 40; seed++) {
        uint64_t random = seed, key = 1;
        struct world *world = world_make(&small, seed);
        struct follower *followers[3];
        for (uint32_t i = 0; i < 3; i++)
            followers[i] = follower_make(world, i == 2 ? SC_STORE_PEER : SC_STORE_READER);
        world_open_ok(world);
        for (uint32_t i = 0; i < 2; i++)
            follower_open(followers[i * 2]);
        for (uint32_t step = 0; step < 60; step++) {
            uint64_t what = random_below(&random, 20);
            if (what < 6)
                (void)world_store(world, key++, 0, (uint32_t)random_below(&random, 200) + 1);
            else if (what < 10 && world->piece_count > 0)
                world_drop(world, (uint32_t)random_below(&random, world->piece_count), 1);
            else if (what == 10)
                reset(world);
            else if (what == 11) {
                world_reopen(world);
            } else if (what == 12 && followers[1]->store == NULL)
                follower_open(followers[1]);
            else if (what == 13)
                assert_int_equal(sc_store_checkpoint(world->store, &world->error), SPEC_OK);
            else {
                struct follower *follower = followers[random_below(&random, 3)];
                if (follower->store == NULL)
                    continue;
                follow(follower);
                check_same(follower);
                if (follower->params.role == SC_STORE_READER)
                    check_rows_told(follower);
            }
        }
        for (uint32_t i = 0; i < 3; i++)
            follower_free(followers[i]);
        world_free(world);
    }
}

/* ---- Appends that fail ----------------------------------------------------------------------- */

struct failed { /* an append whose frames are in the log, whole, and which the writer gave up */
    struct world *world;
    struct follower *follower;
    struct copy believed; /* by the follower */
    uint64_t place;
};

/* false: less than all of it came into the log. */
static bool failed_make(uint64_t seed, struct failed *failed)
{
    failed->world = world_make(&small, seed);
    struct world *world = failed->world;
    failed->follower = follower_make(world, SC_STORE_READER);
    world_open_ok(world);
    assert_int_equal(world_store(world, 1, 0, 64), SPEC_OK);
    follower_open(failed->follower);
    assert_int_equal(failed->follower->told_count, 1);
    sc_io_sim_fault_scope(world->disk, "/log");
    sc_io_sim_fault_nth(world->disk, SC_SIM_WRITE_PART, 0);
    sc_io_sim_fault_nth(world->disk, SC_SIM_WRITE_EIO, 1); /* it cannot be overwritten */
    assert_int_equal(copy_store(world, 300, &failed->believed), SPEC_E_IO);
    follow(failed->follower);
    if (failed->follower->told_count < 4)
        return false;
    for (uint32_t i = 0; i < 3; i++) {
        failed->believed.pieces[i] = failed->follower->told[1 + i].piece;
        failed->believed.pieces[i].key = 300;
        assert_int_equal(failed->believed.pieces[i].computed_on, 0); /* exact */
    }
    struct sc_store *store = failed->follower->store;
    assert_int_equal(copy_load(world, store, &failed->believed), 9); /* they are what they say */
    failed->place = copy_extent(store, &failed->believed)->parts[0].offset;
    return true;
}

static void find_log(const char *path, uint64_t bytes, void *user)
{
    if (strcmp(path, LOG_PATH) == 0)
        *(uint64_t *)user = bytes;
}

static void failed_free(struct failed *failed)
{
    follower_free(failed->follower);
    world_free(failed->world);
}

/* The writer tries again no sooner. */
static void failed_wait(const struct world *world)
{
    world_wait_ns(world, 2 * SC_STORE_RETRY_NS);
}

/* Other rows of the same tokens stand in the same place since, under ids of their own; the follower
 * has not looked yet, then looks. */
static void failed_check(const struct failed *failed, const struct copy *later)
{
    struct world *world = failed->world;
    struct follower *follower = failed->follower, *fresh;
    assert_int_equal(later->pieces[0].id, failed->believed.pieces[2].id + 1);
    assert_int_equal(copy_extent(world->store, later)->parts[0].offset, failed->place);
    assert_int_equal(copy_load(world, follower->store, &failed->believed), 0);
    follow(follower); /* what was believed is not where it was */
    assert_int_equal(follower->drops, 3);
    assert_int_equal(follower->told_count, 4);
    assert_int_equal(copy_load(world, follower->store, later), 9);
    assert_int_equal(copy_load(world, follower->store, &failed->believed), 0);
    fresh = follower_new(world, SC_STORE_READER);
    assert_int_equal(fresh->told_count, 4);
    assert_int_equal(copy_load(world, fresh->store, later), 9);
    follower_free(fresh);
}

static void append_void(struct world *world)
{
    struct sc_store_journal *journal = &world->store->log.journal;
    uint64_t size = 0;
    sc_io_sim_disk_files(world->disk, find_log, &size);
    for (uint64_t at = journal->file_end; at < size; at++)
        assert_true(sc_io_sim_disk_poke(world->disk, LOG_PATH, at, &(uint8_t){0}, 1));
    journal->file_end = size;
    world->store->log.is_broken = false;
}

/* The append was overwritten after the follower had read it, or a checkpoint left it out. */
static void follow_gives_no_rows_of_an_append_that_failed(void **state)
{
    (void)state;
    uint32_t tried = 0;
    for (uint64_t seed = 20; seed < 36; seed++) {
        struct failed failed;
        if (failed_make(seed, &failed)) {
            struct world *world = failed.world;
            struct copy later;
            if (seed % 2 == 0) {
                append_void(world); /* as if it had been overwritten only now */
            } else {
                assert_int_equal(sc_store_checkpoint(world->store, &world->error), SPEC_OK);
            }
            failed_wait(world);
            assert_int_equal(copy_store(world, 601, &later), SPEC_OK);
            failed_check(&failed, &later);
            tried++;
        }
        failed_free(&failed);
    }
    assert_true(tried > 3);
}

static bool failed_on_piece(const struct sc_store_piece *piece, uint64_t *ret_mark, void *user)
{
    (void)piece;
    (void)user;
    *ret_mark = 1;
    return true;
}

/* It could not be overwritten: the next open believes it, and its place was others' meanwhile. */
static void follow_and_reopen_give_no_rows_that_were_written_over(void **state)
{
    (void)state;
    uint32_t tried = 0;
    for (uint64_t seed = 20; seed < 36; seed++) {
        struct failed failed;
        if (failed_make(seed, &failed)) {
            struct world *world = failed.world;
            struct copy later;
            failed_wait(world);
            assert_int_equal(copy_store(world, 601, &later), SPEC_E_IO); /* rows, no records */
            assert_int_equal(copy_load(world, failed.follower->store, &failed.believed), 0);
            world_close(world);
            world->params.on_piece = failed_on_piece; /* the twin knows nothing of it */
            world_open_ok(world);
            assert_int_equal(copy_extent(world->store, &failed.believed)->parts[0].offset,
                             failed.place);
            assert_int_equal(copy_load(world, world->store, &failed.believed), 0);
            tried++;
        }
        failed_free(&failed);
    }
    assert_true(tried > 3);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(follow_waits_for_what_is_not_there),
        cmocka_unit_test(follow_opens_with_what_is_there),
        cmocka_unit_test(follow_promises_from_before_the_poll),
        cmocka_unit_test(follow_finds_a_model_that_comes_again),
        cmocka_unit_test(follow_hears_of_resets),
        cmocka_unit_test(follow_tells_of_its_own),
        cmocka_unit_test(follow_reads_what_changed),
        cmocka_unit_test(follow_reads_on_behind_what_it_refused),
        cmocka_unit_test(follow_waits_for_half_a_frame),
        cmocka_unit_test(follow_takes_no_wrong_length_for_the_end),
        cmocka_unit_test(follow_forgets_what_was_cut_off),
        cmocka_unit_test(follow_stops_at_a_newer_version),
        cmocka_unit_test(follow_refuses_what_is_not_a_store),
        cmocka_unit_test(follow_of_a_piece_that_fails_is_void_here_only),
        cmocka_unit_test(follow_without_a_segment_misses_its_pieces),
        cmocka_unit_test(follow_of_another_store_under_the_path_starts_anew),
        cmocka_unit_test(follow_keeps_what_a_checkpoint_keeps),
        cmocka_unit_test(follow_gives_no_rows_of_an_append_that_failed),
        cmocka_unit_test(follow_and_reopen_give_no_rows_that_were_written_over),
        cmocka_unit_test(follow_is_the_writers_twin),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Members, several processes that store into one rank: each has what any of them stored, dropped
 * and reset; their tables, maps and logs are equal after each has read on, and are those of an open
 * of the disk then. Some end at any moment, as if they were killed.
 *
 * Threads: the seeded loop. */
#include "store/log/journal.h"
#include "store/log/log_room.h"
#include "store/log/members.h"
#include "store/replay/replay.h"
#include "store/space/claims.h"
#include "tests/unit/store/follower_fixture.h"
#include "tests/unit/store/space_check.h"
#include "tests/unit/store/state_check.h"

#define RANK_DIR  "/sim/store/rank-0000-of-0001"
#define LOG_PATH  RANK_DIR "/log"
#define LEASE_NS  UINT64_C(1000000000)
#define MEMBERS   4u
#define HISTORIES 20u
#define STEPS     120u

static const struct world_setup small = {"small", WORLD_ON(SIM, 0), WORLD_SHAPE(PAIRED, 3, 48, 0),
                                         WORLD_DISK(6, 1, 64), .journal = 1};

struct group {
    struct world *world; /* without a store of its own: disk, loop, and the twin of all pieces */
    struct follower *members[MEMBERS];
};

/* The twin knows what is there: members are not asked what they were told. */
static bool on_piece(const struct sc_store_piece *piece, uint64_t *ret_mark, void *user)
{
    (void)user;
    *ret_mark = piece->id;
    return true;
}

static void on_drop(uint64_t piece, uint64_t mark, void *user)
{
    (void)user;
    if (mark != 0) /* else its own */
        assert_int_equal(mark, piece);
}

static void on_epoch(uint64_t epoch, void *user)
{
    struct follower *follower = user;
    follower->epoch = epoch;
}

/* ---- Races ---------------------------------------------------------------------------------- */

/* Another member appends after one has read on, and before that one appends. */
static struct {
    struct group *group;
    struct sc_store_turn_calls calls;
    spec_status (*read_on)(struct sc_store *store, struct spec_error *reterr);
    uint64_t random;
    bool is_armed, runs;
    uint32_t lost;
} race;

static void other_appends(const struct sc_store *store)
{
    struct group *group = race.group;
    const struct follower *other = group->members[random_below(&race.random, MEMBERS)];
    uint32_t count = group->world->piece_count;
    if (other == NULL || other->store == store || count == 0)
        return;
    uint32_t at = (uint32_t)random_below(&race.random, count);
    uint64_t id = group->world->pieces[at].id;
    sc_store_pieces_drop(other->store, &id, 1);
    memmove(&group->world->pieces[at], &group->world->pieces[at + 1],
            (count - at - 1) * sizeof(group->world->pieces[0]));
    group->world->piece_count--;
    race.lost++;
}

static spec_status racing_read_on(struct sc_store *store, struct spec_error *reterr)
{
    spec_status status = race.read_on(store, reterr);
    if (!race.is_armed || race.runs || random_below(&race.random, 8) != 0)
        return status;
    race.runs = true;
    other_appends(store);
    race.runs = false;
    return status;
}

static struct follower *member_open(struct world *world)
{
    struct follower *member = follower_make(world, SC_STORE_HEIR);
    member->params.shares = true;
    member->params.on_piece = on_piece;
    member->params.on_drop = on_drop;
    member->params.on_epoch = on_epoch;
    follower_open(member);
    if (!sc_store_can_store(member->store))
        fail_msg("a member does not store: %s", world->last_line);
    race.calls = *member->store->turn_calls;
    race.read_on = race.calls.read_on != racing_read_on ? race.calls.read_on : race.read_on;
    race.calls.read_on = racing_read_on;
    member->store->turn_calls = &race.calls;
    return member;
}

static struct group *group_new(uint64_t seed)
{
    struct group *group = calloc(1, sizeof(*group));
    assert_non_null(group);
    group->world = world_make(&small, seed);
    group->world->config.lease_ns_max = LEASE_NS;
    for (uint32_t i = 0; i < MEMBERS; i++)
        group->members[i] = member_open(group->world);
    return group;
}

static void group_free(struct group *group)
{
    group->world->store = NULL;
    for (uint32_t i = 0; i < MEMBERS; i++)
        if (group->members[i] != NULL)
            follower_free(group->members[i]);
    world_free(group->world);
    free(group);
}

static void use(struct group *group, uint32_t member)
{
    group->world->store = group->members[member]->store;
}

static void follow_all(struct group *group)
{
    for (uint32_t i = 0; i < MEMBERS; i++)
        follow(group->members[i]);
}

/* The limit holds with what each knows of all. */
static void limit_holds(struct group *group)
{
    const struct sc_store *first = group->members[0]->store;
    for (uint32_t i = 0; i < MEMBERS; i++) {
        struct sc_store *store = group->members[i]->store;
        assert_true(sc_store_disk_used(store) <= store->disk.bytes_max);
        assert_int_equal(store->disk.segment_bytes, first->disk.segment_bytes);
        assert_int_equal(store->disk.bytes_max, first->disk.bytes_max);
    }
}

/* All have read on, and hold the same. */
static void all_equal(struct group *group)
{
    follow_all(group);
    for (uint32_t i = 0; i < MEMBERS; i++) {
        struct world after = *group->world;
        after.store = group->members[i]->store;
        assert_false(after.store->log.seal.is_over);
        sc_store_replay_extent_end(after.store); /* as the next record would */
        release_all(&after);
    }
    limit_holds(group);
    for (uint32_t i = 1; i < MEMBERS; i++) {
        struct sc_store *first = group->members[0]->store, *other = group->members[i]->store;
        maps_equal(first, other);
        tables_equal(first, other);
        tables_equal(other, first);
        logs_equal(first, other);
    }
}

/* Every piece that the twin has, and its rows, in every member. */
static void all_load(struct group *group)
{
    struct world *world = group->world;
    for (uint32_t i = 0; i < MEMBERS; i++) {
        use(group, i);
        struct sc_store_reader *reader = world_reader(world);
        for (uint32_t piece = 0; piece < world->piece_count; piece++) {
            const struct world_piece *twin = &world->pieces[piece];
            struct loaded loaded = world_load_piece(world, reader, 1, twin);
            if (loaded.status != SPEC_OK)
                fail_msg("member %u, piece %" PRIu64 " of key %" PRIu64 ": %d", i, twin->id,
                         twin->key, (int)loaded.status);
            assert_int_equal(loaded.rows, twin->row_count);
        }
        sc_store_readers_close(reader, 1);
    }
}

static void store_by(struct group *group, uint32_t member, uint64_t key, uint32_t rows)
{
    use(group, member);
    spec_status status = world_store(group->world, key, 0, rows);
    if (status != SPEC_OK)
        fail_msg("member %u does not store key %" PRIu64 ": %d, %s", member, key, (int)status,
                 group->world->last_line);
}

static void each_has_what_any_stored(void **state)
{
    (void)state;
    struct group *group = group_new(1);
    for (uint64_t key = 1; key <= 8; key++)
        store_by(group, (uint32_t)key % MEMBERS, key, 130);
    all_equal(group);
    all_load(group);
    group_free(group);
}

/* ---- Anything, in any order ------------------------------------------------------------------ */

/* As if the process had ended: no checkpoint, no sync. */
static void member_dies(struct follower *member)
{
    member->store->log.journal.synced_end = member->store->log.journal.end.offset;
    follower_free(member);
}

/* The store is full: drops the oldest pieces, and lets their leases end. */
static void room_make(struct group *group)
{
    race.is_armed = false;
    uint32_t count = group->world->piece_count < 40 ? group->world->piece_count : 40;
    world_drop(group->world, 0, count);
    world_wait_ns(group->world, LEASE_NS + LEASE_NS / 8);
    for (uint32_t i = 0; i < MEMBERS; i++)
        sc_store_claims_tick(group->members[i]->store);
}

static void store_some(struct group *group, uint32_t member, uint64_t *random, uint64_t *key)
{
    use(group, member);
    uint32_t rows = 1 + (uint32_t)random_below(random, 130);
    spec_status status = world_store(group->world, (*key)++, 0, rows);
    if (status == SPEC_E_NO_SPACE || status == SPEC_E_BUSY)
        room_make(group);
    else if (status != SPEC_OK)
        fail_msg("member %u: %d, %s", member, (int)status, group->world->last_line);
}

static void drop_some(struct group *group, uint32_t member, uint64_t *random)
{
    use(group, member);
    uint32_t count = group->world->piece_count;
    if (count > 0)
        world_drop(group->world, (uint32_t)random_below(random, count), 1);
}

static void checkpoint_by(struct group *group, uint32_t member)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    spec_status status = sc_store_checkpoint(group->members[member]->store, &error);
    if (status != SPEC_OK)
        fail_msg("checkpoint: %s", error.text);
    follow_all(group); /* whoever misses two of them stores no more */
}

static void reset_by(struct group *group, uint32_t member)
{
    struct sc_store *store = group->members[member]->store;
    follow(group->members[member]);
    uint64_t epoch = sc_store_epoch(store) + 1;
    assert_int_equal(sc_store_epoch_set(store, epoch, NULL), SPEC_OK);
    assert_int_equal(sc_store_epoch(store), epoch);
    group->world->piece_count = 0;
}

/* Ends a member, as if it was killed or in order, and opens another in its place. */
static void replace(struct group *group, uint32_t member, bool dies)
{
    struct follower *old = group->members[member];
    group->members[member] = NULL;
    if (dies)
        member_dies(old);
    else
        follower_free(old); /* may write the log anew */
    group->members[member] = member_open(group->world);
    follow_all(group);
}

static void act(struct group *group, uint64_t *random, uint64_t *key)
{
    uint32_t member = (uint32_t)random_below(random, MEMBERS);
    uint64_t what = random_below(random, 100);
    race.is_armed = race.group != NULL && (what < 50 || (what >= 80 && what < 84));
    if (what < 50) {
        store_some(group, member, random, key);
    } else if (what < 70) {
        drop_some(group, member, random);
    } else if (what < 80) {
        follow(group->members[member]);
    } else if (what < 84) {
        checkpoint_by(group, member);
    } else if (what < 91) {
        replace(group, member, what < 88);
    } else if (what < 98) {
        world_wait_ns(group->world, random_below(random, LEASE_NS));
        sc_store_claims_tick(group->members[member]->store);
    } else {
        reset_by(group, member);
    }
    race.is_armed = false;
}

/* A writer's open of a copy of the disk has the same. */
static void same_as_an_open(struct group *group, uint64_t seed)
{
    struct world *world = group->world;
    struct world *fresh = world_make(world->setup, seed);
    struct sc_io_sim_disk *copy = NULL;
    sc_io_sim_disk_close(fresh->disk);
    assert_int_equal(sc_io_sim_disk_copy(world->disk, &copy, NULL), SPEC_OK);
    world_disk(fresh, copy);
    fresh->config = world->config;
    fresh->params.config = &fresh->config;
    fresh->params.on_piece = on_piece;
    world_open_ok(fresh);
    release_all(fresh);
    maps_equal(group->members[0]->store, fresh->store);
    tables_equal(group->members[0]->store, fresh->store);
    logs_equal(group->members[0]->store, fresh->store);
    world_free(fresh);
}

static void histories_are_the_same_for_all(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= HISTORIES; seed++) {
        struct group *group = group_new(seed);
        uint64_t random = seed, key = 1;
        race.group = seed % 2 == 0 ? group : NULL;
        race.random = seed;
        for (uint32_t i = 0; i < STEPS; i++) {
            act(group, &random, &key);
            if (i % 20 == 19)
                all_equal(group);
        }
        race.group = NULL;
        all_load(group);
        all_equal(group);
        same_as_an_open(group, seed + 1000);
        group_free(group);
    }
    assert_true(race.lost > HISTORIES);
}

/* ---- One thing at a time --------------------------------------------------------------------- */

/* Who has too many segments gives some back, and others take them. */
static void claims_settle(struct group *group)
{
    for (uint32_t i = 0; i < 2 * MEMBERS; i++) {
        world_wait_ns(group->world, LEASE_NS / MEMBERS);
        sc_store_claims_tick(group->members[i % MEMBERS]->store);
    }
}

/* Of a member that is killed between its seal and the rename. */
static spec_status dying_read_on(struct sc_store *store, struct spec_error *reterr)
{
    return store->log.seal.is_set ? SPEC_E_IO : race.read_on(store, reterr);
}

/* A checkpoint that fails at any sync or rename: before the seal nothing has happened, and behind
 * it the others go on in the new log; if all end, whoever opens next writes it anew. */
static void a_checkpoint_fails_anywhere(void **state)
{
    (void)state;
    bool fired = true;
    for (uint32_t n = 0; fired || n % 2 == 1; n++) {
        struct group *group = group_new(n + 1);
        struct world *world = group->world;
        world_faults(world);
        group->members[0]->params.fault = &world->fault;
        replace(group, 0, true);
        for (uint64_t key = 1; key <= 12; key++)
            store_by(group, (uint32_t)key % MEMBERS, key, 100);
        use(group, 1);
        world_drop(world, 0, 6);
        struct sc_store_turn_calls calls = *group->members[0]->store->turn_calls;
        calls.read_on = n % 2 == 0 ? dying_read_on : calls.read_on;
        group->members[0]->store->turn_calls = &calls;
        sc_fault_arm(&world->fault, SC_FAULT_SYNC, n / 2);
        spec_status status = sc_store_checkpoint(group->members[0]->store, NULL);
        fired = atomic_load(&world->fault.fired[SC_FAULT_SYNC]) > 0;
        assert_int_equal(status != SPEC_OK, fired);
        sc_fault_arm(&world->fault, SC_FAULT_SYNC, INT64_MAX);
        if (n % 2 == 0) { /* else the others find the seal, if there is one */
            for (uint32_t i = 0; i < MEMBERS; i++) {
                member_dies(group->members[i]);
                group->members[i] = NULL;
            }
            for (uint32_t i = 0; i < MEMBERS; i++)
                group->members[i] = member_open(world);
        }
        claims_settle(group);
        store_by(group, 2, 100, 100);
        all_equal(group);
        all_load(group);
        group_free(group);
    }
}

/* A member that was stopped while others wrote the log anew several times reads it from the start,
 * and goes on with what it was storing. */
static void a_stopped_member_reads_a_later_log(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= HISTORIES; seed++) {
        struct group *group = group_new(seed);
        uint64_t random = seed, key = 1000;
        for (uint32_t i = 0; i < 30; i++)
            store_some(group, i % MEMBERS, &random, &key);
        use(group, 3);
        struct pass *pass = pass_make(group->world, 7, 0, 130);
        spec_status begun = pass_begin(pass);
        for (uint32_t i = 0; i < 120; i++) {
            uint32_t member = i % 3;
            if (i % 20 == 19)
                assert_int_equal(sc_store_checkpoint(group->members[member]->store, NULL), SPEC_OK);
            else if (i % 3 == 0)
                drop_some(group, member, &random);
            else
                store_some(group, member, &random, &key);
            world_wait_ns(group->world, LEASE_NS / 8);
            for (uint32_t other = 0; other < 3; other++) {
                follow(group->members[other]);
                sc_store_claims_tick(group->members[other]->store);
            }
        }
        use(group, 3);
        while (begun == SPEC_OK && pass->layer < group->world->setup->layers)
            assert_int_equal(pass_put(pass), SPEC_OK);
        if (begun == SPEC_OK) {
            pass_wait(pass);
            assert_int_equal(pass->status, SPEC_OK);
            pass_note(pass);
        }
        pass_free(pass);
        assert_true(group->members[3]->store->log.seal.passed > 0);
        all_equal(group);
        world_wait_ns(group->world, 2 * LEASE_NS);
        store_some(group, 3, &random, &key);
        all_equal(group);
        all_load(group);
        group_free(group);
    }
}

/* Records a segment, as the maker does, and leaves its file to be made. */
static uint64_t segment_tell(struct sc_store *store)
{
    uint64_t index = 0;
    pthread_mutex_lock(&store->disk.lock);
    assert_true(sc_store_segment_want(store, 1, &index));
    pthread_mutex_unlock(&store->disk.lock);
    assert_int_equal(sc_store_segment_record(store, index, NULL), SPEC_OK);
    return index;
}

/* An idle member asks by one stat; what any other does reaches it with its next question. */
static void a_member_reads_what_changed(void **state)
{
    (void)state;
    struct group *group = group_new(1);
    struct sc_store *idle = group->members[0]->store;
    for (uint32_t i = 1; i < 5; i++) {
        follow_all(group);
        uint64_t known_ns = sc_store_follow_ns(idle);
        world_wait_ns(group->world, 25000000);
        assert_false(sc_store_follow_due(idle));
        assert_true(sc_store_follow_ns(idle) > known_ns);
        if (i < 3)
            store_by(group, i, i, 64);
        else if (i == 3)
            reset_by(group, 1);
        else
            assert_int_equal(sc_store_checkpoint(group->members[1]->store, NULL), SPEC_OK);
        assert_true(sc_store_follow_due(idle));
    }
    all_equal(group);
    group_free(group);
}

static void a_segment_whose_maker_died_is_made_by_another(void **state)
{
    (void)state;
    struct group *group = group_new(1);
    store_by(group, 0, 1, 64);
    uint64_t index = segment_tell(group->members[1]->store);
    uint32_t number = group->members[1]->store->disk.segments[index].number;
    member_dies(group->members[1]);
    group->members[1] = member_open(group->world);
    struct sc_store *other = group->members[2]->store;
    follow(group->members[2]);
    index = sc_store_segment_index(other, number);
    sc_store_claims_tick(other);
    assert_int_equal(other->disk.segments[index].state, SC_STORE_SEGMENT_TOLD);
    world_wait_ns(group->world, UINT64_C(6000000000));
    sc_store_claims_tick(other);
    assert_int_equal(other->disk.segments[index].state, SC_STORE_SEGMENT_READY);
    assert_true(sc_store_segment_takes(other, index));
    all_equal(group);
    group_free(group);
}

/* A number that another took meanwhile is not ours. */
static struct follower *teller;

static spec_status telling_read_on(struct sc_store *store, struct spec_error *reterr)
{
    spec_status status = race.read_on(store, reterr);
    struct follower *other = teller;
    teller = NULL;
    if (other != NULL)
        (void)segment_tell(other->store);
    return status;
}

static void segments_of_two_have_two_numbers(void **state)
{
    (void)state;
    struct group *group = group_new(1);
    const struct sc_store_turn_calls *before = group->members[0]->store->turn_calls;
    struct sc_store_turn_calls calls = *before;
    calls.read_on = telling_read_on;
    group->members[0]->store->turn_calls = &calls;
    teller = group->members[1];
    (void)segment_tell(group->members[0]->store);
    assert_null(teller);
    group->members[0]->store->turn_calls = before;
    for (uint32_t i = 0; i < MEMBERS; i++) {
        follow(group->members[i]);
        const struct sc_store *store = group->members[i]->store;
        assert_int_equal(store->disk.segment_count, 2);
        assert_int_not_equal(store->disk.segments[0].number, store->disk.segments[1].number);
    }
    limit_holds(group);
    group_free(group);
}

/* As if the process had ended: no checkpoint, no sync. */
static void writer_dies(struct world *world)
{
    world->store->log.journal.synced_end = world->store->log.journal.end.offset;
    world_close(world);
}

static void one_writer_and_many_exclude_each_other(void **state)
{
    (void)state;
    struct group *group = group_new(1);
    store_by(group, 0, 1, 64);
    assert_int_equal(world_open(group->world), SPEC_E_LOCKED);
    for (uint32_t i = 0; i < MEMBERS; i++) {
        follower_free(group->members[i]);
        group->members[i] = NULL;
    }
    world_open_ok(group->world);
    struct follower *member = follower_make(group->world, SC_STORE_HEIR);
    member->params.shares = true;
    follower_open(member);
    assert_false(sc_store_stores(member->store));
    assert_int_equal(sc_store_take_over(member->store, &member->error), SPEC_E_LOCKED);
    assert_int_equal(world_store(group->world, 2, 0, 64), SPEC_OK);
    follow(member); /* it finds what one writer stores, whose log tells of no segment */
    struct sc_store_stats stats;
    sc_store_stats(member->store, &stats);
    assert_int_equal(stats.piece_count, 2);
    writer_dies(group->world);
    assert_int_equal(sc_store_take_over(member->store, &member->error), SPEC_OK);
    group->members[0] = member;
    for (uint32_t i = 1; i < MEMBERS; i++)
        group->members[i] = member_open(group->world);
    claims_settle(group);
    for (uint32_t i = 0; i < MEMBERS; i++)
        store_by(group, i, 10 + i, 64);
    all_equal(group);
    all_load(group);
    group_free(group);
}

static void two_do_not_write_the_log_anew(void **state)
{
    (void)state;
    struct group *group = group_new(1);
    struct sc_store *store = group->members[1]->store;
    struct sc_io_file *file = NULL;
    store_by(group, 0, 1, 64);
    assert_int_equal(sc_io_file_open(store->io, RANK_DIR "/checkpoint.lock",
                                     SC_IO_OPEN_CREATE | SC_IO_OPEN_WRITE, &file, NULL),
                     SPEC_OK);
    assert_int_equal(sc_io_file_claim(store->io, file, NULL), SPEC_OK); /* another writes one */
    assert_int_equal(sc_store_checkpoint(group->members[0]->store, NULL), SPEC_E_BUSY);
    sc_io_file_close(store->io, file);
    assert_int_equal(sc_store_checkpoint(group->members[0]->store, NULL), SPEC_OK);
    group_free(group);
}

static void the_seventeenth_reads(void **state)
{
    (void)state;
    struct world *world = world_make(&small, 1);
    struct follower *members[SC_STORE_MEMBERS_MAX + 1];
    for (uint32_t i = 0; i < SC_STORE_MEMBERS_MAX; i++)
        members[i] = member_open(world);
    members[SC_STORE_MEMBERS_MAX] = follower_make(world, SC_STORE_HEIR);
    members[SC_STORE_MEMBERS_MAX]->params.shares = true;
    follower_open(members[SC_STORE_MEMBERS_MAX]);
    assert_false(sc_store_stores(members[SC_STORE_MEMBERS_MAX]->store));
    for (uint32_t i = 0; i <= SC_STORE_MEMBERS_MAX; i++)
        follower_free(members[i]);
    world_free(world);
}

static void file_size(const char *path, uint64_t bytes, void *user)
{
    if (strcmp(path, LOG_PATH) == 0)
        *(uint64_t *)user = bytes;
}

/* A member was killed within an append that had lost its race: the log does not end in doubt. */
static void a_torn_loser_voids_nothing(void **state)
{
    (void)state;
    struct group *group = group_new(1);
    struct sc_io_sim_disk *disk = group->world->disk;
    uint64_t bytes = 0;
    uint8_t torn[40];
    for (uint64_t key = 1; key <= 4; key++)
        store_by(group, (uint32_t)key % MEMBERS, key, 100);
    follow_all(group);
    uint64_t at = group->members[0]->store->follow.frame_offset;
    for (uint32_t i = 0; i < MEMBERS; i++) {
        member_dies(group->members[i]);
        group->members[i] = NULL;
    }
    sc_io_sim_disk_files(disk, file_size, &bytes);
    assert_true(sc_io_sim_disk_peek(disk, LOG_PATH, at, torn, sizeof(torn)));
    assert_true(sc_io_sim_disk_resize(disk, LOG_PATH, bytes + sizeof(torn)));
    assert_true(sc_io_sim_disk_poke(disk, LOG_PATH, bytes, torn, sizeof(torn)));
    for (uint32_t i = 0; i < MEMBERS; i++)
        group->members[i] = member_open(group->world);
    claims_settle(group);
    store_by(group, 1, 5, 100);
    all_equal(group);
    all_load(group);
    group_free(group);
}

/* The first to intend a chunk stores it; noise in the shared memory stops nobody. */
static void a_chunk_is_intended_by_one(void **state)
{
    static const struct world_setup files = {"files", WORLD_ON(PREAD, 2),
                                             WORLD_SHAPE(PAIRED, 3, 48, 0), WORLD_DISK(8, 1, 64)};
    uint8_t noise[16u << 10]; /* all intents */
    char path[128];
    (void)state;
    struct world *world = world_make(&files, 1);
    struct follower *first = member_open(world), *second = member_open(world);
    assert_true(sc_store_intend(first->store, 7));
    assert_false(sc_store_intend(second->store, 7));
    assert_true(sc_store_intend(first->store, 7));
    assert_true(sc_store_intend(second->store, 8));
    (void)snprintf(path, sizeof(path), "%.64s/store/rank-0000-of-0001/hints", world->root);
    memset(noise, 0xA5, sizeof(noise));
    FILE *hints = fopen(path, "r+b");
    assert_non_null(hints);
    assert_int_equal(fwrite(noise, 1, sizeof(noise), hints), sizeof(noise));
    assert_int_equal(fclose(hints), 0);
    assert_true(sc_store_intend(second->store, UINT64_C(0xA5A5A5A5A5A5A5A5)));
    follower_free(second);
    assert_true(sc_store_intend(first->store, 9));
    follower_free(first);
    world_free(world);
}

/* Fewer segments than members: who has one gives it to those that ask. */
static void few_segments_go_from_hand_to_hand(void **state)
{
    enum { COUNT = 3, ROUNDS = 12, TRIES = 40 };
    static const struct world_setup few = {"few", WORLD_ON(SIM, 0), WORLD_SHAPE(PAIRED, 3, 48, 0),
                                           WORLD_DISK(4, 4, 64), .journal = 1};
    (void)state;
    struct world *world = world_make(&few, 1);
    struct follower *members[COUNT];
    for (uint32_t i = 0; i < COUNT; i++)
        members[i] = member_open(world);
    for (uint64_t round = 0; round < ROUNDS; round++) {
        world->store = members[round % COUNT]->store;
        for (uint32_t tries = 0; world_store(world, round, 0, 16) != SPEC_OK; tries++) {
            assert_true(tries < TRIES);
            world_wait_ns(world, UINT64_C(25000000));
            for (uint32_t i = 0; i < COUNT; i++) {
                follow(members[i]);
                sc_store_claims_tick(members[i]->store);
            }
        }
        assert_true(world->store->disk.segment_count < COUNT);
    }
    for (uint32_t i = 0; i < COUNT; i++)
        follower_free(members[i]);
    world->store = NULL;
    world_free(world);
}

/* A power cut at any moment: whoever opens next loads what is right, or misses. */
static void power_cuts_leave_nothing_wrong(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= HISTORIES; seed++) {
        struct group *group = group_new(seed);
        uint64_t random = seed, key = 1;
        for (uint32_t i = 0; i < 60; i++)
            act(group, &random, &key);
        uint64_t events = sc_io_sim_disk_events(group->world->disk);
        struct world *cut = world_cut(group->world, random_below(&random, events) + 1, seed, seed);
        cut->piece_count = 0;
        cut->config = group->world->config;
        world_open_ok(cut); /* it is told of the pieces that are there */
        struct sc_store_reader *reader = world_reader(cut);
        for (uint32_t i = 0; i < cut->piece_count; i++)
            (void)world_load_piece(cut, reader, 2, &cut->pieces[i]);
        sc_store_readers_close(reader, 1);
        world_free(cut);
        group_free(group);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_has_what_any_stored),
        cmocka_unit_test(histories_are_the_same_for_all),
        cmocka_unit_test(a_checkpoint_fails_anywhere),
        cmocka_unit_test(a_stopped_member_reads_a_later_log),
        cmocka_unit_test(a_member_reads_what_changed),
        cmocka_unit_test(a_segment_whose_maker_died_is_made_by_another),
        cmocka_unit_test(segments_of_two_have_two_numbers),
        cmocka_unit_test(one_writer_and_many_exclude_each_other),
        cmocka_unit_test(two_do_not_write_the_log_anew),
        cmocka_unit_test(the_seventeenth_reads),
        cmocka_unit_test(a_torn_loser_voids_nothing),
        cmocka_unit_test(a_chunk_is_intended_by_one),
        cmocka_unit_test(few_segments_go_from_hand_to_hand),
        cmocka_unit_test(power_cuts_leave_nothing_wrong),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

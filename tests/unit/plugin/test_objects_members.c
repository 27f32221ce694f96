/* Several processes over the objects of a rank: what any has stored is found by all, what any has
 * removed by none; nobody delivers other bytes; their indices and maps of pages are equal once each
 * has read on, and are those of an open of the disk. Some end at any moment, as if they were
 * killed.
 *
 * Threads: one (the seeded loops of tests/unit/plugin/object_group.h). */
#include "tests/unit/plugin/object_group.h"

#define DISK      ", \"disk_bytes\": \"40MiB\""
#define SMALL     ", \"disk_bytes\": \"12MiB\"" /* eviction begins early */
#define HISTORIES 24u
#define STEPS     150u

/* ---- Races ----------------------------------------------------------------------------------- */

/* An act after one member has read on, and before it appends. */
static struct {
    struct group *group;
    void (*act)(struct group *group, uint32_t member); /* of another one, than this one */
    struct sc_store_turn_calls calls;
    spec_status (*read_on)(struct sc_store *store, struct spec_error *reterr);
    bool runs;
} race;

static spec_status racing_read_on(struct sc_store *store, struct spec_error *reterr)
{
    spec_status status = race.read_on(store, reterr);
    if (race.act == NULL || race.runs)
        return status;
    race.runs = true;
    puts_note(race.group);
    for (uint32_t i = 0; i < GROUP_MEMBERS; i++)
        if (race.group->members[i].store != NULL && race.group->members[i].store->store == store)
            race.act(race.group, i);
    race.runs = false;
    return status;
}

static void race_join(struct group *group, uint32_t member)
{
    struct sc_store *store = group->members[member].store->store;
    race.group = group;
    if (store->turn_calls != &race.calls && store->turn_calls->read_on != racing_read_on) {
        race.calls = *store->turn_calls;
        race.read_on = race.calls.read_on;
        race.calls.read_on = racing_read_on;
    }
    store->turn_calls = &race.calls;
}

static struct group *racing_group(const char *extra, uint64_t seed)
{
    struct group *group = group_new(extra, seed);
    for (uint32_t i = 0; i < GROUP_MEMBERS; i++)
        race_join(group, i);
    return group;
}

/* ---- Found and removed ----------------------------------------------------------------------- */

static void all_find_what_any_has_stored(void **state)
{
    (void)state;
    struct group *group = group_new(DISK, 1);
    for (uint32_t i = 0; i < GROUP_KEYS; i++)
        put_done(group, i % GROUP_MEMBERS, i % 2, i);
    all_agree(group);
    for (uint32_t i = 0; i < GROUP_KEYS; i++)
        for (uint32_t member = 0; member < GROUP_MEMBERS; member++)
            assert_int_equal(get(group, member, i % 2, i), SPEC_KEY_DONE);
    for (uint32_t i = 0; i < GROUP_KEYS; i++)
        assert_int_equal(put(group, (i + 1) % GROUP_MEMBERS, i % 2, i), SPEC_KEY_STORED);
    for (uint32_t i = 0; i < GROUP_KEYS; i += 2)
        assert_int_equal(remove_key(group, (i + 3) % GROUP_MEMBERS, i % 2, i), SPEC_KEY_DONE);
    clear(group, 2, 1);
    all_agree(group);
    an_open_agrees(group);
    group_free(group);
}

/* Both have written the value, and neither knows of the other. */
static void one_of_two_puts_of_a_key_is_stored(void **state)
{
    (void)state;
    struct group *group = group_new(DISK, 2);
    for (uint32_t i = 0; i < 8; i++) {
        struct work *one = put_submit(group, 0, 0, i), *other = put_submit(group, 1, 0, i);
        struct work *follower = put_submit(group, 1, 0, i);
        put_write(group, one);
        put_write(group, other);
        assert_true(is_pending(one) && is_pending(other) && is_pending(follower));
        step_to_end(group, i % 2 == 0 ? one : other);
        int32_t first = work_end(group, one), second = work_end(group, other);
        assert_int_equal(first, i % 2 == 0 ? SPEC_KEY_DONE : SPEC_KEY_STORED);
        assert_int_equal(second, i % 2 == 0 ? SPEC_KEY_STORED : SPEC_KEY_DONE);
        assert_int_equal(work_end(group, follower), SPEC_KEY_STORED);
        all_agree(group);
        for (uint32_t member = 0; member < GROUP_MEMBERS; member++)
            assert_int_equal(get(group, member, 0, i), SPEC_KEY_DONE);
    }
    an_open_agrees(group);
    group_free(group);
}

/* The same while one of them has read on and is about to append. */
static struct work *race_work;
static uint32_t race_reads;

static void other_commits(struct group *group, uint32_t member)
{
    if (race_work == NULL || race_work->member == member || race_reads-- != 0)
        return;
    step_to_end(group, race_work);
}

static void a_put_that_loses_the_race_is_stored_once(void **state)
{
    (void)state;
    for (uint32_t n = 0; n < 4; n++) { /* whatever reads on first, one of them is the append */
        struct group *group = racing_group(DISK, 3 + n);
        struct work *one = put_submit(group, 0, 0, 1), *more = put_submit(group, 0, 1, 5);
        race_work = put_submit(group, 1, 0, 1);
        put_write(group, race_work);
        put_write(group, one);
        race_reads = n;
        race.act = other_commits;
        step_to_end(group, one);
        race.act = NULL;
        int32_t first = work_end(group, one), second = work_end(group, race_work);
        race_work = NULL;
        assert_true((first == SPEC_KEY_STORED && second == SPEC_KEY_DONE) ||
                    (n > 0 && first == SPEC_KEY_DONE && second == SPEC_KEY_STORED));
        assert_int_equal(work_end(group, more), SPEC_KEY_DONE);
        all_agree(group);
        an_open_agrees(group);
        group_free(group);
    }
}

static void domains_have_one_number_each(void **state)
{
    (void)state;
    struct group *group = group_new(DISK, 4);
    spec_domain domains[GROUP_MEMBERS][6];
    for (uint32_t i = 0; i < 6; i++)
        for (uint32_t member = 0; member < GROUP_MEMBERS; member++) {
            struct member *own = &group->members[(member + i) % GROUP_MEMBERS];
            char name[16];
            (void)snprintf(name, sizeof(name), "another %u", i);
            const struct spec_domain_params params = {.struct_size = sizeof(params),
                                                      .identity = {name, strlen(name)}};
            assert_int_equal(group->api->domain_open(own->store, &params,
                                                     &domains[(member + i) % GROUP_MEMBERS][i],
                                                     NULL),
                             SPEC_OK);
        }
    follow_all(group);
    for (uint32_t i = 0; i < 6; i++)
        for (uint32_t member = 1; member < GROUP_MEMBERS; member++)
            assert_int_equal(
                sc_objects_domain(group->members[member].store, domains[member][i])->log_id,
                sc_objects_domain(group->members[0].store, domains[0][i])->log_id);
    group_free(group);
}

/* An empty domain that one closes is forgotten by all; whoever has it open tells of it again. */
static void other_closes(struct group *group, uint32_t member)
{
    if (race_reads-- == 0)
        domain_reopen(group, (member + 1) % GROUP_MEMBERS, 0);
}

static void a_domain_that_is_forgotten_is_told_again(void **state)
{
    (void)state;
    for (uint32_t n = 0; n < 4; n++) { /* before the put, and between its reads and its append */
        struct group *group = racing_group(DISK, 20 + n);
        struct member *closer = &group->members[1];
        assert_int_equal(group->api->domain_close(closer->store, closer->domains[0], NULL),
                         SPEC_OK);
        put_done(group, 0, 0, 0);
        follow(group, 1); /* to which the domain is another one */
        assert_true(sc_store_stores(closer->store->store));
        member_close(group, 1);
        member_open(group, 1);
        race_join(group, 1);
        all_agree(group);
        clear(group, 2, 0);
        domain_reopen(group, 1, 0);
        race_reads = n;
        race.act = other_closes;
        put_done(group, 0, 0, 1);
        race.act = NULL;
        all_agree(group);
        clear(group, 2, 0);
        for (uint32_t i = 0; i < GROUP_MEMBERS; i++) {
            domain_reopen(group, i, 0);
            put_done(group, (i + 2) % GROUP_MEMBERS, 0, 2 + i);
            clear(group, (i + 3) % GROUP_MEMBERS, 0);
        }
        put_done(group, 3, 0, 9);
        checkpoint(group, 1);
        member_kill(group, 3);
        member_open(group, 3);
        race_join(group, 3);
        all_agree(group);
        an_open_agrees(group);
        group_free(group);
    }
}

/* Returns the number of the least recently used key; it is removed. */
static uint32_t evicted(struct group *group, uint32_t member)
{
    spec_objects *store = group->members[member].store;
    uint32_t number = 0;
    pthread_mutex_lock(&store->lock);
    uint32_t id = sc_catalog_evict_one(store, NULL, false);
    pthread_mutex_unlock(&store->lock);
    for (uint32_t i = 0; i < GROUP_KEYS; i++)
        if (group->twins[0][i].life != 0 && entry_of(group, member, 0, i) == 0)
            number = i;
    assert_int_not_equal(id, 0);
    return number;
}

/* Time passes in a member. */
static void wait_in(struct group *group, uint32_t member, uint64_t ns)
{
    struct spec_completion completion;
    struct member *own = &group->members[member];
    uint64_t count = 0;
    spec_status status =
        group->api->poll(own->store, own->domains[0], &completion, 1, ns, &count, NULL);
    assert_int_equal(status, SPEC_OK);
    assert_int_equal(count, 0);
}

static void what_any_gets_is_evicted_last(void **state)
{
    (void)state;
    struct group *group = group_new(DISK, 30);
    for (uint32_t i = 1; i < 4; i++)
        put_done(group, 0, 0, i);
    follow_all(group);
    for (uint32_t i = 0; i < 2; i++)
        wait_in(group, i, UINT64_C(3000000000));
    assert_int_equal(get(group, 1, 0, 1), SPEC_KEY_DONE);
    wait_in(group, 0, UINT64_C(3000000000));
    for (uint32_t i = 0; i < 2; i++) {
        uint32_t number = evicted(group, 0);
        assert_int_not_equal(number, 1);
        group->twins[0][number].life = 0;
    }
    follow_all(group);
    assert_int_equal(get(group, 0, 0, 1), SPEC_KEY_DONE);
    group_free(group);
}

/* ---- Gets beside removals -------------------------------------------------------------------- */

/* Steps a member until a put of it has taken pages, or ended. */
static void reuse(struct group *group, uint32_t member, uint32_t domain)
{
    for (uint32_t i = 8; i < GROUP_KEYS; i++)
        put_done(group, member, domain, i);
}

/* An object that was removed, and whose pages are used again, is absent for one that did not
 * know. */
static void what_another_has_removed_is_absent(void **state)
{
    (void)state;
    struct group *group = group_new(DISK, 5);
    for (uint32_t i = 0; i < 8; i++)
        put_done(group, 1, 0, i);
    follow(group, 0);
    clear(group, 1, 0); /* member 0 has not read on */
    for (uint32_t i = 8; i < GROUP_KEYS; i++) {
        struct work *work = put_submit(group, 1, 1, i);
        step_to_end(group, work);
        assert_int_equal(work_end(group, work), SPEC_KEY_DONE);
    }
    struct work *works[8];
    for (uint32_t i = 0; i < 8; i++) {
        assert_int_not_equal(found(group, 0, 0, i), 0);
        works[i] = get_submit(group, 0, 0, i);
    }
    for (uint32_t i = 0; i < 8; i++) {
        step_to_end(group, works[i]);
        assert_int_equal(work_end(group, works[i]), SPEC_KEY_ABSENT);
    }
    struct spec_object_stats stats = {.struct_size = sizeof(stats)};
    assert_int_equal(group->api->stats(group->members[0].store, 0, &stats, NULL), SPEC_OK);
    assert_int_equal(stats.damaged_objects, 0);
    all_agree(group);
    group_free(group);
}

/* A get is under way while others remove the value and use its pages. */
static void a_get_beside_a_removal_is_right_or_absent(void **state)
{
    (void)state;
    uint32_t absent = 0, delivered = 0;
    for (uint32_t n = 0; n < 60; n++) {
        struct group *group = group_new(SMALL, n);
        uint32_t remover = n % 3; /* 0: the reader itself */
        for (uint32_t i = 0; i < 8; i++)
            put_done(group, 1, 0, i);
        follow_all(group);
        struct work *works[8];
        for (uint32_t i = 0; i < 8; i++)
            works[i] = get_submit(group, 0, 0, i);
        for (uint32_t i = 0; i < n / 3; i++)
            step(group, 0);
        for (uint32_t i = 0; i < 8; i++)
            (void)remove_key(group, remover, 0, i);
        reuse(group, 1, 1);
        for (uint32_t i = 0; i < 8; i++) {
            int32_t status = work_end(group, works[i]);
            assert_true(status == SPEC_KEY_DONE || status == SPEC_KEY_ABSENT);
            delivered += status == SPEC_KEY_DONE;
            absent += status == SPEC_KEY_ABSENT;
        }
        all_agree(group);
        group_free(group);
    }
    print_message("%u delivered, %u absent\n", delivered, absent);
    assert_true(delivered > 0);
}

/* ---- Removals without a record --------------------------------------------------------------- */

/* A removal cannot be recorded; another member removes the key, too; and a get of it ends then. The
 * entry must not be used for another key while its removal still waits: that would remove the other
 * key. */
static void a_removal_that_waits_names_no_other_object(void **state)
{
    (void)state;
    struct group *group = group_new(DISK, 6);
    struct member *own = &group->members[0];
    const uint8_t key = 3;
    const struct spec_keys keys = {
        .struct_size = sizeof(keys), .count = 1, .data = &key, .key_bytes = 1};
    put_done(group, 0, 0, 3);
    follow_all(group);
    struct work *work = get_submit(group, 0, 0, 3);
    sc_io_sim_fault_scope(group->disk, "/log");
    sc_io_sim_fault_ppm(group->disk, SC_SIM_WRITE_EIO, 1000000);
    assert_int_equal(group->api->remove(own->store, own->domains[0], &keys, 0, NULL, NULL),
                     SPEC_E_IO);
    sc_io_sim_fault_ppm(group->disk, SC_SIM_WRITE_EIO, 0);
    assert_int_equal(remove_key(group, 1, 0, 3), SPEC_KEY_DONE);
    assert_int_not_equal(own->store->unrecorded, 0);
    follow(group, 0);
    while (is_pending(work) && own->store->unrecorded != 0) /* the get ends before the next tick */
        step(group, 0);
    int32_t status = work_end(group, work);
    assert_true(status == SPEC_KEY_DONE || status == SPEC_KEY_ABSENT);
    for (uint32_t i = 8; i < GROUP_KEYS; i++)
        put_done(group, 0, 1, i);
    all_agree(group);
    an_open_agrees(group);
    group_free(group);
}

/* A checkpoint is written while the record of a removal is missing, and its process ends. Either
 * all find the object, or none does. */
static void a_checkpoint_takes_nothing_from_one_alone(void **state)
{
    (void)state;
    struct group *group = group_new(DISK, 7);
    struct member *own = &group->members[0];
    for (uint32_t i = 0; i < 8; i++)
        put_done(group, 1, 0, i);
    follow_all(group);
    pthread_mutex_lock(&own->store->lock); /* as remove does, before it appends */
    uint32_t id = entry_of(group, 0, 0, 3);
    sc_key_table_expel(&own->store->table, id);
    sc_catalog_leave(own->store, id, SPEC_REMOVED_DELETED, true);
    pthread_mutex_unlock(&own->store->lock);
    checkpoint(group, 0);
    member_kill(group, 0);
    member_open(group, 0);
    follow_all(group);
    group->twins[0][3].life = found(group, 1, 0, 3);
    all_agree(group);
    for (uint32_t i = 8; i < GROUP_KEYS; i++)
        put_done(group, i % GROUP_MEMBERS, 0, i);
    all_agree(group);
    an_open_agrees(group);
    group_free(group);
}

/* A thread has begun to remove key 3, and waits for the turn. */
static void a_thread_removes(struct group *group, uint32_t member)
{
    struct member *own = &group->members[0];
    if (member != 0 || ++race_reads != 2) /* the first is of earlier removals' records */
        return;
    pthread_mutex_lock(&own->store->lock);
    uint32_t id = entry_of(group, 0, 0, 3);
    sc_key_table_expel(&own->store->table, id);
    sc_catalog_leave(own->store, id, SPEC_REMOVED_DELETED, true);
    pthread_mutex_unlock(&own->store->lock);
}

/* A key is removed by a thread of a member while another thread clears its domain: the clear is the
 * record of both, and its pages are anybody's from there on. */
static void a_clear_frees_what_waits_for_its_record(void **state)
{
    (void)state;
    struct group *group = racing_group(SMALL, 8);
    struct member *own = &group->members[0];
    for (uint32_t i = 0; i < 8; i++)
        put_done(group, 1, 0, i);
    follow_all(group);
    race_reads = 0;
    race.act = a_thread_removes;
    clear(group, 0, 0);
    race.act = NULL;
    assert_int_equal(race_reads, 2);
    follow(group, 1);
    for (uint32_t i = 8; i < GROUP_KEYS; i++) {
        struct work *work = put_submit(group, 1, 1, i);
        step_to_end(group, work);
        assert_int_equal(work_end(group, work), SPEC_KEY_DONE);
    }
    assert_int_equal(sc_objects_record_removals(own->store, NULL), SPEC_OK);
    all_agree(group);
    an_open_agrees(group);
    group_free(group);
}

static void other_puts(struct group *group, uint32_t member)
{
    if (member != 0 || race_reads-- != 0)
        return;
    follow(group, 1);
    for (uint32_t i = 8; i < GROUP_KEYS; i++) {
        struct work *work = put_submit(group, 1, 1, i);
        step_to_end(group, work);
        assert_int_equal(work->status, SPEC_KEY_DONE);
    }
}

/* A thread has removed a key, and another puts it again before the record of that. Others give the
 * old pages again as soon as they know that the key has a new object. */
static void a_key_that_is_put_again_has_no_old_pages(void **state)
{
    (void)state;
    for (uint32_t n = 0; n < 6; n++) {
        struct group *group = racing_group(SMALL, 20 + n);
        struct member *own = &group->members[0];
        for (uint32_t i = 0; i < 8; i++)
            put_done(group, 1, 0, i);
        follow_all(group);
        pthread_mutex_lock(&own->store->lock); /* as remove does, before it appends */
        uint32_t id = entry_of(group, 0, 0, 3);
        sc_key_table_expel(&own->store->table, id);
        sc_catalog_leave(own->store, id, SPEC_REMOVED_DELETED, true);
        pthread_mutex_unlock(&own->store->lock);
        struct work *work = put_submit(group, 0, 0, 3);
        put_write(group, work);
        race_reads = n;
        race.act = other_puts;
        for (uint32_t i = 0; i < 200; i++)
            step(group, 0);
        assert_int_equal(own->store->unrecorded, 0);
        race.act = NULL;
        assert_int_equal(work_end(group, work), SPEC_KEY_DONE);
        while (group->works != NULL)
            (void)work_end(group, group->works);
        all_agree(group);
        an_open_agrees(group);
        group_free(group);
    }
}

/* ---- Ends ------------------------------------------------------------------------------------ */

static void what_a_killed_member_has_stored_is_found(void **state)
{
    (void)state;
    for (uint32_t n = 0; n < 40; n++) {
        struct group *group = group_new(DISK, n);
        for (uint32_t i = 0; i < 6; i++)
            put_done(group, i % 2, 0, i);
        struct work *work = put_submit(group, 0, 0, 7);
        for (uint32_t i = 0; i < n; i++)
            step(group, 0);
        bool was_pending = is_pending(work);
        member_kill(group, 0);
        follow_all(group);
        if (was_pending)
            group->twins[0][7].life = found(group, 1, 0, 7);
        all_agree(group);
        for (uint32_t i = 8; i < 16; i++)
            put_done(group, 1 + i % 3, 0, i);
        an_open_agrees(group);
        member_open(group, 0);
        all_agree(group);
        group_free(group);
    }
}

/* Two members open what is left of a disk: each value is right, or missed, and they store. */
static void left_is_right(struct group *group, uint32_t *kept, uint32_t *missed)
{
    for (uint32_t i = 0; i < 2; i++)
        member_open(group, i);
    for (uint32_t i = 0; i < GROUP_KEYS; i++)
        for (uint32_t member = 0; member < 2; member++) {
            int32_t status = get(group, member, i % 2, i);
            *kept += status == SPEC_KEY_DONE;
            *missed += status != SPEC_KEY_DONE;
            assert_true(status == SPEC_KEY_DONE || status == SPEC_KEY_ABSENT ||
                        status == SPEC_E_CORRUPT);
        }
    for (uint32_t i = 0; i < GROUP_KEYS; i++) {
        int32_t status = put(group, i % 2, i % 2, i);
        if (status != SPEC_KEY_DONE && status != SPEC_KEY_STORED)
            fail_msg("key %u: %d", i, (int)status);
        follow(group, 1 - i % 2);
        if (status == SPEC_KEY_DONE)
            assert_int_equal(get(group, 1 - i % 2, i % 2, i), SPEC_KEY_DONE);
    }
}

static void after_a_power_cut_values_are_right_or_missed(void **state)
{
    (void)state;
    uint32_t kept = 0, missed = 0;
    for (uint32_t n = 0; n < 30; n++) {
        struct group *group = group_new(DISK, 100 + n);
        struct sc_io_sim_disk *disk = NULL;
        for (uint32_t i = 0; i < GROUP_KEYS; i++) {
            put_done(group, i % GROUP_MEMBERS, i % 2, i);
            if (i == n % 20)
                checkpoint(group, 0);
            if (i % 5 == 4)
                (void)remove_key(group, (i + 1) % GROUP_MEMBERS, i % 2, i - 1);
        }
        assert_int_equal(
            sc_io_sim_disk_fork(group->disk, sc_io_sim_disk_events(group->disk), n, &disk, NULL),
            SPEC_OK);
        struct group *after = group_on(group, disk);
        left_is_right(after, &kept, &missed);
        group_free(after);
        group_free(group);
    }
    print_message("%u kept, %u missed\n", kept, missed);
    assert_true(kept > 0 && missed > 0);
}

/* A member whose index is full stores no more, and finds and delivers what it has; its close leaves
 * the others' objects in the log. */
static void a_full_index_ends_the_storing_of_one(void **state)
{
    (void)state;
    struct group *group = group_new(DISK, 9);
    for (uint32_t i = 0; i < 8; i++)
        put_done(group, i % GROUP_MEMBERS, 0, i);
    follow_all(group);
    spec_objects *full = group->members[0].store;
    full->table.bytes_max = full->table.used_bytes;
    for (uint32_t i = 8; i < 16; i++)
        put_done(group, 1 + i % 3, 0, i);
    follow(group, 0);
    assert_false(sc_store_stores(full->store));
    for (uint32_t i = 0; i < 16; i++) {
        uint32_t life = found(group, 0, 0, i);
        assert_true(life == 0 ? i >= 8 : life == group->twins[0][i].life);
        assert_int_equal(get(group, 0, 0, i), life == 0 ? SPEC_KEY_ABSENT : SPEC_KEY_DONE);
    }
    assert_int_equal(put(group, 0, 0, 20), SPEC_E_NO_SPACE);
    assert_int_equal(remove_key(group, 1, 0, 2), SPEC_KEY_DONE);
    follow(group, 0);
    assert_int_equal(found(group, 0, 0, 2), 0);
    for (uint32_t i = 1; i < GROUP_MEMBERS; i++)
        member_close(group, i);
    member_close(group, 0); /* the last, and it lacks some */
    member_open(group, 1);
    all_agree(group);
    an_open_agrees(group);
    group_free(group);
}

/* ---- Hostile files ----------------------------------------------------------------------------
 */

#define RANK_DIR "/sim/store/objects-0000-of-0001"

static struct {
    const char *name;
    uint64_t bytes;
} wanted;

static void size_note(const char *path, uint64_t bytes, void *user)
{
    (void)user;
    if (strcmp(path, wanted.name) == 0)
        wanted.bytes = bytes;
}

/* Bytes of a file become others, or it is cut. */
static void damage(struct group *group, const char *path, uint64_t *random)
{
    wanted.name = path;
    wanted.bytes = 0;
    sc_io_sim_disk_files(group->disk, size_note, NULL);
    if (wanted.bytes == 0)
        return;
    uint64_t at = draw(random, wanted.bytes), count = 1 + draw(random, draw(random, 2) * 200 + 1);
    if (draw(random, 6) == 0) {
        assert_true(sc_io_sim_disk_resize(group->disk, path, at));
        return;
    }
    for (uint64_t i = at; i < at + count && i < wanted.bytes; i++) {
        uint8_t byte = (uint8_t)draw(random, 256);
        assert_true(sc_io_sim_disk_poke(group->disk, path, i, &byte, 1));
    }
}

/* Each call ends, and what is delivered is right; it may be missed. */
static void hostile_use(struct group *group, uint64_t *random)
{
    for (uint32_t i = 0; i < 30; i++) {
        uint32_t at = (uint32_t)draw(random, GROUP_MEMBERS);
        uint32_t domain = i % 2, number = (uint32_t)draw(random, GROUP_KEYS);
        struct member *member = &group->members[at];
        const uint8_t key = (uint8_t)number;
        const struct spec_keys keys = {
            .struct_size = sizeof(keys), .count = 1, .data = &key, .key_bytes = 1};
        uint64_t what = draw(random, 10);
        if (member->store == NULL)
            continue;
        if (what < 4)
            (void)put(group, at, domain, number);
        else if (what < 8)
            (void)get(group, at, domain, number);
        else if (what < 9)
            (void)group->api->remove(member->store, member->domains[domain], &keys, 0, NULL, NULL);
        else
            (void)sc_objects_checkpoint(member->store, false, NULL);
    }
}

/* Damaged while all have it open, and while nobody has: nobody delivers wrong bytes or hangs, and
 * whoever opens what is left stores. */
static void hostile(const char *path, bool is_log)
{
    uint32_t refused = 0;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        struct group *group = group_new(DISK, seed);
        uint64_t random = seed;
        for (uint32_t i = 0; i < 12; i++)
            put_done(group, i % GROUP_MEMBERS, i % 2, i);
        group->is_damaged = true;
        for (uint32_t i = 0; i < 3; i++) {
            damage(group, path, &random);
            hostile_use(group, &random);
        }
        for (uint32_t i = 0; i < GROUP_MEMBERS; i++) {
            assert_true(is_log || sc_store_stores(group->members[i].store->store));
            member_close(group, i);
        }
        damage(group, path, &random);
        for (uint32_t i = 0; i < GROUP_MEMBERS; i++)
            refused += member_try_open(group, i) != SPEC_OK;
        assert_non_null(group->members[0].store);
        hostile_use(group, &random);
        int32_t status = put(group, 0, 1, 23);
        if (status != SPEC_KEY_DONE && status != SPEC_KEY_STORED)
            fail_msg("seed %u: %d", (uint32_t)seed, (int)status);
        group_free(group);
    }
    print_message("%u opens refused\n", refused);
    assert_true(is_log || refused == 0);
}

static void a_hostile_log_costs_objects_only(void **state)
{
    (void)state;
    hostile(RANK_DIR "/log", true);
}

static void hostile_hints_cost_nothing(void **state)
{
    (void)state;
    hostile(RANK_DIR "/hints", false);
    hostile(RANK_DIR "/members", false);
    hostile(RANK_DIR "/checkpoint.lock", false);
}

/* ---- Anything, in any order ------------------------------------------------------------------ */

static uint64_t race_random;

/* Another member does something that is short, and needs no device. */
static void another_acts(struct group *group, uint32_t member)
{
    uint32_t other = (uint32_t)draw(&race_random, GROUP_MEMBERS);
    if (other == member || group->members[other].store == NULL || draw(&race_random, 4) != 0)
        return;
    uint64_t what = draw(&race_random, 20);
    uint32_t domain = (uint32_t)draw(&race_random, GROUP_DOMAINS);
    uint32_t number = (uint32_t)draw(&race_random, GROUP_KEYS);
    if (what == 19) {
        domain_reopen(group, other, domain);
    } else if (what < 8) {
        (void)remove_key(group, other, domain, number);
    } else if (what < 10) {
        checkpoint(group, other);
    } else if (what < 11) {
        clear(group, other, domain);
    } else if (what < 13) {
        follow(group, other);
    } else {
        const spec_objects *store = group->members[other].store;
        for (uint32_t i = 0; i < 100 && store->commits != NULL; i++)
            step(group, other);
    }
}

/* A get must find what nobody removed since it was submitted. */
static void one_ends(struct group *group, struct work *work)
{
    const struct twin *twin = &group->twins[work->domain][work->number];
    bool is_put = work->is_put;
    uint32_t life = work->life;
    int32_t status = work_end(group, work);
    events_read(group);
    if (is_put)
        assert_true(status == SPEC_KEY_DONE || status == SPEC_KEY_STORED ||
                    status == SPEC_E_DROPPED);
    else if (life != 0 && twin->life == life)
        assert_int_equal(status, SPEC_KEY_DONE);
    else
        assert_true(status == SPEC_KEY_DONE || status == SPEC_KEY_ABSENT);
}

static void all_end(struct group *group)
{
    while (group->works != NULL)
        one_ends(group, group->works);
}

static void replace(struct group *group, uint32_t member, bool dies)
{
    race.act = NULL;
    for (struct work *work = group->works, *next; work != NULL; work = next) {
        next = work->next;
        if (work->member != member) /* they have the device */
            one_ends(group, work);
    }
    if (dies)
        member_kill(group, member);
    else
        member_close(group, member);
    member_open(group, member);
    race_join(group, member);
}

static void act(struct group *group, uint64_t *random)
{
    uint32_t member = (uint32_t)draw(random, GROUP_MEMBERS);
    uint32_t domain = (uint32_t)draw(random, GROUP_DOMAINS);
    uint32_t number = (uint32_t)draw(random, GROUP_KEYS);
    uint64_t what = draw(random, 100);
    race.act = another_acts;
    if (what < 35)
        (void)put_submit(group, member, domain, number);
    else if (what < 50)
        (void)get_submit(group, member, domain, number);
    else if (what < 65 && group->works != NULL)
        one_ends(group, group->works);
    else if (what < 76)
        (void)remove_key(group, member, domain, number);
    else if (what < 78)
        clear(group, member, domain);
    else if (what < 82)
        checkpoint(group, member);
    else if (what < 86)
        replace(group, member, what < 84);
    else if (what < 92)
        domain_reopen(group, member, domain);
    else
        for (uint32_t i = 0; i < what; i++)
            step(group, member);
    race.act = NULL;
}

static void histories(const char *extra, uint64_t first)
{
    for (uint64_t seed = first; seed < first + HISTORIES; seed++) {
        struct group *group = racing_group(extra, seed);
        uint64_t random = seed;
        race_random = seed + 1000;
        for (uint32_t i = 0; i < STEPS; i++) {
            act(group, &random);
            if (i % 15 == 14) {
                all_end(group);
                all_agree(group);
            }
        }
        all_end(group);
        all_agree(group);
        an_open_agrees(group);
        group_free(group);
    }
}

static void histories_are_the_same_for_all(void **state)
{
    (void)state;
    histories(DISK, 1);
}

static void histories_of_a_full_disk_are_the_same_for_all(void **state)
{
    (void)state;
    histories(SMALL, 500);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_find_what_any_has_stored),
        cmocka_unit_test(one_of_two_puts_of_a_key_is_stored),
        cmocka_unit_test(a_put_that_loses_the_race_is_stored_once),
        cmocka_unit_test(domains_have_one_number_each),
        cmocka_unit_test(a_domain_that_is_forgotten_is_told_again),
        cmocka_unit_test(what_any_gets_is_evicted_last),
        cmocka_unit_test(what_another_has_removed_is_absent),
        cmocka_unit_test(a_get_beside_a_removal_is_right_or_absent),
        cmocka_unit_test(a_removal_that_waits_names_no_other_object),
        cmocka_unit_test(a_checkpoint_takes_nothing_from_one_alone),
        cmocka_unit_test(a_clear_frees_what_waits_for_its_record),
        cmocka_unit_test(a_key_that_is_put_again_has_no_old_pages),
        cmocka_unit_test(what_a_killed_member_has_stored_is_found),
        cmocka_unit_test(after_a_power_cut_values_are_right_or_missed),
        cmocka_unit_test(a_full_index_ends_the_storing_of_one),
        cmocka_unit_test(a_hostile_log_costs_objects_only),
        cmocka_unit_test(hostile_hints_cost_nothing),
        cmocka_unit_test(histories_are_the_same_for_all),
        cmocka_unit_test(histories_of_a_full_disk_are_the_same_for_all),
    };
    return cmocka_run_group_tests_name("plugin objects members", tests, NULL, NULL);
}

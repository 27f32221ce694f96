/* Lists, events and counts: OBJ-080 .. OBJ-082.
 *
 * Holds, Does not, Threads, Tests: as objects.h. */
#include "conformance/objects/objects.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- 080 ---- */

/* The list has the keys [first, first + count) once each, with values of this size. */
static void expect_list(const struct event_list *list, uint64_t first, uint64_t count,
                        uint64_t bytes)
{
    uint8_t *seen = calloc(count, 1);
    assert_non_null(seen);
    assert_int_equal(list->count, count);
    for (uint64_t i = 0; i < list->count; i++) {
        const struct spec_object_event *event = &list->events[i];
        uint64_t number = first;
        while (number < first + count && !event_is(list, i, number))
            number++;
        assert_true(number < first + count);
        assert_int_equal(seen[number - first]++, 0);
        assert_int_equal(event->kind, SPEC_EVENT_STORED);
        assert_int_equal(event->sequence, 0);
        assert_int_equal(event->bytes, bytes);
    }
    free(seen);
}

static void obj_080_a_list_has_every_object_once_by_any_capacity(void **state)
{
    struct objects *fx = *state;
    static const uint64_t CAPACITIES[] = {1, 2, 7, 99, 100, 1000};
    spec_domain other = objects_domain(fx, "other");
    put_done(fx, fx->domain, 0, 100, 300);
    put_done(fx, other, 50, 100, 400);
    for (size_t i = 0; i < sizeof(CAPACITIES) / sizeof(CAPACITIES[0]); i++) {
        struct event_list list = list_all(fx, fx->domain, CAPACITIES[i], SPEC_KEY_BYTES_MAX);
        expect_list(&list, 0, 100, 300);
        event_list_free(&list);
        list = list_all(fx, other, CAPACITIES[i], 64 * KIB);
        expect_list(&list, 50, 100, 400);
        event_list_free(&list);
    }
    objects_reopen(fx);
    struct event_list list = list_all(fx, fx->domain, 64, 64 * KIB);
    expect_list(&list, 0, 100, 300);
    event_list_free(&list);
    remove_keys(fx, fx->domain, 0, 100, 0);
    list = list_all(fx, fx->domain, 64, 64 * KIB);
    assert_int_equal(list.count, 0);
    event_list_free(&list);
}

static void obj_080_domains_are_listed_with_their_identities_and_bytes(void **state)
{
    struct objects *fx = *state;
    spec_domain other = objects_domain(fx, "another one");
    put_done(fx, fx->domain, 0, 10, 300);
    put_done(fx, other, 0, 7, 1000);
    for (uint64_t capacity = 1; capacity <= 8; capacity *= 8) {
        struct event_list list = list_all(fx, 0, capacity, SPEC_DOMAIN_BYTES_MAX);
        uint32_t found = 0;
        for (uint64_t i = 0; i < list.count; i++) {
            const struct spec_object_event *event = &list.events[i];
            bool is_other = event->domain == other;
            const char *identity = is_other ? "another one" : "domain";
            assert_true(is_other || event->domain == fx->domain);
            assert_int_equal(event->key_bytes, strlen(identity));
            assert_memory_equal(list.keys + event->key_offset, identity, event->key_bytes);
            assert_int_equal(event->bytes, is_other ? 7000 : 3000);
            found |= is_other ? 2 : 1;
        }
        assert_int_equal(list.count, 2);
        assert_int_equal(found, 3);
        event_list_free(&list);
    }
}

static void obj_080_wrong_lists_are_invalid(void **state)
{
    struct objects *fx = *state;
    struct spec_object_event events[2];
    uint8_t room[SPEC_DOMAIN_BYTES_MAX];
    const struct spec_list right = {.struct_size = sizeof(right),
                                    .domain = fx->domain,
                                    .ret_events = events,
                                    .capacity = 2,
                                    .key_room = room,
                                    .key_room_bytes = SPEC_KEY_BYTES_MAX};
    struct spec_list list = right;
    assert_ok(fx, fx->api->list(fx->store, &list, &fx->error));
    list = right;
    list.capacity = 0;
    assert_status(fx->api->list(fx->store, &list, &fx->error), SPEC_E_INVALID);
    list = right;
    list.key_room_bytes = SPEC_KEY_BYTES_MAX - 1;
    assert_status(fx->api->list(fx->store, &list, &fx->error), SPEC_E_INVALID);
    list = right;
    list.domain = 0;
    list.key_room_bytes = SPEC_DOMAIN_BYTES_MAX - 1;
    assert_status(fx->api->list(fx->store, &list, &fx->error), SPEC_E_INVALID);
    list = right;
    list.ret_events = NULL;
    assert_status(fx->api->list(fx->store, &list, &fx->error), SPEC_E_INVALID);
    list = right;
    list.domain = fx->domain + 1000;
    assert_status(fx->api->list(fx->store, &list, &fx->error), SPEC_E_INVALID);
}

/* A list, and the events from its sequence on, give the objects that are stored. */
static void obj_080_a_list_with_the_events_behind_it_is_complete(void **state)
{
    struct objects *fx = *state;
    struct spec_object_event events[5];
    uint8_t room[SPEC_KEY_BYTES_MAX], expected[60] = {0}, seen[60] = {0};
    put_done(fx, fx->domain, 0, 30, 300);
    struct spec_list list = {.struct_size = sizeof(list),
                             .domain = fx->domain,
                             .ret_events = events,
                             .capacity = 5,
                             .key_room = room,
                             .key_room_bytes = sizeof(room)};
    uint64_t sequence = 0;
    for (uint32_t call = 0; call == 0 || list.cursor != 0; call++) {
        assert_ok(fx, fx->api->list(fx->store, &list, &fx->error));
        sequence = call == 0 ? list.sequence : sequence;
        for (uint64_t i = 0; i < list.ret_count; i++) {
            struct event_list one = {.events = events, .keys = room, .count = list.ret_count};
            for (uint64_t k = 0; k < 60; k++)
                seen[k] |= event_is(&one, i, k);
        }
        if (call < 15) { /* changes between the calls */
            put_done(fx, fx->domain, 30 + call, 1, 300);
            remove_keys(fx, fx->domain, call * 2, 1, 0);
        }
    }
    struct event_list changes = events_from(fx, fx->domain, sequence, 5);
    assert_int_equal(changes.missed, 0);
    for (uint64_t i = 0; i < changes.count; i++)
        for (uint64_t k = 0; k < 60; k++)
            if (event_is(&changes, i, k))
                seen[k] = changes.events[i].kind == SPEC_EVENT_STORED;
    for (uint64_t k = 0; k < 60; k++) {
        expected[k] = exists_one(fx, fx->domain, k) == SPEC_KEY_DONE;
        assert_int_equal(seen[k], expected[k]);
    }
    event_list_free(&changes);
}

/* ---- 081 ---- */

static uint64_t sequence_now(struct objects *fx)
{
    struct event_list list = list_all(fx, fx->domain, 256, 64 * KIB);
    uint64_t sequence = list.sequence;
    event_list_free(&list);
    return sequence;
}

static void obj_081_every_change_is_an_event_in_order(void **state)
{
    struct objects *fx = *state;
    spec_domain other = objects_domain(fx, "other");
    uint64_t from = sequence_now(fx);
    for (uint64_t i = 0; i < 10; i++)
        put_done(fx, fx->domain, i, 1, 100 + i);
    put_done(fx, other, 0, 1, 55);
    remove_keys(fx, fx->domain, 3, 2, 0);
    remove_keys(fx, fx->domain, 500, 2, 0); /* absent: no event */
    assert_ok(fx, fx->api->clear(fx->store, other, 0, &fx->error));
    for (uint64_t capacity = 1; capacity < 100; capacity *= 5) {
        struct event_list all = events_from(fx, 0, from, capacity);
        assert_int_equal(all.missed, 0);
        assert_int_equal(all.count, 14);
        for (uint64_t i = 0; i < 14; i++) {
            const struct spec_object_event *event = &all.events[i];
            uint32_t kind = i < 11   ? SPEC_EVENT_STORED
                            : i < 13 ? SPEC_EVENT_REMOVED
                                     : SPEC_EVENT_CLEARED;
            assert_int_equal(event->sequence, all.events[0].sequence + i);
            assert_int_equal(event->kind, kind);
            assert_int_equal(event->reason, i == 11 || i == 12 ? SPEC_REMOVED_DELETED : 0);
            assert_int_equal(event->domain, i == 10 || i == 13 ? other : fx->domain);
            if (i < 10)
                assert_true(event_is(&all, i, i) && event->bytes == 100 + i);
        }
        assert_true(event_is(&all, 11, 3) || event_is(&all, 12, 3));
        assert_true(event_is(&all, 11, 4) || event_is(&all, 12, 4));
        assert_int_equal(all.events[13].key_bytes, 0);
        assert_true(all.events[0].sequence >= from);
        assert_int_equal(all.sequence, all.events[13].sequence + 1);
        event_list_free(&all);
    }
    struct event_list mine = events_from(fx, other, from, 3);
    assert_int_equal(mine.count, 2);
    event_list_free(&mine);
}

static void obj_081_eviction_is_an_event(void **state)
{
    struct objects *fx = *state;
    objects_configure(fx, SMALL);
    uint64_t from = sequence_now(fx), stored = 0, evicted = 0;
    for (uint64_t i = 0; i < 100; i++)
        put_done(fx, fx->domain, i, 1, MIB);
    struct event_list all = events_from(fx, fx->domain, from, 50);
    assert_int_equal(all.missed, 0);
    for (uint64_t i = 0; i < all.count; i++) {
        stored += all.events[i].kind == SPEC_EVENT_STORED;
        if (all.events[i].kind != SPEC_EVENT_REMOVED)
            continue;
        assert_int_equal(all.events[i].reason, SPEC_REMOVED_EVICTED);
        assert_int_equal(all.events[i].bytes, MIB);
        evicted++;
    }
    assert_int_equal(stored, 100);
    assert_true(evicted >= 100 - SMALL_MIB);
    event_list_free(&all);
}

static void obj_081_a_reader_of_an_earlier_open_has_missed_events(void **state)
{
    struct objects *fx = *state;
    uint64_t from = sequence_now(fx);
    put_done(fx, fx->domain, 0, 10, 100);
    objects_reopen(fx);
    assert_true(sequence_now(fx) > from + 10);
    struct event_list all = events_from(fx, 0, from, 50);
    assert_true(all.missed > 0);
    event_list_free(&all);
    from = sequence_now(fx);
    all = events_from(fx, 0, from, 50);
    assert_int_equal(all.missed, 0);
    assert_int_equal(all.count, 0);
    event_list_free(&all);
}

/* More changes than a ring holds: what was overwritten is reported as missed, the rest has no gap.
 */
static void obj_081_events_that_were_overwritten_are_missed(void **state)
{
    struct objects *fx = *state;
    uint64_t from = sequence_now(fx), changes = 0;
    while (changes < SAMPLE_OF(80000u, 20000u)) {
        put_done(fx, fx->domain, 0, 1000, 1);
        remove_keys(fx, fx->domain, 0, 1000, 0);
        changes += 2000;
    }
    struct event_list all = events_from(fx, 0, from, 1000);
    assert_true(all.count > 0);
    assert_true(all.missed > 0 || all.count == changes);
    assert_true(all.count <= changes);
    for (uint64_t i = 1; i < all.count; i++)
        assert_int_equal(all.events[i].sequence, all.events[0].sequence + i);
    assert_int_equal(all.events[all.count - 1].kind, SPEC_EVENT_REMOVED);
    assert_true(all.missed > 0 || all.events[0].sequence == from);
    event_list_free(&all);
}

static void obj_081_wrong_reads_are_invalid(void **state)
{
    struct objects *fx = *state;
    struct spec_object_event events[2];
    uint8_t room[SPEC_KEY_BYTES_MAX];
    const struct spec_read_events right = {.struct_size = sizeof(right),
                                           .ret_events = events,
                                           .capacity = 2,
                                           .key_room = room,
                                           .key_room_bytes = sizeof(room)};
    struct spec_read_events in = right;
    in.capacity = 0;
    assert_status(fx->api->events(fx->store, &in, &fx->error), SPEC_E_INVALID);
    in = right;
    in.key_room_bytes = SPEC_KEY_BYTES_MAX - 1;
    assert_status(fx->api->events(fx->store, &in, &fx->error), SPEC_E_INVALID);
    in = right;
    in.key_room = NULL;
    assert_status(fx->api->events(fx->store, &in, &fx->error), SPEC_E_INVALID);
    in = right;
    in.domain = fx->domain + 1000;
    assert_status(fx->api->events(fx->store, &in, &fx->error), SPEC_E_INVALID);
}

/* ---- 082 ---- */

/* What holds of any counts. */
static void check_stats(const struct spec_object_stats *stats)
{
    assert_true(stats->exists_hits <= stats->exists_keys);
    assert_true(stats->get_hits <= stats->get_keys);
    assert_true(stats->disk_bytes_used <= stats->disk_bytes_max);
    assert_true(stats->bytes <= stats->disk_bytes_used);
    assert_true(stats->put_stored + stats->put_present + stats->put_no_space +
                    stats->put_timeouts <=
                stats->put_keys);
}

static void obj_082_counts_add_up(void **state)
{
    struct objects *fx = *state;
    spec_domain other = objects_domain(fx, "other");
    put_done(fx, fx->domain, 0, 20, 5000);
    struct batch b = batch_make(0, 30, 5000);
    put(fx, fx->domain, &b); /* 20 STORED, 10 DONE */
    put_done(fx, other, 0, 5, 100);
    (void)exists(fx, fx->domain, 20, 20, 0, NULL); /* 10 hits */
    b.keys.count = 8;
    get(fx, fx->domain, &b);
    get_expect(fx, fx->domain, 100, 4, 5000, SPEC_KEY_ABSENT);
    remove_keys(fx, fx->domain, 0, 3, 0);
    remove_keys(fx, fx->domain, 100, 3, 0);
    struct spec_object_stats mine = objects_stats(fx, fx->domain);
    struct spec_object_stats all = objects_stats(fx, 0);
    check_stats(&mine);
    check_stats(&all);
    assert_int_equal(mine.objects, 27);
    assert_int_equal(mine.bytes, 27 * 5000);
    assert_int_equal(mine.put_keys, 50);
    assert_int_equal(mine.put_stored, 30);
    assert_int_equal(mine.put_bytes, 30 * 5000);
    assert_int_equal(mine.put_present, 20);
    assert_int_equal(mine.exists_keys, 20);
    assert_int_equal(mine.exists_hits, 10);
    assert_int_equal(mine.get_keys, 12);
    assert_int_equal(mine.get_hits, 8);
    assert_int_equal(mine.get_bytes, 8 * 5000);
    assert_int_equal(mine.deleted_objects, 3);
    assert_int_equal(mine.evicted_objects + mine.damaged_objects + mine.io_errors, 0);
    assert_int_equal(all.objects, 32);
    assert_int_equal(all.bytes, 27 * 5000 + 500);
    assert_int_equal(all.put_stored, 35);
    assert_int_equal(all.disk_bytes_max, 256 * MIB);
    assert_true(all.index_bytes > 0);
    assert_int_equal(all.waiting_puts + all.inflight_bytes, 0);
    assert_int_equal(mine.disk_bytes_used, all.disk_bytes_used);
    b.keys.count = 30;
    batch_free(&b);
}

static void obj_082_objects_are_those_stored_without_those_removed(void **state)
{
    struct objects *fx = *state;
    objects_configure(fx, SMALL);
    for (uint64_t i = 0; i < 30; i++) {
        put_done(fx, fx->domain, i * 8, 8, 300 * KIB + i * 1000);
        if (i % 5 == 4)
            remove_keys(fx, fx->domain, i * 8 - 12, 6, 0);
    }
    struct spec_object_stats stats = objects_stats(fx, 0), after = {0};
    struct event_list list = {0};
    for (;; stats = after) { /* until nothing was evicted in the background meanwhile */
        list = list_all(fx, fx->domain, 100, 64 * KIB);
        after = objects_stats(fx, 0);
        if (after.evicted_objects == stats.evicted_objects)
            break;
        event_list_free(&list);
    }
    uint64_t bytes = 0;
    for (uint64_t i = 0; i < list.count; i++)
        bytes += list.events[i].bytes;
    check_stats(&stats);
    assert_int_equal(stats.put_stored, 240);
    assert_int_equal(stats.objects,
                     stats.put_stored - stats.evicted_objects - stats.deleted_objects);
    assert_int_equal(stats.objects, list.count);
    assert_int_equal(stats.bytes, bytes);
    assert_int_equal(stats.bytes + stats.evicted_bytes <= stats.put_bytes, 1);
    assert_true(stats.evicted_objects > 0);
    event_list_free(&list);
}

const struct conf_test CONF_OBJECT_REPORTS[] = {
    OPENED(obj_080_a_list_has_every_object_once_by_any_capacity),
    OPENED(obj_080_domains_are_listed_with_their_identities_and_bytes),
    OPENED(obj_080_wrong_lists_are_invalid),
    OPENED(obj_080_a_list_with_the_events_behind_it_is_complete),
    OPENED(obj_081_every_change_is_an_event_in_order),
    OPENED(obj_081_eviction_is_an_event),
    OPENED(obj_081_a_reader_of_an_earlier_open_has_missed_events),
    OPENED(obj_081_events_that_were_overwritten_are_missed),
    OPENED(obj_081_wrong_reads_are_invalid),
    OPENED(obj_082_counts_add_up),
    OPENED(obj_082_objects_are_those_stored_without_those_removed),
    END};

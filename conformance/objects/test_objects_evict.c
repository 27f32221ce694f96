/* Full stores: OBJ-006, OBJ-052 (order of eviction, floors and limits), OBJ-073.
 *
 * Holds, Does not, Threads, Tests: as objects.h. */
#include "conformance/objects/objects.h"

#include "conformance/disk.h"

#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define TICK_US 200000u /* uses that are so far apart have an order */

/* ---- 006, 052: a burst ---- */

static void expect_files_within(struct objects *fx, uint64_t bytes_max)
{
    uint64_t bytes = disk_bytes(&fx->rows);
    if (bytes > bytes_max)
        fail_msg("files take %" PRIu64 " bytes, disk_bytes is %" PRIu64, bytes, bytes_max);
}

/* Three times the store in batches; none is refused, the store is full afterwards, and all that
 * exists reports is delivered. */
static void burst(struct objects *fx, uint32_t batch_keys)
{
    enum { KEYS = 768, STORE_MIB = 256 };
    objects_configure(fx, "\"disk_bytes\": \"256MiB\"");
    for (uint32_t first = 0; first < KEYS; first += batch_keys) {
        put_done(fx, fx->domain, first, batch_keys, MIB);
        if (first % 64 == 0)
            expect_files_within(fx, STORE_MIB * MIB);
    }
    expect_files_within(fx, STORE_MIB * MIB);
    struct spec_object_stats stats = objects_stats(fx, 0);
    if (stats.bytes < STORE_MIB * MIB * 95 / 100)
        fail_msg("%" PRIu64 " MiB are held, expected 95 %% of %d", stats.bytes / MIB, STORE_MIB);
    assert_true(stats.bytes <= STORE_MIB * MIB);
    uint32_t held = 0;
    for (uint32_t i = 0; i < KEYS; i++)
        if (exists(fx, fx->domain, i, 1, SPEC_EXISTS_HOLD, NULL) == 1) {
            get_expect(fx, fx->domain, i, 1, MIB, SPEC_KEY_DONE);
            held++;
        }
    assert_true(held <= STORE_MIB && held * 100 >= STORE_MIB * 95);
    struct event_list list = list_all(fx, fx->domain, 100, 64 * KIB);
    assert_int_equal(list.count, held);
    event_list_free(&list);
    expect_files_within(fx, STORE_MIB * MIB);
}

static void obj_006_a_burst_one_by_one_is_stored_within_disk_bytes(void **state)
{
    burst(*state, 1);
}

static void obj_006_a_burst_in_batches_of_8_is_stored_within_disk_bytes(void **state)
{
    burst(*state, 8);
}

static void obj_006_a_burst_in_batches_of_64_is_stored_within_disk_bytes(void **state)
{
    burst(*state, 64);
}

/* Sizes that leave remainders, removals, and reopening. */
static void obj_006_files_stay_within_disk_bytes_with_values_of_any_size(void **state)
{
    struct objects *fx = *state;
    uint64_t turn_of_dice = 6;
    objects_configure(fx, SMALL);
    for (uint32_t i = 0; i < 300; i++) {
        put_done(fx, fx->domain, i * 10, 4, 1 + dice(&turn_of_dice, 2 * MIB));
        if (i % 7 == 6)
            remove_keys(fx, fx->domain, (i - dice(&turn_of_dice, 6)) * 10, 4, 0);
        if (i % 100 == 99)
            objects_reopen(fx);
        if (i % 10 == 9)
            expect_files_within(fx, SMALL_MIB * MIB);
    }
    objects_reopen(fx);
    expect_files_within(fx, SMALL_MIB * MIB);
    assert_true(objects_stats(fx, 0).disk_bytes_used <= SMALL_MIB * MIB);
}

/* Many short values: keys and records take room, too. */
static void obj_006_short_values_stay_within_disk_bytes(void **state)
{
    struct objects *fx = *state;
    objects_configure(fx, SMALL);
    for (uint32_t i = 0; i < 20; i++) {
        put_done(fx, fx->domain, i * 2000, 2000, 1);
        expect_files_within(fx, SMALL_MIB * MIB);
    }
    assert_true(exists_count(fx, fx->domain, 19 * 2000, 2000) > 0);
    assert_true(objects_stats(fx, 0).objects <= SMALL_MIB * MIB / PAGE);
}

/* ---- 052, 073: order ---- */

/* Evicts until one of the older keys is absent: none of the others is, before all of those are. */
static void expect_evicted_first(struct objects *fx, uint64_t older, uint64_t younger,
                                 uint32_t count)
{
    uint32_t left = count;
    for (uint64_t next = 100000; left == count; next++) {
        put_done(fx, fx->domain, next, 1, MIB);
        uint32_t young = exists_count(fx, fx->domain, younger, count);
        left = exists_count(fx, fx->domain, older, count);
        if (young < count && exists_count(fx, fx->domain, older, count) > 0)
            fail_msg("%" PRIu32 " of the younger are evicted, and %" PRIu32 " of the older are not",
                     count - young, left);
        assert_true(next < 100000 + 2 * SMALL_MIB);
    }
}

static void obj_052_the_least_recently_put_is_evicted_first(void **state)
{
    struct objects *fx = *state;
    objects_configure(fx, SMALL);
    put_done(fx, fx->domain, 0, 8, MIB);
    usleep(TICK_US);
    put_done(fx, fx->domain, 100, 8, MIB);
    usleep(TICK_US);
    expect_evicted_first(fx, 0, 100, 8);
}

static void obj_052_a_get_is_a_use(void **state)
{
    struct objects *fx = *state;
    objects_configure(fx, SMALL);
    put_done(fx, fx->domain, 0, 8, MIB);
    usleep(TICK_US);
    put_done(fx, fx->domain, 100, 8, MIB);
    usleep(TICK_US);
    get_expect(fx, fx->domain, 0, 8, MIB, SPEC_KEY_DONE);
    usleep(TICK_US);
    expect_evicted_first(fx, 100, 0, 8);
}

static void obj_052_the_order_of_use_is_kept_by_a_reopen(void **state)
{
    struct objects *fx = *state;
    objects_configure(fx, SMALL);
    put_done(fx, fx->domain, 0, 8, MIB);
    usleep(TICK_US);
    put_done(fx, fx->domain, 100, 8, MIB);
    usleep(TICK_US);
    objects_reopen(fx);
    expect_evicted_first(fx, 0, 100, 8);
}

static void obj_073_a_touch_is_a_use(void **state)
{
    struct objects *fx = *state;
    struct batch b = batch_make(0, 16, 1); /* half of them are absent */
    objects_configure(fx, SMALL);
    put_done(fx, fx->domain, 0, 8, MIB);
    usleep(TICK_US);
    put_done(fx, fx->domain, 100, 8, MIB);
    usleep(TICK_US);
    assert_ok(fx, fx->api->touch(fx->store, fx->domain, &b.keys, &fx->error));
    usleep(TICK_US);
    assert_int_equal(exists_count(fx, fx->domain, 8, 8), 0); /* a touch makes nothing */
    expect_evicted_first(fx, 100, 0, 8);
    batch_free(&b);
}

/* ---- 052: floors and limits ---- */

static void obj_052_a_domain_is_not_evicted_below_its_floor(void **state)
{
    struct objects *fx = *state;
    objects_configure(fx, SMALL);
    spec_domain floor = objects_domain_limits(fx, "floor", 16 * MIB, 0);
    put_done(fx, floor, 0, 16, MIB);
    usleep(TICK_US);
    for (uint64_t i = 0; i < 200; i += 4)
        put_done(fx, fx->domain, i, 4, MIB);
    get_expect(fx, floor, 0, 16, MIB, SPEC_KEY_DONE);
    put_done(fx, floor, 100, 30, MIB); /* it evicts others, and itself above the floor */
    for (uint64_t i = 200; i < 400; i += 4)
        put_done(fx, fx->domain, i, 4, MIB);
    assert_true(objects_stats(fx, floor).bytes >= 16 * MIB);
}

/* One large value needs more room than a domain has above its floor. */
static void obj_052_a_large_value_takes_nothing_below_a_floor(void **state)
{
    struct objects *fx = *state;
    objects_configure(fx, SMALL);
    spec_domain floor = objects_domain_limits(fx, "floor", 40 * MIB, 0);
    for (uint64_t i = 0; i < 42; i += 6)
        put_done(fx, floor, i, 6, MIB);
    usleep(TICK_US);
    for (uint64_t i = 0; i < 6; i++)
        put_done(fx, fx->domain, 100 + i, 1, 12 * MIB);
    assert_true(objects_stats(fx, floor).bytes >= 40 * MIB);
}

/* A floor protects from other domains: puts of the domain itself replace its objects. */
static void obj_052_a_floor_as_large_as_the_store_stops_nobody(void **state)
{
    struct objects *fx = *state;
    objects_configure(fx, SMALL);
    spec_domain floor = objects_domain_limits(fx, "floor", 2 * SMALL_MIB * MIB, 0);
    for (uint64_t i = 0; i < 2 * SMALL_MIB; i += 8)
        put_done(fx, floor, i, 8, MIB);
    get_expect(fx, floor, 2 * SMALL_MIB - 8, 8, MIB, SPEC_KEY_DONE);
}

static void obj_052_a_limit_below_a_page_is_one(void **state)
{
    struct objects *fx = *state;
    spec_domain limited = objects_domain_limits(fx, "limited", 0, 100);
    struct batch b = batch_make(0, 2, 5000);
    put(fx, limited, &b);
    batch_expect(&b, SPEC_E_NO_SPACE);
    assert_int_equal(objects_stats(fx, limited).bytes, 0);
    batch_free(&b);
}

static void obj_052_a_domain_stays_within_its_limit(void **state)
{
    struct objects *fx = *state;
    objects_configure(fx, SMALL);
    spec_domain limited = objects_domain_limits(fx, "limited", 0, 8 * MIB);
    put_done(fx, fx->domain, 0, 16, MIB);
    usleep(TICK_US);
    for (uint64_t i = 0; i < 48; i += 4) {
        put_done(fx, limited, i, 4, MIB);
        assert_true(objects_stats(fx, limited).bytes <= 8 * MIB);
    }
    get_expect(fx, fx->domain, 0, 16, MIB, SPEC_KEY_DONE); /* no other domain made room for it */
    assert_true(exists_count(fx, limited, 44, 4) == 4);
    (void)objects_domain_limits(fx, "limited", 0, 16 * MIB); /* the last opener's limit */
    put_done(fx, limited, 100, 12, MIB);
    assert_int_equal(exists_count(fx, limited, 100, 12), 12);
}

/* ---- 052: a full index ---- */

/* Puts keys of this length, with values of a byte, and returns how many were DONE. */
static uint32_t put_long_keys(struct objects *fx, uint32_t first, uint32_t count,
                              uint32_t key_bytes)
{
    struct batch b = batch_make(first, count, 1);
    uint8_t *keys = calloc(count, key_bytes);
    assert_non_null(keys);
    for (uint32_t i = 0; i < count; i++)
        memcpy(keys + (uint64_t)i * key_bytes, b.key_data + i * KEY_BYTES, KEY_BYTES);
    b.keys.data = keys;
    b.keys.key_bytes = key_bytes;
    b.params.timeout_ns = 5000 * MS_NS;
    put(fx, fx->domain, &b);
    uint32_t done = batch_count(&b, SPEC_KEY_DONE);
    free(keys);
    batch_free(&b);
    return done;
}

/* An index full of keys of one length has room for one of another. */
static void obj_052_keys_of_any_length_replace_others(void **state)
{
    struct objects *fx = *state;
    objects_configure(fx, "\"disk_bytes\": \"256MiB\", \"index_bytes_max\": \"8MiB\"");
    for (uint32_t i = 0; i < 8; i++)
        assert_int_equal(put_long_keys(fx, i * 4000, 4000, 250), 4000);
    uint64_t stored = objects_stats(fx, 0).objects;
    assert_int_equal(put_long_keys(fx, 100000, 4, 1000), 4);
    assert_true(objects_stats(fx, 0).objects >= stored / 2);
}

/* ---- 052: files that do not grow for a while ---- */

static void obj_052_puts_go_on_when_files_can_be_written_again(void **state)
{
    struct objects *fx = *state;
    struct rlimit before, limit;
    struct batch b = batch_make(1000, 1, MIB);
    objects_configure(fx, SMALL);
    for (uint64_t i = 0; i < 80; i += 8)
        put_done(fx, fx->domain, i, 8, MIB);
    uint64_t stored = objects_stats(fx, 0).objects;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    limit = before;
    limit.rlim_cur = 1;
    assert_true(signal(SIGXFSZ, SIG_IGN) != SIG_ERR);
    b.params.timeout_ns = 4000 * MS_NS;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    put(fx, fx->domain, &b); /* whatever comes of it */
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_true(objects_stats(fx, 0).objects >= stored / 2);
    put_done(fx, fx->domain, 2000, 8, MIB);
    get_expect(fx, fx->domain, 2000, 8, MIB, SPEC_KEY_DONE);
    batch_free(&b);
}

/* More keys than the index may have: the least recently used leave it, and no put is refused. */
static void obj_052_a_full_index_takes_new_keys(void **state)
{
    struct objects *fx = *state;
    objects_configure(fx, "\"disk_bytes\": \"128MiB\", \"index_bytes_max\": \"1MiB\", "
                          "\"objects\": {\"log_ppm\": 250000}");
    for (uint64_t i = 0; i < 12000; i += 1000)
        put_done(fx, fx->domain, i, 1000, 1);
    get_expect(fx, fx->domain, 11900, 100, 1, SPEC_KEY_DONE);
    assert_true(objects_stats(fx, 0).objects < 12000);
}

const struct conf_test CONF_OBJECT_EVICT[] = {
    OPENED(obj_006_a_burst_one_by_one_is_stored_within_disk_bytes),
    OPENED(obj_006_a_burst_in_batches_of_8_is_stored_within_disk_bytes),
    OPENED(obj_006_a_burst_in_batches_of_64_is_stored_within_disk_bytes),
    OPENED(obj_006_files_stay_within_disk_bytes_with_values_of_any_size),
    OPENED(obj_006_short_values_stay_within_disk_bytes),
    OPENED(obj_052_the_least_recently_put_is_evicted_first),
    OPENED(obj_052_a_get_is_a_use),
    OPENED(obj_052_the_order_of_use_is_kept_by_a_reopen),
    OPENED(obj_073_a_touch_is_a_use),
    OPENED(obj_052_a_domain_is_not_evicted_below_its_floor),
    OPENED(obj_052_a_large_value_takes_nothing_below_a_floor),
    OPENED(obj_052_a_floor_as_large_as_the_store_stops_nobody),
    OPENED(obj_052_a_limit_below_a_page_is_one),
    OPENED(obj_052_a_domain_stays_within_its_limit),
    OPENED(obj_052_a_full_index_takes_new_keys),
    OPENED(obj_052_keys_of_any_length_replace_others),
    OPENED(obj_052_puts_go_on_when_files_can_be_written_again),
    END};

/* Routes of values: which is taken follows from measured times alone. Time is the test's.
 *
 *   device   takes so many ns a byte straight, and so many staged, one transfer after the other
 *
 * Threads: one. */
#include "plugin/objects/objects.h"
#include "tests/unit/cases.h"

#define VALUE (1ull << 20)
#define DEPTH 8u /* transfers under way at one time */

struct device {
    spec_objects *objects;
    struct sc_object_route route;
    uint64_t now_ns, ns_per_kib[2]; /* straight, staged */
    bool flying[DEPTH];             /* their routes, the oldest first */
    uint32_t count;
    uint64_t staged, straight; /* transfers that were begun */
};

static void begin_one(struct device *device)
{
    bool is_staged = sc_objects_route_begin(device->objects, &device->route, device->now_ns);
    device->flying[device->count++] = is_staged;
    device->staged += is_staged;
    device->straight += !is_staged;
}

static void end_one(struct device *device)
{
    bool was_staged = device->flying[0];
    device->now_ns += VALUE / 1024 * device->ns_per_kib[was_staged ? 1 : 0];
    memmove(device->flying, device->flying + 1, sizeof(device->flying) - sizeof(bool));
    device->count--;
    sc_objects_route_end(device->objects, &device->route, was_staged, VALUE, device->now_ns);
}

/* Batches: a number of values with DEPTH under way, then a pause. */
static void run(struct device *device, uint64_t values, uint64_t pause_ns)
{
    for (uint64_t i = 0; i < values; i++) {
        if (device->count == DEPTH)
            end_one(device);
        begin_one(device);
    }
    while (device->count > 0)
        end_one(device);
    device->now_ns += pause_ns;
}

static struct device device_of(spec_objects *objects, uint64_t straight, uint64_t staged)
{
    memset(objects, 0, sizeof(*objects));
    return (struct device){.objects = objects, .now_ns = 1000, .ns_per_kib = {straight, staged}};
}

/* Both are tried; then the faster one is taken, though batches begin on one and end on the other.
 */
static void staging_is_taken_where_it_is_faster(void **state)
{
    (void)state;
    static spec_objects objects;
    struct device device = device_of(&objects, 900, 300);
    for (uint32_t i = 0; i < 8; i++)
        run(&device, 32, 5000000);
    assert_in_range(device.straight, 64, 96);
    device.straight = device.staged = 0;
    for (uint32_t i = 0; i < 16; i++)
        run(&device, 32, 5000000);
    assert_int_equal(device.straight, 0);
}

static void straight_is_kept_unless_staging_is_an_eighth_faster(void **state)
{
    (void)state;
    static spec_objects objects;
    for (uint64_t staged = 400; staged >= 270; staged -= 10) {
        struct device device = device_of(&objects, 300, staged);
        for (uint32_t i = 0; i < 8; i++)
            run(&device, 32, 100);
        assert_in_range(device.staged, 64, 96);
        device.straight = device.staged = 0;
        run(&device, 64, 0);
        assert_int_equal(device.staged, 0);
    }
}

/* After a GiB the other is tried again: a device, or a host's memory, may have changed. */
static void the_other_route_is_tried_again(void **state)
{
    (void)state;
    static spec_objects objects;
    struct device device = device_of(&objects, 300, 900);
    run(&device, 2048, 0);
    assert_in_range(device.staged, 128, 192); /* two trials */
    device.ns_per_kib[0] = 900;
    device.ns_per_kib[1] = 300;
    run(&device, 4096, 0);
    device.straight = 0;
    run(&device, 512, 0);
    assert_true(device.straight <= 96); /* of a trial */
}

/* A trial costs time, so one that changes nothing makes the next a rarer one. */
static void trials_that_change_nothing_become_rare(void **state)
{
    (void)state;
    static spec_objects objects;
    struct device device = device_of(&objects, 300, 900);
    run(&device, 64ull << 10, 0); /* 64 GiB */
    assert_in_range(device.staged, 4 * 64, 8 * 96);
    device.staged = 0;
    run(&device, 160ull << 10, 0);
    assert_in_range(device.staged, 9 * 64, 11 * 96); /* each 16 GiB */
}

/* A device that stands still for a moment costs one trial its sense, not what comes after it. */
static void a_pause_of_the_device_is_mended_by_the_next_trial(void **state)
{
    (void)state;
    static spec_objects objects;
    struct device device = device_of(&objects, 900, 300);
    run(&device, 64 + 16 + 32, 0);
    device.ns_per_kib[1] = 9000; /* staging's epoch falls into it */
    run(&device, 32 + 16, 0);
    device.ns_per_kib[1] = 300;
    run(&device, 1100, 0);
    device.straight = 0;
    run(&device, 512, 0);
    assert_int_equal(device.straight, 0);
}

static void the_configuration_decides_if_it_says_so(void **state)
{
    (void)state;
    static spec_objects objects;
    struct device device = device_of(&objects, 900, 300);
    objects.config.objects_staging = SC_STAGING_NEVER;
    run(&device, 256, 0);
    assert_int_equal(device.staged, 0);
    device = device_of(&objects, 300, 900);
    objects.config.objects_staging = SC_STAGING_ALWAYS;
    run(&device, 256, 0);
    assert_int_equal(device.straight, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(staging_is_taken_where_it_is_faster),
        cmocka_unit_test(straight_is_kept_unless_staging_is_an_eighth_faster),
        cmocka_unit_test(the_other_route_is_tried_again),
        cmocka_unit_test(trials_that_change_nothing_become_rare),
        cmocka_unit_test(a_pause_of_the_device_is_mended_by_the_next_trial),
        cmocka_unit_test(the_configuration_decides_if_it_says_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

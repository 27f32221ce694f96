/* An hour in a store that is too small, in simulated time: passes of one token each and of whole
 * prompts, over leases and reopens, on disks that are full. What is stored in any minute is nearly
 * what was stored in the first.
 *
 * Threads: one; the executor is the seeded loop. */
#include "store/internal.h"
#include "tests/unit/parts.h"
#include "tests/unit/plugin/plugin_fixture.h"

#define SECOND UINT64_C(1000000000)
#define MINUTE (60 * SECOND)
#ifdef SC_SANITIZED /* samples; the whole of it runs without sanitizers */
#define HOUR            15u
#define SAMPLE(minutes) ((minutes) / 2)
#else
#define HOUR            60u
#define SAMPLE(minutes) (minutes)
#endif

struct soak {
    struct rig rig;
    uint64_t seed, prompt_tokens, pass_tokens; /* of a request; of each pass */
    uint64_t token_ns;                         /* simulated time between two tokens */
    uint64_t stored, offered;                  /* tokens that are visible; that were computed */
};

static void open_soak(struct soak *soak, const char *extra, uint64_t prompt_tokens,
                      uint64_t pass_tokens, uint64_t token_ns)
{
    *soak = (struct soak){
        .prompt_tokens = prompt_tokens, .pass_tokens = pass_tokens, .token_ns = token_ns};
    rig_begin_shape(&soak->rig, true, extra, 2, 1, 16, SPEC_DTYPE_F16);
}

/* One request: what is not there yet is computed and stored, pass by pass, as it comes. Nobody
 * waits for a pass before the next. Tokens that a lookup finds afterwards are stored. */
static void run_request(struct soak *soak)
{
    struct rig *rig = &soak->rig;
    struct prompt prompt = rig_prompt(soak->seed++, 0, 0, soak->prompt_tokens);
    struct spec_lookup_result result = rig_lookup(rig, &prompt);
    spec_ticket last = 0;
    for (uint64_t at = result.matched_tokens; at < prompt.count; at += soak->pass_tokens) {
        uint64_t count = prompt.count - at;
        count = count < soak->pass_tokens ? count : soak->pass_tokens;
        if (last != 0)
            sc_plugin_ticket_forget(rig->conn, last);
        last = rig_store(rig, result.request, &prompt, at, count);
        rig_pass_ns(rig, count * soak->token_ns);
    }
    (void)rig_wait(rig, last);
    rig_release(rig, result.request);
    result = rig_lookup(rig, &prompt);
    soak->stored += result.matched_tokens;
    soak->offered += prompt.count;
    rig_release(rig, result.request);
    struct sc_store_stats stats = rig_store_stats(rig);
    assert_true(stats.disk_bytes_used <= stats.disk_bytes_max);
    rig_prompt_free(&prompt);
}

/* Tokens stored in so much simulated time. */
static uint64_t run_for(struct soak *soak, uint64_t ns)
{
    uint64_t before = soak->stored, end = sc_exec_now_ns(soak->rig.conn->exec) + ns;
    while (sc_exec_now_ns(soak->rig.conn->exec) < end)
        run_request(soak);
    return soak->stored - before;
}

static void run_minutes(struct soak *soak, uint64_t minutes)
{
    uint64_t first = 0;
    for (uint64_t i = 0; i < minutes; i++) {
        uint64_t now = run_for(soak, MINUTE);
        first = i == 0 ? now : first;
        if (now * 10 < first * 9)
            fail_msg("minute %lu: %lu tokens stored, %lu in the first", i, now, first);
    }
}

/* The last member of a configuration, but for the number. */
#define LEASE "\"segment_bytes\": \"1MiB\", \"lease_ns_max\": "

/* The same, and pieces are not merged: of tokens that stay pieces of their own a disk is full. */
#define APART ", \"maintain\": {\"bytes_per_s\": 1}"

static void an_hour_of_decoding_token_by_token(void **state)
{
    (void)state;
    struct soak soak;
    open_soak(
        &soak,
        "\"disk_bytes\": \"64MiB\", \"segment_bytes\": \"64MiB\", \"lease_ns_max\": 1000000000",
        100, 1, SECOND / 20);
    run_minutes(&soak, HOUR);
    rig_done(&soak.rig);
}

/* Faster, until every disk was filled several times. */
static void passes_of_one_token(void **state)
{
    (void)state;
    static const char *const EXTRAS[] = {
        "\"disk_bytes\": \"4MiB\", " LEASE "1000000000",
        "\"disk_bytes\": \"64MiB\", " LEASE "1000000000",
        "\"disk_bytes\": \"128MiB\", " LEASE "2000000000",
        "\"disk_bytes\": \"256MiB\", " LEASE "1500000000",
    };
    static const uint64_t MINUTES[] = {SAMPLE(30), SAMPLE(8), SAMPLE(12), SAMPLE(12)};
    for (uint32_t i = 0; i < 4; i++) {
        struct soak soak;
        open_soak(&soak, EXTRAS[i], 150, 1, SECOND / (i == 0 ? 10 : 100));
        run_minutes(&soak, MINUTES[i]);
        rig_reopen(&soak.rig);
        run_minutes(&soak, 3);
        rig_done(&soak.rig);
    }
}

/* Pages of segments: what a store of passes of one token holds. */
static uint64_t pages_of(struct soak *soak)
{
    struct sc_store_free_space room;
    sc_store_free_space(soak->rig.conn->store, &room);
    return room.bytes_max / 4096;
}

/* What goes is free a lease later, so half of the disk can turn over in a lease while the other
 * half lives. Less than that is stored without a loss; of more, four fifths of that at least. */
static void half_of_the_disk_turns_over_in_a_lease(void **state)
{
    (void)state;
    static const uint64_t DISKS[] = {2, 4, 16, 64}, LEASES[] = {1, 2, 30};
    for (uint32_t way = 0; way < 2 * 4 * 3; way++) {
        uint64_t disk = DISKS[way / 6], lease_ns = LEASES[way / 2 % 3] * SECOND;
        bool is_more = way % 2 == 1;
        if (disk > 16 && lease_ns < SECOND * 30) /* time goes slower or faster, that is all */
            continue;
        char extra[160];
        struct soak soak;
        (void)snprintf(extra, sizeof(extra),
                       "\"disk_bytes\": \"%luMiB\", \"segment_bytes\": \"1MiB\", "
                       "\"lease_ns_max\": %lu",
                       disk, lease_ns);
        open_soak(&soak, extra, 50, 1, 0);
        uint64_t half = pages_of(&soak) / 2;
        soak.token_ns = is_more ? lease_ns / (2 * half) : lease_ns * 5 / (4 * half);
        (void)run_for(&soak, 3 * lease_ns);
        uint64_t offered = soak.offered, begin_ns = sc_exec_now_ns(soak.rig.conn->exec);
        uint64_t stored = run_for(&soak, 5 * lease_ns);
        offered = soak.offered - offered;
        uint64_t most = half * (sc_exec_now_ns(soak.rig.conn->exec) - begin_ns) / lease_ns;
        if (is_more ? stored * 10 < most * 8 : stored * 100 < offered * 98)
            fail_msg("%lu MiB, leases of %lu s: %lu tokens stored, %lu offered, %lu can be", disk,
                     lease_ns / SECOND, stored, offered, most);
        print_message("%2lu MiB, leases of %2lu s: %6lu of %6lu tokens stored, %.2f of a half\n",
                      disk, lease_ns / SECOND, stored, offered, (double)stored / (double)most);
        rig_done(&soak.rig);
    }
}

/* More than fits of the disk's share that can turn over, of the default lease: the first minute
 * fills an empty disk, and the others hold its rate. */
static void an_hour_with_leases_of_half_a_minute(void **state)
{
    (void)state;
    struct soak soak;
    open_soak(&soak, "\"disk_bytes\": \"16MiB\", " LEASE "30000000000", 150, 1, SECOND / 50);
    run_minutes(&soak, HOUR);
    rig_done(&soak.rig);
}

/* Every few seconds a prompt of a third of the disk: each is stored. One that needs more than half
 * of it evicts what was there when it is refused, and the next one is stored. */
static void prompts_that_are_large_for_the_disk(void **state)
{
    (void)state;
    static const uint64_t TOKENS[] = {2000, 4000, 6000, 7000}; /* 7,000 are 247 of 256 pages */
    for (uint32_t i = 0; i < 4; i++) {
        struct soak soak;
        open_soak(&soak, "\"disk_bytes\": \"2MiB\", " LEASE "1000000000", TOKENS[i], TOKENS[i],
                  5 * SECOND / TOKENS[i]);
        for (uint64_t minute = 0; minute < 20; minute++) {
            uint64_t stored = run_for(&soak, MINUTE), offered = 12 * TOKENS[i];
            if (stored < (i == 0 ? offered : offered / 2))
                fail_msg("minute %lu: %lu of %lu tokens stored", minute, stored, offered);
        }
        rig_done(&soak.rig);
    }
}

/* Rows of 1 KiB, of which a segment holds a prompt and a quarter: what is left in each is used,
 * though in short extents. Codes beside them are a demand like rows. */
static void prompts_in_what_is_left_of_segments(void **state)
{
    (void)state;
    static const struct {
        const char *extra;
        uint64_t prompt_tokens, pass_tokens, token_ns, minutes, stored; /* of a minute */
    } WAYS[] = {
        {"\"disk_bytes\": \"16MiB\", " LEASE "1000000000", 400, 400, SECOND / 800, 3, 43200},
        {"\"disk_bytes\": \"16MiB\", " LEASE "1000000000", 400, 400, SECOND / 400, 3, 21600},
        {"\"preset\": \"layered-uniform\", \"disk_bytes\": \"16MiB\", " LEASE "1000000000", 150, 1,
         SECOND / 100, 3, 5700},
        {"\"preset\": \"layered-uniform\", \"disk_bytes\": \"16MiB\", " LEASE "30000000000", 40, 1,
         SECOND / 12, 10, 680},
    };
    for (uint32_t i = 0; i < sizeof(WAYS) / sizeof(WAYS[0]); i++) {
        struct soak soak = {.prompt_tokens = WAYS[i].prompt_tokens,
                            .pass_tokens = WAYS[i].pass_tokens,
                            .token_ns = WAYS[i].token_ns};
        rig_begin_shape(&soak.rig, true, WAYS[i].extra, 2, 2, 64, SPEC_DTYPE_F32);
        (void)run_for(&soak, MINUTE);
        for (uint64_t minute = 1; minute <= WAYS[i].minutes; minute++) {
            uint64_t stored = run_for(&soak, MINUTE);
            if (stored < WAYS[i].stored)
                fail_msg("way %u, minute %lu: %lu tokens stored", i, minute, stored);
        }
        rig_done(&soak.rig);
    }
}

static void whole_prompts(void **state)
{
    (void)state;
    static const char *const EXTRAS[] = {
        "\"disk_bytes\": \"2MiB\", " LEASE "1000000000",
        "\"disk_bytes\": \"4MiB\", " LEASE "1000000000",
        "\"disk_bytes\": \"16MiB\", " LEASE "2000000000",
        "\"disk_bytes\": \"24MiB\", " LEASE "1000000000, \"chunk_tokens\": 16",
    };
    for (uint32_t i = 0; i < 4; i++) {
        struct soak soak;
        open_soak(&soak, EXTRAS[i], 700, 700, SECOND / 500);
        run_minutes(&soak, SAMPLE(20));
        rig_reopen(&soak.rig);
        run_minutes(&soak, 10);
        rig_done(&soak.rig);
    }
}

/* Another model's rows, long ones, fill the disk, of which they leave a 64th to the log; then short
 * ones come, on a disk that is smaller by then. */
static void short_rows_after_long_ones(void **state)
{
    (void)state;
    for (uint32_t way = 0; way < 2; way++) {
        struct soak soak;
        struct rig *rig = &soak.rig;
        open_soak(&soak, "\"disk_bytes\": \"32MiB\", " LEASE "1000000000", 150, 1, SECOND / 100);
        rig_close(rig);
        rig_shape(rig, 4, 8, 256, SPEC_DTYPE_F16);
        rig_open(rig);
        soak.pass_tokens = 150;
        (void)run_for(&soak, 2 * MINUTE);
        rig_close(rig);
        rig_shape(rig, 2, 1, 16, SPEC_DTYPE_F16);
        if (way == 1)
            rig->extra = "\"disk_bytes\": \"8MiB\", " LEASE "1000000000";
        rig_open(rig);
        soak.pass_tokens = 1;
        (void)run_for(&soak, 30 * SECOND); /* the long ones go, and their leases end */
        run_minutes(&soak, SAMPLE(10));
        rig_done(rig);
    }
}

/* Prompts filled the disk when segments left a 64th of it to the log, as they once did; then short
 * passes come: they make do with that as long as the store is open, and have their share after an
 * open. */
static void a_share_that_is_too_small(void **state)
{
    (void)state;
    struct soak soak;
    open_soak(&soak, "\"disk_bytes\": \"32MiB\", " LEASE "1000000000" APART, 700, 700,
              SECOND / 700);
    soak.rig.conn->store->share.bytes = 1;
    soak.rig.conn->store->share.pages = 1u << 20;
    run_minutes(&soak, 10);
    soak.prompt_tokens = 100;
    soak.pass_tokens = 1;
    soak.token_ns = SECOND / 20;
    run_minutes(&soak, 5);
    struct sc_store_stats stats = rig_store_stats(&soak.rig);
    uint64_t pieces = stats.piece_count;
    assert_true(stats.disk_bytes_used > 24u << 20);
    rig_reopen(&soak.rig);
    run_minutes(&soak, 10);
    sc_store_stats(soak.rig.conn->store, &stats);
    assert_true(stats.piece_count > pieces + pieces / 8);
    assert_true(stats.piece_count > 4900); /* 24 MiB of pages hold 6,144 */
    rig_done(&soak.rig);
}

static void disk_of(struct soak *soak, uint64_t capacity_bytes)
{
    struct rig *rig = &soak->rig;
    rig_close(rig);
    sc_io_sim_disk_close(rig->disk);
    struct sc_io_sim_disk_params params = {
        .alloc = &rig->disk_alloc, .seed = 1, .capacity_bytes = capacity_bytes};
    assert_int_equal(sc_io_sim_disk_open(&params, &rig->disk, NULL), SPEC_OK);
    rig_open(rig);
}

/* The file system has less than disk_bytes: what it has is used, and the log has its room in it. */
static void a_file_system_that_is_smaller(void **state)
{
    (void)state;
    static const char *const EXTRAS[] = {
        "\"disk_bytes\": \"256MiB\", " LEASE "1000000000" APART,
        "\"disk_bytes\": \"1GiB\", \"segment_bytes\": \"64MiB\", \"lease_ns_max\": "
        "1000000000" APART,
    };
    for (uint32_t i = 0; i < 2; i++) {
        struct soak soak;
        open_soak(&soak, EXTRAS[i], 150, 1, SECOND / 50);
        disk_of(&soak, 24u << 20);
        (void)run_for(&soak, MINUTE); /* it finds out */
        run_minutes(&soak, SAMPLE(12));
        struct sc_store_stats stats = rig_store_stats(&soak.rig);
        assert_true(stats.extent_bytes > 8u << 20);
        rig_reopen(&soak.rig);
        (void)run_for(&soak, MINUTE);
        run_minutes(&soak, 5);
        rig_done(&soak.rig);
    }
}

/* Others fill it, for minutes, or the device fails now and then; what is there stays found, and
 * storing goes on when that is over. */
static void a_device_that_fails_for_minutes(void **state)
{
    (void)state;
    static const struct {
        enum sc_io_sim_fault fault;
        uint64_t ppm;
        const char *scope;
    } WAYS[] = {
        {SC_SIM_NO_SPACE, 1000000, NULL},  {SC_SIM_NO_SPACE, 1000000, "/log"},
        {SC_SIM_NO_SPACE, 1000000, "new"}, {SC_SIM_WRITE_EIO, 3000, NULL},
        {SC_SIM_WRITE_EIO, 1000000, NULL}, {SC_SIM_SYNC_EIO, 1000000, NULL},
    };
    for (uint32_t i = 0; i < sizeof(WAYS) / sizeof(WAYS[0]); i++) {
        struct soak soak;
        open_soak(&soak, "\"disk_bytes\": \"8MiB\", " LEASE "1000000000", 150, 1, SECOND / 50);
        (void)run_for(&soak, 2 * MINUTE);
        sc_io_sim_fault_scope(soak.rig.disk, WAYS[i].scope);
        sc_io_sim_fault_ppm(soak.rig.disk, WAYS[i].fault, WAYS[i].ppm);
        (void)run_for(&soak, 5 * MINUTE);
        assert_true(sc_io_sim_fault_fired(soak.rig.disk, WAYS[i].fault) > 0);
        sc_io_sim_fault_ppm(soak.rig.disk, WAYS[i].fault, 0);
        (void)run_for(&soak, MINUTE);
        run_minutes(&soak, 5);
        rig_reopen(&soak.rig);
        run_minutes(&soak, 5);
        rig_done(&soak.rig);
    }
}

/* Leases of ten minutes: a disk full of what they may still name stores nothing, and then again. */
static void leases_that_are_longer_than_the_disk_is_large(void **state)
{
    (void)state;
    struct soak soak;
    open_soak(&soak, "\"disk_bytes\": \"8MiB\", " LEASE "600000000000", 150, 1, SECOND / 20);
    for (uint32_t i = 0; i < 6; i++) {
        uint64_t stored = run_for(&soak, 20 * MINUTE);
        assert_true(stored > 300); /* an 8th of what fits, each lease */
    }
    rig_done(&soak.rig);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_hour_of_decoding_token_by_token),
        cmocka_unit_test(passes_of_one_token),
        cmocka_unit_test(half_of_the_disk_turns_over_in_a_lease),
        cmocka_unit_test(an_hour_with_leases_of_half_a_minute),
        cmocka_unit_test(prompts_that_are_large_for_the_disk),
        cmocka_unit_test(prompts_in_what_is_left_of_segments),
        cmocka_unit_test(whole_prompts),
        cmocka_unit_test(short_rows_after_long_ones),
        cmocka_unit_test(a_share_that_is_too_small),
        cmocka_unit_test(a_device_that_fails_for_minutes),
        cmocka_unit_test(a_file_system_that_is_smaller),
        cmocka_unit_test(leases_that_are_longer_than_the_disk_is_large),
    };
    return parts_run(argc, argv, tests, sizeof(tests) / sizeof(tests[0]));
}

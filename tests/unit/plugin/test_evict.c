/* Eviction: what goes, what stays, and that disk_bytes is never exceeded meanwhile. */
#include "tests/unit/plugin/plugin_fixture.h"
#include "tests/unit/threads.h"

#include <ftw.h>

static uint64_t counter(const _Atomic uint64_t *value)
{
    return atomic_load(value);
}

/* Rows of 1 KiB, two layers: a prompt of n tokens takes 2n KiB. */
static void open_small(struct rig *rig, bool is_sim, const char *extra)
{
    rig_begin_shape(rig, is_sim, extra, 2, 2, 64, SPEC_DTYPE_F32);
}

#define SMALL "\"disk_bytes\": \"4MiB\", \"segment_bytes\": \"1MiB\", \"chunk_tokens\": 16"

static spec_status fill_one(struct rig *rig, uint64_t seed, uint64_t tokens)
{
    struct prompt prompt = rig_prompt(seed, 0, 0, tokens);
    spec_status status = rig_fill(rig, &prompt);
    rig_prompt_free(&prompt);
    rig_background(rig);
    return status;
}

static uint64_t read_one(struct rig *rig, uint64_t seed, uint64_t tokens)
{
    struct prompt prompt = rig_prompt(seed, 0, 0, tokens);
    uint64_t matched = rig_read(rig, &prompt, NULL);
    rig_prompt_free(&prompt);
    return matched;
}

static void check_bounds(struct rig *rig)
{
    struct sc_store_stats store = rig_store_stats(rig);
    assert_true(store.disk_bytes_used <= store.disk_bytes_max);
    rig_check_index(rig);
}

/* Prompts that share beginnings, three times what fits: whatever is found is a beginning with right
 * rows, the newest is found whole, the disk is never over its bound, and a reopen finds the same.
 */
static void a_full_store_keeps_whole_beginnings(void **state)
{
    (void)state;
    struct rig rig;
    open_small(&rig, true, SMALL ", \"lease_ns_max\": 0");
    uint64_t random = 1, refused = 0;
    for (uint32_t i = 0; i < 150; i++) {
        random = rig_mix(random);
        struct prompt prompt =
            rig_prompt(random % 4, random >> 8 & 63, random >> 16 & 31, 20 + (random >> 24 & 63));
        spec_status status = rig_fill(&rig, &prompt);
        assert_true(status == SPEC_OK || status == SPEC_E_NO_SPACE);
        refused += status == SPEC_E_NO_SPACE;
        if (status == SPEC_OK)
            assert_int_equal(rig_read(&rig, &prompt, NULL), prompt.count);
        rig_prompt_free(&prompt);
        rig_background(&rig);
        check_bounds(&rig);
    }
    assert_true(refused < 15);
    assert_true(counter(&rig.conn->stats.evicted_chunks) > 50);
    uint64_t found = 0;
    for (uint32_t round = 0; round < 2; round++) {
        uint64_t tokens = 0;
        for (uint64_t seed = 0; seed < 4; seed++)
            for (uint64_t branch = 0; branch < 32; branch++) {
                struct prompt prompt = rig_prompt(seed, 40, branch, 80);
                uint64_t matched = rig_read(&rig, &prompt, NULL);
                assert_true(matched <= 80); /* rig_read compared the rows */
                tokens += matched;
                rig_prompt_free(&prompt);
            }
        assert_true(tokens > 0);
        assert_true(round == 0 || tokens == found);
        found = tokens;
        rig_reopen(&rig);
    }
    rig_done(&rig);
}

/* What was used longest ago goes first, and of a long prompt its end. */
static void the_oldest_goes_first_and_of_it_the_end(void **state)
{
    (void)state;
    struct rig rig;
    open_small(&rig, true, SMALL ", \"lease_ns_max\": 0");
    assert_int_equal(fill_one(&rig, 1, 320), SPEC_OK); /* 640 KiB */
    assert_int_equal(fill_one(&rig, 2, 320), SPEC_OK);
    uint64_t seed = 100, cut = 320;
    while (cut == 320) {
        assert_int_equal(read_one(&rig, 1, 320), 320); /* used all the time */
        assert_int_equal(fill_one(&rig, seed++, 32), SPEC_OK);
        /* Looking is a use: so the second is looked at by the index alone. */
        struct sc_radix_stats stats;
        sc_radix_stats(rig.conn->radix, &stats);
        if (counter(&rig.conn->stats.evicted_chunks) > 0)
            cut = read_one(&rig, 2, 320);
        assert_true(seed < 300);
    }
    assert_int_equal(read_one(&rig, 1, 320), 320);
    check_bounds(&rig);
    rig_reopen(&rig);
    assert_int_equal(read_one(&rig, 1, 320), 320);
    assert_int_equal(read_one(&rig, 2, 320), cut);
    rig_done(&rig);
}

/* The last rows of a piece are evicted. Its first rows, which another prompt shares, are kept: the
 * piece's id still names them, for a lease and for a load that fails later. */
static void a_partly_evicted_piece_is_still_found_by_its_id(void **state)
{
    (void)state;
    struct rig rig;
    open_small(&rig, true, SMALL ", \"lease_ns_max\": 1000000000");
    struct prompt prompt = rig_prompt(1, 8, 0, 16), other = rig_prompt(1, 8, 1, 16);
    struct prompt begin = {.count = 8, .tokens = prompt.tokens, .history = prompt.history};
    uint64_t piece = sc_store_piece_next(rig.conn->store);
    assert_int_equal(rig_fill(&rig, &prompt), SPEC_OK);
    assert_int_equal(rig_fill(&rig, &other), SPEC_OK);
    struct spec_lookup_result found = rig_lookup(&rig, &begin), attached;
    rig_release(&rig, found.request);
    assert_int_equal(found.matched_tokens, 8);
    assert_int_equal(rig_read(&rig, &other, NULL), 16); /* so prompt's last rows are older */
    sc_plugin_evict_ask_runs(rig.conn);
    rig_background(&rig);
    assert_int_equal(rig_read(&rig, &prompt, NULL), 8);
    assert_int_equal(rig_read(&rig, &other, NULL), 16);
    attached = (struct spec_lookup_result){.struct_size = sizeof(attached)};
    struct spec_attach_params params = {.struct_size = sizeof(params), .lease = {found.lease, 64}};
    assert_int_equal(sc_plugin_attach(rig.conn, &params, &attached, NULL), SPEC_OK);
    assert_int_equal(attached.matched_tokens, 8);
    rig_release(&rig, attached.request);
    struct sc_radix_segment run;
    uint64_t mark = sc_store_piece_mark(rig.conn->store, piece);
    assert_true(sc_radix_get(rig.conn->radix, sc_plugin_ref_of(mark), &run));
    assert_int_equal(run.value.piece, piece);
    assert_int_equal(run.first + run.count, 8);
    sc_plugin_piece_fail(rig.conn, sc_plugin_ref_of(mark), piece);
    rig_background(&rig);
    assert_int_equal(rig_read(&rig, &prompt, NULL), 0);
    assert_int_equal(rig_read(&rig, &other, NULL), 0);
    rig_prompt_free(&prompt);
    rig_prompt_free(&other);
    check_bounds(&rig);
    rig_done(&rig);
}

/* Who found no room takes it as soon as there is some, before eviction has looked whether it was
 * enough: what he stored then is not what goes for him. */
static void room_that_was_taken_meanwhile_was_enough(void **state)
{
    (void)state;
    struct rig rig;
    open_small(&rig, true, SMALL ", \"lease_ns_max\": 0");
    assert_int_equal(fill_one(&rig, 1, 900), SPEC_OK); /* 1.8 MiB of what a disk of 4 MiB has */
    struct prompt prompt = rig_prompt(2, 0, 0, 900);
    assert_int_not_equal(rig_fill(&rig, &prompt), SPEC_OK);
    rig_background(&rig); /* the first is gone */
    /* As sc_plugin_evict_ask does, but for the job, which comes late. */
    spec_connector *conn = rig.conn;
    atomic_store(&conn->evict.asked_piece_end, sc_store_piece_next(conn->store));
    atomic_store(&conn->evict.asked_bytes[sc_radix_place(0)],
                 sc_store_rows_bytes(conn->store, 900));
    assert_int_equal(rig_fill(&rig, &prompt), SPEC_OK);
    (void)sc_plugin_evict_some(conn);
    rig_background(&rig);
    assert_int_equal(rig_read(&rig, &prompt, NULL), 900);
    rig_prompt_free(&prompt);
    check_bounds(&rig);
    rig_done(&rig);
}

/* The index is full, and a pass found no room, at once: for the runs anything goes that was used
 * longest ago, for the bytes nothing that was stored since. */
static void runs_and_bytes_that_lack_at_once_are_two_things(void **state)
{
    (void)state;
    struct rig rig;
    open_small(&rig, true, SMALL ", \"lease_ns_max\": 0");
    for (uint64_t seed = 0; seed < 8; seed++)
        assert_int_equal(fill_one(&rig, seed, 32), SPEC_OK);
    spec_connector *conn = rig.conn;
    atomic_store(&conn->evict.asked_piece_end, sc_store_piece_next(conn->store));
    for (uint64_t seed = 8; seed < 12; seed++)
        assert_int_equal(fill_one(&rig, seed, 32), SPEC_OK);
    assert_int_equal(counter(&conn->stats.evicted_chunks), 0);
    atomic_store(&conn->evict.asked_bytes[sc_radix_place(0)],
                 sc_store_free_space_most(conn->store));
    atomic_store(&conn->evict.asked_runs, 3);
    assert_true(sc_plugin_evict_some(conn));
    assert_int_equal(counter(&conn->stats.evicted_chunks), 16);
    for (uint64_t seed = 0; seed < 12; seed++)
        assert_int_equal(read_one(&rig, seed, 32), seed < 8 ? 0 : 32);
    check_bounds(&rig);
    rig_done(&rig);
}

/* What is free lies in runs that hold no layer of a long pass: it is stored in more extents. */
static void a_long_pass_fits_into_short_runs(void **state)
{
    (void)state;
    struct rig rig;
    open_small(&rig, true, SMALL ", \"lease_ns_max\": 0");
    uint64_t seed = 0;
    for (; counter(&rig.conn->stats.evicted_chunks) == 0; seed++) { /* two chunks each: 64 KiB */
        assert_true(seed < 100);
        for (uint64_t used = 1; used < seed; used += 2) /* every other goes */
            (void)read_one(&rig, used, 32);
        assert_int_equal(fill_one(&rig, seed, 32), SPEC_OK);
    }
    assert_int_equal(sc_store_extent_rows_fit(rig.conn->store, 128), 64);
    uint64_t refused = counter(&rig.conn->stats.dropped_chunks);
    assert_int_equal(fill_one(&rig, 1000, 128), SPEC_OK);
    assert_int_equal(read_one(&rig, 1000, 128), 128);
    assert_int_equal(counter(&rig.conn->stats.dropped_chunks), refused);
    check_bounds(&rig);
    rig_reopen(&rig);
    assert_int_equal(read_one(&rig, 1000, 128), 128);
    rig_done(&rig);
}

/* Requests hold all there is: nothing goes, the jobs end, passes are told; then all can go. */
static void what_requests_hold_stays(void **state)
{
    (void)state;
    struct rig rig;
    open_small(&rig, true, SMALL ", \"lease_ns_max\": 0, \"max_requests\": 64");
    spec_request held[64];
    struct prompt prompts[64];
    uint64_t count = 0;
    for (spec_status status = SPEC_OK; status == SPEC_OK; count++) {
        assert_true(count < 63);
        prompts[count] = rig_prompt(count, 0, 0, 60);
        status = rig_fill(&rig, &prompts[count]);
        held[count] = rig_lookup(&rig, &prompts[count]).request; /* finds it, or holds nothing */
        rig_background(&rig);
    }
    for (uint32_t i = 0; i < 3; i++) /* not for lack of trying */
        assert_int_equal(fill_one(&rig, 1000, 60), SPEC_E_NO_SPACE);
    assert_int_equal(counter(&rig.conn->stats.evicted_chunks), 0);
    for (uint64_t i = 0; i + 1 < count; i++) {
        assert_int_equal(rig_load(&rig, held[i], &prompts[i], 0, 60, 1), SPEC_OK);
        rig_release(&rig, held[i]);
    }
    rig_release(&rig, held[count - 1]);
    (void)fill_one(&rig, 1000, 60); /* asks */
    assert_int_equal(fill_one(&rig, 1000, 60), SPEC_OK);
    assert_int_equal(read_one(&rig, 1000, 60), 60);
    assert_true(counter(&rig.conn->stats.evicted_chunks) > 0);
    rig_prompts_free_all(prompts, count);
    rig_done(&rig);
}

static void pass_time(struct rig *rig, uint64_t ns)
{
    static _Atomic uint32_t never;
    (void)sc_exec_wait(rig->conn->exec, &never, 0, sc_exec_now_ns(rig->conn->exec) + ns);
}

/* Each lease's time stores a third of the disk. As much and a quarter more is free or in quarantine
 * at any time, so no pass is refused. */
static void the_demand_of_a_lease_is_evicted_ahead(void **state)
{
    (void)state;
    struct rig rig;
    struct sc_store_free_space room;
    open_small(&rig, true, SMALL ", \"lease_ns_max\": 1000000000");
    for (uint64_t seed = 0; seed < 50; seed++) { /* five leases, two disks */
        assert_int_equal(fill_one(&rig, seed, 32), SPEC_OK);
        sc_store_free_space(rig.conn->store, &room);
        uint64_t wanted = room.demand_bytes / 4 * 5;
        uint64_t to_be = room.free_bytes + room.quarantine_bytes;
        assert_true(to_be + room.bytes_max / 64 >= wanted);
        pass_time(&rig, 100000000);
    }
    assert_true(room.demand_bytes > room.bytes_max / 4);
    assert_true(room.demand_bytes < room.bytes_max / 2);
    assert_true(counter(&rig.conn->stats.evicted_chunks) > 0);
    check_bounds(&rig);
    rig_done(&rig);
}

/* A pass of more than half of the disk: what is free takes its beginning. Then leaves are evicted
 * for the rest, in many steps. */
static void a_large_pass_is_evicted_for_in_many_steps(void **state)
{
    (void)state;
    struct rig rig;
    open_small(&rig, true,
               "\"disk_bytes\": \"16MiB\", \"segment_bytes\": \"4MiB\", \"chunk_tokens\": 16, "
               "\"lease_ns_max\": 0");
    uint64_t seed = 0;
    for (; counter(&rig.conn->stats.evicted_chunks) == 0; seed++) { /* a leaf each, of 36 KiB */
        assert_true(seed < 600);
        assert_int_equal(fill_one(&rig, seed, 16), SPEC_OK);
    }
    assert_true(seed > 4 * 64);                                    /* a step evicts 64 */
    assert_int_equal(fill_one(&rig, 1000, 3400), SPEC_E_NO_SPACE); /* 6.7 MiB of 12 */
    uint64_t begun = read_one(&rig, 1000, 3400);
    assert_true(begun > 0 && begun < 3400);
    assert_true(counter(&rig.conn->stats.evicted_chunks) > 2 * 64);
    assert_int_equal(fill_one(&rig, 1000, 3400), SPEC_OK);
    assert_int_equal(read_one(&rig, 1000, 3400), 3400);
    check_bounds(&rig);
    rig_done(&rig);
}

/* With leases a full store refuses until what it evicted may be reused, evicts no more than that
 * meanwhile, and then stores again. The clock is the simulated one. */
static void what_is_evicted_is_reused_after_the_lease(void **state)
{
    (void)state;
    struct rig rig;
    open_small(&rig, true, SMALL ", \"lease_ns_max\": 1000000000");
    uint64_t seed = 0;
    while (fill_one(&rig, seed, 60) == SPEC_OK)
        assert_true(++seed < 200);
    struct sc_store_stats store = rig_store_stats(&rig);
    assert_true(store.quarantine_bytes > 0);
    assert_true(store.disk_bytes_used <= store.disk_bytes_max);
    uint64_t evicted = counter(&rig.conn->stats.evicted_chunks);
    assert_true(evicted > 0);
    for (uint32_t i = 0; i < 5; i++)
        assert_int_equal(fill_one(&rig, 1000, 60), SPEC_E_NO_SPACE);
    assert_int_equal(counter(&rig.conn->stats.evicted_chunks), evicted);
    assert_int_equal(counter(&rig.conn->stats.dropped_chunks), 6 * 4);
    pass_time(&rig, 1100000000);
    assert_int_equal(fill_one(&rig, 1000, 60), SPEC_OK);
    assert_int_equal(read_one(&rig, 1000, 60), 60);
    check_bounds(&rig);
    rig_done(&rig);
}

/* The records of all that was evicted could not be written, and nothing is left to be evicted: they
 * are written when the next pass finds no room, so its rows' pages come back. */
static void what_could_not_be_written_down_is_when_nothing_else_goes(void **state)
{
    (void)state;
    struct rig rig;
    open_small(
        &rig, true,
        "\"disk_bytes\": \"2MiB\", \"segment_bytes\": \"1MiB\", \"lease_ns_max\": 1000000000");
    assert_int_equal(fill_one(&rig, 1, 400), SPEC_OK); /* 800 KiB of a MiB */
    pass_time(&rig, 2000000000);
    sc_io_sim_fault_scope(rig.disk, "/log");
    sc_io_sim_fault_ppm(rig.disk, SC_SIM_NO_SPACE, 1000000);
    assert_int_equal(fill_one(&rig, 2, 400), SPEC_E_NO_SPACE);
    assert_int_equal(read_one(&rig, 1, 400), 0);
    assert_true(sc_io_sim_fault_fired(rig.disk, SC_SIM_NO_SPACE) > 0);
    sc_io_sim_fault_ppm(rig.disk, SC_SIM_NO_SPACE, 0);
    pass_time(&rig, 6000000000); /* stores are refused for 5 s */
    assert_int_equal(fill_one(&rig, 2, 400), SPEC_E_NO_SPACE);
    pass_time(&rig, 1100000000);
    assert_int_equal(fill_one(&rig, 2, 400), SPEC_OK);
    assert_int_equal(read_one(&rig, 2, 400), 400);
    check_bounds(&rig);
    rig_reopen(&rig);
    assert_int_equal(read_one(&rig, 2, 400), 400);
    assert_int_equal(read_one(&rig, 1, 400), 0);
    rig_done(&rig);
}

/* A prompt that is refused because the device failed lately asks for no room: a job that ran when
 * that time is over would evict for it. */
static void refused_while_paused(struct rig *rig, uint64_t seed, uint64_t tokens)
{
    struct prompt prompt = rig_prompt(seed, 0, 0, tokens);
    struct spec_lookup_result result = rig_lookup(rig, &prompt);
    struct sc_store_free_space before, after;
    rig_background(rig);
    sc_store_free_space(rig->conn->store, &before);
    assert_true(before.is_paused);
    spec_ticket ticket = rig_store(rig, result.request, &prompt, 0, tokens);
    assert_int_equal(rig->conn->jobs.slots[SC_JOB_EVICT].state, 0);
    assert_int_equal(rig_wait(rig, ticket), SPEC_E_NO_SPACE);
    sc_store_free_space(rig->conn->store, &after);
    assert_int_equal(after.demand_bytes, before.demand_bytes);
    rig_release(rig, result.request);
    rig_prompt_free(&prompt);
}

/* A pass that the device refused to write, though there was room, costs nobody else's rows: neither
 * at once nor when stores are tried again. */
static void what_the_device_refuses_evicts_nothing(void **state)
{
    (void)state;
    struct rig rig;
    open_small(&rig, true, SMALL ", \"lease_ns_max\": 0");
    assert_int_equal(fill_one(&rig, 1, 100), SPEC_OK);
    sc_io_sim_fault_scope(rig.disk, "/seg-");
    sc_io_sim_fault_ppm(rig.disk, SC_SIM_NO_SPACE, 1000000);
    assert_int_equal(fill_one(&rig, 2, 300), SPEC_E_NO_SPACE);
    assert_true(sc_io_sim_fault_fired(rig.disk, SC_SIM_NO_SPACE) > 0);
    sc_io_sim_fault_ppm(rig.disk, SC_SIM_NO_SPACE, 0);
    assert_int_equal(read_one(&rig, 1, 100), 100);
    refused_while_paused(&rig, 7, 50);
    pass_time(&rig, 6000000000); /* stores are refused for 5 s */
    for (uint64_t seed = 3; seed < 6; seed++) {
        assert_int_equal(fill_one(&rig, seed, 50), SPEC_OK);
        rig_background(&rig);
        assert_int_equal(read_one(&rig, seed, 50), 50);
    }
    assert_int_equal(rig_maintain(&rig, SPEC_MAINTAIN_EVICT), SPEC_OK);
    rig_background(&rig);
    assert_int_equal(read_one(&rig, 1, 100), 100);
    assert_int_equal(counter(&rig.conn->stats.evicted_chunks), 0);
    rig_done(&rig);
}

/* While the device is paused after a failure, drop records cannot be written. Nothing is evicted
 * then, whoever asks, and the request is not remembered. */
static void nothing_is_evicted_while_the_device_is_paused(void **state)
{
    (void)state;
    struct rig rig;
    open_small(&rig, true, SMALL ", \"lease_ns_max\": 0");
    for (uint64_t seed = 0; seed < 18; seed++) /* 1.2 MiB of 2 */
        assert_int_equal(fill_one(&rig, seed, 32), SPEC_OK);
    sc_io_sim_fault_scope(rig.disk, "/seg-");
    sc_io_sim_fault_ppm(rig.disk, SC_SIM_NO_SPACE, 1000000);
    assert_int_equal(fill_one(&rig, 100, 32), SPEC_E_NO_SPACE);
    sc_io_sim_fault_ppm(rig.disk, SC_SIM_NO_SPACE, 0);
    struct sc_store_free_space room;
    sc_store_free_space(rig.conn->store, &room);
    assert_true(room.is_paused);
    sc_plugin_evict_ask_runs(rig.conn);
    rig_background(&rig);
    sc_plugin_evict_ask(rig.conn, NULL, 900);
    rig_background(&rig);
    assert_int_equal(counter(&rig.conn->stats.evicted_chunks), 0);
    pass_time(&rig, 6000000000);
    sc_plugin_kick(rig.conn, SC_JOB_EVICT);
    rig_background(&rig);
    assert_int_equal(counter(&rig.conn->stats.evicted_chunks), 0);
    sc_plugin_evict_ask(rig.conn, NULL, 900);
    rig_background(&rig);
    assert_true(counter(&rig.conn->stats.evicted_chunks) > 0);
    check_bounds(&rig);
    rig_done(&rig);
}

/* Another model's KV in the same directory is found by no lookup here: it goes before ours. */
static void what_no_lookup_finds_goes_first(void **state)
{
    (void)state;
    struct rig rig;
    open_small(&rig, true, SMALL ", \"lease_ns_max\": 0");
    for (uint64_t seed = 0; seed < 20; seed++)
        assert_int_equal(fill_one(&rig, seed, 60), SPEC_OK);
    rig_close(&rig);
    struct spec_model other = rig_model(&rig);
    other.weights_id = (struct spec_bytes){"gir", 3};
    assert_int_equal(rig_try_open_model(&rig, &other), SPEC_OK);
    assert_int_equal(read_one(&rig, 0, 60), 0);
    uint64_t refused = 0;
    for (uint64_t seed = 0; seed < 11; seed++)
        refused += fill_one(&rig, seed, 60) != SPEC_OK;
    assert_true(refused < 3);
    struct sc_store_stats store = rig_store_stats(&rig);
    assert_true(store.evicted_pieces > 0);
    assert_int_equal(counter(&rig.conn->stats.evicted_chunks), 0); /* none of ours */
    for (uint64_t seed = 11 - refused; seed-- > 0;)
        assert_true(read_one(&rig, seed, 60) == 60 || refused > 0);
    check_bounds(&rig);
    rig_close(&rig);
    rig_open(&rig);
    uint64_t found = 0;
    for (uint64_t seed = 0; seed < 20; seed++)
        found += read_one(&rig, seed, 60) == 60;
    assert_true(found < 20);
    rig_done(&rig);
}

/* One write fails while a full store makes room, each in turn: what is found is right (rig_read
 * compares), now and after a reopen, and storing goes on when the device has been left alone. */
static void every_write_fails_once_while_room_is_made(void **state)
{
    (void)state;
    for (uint64_t n = 0, fired = 1; fired > 0; n += 2) {
        struct rig rig;
        open_small(&rig, true, SMALL ", \"lease_ns_max\": 0");
        for (uint64_t seed = 0; seed < 28; seed++)
            (void)fill_one(&rig, seed, 60);
        sc_fault_arm(&rig.conn->fault, SC_FAULT_WRITE, n);
        for (uint64_t seed = 28; seed < 40; seed++)
            (void)fill_one(&rig, seed, 60);
        fired = atomic_load(&rig.conn->fault.fired[SC_FAULT_WRITE]);
        if (fired == 0) {         /* it would fail what comes below */
            assert_true(n >= 20); /* rows, records and tombstones were met */
            rig_done(&rig);
            break;
        }
        pass_time(&rig, 6000000000); /* stores are refused for 5 s */
        (void)fill_one(&rig, 100, 60);
        assert_int_equal(fill_one(&rig, 100, 60), SPEC_OK);
        for (uint32_t round = 0; round < 2; round++) {
            for (uint64_t seed = 0; seed < 40; seed++)
                assert_true(read_one(&rig, seed, 60) <= 60);
            assert_int_equal(read_one(&rig, 100, 60), 60);
            check_bounds(&rig);
            rig_reopen(&rig);
        }
        rig_done(&rig);
    }
}

/* The power goes at any moment of a load that is three times what fits: after it, rows are right or
 * said to be lost, the bound holds, and storing goes on. */
static void a_crash_while_room_is_made_costs_misses_at_most(void **state)
{
    (void)state;
    struct rig rig;
    rig_init(&rig, true, SMALL ", \"lease_ns_max\": 0");
    sc_io_sim_disk_close(rig.disk);
    struct sc_io_sim_disk_params params = {.alloc = &rig.disk_alloc, .seed = 1, .journal = 2};
    assert_int_equal(sc_io_sim_disk_open(&params, &rig.disk, NULL), SPEC_OK);
    rig_shape(&rig, 2, 2, 64, SPEC_DTYPE_F32);
    rig_open(&rig);
    for (uint64_t seed = 0; seed < 90; seed++)
        (void)fill_one(&rig, seed, 60);
    assert_true(counter(&rig.conn->stats.evicted_chunks) > 50);
    uint64_t events = sc_io_sim_disk_events(rig.disk), found = 0;
    for (uint64_t i = 1; i <= 60; i++) {
        struct rig after = rig;
        after.conn = NULL;
        memset(&after.memory, 0, sizeof(after.memory));
        atomic_init(&after.memory.countdown, -1);
        assert_int_equal(sc_io_sim_disk_fork(rig.disk, events * i / 60, i, &after.disk, NULL),
                         SPEC_OK);
        rig_open(&after);
        for (uint64_t seed = 0; seed < 90; seed++)
            found += read_one(&after, seed, 60) == 60;
        rig_background(&after);
        check_bounds(&after);
        (void)fill_one(&after, 1000, 60);
        assert_int_equal(fill_one(&after, 1000, 60), SPEC_OK);
        assert_int_equal(read_one(&after, 1000, 60), 60);
        rig_close(&after);
        sc_io_sim_disk_close(after.disk);
    }
    assert_true(found > 60);
    rig_done(&rig);
}

/* ---- On a file system, with threads ---------------------------------------------------------- */

static _Atomic uint64_t allocated;

static int add_blocks(const char *path, const struct stat *info, int type, struct FTW *at)
{
    (void)path, (void)type, (void)at;
    allocated += (uint64_t)info->st_blocks * 512;
    return 0;
}

static uint64_t du(const char *path)
{
    allocated = 0;
    (void)nftw(path, add_blocks, 16, FTW_PHYS); /* a file that goes meanwhile is passed over */
    return allocated;
}

static void the_directory_stays_within_its_bound(void **state)
{
    (void)state;
    static const char *const EXTRAS[] = {
        "\"disk_bytes\": \"8MiB\", \"segment_bytes\": \"1MiB\", \"lease_ns_max\": 0",
        "\"disk_bytes\": \"8MiB\", \"segment_bytes\": \"1MiB\", \"lease_ns_max\": 1000000000"};
    for (uint32_t way = 0; way < 2; way++) {
        struct rig rig;
        open_small(&rig, false, EXTRAS[way]);
        uint64_t random = 7, stored = 0;
        for (uint32_t i = 0; i < 150; i++) {
            random = rig_mix(random);
            struct prompt prompt = rig_prompt(random % 8, random >> 8 & 255, random >> 16 & 15,
                                              1 + (random >> 24) % 400);
            spec_status status = rig_fill(&rig, &prompt);
            assert_true(status == SPEC_OK || status == SPEC_E_NO_SPACE ||
                        status == SPEC_E_DROPPED || status == SPEC_E_BUSY);
            stored += status == SPEC_OK;
            assert_true(du(rig.path) <= 8u << 20);
            if (i % 16 == 0)
                assert_true(rig_read(&rig, &prompt, NULL) <= prompt.count);
            rig_prompt_free(&prompt);
            if (i % 50 == 49) {
                rig_reopen(&rig);
                assert_true(du(rig.path) <= 8u << 20);
            }
        }
        assert_true(stored > 8); /* what fits at first; leases are of real time */
        rig_done(&rig);
    }
}

struct worker {
    struct rig *rig;
    uint64_t number, stored, wrong;
};

/* Lookups, loads, stores and releases on prompts that all workers share. A pinned match is loaded
 * whole whatever is evicted meanwhile; its rows are compared. Rounds that found all requests or
 * frames taken did nothing: there are more of them until the worker has stored, and some made room.
 */
static void *work(void *user)
{
    struct worker *worker = user;
    struct rig *rig = worker->rig;
    uint64_t random = worker->number + 1;
    for (uint32_t round = 0;
         round < 80 || worker->stored == 0 || counter(&rig->conn->stats.evicted_chunks) == 0;
         round++) {
        random = rig_mix(random);
        struct prompt prompt = rig_prompt(random % 3, random >> 8 & 127, random >> 16 & 15, 140);
        struct spec_lookup_result result = {.struct_size = sizeof(result)};
        if (rig_try_lookup(rig, &prompt, 0, RIG_MAX, &result) == SPEC_OK) {
            uint64_t matched = result.matched_tokens;
            for (uint32_t layer = 0; layer < rig->layers; layer++) {
                (void)sc_plugin_begin_layer(rig->conn, &result.request, 1, layer, NULL);
                worker->wrong +=
                    rig_load(rig, result.request, &prompt, 0, matched, layer) != SPEC_OK;
            }
            if (matched < prompt.count) {
                spec_ticket ticket =
                    rig_store(rig, result.request, &prompt, matched, prompt.count - matched);
                if (random >> 44 & 1) /* else released while it is written */
                    worker->stored += rig_wait(rig, ticket) == SPEC_OK;
                else
                    sc_plugin_ticket_forget(rig->conn, ticket);
            }
            rig_release(rig, result.request);
        }
        rig_prompt_free(&prompt);
    }
    return NULL;
}

static void eight_threads_on_a_disk_that_is_too_small(void **state)
{
    (void)state;
    struct rig rig;
    open_small(&rig, false, SMALL ", \"lease_ns_max\": 0, \"max_requests\": 16");
    struct worker workers[8];
    for (uint64_t i = 0; i < 8; i++)
        workers[i] = (struct worker){.rig = &rig, .number = i};
    const struct threads threads = threads_begin(work, workers, sizeof(workers[0]), 8);
    uint64_t stored = 0;
    threads_join(&threads);
    for (uint64_t i = 0; i < 8; i++) {
        stored += workers[i].stored;
        assert_int_equal(workers[i].wrong, 0);
    }
    assert_true(stored > 0);
    rig_settle(&rig);
    rig_background(&rig);
    assert_true(counter(&rig.conn->stats.evicted_chunks) > 0);
    assert_int_equal(counter(&rig.conn->stats.corrupt_ranges), 0);
    check_bounds(&rig);
    struct sc_store_stats store, again;
    sc_store_stats(rig.conn->store, &store);
    rig_reopen(&rig);
    sc_store_stats(rig.conn->store, &again);
    /* A piece whose end was evicted and stored anew is whole again, so the second copy goes. */
    assert_true(again.piece_count > 0 && again.piece_count <= store.piece_count);
    for (uint64_t i = 0; i < 16; i++) {
        struct prompt prompt = rig_prompt(i % 3, 60, i, 140);
        assert_true(rig_read(&rig, &prompt, NULL) <= 140);
        rig_prompt_free(&prompt);
    }
    rig_done(&rig);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_full_store_keeps_whole_beginnings),
        cmocka_unit_test(the_oldest_goes_first_and_of_it_the_end),
        cmocka_unit_test(a_partly_evicted_piece_is_still_found_by_its_id),
        cmocka_unit_test(room_that_was_taken_meanwhile_was_enough),
        cmocka_unit_test(runs_and_bytes_that_lack_at_once_are_two_things),
        cmocka_unit_test(a_long_pass_fits_into_short_runs),
        cmocka_unit_test(what_requests_hold_stays),
        cmocka_unit_test(the_demand_of_a_lease_is_evicted_ahead),
        cmocka_unit_test(a_large_pass_is_evicted_for_in_many_steps),
        cmocka_unit_test(what_is_evicted_is_reused_after_the_lease),
        cmocka_unit_test(what_could_not_be_written_down_is_when_nothing_else_goes),
        cmocka_unit_test(what_the_device_refuses_evicts_nothing),
        cmocka_unit_test(nothing_is_evicted_while_the_device_is_paused),
        cmocka_unit_test(what_no_lookup_finds_goes_first),
        cmocka_unit_test(every_write_fails_once_while_room_is_made),
        cmocka_unit_test(a_crash_while_room_is_made_costs_misses_at_most),
        cmocka_unit_test(the_directory_stays_within_its_bound),
        cmocka_unit_test(eight_threads_on_a_disk_that_is_too_small),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

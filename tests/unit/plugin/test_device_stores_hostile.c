/* Stores from a device as somebody would break them: streams that stand still while others store,
 * children that are forked in between, memory that goes or moves behind the call, slots and shapes
 * that nobody has, room that is too little, disks that fail.
 *
 * A stream that is held (fake_hold) runs nothing, and who waits for it ends the process: so that no
 * call of these tests waits for a host's stream is seen by their end.
 *
 * Holds: what a ticket calls stored is read as it stood there; all else is a miss. What flew comes
 * back in the end. */
#include "tests/unit/plugin/store_desk.h"
#include "tests/unit/plugin/waits.h"

#include <pthread.h>
#include <sys/wait.h>

#define LAYERS DESK_LAYERS
#define SMALL  ", \"gpu\": {\"staging_bytes\": \"1MiB\", \"store_bytes\": \"4MiB\"}"
#define PLAIN  "\"preset\": \"as-like\"" SMALL
#define TIGHT                                                                                      \
    "\"preset\": \"as-like\", \"gpu\": {\"staging_bytes\": \"1MiB\", \"store_bytes\": \"1MiB\"}"
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* ---- A stream that stands still ------------------------------------------------------------- */

/* Another prompt's pass, on the host's own stream or another. */
struct pass_of {
    struct prompt prompt;
    spec_request request;
    spec_ticket ticket;
    struct sources sources;
};

static void pass_begin(struct desk *desk, struct pass_of *pass, uint64_t seed, uint64_t rows)
{
    struct prompt own = desk->prompt;
    pass->prompt = rig_prompt(seed, 0, 0, rows);
    pass->request = rig_lookup(&desk->rig, &pass->prompt).request;
    desk->prompt = pass->prompt;
    sources_make(desk, &pass->sources, PAGED);
    desk->prompt = own;
}

/* From that stream, so many layers. */
static void pass_put(struct desk *desk, struct pass_of *pass, sc_cu_stream stream, uint32_t layers)
{
    for (uint32_t layer = 0; layer < layers; layer++) {
        struct spec_memory memory = pass->sources.areas[layer].memory;
        memory.stream = stream;
        const struct spec_store_params params =
            rig_store_params(pass->request, layer, 0, pass->prompt.count, &memory);
        assert_int_equal(sc_plugin_store(desk->rig.conn, &params, 1, &pass->ticket, NULL), SPEC_OK);
    }
}

static spec_status ticket_ask(struct desk *desk, spec_ticket ticket, uint64_t wait_ns)
{
    spec_status status = SPEC_E_INVALID;
    (void)sc_plugin_wait(desk->rig.conn, &ticket, 1, wait_ns, &status, NULL);
    return status;
}

static uint64_t read_of(struct desk *desk, const struct pass_of *pass)
{
    spec_status status = SPEC_PENDING;
    return rig_read(&desk->rig, &pass->prompt, &status);
}

static void pass_end(struct desk *desk, struct pass_of *pass)
{
    if (pass->request != 0)
        rig_release(&desk->rig, pass->request);
    rig_prompt_free(&pass->prompt);
    sources_done(&pass->sources);
}

/* The desk's own pass never runs; others' from another stream are told BUSY once there is no room,
 * host memory is stored and read beside, and in the end there is room again. */
static void a_stream_that_stands_still_wedges_nobody(void **state)
{
    (void)state;
    enum { OTHERS = 6, ROWS = 300 };
    struct desk desk;
    struct sources sources;
    struct pass_of others[OTHERS];
    sc_cu_stream stream;
    uint32_t stored = 0, busy = 0;
    fake_policy(FAKE_EAGER, 1);
    desk_shape(&desk, TIGHT, ROWS);
    desk_begin(&desk);
    device_ok(desk.host.cu->cuStreamCreate(&stream, SC_CU_STREAM_NON_BLOCKING));
    sources_make(&desk, &sources, PAGED);
    for (uint32_t i = 0; i < OTHERS; i++)
        pass_begin(&desk, &others[i], 100 + i, ROWS);
    for (uint32_t layer = 0; layer < LAYERS; layer++) /* it is attached, nothing is held yet */
        if (layer == 0) {
            assert_int_equal(desk_put(&desk, &sources.areas[0].memory, 0, ROWS, 0), SPEC_OK);
            fake_hold(desk.host.stream, 1);
        } else {
            assert_int_equal(desk_put(&desk, &sources.areas[layer].memory, 0, ROWS, layer),
                             SPEC_OK);
        }
    for (uint32_t i = 0; i < OTHERS; i++) {
        pass_put(&desk, &others[i], stream, LAYERS);
        spec_status told = ticket_ask(&desk, others[i].ticket, 50000000);
        if (told == SPEC_PENDING) { /* behind the held one, on a stream of ours */
            assert_int_equal(read_of(&desk, &others[i]), 0);
            continue;
        }
        assert_true(told == SPEC_OK || told == SPEC_E_BUSY);
        others[i].ticket = 0;
        assert_int_equal(read_of(&desk, &others[i]), told == SPEC_OK ? ROWS : 0);
        stored += told == SPEC_OK;
        busy += told == SPEC_E_BUSY;
    }
    print_message("beside it %" PRIu32 " were stored, %" PRIu32 " found no room\n", stored, busy);
    assert_true(busy > 0);
    struct prompt plain = rig_prompt(55, 0, 0, 70);
    assert_int_equal(rig_fill(&desk.rig, &plain), SPEC_OK); /* host memory */
    rig_prompt_free(&plain);
    assert_int_equal(ticket_ask(&desk, desk.ticket, 1000000), SPEC_PENDING);
    struct spec_lookup_result found = rig_peeked(&desk.rig, &desk.prompt, 0);
    assert_int_equal(found.matched_tokens, 0);
    fake_hold(desk.host.stream, 0);
    desk_assert_stored(&desk);
    for (uint32_t i = 0; i < OTHERS; i++) {
        if (others[i].ticket != 0)
            assert_int_equal(rig_wait(&desk.rig, others[i].ticket), SPEC_OK);
        pass_end(&desk, &others[i]);
    }
    desk_assert_idle(&desk);
    pass_begin(&desk, &others[0], 99, ROWS);
    pass_put(&desk, &others[0], stream, LAYERS);
    assert_int_equal(rig_wait(&desk.rig, others[0].ticket), SPEC_OK);
    assert_int_equal(read_of(&desk, &others[0]), ROWS);
    pass_end(&desk, &others[0]);
    sources_done(&sources);
    device_ok(desk.host.cu->cuStreamDestroy(stream));
    desk_close(&desk);
}

enum end { ABORT, RELEASE, RESET, ENDS };

/* A pass that stands still ends in each way; nobody waits, and the same handle's, or slot's, next
 * pass by host memory is stored while the device still holds what it got. */
static void a_pass_that_stands_still_may_end(void **state)
{
    (void)state;
    for (uint32_t how = 0; how < ENDS; how++)
        for (uint32_t layers = 1; layers <= LAYERS; layers++) {
            struct desk desk;
            struct sources sources;
            fake_policy(FAKE_EAGER, 1);
            desk_open(&desk, PLAIN, 130);
            spec_connector *conn = desk.rig.conn;
            sources_make(&desk, &sources, DENSE);
            for (uint32_t layer = 0; layer < layers; layer++) {
                assert_int_equal(desk_put(&desk, &sources.areas[layer].memory, 0, 130, layer),
                                 SPEC_OK);
                if (layer == 0)
                    fake_hold(desk.host.stream, 1);
            }
            spec_ticket ticket = layers == LAYERS ? desk.ticket : 0;
            if (how == ABORT)
                assert_int_equal(sc_plugin_store_abort(conn, desk.found.request, 0, NULL), SPEC_OK);
            if (how == RESET)
                assert_int_equal(sc_plugin_reset(conn, NULL), SPEC_OK);
            if (how != ABORT) {
                assert_int_equal(sc_plugin_release(conn, desk.found.request, NULL), SPEC_OK);
                desk.found = rig_lookup(&desk.rig, &desk.prompt);
                assert_int_equal(desk.found.matched_tokens, 0);
            }
            if (ticket == 0) {
                for (uint32_t layer = 0; layer < LAYERS; layer++)
                    assert_int_equal(desk_store_host_layer(&desk, 0, 130, layer), SPEC_OK);
                desk_assert_stored(&desk);
            } else {
                assert_int_equal(ticket_ask(&desk, ticket, 1000000), SPEC_PENDING);
            }
            fake_hold(desk.host.stream, 0);
            if (ticket != 0)
                assert_int_equal(rig_wait(&desk.rig, ticket),
                                 how == RESET ? SPEC_E_DROPPED : SPEC_OK);
            desk_assert_idle(&desk);
            if (ticket != 0 && how == RESET)
                desk_assert_goes_on(&desk);
            desk_assert_read(&desk);
            sources_done(&sources);
            desk_close(&desk);
        }
}

/* In a directory, with threads of its own; it is not open yet. */
static void on_threads(struct desk *desk)
{
    rig_done(&desk->rig);
    rig_init(&desk->rig, false, PLAIN);
    rig_shape(&desk->rig, LAYERS, 3, 16, SPEC_DTYPE_F16);
}

static void *close_it(void *user)
{
    struct desk *desk = user;
    sc_plugin_close(desk->rig.conn);
    return NULL;
}

/* Close waits for what flies; the device's close behind it would be told so by the fake. */
/* Before a stream stands still: kernels are loaded then. */
static void attach(struct desk *desk)
{
    assert_int_equal(sc_plugin_device_attach(&desk->rig.conn->device, 0, NULL), SPEC_OK);
}

static void close_waits_for_a_stream_that_stands_still(void **state)
{
    (void)state;
    for (uint32_t layers = 1; layers <= LAYERS; layers++) {
        struct desk desk;
        struct sources sources;
        pthread_t thread;
        spec_status status = SPEC_PENDING;
        fake_policy(FAKE_EAGER, 1);
        desk_shape(&desk, PLAIN, 130);
        on_threads(&desk);
        desk_begin(&desk);
        sources_make(&desk, &sources, PAGED);
        attach(&desk);
        fake_hold(desk.host.stream, 1);
        for (uint32_t layer = 0; layer < layers; layer++)
            assert_int_equal(desk_put(&desk, &sources.areas[layer].memory, 0, 130, layer), SPEC_OK);
        assert_int_equal(pthread_create(&thread, NULL, close_it, &desk), 0);
        bool waits = await_waiter(&desk.rig.conn->saves.word);
        fake_hold(desk.host.stream, 0);
        assert_int_equal(pthread_join(thread, NULL), 0);
        assert_true(waits);
        desk.found.request = 0;
        rig_open(&desk.rig);
        assert_int_equal(rig_read(&desk.rig, &desk.prompt, &status), layers == LAYERS ? 130 : 0);
        sources_done(&sources);
        desk_close(&desk);
    }
}

/* More passes than there are batches, a row each, and none of it runs: each call is taken, each
 * ticket tells, and no request's slot is lost. */
static void many_rows_that_stand_still(void **state)
{
    (void)state;
    enum { REQUESTS = 100 };
    struct desk desk;
    struct pass_of passes[REQUESTS];
    struct sources sources;
    uint32_t stored = 0, busy = 0;
    fake_policy(FAKE_EAGER, 1);
    desk_shape(&desk, "\"preset\": \"as-like\", \"max_requests\": 128" SMALL, 70);
    desk.rig.stage = "256MiB"; /* windows for all at once */
    desk_begin(&desk);
    sources_make(&desk, &sources, DENSE);
    struct area row = desk_area(&desk.rig, &desk.prompt, 0, 1, 0, DENSE, NULL);
    (void)desk_to_device(&desk, &row);
    assert_int_equal(desk_put(&desk, &sources.areas[0].memory, 0, 70, 0), SPEC_OK);
    fake_hold(desk.host.stream, 1);
    for (uint32_t i = 0; i < REQUESTS; i++) {
        passes[i].prompt = rig_prompt(1000 + i, 0, 0, 1);
        passes[i].request = rig_lookup(&desk.rig, &passes[i].prompt).request;
        for (uint32_t layer = 0; layer < LAYERS; layer++) {
            const struct spec_store_params params =
                rig_store_params(passes[i].request, layer, 0, 1, &row.memory);
            assert_int_equal(sc_plugin_store(desk.rig.conn, &params, 1, &passes[i].ticket, NULL),
                             SPEC_OK);
        }
        rig_release(&desk.rig, passes[i].request);
    }
    for (uint32_t i = 0; i < REQUESTS; i++) {
        spec_status told = ticket_ask(&desk, passes[i].ticket, 1000000);
        assert_true(told == SPEC_PENDING || told == SPEC_E_BUSY);
        busy += told == SPEC_E_BUSY;
        passes[i].ticket = told == SPEC_PENDING ? passes[i].ticket : 0;
    }
    fake_hold(desk.host.stream, 0);
    for (uint32_t i = 0; i < REQUESTS; i++) {
        if (passes[i].ticket != 0)
            assert_int_equal(rig_wait(&desk.rig, passes[i].ticket), SPEC_OK);
        stored += passes[i].ticket != 0;
        rig_prompt_free(&passes[i].prompt);
    }
    print_message("%" PRIu32 " rows were stored, %" PRIu32 " found no d2h_batch\n", stored, busy);
    assert_true(stored > 0 && busy > 0 && stored + busy == REQUESTS);
    for (uint32_t layer = 1; layer < LAYERS; layer++)
        assert_int_equal(desk_put(&desk, &sources.areas[layer].memory, 0, 70, layer), SPEC_OK);
    desk_assert_stored(&desk);
    desk_assert_idle(&desk);
    rig_area_free(&row);
    sources_done(&sources);
    desk_close(&desk);
}

/* ---- Fork ----------------------------------------------------------------------------------- */

/* In the child: each call is refused, the driver is not called, and close touches nothing. */
_Noreturn static void be_a_child(struct desk *desk, const struct sources *sources)
{
    spec_connector *conn = desk->rig.conn;
    spec_status status;
    const struct spec_store_params params = rig_store_params(
        desk->found.request, LAYERS - 1, 0, desk->prompt.count, &sources->areas[LAYERS - 1].memory);
    const struct spec_api *api = spec_connector_api(SPEC_ABI_MAJOR);
    int code = 0;
    code |= api->store(conn, &params, 1, NULL, NULL) != SPEC_E_FORKED;
    code |= api->poll(conn, &desk->ticket, 1, &status, NULL) != SPEC_E_FORKED ? 2 : 0;
    code |= api->store_abort(conn, desk->found.request, 0, NULL) != SPEC_E_FORKED ? 4 : 0;
    code |= api->release(conn, desk->found.request, NULL) != SPEC_E_FORKED ? 8 : 0;
    api->close(conn);
    _exit(code);
}

static void a_child_that_is_forked_in_between_touches_nothing(void **state)
{
    (void)state;
    for (uint32_t layers = 1; layers <= LAYERS; layers++) {
        struct desk desk;
        struct sources sources;
        int code = -1;
        fake_policy(FAKE_EAGER, 1);
        desk_shape(&desk, PLAIN, 130);
        on_threads(&desk);
        desk_begin(&desk);
        sources_make(&desk, &sources, PAGED);
        for (uint32_t layer = 0; layer < LAYERS; layer++) {
            if (layer == layers) {
                pid_t child = fork();
                if (child == 0)
                    be_a_child(&desk, &sources);
                assert_int_equal(waitpid(child, &code, 0), child);
                assert_int_equal(code, 0);
            }
            assert_int_equal(desk_put(&desk, &sources.areas[layer].memory, 0, 130, layer), SPEC_OK);
            if (layer == 0)
                fake_hold(desk.host.stream, 1);
        }
        if (layers == LAYERS) { /* all of it is on its way */
            pid_t child = fork();
            if (child == 0)
                be_a_child(&desk, &sources);
            assert_int_equal(waitpid(child, &code, 0), child);
            assert_int_equal(code, 0);
        }
        fake_hold(desk.host.stream, 0);
        desk_assert_stored(&desk);
        desk_assert_idle(&desk);
        sources_done(&sources);
        desk_close(&desk);
    }
}

/* ---- Memory that goes, streams that are nobody's --------------------------------------------- */

/* Freed behind the call, and another prompt's rows come to stand at its address. */
static void a_source_may_be_freed_behind_the_call(void **state)
{
    (void)state;
    for (uint32_t policy = FAKE_EAGER; policy <= FAKE_RANDOM; policy++) {
        struct desk desk;
        fake_policy((enum fake_policy)policy, 3);
        desk_open(&desk, PLAIN, 130);
        for (uint32_t layer = 0; layer < LAYERS; layer++) {
            struct area area = desk_area(&desk.rig, &desk.prompt, 0, 130, layer, DENSE, NULL);
            (void)desk_to_device(&desk, &area);
            assert_int_equal(desk_put(&desk, &area.memory, 0, 130, layer), SPEC_OK);
            desk_sources_free(&desk);
            rig_area_free(&area);
        }
        desk_assert_stored(&desk);
        desk_close(&desk);
    }
}

/* NULL and its other names; a stream of another device's context is INVALID. */
static void streams_of_any_name(void **state)
{
    (void)state;
    static const uintptr_t names[] = {0, 1, 2};
    for (uint32_t i = 0; i < COUNT(names); i++) {
        struct desk desk;
        struct sources sources;
        sc_cu_stream own, stream;
        struct device_host second;
        fake_policy(FAKE_LAZY, i + 1);
        desk_open(&desk, PLAIN, 70);
        own = desk.host.stream;
        memcpy(&stream, &names[i], sizeof(stream));
        sources_make(&desk, &sources, PAGED);
        device_ok(desk.host.cu->cuStreamSynchronize(own)); /* the copies up were there */
        device_host_open(&second, 1);
        for (uint32_t layer = 0; layer < LAYERS; layer++) {
            struct spec_memory *memory = &sources.areas[layer].memory;
            memory->stream = second.stream;
            assert_int_equal(desk_put(&desk, memory, 0, 70, layer), SPEC_E_INVALID);
            memory->stream = stream;
        }
        device_host_close(&second);
        for (uint32_t layer = 0; layer < LAYERS; layer++)
            assert_int_equal(desk_put(&desk, &sources.areas[layer].memory, 0, 70, layer), SPEC_OK);
        desk_assert_stored(&desk);
        sources_done(&sources);
        desk_close(&desk);
    }
}

/* ---- Slots and shapes ----------------------------------------------------------------------- */

static void slots_of_all_kinds(void **state)
{
    (void)state;
    static const int64_t wrong[] = {-1,
                                    INT64_MIN,
                                    INT64_MAX,
                                    INT64_C(1) << 31,
                                    INT64_C(1) << 32,
                                    (INT64_C(1) << 32) + 3,
                                    INT64_C(1) << 62,
                                    112,
                                    113};
    struct desk desk;
    fake_policy(FAKE_LAZY, 1);
    desk_open(&desk, PLAIN, 100);
    for (uint32_t layer = 0; layer < LAYERS; layer++) {
        int64_t slots[100];
        struct area area = desk_area(&desk.rig, &desk.prompt, 0, 100, layer, PAGED, slots);
        (void)desk_to_device(&desk, &area);
        for (uint32_t i = 0; i < COUNT(wrong); i++)
            for (uint32_t at = 0; at < 100; at += 33) {
                int64_t right = slots[at];
                uint64_t enqueued = fake_enqueued();
                slots[at] = wrong[i];
                if (desk_put(&desk, &area.memory, 0, 100, layer) != SPEC_E_INVALID)
                    fail_msg("slot %" PRId64 " is taken", wrong[i]);
                assert_int_equal(fake_enqueued(), enqueued);
                slots[at] = right;
            }
        area.memory.slot_count = 99;
        assert_int_equal(desk_put(&desk, &area.memory, 0, 100, layer), SPEC_E_INVALID);
        area.memory.slot_count = 100;
        area.memory.dtype = SPEC_DTYPE_BF16; /* not the namespace's */
        assert_int_equal(desk_put(&desk, &area.memory, 0, 100, layer), SPEC_E_INVALID);
        area.memory.dtype = SPEC_DTYPE_F16;
        assert_int_equal(desk_put(&desk, &area.memory, 0, 0, layer), SPEC_E_INVALID);
        assert_int_equal(desk_put(&desk, &area.memory, 0, 100, layer), SPEC_OK);
        rig_area_free(&area);
    }
    desk_assert_stored(&desk);
    desk_close(&desk);
}

/* Slots that are named twice are read twice: as from host memory, bit by bit. */
static void a_slot_may_be_named_twice(void **state)
{
    (void)state;
    struct rig rigs[2]; /* from host memory, from the device */
    struct desk desk;
    int64_t slots[64];
    fake_policy(FAKE_RANDOM, 4);
    desk_open(&desk, PLAIN, 64);
    rig_begin_shape(&rigs[0], true, PLAIN, LAYERS, 3, 16, SPEC_DTYPE_F16);
    spec_request request = rig_lookup(&rigs[0], &desk.prompt).request;
    spec_ticket ticket = 0;
    for (uint32_t layer = 0; layer < LAYERS; layer++) {
        struct area area = desk_area(&desk.rig, &desk.prompt, 0, 64, layer, PAGED, slots);
        for (uint32_t j = 0; j < 64; j++)
            slots[j] = j * 7 % 13;
        const struct spec_store_params params =
            rig_store_params(request, layer, 0, 64, &area.memory);
        assert_int_equal(sc_plugin_store(rigs[0].conn, &params, 1, &ticket, NULL), SPEC_OK);
        (void)desk_to_device(&desk, &area);
        assert_int_equal(desk_put(&desk, &area.memory, 0, 64, layer), SPEC_OK);
        rig_area_free(&area);
    }
    assert_int_equal(rig_wait(&rigs[0], ticket), SPEC_OK);
    assert_int_equal(rig_wait(&desk.rig, desk.ticket), SPEC_OK);
    rigs[1] = desk.rig;
    for (uint32_t layer = 0; layer < LAYERS; layer++) {
        struct area areas[2];
        for (uint32_t i = 0; i < 2; i++) {
            struct spec_lookup_result found = rig_lookup(&rigs[i], &desk.prompt);
            assert_int_equal(found.matched_tokens, 64);
            areas[i] = rig_area(&rigs[i], 64);
            struct spec_important item = rig_item(found.request, layer, &areas[i].memory);
            assert_int_equal(sc_plugin_get_important(rigs[i].conn, &item, 1, NULL), SPEC_OK);
            rig_release(&rigs[i], found.request);
        }
        assert_memory_equal(areas[0].bytes, areas[1].bytes,
                            3 * RIG_GUARD + 2 * areas[0].part_bytes);
        rig_area_free(&areas[0]);
        rig_area_free(&areas[1]);
    }
    rig_release(&rigs[0], request);
    rig_done(&rigs[0]);
    desk_close(&desk);
}

static void shapes_of_all_kinds(void **state)
{
    (void)state;
    static const uint32_t dtypes[] = {SPEC_DTYPE_F32,      SPEC_DTYPE_F16,      SPEC_DTYPE_BF16,
                                      SPEC_DTYPE_FP8_E4M3, SPEC_DTYPE_FP8_E5M2, SPEC_DTYPE_INT8,
                                      SPEC_DTYPE_BYTES};
    static const uint32_t sizes[][2] = {{1, 1},  {1, 3},  {5, 2},   {2, 80},
                                        {1, 96}, {3, 40}, {1, 256}, {7, 9}};
    static const uint64_t rows[] = {1, 2, 17, 64};
    unsigned number = 0;
    for (uint32_t d = 0; d < COUNT(dtypes); d++)
        for (uint32_t s = 0; s < COUNT(sizes); s++) {
            struct desk desk;
            uint64_t count = rows[number++ % COUNT(rows)];
            enum dress dress = (enum dress)(number % DRESSES);
            fake_policy((enum fake_policy)(number % 4), number);
            desk_shape(&desk, PLAIN, count);
            rig_shape(&desk.rig, 1 + number % 3, sizes[s][0], sizes[s][1], dtypes[d]);
            desk_begin(&desk);
            desk_store_pass(&desk, dress);
            if (rig_wait(&desk.rig, desk.ticket) != SPEC_OK)
                fail_msg("%" PRIu32 " heads of %" PRIu32 ", dtype %" PRIu32, sizes[s][0],
                         sizes[s][1], dtypes[d]);
            desk_assert_read(&desk);
            desk_assert_idle(&desk);
            desk_close(&desk);
        }
}

/* ---- Room ----------------------------------------------------------------------------------- */

/* Limits that are no multiple of anything, and passes that just fit, or just do not. */
static void limits_that_are_no_multiple_of_anything(void **state)
{
    (void)state;
    static const char *const limits[] = {"1048576", "1048577", "1052671", "1310719", "2097151"};
    static const uint64_t rows[] = {640, 1700, 2600, 5300, 5450, 5500};
    for (uint32_t l = 0; l < COUNT(limits); l++) {
        struct desk desk;
        char extra[200];
        (void)snprintf(extra, sizeof(extra),
                       "\"preset\": \"as-like\", \"gpu\": {\"staging_bytes\": \"1MiB\", "
                       "\"store_bytes\": %s}",
                       limits[l]);
        uint32_t stored = 0, busy = 0;
        for (uint32_t r = 0; r < COUNT(rows); r++) {
            fake_policy(FAKE_EAGER, 1);
            desk_open(&desk, extra, rows[r]);
            for (uint32_t layer = 0; layer < LAYERS; layer++) {
                assert_int_equal(desk_store_layer(&desk, 0, rows[r], layer, DENSE), SPEC_OK);
                rig_pass_ns(&desk.rig, 2000000); /* the device is quick: one layer at a time */
            }
            spec_status told = rig_wait(&desk.rig, desk.ticket), status = SPEC_PENDING;
            if (told != SPEC_OK && told != SPEC_E_BUSY)
                fail_msg("%s, %" PRIu64 " rows: %s", limits[l], rows[r], sc_status_name(told));
            stored += told == SPEC_OK;
            busy += told == SPEC_E_BUSY;
            uint64_t read = rig_read(&desk.rig, &desk.prompt, &status);
            assert_true(read == (told == SPEC_OK ? rows[r] : 0) || told == SPEC_E_BUSY);
            desk_assert_idle(&desk);
            desk_close(&desk);
        }
        assert_true(stored > 0);
        print_message("gpu.store_bytes %s: %" PRIu32 " stored, %" PRIu32 " busy\n", limits[l],
                      stored, busy);
    }
}

/* ---- Disks and memory that fail ---------------------------------------------------------------
 */

/* A write, a reserve or a sync of the pass fails while batches fly. */
static void disks_may_fail_while_batches_fly(void **state)
{
    (void)state;
    static const enum sc_io_sim_fault faults[] = {SC_SIM_WRITE_EIO, SC_SIM_NO_SPACE,
                                                  SC_SIM_SYNC_EIO, SC_SIM_WRITE_PART, SC_SIM_LATE};
    uint32_t fired = 0;
    for (uint32_t policy = FAKE_EAGER; policy <= FAKE_STARVE; policy++)
        for (uint32_t f = 0; f < COUNT(faults); f++)
            for (uint64_t n = 0; n < 6; n++) {
                struct desk desk;
                spec_status status = SPEC_PENDING;
                fake_policy((enum fake_policy)policy, n + 1);
                desk_open(&desk, PLAIN, 600);
                sc_io_sim_fault_nth(desk.rig.disk, faults[f], n);
                desk_store_pass(&desk, PAGED);
                spec_status told = rig_wait(&desk.rig, desk.ticket);
                fired += sc_io_sim_fault_fired(desk.rig.disk, faults[f]) > 0;
                assert_true(told == SPEC_OK || told == SPEC_E_IO || told == SPEC_E_NO_SPACE ||
                            told == SPEC_E_DROPPED);
                uint64_t read = rig_read(&desk.rig, &desk.prompt, &status);
                if (told == SPEC_OK)
                    assert_int_equal(read, 600);
                desk_assert_idle(&desk);
                desk_close(&desk);
            }
    assert_true(fired > 20);
}

/* A write that does not end while the device has long delivered: nothing is told until it does. */
static void a_disk_may_stand_still(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < 4; n++) {
        struct desk desk;
        fake_policy(FAKE_LAZY, n + 1);
        desk_open(&desk, PLAIN, 600);
        sc_io_sim_fault_nth(desk.rig.disk, SC_SIM_NEVER, n);
        desk_store_pass(&desk, PAGED);
        spec_status told = ticket_ask(&desk, desk.ticket, 500000000);
        bool is_met = sc_io_sim_fault_fired(desk.rig.disk, SC_SIM_NEVER) > 0;
        assert_int_equal(told, is_met ? SPEC_PENDING : SPEC_OK);
        (void)sc_io_sim_release_all(desk.rig.disk);
        if (is_met)
            desk_assert_stored(&desk);
        desk_assert_idle(&desk);
        desk_close(&desk);
    }
}

/* The second extent's send fails: the first one's part says why as well, and comes first. */
static void of_several_extents_each_tells_why(void **state)
{
    (void)state;
    enum { ROWS = SC_PLUGIN_SAVE_TOKENS + 200 };
    struct desk desk;
    struct area area;
    fake_policy(FAKE_LAZY, 1);
    desk_open(&desk, PLAIN, ROWS);
    area = desk_area(&desk.rig, &desk.prompt, 0, ROWS, 0, DENSE, NULL);
    (void)desk_to_device(&desk, &area);
    fake_fault("cuLaunchKernel", 2, SC_CU_LAUNCH_FAILED);
    assert_int_equal(desk_put(&desk, &area.memory, 0, ROWS, 0), SPEC_OK);
    assert_true(fake_fired());
    fake_fault(NULL, 0, 0);
    for (uint32_t layer = 1; layer < LAYERS; layer++)
        assert_int_equal(desk_store_host_layer(&desk, 0, ROWS, layer), SPEC_OK);
    assert_int_equal(rig_wait(&desk.rig, desk.ticket), SPEC_E_IO);
    desk_assert_goes_on(&desk);
    desk_assert_idle(&desk);
    rig_area_free(&area);
    desk_close(&desk);
}

/* The attach of the first store fails at each of its allocations: an error, and nothing changed. */
static void an_attach_may_find_no_memory(void **state)
{
    (void)state;
    for (int64_t n = 0;; n++) {
        struct desk desk;
        struct sources sources;
        fake_policy(FAKE_LAZY, 1);
        desk_open(&desk, PLAIN, 70);
        sources_make(&desk, &sources, PAGED);
        atomic_store(&desk.rig.memory.failed, 0);
        atomic_store(&desk.rig.memory.countdown, n);
        spec_status status = desk_put(&desk, &sources.areas[0].memory, 0, 70, 0);
        bool is_met = atomic_load(&desk.rig.memory.failed) > 0;
        atomic_store(&desk.rig.memory.countdown, -1);
        if (!is_met)
            assert_int_equal(status, SPEC_OK);
        if (status != SPEC_OK) {
            assert_int_equal(status, SPEC_E_NO_MEMORY);
            assert_int_equal(desk_put(&desk, &sources.areas[0].memory, 0, 70, 0), SPEC_OK);
        }
        for (uint32_t layer = 1; layer < LAYERS; layer++)
            assert_int_equal(desk_put(&desk, &sources.areas[layer].memory, 0, 70, layer), SPEC_OK);
        desk_assert_stored(&desk);
        sources_done(&sources);
        desk_close(&desk);
        if (!is_met)
            break;
        assert_true(n < 200);
    }
}

/* ---- Several at once --------------------------------------------------------------------------
 */

/* One source, two requests, one call; a second param that is wrong leaves the first one's as it
 * was. */
static void a_source_of_two_requests(void **state)
{
    (void)state;
    for (uint32_t policy = FAKE_EAGER; policy <= FAKE_RANDOM; policy++) {
        struct desk desk;
        struct prompt other;
        spec_ticket tickets[2] = {0, 0};
        spec_status status;
        fake_policy((enum fake_policy)policy, policy + 2);
        desk_open(&desk, PLAIN, 70);
        other = rig_prompt(70, 0, 0, 70);
        other.tokens[69] ^= 1; /* whose last row is another's, so to speak */
        spec_request second = rig_lookup(&desk.rig, &other).request;
        for (uint32_t layer = 0; layer < LAYERS; layer++) {
            struct area area = desk_area(&desk.rig, &desk.prompt, 0, 70, layer, DENSE, NULL);
            struct there *there = desk_to_device(&desk, &area);
            struct spec_memory wrong = area.memory;
            wrong.device_index = 1;
            struct spec_store_params params[2] = {{.struct_size = sizeof(params[0]),
                                                   .request = desk.found.request,
                                                   .layer = layer,
                                                   .token_count = 70,
                                                   .memory = &area.memory},
                                                  {.struct_size = sizeof(params[0]),
                                                   .request = second,
                                                   .layer = layer,
                                                   .token_count = 70,
                                                   .memory = &wrong}};
            assert_int_equal(sc_plugin_store(desk.rig.conn, params, 2, tickets, NULL),
                             SPEC_E_INVALID);
            params[1].memory = &area.memory;
            assert_int_equal(sc_plugin_store(desk.rig.conn, params, 2, tickets, NULL), SPEC_OK);
            device_ok(desk.host.cu->cuMemcpyHtoDAsync(there->at, there->pinned, there->bytes,
                                                      desk.host.stream));
            rig_area_free(&area);
        }
        assert_int_equal(rig_wait(&desk.rig, tickets[0]), SPEC_OK);
        assert_int_equal(rig_wait(&desk.rig, tickets[1]), SPEC_OK);
        desk_assert_read(&desk);
        struct spec_lookup_result found = rig_peeked(&desk.rig, &other, 0);
        assert_int_equal(found.matched_tokens, 70);
        memcpy(other.history, desk.prompt.history, 70 * sizeof(uint64_t));
        assert_int_equal(rig_read(&desk.rig, &other, &status), 70);
        rig_release(&desk.rig, second);
        rig_prompt_free(&other);
        desk_assert_idle(&desk);
        desk_close(&desk);
    }
}

/* Two connectors on one device, and one on another: what one has in the air is none of the
 * others'. */
static void connectors_beside_each_other(void **state)
{
    (void)state;
    for (uint32_t policy = FAKE_EAGER; policy <= FAKE_RANDOM; policy++) {
        enum { DESKS = 3 };
        struct desk desks[DESKS];
        fake_policy((enum fake_policy)policy, policy + 5);
        for (uint32_t i = 0; i < DESKS; i++) {
            desks[i] = (struct desk){.there_count = 0};
            device_host_open(&desks[i].host, i == 2 ? 1 : 0);
            rig_init(&desks[i].rig, true, PLAIN);
            rig_shape(&desks[i].rig, LAYERS, 3, 16, SPEC_DTYPE_F16);
            desks[i].prompt = rig_prompt(30 + i, 0, 0, 130);
            desk_begin(&desks[i]);
        }
        for (uint32_t layer = 0; layer < LAYERS; layer++)
            for (uint32_t i = 0; i < DESKS; i++) {
                device_ok(desks[i].host.cu->cuCtxPushCurrent(desks[i].host.context));
                assert_int_equal(desk_store_layer(&desks[i], 0, 130, layer, PAGED), SPEC_OK);
                sc_cu_context popped;
                device_ok(desks[i].host.cu->cuCtxPopCurrent(&popped));
            }
        for (uint32_t n = DESKS; n-- > 0;) {
            desk_assert_stored(&desks[n]);
            desk_assert_idle(&desks[n]);
            rig_release(&desks[n].rig, desks[n].found.request);
            rig_end(&desks[n].rig, &desks[n].prompt);
            desk_sources_free(&desks[n]);
            device_host_close(&desks[n].host);
        }
        fake_policy(FAKE_EAGER, 1);
        device_assert_clean("connectors");
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stream_that_stands_still_wedges_nobody),
        cmocka_unit_test(a_pass_that_stands_still_may_end),
        cmocka_unit_test(close_waits_for_a_stream_that_stands_still),
        cmocka_unit_test(many_rows_that_stand_still),
        cmocka_unit_test(a_child_that_is_forked_in_between_touches_nothing),
        cmocka_unit_test(a_source_may_be_freed_behind_the_call),
        cmocka_unit_test(streams_of_any_name),
        cmocka_unit_test(slots_of_all_kinds),
        cmocka_unit_test(a_slot_may_be_named_twice),
        cmocka_unit_test(shapes_of_all_kinds),
        cmocka_unit_test(limits_that_are_no_multiple_of_anything),
        cmocka_unit_test(disks_may_fail_while_batches_fly),
        cmocka_unit_test(a_disk_may_stand_still),
        cmocka_unit_test(of_several_extents_each_tells_why),
        cmocka_unit_test(an_attach_may_find_no_memory),
        cmocka_unit_test(a_source_of_two_requests),
        cmocka_unit_test(connectors_beside_each_other),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

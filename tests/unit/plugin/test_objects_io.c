/* Values between the host's memory and the device: pieces of any shape, memory that the device
 * refuses, a device that lies, and one that keeps what it was given.
 *
 * Threads: one (the seeded loop). */
#include "store/internal.h"
#include "store/io/io_backend.h"
#include "tests/unit/plugin/object_rig.h"

#include <errno.h>

#define VALUE_MAX (700u << 10)
#define GUARD     64u

static _Alignas(4096) uint8_t memory[2 * VALUE_MAX];
static uint8_t truth[VALUE_MAX];

struct call {
    struct spec_keys keys;
    struct spec_pieces pieces;
    struct spec_transfer_params params;
    uint64_t key;
    uint64_t addresses[SPEC_PIECES_MAX], sizes[SPEC_PIECES_MAX];
    int32_t status;
};

static uint64_t draw(uint64_t *state, uint64_t bound)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return (*state * UINT64_C(0x2545f4914f6cdd1d) >> 16) % bound;
}

/* One piece, page-aligned. */
static void call_make(struct call *call, uint64_t key, uint64_t bytes)
{
    *call = (struct call){.key = key, .status = 99};
    call->keys = (struct spec_keys){
        .struct_size = sizeof(call->keys), .count = 1, .data = &call->key, .key_bytes = 8};
    call->pieces = (struct spec_pieces){.struct_size = sizeof(call->pieces),
                                        .pieces = 1,
                                        .addresses = call->addresses,
                                        .sizes = call->sizes};
    call->params = (struct spec_transfer_params){.struct_size = sizeof(call->params),
                                                 .ret_status = &call->status};
    call->addresses[0] = (uint64_t)(uintptr_t)memory;
    call->sizes[0] = bytes;
}

/* The value becomes pieces of any sizes, some of them of whole pages and page-aligned, with guards
 * between them. */
static void call_split(struct call *call, uint64_t *random)
{
    uint64_t left = call->sizes[0], at = 0, most = 1 + draw(random, SPEC_PIECES_MAX);
    uint32_t count = 0;
    for (; left > 0 && count < most; count++) {
        uint64_t some = 1 + draw(random, left);
        at = draw(random, 2) == 0 ? (at + 4095) / 4096 * 4096 : at + draw(random, 4096);
        some = draw(random, 2) == 0 && left >= 4096 ? 4096 * (1 + draw(random, left / 4096)) : some;
        some = count + 1 == most ? left : some;
        call->addresses[count] = (uint64_t)(uintptr_t)(memory + at);
        call->sizes[count] = some;
        left -= some;
        at += some + GUARD;
    }
    call->pieces.pieces = count;
}

static uint8_t *piece_of(const struct call *call, uint32_t i)
{
    return (uint8_t *)(uintptr_t)call->addresses[i];
}

static void truth_make(uint64_t key, uint64_t bytes)
{
    for (uint64_t i = 0; i < bytes; i++)
        truth[i] = (uint8_t)(key * 31 + i * 7 + i / 251);
}

static void pieces_fill(const struct call *call)
{
    uint64_t at = 0;
    for (uint32_t i = 0; i < call->pieces.pieces; at += call->sizes[i++])
        memcpy(piece_of(call, i), truth + at, call->sizes[i]);
}

/* Each piece has its bytes, and its guard is whole. */
static void pieces_check(const struct call *call)
{
    uint64_t at = 0;
    for (uint32_t i = 0; i < call->pieces.pieces; at += call->sizes[i++]) {
        if (memcmp(piece_of(call, i), truth + at, call->sizes[i]) != 0)
            fail_msg("piece %u of key %" PRIu64 " has other bytes", i, call->key);
        for (uint32_t g = 0; g < GUARD; g++)
            assert_int_equal(piece_of(call, i)[call->sizes[i] + g], 0xa5);
    }
}

static void put_done(struct rig *rig, struct call *call)
{
    assert_int_equal(rig->api->put(rig->store, rig->domains[0], &call->keys, &call->pieces,
                                   &call->params, &rig->error),
                     SPEC_OK);
    assert_int_equal(call->status, SPEC_KEY_DONE);
}

static void get_done(struct rig *rig, struct call *call)
{
    memset(memory, 0xa5, sizeof(memory));
    assert_int_equal(rig->api->get(rig->store, rig->domains[0], &call->keys, &call->pieces,
                                   &call->params, &rig->error),
                     SPEC_OK);
    assert_int_equal(call->status, SPEC_KEY_DONE);
    pieces_check(call);
}

static struct spec_object_stats stats_of(struct rig *rig)
{
    struct spec_object_stats stats = {.struct_size = sizeof(stats)};
    assert_int_equal(rig->api->stats(rig->store, rig->domains[0], &stats, &rig->error), SPEC_OK);
    return stats;
}

/* ---- Pieces ---------------------------------------------------------------------------------- */

static void values_of_any_pieces_are_delivered_into_any_others(void **state)
{
    (void)state;
    struct rig rig;
    uint64_t random = 5;
    rig_make(&rig, "", 0);
    rig_open(&rig);
    for (uint64_t key = 0; key < 400; key++) {
        uint64_t bytes = 1 + draw(&random, key % 10 == 0 ? VALUE_MAX : 20000);
        struct call call;
        truth_make(key, bytes);
        call_make(&call, key, bytes);
        call_split(&call, &random);
        pieces_fill(&call);
        put_done(&rig, &call);
        call_make(&call, key, bytes);
        get_done(&rig, &call);
        for (uint32_t n = 0; n < 3; n++) {
            call_make(&call, key, bytes);
            call_split(&call, &random);
            get_done(&rig, &call);
        }
    }
    assert_int_equal(stats_of(&rig).damaged_objects, 0);
    rig_free(&rig);
}

static void aligned_memory_is_not_copied(void **state)
{
    (void)state;
    struct rig rig;
    struct call call;
    rig_make(&rig, "", 0);
    rig_open(&rig);
    truth_make(1, 300000);
    call_make(&call, 1, 73 * 4096);
    pieces_fill(&call);
    put_done(&rig, &call);
    get_done(&rig, &call);
    assert_int_equal(stats_of(&rig).bounce_bytes, 0);
    call_make(&call, 2, 73 * 4096 + 5);
    pieces_fill(&call);
    put_done(&rig, &call);
    get_done(&rig, &call);
    assert_int_equal(stats_of(&rig).bounce_bytes, 10); /* what is left of the last page, twice */
    rig_free(&rig);
}

/* ---- Memory that the device refuses ---------------------------------------------------------- */

static struct sc_io_backend refusing_backend;
static void (*refusing_goes_on)(struct sc_io *io, struct sc_io_op *ops);
static uint64_t refused;

static void refused_step(struct sc_task *task)
{
    struct sc_io_op *op = SC_TASK_OWNER(task, struct sc_io_op, task);
    refused++;
    sc_io_op_complete(op, EINVAL);
}

/* Operations on memory of the host's are refused, those on frames are not. */
static void refusing_submit(struct sc_io *io, struct sc_io_op *ops)
{
    for (struct sc_io_op *op = ops, *next; op != NULL; op = next) {
        const uint8_t *buffer = op->buffer;
        next = op->next;
        op->next = NULL;
        if (buffer >= memory && buffer < memory + sizeof(memory)) {
            op->task.step = refused_step;
            sc_exec_post(io->exec, &op->task, (enum sc_io_class)op->io_class);
        } else {
            refusing_goes_on(io, op);
        }
    }
}

static spec_status refusing_open(struct sc_io *io, void *user, struct spec_error *reterr)
{
    const struct sc_io_custom *sim = sc_io_sim_custom(user);
    spec_status status = sim->open(io, sim->user, reterr);
    refusing_goes_on = io->backend->submit;
    refusing_backend = *io->backend;
    refusing_backend.submit = refusing_submit;
    io->backend = &refusing_backend;
    return status;
}

static void refused_memory_goes_through_frames(void **state)
{
    (void)state;
    struct rig rig;
    uint64_t random = 9;
    rig_make(&rig, "", 0);
    const struct sc_io_custom custom = {.open = refusing_open, .user = rig.disk, .seed = 1};
    rig.custom = &custom;
    rig_open(&rig);
    refused = 0;
    for (uint64_t key = 0; key < 40; key++) {
        uint64_t bytes = 1 + draw(&random, 100000);
        struct call call;
        truth_make(key, bytes);
        call_make(&call, key, bytes);
        if (key % 2 == 0)
            call_split(&call, &random);
        pieces_fill(&call);
        put_done(&rig, &call);
        get_done(&rig, &call);
    }
    assert_true(refused > 40);
    assert_int_equal(stats_of(&rig).io_errors, 0);
    assert_true(stats_of(&rig).bounce_bytes > 0);
    rig_free(&rig);
}

/* ---- A device that lies, or keeps what it was given -------------------------------------------
 */

static void a_lying_device_gives_misses(void **state)
{
    (void)state;
    static const enum sc_io_sim_fault LIES[] = {SC_SIM_TORN, SC_SIM_FLIP,  SC_SIM_MISDIRECTED,
                                                SC_SIM_LOST, SC_SIM_SHORT, SC_SIM_LATE,
                                                SC_SIM_STALE};
    uint64_t damaged = 0;
    for (uint64_t seed = 1; seed <= 40; seed++) {
        struct rig rig;
        rig_make(&rig, "", 0);
        rig_disk_new(&rig, seed, 0);
        rig_open(&rig);
        rig.may_fail = true;
        sc_io_sim_fault_scope(rig.disk, "/seg-");
        for (uint32_t i = 0; i < sizeof(LIES) / sizeof(LIES[0]); i++)
            sc_io_sim_fault_ppm(rig.disk, LIES[i], 30000);
        for (uint32_t round = 0; round < 4; round++) {
            rig_put(&rig, 0, 0, 16);
            rig_put(&rig, 1, 3, 9);
            rig_get(&rig, 0, 0, 16);
            rig_get(&rig, 1, 3, 9);
            rig_remove(&rig, 0, round * 2, 3, 0);
        }
        for (uint32_t i = 0; i < sizeof(LIES) / sizeof(LIES[0]); i++)
            sc_io_sim_fault_ppm(rig.disk, LIES[i], 0);
        rig_check(&rig);
        damaged += stats_of(&rig).damaged_objects;
        rig_works(&rig);
        rig_free(&rig);
    }
    assert_true(damaged > 20);
}

static void submit(struct rig *rig, struct call *call, bool is_put)
{
    spec_operation operation = 0;
    spec_status status =
        is_put ? rig->api->put_submit(rig->store, rig->domains[0], &call->keys, &call->pieces,
                                      &call->params, &operation, &rig->error)
               : rig->api->get_submit(rig->store, rig->domains[0], &call->keys, &call->pieces,
                                      &call->params, &operation, &rig->error);
    assert_int_equal(status, SPEC_OK);
}

static uint64_t poll(struct rig *rig, uint64_t timeout_ns)
{
    struct spec_completion completion;
    uint64_t count = 99;
    assert_int_equal(rig->api->poll(rig->store, rig->domains[0], &completion, 1, timeout_ns, &count,
                                    &rig->error),
                     SPEC_OK);
    return count;
}

/* What was handed to the device ends when the device lets go of it, and not at its deadline. */
static void a_deadline_leaves_the_device_its_memory(void **state)
{
    (void)state;
    for (uint32_t is_get = 0; is_get < 2; is_get++) {
        struct rig rig;
        struct call call;
        rig_make(&rig, "", 0);
        rig_open(&rig);
        truth_make(1, 8192);
        call_make(&call, 1, 8192);
        pieces_fill(&call);
        if (is_get)
            put_done(&rig, &call);
        memset(memory + 8192, 0xa5, GUARD);
        sc_io_sim_fault_scope(rig.disk, "/seg-");
        sc_io_sim_fault_nth(rig.disk, SC_SIM_NEVER, 0);
        call.params.timeout_ns = 1000000;
        submit(&rig, &call, !is_get);
        assert_int_equal(poll(&rig, 2000000000), 0);
        assert_int_equal(call.status, SPEC_KEY_PENDING);
        assert_int_equal(sc_io_sim_release_all(rig.disk), 1);
        assert_int_equal(poll(&rig, 1000000000), 1);
        assert_int_equal(call.status, SPEC_KEY_DONE);
        pieces_check(&call);
        rig_free(&rig);
    }
}

/* An object that is removed while it is read is delivered; its pages are not given to others
 * before. */
static void a_removed_object_that_is_read_is_delivered(void **state)
{
    (void)state;
    struct rig rig;
    struct call call, other;
    rig_make(&rig, "", 0);
    rig_open(&rig);
    truth_make(1, 8192);
    call_make(&call, 1, 8192);
    pieces_fill(&call);
    put_done(&rig, &call);
    memset(memory, 0xa5, sizeof(memory));
    sc_io_sim_fault_scope(rig.disk, "/seg-");

    sc_io_sim_fault_nth(rig.disk, SC_SIM_NEVER, 0);
    submit(&rig, &call, false);
    assert_int_equal(poll(&rig, 1000000), 0);
    assert_int_equal(rig.api->remove(rig.store, rig.domains[0], &call.keys, 0, NULL, &rig.error),
                     SPEC_OK);
    uint64_t taken = rig.store->store->disk.extent_bytes;
    for (uint64_t key = 2; key < 6; key++) {
        call_make(&other, key, 8192);
        other.addresses[0] = (uint64_t)(uintptr_t)(memory + VALUE_MAX);
        put_done(&rig, &other);
    }
    assert_int_equal(rig.store->store->disk.extent_bytes, taken + 4 * 8192);
    assert_int_equal(sc_io_sim_release_all(rig.disk), 1);
    assert_int_equal(poll(&rig, 1000000000), 1);
    assert_int_equal(call.status, SPEC_KEY_DONE);
    pieces_check(&call);
    assert_int_equal(rig.store->store->disk.extent_bytes, taken + 3 * 8192);
    rig_free(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_of_any_pieces_are_delivered_into_any_others),
        cmocka_unit_test(aligned_memory_is_not_copied),
        cmocka_unit_test(refused_memory_goes_through_frames),
        cmocka_unit_test(a_lying_device_gives_misses),
        cmocka_unit_test(a_deadline_leaves_the_device_its_memory),
        cmocka_unit_test(a_removed_object_that_is_read_is_delivered),
    };
    return cmocka_run_group_tests_name("plugin objects io", tests, NULL, NULL);
}

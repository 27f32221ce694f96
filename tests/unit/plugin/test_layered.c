/* Layered delivery: every row there, exact ones bit by bit as stored and the others as their codes
 * decode; the exact set against a float64 reference over decoded keys; deadlines, budgets, damaged
 * and raw slabs. Everything through the calls of the ABI, on the simulated disk. */
#include "kernels/code.h"
#include "tests/unit/plugin/select_fixture.h"

#define ROWS_MAX 400u

struct shot {
    struct spec_important item;
    struct spec_select select;
    struct area area;
    struct pass pass;
    uint32_t positions[ROWS_MAX];
    uint64_t exact[(ROWS_MAX + 63) / 64];
};

static void shot_make(struct shot *shot, const struct world *world, spec_request request,
                      uint32_t layer, uint64_t from, uint32_t exact_ppm)
{
    *shot = (struct shot){.area = rig_area(&world->rig, world->matched - from),
                          .pass = world_pass(world, layer, world->rig.dtype)};
    shot->select = (struct spec_select){
        .struct_size = sizeof(shot->select), .given = SPEC_SELECT_EXACT, .exact_ppm = exact_ppm};
    shot->item = (struct spec_important){.struct_size = sizeof(shot->item),
                                         .request = request,
                                         .layer = layer,
                                         .queries = &shot->pass.q,
                                         .new_keys = &shot->pass.fresh.memory,
                                         .destination = &shot->area.memory,
                                         .positions = shot->positions,
                                         .position_capacity = ROWS_MAX,
                                         .exact_bits = shot->exact,
                                         .exact_bit_words = (ROWS_MAX + 63) / 64,
                                         .select = &shot->select};
}

static void shot_free(struct shot *shot)
{
    rig_area_free(&shot->area);
    pass_free(&shot->pass);
}

static spec_status fire(struct world *world, struct shot *shot)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    return sc_plugin_get_important(world->rig.conn, &shot->item, 1, &error);
}

/* Until what was stored has its codes. */
static void wait_for_codes(struct world *world)
{
    struct sc_store_stats stats;
    do {
        rig_pass_ns(&world->rig, 1000000);
        sc_store_stats(world->rig.conn->store, &stats);
    } while (stats.is_building);
}

static spec_request look(struct world *world, uint64_t from)
{
    struct spec_lookup_result result;
    assert_int_equal(rig_try_lookup(&world->rig, &world->prompt, from, RIG_MAX, &result), SPEC_OK);
    assert_int_equal(result.matched_tokens, world->matched);
    return result.request;
}

static bool is_exact(const struct shot *shot, uint64_t row)
{
    return (shot->exact[row / 64] >> (row % 64) & 1) != 0;
}

static uint64_t exact_count(const struct shot *shot)
{
    uint64_t count = 0;
    for (uint64_t w = 0; w < (ROWS_MAX + 63) / 64; w++)
        count += (uint64_t)__builtin_popcountll(shot->exact[w]);
    return count;
}

/* What the codes of a position stand for, made by ref/ from the rows of its chunk. */
static void decoded(const struct world *world, uint64_t position, uint32_t layer, uint32_t part,
                    uint32_t bits, uint32_t dst_dtype, void *ret_row)
{
    static uint8_t bytes[64][64 * 4], scales[64 * 4], codes[64 * 64];
    uint64_t first = position / 64 * 64, channels = world->rig.heads * world->rig.head_size;
    uint64_t end = first + 64 < world->matched ? first + 64 : world->matched;
    uint64_t element = sc_plugin_dtype_bytes(world->rig.dtype);
    const uint8_t *rows[64];
    uint8_t *dst[1] = {ret_row};
    uint32_t dtype = world->rig.dtype == SPEC_DTYPE_F32   ? SC_KERNELS_F32
                     : world->rig.dtype == SPEC_DTYPE_F16 ? SC_KERNELS_F16
                                                          : SC_KERNELS_BF16;
    struct sc_kernels_code code = {channels, bits, dtype};
    for (uint64_t p = first; p < end; p++) {
        rows[p - first] = bytes[p - first];
        for (uint64_t n = 0; n < channels; n++)
            world_put(bytes[p - first] + n * element, world->rig.dtype,
                      world_kv(world, p, layer, part, n / world->rig.head_size,
                               n % world->rig.head_size));
    }
    assert_true(sc_kernels_ref_code_encode(&code, rows, end - first, scales, codes));
    sc_kernels_ref_code_decode(
        &code, scales, codes + (position - first) * sc_kernels_code_row_bytes(channels, bits), 1, 0,
        channels, dst_dtype == SPEC_DTYPE_F32 ? SC_KERNELS_F32 : dtype, false, dst);
}

/* All rows are there, each as its bit says. */
static void assert_rows(const struct world *world, const struct shot *shot, uint64_t from,
                        uint32_t bits_k, uint32_t bits_v)
{
    uint64_t rows = world->matched - from, bytes = rig_part_bytes(&world->rig);
    uint64_t element = sc_plugin_dtype_bytes(world->rig.dtype);
    uint8_t expected[64 * 4];
    assert_int_equal(shot->item.row_count, rows);
    assert_int_equal(shot->item.next_position, world->matched);
    assert_int_equal(shot->item.exact_rows, exact_count(shot));
    for (uint64_t j = 0; j < rows; j++) {
        assert_int_equal(shot->positions[j], from + j);
        for (uint32_t part = 0; part < 2; part++) {
            const uint8_t *at = part == 0 ? shot->area.memory.k_base : shot->area.memory.v_base;
            if (!is_exact(shot, j))
                decoded(world, from + j, shot->item.layer, part, part == 0 ? bits_k : bits_v,
                        world->rig.dtype, expected);
            else
                for (uint64_t n = 0; n < bytes / element; n++)
                    world_put(expected + n * element, world->rig.dtype,
                              world_kv(world, from + j, shot->item.layer, part,
                                       n / world->rig.head_size, n % world->rig.head_size));
            if (memcmp(at + j * bytes, expected, bytes) != 0)
                fail_msg("layer %u row %lu part %u (%s) is not what it should be", shot->item.layer,
                         j, part, is_exact(shot, j) ? "exact" : "coarse");
        }
    }
}

/* The set by the definition, in float64 over decoded prefix keys. false: too close to tell. */
static bool set_is_the_best(const struct world *world, const struct shot *shot, uint64_t from,
                            uint32_t bits)
{
    uint64_t rows = world->matched - from, d = world->rig.head_size, heads = world->rig.heads;
    static float keys[ROWS_MAX][64];
    static double total[ROWS_MAX], logits[ROWS_MAX + FRESH_ROWS];
    static bool in[ROWS_MAX];
    double gap = 1;
    memset(total, 0, sizeof(total));
    for (uint64_t j = 0; j < rows; j++)
        decoded(world, from + j, shot->item.layer, 0, bits, SPEC_DTYPE_F32, keys[j]);
    for (uint64_t n = 0; n < FRESH_ROWS * heads * world->group; n++) {
        uint64_t row = world->matched + n / (heads * world->group);
        uint64_t head = n / world->group % heads, seen = row + 1 - from;
        double most = -1e300, sum = 0;
        for (uint64_t j = 0; j < seen; j++) {
            double dot = 0;
            for (uint64_t i = 0; i < d; i++)
                dot += (double)world_query(world, row, shot->item.layer,
                                           head * world->group + n % world->group, i) *
                       (j < rows ? (double)keys[j][head * d + i]
                                 : (double)world_kv(world, from + j, shot->item.layer, 0, head, i));
            logits[j] = dot / sqrt((double)d);
            most = fmax(most, logits[j]);
        }
        for (uint64_t j = 0; j < seen; j++)
            sum += exp(logits[j] - most);
        for (uint64_t j = 0; j < rows; j++)
            total[j] += exp(logits[j] - most) / sum;
    }
    reference_top(total, NULL, rows, shot->item.exact_rows, in, &gap);
    if (gap < 1e-5)
        return false;
    for (uint64_t j = 0; j < rows; j++)
        assert_int_equal(is_exact(shot, j), in[j]);
    return true;
}

static void rows_are_exact_where_bits_say_and_decoded_elsewhere(void **state)
{
    (void)state;
    static const struct {
        uint32_t heads, group, head_size, dtype, bits_k, bits_v;
        uint64_t matched;
        const char *layout;
    } CASES[] = {
        {3, 1, 16, SPEC_DTYPE_F16, 4, 2, 300, "paired"},
        {4, 2, 16, SPEC_DTYPE_BF16, 5, 3, 333, "paired"},
        {2, 4, 8, SPEC_DTYPE_F32, 6, 2, 129, "split"},
        {1, 3, 48, SPEC_DTYPE_F16, 8, 8, 64, "split"},
        {3, 2, 20, SPEC_DTYPE_F16, 2, 4, 100, "paired"},
    };
    static const uint32_t PPM[] = {0, 50000, 250000, 900000};
    uint64_t told = 0, untold = 0;
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        struct world world;
        char extra[256];
        (void)snprintf(extra, sizeof(extra),
                       "\"preset\": \"layered\", \"store\": {\"layout\": \"%s\"}, \"layered\": "
                       "{\"bits_k\": %u, \"bits_v\": %u}",
                       CASES[i].layout, CASES[i].bits_k, CASES[i].bits_v);
        world_open(&world, extra, CASES[i].heads, CASES[i].group, CASES[i].head_size,
                   CASES[i].dtype, CASES[i].matched, 3);
        wait_for_codes(&world);
        for (uint64_t from = 0; from < 12; from += 11) {
            spec_request request = look(&world, from);
            for (uint32_t layer = 0; layer < 4; layer++) {
                struct shot shot;
                uint64_t rows = CASES[i].matched - from;
                shot_make(&shot, &world, request, layer, from, PPM[layer]);
                if (layer == 0)
                    shot.item.queries = NULL; /* nothing is ranked */
                assert_int_equal(fire(&world, &shot), SPEC_OK);
                assert_int_equal(shot.item.exact_rows, (rows * PPM[layer] + 999999) / 1000000);
                assert_int_equal(shot.item.result_flags, 0);
                assert_rows(&world, &shot, from, CASES[i].bits_k, CASES[i].bits_v);
                bool tells = set_is_the_best(&world, &shot, from, CASES[i].bits_k);
                told += tells;
                untold += !tells;
                assert_int_equal(shot.item.provenance.kind, SPEC_PROVENANCE_LOSSY);
                assert_int_equal(shot.item.provenance.bits_k, CASES[i].bits_k);
                assert_int_equal(shot.item.provenance.bits_v, CASES[i].bits_v);
                assert_int_equal(shot.item.provenance.exact_ppm,
                                 shot.item.exact_rows * 1000000 / rows);
                shot_free(&shot);
            }
            rig_release(&world.rig, request);
        }
        assert_int_equal(atomic_load(&world.rig.conn->stats.coarse_layers), 8);
        world_done(&world);
    }
    print_message("%lu sets compared, %lu too close to tell\n", told, untold);
    assert_true(told > 8 * untold);
}

/* Between lookup and the first layer a host does other things: codes come meanwhile. */
static void lookup_begins_the_first_codes(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, "\"preset\": \"layered\"", 2, 2, 16, SPEC_DTYPE_F16, 200, 3);
    wait_for_codes(&world);
    spec_request request = look(&world, 0);
    rig_pass_ns(&world.rig, 1000000000);
    for (uint32_t layer = 0; layer < SC_PLUGIN_AHEAD; layer++) {
        struct shot shot;
        shot_make(&shot, &world, request, layer, 0, 0);
        assert_int_equal(fire(&world, &shot), SPEC_OK);
        assert_int_equal(shot.item.io_exposed_ns, 0);
        assert_true(shot.item.read_bytes > 0);
        assert_rows(&world, &shot, 0, 4, 2);
        shot_free(&shot);
    }
    rig_release(&world.rig, request);
    world_done(&world);
}

/* exact_ppm 10^6: bit-identical, and no codes are read. */
static void all_exact_is_the_whole_load(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, "\"preset\": \"layered\"", 2, 2, 16, SPEC_DTYPE_F16, 200, 3);
    wait_for_codes(&world);
    spec_request request = look(&world, 0);
    struct shot shot;
    shot_make(&shot, &world, request, 1, 0, 1000000);
    shot.item.queries = NULL;
    assert_int_equal(fire(&world, &shot), SPEC_OK);
    assert_int_equal(shot.item.exact_rows, 200);
    assert_rows(&world, &shot, 0, 4, 2);
    assert_int_equal(shot.item.provenance.kind, SPEC_PROVENANCE_EXACT);
    assert_int_equal(shot.item.wanted_bytes, 200 * (2 * rig_part_bytes(&world.rig) + 8));
    shot_free(&shot);
    rig_release(&world.rig, request);
    world_done(&world);
}

/* Time or bytes run out: what is there is exact, the rest coarse, and the item says so. */
static void an_item_that_ends_early_says_so(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, "\"preset\": \"layered\", \"prefetch\": {\"predictor\": \"none\"}", 2, 2, 16,
               SPEC_DTYPE_F16, 200, 3);
    wait_for_codes(&world);
    spec_request request = look(&world, 0);
    struct shot shot;
    shot_make(&shot, &world, request, 0, 0, 250000);
    shot.item.deadline_ns = 1;
    assert_int_equal(fire(&world, &shot), SPEC_OK);
    assert_int_equal(shot.item.result_flags, SPEC_IMPORTANT_PARTIAL);
    assert_true(shot.item.exact_rows < 50);
    assert_rows(&world, &shot, 0, 4, 2);
    shot_free(&shot);
    shot_make(&shot, &world, request, 1, 0, 250000);
    shot.item.budget_bytes = 10 * 2 * rig_part_bytes(&world.rig) + 1;
    assert_int_equal(fire(&world, &shot), SPEC_OK);
    assert_int_equal(shot.item.result_flags, SPEC_IMPORTANT_PARTIAL);
    assert_int_equal(shot.item.exact_rows, 10);
    assert_rows(&world, &shot, 0, 4, 2);
    assert_true(set_is_the_best(&world, &shot, 0, 4));
    shot_free(&shot);
    assert_int_equal(atomic_load(&world.rig.conn->stats.partial_layers), 2);
    rig_release(&world.rig, request);
    world_done(&world);
}

/* Rows whose codes are not there yet are exact, and more than were asked for. */
static void rows_without_codes_are_exact(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, "\"preset\": \"layered\", \"layered\": {\"codes\": \"no\"}", 2, 2, 16,
               SPEC_DTYPE_F16, 200, 3);
    wait_for_codes(&world);
    spec_request request = look(&world, 0);
    struct shot shot;
    shot_make(&shot, &world, request, 0, 0, 50000);
    assert_int_equal(fire(&world, &shot), SPEC_OK);
    assert_int_equal(shot.item.exact_rows, 200);
    assert_rows(&world, &shot, 0, 4, 2);
    assert_int_equal(shot.item.provenance.kind, SPEC_PROVENANCE_EXACT);
    shot_free(&shot);
    rig_release(&world.rig, request);
    world_done(&world);
}

static void reopen_as(struct world *world, const char *extra)
{
    rig_close(&world->rig);
    world->rig.extra = extra;
    rig_open(&world->rig);
}

static uint64_t forced_rows(struct world *world)
{
    return atomic_load(&world->rig.conn->stats.coarse_forced_rows);
}

/* One layer; every row is there. Returns how many rows were exact. */
static uint64_t deliver(struct world *world, uint32_t bits_k, uint32_t bits_v)
{
    spec_request request = look(world, 0);
    struct shot shot;
    shot_make(&shot, world, request, 1, 0, 50000);
    assert_int_equal(fire(world, &shot), SPEC_OK);
    assert_rows(world, &shot, 0, bits_k, bits_v);
    uint64_t exact = shot.item.exact_rows;
    if (exact < world->matched) {
        assert_int_equal(shot.item.provenance.bits_k, bits_k);
        assert_int_equal(shot.item.provenance.bits_v, bits_v);
    }
    shot_free(&shot);
    rig_release(&world->rig, request);
    return exact;
}

/* A store of another preset gets codes when it is opened; other bits do not touch what has some. */
static void what_was_stored_before_gets_codes(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, "\"preset\": \"as-like\"", 2, 2, 16, SPEC_DTYPE_F16, 200, 3);
    reopen_as(&world, "\"preset\": \"layered\"");
    wait_for_codes(&world);
    assert_int_equal(deliver(&world, 4, 2), 10);
    assert_int_equal(forced_rows(&world), 0);
    reopen_as(&world, "\"preset\": \"layered\", \"layered\": {\"bits_k\": 8, \"bits_v\": 5}");
    wait_for_codes(&world);
    assert_int_equal(deliver(&world, 4, 2), 10);
    assert_int_equal(forced_rows(&world), 0);
    struct sc_store_stats stats;
    sc_store_stats(world.rig.conn->store, &stats);
    assert_int_equal(stats.built_pieces, 0);
    world_done(&world);
}

/* What a run could not read has no codes, until maintain tries again. */
static void what_was_passed_over_gets_codes_from_maintain(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, "\"preset\": \"as-like\"", 2, 2, 16, SPEC_DTYPE_F16, 200, 3);
    reopen_as(&world, "\"preset\": \"layered\"");
    sc_fault_arm(&world.rig.conn->fault, SC_FAULT_READ, 0); /* the run has not read yet */
    wait_for_codes(&world);
    assert_int_equal(atomic_load(&world.rig.conn->fault.fired[SC_FAULT_READ]), 1);
    assert_int_equal(deliver(&world, 4, 2), 200);
    assert_int_equal(forced_rows(&world), 200);
    struct spec_maintain_params params = {.struct_size = sizeof(params),
                                          .flags = SPEC_MAINTAIN_BUILD};
    assert_int_equal(sc_plugin_maintain(world.rig.conn, &params, NULL), SPEC_OK);
    wait_for_codes(&world);
    assert_int_equal(deliver(&world, 4, 2), 10);
    assert_int_equal(forced_rows(&world), 200);
    world_done(&world);
}

/* Without queries and averages: those that are always exact, then the lowest positions. */
static void static_sets_begin_at_the_front(void **state)
{
    (void)state;
    struct world world;
    world_open(&world,
               "\"preset\": \"layered\", \"select\": {\"identify\": \"static\"}, \"layered\": "
               "{\"keep_last\": 3}, \"prefetch\": {\"predictor\": \"none\"}",
               2, 2, 16, SPEC_DTYPE_F16, 200, 3);
    wait_for_codes(&world);
    spec_request request = look(&world, 0);
    struct shot shot;
    shot_make(&shot, &world, request, 0, 0, 50000);
    shot.item.queries = NULL;
    shot.item.new_keys = NULL;
    assert_int_equal(fire(&world, &shot), SPEC_OK);
    assert_int_equal(shot.item.exact_rows, 10);
    assert_int_equal(shot.item.result_flags, 0);
    for (uint64_t row = 0; row < 200; row++)
        assert_int_equal(is_exact(&shot, row), row < 7 || row >= 197);
    assert_rows(&world, &shot, 0, 4, 2);
    shot_free(&shot);
    rig_release(&world.rig, request);
    world_done(&world);
}

/* What a pass stores on coarse rows is lossy, and lookups say so. */
static void what_is_stored_on_coarse_rows_is_lossy(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, "\"preset\": \"layered\"", 2, 2, 16, SPEC_DTYPE_F16, 128, 3);
    wait_for_codes(&world);
    struct spec_lookup_result result;
    assert_int_equal(rig_try_lookup(&world.rig, &world.prompt, 0, RIG_MAX, &result), SPEC_OK);
    assert_int_equal(result.provenance.kind, SPEC_PROVENANCE_EXACT);
    spec_ticket ticket = 0;
    for (uint32_t layer = 0; layer < 4; layer++) {
        struct shot shot;
        shot_make(&shot, &world, result.request, layer, 0, 100000);
        assert_int_equal(fire(&world, &shot), SPEC_OK);
        struct area area = world_area(&world, 128, FRESH_ROWS, layer);
        struct spec_store_params params = {.struct_size = sizeof(params),
                                           .request = result.request,
                                           .layer = layer,
                                           .first_token = 128,
                                           .token_count = FRESH_ROWS,
                                           .memory = &area.memory};
        assert_int_equal(sc_plugin_store(world.rig.conn, &params, &ticket, NULL), SPEC_OK);
        rig_area_free(&area);
        shot_free(&shot);
    }
    assert_int_equal(rig_wait(&world.rig, ticket), SPEC_OK);
    rig_release(&world.rig, result.request);
    wait_for_codes(&world);
    assert_int_equal(rig_try_lookup(&world.rig, &world.prompt, 0, 128 + FRESH_ROWS, &result),
                     SPEC_OK);
    assert_int_equal(result.matched_tokens, 128 + FRESH_ROWS);
    assert_int_equal(result.provenance.kind, SPEC_PROVENANCE_LOSSY);
    assert_int_equal(result.provenance.bits_k, 4);
    assert_int_equal(result.provenance.bits_v, 2);
    assert_int_equal(result.provenance.exact_ppm, 101562);
    rig_release(&world.rig, result.request);
    world_done(&world);
}

/* ---- Refining ------------------------------------------------------------------------------- */

/* One layer, submitted and waited for; its ticket. */
static spec_ticket fire_first(struct world *world, struct shot *shot, spec_request request,
                              uint32_t layer, uint32_t exact_ppm, uint64_t deadline_ns)
{
    spec_ticket ticket;
    shot_make(shot, world, request, layer, 0, exact_ppm);
    shot->item.deadline_ns = deadline_ns;
    assert_int_equal(sc_plugin_submit(world->rig.conn, &shot->item, 1, &ticket, NULL), SPEC_OK);
    assert_int_equal(sc_plugin_submit_wait(world->rig.conn, ticket, UINT64_MAX, NULL), SPEC_OK);
    return ticket;
}

static void aim(struct shot *shot, spec_ticket ticket, uint32_t exact_ppm)
{
    shot->item.refine_of = ticket;
    shot->item.queries = NULL;
    shot->item.new_keys = NULL;
    shot->item.deadline_ns = 0;
    shot->select.exact_ppm = exact_ppm;
}

static spec_status refine(struct world *world, struct shot *shot, spec_ticket ticket,
                          uint32_t exact_ppm)
{
    aim(shot, ticket, exact_ppm);
    return fire(world, shot);
}

/* The n-th way in which queries, or new keys, are none; false: there is no such way. */
static bool spoil(struct shot *shot, uint32_t n)
{
    struct spec_queries *q = &shot->pass.q;
    struct spec_memory *fresh = &shot->pass.fresh.memory;
    switch (n) {
    case 0:
        return true; /* as they are */
    case 1:
        shot->item.queries = NULL;
        return true;
    case 2:
        q->heads = SPEC_QUERIES_PROBE;
        return true;
    case 3:
        q->data = NULL;
        return true;
    case 4:
        q->device = SPEC_DEVICE_CUDA;
        return true;
    case 5:
        q->first_position = 0;
        return true;
    case 6:
        q->byte_count = 1;
        return true;
    case 7:
        fresh->dtype = 77;
        return true;
    case 8:
        fresh->k_bytes = 1;
        return true;
    case 9:
        q->struct_size = 1;
        return true;
    case 10:
        fresh->struct_size = 1;
        return true;
    default:
        return false;
    }
}

/* Whatever an item's queries are, submit takes it where get_important does, and only there. */
static void submit_takes_what_get_important_takes(void **state)
{
    (void)state;
    static const char *const EXTRA[] = {
        "\"preset\": \"layered\"", "\"preset\": \"layered\", \"select\": {\"dense_layers\": 1}",
        "\"preset\": \"layered\", \"select\": {\"metric\": \"random\"}",
        "\"preset\": \"layered\", \"layered\": {\"keep_first\": 20}",
        ("\"preset\": \"layered\", \"select\": {\"identify\": \"static\"}, \"prefetch\": "
         "{\"predictor\": \"none\"}")};
    static const uint32_t PPM[] = {0, 50000, 1000000};
    uint32_t taken = 0, refused = 0;
    for (uint32_t e = 0; e < 5; e++) {
        struct world world;
        world_open(&world, EXTRA[e], 2, 2, 16, SPEC_DTYPE_F16, 200, 3);
        wait_for_codes(&world);
        spec_request request = look(&world, 0);
        for (uint32_t p = 0; p < 3; p++)
            for (uint32_t n = 0;; n++) {
                struct shot shot;
                spec_ticket ticket = 0;
                shot_make(&shot, &world, request, 0, 0, PPM[p]);
                bool is_way = spoil(&shot, n);
                spec_status status = fire(&world, &shot);
                spec_status other = sc_plugin_submit(world.rig.conn, &shot.item, 1, &ticket, NULL);
                if (status != other)
                    fail_msg("%s, exact_ppm %u, way %u: get_important %d, submit %d", EXTRA[e],
                             PPM[p], n, (int)status, (int)other);
                if (other == SPEC_OK) {
                    assert_int_equal(
                        sc_plugin_submit_wait(world.rig.conn, ticket, UINT64_MAX, NULL), SPEC_OK);
                    assert_rows(&world, &shot, 0, 4, 2);
                    assert_int_equal(refine(&world, &shot, ticket, 1000000), SPEC_OK);
                    assert_int_equal(shot.item.exact_rows, 200);
                    assert_rows(&world, &shot, 0, 4, 2);
                }
                taken += status == SPEC_OK;
                refused += status != SPEC_OK;
                shot_free(&shot);
                if (!is_way)
                    break;
            }
        rig_release(&world.rig, request);
        world_done(&world);
    }
    assert_true(taken > 60 && refused > 20);
}

/* Every layer early, then all of them a second time, and a third. */
static void all_layers_are_refined_later_and_nothing_is_allocated(void **state)
{
    (void)state;
    static const char *const LAYOUTS[] = {"paired", "split"};
    for (uint32_t way = 0; way < 2; way++) {
        struct world world;
        char extra[128];
        (void)snprintf(extra, sizeof(extra),
                       "\"preset\": \"layered\", \"store\": {\"layout\": \"%s\"}", LAYOUTS[way]);
        world_open(&world, extra, 3, 2, 16, SPEC_DTYPE_F16, 300, 3);
        wait_for_codes(&world);
        struct sc_alloc *alloc = &world.rig.conn->alloc;
        struct shot shots[4];
        spec_ticket tickets[4];
        spec_request request = look(&world, 0);
        for (uint32_t layer = 0; layer < 4; layer++) {
            (void)fire_first(&world, &shots[layer], request, layer, 300000, 0);
            shot_free(&shots[layer]);
        }
        rig_release(&world.rig, request);
        rig_background(&world.rig); /* the first averages make their place in the store's index */
        sc_alloc_seal(alloc);
        request = look(&world, 0);
        for (uint32_t layer = 0; layer < 4; layer++) {
            tickets[layer] = fire_first(&world, &shots[layer], request, layer, 300000, 1);
            assert_int_equal(shots[layer].item.result_flags, SPEC_IMPORTANT_PARTIAL);
            assert_true(shots[layer].item.exact_rows < 90);
        }
        for (uint32_t layer = 0; layer < 4; layer++) {
            struct shot *shot = &shots[layer];
            uint64_t before = shot->item.exact_rows;
            assert_int_equal(refine(&world, shot, tickets[layer], 300000), SPEC_OK);
            assert_int_equal(shot->item.result_flags, 0);
            assert_int_equal(shot->item.exact_rows, 90);
            assert_int_equal(shot->item.tier_rows[SPEC_TIER_DISK], 90 - before);
            assert_rows(&world, shot, 0, 4, 2);
            (void)set_is_the_best(&world, shot, 0, 4);
        }
        for (uint32_t layer = 0; layer < 4; layer++) {
            assert_int_equal(refine(&world, &shots[layer], tickets[layer], 1000000), SPEC_OK);
            assert_int_equal(shots[layer].item.exact_rows, 300);
            assert_rows(&world, &shots[layer], 0, 4, 2);
            assert_int_equal(shots[layer].item.provenance.kind, SPEC_PROVENANCE_EXACT);
            shot_free(&shots[layer]);
        }
        rig_release(&world.rig, request);
        sc_alloc_unseal(alloc);
        assert_int_equal(atomic_load(&alloc->sealed_refusals), 0);
        assert_int_equal(atomic_load(&world.rig.conn->stats.refined_layers), 8);
        world_done(&world);
    }
}

/* Room for two deliveries of 200 rows, and less than a third. */
static void the_oldest_delivery_makes_room(void **state)
{
    (void)state;
    struct world world;
    struct shot shots[3];
    spec_ticket tickets[3];
    world_open(&world,
               "\"preset\": \"layered\", \"max_requests\": 2, \"layered\": "
               "{\"refine_bytes\": \"12KiB\"}",
               2, 2, 16, SPEC_DTYPE_F16, 200, 3);
    wait_for_codes(&world);
    spec_request request = look(&world, 0);
    for (uint32_t i = 0; i < 30; i++) {
        struct shot *shot = &shots[i % 3];
        if (i >= 3)
            shot_free(shot);
        tickets[i % 3] = fire_first(&world, shot, request, i % 4, 100000, 0);
        if (i < 2)
            continue;
        for (uint32_t back = 0; back < 3; back++) {
            struct shot *kept = &shots[(i - back) % 3];
            assert_int_equal(refine(&world, kept, tickets[(i - back) % 3], 200000 + i),
                             back < 2 ? SPEC_OK : SPEC_E_STALE);
            assert_int_equal(exact_count(kept), back < 2 ? 41 : 20 + (i > 2) * 21);
            kept->item.exact_rows = exact_count(kept);
            assert_rows(&world, kept, 0, 4, 2);
        }
    }
    for (uint32_t i = 0; i < 3; i++)
        shot_free(&shots[i]);
    rig_release(&world.rig, request);
    world_done(&world);
}

/* Whole layers take a place of a few bytes each. A delivery of 200 rows fits then neither behind
 * nor before what they took, but alone in the ring. */
static void a_delivery_that_fits_alone_has_room(void **state)
{
    (void)state;
    for (uint32_t wholes = 0; wholes < 32; wholes++) {
        struct world world;
        struct shot shot;
        world_open(&world,
                   "\"preset\": \"layered\", \"max_requests\": 2, \"layered\": "
                   "{\"refine_bytes\": \"8KiB\"}",
                   2, 2, 16, SPEC_DTYPE_F16, 200, 3);
        wait_for_codes(&world);
        spec_request request = look(&world, 0);
        for (uint32_t i = 0; i < wholes; i++) {
            (void)fire_first(&world, &shot, request, i % 4, 1000000, 0);
            shot_free(&shot);
        }
        spec_ticket ticket = fire_first(&world, &shot, request, 1, 100000, 0);
        assert_int_equal(refine(&world, &shot, ticket, 200000), SPEC_OK);
        assert_int_equal(shot.item.exact_rows, 40);
        assert_rows(&world, &shot, 0, 4, 2);
        shot_free(&shot);
        rig_release(&world.rig, request);
        world_done(&world);
    }
}

/* Items of one call, one request: two refine, one delivers a layer anew that the last would. */
static void items_of_one_call_are_refined_beside_others(void **state)
{
    (void)state;
    struct world world;
    struct shot shots[4];
    struct spec_important items[4];
    spec_ticket ticket;
    world_open(&world, "\"preset\": \"layered\"", 2, 2, 16, SPEC_DTYPE_F16, 200, 3);
    wait_for_codes(&world);
    spec_request request = look(&world, 0);
    for (uint32_t i = 0; i < 4; i++) {
        shot_make(&shots[i], &world, request, i, 0, i == 3 ? 1000000 : 50000);
        items[i] = shots[i].item;
    }
    assert_int_equal(sc_plugin_submit(world.rig.conn, items, 4, &ticket, NULL), SPEC_OK);
    assert_int_equal(sc_plugin_submit_wait(world.rig.conn, ticket, UINT64_MAX, NULL), SPEC_OK);
    struct shot anew;
    shot_make(&anew, &world, request, 2, 0, 70000);
    for (uint32_t i = 0; i < 4; i++) {
        shots[i].item = items[i];
        aim(&shots[i], ticket, 500000);
        items[i] = shots[i].item;
    }
    struct spec_important call[5] = {items[0], anew.item, items[1], items[2], items[3]};
    assert_int_equal(sc_plugin_get_important(world.rig.conn, call, 5, NULL), SPEC_E_STALE);
    anew.item = call[1];
    assert_rows(&world, &anew, 0, 4, 2);
    for (uint32_t i = 0; i < 4; i++) {
        shots[i].item = call[i == 0 ? 0 : i + 1];
        assert_int_equal(shots[i].item.status, i == 2 ? SPEC_E_STALE : SPEC_OK);
        shots[i].item.row_count = i == 2 ? 200 : shots[i].item.row_count;
        shots[i].item.next_position = 200;
        assert_int_equal(exact_count(&shots[i]), i == 2 ? 10 : i == 3 ? 200 : 100);
        shots[i].item.exact_rows = exact_count(&shots[i]);
        assert_rows(&world, &shots[i], 0, 4, 2);
        shot_free(&shots[i]);
    }
    shot_free(&anew);
    rig_release(&world.rig, request);
    world_done(&world);
}

/* ---- Averages ------------------------------------------------------------------------------- */

#define STATIC                                                                                     \
    "\"preset\": \"layered\", \"select\": {\"identify\": \"static\"}, \"prefetch\": "              \
    "{\"predictor\": "                                                                             \
    "\"static\"}"

/* The averages of a layer of the whole match; returns how many rows have some. */
static uint64_t averages(struct world *world, uint32_t layer, float *ret_scores)
{
    spec_request handle = look(world, 0);
    struct sc_plugin_request *request = sc_plugin_request_find(world->rig.conn, handle);
    uint64_t known = sc_plugin_averages_scores(world->rig.conn->averages, request->ranges,
                                               request->range_count, layer, true, ret_scores);
    rig_release(&world->rig, handle);
    return known;
}

/* All layers by their queries, a tenth exact; the shots are the caller's. */
static void teach(struct world *world, struct shot *ret_shots)
{
    spec_request request = look(world, 0);
    for (uint32_t layer = 0; layer < 4; layer++) {
        shot_make(&ret_shots[layer], world, request, layer, 0, 100000);
        assert_int_equal(fire(world, &ret_shots[layer]), SPEC_OK);
    }
    rig_release(&world->rig, request);
}

/* All layers without queries: the rows that were taught, but for one at the border: averages have
 * steps. Where they are guessed, all of them are read ahead. */
static void assert_taught(struct world *world, const struct shot *taught, bool is_guessed)
{
    spec_request request = look(world, 0);
    for (uint32_t layer = 0; layer < 4; layer++) {
        struct shot shot;
        uint64_t both = 0;
        shot_make(&shot, world, request, layer, 0, 100000);
        shot.item.queries = NULL;
        shot.item.new_keys = NULL;
        if (is_guessed && layer > 0)
            assert_int_equal(
                sc_plugin_prefetch_next(world->rig.conn, request, layer - 1, NULL, NULL), SPEC_OK);
        rig_pass_ns(&world->rig, 1000000000);
        assert_int_equal(fire(world, &shot), SPEC_OK);
        assert_int_equal(shot.item.result_flags, 0);
        assert_int_equal(shot.item.exact_rows, 20);
        for (uint64_t row = 0; row < 200; row++)
            both += is_exact(&shot, row) && is_exact(&taught[layer], row);
        assert_in_range(both, 19, 20);
        if (is_guessed && layer >= 2) /* guesses are trusted from the second on */
            assert_int_equal(shot.item.prefetched_rows, 20);
        assert_rows(world, &shot, 0, 4, 2);
        shot_free(&shot);
    }
    rig_release(&world->rig, request);
}

/* Who has queries teaches; who has none gets what was important to those, also after the taught
 * store was opened again, and from a log that was written anew. */
static void scores_teach_what_is_exact_without_queries(void **state)
{
    (void)state;
    static const char *const LAYOUTS[] = {"paired", "split"};
    for (uint32_t way = 0; way < 2; way++) {
        struct world world;
        struct shot taught[4];
        char layered[128], without[192];
        float before[200], after[200];
        (void)snprintf(layered, sizeof(layered),
                       "\"preset\": \"layered\", \"store\": {\"layout\": \"%s\"}", LAYOUTS[way]);
        (void)snprintf(without, sizeof(without), STATIC ", \"store\": {\"layout\": \"%s\"}",
                       LAYOUTS[way]);
        world_open(&world, layered, 2, 2, 16, SPEC_DTYPE_F16, 200, 3);
        wait_for_codes(&world);
        teach(&world, taught);
        assert_int_equal(averages(&world, 2, before), 200);
        reopen_as(&world, without);
        assert_taught(&world, taught, false);
        reopen_as(&world, layered);
        assert_int_equal(averages(&world, 2, after), 200); /* who was taught teaches nothing */
        assert_memory_equal(before, after, sizeof(before));
        assert_int_equal(sc_store_checkpoint(world.rig.conn->store, NULL), SPEC_OK);
        reopen_as(&world, without);
        assert_taught(&world, taught, true);
        for (uint32_t layer = 0; layer < 4; layer++)
            shot_free(&taught[layer]);
        world_done(&world);
    }
}

/* The queries of the layer the other way round. */
static void negate(struct shot *shot)
{
    for (uint64_t i = 1; i < shot->pass.q.byte_count; i += 2) /* float16: the sign's byte */
        shot->pass.queries[i] ^= 0x80;
}

/* Layer 1 of a request of its own, by its queries or (is_other) by those the other way round. One
 * is submitted and refined, the other is not. */
static void choose(struct world *world, bool is_other)
{
    spec_request request = look(world, 0);
    struct shot shot;
    if (is_other) {
        shot_make(&shot, world, request, 1, 0, 100000);
        negate(&shot);
        assert_int_equal(fire(world, &shot), SPEC_OK);
    } else {
        spec_ticket ticket = fire_first(world, &shot, request, 1, 100000, 1);
        assert_int_equal(refine(world, &shot, ticket, 200000), SPEC_OK);
        assert_int_equal(refine(world, &shot, ticket, 1000000), SPEC_OK);
    }
    shot_free(&shot);
    rig_release(&world->rig, request);
}

/* The ninth choice counts an eighth, so one that counted twice would show; and what was submitted
 * and left before it was chosen counts nothing. */
static void a_choice_counts_once(void **state)
{
    (void)state;
    float is[3][200], ended[200];
    struct world world;
    for (uint32_t way = 0; way < 3; way++) { /* one; the other; eight of the other, then one */
        if (way > 0)
            world_done(&world);
        world_open(&world, "\"preset\": \"layered\"", 2, 2, 16, SPEC_DTYPE_F16, 200, 3);
        wait_for_codes(&world);
        for (uint32_t i = way == 2 ? 9 : 1; i-- > 0;)
            choose(&world, way == 1 || i > 0);
        assert_int_equal(averages(&world, 1, is[way]), 200);
    }
    for (uint64_t row = 0; row < 200; row++) {
        float expected = is[1][row] + (is[0][row] - is[1][row]) / 8;
        assert_true(fabsf(is[2][row] - expected) < 5e-3f * expected); /* steps of codes: .03 % */
    }
    spec_request request = look(&world, 0);
    struct shot shot;
    spec_ticket ticket;
    shot_make(&shot, &world, request, 1, 0, 100000);
    assert_int_equal(sc_plugin_submit(world.rig.conn, &shot.item, 1, &ticket, NULL), SPEC_OK);
    rig_release(&world.rig, request);
    assert_int_equal(sc_plugin_submit_wait(world.rig.conn, ticket, UINT64_MAX, NULL), SPEC_E_STALE);
    shot_free(&shot);
    assert_int_equal(averages(&world, 1, ended), 200);
    assert_memory_equal(is[2], ended, sizeof(ended));
    world_done(&world);
}

/* Rows [world->matched, end) in a pass of their own. */
static void store_more(struct world *world, uint64_t end)
{
    struct rig *rig = &world->rig;
    struct prompt stored = {end, world->prompt.tokens, world->prompt.history};
    struct spec_lookup_result result = rig_lookup(rig, &stored);
    spec_ticket ticket = 0;
    assert_int_equal(result.matched_tokens, world->matched);
    for (uint32_t layer = 0; layer < rig->layers; layer++) {
        struct area area = world_area(world, world->matched, end - world->matched, layer);
        struct spec_store_params params = {.struct_size = sizeof(params),
                                           .request = result.request,
                                           .layer = layer,
                                           .first_token = world->matched,
                                           .token_count = end - world->matched,
                                           .memory = &area.memory};
        assert_int_equal(sc_plugin_store(rig->conn, &params, &ticket, NULL), SPEC_OK);
        rig_area_free(&area);
    }
    assert_int_equal(rig_wait(rig, ticket), SPEC_OK);
    rig_release(rig, result.request);
    world->matched = end;
}

/* That rows were not looked at says nothing of them: theirs stay, the others' move by a share of
 * what was looked at. */
static void rows_without_codes_keep_their_averages(void **state)
{
    (void)state;
    struct world world = {.matched = 128, .group = 2, .agree = 3};
    float sums[200], before[200], after[200], moved = 0;
    rig_init(&world.rig, true, "\"preset\": \"layered\"");
    rig_shape(&world.rig, 4, 2, 16, SPEC_DTYPE_F16);
    world.rig.query_group = 2;
    world.prompt = rig_prompt(9, 0, 0, 200 + FRESH_ROWS);
    rig_open(&world.rig);
    world_store(&world);
    wait_for_codes(&world);
    reopen_as(&world, "\"preset\": \"layered\", \"layered\": {\"codes\": \"no\"}");
    store_more(&world, 200);
    spec_request handle = look(&world, 0);
    struct sc_plugin_request *request = sc_plugin_request_find(world.rig.conn, handle);
    for (uint64_t row = 0; row < 200; row++)
        sums[row] = 1;
    (void)sc_plugin_averages_note(world.rig.conn->averages,
                                  &(struct sc_plugin_sample){.ranges = request->ranges,
                                                             .range_count = request->range_count,
                                                             .layer = 1,
                                                             .sums = sums});
    assert_int_equal(averages(&world, 1, before), 200);
    struct shot shot;
    shot_make(&shot, &world, handle, 1, 0, 500000);
    assert_int_equal(fire(&world, &shot), SPEC_OK);
    assert_int_equal(shot.item.exact_rows, 100);
    assert_int_equal(forced_rows(&world), 72);
    assert_rows(&world, &shot, 0, 4, 2);
    shot_free(&shot);
    rig_release(&world.rig, handle);
    assert_int_equal(averages(&world, 1, after), 200);
    for (uint64_t row = 0; row < 128; row++)
        moved += after[row];
    assert_true(fabsf(moved - (128 / 200.0f + 1) / 2) < 1e-2f);
    assert_memory_equal(before + 128, after + 128, 72 * sizeof(float));
    world_done(&world);
}

/* ---- Threads -------------------------------------------------------------------------------- */

struct refiner {
    struct world *world;
    pthread_t thread;
};

static void *refine_all(void *user)
{
    struct world *world = ((struct refiner *)user)->world;
    for (uint32_t round = 0; round < 20; round++) {
        struct spec_lookup_result result;
        assert_int_equal(rig_try_lookup(&world->rig, &world->prompt, 0, RIG_MAX, &result), SPEC_OK);
        for (uint32_t layer = 0; layer < 4; layer++) {
            struct shot shot;
            spec_ticket ticket =
                fire_first(world, &shot, result.request, layer, 100000, round % 2 == 0 ? 1 : 0);
            assert_int_equal(refine(world, &shot, ticket, 400000), SPEC_OK);
            assert_int_equal(exact_count(&shot), 80);
            assert_int_equal(refine(world, &shot, ticket, 1000000), SPEC_OK);
            struct area area = world_area(world, 0, world->matched, layer);
            assert_memory_equal(shot.area.bytes, area.bytes, shot.area.part_bytes + 2 * RIG_GUARD);
            assert_memory_equal(shot.area.memory.v_base, area.memory.v_base, area.part_bytes);
            rig_area_free(&area);
            shot_free(&shot);
        }
        rig_release(&world->rig, result.request);
    }
    return NULL;
}

static void four_threads_refine_at_once(void **state)
{
    (void)state;
    struct world world = {.matched = 200, .group = 2, .agree = 3};
    struct refiner refiners[4];
    rig_init(&world.rig, false, "\"preset\": \"layered\"");
    rig_shape(&world.rig, 4, 2, 16, SPEC_DTYPE_F16);
    world.rig.query_group = 2;
    world.prompt = rig_prompt(7, 0, 0, 200 + FRESH_ROWS);
    rig_open(&world.rig);
    world_store(&world);
    wait_for_codes(&world);
    for (uint32_t i = 0; i < 4; i++) {
        refiners[i].world = &world;
        assert_int_equal(pthread_create(&refiners[i].thread, NULL, refine_all, &refiners[i]), 0);
    }
    for (uint32_t i = 0; i < 4; i++)
        assert_int_equal(pthread_join(refiners[i].thread, NULL), 0);
    world_done(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_exact_where_bits_say_and_decoded_elsewhere),
        cmocka_unit_test(lookup_begins_the_first_codes),
        cmocka_unit_test(all_exact_is_the_whole_load),
        cmocka_unit_test(an_item_that_ends_early_says_so),
        cmocka_unit_test(rows_without_codes_are_exact),
        cmocka_unit_test(what_was_stored_before_gets_codes),
        cmocka_unit_test(what_was_passed_over_gets_codes_from_maintain),
        cmocka_unit_test(static_sets_begin_at_the_front),
        cmocka_unit_test(what_is_stored_on_coarse_rows_is_lossy),
        cmocka_unit_test(submit_takes_what_get_important_takes),
        cmocka_unit_test(all_layers_are_refined_later_and_nothing_is_allocated),
        cmocka_unit_test(the_oldest_delivery_makes_room),
        cmocka_unit_test(a_delivery_that_fits_alone_has_room),
        cmocka_unit_test(items_of_one_call_are_refined_beside_others),
        cmocka_unit_test(four_threads_refine_at_once),
        cmocka_unit_test(scores_teach_what_is_exact_without_queries),
        cmocka_unit_test(a_choice_counts_once),
        cmocka_unit_test(rows_without_codes_keep_their_averages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

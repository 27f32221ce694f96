/* Three connectors over one store, and everything at once: a writer and two readers on a simulated
 * disk that is too small, with resets, leases, evictions, checkpoints, reopens, passes that are
 * worth less, and in every other seed a device that fails. A third of the seeds is layered.
 *
 *   truth    a row is a function of (tokens before, epoch, exact or pruned pass, layer, K or V)
 *   held     requests that stay open; they are loaded later, when their pieces have gone long ago
 *   leases   64 bytes that any of the three opens later
 *
 * Holds: what is delivered is the row of that prefix, of the epoch of the request's connector, and
 * of an exact pass where the lookup said exact; nothing says poisoned; the host gets its memory
 * back. Where no fault was injected, what a request or a lease promises is delivered until it ends.
 * A failure prints its seed; SC_SEED=N runs that seed alone, SC_SEEDS=N so many.
 *
 * The clocks of the three are virtual and are set alike after every step; a connector that opens
 * again begins with an earlier one, so what was promised before is given up first.
 *
 * Threads: one. */
#include "tests/unit/plugin/plugin_fixture.h"

#include <inttypes.h>
#include <math.h>

#define MS      UINT64_C(1000000)
#define SEEDS   30u
#define STEPS   400u
#define PROMPTS 48u
#define TOKENS  112u
#define RIGS    3u /* the writer is the first */
#define HELD    12u
#define LEASES  12u
#define EXTRA                                                                                      \
    "\"disk_bytes\": \"4MiB\", \"segment_bytes\": \"1MiB\", \"chunk_tokens\": 16, "                \
    "\"max_requests\": 32, \"lease_ns_max\": 400000000, "
#define WHOLE EXTRA "\"store\": {\"pruned\": \"yes\"}"
#define LAYERED                                                                                    \
    EXTRA                                                                                          \
    "\"store\": {\"pruned\": \"yes\", \"lossy\": \"yes\"}, \"preset\": \"layered-uniform\", "      \
    "\"layered\": "                                                                                \
    "{\"bits_k\": 8, \"bits_v\": 8, \"exact_ppm\": 250000}"
/* rows are within (-2, 2): half a step of 8 bits, which is off by 2^-11 of itself */
#define NEAR 0.0105F

struct hold {
    uint32_t rig, prompt; /* of rigs, prompts */
    spec_request request; /* 0: none */
    uint64_t matched, epoch, due_ns;
    bool is_exact;
};

struct lease {
    uint8_t bytes[64];
    uint32_t prompt;
    uint64_t due_ns; /* 0: none */
    bool is_exact;
};

struct stress {
    uint64_t seed, random, step;
    bool has_faults, is_layered;
    struct rig rigs[RIGS];
    struct prompt prompts[PROMPTS];
    struct hold held[HELD];
    struct lease leases[LEASES];
    uint64_t loaded, exact, inexact, attached, stored, resets, evicted;
};

static uint64_t draw(struct stress *stress, uint64_t below)
{
    stress->random = rig_mix(stress->random);
    return stress->random % below;
}

_Noreturn static void wrong(const struct stress *stress, const char *what)
{
    fail_msg("SC_SEED=%" PRIu64 " step %" PRIu64 ": %s", stress->seed, stress->step, what);
    abort(); /* fail_msg does not return */
}

/* ---- Truth ----------------------------------------------------------------------------------- */

/* The prompt with the history that rows of this epoch and worth are made from. Freed by the caller.
 */
static struct prompt variant(const struct stress *stress, uint32_t prompt, uint64_t epoch,
                             bool is_exact)
{
    const struct prompt *of = &stress->prompts[prompt];
    struct prompt made = {of->count, of->tokens, malloc(of->count * sizeof(uint64_t))};
    assert_non_null(made.history);
    for (uint64_t p = 0; p < of->count; p++)
        made.history[p] = rig_mix(of->history[p] + 2 * epoch + (is_exact ? 0 : 1));
    return made;
}

static float half(const uint8_t *bytes)
{
    uint32_t bits = bytes[0] | (uint32_t)bytes[1] << 8, exponent = bits >> 10 & 31;
    float value = exponent > 0 ? ldexpf((float)(1024 + (bits & 1023)), (int)exponent - 25)
                               : ldexpf((float)(bits & 1023), -24);
    return bits >> 15 != 0 ? -value : value;
}

/* is_quantised: as codes of it decode. */
static bool row_is(const struct rig *rig, const struct area *area, const struct prompt *prompt,
                   uint64_t position, uint32_t layer, bool is_quantised)
{
    uint8_t row[512];
    uint64_t bytes = rig_part_bytes(rig);
    assert_true(bytes <= sizeof(row));
    for (uint32_t part = 0; part < 2; part++) {
        const uint8_t *base = part == 0 ? area->memory.k_base : area->memory.v_base;
        rig_row(rig, prompt, position, layer, part, row);
        if (!is_quantised && memcmp(base + position * bytes, row, bytes) != 0)
            return false;
        for (uint64_t i = 0; is_quantised && i < bytes; i += 2)
            if (!(fabsf(half(base + position * bytes + i) - half(row + i)) <= NEAR))
                return false;
    }
    return true;
}

static void check_rows(struct stress *stress, const struct hold *hold, const struct area *area,
                       uint32_t layer, const uint64_t *exact_bits)
{
    const struct rig *rig = &stress->rigs[hold->rig];
    struct prompt exact = variant(stress, hold->prompt, hold->epoch, true);
    struct prompt pruned = variant(stress, hold->prompt, hold->epoch, false);
    for (uint64_t p = 0; p < hold->matched; p++) {
        bool is_quantised = stress->is_layered && !(exact_bits[p / 64] >> (p % 64) & 1);
        stress->inexact += is_quantised;
        if (!row_is(rig, area, &exact, p, layer, is_quantised) &&
            (hold->is_exact || !row_is(rig, area, &pruned, p, layer, is_quantised)))
            wrong(stress, "a row that is not what the lookup promised");
    }
    free(exact.history);
    free(pruned.history);
}

/* ---- Requests -------------------------------------------------------------------------------- */

static uint64_t wall_of(const struct rig *rig)
{
    return sc_exec_wall_ns(rig->conn->exec);
}

/* One token behind the match asks; its values are some row's. */
static struct spec_queries ask(const struct stress *stress, const struct hold *hold, uint8_t *row)
{
    const struct rig *rig = &stress->rigs[hold->rig];
    uint64_t bytes = rig_part_bytes(rig);
    rig_row(rig, &stress->prompts[hold->prompt], 0, 0, 0, row);
    return (struct spec_queries){.struct_size = sizeof(struct spec_queries),
                                 .dtype = rig->dtype,
                                 .data = row,
                                 .byte_count = bytes,
                                 .row_count = 1,
                                 .row_stride_bytes = bytes,
                                 .head_stride_bytes = bytes / rig->heads,
                                 .first_position = hold->matched};
}

/* Loads every layer. An error must have a reason: a reset, a fault, or a promise that is over. */
static void load(struct stress *stress, const struct hold *hold)
{
    struct rig *rig = &stress->rigs[hold->rig];
    struct area area = rig_area(rig, hold->matched + 1);
    uint8_t row[512];
    struct spec_queries queries = ask(stress, hold, row);
    for (uint32_t layer = 0; layer < rig->layers; layer++) {
        uint64_t exact_bits[(2 * TOKENS + 63) / 64];
        struct spec_important item = {.struct_size = sizeof(item),
                                      .request = hold->request,
                                      .layer = layer,
                                      .destination = &area.memory,
                                      .queries = &queries,
                                      .exact_bits = stress->is_layered ? exact_bits : NULL,
                                      .exact_bit_words = (2 * TOKENS + 63) / 64};
        bool is_due = wall_of(rig) + 100 * MS < hold->due_ns;
        spec_status status = sc_plugin_get_important(rig->conn, &item, 1, NULL);
        if (status == SPEC_OK) {
            check_rows(stress, hold, &area, layer, exact_bits);
            stress->loaded++;
            stress->exact += hold->is_exact;
            continue;
        }
        bool is_reset = atomic_load(&rig->conn->epoch) != hold->epoch;
        if (status == SPEC_E_STALE ? !is_reset : is_due && !stress->has_faults && !is_reset)
            wrong(stress, sc_status_name(status));
        break;
    }
    rig_area_free(&area);
}

static void release(struct stress *stress, struct hold *hold)
{
    if (hold->request != 0)
        rig_release(&stress->rigs[hold->rig], hold->request);
    hold->request = 0;
}

static void release_all(struct stress *stress, uint32_t rig)
{
    for (uint32_t i = 0; i < HELD; i++)
        if (stress->held[i].rig == rig)
            release(stress, &stress->held[i]);
}

static struct hold look(struct stress *stress, uint32_t rig, uint32_t prompt, uint32_t flags,
                        struct spec_lookup_result *ret_result)
{
    const struct prompt *of = &stress->prompts[prompt];
    struct spec_lookup_params params = rig_lookup_params(of, 0, RIG_MAX, flags);
    struct rig *at = &stress->rigs[rig];
    *ret_result = (struct spec_lookup_result){.struct_size = sizeof(*ret_result)};
    if (sc_plugin_lookup(at->conn, &params, ret_result, NULL) != SPEC_OK)
        wrong(stress, "lookup");
    struct hold hold = {.rig = rig,
                        .prompt = prompt,
                        .request = ret_result->request,
                        .matched = ret_result->matched_tokens,
                        .epoch = atomic_load(&at->conn->epoch),
                        .due_ns = rig == 0 ? UINT64_MAX : ret_result->lease_expiry_ns,
                        .is_exact = ret_result->provenance.kind == SPEC_PROVENANCE_EXACT};
    if (flags != 0 && !hold.is_exact)
        wrong(stress, "a match that must be exact is not");
    return hold;
}

/* ---- Steps ----------------------------------------------------------------------------------- */

/* The writer computes what is not promised, now and then on rows of which it was delivered a part.
 */
static void step_store(struct stress *stress)
{
    struct rig *writer = &stress->rigs[0];
    struct spec_lookup_result result;
    uint32_t flags = draw(stress, 2) == 0 ? SPEC_LOOKUP_REQUIRE_EXACT : 0;
    struct hold hold = look(stress, 0, (uint32_t)draw(stress, PROMPTS), flags, &result);
    struct sc_plugin_request *request = sc_plugin_request_find(writer->conn, hold.request);
    assert_non_null(request);
    bool is_pruned = hold.matched > 0 && draw(stress, 2) == 0;
    if (is_pruned)
        request->delivered = (struct spec_provenance){
            .kind = SPEC_PROVENANCE_PRUNED, .computed_on = 0, .retain_ppm = 100000};
    if (draw(stress, 3) == 0)
        load(stress, &hold);
    struct prompt rows = variant(stress, hold.prompt, hold.epoch, !is_pruned);
    if (hold.matched < rows.count) {
        spec_ticket ticket =
            rig_store(writer, hold.request, &rows, hold.matched, rows.count - hold.matched);
        if (draw(stress, 4) != 0)
            stress->stored += rig_wait(writer, ticket) == SPEC_OK;
    }
    free(rows.history);
    release(stress, &hold);
}

static void step_look(struct stress *stress)
{
    struct spec_lookup_result result;
    struct hold *place = &stress->held[draw(stress, HELD)];
    uint32_t flags = draw(stress, 3) == 0 ? SPEC_LOOKUP_REQUIRE_EXACT : 0;
    release(stress, place);
    struct hold hold =
        look(stress, (uint32_t)draw(stress, RIGS), (uint32_t)draw(stress, PROMPTS), flags, &result);
    load(stress, &hold);
    *place = hold;
    if (draw(stress, 2) == 0 && /* the lease is of no request */
        (rig_peek(&stress->rigs[hold.rig], &stress->prompts[hold.prompt], 0, &result) != SPEC_OK ||
         result.request != 0))
        wrong(stress, "peek");
    if (result.matched_tokens == 0 || result.lease_expiry_ns == 0)
        return;
    struct lease *lease = &stress->leases[draw(stress, LEASES)];
    memcpy(lease->bytes, result.lease, sizeof(lease->bytes));
    lease->prompt = hold.prompt;
    lease->due_ns = result.lease_expiry_ns;
    lease->is_exact = result.provenance.kind == SPEC_PROVENANCE_EXACT;
}

static void step_held(struct stress *stress)
{
    struct hold *hold = &stress->held[draw(stress, HELD)];
    if (hold->request == 0)
        return;
    load(stress, hold);
    if (draw(stress, 2) == 0)
        release(stress, hold);
}

static void step_attach(struct stress *stress)
{
    struct lease *lease = &stress->leases[draw(stress, LEASES)];
    uint32_t rig = (uint32_t)draw(stress, RIGS);
    struct rig *at = &stress->rigs[rig];
    if (lease->due_ns == 0)
        return;
    struct spec_lookup_result result = {.struct_size = sizeof(result)};
    spec_status status = rig_attach(at, lease->bytes, 0, &result);
    if (status != SPEC_OK && status != SPEC_E_STALE)
        wrong(stress, sc_status_name(status));
    if (status == SPEC_E_STALE || result.state != SPEC_LOOKUP_HIT)
        return;
    struct hold hold = {.rig = rig,
                        .prompt = lease->prompt,
                        .request = result.request,
                        .matched = result.matched_tokens,
                        .epoch = atomic_load(&at->conn->epoch),
                        .due_ns = lease->due_ns,
                        .is_exact = result.provenance.kind == SPEC_PROVENANCE_EXACT};
    load(stress, &hold);
    stress->attached++;
    release(stress, &hold);
}

static void open_again(struct stress *stress, uint32_t rig)
{
    release_all(stress, rig);
    if (rig == 0) { /* its clock begins anew: what others hold on its quarantine is over */
        for (uint32_t i = 0; i < RIGS; i++)
            release_all(stress, i);
        memset(stress->leases, 0, sizeof(stress->leases));
    }
    rig_close(&stress->rigs[rig]);
    if (rig_try_open(&stress->rigs[rig]) == SPEC_OK)
        return;
    if (!stress->has_faults || rig_try_open(&stress->rigs[rig]) != SPEC_OK)
        wrong(stress, stress->rigs[rig].error.text);
}

static void step_fault(struct stress *stress)
{
    static const enum sc_io_sim_fault FAULTS[] = {
        SC_SIM_READ_EIO, SC_SIM_WRITE_EIO, SC_SIM_NO_SPACE, SC_SIM_SHORT, SC_SIM_FLIP, SC_SIM_LATE};
    if (stress->has_faults)
        sc_io_sim_fault_nth(stress->rigs[0].disk, FAULTS[draw(stress, 6)], draw(stress, 12));
}

static void step_upkeep(struct stress *stress)
{
    static const uint32_t FLAGS[] = {SPEC_MAINTAIN_EVICT, SPEC_MAINTAIN_CHECKPOINT};
    struct spec_maintain_params params = {.struct_size = sizeof(params),
                                          .flags = FLAGS[draw(stress, 2)]};
    if (sc_plugin_maintain(stress->rigs[0].conn, &params, NULL) != SPEC_OK)
        wrong(stress, "maintain");
    if (draw(stress, 2) == 0)
        rig_background(&stress->rigs[0]);
}

static void step_reset(struct stress *stress)
{
    struct rig *rig = &stress->rigs[draw(stress, RIGS)];
    uint64_t before = atomic_load(&rig->conn->epoch);
    spec_status status = sc_plugin_reset(rig->conn, NULL);
    if (status != SPEC_OK && !stress->has_faults)
        wrong(stress, "reset");
    if (status == SPEC_OK && atomic_load(&rig->conn->epoch) <= before)
        wrong(stress, "a reset that is none");
    stress->resets++;
}

/* All clocks to the latest, and a little further. */
static void set_clocks(struct stress *stress, uint64_t more_ns)
{
    uint64_t latest = 0;
    for (uint32_t i = 0; i < RIGS; i++) {
        uint64_t now = wall_of(&stress->rigs[i]);
        latest = now > latest ? now : latest;
    }
    for (uint32_t i = 0; i < RIGS; i++) {
        uint64_t now = wall_of(&stress->rigs[i]);
        if (latest + more_ns > now)
            rig_pass_ns(&stress->rigs[i], latest + more_ns - now);
    }
}

static void step(struct stress *stress)
{
    uint64_t kind = draw(stress, 100), more_ns = 0;
    if (kind < 36)
        step_store(stress);
    else if (kind < 60)
        step_look(stress);
    else if (kind < 72)
        step_held(stress);
    else if (kind < 82)
        step_attach(stress);
    else if (kind < 86)
        step_fault(stress);
    else if (kind < 91)
        step_upkeep(stress);
    else if (kind < 92)
        step_reset(stress);
    else if (kind < 94)
        open_again(stress, (uint32_t)draw(stress, RIGS));
    else
        more_ns = draw(stress, 400) * MS;
    /* One device serves all: what one has in flight ends before another waits for it. */
    set_clocks(stress, more_ns + (stress->has_faults ? 60 : 5) * MS);
}

/* ---- Runs ------------------------------------------------------------------------------------ */

static void open_all(struct stress *stress)
{
    struct rig *writer = &stress->rigs[0];
    rig_begin_shape(writer, true, stress->is_layered ? LAYERED : WHOLE, 3, 2, 128, SPEC_DTYPE_F16);
    for (uint32_t i = 1; i < RIGS; i++) {
        rig_open_beside(&stress->rigs[i], writer, SPEC_ROLE_READER, 0);
    }
    for (uint32_t i = 0; i < PROMPTS; i++) { /* families that part at any token */
        uint64_t shared = draw(stress, TOKENS);
        stress->prompts[i] =
            rig_prompt(stress->seed * 100 + i % 6, shared, i, 1 + draw(stress, TOKENS));
    }
}

static void run(uint64_t seed, struct stress *sum)
{
    struct stress *stress = calloc(1, sizeof(*stress));
    assert_non_null(stress);
    stress->seed = seed;
    stress->random = seed * 77 + 1;
    stress->has_faults = seed % 2 == 1;
    stress->is_layered = seed % 6 >= 4;
    open_all(stress);
    for (stress->step = 0; stress->step < STEPS; stress->step++)
        step(stress);
    for (uint32_t i = 0; i < RIGS; i++)
        release_all(stress, i);
    for (uint32_t i = RIGS; i-- > 1;)
        rig_leave(&stress->rigs[i]);
    sum->loaded += stress->loaded;
    sum->exact += stress->exact;
    sum->inexact += stress->inexact;
    sum->attached += stress->attached;
    sum->stored += stress->stored;
    sum->resets += stress->resets;
    sum->evicted += atomic_load(&stress->rigs[0].conn->stats.evicted_chunks);
    rig_prompts_free_all(stress->prompts, PROMPTS);
    rig_done(&stress->rigs[0]);
    free(stress);
}

static void nothing_that_is_promised_is_a_lie(void **state)
{
    (void)state;
    const char *only = getenv("SC_SEED"), *many = getenv("SC_SEEDS");
    uint64_t first = only != NULL ? strtoull(only, NULL, 10) : 0;
    uint64_t count = only != NULL ? 1 : many != NULL ? strtoull(many, NULL, 10) : SEEDS;
    struct stress sum = {0};
    for (uint64_t seed = first; seed < first + count; seed++)
        run(seed, &sum);
    print_message("%" PRIu64 " passes stored, %" PRIu64 " layers loaded, %" PRIu64
                  " exact, %" PRIu64 " coarse rows, %" PRIu64 " leases attached, %" PRIu64
                  " resets, %" PRIu64 " chunks evicted\n",
                  sum.stored, sum.loaded, sum.exact, sum.inexact, sum.attached, sum.resets,
                  sum.evicted);
    if (only == NULL) /* it must have met what it is for */
        assert_true(sum.stored > 10 * count && sum.loaded > 50 * count && sum.exact < sum.loaded &&
                    sum.inexact > 1000 * count / 6 && sum.attached > count && sum.resets > 0 &&
                    sum.evicted > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_that_is_promised_is_a_lie),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

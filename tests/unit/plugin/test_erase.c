/* Erasing through the connector: what lies under a salt is a miss at once, for every process of the
 * store, and then stands in no byte of any file; what lies under another is as it was.
 *
 * Each connector has a loop and a virtual clock of its own. Threads: one. */
#include "tests/sim/fragments.h"
#include "tests/unit/plugin/plugin_fixture.h"

#define MS    UINT64_C(1000000)
#define TURN  (30 * MS)
#define COUNT 200u

static const char *const SALTS[] = {"", "tenant a", "tenant b"};

static struct spec_lookup_params salted(const struct prompt *prompt, uint32_t salt,
                                        const char *lora)
{
    struct spec_lookup_params params = rig_lookup_params(prompt, 0, RIG_MAX, 0);
    params.salt = (struct spec_bytes){SALTS[salt], strlen(SALTS[salt])};
    params.lora = (struct spec_bytes){lora, strlen(lora)};
    return params;
}

static struct spec_lookup_result lookup_under(struct rig *rig, const struct prompt *prompt,
                                              uint32_t salt)
{
    struct spec_lookup_params params = salted(prompt, salt, "");
    return rig_lookup_as(rig, &params);
}

static spec_status store_under(struct rig *rig, const struct prompt *prompt, uint32_t salt,
                               const char *lora)
{
    struct spec_lookup_params params = salted(prompt, salt, lora);
    struct spec_lookup_result found = rig_lookup_as(rig, &params);
    spec_ticket ticket = rig_store(rig, found.request, prompt, found.matched_tokens,
                                   prompt->count - found.matched_tokens);
    spec_status status = rig_wait(rig, ticket);
    rig_release(rig, found.request);
    return status;
}

/* All of it is loaded, and right; or nothing is found. */
static void served(struct rig *rig, const struct prompt *prompt, uint32_t salt, bool is_there)
{
    struct spec_lookup_result found = lookup_under(rig, prompt, salt);
    assert_int_equal(found.matched_tokens, is_there ? prompt->count : 0);
    if (is_there)
        rig_load_all(rig, found.request, prompt, 0, found.matched_tokens);
    rig_release(rig, found.request);
}

/* The call for a layer of a request that is over. */
static spec_status load_status(struct rig *rig, spec_request request)
{
    struct area area = rig_area(rig, COUNT);
    struct spec_important item = rig_item(request, 0, &area.memory);
    spec_status status = sc_plugin_get_important(rig->conn, &item, 1, &rig->error);
    assert_true(rig_area_is_right(rig, &area, NULL, 0, 0, 0));
    rig_area_free(&area);
    return status;
}

static void plant(struct sc_sim_fragments *fragments, const struct rig *rig,
                  const struct prompt *prompt)
{
    uint64_t bytes = rig_part_bytes(rig);
    uint8_t *row = malloc(2 * bytes);
    assert_non_null(row);
    for (uint64_t p = 0; p < prompt->count; p++)
        for (uint32_t layer = 0; layer < rig->layers; layer++) {
            rig_row(rig, prompt, p, layer, 0, row);
            rig_row(rig, prompt, p, layer, 1, row + bytes);
            sc_sim_fragments_add(fragments, row, 2 * bytes);
        }
    for (uint64_t p = 0; p < prompt->count; p += 64)
        sc_sim_fragments_add_tokens(fragments, prompt->tokens + p,
                                    prompt->count - p < 64 ? prompt->count - p : 64);
    free(row);
}

static spec_status erase_salt(struct rig *rig, uint32_t salt)
{
    const struct spec_maintain_params params = {.struct_size = sizeof(params),
                                                .flags = SPEC_MAINTAIN_ERASE_SALT,
                                                .salt = {SALTS[salt], strlen(SALTS[salt])}};
    return sc_plugin_maintain(rig->conn, &params, &rig->error);
}

/* Until the writer's erasures are carried out. */
static void carried_out(struct rig *rig)
{
    for (uint32_t i = 0; i < 1000 && sc_store_erasures(rig->conn->store) > 0; i++)
        rig_pass_ns(rig, TURN);
    assert_int_equal(sc_store_erasures(rig->conn->store), 0);
    assert_true(sc_store_erase_counts(rig->conn->store).erased > 0);
}

static void nothing_found(const struct sc_sim_fragments *fragments, const struct rig *rig)
{
    char where[160];
    uint64_t found = sc_sim_fragments_found(fragments, rig->disk, where);
    if (found > 0)
        fail_msg("%lu fragments, the first in %s", (unsigned long)found, where);
}

static void rig_wide(struct rig *rig, const char *extra)
{
    rig_begin_shape(rig, true, extra, 2, 2, 32, SPEC_DTYPE_F16);
}

/* ---- One process ------------------------------------------------------------------------------
 */

static void what_lies_under_a_salt_goes_and_the_rest_stays(void **state)
{
    (void)state;
    struct rig rig;
    struct sc_sim_fragments *fragments = sc_sim_fragments_new();
    struct prompt ours = rig_prompt(1, 0, 0, COUNT), adapted = rig_prompt(2, 0, 0, COUNT);
    struct prompt theirs = rig_prompt(3, 0, 0, COUNT), plain = rig_prompt(4, 0, 0, COUNT);
    char where[160];
    rig_wide(&rig, "");
    assert_int_equal(store_under(&rig, &ours, 1, ""), SPEC_OK);
    assert_int_equal(store_under(&rig, &adapted, 1, "adapter"), SPEC_OK);
    assert_int_equal(store_under(&rig, &theirs, 2, ""), SPEC_OK);
    assert_int_equal(store_under(&rig, &plain, 0, ""), SPEC_OK);
    plant(fragments, &rig, &ours);
    plant(fragments, &rig, &adapted);
    assert_true(sc_sim_fragments_found(fragments, rig.disk, where) >=
                sc_sim_fragments_count(fragments));
    struct spec_lookup_result open = lookup_under(&rig, &ours, 1);
    struct spec_lookup_result other = lookup_under(&rig, &theirs, 2);
    assert_int_equal(open.matched_tokens, COUNT);
    assert_int_equal(erase_salt(&rig, 1), SPEC_OK);
    /* At once: */
    served(&rig, &ours, 1, false);
    assert_int_equal(load_status(&rig, open.request), SPEC_E_STALE);
    struct spec_lookup_result attached;
    assert_int_equal(rig_attach(&rig, open.lease, 0, &attached), SPEC_E_STALE);
    rig_load_all(&rig, other.request, &theirs, 0, COUNT);
    /* With time: */
    carried_out(&rig);
    nothing_found(fragments, &rig);
    rig_release(&rig, open.request);
    rig_release(&rig, other.request);
    rig_background(&rig);
    rig_check_index(&rig);
    rig_reopen(&rig);
    nothing_found(fragments, &rig);
    served(&rig, &ours, 1, false);
    served(&rig, &theirs, 2, true);
    served(&rig, &plain, 0, true);
    /* It is stored again as ever. */
    assert_int_equal(store_under(&rig, &ours, 1, ""), SPEC_OK);
    served(&rig, &ours, 1, true);
    assert_int_equal(rig_maintain(&rig, SPEC_MAINTAIN_ERASE), SPEC_OK);
    served(&rig, &theirs, 2, false);
    carried_out(&rig);
    plant(fragments, &rig, &theirs);
    plant(fragments, &rig, &plain);
    nothing_found(fragments, &rig);
    sc_sim_fragments_free(fragments);
    rig_end(&rig, &ours, &adapted, &theirs, &plain);
}

static void nothing_is_stored_meanwhile_and_a_failure_is_told(void **state)
{
    (void)state;
    struct rig rig;
    struct sc_sim_fragments *fragments = sc_sim_fragments_new();
    struct prompt ours = rig_prompt(1, 0, 0, COUNT), theirs = rig_prompt(2, 0, 0, COUNT);
    rig_wide(&rig, "");
    assert_int_equal(store_under(&rig, &ours, 1, ""), SPEC_OK);
    rig_background(&rig);
    plant(fragments, &rig, &ours);
    sc_io_sim_fault_scope(rig.disk, "seg-");
    sc_io_sim_fault_ppm(rig.disk, SC_SIM_WRITE_EIO, 1000000);
    assert_int_equal(erase_salt(&rig, 1), SPEC_OK);
    for (uint32_t i = 0; i < 500; i++)
        rig_pass_ns(&rig, TURN);
    struct sc_store_erase_counts counts = sc_store_erase_counts(rig.conn->store);
    assert_true(counts.erased == 0 && counts.failures >= 2);
    assert_int_equal(store_under(&rig, &theirs, 2, ""), SPEC_E_BUSY);
    served(&rig, &ours, 1, false);
    rig_reopen(&rig); /* the intent outlives the process */
    served(&rig, &ours, 1, false);
    sc_io_sim_fault_ppm(rig.disk, SC_SIM_WRITE_EIO, 0);
    for (uint32_t i = 0; i < 200; i++) /* it is tried again in 5 s */
        rig_pass_ns(&rig, TURN);
    carried_out(&rig);
    nothing_found(fragments, &rig);
    assert_int_equal(store_under(&rig, &theirs, 2, ""), SPEC_OK);
    served(&rig, &theirs, 2, true);
    sc_sim_fragments_free(fragments);
    rig_end(&rig, &ours, &theirs);
}

/* The process ends when the call has returned, and nothing was overwritten. */
static void an_intent_is_heard_before_the_first_lookup(void **state)
{
    (void)state;
    struct rig rig;
    struct sc_sim_fragments *fragments = sc_sim_fragments_new();
    struct prompt ours = rig_prompt(1, 0, 0, COUNT), theirs = rig_prompt(2, 0, 0, COUNT);
    rig_wide(&rig, "");
    assert_int_equal(store_under(&rig, &ours, 1, ""), SPEC_OK);
    assert_int_equal(store_under(&rig, &theirs, 2, ""), SPEC_OK);
    plant(fragments, &rig, &ours);
    assert_int_equal(erase_salt(&rig, 1), SPEC_OK);
    sc_io_sim_power_off(rig.disk);
    rig_close(&rig);
    struct sc_io_sim_disk *copy = NULL;
    assert_int_equal(sc_io_sim_disk_copy(rig.disk, &copy, NULL), SPEC_OK);
    sc_io_sim_disk_close(rig.disk);
    rig.disk = copy;
    rig_open(&rig);
    served(&rig, &ours, 1, false);
    carried_out(&rig);
    nothing_found(fragments, &rig);
    sc_sim_fragments_free(fragments);
    rig_end(&rig, &ours, &theirs);
}

/* Pieces that came token by token are merged; both the pieces and what they became are erased. */
static void merged_pieces_keep_their_salt(void **state)
{
    (void)state;
    struct rig rig;
    struct sc_sim_fragments *fragments = sc_sim_fragments_new();
    struct prompt ours = rig_prompt(1, 0, 0, 128), theirs = rig_prompt(2, 0, 0, 128);
    const struct prompt *prompts[] = {&ours, &theirs};
    rig_wide(&rig, "");
    for (uint32_t i = 0; i < 2; i++) {
        struct spec_lookup_params params = salted(prompts[i], 1 + i, "");
        struct spec_lookup_result found = rig_lookup_as(&rig, &params);
        for (uint64_t p = 0; p < 128; p += 8)
            assert_int_equal(rig_wait(&rig, rig_store(&rig, found.request, prompts[i], p, 8)),
                             SPEC_OK);
        rig_release(&rig, found.request);
    }
    for (uint32_t i = 0; i < 100; i++)
        rig_pass_ns(&rig, TURN);
    assert_int_equal(sc_counted(&rig.conn->stats.compacted_chunks), 4);
    plant(fragments, &rig, &ours);
    assert_int_equal(erase_salt(&rig, 1), SPEC_OK);
    carried_out(&rig);
    nothing_found(fragments, &rig);
    served(&rig, &ours, 1, false);
    rig_reopen(&rig);
    served(&rig, &theirs, 2, true);
    nothing_found(fragments, &rig);
    sc_sim_fragments_free(fragments);
    rig_end(&rig, &ours, &theirs);
}

/* Rows in host memory are delivered no more. */
static void host_memory_lets_go(void **state)
{
    (void)state;
    struct rig rig;
    struct prompt ours = rig_prompt(1, 0, 0, COUNT), theirs = rig_prompt(2, 0, 0, COUNT);
    rig_wide(&rig, "\"host_bytes\": \"8MiB\"");
    assert_int_equal(store_under(&rig, &ours, 1, ""), SPEC_OK);
    served(&rig, &ours, 1, true);
    uint64_t used = rig_store_stats(&rig).host_bytes_used;
    assert_true(used > 0);
    assert_int_equal(store_under(&rig, &theirs, 2, ""), SPEC_OK);
    served(&rig, &theirs, 2, true);
    uint64_t both = rig_store_stats(&rig).host_bytes_used;
    assert_int_equal(erase_salt(&rig, 1), SPEC_OK);
    carried_out(&rig);
    assert_true(rig_store_stats(&rig).host_bytes_used + used <= both);
    served(&rig, &theirs, 2, true);
    rig_end(&rig, &ours, &theirs);
}

/* A pass that was open is not stored, also where its host goes on with it. */
static void an_open_pass_ends_with_its_request(void **state)
{
    (void)state;
    struct rig rig;
    struct sc_sim_fragments *fragments = sc_sim_fragments_new();
    struct prompt ours = rig_prompt(1, 0, 0, COUNT), theirs = rig_prompt(2, 0, 0, COUNT);
    rig_wide(&rig, "");
    struct spec_lookup_result a = lookup_under(&rig, &ours, 1), b = lookup_under(&rig, &theirs, 2);
    spec_ticket ticket = 0;
    assert_int_equal(rig_store_layer(&rig, a.request, &ours, 0, COUNT, 0, NULL), SPEC_OK);
    assert_int_equal(rig_store_layer(&rig, b.request, &theirs, 0, COUNT, 0, NULL), SPEC_OK);
    rig_pass_ns(&rig, TURN);
    plant(fragments, &rig, &ours);
    assert_int_equal(erase_salt(&rig, 1), SPEC_OK);
    assert_int_equal(rig_store_layer(&rig, a.request, &ours, 0, COUNT, 1, NULL), SPEC_E_STALE);
    assert_int_equal(rig_store_layer(&rig, b.request, &theirs, 0, COUNT, 1, &ticket), SPEC_OK);
    assert_int_equal(rig_wait(&rig, ticket), SPEC_OK);
    carried_out(&rig);
    nothing_found(fragments, &rig);
    rig_release(&rig, a.request);
    rig_release(&rig, b.request);
    rig_reopen(&rig);
    served(&rig, &theirs, 2, true);
    served(&rig, &ours, 1, false);
    nothing_found(fragments, &rig);
    sc_sim_fragments_free(fragments);
    rig_end(&rig, &ours, &theirs);
}

/* What a record says no salt of is covered by each, and by none else. */
static void arguments_are_checked(void **state)
{
    (void)state;
    struct rig rig;
    rig_wide(&rig, "");
    struct spec_maintain_params params = {.struct_size = sizeof(params),
                                          .flags = SPEC_MAINTAIN_ERASE_SALT};
    assert_int_equal(sc_plugin_maintain(rig.conn, &params, NULL), SPEC_E_INVALID);
    params.salt = (struct spec_bytes){"x", 0};
    assert_int_equal(sc_plugin_maintain(rig.conn, &params, NULL), SPEC_E_INVALID);
    params.salt = (struct spec_bytes){NULL, 1};
    assert_int_equal(sc_plugin_maintain(rig.conn, &params, NULL), SPEC_E_INVALID);
    params.salt = (struct spec_bytes){"x", 1};
    params.flags = SPEC_MAINTAIN_ERASE;
    assert_int_equal(sc_plugin_maintain(rig.conn, &params, NULL), SPEC_E_INVALID);
    assert_int_equal(sc_store_erasures(rig.conn->store), 0);
    rig_done(&rig);
}

/* ---- Several processes ------------------------------------------------------------------------
 */

static void readers_hear_of_it(void **state)
{
    (void)state;
    struct rig writer, reader;
    struct prompt ours = rig_prompt(1, 0, 0, COUNT), theirs = rig_prompt(2, 0, 0, COUNT);
    struct spec_lookup_result attached;
    rig_wide(&writer, "");
    assert_int_equal(store_under(&writer, &ours, 1, ""), SPEC_OK);
    assert_int_equal(store_under(&writer, &theirs, 2, ""), SPEC_OK);
    rig_open_beside(&reader, &writer, SPEC_ROLE_READER, 0);
    served(&reader, &ours, 1, true);
    struct spec_lookup_result open = lookup_under(&reader, &ours, 1);
    struct spec_lookup_result other = lookup_under(&reader, &theirs, 2);
    assert_int_equal(rig_load(&reader, open.request, &ours, 0, COUNT, 0), SPEC_OK);
    assert_int_equal(erase_salt(&writer, 1), SPEC_OK);
    rig_pass_ns(&reader, TURN);
    served(&reader, &ours, 1, false);
    assert_int_equal(load_status(&reader, open.request), SPEC_E_STALE);
    assert_int_equal(rig_attach(&reader, open.lease, 0, &attached), SPEC_E_STALE);
    rig_load_all(&reader, other.request, &theirs, 0, COUNT);
    carried_out(&writer);
    rig_pass_ns(&reader, TURN);
    rig_pass_ns(&reader, TURN);
    served(&reader, &ours, 1, false);
    assert_int_equal(rig_attach(&reader, open.lease, 0, &attached), SPEC_E_STALE);
    served(&reader, &theirs, 2, true);
    assert_int_equal(rig_attach(&reader, other.lease, 0, &attached), SPEC_OK);
    rig_load_all(&reader, attached.request, &theirs, 0, COUNT);
    rig_release(&reader, attached.request);
    rig_release(&reader, open.request);
    rig_release(&reader, other.request);
    /* A reader may ask, too. */
    assert_int_equal(erase_salt(&reader, 2), SPEC_OK);
    served(&reader, &theirs, 2, false);
    rig_pass_ns(&writer, TURN);
    served(&writer, &theirs, 2, false);
    carried_out(&writer);
    rig_leave(&reader);
    rig_end(&writer, &ours, &theirs);
}

/* A reader that has not heard of it yet reads zeros: an error, never rows. */
static void a_reader_that_is_late_delivers_no_zeros(void **state)
{
    (void)state;
    struct rig writer, reader;
    struct prompt ours = rig_prompt(1, 0, 0, COUNT);
    rig_wide(&writer, "");
    assert_int_equal(store_under(&writer, &ours, 1, ""), SPEC_OK);
    rig_open_beside(&reader, &writer, SPEC_ROLE_READER, 0);
    struct spec_lookup_result open = lookup_under(&reader, &ours, 1);
    assert_int_equal(open.matched_tokens, COUNT);
    assert_int_equal(erase_salt(&writer, 1), SPEC_OK);
    carried_out(&writer);
    for (uint32_t layer = 0; layer < 2; layer++)
        assert_int_not_equal(rig_load(&reader, open.request, &ours, 0, COUNT, layer), SPEC_OK);
    rig_release(&reader, open.request);
    rig_leave(&reader);
    rig_end(&writer, &ours);
}

/* Every rank's directory has its intent, also one whose process is away. */
static void all_ranks_are_erased(void **state)
{
    (void)state;
    struct rig ranks[2];
    struct sc_sim_fragments *fragments = sc_sim_fragments_new();
    struct prompt ours = rig_prompt(1, 0, 0, COUNT);
    rig_init(&ranks[0], true, "");
    rig_shape(&ranks[0], 2, 2, 32, SPEC_DTYPE_F16);
    ranks[0].rank_count = 2;
    rig_open(&ranks[0]);
    rig_open_beside(&ranks[1], &ranks[0], SPEC_ROLE_WRITER, 1);
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(store_under(&ranks[i], &ours, 1, ""), SPEC_OK);
    plant(fragments, &ranks[0], &ours);
    rig_close(&ranks[1]);
    assert_int_equal(erase_salt(&ranks[0], 1), SPEC_OK);
    carried_out(&ranks[0]);
    rig_open(&ranks[1]);
    served(&ranks[1], &ours, 1, false);
    carried_out(&ranks[1]);
    nothing_found(fragments, &ranks[0]);
    rig_leave(&ranks[1]);
    sc_sim_fragments_free(fragments);
    rig_end(&ranks[0], &ours);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_lies_under_a_salt_goes_and_the_rest_stays),
        cmocka_unit_test(nothing_is_stored_meanwhile_and_a_failure_is_told),
        cmocka_unit_test(an_intent_is_heard_before_the_first_lookup),
        cmocka_unit_test(merged_pieces_keep_their_salt),
        cmocka_unit_test(host_memory_lets_go),
        cmocka_unit_test(an_open_pass_ends_with_its_request),
        cmocka_unit_test(arguments_are_checked),
        cmocka_unit_test(readers_hear_of_it),
        cmocka_unit_test(a_reader_that_is_late_delivers_no_zeros),
        cmocka_unit_test(all_ranks_are_erased),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

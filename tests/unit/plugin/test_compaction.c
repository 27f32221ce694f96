/* Merging: what was stored token by token becomes a piece a chunk, and nobody is told of other rows
 * than those of his tokens at any moment: with requests that hold the old pieces, branches, failed
 * reads, eviction, resets, reopens, power cuts, readers and ranks beside. */
#include "plugin/args/provenance.h"
#include "tests/unit/parts.h"
#include "tests/unit/plugin/compaction_fixture.h"

/* A prompt of `first` tokens is stored, the rest is decoded. */
static void converse(struct rig *rig, const struct prompt *prompt, uint64_t first)
{
    struct spec_lookup_result result = rig_lookup(rig, prompt);
    uint64_t from = result.matched_tokens;
    if (from < first) {
        assert_int_equal(rig_wait(rig, rig_store(rig, result.request, prompt, from, first - from)),
                         SPEC_OK);
        from = first;
    }
    decode(rig, result.request, prompt, from, prompt->count);
    rig_release(rig, result.request);
}

static void check_read(struct rig *rig, const struct prompt *prompt)
{
    spec_status status;
    assert_int_equal(rig_read(rig, prompt, &status), prompt->count);
    assert_int_equal(status, SPEC_OK);
}

/* ---- One piece a chunk ----------------------------------------------------------------------- */

static void a_chunk_of_tokens_becomes_a_piece(void **state)
{
    (void)state;
    struct rig rig;
    struct prompt prompt = rig_prompt(1, 1000, 0, 70);
    rig_begin(&rig, true, CHUNKS);
    converse(&rig, &prompt, 0);
    settle(&rig);
    assert_int_equal(merged(&rig), 5); /* and the end, whose request has ended */
    assert_int_equal(store_stats(&rig).piece_count, 5);
    check_read(&rig, &prompt);
    rig_reopen(&rig);
    assert_int_equal(store_stats(&rig).piece_count, 5);
    check_read(&rig, &prompt);
    assert_int_equal(sc_store_checkpoint(rig.conn->store, NULL), SPEC_OK);
    check_read(&rig, &prompt);
    rig_reopen(&rig);
    check_read(&rig, &prompt);
    rig_pass_ns(&rig, 2000 * MS); /* the old ones' pages are others' */
    assert_int_equal(sc_store_checkpoint(rig.conn->store, NULL), SPEC_OK);
    rig_reopen(&rig);
    assert_int_equal(store_stats(&rig).piece_count, 5);
    assert_int_equal(store_stats(&rig).corrupt_records, 0);
    check_read(&rig, &prompt);
    rig_end(&rig, &prompt);
}

/* The ends of several prompts, whose requests end while others decode and all at once. */
static void ends_are_merged_whenever_their_requests_end(void **state)
{
    (void)state;
    struct rig rig;
    struct spec_lookup_result results[6];
    struct prompt prompts[6];
    rig_init(&rig, true, CHUNKS);
    rig_open(&rig);
    for (uint64_t i = 0; i < 6; i++) {
        prompts[i] = rig_prompt(20 + i, 0, 0, 10);
        results[i] = rig_lookup(&rig, &prompts[i]);
        decode(&rig, results[i].request, &prompts[i], 0, 10);
    }
    for (uint64_t i = 0; i < 6; i++) {
        rig_release(&rig, results[i].request);
        if (i < 2)
            settle(&rig);
    }
    settle(&rig);
    assert_int_equal(merged(&rig), 6);
    assert_int_equal(store_stats(&rig).piece_count, 6);
    for (uint64_t i = 0; i < 6; i++) {
        check_read(&rig, &prompts[i]);
        rig_prompt_free(&prompts[i]);
    }
    rig_done(&rig);
}

/* Whole chunks leave nothing to be merged, and cost nothing. */
static void whole_chunks_are_left_alone(void **state)
{
    (void)state;
    struct rig rig;
    struct prompt prompt = rig_prompt(2, 1000, 0, 8 * CHUNK);
    rig_begin(&rig, true, CHUNKS);
    assert_int_equal(rig_fill(&rig, &prompt), SPEC_OK);
    settle(&rig);
    assert_null(rig.conn->compaction.job);
    struct prompt longer = rig_prompt(2, 1000, 0, 9 * CHUNK - 8);
    converse(&rig, &longer, 9 * CHUNK - 8); /* half a chunk, */
    settle(&rig);
    assert_null(rig.conn->compaction.job);
    rig_prompt_free(&longer);
    longer = rig_prompt(2, 1000, 0, 9 * CHUNK);
    converse(&rig, &longer, 9 * CHUNK); /* and the other: two pieces, which are too few */
    settle(&rig);
    assert_int_equal(merged(&rig), 0);
    assert_int_equal(store_stats(&rig).piece_count, 8 + 2);
    check_read(&rig, &longer);
    rig_end(&rig, &prompt, &longer);
}

/* In every layout, with rows that are no multiple of anything, probe keys, codes, and marks. */
static void rows_of_every_kind_are_merged(void **state)
{
    (void)state;
    static const char *const EXTRA[] = {
        CHUNKS ", \"store\": {\"layout\": \"split\"}",
        CHUNKS ", \"select\": {\"probe_heads\": 1}",
        CHUNKS ", \"store\": {\"layout\": \"split\"}, \"select\": {\"probe_heads\": 1}",
        CHUNKS ", \"select\": {\"base\": \"quantised\"}",
        CHUNKS ", \"store\": {\"layout\": \"split\"}, \"select\": {\"base\": \"quantised\"}",
    };
    for (uint32_t i = 0; i < sizeof(EXTRA) / sizeof(EXTRA[0]); i++) {
        struct rig rig;
        struct prompt prompt = rig_prompt(3, 1000, 0, 5 * CHUNK + 3);
        rig_begin_shape(&rig, true, EXTRA[i], 5, 3, 10, SPEC_DTYPE_F16);
        converse(&rig, &prompt, CHUNK + 7);
        settle(&rig);
        assert_int_equal(merged(&rig), 4); /* the second chunk's end, and those behind it */
        assert_int_equal(store_stats(&rig).piece_count, 5 + 3);
        if (i < 3)
            check_read(&rig, &prompt);
        rig_reopen(&rig);
        struct spec_lookup_result result = rig_lookup(&rig, &prompt);
        assert_int_equal(result.matched_tokens, prompt.count);
        rig_release(&rig, result.request);
        if (i < 3)
            check_read(&rig, &prompt);
        rig_end(&rig, &prompt);
    }
}

/* Another prompt stored the first 40 rows of a piece while that piece was written, so the merge
 * skips them. A split layout has all K before all V, so they are read too, and the buffer needs
 * room for them: rows are so large that its least size does not do. */
static void a_piece_with_skipped_leading_rows_is_merged(void **state)
{
    (void)state;
    static const char *const EXTRA[] = {
        "\"chunk_tokens\": 64, \"lease_ns_max\": 1000000000",
        "\"chunk_tokens\": 64, \"lease_ns_max\": 1000000000, \"store\": {\"layout\": \"split\"}"};
    for (uint32_t i = 0; i < 2; i++) {
        struct rig rig;
        struct prompt prompt = rig_prompt(18, 40, 0, 64), other = rig_prompt(18, 40, 1, 44);
        rig_init(&rig, true, EXTRA[i]);
        rig_shape(&rig, 2, 8, 128, SPEC_DTYPE_F32); /* 8 KiB a row */
        rig_open(&rig);
        struct spec_lookup_result result = rig_lookup(&rig, &prompt);
        assert_int_equal(result.matched_tokens, 0);
        assert_int_equal(rig_fill(&rig, &other), SPEC_OK);
        assert_int_equal(rig_wait(&rig, rig_store(&rig, result.request, &prompt, 0, 60)), SPEC_OK);
        decode(&rig, result.request, &prompt, 60, 64);
        rig_release(&rig, result.request);
        settle(&rig);
        rig_pass_ns(&rig, 2000 * MS);
        assert_int_equal(merged(&rig), 1);
        assert_int_equal(store_stats(&rig).piece_count, 2); /* [0, 44) and [40, 64) */
        for (uint32_t round = 0; round < 2; round++) {
            check_read(&rig, &prompt);
            check_read(&rig, &other);
            rig_reopen(&rig);
        }
        assert_int_equal(store_stats(&rig).corrupt_rows, 0);
        rig_prompt_free(&prompt);
        rig_prompt_free(&other);
        rig_done(&rig);
    }
}

/* Decoded by one request that stays open: what a match has of segments and a load of operations. */
struct cost {
    uint64_t pieces, matched, segments, ops, log_bytes;
};

static struct cost cost_of(struct rig *rig, const struct prompt *prompt)
{
    struct spec_lookup_result result = rig_lookup(rig, prompt);
    struct sc_plugin_request *request = sc_plugin_request_find(rig->conn, result.request);
    struct sc_store_stats before = store_stats(rig);
    struct cost cost = {.pieces = before.piece_count,
                        .matched = result.matched_tokens,
                        .segments = request->range_count};
    assert_int_equal(rig_load(rig, result.request, prompt, 0, result.matched_tokens, 0), SPEC_OK);
    rig_release(rig, result.request);
    cost.ops = store_stats(rig).read_ops - before.read_ops;
    assert_int_equal(sc_store_checkpoint(rig->conn->store, NULL), SPEC_OK);
    cost.log_bytes = store_stats(rig).log_bytes;
    return cost;
}

#define DECODE "\"chunk_tokens\": 64, \"disk_bytes\": \"64MiB\", \"lease_ns_max\": 1000000000"
#define RECORD 1024u /* of an extent, a piece and its chunk's tokens: more than they take */

static void a_long_decode_is_few_pieces(void **state)
{
    (void)state;
    static const char *const EXTRA[] = {
        DECODE ", \"maintain\": {\"bytes_per_s\": 1}", /* nothing is merged */
        DECODE};
    struct cost costs[3];
    for (uint32_t i = 0; i < 2; i++) {
        struct rig rig;
        struct prompt prompt = rig_prompt(16, 1000, 0, 1000);
        rig_begin(&rig, true, EXTRA[i]);
        struct spec_lookup_result result = rig_lookup(&rig, &prompt);
        decode(&rig, result.request, &prompt, 0, prompt.count);
        rig_pass_ns(&rig, 3000 * MS);
        costs[i] = cost_of(&rig, &prompt);
        rig_release(&rig, result.request);
        rig_pass_ns(&rig, 3000 * MS);
        costs[2] = cost_of(&rig, &prompt); /* the request has ended */
        rig_end(&rig, &prompt);
    }
    for (uint32_t i = 0; i < 3; i++)
        print_message("1000 tokens: %u pieces, %u of them in a match of %u tokens; a layer is %u "
                      "operations; log %u bytes\n",
                      (unsigned)costs[i].pieces, (unsigned)costs[i].segments,
                      (unsigned)costs[i].matched, (unsigned)costs[i].ops,
                      (unsigned)costs[i].log_bytes);
    assert_int_equal(costs[0].pieces, 1000);
    assert_int_equal(costs[2].pieces, 16);
    assert_int_equal(costs[2].segments, 16);
    assert_int_equal(costs[2].matched, 1000);
    assert_true(costs[2].ops <= 16);
    assert_int_equal(costs[1].pieces, 15 + 40);
    assert_int_equal(costs[1].segments, 15 + 40);
    assert_int_equal(costs[1].matched, 1000);
    assert_true(costs[1].ops * 10 < costs[0].ops);
    assert_true(costs[1].log_bytes * 10 < costs[0].log_bytes);
    assert_true(costs[1].log_bytes < costs[1].pieces * RECORD); /* not a record a token */
    assert_true(costs[2].log_bytes < costs[2].pieces * RECORD);
}

/* ---- Who has the old pieces ------------------------------------------------------------------ */

static void load_all(struct rig *rig, spec_request request, const struct prompt *prompt,
                     uint64_t count)
{
    rig_load_all(rig, request, prompt, 0, count);
}

static void a_request_keeps_the_pieces_that_it_matched(void **state)
{
    (void)state;
    struct rig rig;
    struct prompt prompt = rig_prompt(4, 1000, 0, 2 * CHUNK);
    struct prompt before = rig_prompt(4, 1000, 0, CHUNK - 1);
    rig_begin(&rig, true, CHUNKS);
    struct spec_lookup_result decoder = rig_lookup(&rig, &prompt);
    decode(&rig, decoder.request, &prompt, 0, CHUNK - 1);
    struct spec_lookup_result holder = rig_lookup(&rig, &before);
    assert_int_equal(holder.matched_tokens, CHUNK - 1);
    load_all(&rig, holder.request, &before, CHUNK - 1);
    decode(&rig, decoder.request, &prompt, CHUNK - 1, CHUNK + 5);
    settle(&rig);
    assert_int_equal(merged(&rig), 1);
    assert_int_equal(store_stats(&rig).piece_count, CHUNK + 1 + 5); /* old and new */
    struct spec_lookup_result later = rig_lookup(&rig, &prompt);
    assert_int_equal(later.matched_tokens, CHUNK + 5);
    load_all(&rig, later.request, &prompt, CHUNK + 5);
    load_all(&rig, holder.request, &before, CHUNK - 1);
    rig_pass_ns(&rig, 3000 * MS); /* longer than any lease */
    load_all(&rig, holder.request, &before, CHUNK - 1);
    rig_release(&rig, holder.request);
    settle(&rig);
    assert_int_equal(store_stats(&rig).piece_count, 1 + 5); /* who matched later holds nothing up */
    load_all(&rig, later.request, &prompt, CHUNK + 5);
    rig_release(&rig, later.request);
    rig_release(&rig, decoder.request);
    check_read(&rig, &before);
    rig_end(&rig, &prompt, &before);
}

/* Its match is the first of the old pieces, and no other. */
static void a_request_keeps_the_one_piece_that_it_matched(void **state)
{
    (void)state;
    struct rig rig;
    struct prompt prompt = rig_prompt(4, 1000, 0, CHUNK + 1);
    struct prompt before = rig_prompt(4, 1000, 0, 1);
    rig_init(&rig, true, CHUNKS);
    rig_open(&rig);
    struct spec_lookup_result decoder = rig_lookup(&rig, &prompt);
    decode(&rig, decoder.request, &prompt, 0, 1);
    struct spec_lookup_result holder = rig_lookup(&rig, &before);
    assert_int_equal(holder.matched_tokens, 1);
    decode(&rig, decoder.request, &prompt, 1, CHUNK + 1);
    settle(&rig);
    assert_int_equal(merged(&rig), 1);
    assert_int_equal(store_stats(&rig).piece_count, CHUNK + 1 + 1); /* old and new */
    rig_pass_ns(&rig, 3000 * MS);                                   /* longer than any lease */
    load_all(&rig, holder.request, &before, 1);
    rig_release(&rig, holder.request);
    settle(&rig);
    assert_int_equal(store_stats(&rig).piece_count, 1 + 1);
    rig_release(&rig, decoder.request);
    rig_prompt_free(&prompt);
    rig_prompt_free(&before);
    rig_done(&rig);
}

/* Two chunks' old pieces wait, and those of the first go before those of the second. */
static void what_waits_behind_another_goes_in_its_turn(void **state)
{
    (void)state;
    struct rig rig;
    struct prompt prompt = rig_prompt(18, 1000, 0, 2 * CHUNK);
    struct prompt parts[] = {rig_prompt(18, 1000, 0, CHUNK - 1),
                             rig_prompt(18, 1000, 0, 2 * CHUNK - 1)};
    struct spec_lookup_result holders[2];
    rig_init(&rig, true, CHUNKS);
    rig_open(&rig);
    struct spec_lookup_result decoder = rig_lookup(&rig, &prompt);
    for (uint64_t i = 0, first = 0; i < 2; first = parts[i++].count) {
        decode(&rig, decoder.request, &prompt, first, parts[i].count);
        settle(&rig);
        assert_int_equal(merged(&rig), i);
        holders[i] = rig_lookup(&rig, &parts[i]);
        assert_int_equal(holders[i].matched_tokens, parts[i].count);
    }
    decode(&rig, decoder.request, &prompt, 2 * CHUNK - 1, 2 * CHUNK);
    settle(&rig);
    assert_int_equal(merged(&rig), 2);
    static const uint64_t LEFT[] = {2 * CHUNK + 2, CHUNK + 2, 2};
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(store_stats(&rig).piece_count, LEFT[i]);
        if (i < 2)
            rig_release(&rig, holders[i].request);
        settle(&rig);
    }
    check_read(&rig, &prompt);
    rig_release(&rig, decoder.request);
    rig_prompt_free(&prompt);
    for (uint32_t i = 0; i < 2; i++)
        rig_prompt_free(&parts[i]);
    rig_done(&rig);
}

/* The record of the new piece must last before the old ones go, whose pages others may take. */
static void old_pieces_stay_until_the_new_ones_record_lasts(void **state)
{
    (void)state;
    struct rig rig;
    struct prompt prompt = rig_prompt(15, 1000, 0, CHUNK);
    struct prompt before = rig_prompt(15, 1000, 0, CHUNK - 1);
    rig_init(&rig, true, CHUNKS);
    rig_open(&rig);
    struct spec_lookup_result decoder = rig_lookup(&rig, &prompt);
    decode(&rig, decoder.request, &prompt, 0, CHUNK - 1);
    struct spec_lookup_result holder = rig_lookup(&rig, &before);
    decode(&rig, decoder.request, &prompt, CHUNK - 1, CHUNK);
    settle(&rig);
    assert_int_equal(store_stats(&rig).piece_count, CHUNK + 1);
    sc_io_sim_fault_scope(rig.disk, "/log");
    sc_io_sim_fault_nth(rig.disk, SC_SIM_SYNC_EIO, 0);
    rig_release(&rig, holder.request);
    settle(&rig);
    assert_int_equal(sc_io_sim_fault_fired(rig.disk, SC_SIM_SYNC_EIO), 1);
    assert_int_equal(store_stats(&rig).piece_count, CHUNK + 1);
    sc_plugin_kick(rig.conn, SC_JOB_COMPACT);
    settle(&rig);
    assert_int_equal(store_stats(&rig).piece_count, 1);
    check_read(&rig, &prompt);
    rig_release(&rig, decoder.request);
    rig_prompt_free(&prompt);
    rig_prompt_free(&before);
    rig_done(&rig);
}

/* A peek reads of what it matched until its answer is written. */
static void a_peek_keeps_the_pieces_that_it_matched(void **state)
{
    (void)state;
    struct rig rig;
    struct prompt prompt = rig_prompt(14, 1000, 0, CHUNK + 1);
    struct spec_lookup_result peek;
    rig_begin(&rig, true, CHUNKS);
    struct spec_lookup_result decoder = rig_lookup(&rig, &prompt);
    decode(&rig, decoder.request, &prompt, 0, CHUNK - 1);
    struct sc_plugin_request *slot = sc_plugin_request_take_peek(rig.conn); /* as inside one */
    assert_non_null(slot);
    decode(&rig, decoder.request, &prompt, CHUNK - 1, CHUNK + 1);
    settle(&rig);
    assert_int_equal(merged(&rig), 1);
    assert_int_equal(store_stats(&rig).piece_count, CHUNK + 1 + 1); /* old and new */
    for (uint32_t i = 0; i < 100; i++) /* who peeks later holds nothing up, and ends no other */
        assert_int_equal(rig_peek(&rig, &prompt, 0, &peek), SPEC_OK);
    settle(&rig);
    assert_int_equal(store_stats(&rig).piece_count, CHUNK + 1 + 1);
    sc_plugin_request_unpin(rig.conn, slot);
    sc_plugin_request_unhold(slot);
    settle(&rig);
    assert_int_equal(store_stats(&rig).piece_count, 1 + 1);
    rig_release(&rig, decoder.request);
    check_read(&rig, &prompt);
    rig_end(&rig, &prompt);
}

/* A process that dies between: the old pieces are in the log beside the new one. */
static void what_waited_goes_with_the_next_open(void **state)
{
    (void)state;
    struct rig rig;
    struct prompt prompt = rig_prompt(5, 1000, 0, CHUNK);
    struct prompt before = rig_prompt(5, 1000, 0, CHUNK - 1);
    rig_begin(&rig, true, CHUNKS);
    struct spec_lookup_result decoder = rig_lookup(&rig, &prompt);
    decode(&rig, decoder.request, &prompt, 0, CHUNK - 1);
    struct spec_lookup_result holder = rig_lookup(&rig, &before);
    decode(&rig, decoder.request, &prompt, CHUNK - 1, CHUNK);
    settle(&rig);
    assert_int_equal(store_stats(&rig).piece_count, CHUNK + 1);
    struct sc_io_sim_disk *copy;
    assert_int_equal(sc_io_sim_disk_copy(rig.disk, &copy, NULL), SPEC_OK);
    rig_release(&rig, holder.request);
    rig_release(&rig, decoder.request);
    rig_close(&rig);
    sc_io_sim_disk_close(rig.disk);
    rig.disk = copy;
    rig_open(&rig);
    assert_int_equal(store_stats(&rig).piece_count, 1);
    check_read(&rig, &prompt);
    rig_end(&rig, &prompt, &before);
}

/* ---- What hangs on the chunk ----------------------------------------------------------------- */

/* Reopened with the old pieces' records and without: all that hung on the chunk is found. */
static void check_after(struct rig *rig, const struct prompt *prompts, uint32_t count)
{
    for (uint32_t round = 0; round < 4; round++) {
        for (uint32_t i = 0; i < count; i++)
            check_read(rig, &prompts[i]);
        assert_int_equal(store_stats(rig).corrupt_records, 0);
        if (round == 1)
            rig_pass_ns(rig, 2000 * MS);
        if (round > 0)
            assert_int_equal(sc_store_checkpoint(rig->conn->store, NULL), SPEC_OK);
        rig_reopen(rig);
    }
}

static void children_follow_in_every_log(void **state)
{
    (void)state;
    struct rig rig;
    struct prompt prompts[] = {rig_prompt(6, 1000, 0, CHUNK + 3), rig_prompt(6, 1000, 0, 80),
                               rig_prompt(6, CHUNK, 7, 90), rig_prompt(6, 40, 8, 77)};
    rig_begin(&rig, true, CHUNKS ", \"maintain\": {\"bytes_per_s\": \"1MiB\"}");
    converse(&rig, &prompts[0], 0); /* it is being merged for a third of a second, */
    for (uint32_t i = 1; i < 4; i++)
        converse(&rig, &prompts[i], prompts[i].count); /* while these come to hang on it */
    assert_int_equal(merged(&rig), 0);
    rig_pass_ns(&rig, 1000 * MS);
    settle(&rig);
    assert_int_equal(merged(&rig), 1); /* the next turn's prompt went on behind its first chunk */
    check_after(&rig, prompts, 4);
    rig_prompts_free_all(prompts, 4);
    rig_done(&rig);
}

/* What parts from the chunk and is older than its end stays where it hangs. */
static void a_branch_bounds_what_is_merged(void **state)
{
    (void)state;
    for (uint64_t parts = 0; parts <= CHUNK; parts++) {
        struct rig rig;
        struct prompt prompts[] = {rig_prompt(7, 1000, 0, 2 * CHUNK), rig_prompt(7, parts, 1, 40),
                                   rig_prompt(7, parts, 2, 30)};
        rig_begin(&rig, true, CHUNKS);
        struct spec_lookup_result result = rig_lookup(&rig, &prompts[0]);
        decode(&rig, result.request, &prompts[0], 0, CHUNK - 1);
        if (parts < CHUNK)
            converse(&rig, &prompts[1], 40);
        decode(&rig, result.request, &prompts[0], CHUNK - 1, 2 * CHUNK);
        rig_release(&rig, result.request);
        settle(&rig);
        uint64_t left = parts < CHUNK ? CHUNK - parts : CHUNK;
        assert_int_equal(merged(&rig), 1 + (left >= 4));
        if (parts == CHUNK)
            converse(&rig, &prompts[1], 40);
        converse(&rig, &prompts[2], 30); /* a younger one */
        check_after(&rig, prompts, 3);
        rig_prompts_free_all(prompts, 3);
        rig_done(&rig);
    }
}

/* A prompt's end waits for its request, and stays as it is when something has come to hang on it.
 */
static void an_end_is_merged_when_its_request_ends(void **state)
{
    (void)state;
    for (uint32_t turn = 0; turn < 3; turn++) {
        struct rig rig;
        struct prompt prompts[] = {rig_prompt(17, 1000, 0, 10), rig_prompt(17, 1000, 0, 50),
                                   rig_prompt(17, 5, 1, 20)};
        uint32_t count = turn == 2 ? 2 : 3; /* then nothing hangs but behind the end */
        rig_begin(&rig, true,
                  turn == 0 ? CHUNKS : CHUNKS ", \"maintain\": {\"bytes_per_s\": \"1MiB\"}");
        struct spec_lookup_result result = rig_lookup(&rig, &prompts[0]);
        decode(&rig, result.request, &prompts[0], 0, 10);
        settle(&rig);
        assert_int_equal(merged(&rig), 0);
        rig_release(&rig, result.request);
        if (turn == 0) {
            settle(&rig);
            assert_int_equal(merged(&rig), 1);
            assert_int_equal(store_stats(&rig).piece_count, 1);
            check_after(&rig, prompts, 1);
        }
        for (uint32_t i = 1; i < count; i++)
            converse(&rig, &prompts[i], prompts[i].count);
        rig_pass_ns(&rig, 5000 * MS);
        assert_int_equal(merged(&rig), 0);
        check_after(&rig, prompts, count);
        rig_prompts_free_all(prompts, 3);
        rig_done(&rig);
    }
}

/* What is computed on another worth is another piece. */
static void worth_is_not_mixed(void **state)
{
    (void)state;
    static const struct spec_provenance PRUNED = {
        .kind = SPEC_PROVENANCE_PRUNED, .retain_ppm = 250000, .metric = SPEC_METRIC_LAST};
    struct rig rig;
    struct prompt prompt = rig_prompt(8, 1000, 0, CHUNK);
    rig_begin(&rig, true, CHUNKS ", \"store\": {\"pruned\": \"yes\"}");
    struct spec_lookup_result result = rig_lookup(&rig, &prompt);
    decode(&rig, result.request, &prompt, 0, 6);
    struct sc_plugin_request *open = sc_plugin_request_find(rig.conn, result.request);
    sc_plugin_provenance_add(&open->delivered, &PRUNED);
    decode(&rig, result.request, &prompt, 6, CHUNK);
    rig_release(&rig, result.request);
    settle(&rig);
    assert_int_equal(merged(&rig), 1);
    assert_int_equal(store_stats(&rig).piece_count, 6 + 1);
    for (uint32_t round = 0; round < 2; round++) {
        result = rig_lookup(&rig, &prompt);
        assert_int_equal(result.matched_tokens, CHUNK);
        assert_int_equal(result.provenance.kind, SPEC_PROVENANCE_PRUNED);
        rig_release(&rig, result.request);
        check_read(&rig, &prompt);
        rig_reopen(&rig);
    }
    rig_end(&rig, &prompt);
}

/* ---- What comes in between ------------------------------------------------------------------- */

#define SLOW CHUNKS ", \"maintain\": {\"bytes_per_s\": \"64KiB\"}"

/* A chunk that is being merged. */
static void slow_open(struct rig *rig, struct prompt *prompt, uint64_t seed)
{
    *prompt = rig_prompt(seed, 1000, 0, CHUNK + 2);
    rig_begin(rig, true, SLOW);
    converse(rig, prompt, 0);
    rig_pass_ns(rig, 500 * MS);
    assert_int_equal(merged(rig), 0);
}

static void a_reset_ends_a_merge(void **state)
{
    (void)state;
    struct rig rig;
    struct prompt prompt;
    slow_open(&rig, &prompt, 9);
    assert_int_equal(sc_plugin_reset(rig.conn, NULL), SPEC_OK);
    rig_pass_ns(&rig, 60000 * MS);
    assert_int_equal(merged(&rig), 0);
    assert_int_equal(store_stats(&rig).piece_count, 0);
    converse(&rig, &prompt, 0); /* of the new epoch */
    rig_pass_ns(&rig, 60000 * MS);
    assert_int_equal(merged(&rig), 1);
    rig_reopen(&rig);
    assert_int_equal(store_stats(&rig).piece_count, 3);
    check_read(&rig, &prompt);
    rig_end(&rig, &prompt);
}

static void a_close_ends_a_merge(void **state)
{
    (void)state;
    struct rig rig;
    struct prompt prompt;
    slow_open(&rig, &prompt, 10);
    rig_reopen(&rig);
    assert_int_equal(store_stats(&rig).piece_count, CHUNK + 2);
    check_read(&rig, &prompt);
    struct sc_store_free_space room;
    sc_plugin_kick(rig.conn, SC_JOB_COMPACT);
    rig_pass_ns(&rig, 60000 * MS);
    assert_int_equal(merged(&rig), 1);
    sc_store_free_space(rig.conn->store, &room);
    assert_int_equal(room.quarantine_bytes, 0);
    check_read(&rig, &prompt);
    rig_end(&rig, &prompt);
}

/* A piece of them fails, or all go. */
static void what_goes_while_it_is_merged_is_not_merged(void **state)
{
    (void)state;
    for (uint32_t turn = 0; turn < 3; turn++) {
        struct rig rig;
        struct prompt prompt;
        slow_open(&rig, &prompt, 11);
        uint64_t mark = sc_store_piece_mark(rig.conn->store, 7);
        if (turn == 0) { /* what is below it goes with it */
            sc_plugin_piece_fail(rig.conn, sc_plugin_ref_of(mark), 7);
        } else if (turn == 1) {
            for (uint32_t i = 0; i < CHUNK; i++) {
                atomic_store(&rig.conn->evict.asked_runs, 64);
                sc_plugin_kick(rig.conn, SC_JOB_EVICT);
                rig_background(&rig);
            }
        } else {
            sc_store_piece_drop(rig.conn->store, 3); /* the table alone knows */
        }
        rig_pass_ns(&rig, 60000 * MS);
        assert_int_equal(merged(&rig), 0);
        spec_status status;
        uint64_t read = rig_read(&rig, &prompt, &status);
        assert_true(read == (turn == 0 ? 6 : turn == 1 ? 0 : UINT64_MAX));
        settle(&rig);
        assert_int_equal(rig_fill(&rig, &prompt), SPEC_OK);
        check_read(&rig, &prompt);
        rig_reopen(&rig);
        check_read(&rig, &prompt);
        rig_end(&rig, &prompt);
    }
}

/* ---- Faults and power cuts ------------------------------------------------------------------- */

/* A store whose chunk was decoded and not merged, all of it on the device; journal as of now. */
static void durable_open(struct rig *rig, const struct prompt *prompt)
{
    struct sc_io_sim_disk *copy;
    rig_init(rig, true, SLOW);
    sc_io_sim_disk_close(rig->disk);
    struct sc_io_sim_disk_params params = {.alloc = &rig->disk_alloc, .seed = 1, .journal = 2};
    assert_int_equal(sc_io_sim_disk_open(&params, &rig->disk, NULL), SPEC_OK);
    rig_open(rig);
    converse(rig, prompt, 0);
    assert_int_equal(merged(rig), 0);
    rig_close(rig);
    assert_int_equal(sc_io_sim_disk_copy(rig->disk, &copy, NULL), SPEC_OK);
    sc_io_sim_disk_close(rig->disk);
    rig->disk = copy;
    rig->extra = CHUNKS;
    rig_open(rig);
}

/* The connector's other life: what is found, and right; and how many pieces that life has. */
static uint64_t found_on(const struct rig *rig, struct sc_io_sim_disk *disk,
                         const struct prompt *prompt, uint64_t *ret_pieces)
{
    spec_status status;
    struct rig other;
    rig_beside(&other, rig, 0, 0);
    other.disk = disk;
    rig_open(&other);
    uint64_t found = rig_read(&other, prompt, &status);
    *ret_pieces = store_stats(&other).piece_count;
    rig_leave(&other);
    sc_io_sim_disk_close(disk);
    return found;
}

/* At any step of merging and dropping: a killed process leaves all of it, and so does a power cut
 * of what was on the device before. Once the old pieces are dropped, and their pages others' after
 * a lease, no power cut takes the record of the new one. */
static void nothing_is_lost_at_any_moment(void **state)
{
    (void)state;
    struct rig rig;
    struct prompt prompt = rig_prompt(12, 1000, 0, CHUNK + 4);
    durable_open(&rig, &prompt);
    uint64_t events = sc_io_sim_disk_events(rig.disk), steps = 0, pieces;
    sc_plugin_kick(rig.conn, SC_JOB_COMPACT);
    uint64_t last = 0;
    for (; store_stats(&rig).piece_count != 1 + 4; steps++) {
        assert_true(sc_exec_step_one(rig.conn->exec));
        assert_true(steps < 10000);
        uint64_t now = sc_io_sim_disk_events(rig.disk);
        if (now == last)
            continue;
        last = now;
        struct sc_io_sim_disk *copy;
        assert_int_equal(sc_io_sim_disk_copy(rig.disk, &copy, NULL), SPEC_OK);
        assert_int_equal(found_on(&rig, copy, &prompt, &pieces), prompt.count);
    }
    assert_int_equal(merged(&rig), 1);
    assert_int_equal(store_stats(&rig).piece_count, 1 + 4);
    uint64_t end = sc_io_sim_disk_events(rig.disk);
    assert_true(end >= events + 4); /* rows, record, sync, drops */
    for (uint64_t at = events; at <= end; at++)
        for (uint64_t seed = 0; seed < 12; seed++) {
            struct sc_io_sim_disk *cut;
            assert_int_equal(sc_io_sim_disk_fork(rig.disk, at, seed, &cut, NULL), SPEC_OK);
            assert_int_equal(found_on(&rig, cut, &prompt, &pieces), prompt.count);
            if (at >= last) /* with which they were dropped */
                assert_int_equal(pieces, 1 + 4);
        }
    check_read(&rig, &prompt);
    rig_end(&rig, &prompt);
}

/* The n-th of each kind fails while it is merged: the old pieces are read, or the new one. */
static void a_fault_leaves_the_one_or_the_other(void **state)
{
    (void)state;
    for (uint32_t kind = 0; kind < SC_FAULT_KINDS; kind++) {
        bool fired = true;
        uint64_t n = 0;
        for (; fired; n++) {
            struct rig rig;
            struct prompt prompt = rig_prompt(13, 1000, 0, CHUNK + 4);
            rig_begin(&rig, true, SLOW);
            converse(&rig, &prompt, 0);
            rig_close(&rig);
            rig.extra = CHUNKS;
            rig_open(&rig);
            sc_fault_arm(&rig.conn->fault, kind, n);
            sc_plugin_kick(rig.conn, SC_JOB_COMPACT);
            settle(&rig);
            fired = atomic_load(&rig.conn->fault.fired[kind]) > 0;
            sc_fault_init(&rig.conn->fault);
            check_read(&rig, &prompt);
            rig_pass_ns(&rig, 6000 * MS); /* a device that failed is asked again */
            for (uint32_t i = 0; i < 20; i++) {
                sc_plugin_kick(rig.conn, SC_JOB_COMPACT);
                settle(&rig);
            }
            check_read(&rig, &prompt);
            rig_reopen(&rig);
            check_read(&rig, &prompt);
            rig_end(&rig, &prompt);
        }
        print_message("fault kind %u: %u points\n", kind, (unsigned)n);
        assert_true(n > 1 || kind == SC_FAULT_RESERVE);
    }
}

/* ---- Other processes ------------------------------------------------------------------------- */

static spec_status attach(struct rig *rig, const struct spec_lookup_result *found,
                          struct spec_lookup_result *ret_result)
{
    return rig_attach(rig, found->lease, 0, ret_result);
}

static void a_reader_follows(void **state)
{
    (void)state;
    struct rig writer, reader;
    struct prompt prompt = rig_prompt(14, 1000, 0, 2 * CHUNK + 3);
    struct prompt before = rig_prompt(14, 1000, 0, CHUNK - 1);
    rig_begin(&writer, true, CHUNKS);
    rig_open_beside(&reader, &writer, SPEC_ROLE_READER, 0);
    struct spec_lookup_result decoder = rig_lookup(&writer, &prompt);
    decode(&writer, decoder.request, &prompt, 0, CHUNK - 1);
    rig_pass_ns(&reader, 60 * MS);
    struct spec_lookup_result held = rig_lookup(&reader, &before), lease, result;
    assert_int_equal(held.matched_tokens, CHUNK - 1);
    lease = rig_lookup(&writer, &before);
    rig_release(&writer, lease.request);
    decode(&writer, decoder.request, &prompt, CHUNK - 1, prompt.count);
    rig_release(&writer, decoder.request);
    settle(&writer);
    assert_int_equal(merged(&writer), 2);
    load_all(&reader, held.request, &before, CHUNK - 1);
    rig_pass_ns(&reader, 60 * MS); /* it knows of the merge, and of the drops */
    load_all(&reader, held.request, &before, CHUNK - 1); /* on its promise */
    check_read(&reader, &prompt);
    struct rig *rigs[] = {&writer, &reader};
    for (uint32_t i = 0; i < 2; i++) { /* a promise of before names tokens that are still there */
        assert_int_equal(attach(rigs[i], &lease, &result), SPEC_OK);
        assert_int_equal(result.matched_tokens, CHUNK - 1);
        load_all(rigs[i], result.request, &before, CHUNK - 1);
        rig_release(rigs[i], result.request);
    }
    rig_release(&reader, held.request);
    rig_pass_ns(&writer, 2000 * MS);
    assert_int_equal(sc_store_checkpoint(writer.conn->store, NULL), SPEC_OK);
    rig_pass_ns(&reader, 100 * MS); /* another log, without the old pieces */
    check_read(&reader, &prompt);
    rig_reopen(&reader);
    check_read(&reader, &prompt);
    rig_leave(&reader);
    rig_end(&writer, &prompt, &before);
}

static void a_rank_set_follows(void **state)
{
    (void)state;
    struct rig first, second;
    struct prompt prompt = rig_prompt(15, 1000, 0, 2 * CHUNK + 3);
    rig_init(&first, true, CHUNKS);
    first.rank_count = 2;
    rig_open(&first);
    rig_open_beside(&second, &first, SPEC_ROLE_WRITER, 1);
    struct rig *rigs[] = {&first, &second};
    for (uint32_t i = 0; i < 2; i++) {
        struct spec_lookup_result result = rig_lookup(rigs[i], &prompt);
        decode(rigs[i], result.request, &prompt, 0, prompt.count);
        rig_release(rigs[i], result.request);
        settle(rigs[i]);
        assert_int_equal(merged(rigs[i]), 2);
    }
    for (uint32_t round = 0; round < 3; round++) {
        for (uint32_t i = 0; i < 2; i++)
            rig_pass_ns(rigs[i], 100 * MS);
        for (uint32_t i = 0; i < 2; i++)
            check_read(rigs[i], &prompt);
        if (round == 0)
            rig_pass_ns(&first, 2000 * MS);
        for (uint32_t i = 0; i < 2; i++)
            assert_int_equal(sc_store_checkpoint(rigs[i]->conn->store, NULL), SPEC_OK);
    }
    rig_leave(&second);
    rig_end(&first, &prompt);
}

/* ---- Everything at once ---------------------------------------------------------------------- */

#define PROMPTS 12u

static void step(struct rig *rig, struct prompt *prompts, uint64_t word)
{
    struct prompt *prompt = &prompts[word % PROMPTS];
    uint64_t what = word / PROMPTS % 16, count = 1 + word / 256 % prompt->count;
    struct prompt part = {.count = count, .tokens = prompt->tokens, .history = prompt->history};
    struct spec_lookup_result result;
    spec_status status;
    if (what < 9) {
        assert_int_equal(rig_try_lookup(rig, &part, 0, RIG_MAX, &result), SPEC_OK);
        for (uint64_t p = result.matched_tokens; p < count; p++)
            if (rig_wait(rig, rig_store(rig, result.request, prompt, p, 1)) != SPEC_OK)
                break;
        rig_release(rig, result.request);
    } else if (what < 12) {
        (void)rig_read(rig, prompt, &status); /* asserts what it delivers */
    } else if (what == 12) {
        atomic_store(&rig->conn->evict.asked_runs, 1 + word / 4096 % 40);
        sc_plugin_kick(rig->conn, SC_JOB_EVICT);
    } else if (what == 13) {
        rig_pass_ns(rig, word / 4096 % 1500 * MS);
    } else if (what == 14) {
        (void)sc_store_checkpoint(rig->conn->store, NULL);
    } else if (word / 4096 % 4 == 0) {
        assert_int_equal(sc_plugin_reset(rig->conn, NULL), SPEC_OK);
    } else {
        rig_reopen(rig);
    }
}

static void whatever_happens_rows_are_right(void **state)
{
    (void)state;
    uint64_t chunks = 0;
    for (uint64_t seed = 1; seed <= 12; seed++) {
        struct rig rig;
        struct prompt prompts[PROMPTS];
        rig_begin(&rig, true, seed % 2 == 0 ? SLOW : CHUNKS);
        for (uint32_t i = 0; i < PROMPTS; i++)
            prompts[i] = rig_prompt(seed, rig_mix(seed * 99 + i) % 50, i, 40 + i * 3);
        for (uint64_t i = 0; i < 120; i++) {
            step(&rig, prompts, rig_mix(seed * 1000 + i));
            chunks += merged(&rig) > 0;
        }
        assert_int_equal(store_stats(&rig).corrupt_rows, 0);
        for (uint32_t i = 0; i < PROMPTS; i++) {
            assert_int_equal(rig_fill(&rig, &prompts[i]), SPEC_OK);
            check_read(&rig, &prompts[i]);
        }
        rig_reopen(&rig);
        for (uint32_t i = 0; i < PROMPTS; i++) {
            check_read(&rig, &prompts[i]);
            rig_prompt_free(&prompts[i]);
        }
        rig_done(&rig);
    }
    assert_true(chunks > 100);
}

/* Prompts that are decoded token by token, and read: merges whose pieces are in host memory. Their
 * objects are taken by annexes of codes next, which nobody keeps there. */
static void an_section_in_a_merges_object_keeps_nothing(void **state)
{
    (void)state;
    struct rig rig;
    struct sc_store_stats stats;
    rig_begin_shape(
        &rig, true,
        "\"layered\": {\"quantise\": \"yes\"}, \"chunk_tokens\": 16, \"segment_bytes\": \"4MiB\", "
        "\"host_bytes\": \"1MiB\", \"lease_ns_max\": 100000000, "
        "\"maintain\": {\"bytes_per_s\": 0}",
        3, 2, 64, SPEC_DTYPE_F16);
    for (uint64_t round = 0; round < 8; round++) {
        struct prompt decoded = rig_prompt(round, 0, 0, 40), part = decoded;
        struct prompt whole = rig_prompt(100 + round, 0, 0, 300);
        for (part.count = 1; part.count <= decoded.count; part.count++) {
            assert_int_equal(rig_fill(&rig, &part), SPEC_OK);
            assert_int_equal(rig_read(&rig, &part, NULL), part.count);
        }
        rig_pass_ns(&rig, 1000000000);
        rig_background(&rig);
        assert_int_equal(rig_fill(&rig, &whole), SPEC_OK);
        rig_pass_ns(&rig, 1000000000);
        rig_background(&rig);
        rig_prompts_free(&decoded, &whole);
    }
    assert_true(atomic_load(&rig.conn->stats.compacted_chunks) > 0);
    assert_int_equal(sc_plugin_reset(rig.conn, NULL), SPEC_OK);
    rig_pass_ns(&rig, 30000000000);
    rig_background(&rig);
    sc_store_stats(rig.conn->store, &stats);
    assert_int_equal(stats.host_bytes_used, 0);
    rig_done(&rig);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_section_in_a_merges_object_keeps_nothing),
        cmocka_unit_test(a_chunk_of_tokens_becomes_a_piece),
        cmocka_unit_test(ends_are_merged_whenever_their_requests_end),
        cmocka_unit_test(whole_chunks_are_left_alone),
        cmocka_unit_test(rows_of_every_kind_are_merged),
        cmocka_unit_test(a_piece_with_skipped_leading_rows_is_merged),
        cmocka_unit_test(a_long_decode_is_few_pieces),
        cmocka_unit_test(a_request_keeps_the_pieces_that_it_matched),
        cmocka_unit_test(a_request_keeps_the_one_piece_that_it_matched),
        cmocka_unit_test(what_waits_behind_another_goes_in_its_turn),
        cmocka_unit_test(old_pieces_stay_until_the_new_ones_record_lasts),
        cmocka_unit_test(a_peek_keeps_the_pieces_that_it_matched),
        cmocka_unit_test(what_waited_goes_with_the_next_open),
        cmocka_unit_test(children_follow_in_every_log),
        cmocka_unit_test(a_branch_bounds_what_is_merged),
        cmocka_unit_test(an_end_is_merged_when_its_request_ends),
        cmocka_unit_test(worth_is_not_mixed),
        cmocka_unit_test(a_reset_ends_a_merge),
        cmocka_unit_test(a_close_ends_a_merge),
        cmocka_unit_test(what_goes_while_it_is_merged_is_not_merged),
        cmocka_unit_test(nothing_is_lost_at_any_moment),
        cmocka_unit_test(a_fault_leaves_the_one_or_the_other),
        cmocka_unit_test(a_reader_follows),
        cmocka_unit_test(a_rank_set_follows),
        cmocka_unit_test(whatever_happens_rows_are_right),
    };
    return parts_run(argc, argv, tests, sizeof(tests) / sizeof(tests[0]));
}

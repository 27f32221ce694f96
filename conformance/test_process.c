/* test_process: several connectors over one store: readers, AUTO, rank sets, failed ranges:
 * ABI-016, 017, 028, 060, 229.
 *
 *   fx      writer of rank 0            beside[i]   readers, or writers of other ranks
 *
 * Connectors see each other after a delay, so fixture_await polls; forbidden outcomes are tested at
 * once. test_worker.c uses real processes. Threads, Tests: see fixture.h. */
#include "conformance/disk.h"
#include "conformance/suite.h"

#include <string.h>
#include <unistd.h>

/* ---- 016: readers ---- */

static void abi_016_readers_find_what_the_writer_stores(void **state)
{
    struct fixture *fx = *state;
    struct prompt whole = prompt_make(1000, 400);
    struct fixture readers[3];
    for (int i = 0; i < 3; i++) {
        readers[i] = fixture_beside(fx, SPEC_ROLE_READER);
        fixture_open(&readers[i]);
        assert_int_equal(fixture_stats(&readers[i]).role, SPEC_ROLE_READER);
    }
    assert_int_equal(fixture_stats(fx).role, SPEC_ROLE_WRITER);
    for (uint64_t count = 100; count <= 400; count += 100) {
        struct prompt part = prompt_diverge(&whole, count, count, 1);
        bool stored = fixture_store(fx, &part);
        for (int i = 0; i < 3 && stored; i++) {
            struct spec_lookup_result found = fixture_await(&readers[i], &part, count - 1);
            fixture_check_layers(&readers[i], &found, &part, 0);
            fixture_release(&readers[i], found.request);
        }
        prompt_free(&part);
    }
    for (int i = 0; i < 3; i++)
        fixture_close(&readers[i]);
    fixture_check(fx, &whole, 399);
    prompt_free(&whole);
}

static void abi_016_a_reader_stores_nothing(void **state)
{
    struct fixture *fx = *state;
    struct fixture reader = fixture_beside(fx, SPEC_ROLE_READER);
    fixture_open(&reader);
    struct prompt prompt = prompt_make(1001, 100);
    struct spec_lookup_result found = fixture_find(&reader, &prompt);
    spec_ticket ticket;
    assert_status(fixture_put(&reader, found.request, &prompt, 0, 100, 0, &ticket),
                  SPEC_E_UNSUPPORTED);
    assert_int_equal(ticket, 0);
    assert_ok(&reader, reader.api->store_abort(reader.conn, found.request, 0, &reader.error));
    fixture_release(&reader, found.request);
    bool stored = fixture_store(fx, &prompt); /* the writer is not hindered */
    fixture_check(fx, &prompt, stored ? 99 : 0);
    fixture_close(&reader);
    prompt_free(&prompt);
}

static void abi_016_a_reader_before_there_is_a_store_makes_nothing(void **state)
{
    struct fixture *fx = *state;
    struct fixture reader = fixture_beside(fx, SPEC_ROLE_READER);
    struct prompt prompt = prompt_make(1002, 200);
    fixture_open(&reader);
    fixture_check(&reader, &prompt, 0);
    assert_int_equal(access(fx->store, F_OK), -1);
    fixture_open(fx);
    bool stored = fixture_store(fx, &prompt);
    if (stored) {
        struct spec_lookup_result found = fixture_await(&reader, &prompt, 199);
        fixture_check_layers(&reader, &found, &prompt, 0);
        fixture_release(&reader, found.request);
    }
    fixture_close(&reader);
    prompt_free(&prompt);
}

static void abi_016_a_reader_outlives_its_writers(void **state)
{
    struct fixture *fx = *state;
    struct fixture reader = fixture_beside(fx, SPEC_ROLE_READER);
    fixture_open(&reader);
    for (uint64_t life = 0; life < 3; life++) { /* each may rewrite its log when it closes */
        struct prompt prompt = prompt_make(1003 + life, 300);
        bool stored = fixture_store(fx, &prompt);
        struct spec_lookup_result found = fixture_await(&reader, &prompt, stored ? 299 : 0);
        fixture_close(fx);
        fixture_check_layers(&reader, &found, &prompt, 0);
        fixture_release(&reader, found.request);
        fixture_open(fx);
        found = fixture_await(&reader, &prompt, stored ? 299 : 0);
        fixture_check_layers(&reader, &found, &prompt, 0);
        fixture_release(&reader, found.request);
        prompt_free(&prompt);
    }
    fixture_close(&reader);
}

/* ---- 017: AUTO ---- */

static void abi_017_auto_writes_alone_and_reads_beside_a_writer(void **state)
{
    struct fixture *fx = *state;
    struct prompt prompt = prompt_make(1010, 200);
    for (int round = 0; round < 2; round++) {
        struct fixture first = fixture_beside(fx, SPEC_ROLE_AUTO);
        struct fixture second = fixture_beside(fx, SPEC_ROLE_AUTO);
        fixture_open(&first);
        assert_int_equal(fixture_stats(&first).role, SPEC_ROLE_WRITER);
        bool stored = fixture_store(&first, &prompt);
        fixture_open(&second);
        assert_int_equal(fixture_stats(&second).role, SPEC_ROLE_READER);
        struct spec_lookup_result found = fixture_await(&second, &prompt, stored ? 199 : 0);
        fixture_check_layers(&second, &found, &prompt, 0);
        fixture_release(&second, found.request);
        fixture_close(&first);
        fixture_close(&second);
    }
    prompt_free(&prompt);
}

/* A request of the reader stays open while its connector becomes the writer. */
static void abi_229_an_auto_reader_takes_over(void **state)
{
    struct fixture *fx = *state;
    struct prompt prompt = prompt_make(2290, 200), later = prompt_make(2291, 150);
    struct fixture first = fixture_beside(fx, SPEC_ROLE_AUTO);
    struct fixture second = fixture_beside(fx, SPEC_ROLE_AUTO);
    struct fixture third = fixture_beside(fx, SPEC_ROLE_READER);
    fixture_open(&first);
    bool stored = fixture_store(&first, &prompt);
    fixture_open(&second);
    fixture_open(&third);
    assert_int_equal(fixture_stats(&second).role, SPEC_ROLE_READER);
    struct spec_lookup_result found = fixture_await(&second, &prompt, stored ? 199 : 0);
    fixture_close(&first);
    for (uint32_t tries = 0; fixture_stats(&second).role != SPEC_ROLE_WRITER;)
        if (!conf_wait(&tries))
            fail_msg("the second AUTO connector is a reader still");
    fixture_check_layers(&second, &found, &prompt, 0);
    fixture_release(&second, found.request);
    bool more = fixture_store_at_last(&second, &later);
    found = fixture_await(&third, &later, more ? 149 : 0);
    fixture_check_layers(&third, &found, &later, 0);
    fixture_release(&third, found.request);
    assert_int_equal(fixture_stats(&third).role, SPEC_ROLE_READER);
    fixture_close(&third);
    fixture_close(&second);
    prompt_free(&later);
    prompt_free(&prompt);
}

/* ---- 028: rank sets ---- */

static struct fixture rank_of(const struct fixture *fx, uint32_t rank, uint32_t rank_count,
                              uint32_t role)
{
    struct fixture of = fixture_beside(fx, role);
    of.rank = rank;
    of.rank_count = rank_count;
    of.model.tp_rank = rank;
    of.model.tp_size = rank_count;
    return of;
}

/* The prompt as a rank's rows are: other bytes in each. */
static struct prompt rows_of(const struct prompt *prompt, uint64_t count, uint32_t rank)
{
    struct prompt rows = prompt_diverge(prompt, count, count, 1);
    prompt_salt(&rows, 1 + rank);
    return rows;
}

static void abi_028_what_one_rank_lacks_is_not_promised(void **state)
{
    struct fixture *fx = *state;
    struct prompt prompt = prompt_make(1020, 300);
    struct prompt rows[2] = {rows_of(&prompt, 300, 0), rows_of(&prompt, 300, 1)};
    struct fixture ranks[2] = {rank_of(fx, 0, 2, SPEC_ROLE_WRITER),
                               rank_of(fx, 1, 2, SPEC_ROLE_WRITER)};
    fixture_open(&ranks[0]);
    bool all = fixture_store(&ranks[0], &rows[0]);
    fixture_check(&ranks[0], &rows[0], 0); /* the other rank has not begun */
    fixture_open(&ranks[1]);
    fixture_check(&ranks[0], &rows[0], 0);
    fixture_check(&ranks[1], &rows[1], 0);
    for (uint64_t count = 100; count <= 300; count += 100) {
        struct prompt part = rows_of(&prompt, count, 1);
        all = fixture_store(&ranks[1], &part) && all;
        for (uint32_t rank = 0; rank < 2 && all; rank++) {
            uint64_t expected = count < 300 ? count : 299;
            struct spec_lookup_result found = fixture_await(&ranks[rank], &rows[rank], expected);
            fixture_check_layers(&ranks[rank], &found, &rows[rank], 0);
            fixture_release(&ranks[rank], found.request);
        }
        prompt_free(&part);
    }
    for (uint32_t rank = 0; rank < 2; rank++) {
        fixture_close(&ranks[rank]);
        prompt_free(&rows[rank]);
    }
    prompt_free(&prompt);
}

static void abi_028_a_reader_of_a_rank_set_promises_the_minimum(void **state)
{
    struct fixture *fx = *state;
    static const uint64_t COUNTS[] = {290, 130, 210};
    struct prompt prompt = prompt_make(1021, 300);
    struct fixture ranks[3], readers[3];
    bool all = true;
    for (uint32_t rank = 0; rank < 3; rank++) {
        struct prompt part = rows_of(&prompt, COUNTS[rank], rank);
        ranks[rank] = rank_of(fx, rank, 3, SPEC_ROLE_WRITER);
        readers[rank] = rank_of(fx, rank, 3, SPEC_ROLE_READER);
        fixture_open(&ranks[rank]);
        fixture_open(&readers[rank]);
        all = fixture_store(&ranks[rank], &part) && all;
        prompt_free(&part);
    }
    for (uint32_t rank = 0; rank < 3; rank++) {
        struct prompt rows = rows_of(&prompt, 300, rank);
        struct spec_lookup_result found = fixture_await(&readers[rank], &rows, all ? 130 : 0);
        assert_in_range(found.matched_tokens, 0, 130);
        fixture_check_layers(&readers[rank], &found, &rows, 0);
        fixture_release(&readers[rank], found.request);
        fixture_close(&readers[rank]);
        prompt_free(&rows);
    }
    for (uint32_t rank = 0; rank < 3; rank++)
        fixture_close(&ranks[rank]);
    prompt_free(&prompt);
}

/* ---- 060: a failed range in other processes ---- */

static void abi_060_a_range_that_a_reader_found_broken_is_promised_nowhere(void **state)
{
    struct fixture *fx = *state;
    struct prompt prompt = prompt_make(1030, 300);
    struct fixture finder = fixture_beside(fx, SPEC_ROLE_READER);
    struct fixture other = fixture_beside(fx, SPEC_ROLE_READER);
    bool stored = fixture_store(fx, &prompt);
    fixture_open(&finder);
    fixture_open(&other);
    uint64_t expected = stored ? 299 : 0;
    struct spec_lookup_result found = fixture_await(&finder, &prompt, expected);
    fixture_release(&other, fixture_await(&other, &prompt, expected).request);
    uint64_t copies = disk_damage(fx, (struct disk_row){&prompt, 100, 1}, DISK_FLIP);
    uint64_t good = fixture_load_until_broken(&finder, &prompt, &found);
    assert_true(copies == 0 || good <= 100);
    fixture_release(&finder, found.request);
    found = fixture_find(&finder, &prompt); /* at once where it was found out */
    assert_in_range(found.matched_tokens, 0, good);
    fixture_release(&finder, found.request);
    fixture_await_gone(fx, &prompt, good);
    fixture_await_gone(&other, &prompt, good);
    stored = fixture_store(fx, &prompt); /* anew, and everybody finds it */
    struct fixture *const all[] = {fx, &finder, &other};
    for (int i = 0; i < 3; i++) {
        found = fixture_await(all[i], &prompt, stored ? 299 : good);
        assert_int_equal(fixture_load_until_broken(all[i], &prompt, &found), found.matched_tokens);
        fixture_release(all[i], found.request);
    }
    fixture_close(&finder);
    fixture_close(&other);
    fixture_reopen(fx);
    fixture_check(fx, &prompt, stored ? 299 : good);
    prompt_free(&prompt);
}

static void abi_060_a_range_that_the_writer_found_broken_is_promised_to_no_reader(void **state)
{
    struct fixture *fx = *state;
    struct prompt prompt = prompt_make(1031, 300);
    struct fixture reader = fixture_beside(fx, SPEC_ROLE_READER);
    bool stored = fixture_store(fx, &prompt);
    fixture_open(&reader);
    fixture_release(&reader, fixture_await(&reader, &prompt, stored ? 299 : 0).request);
    struct spec_lookup_result found = fixture_find(fx, &prompt);
    uint64_t copies = disk_damage(fx, (struct disk_row){&prompt, 200, 0}, DISK_FLIP);
    uint64_t good = fixture_load_until_broken(fx, &prompt, &found);
    assert_true(copies == 0 || good <= 200);
    fixture_release(fx, found.request);
    fixture_await_gone(&reader, &prompt, good);
    fixture_close(&reader);
    prompt_free(&prompt);
}

static void abi_060_a_range_that_broke_in_one_rank_is_promised_by_none(void **state)
{
    struct fixture *fx = *state;
    struct prompt prompt = prompt_make(1032, 300);
    struct prompt rows[2] = {rows_of(&prompt, 300, 0), rows_of(&prompt, 300, 1)};
    struct fixture ranks[2];
    bool all = true;
    for (uint32_t rank = 0; rank < 2; rank++) {
        ranks[rank] = rank_of(fx, rank, 2, SPEC_ROLE_WRITER);
        fixture_open(&ranks[rank]);
        all = fixture_store(&ranks[rank], &rows[rank]) && all;
    }
    fixture_release(&ranks[0], fixture_await(&ranks[0], &rows[0], all ? 299 : 0).request);
    struct spec_lookup_result found = fixture_await(&ranks[1], &rows[1], all ? 299 : 0);
    uint64_t copies = disk_damage(&ranks[1], (struct disk_row){&rows[1], 70, 2}, DISK_FLIP);
    uint64_t good = fixture_load_until_broken(&ranks[1], &rows[1], &found);
    assert_true(copies == 0 || good <= 70);
    fixture_release(&ranks[1], found.request);
    fixture_await_gone(&ranks[1], &rows[1], good);
    fixture_await_gone(&ranks[0], &rows[0], good);
    for (uint32_t rank = 0; rank < 2; rank++) {
        fixture_close(&ranks[rank]);
        prompt_free(&rows[rank]);
    }
    prompt_free(&prompt);
}

const struct conf_test CONF_PROCESS[] = {
    OPENED(abi_016_readers_find_what_the_writer_stores),
    OPENED(abi_016_a_reader_stores_nothing),
    BARE(abi_016_a_reader_before_there_is_a_store_makes_nothing),
    OPENED(abi_016_a_reader_outlives_its_writers),
    BARE(abi_017_auto_writes_alone_and_reads_beside_a_writer),
    BARE(abi_229_an_auto_reader_takes_over),
    BARE(abi_028_what_one_rank_lacks_is_not_promised),
    BARE(abi_028_a_reader_of_a_rank_set_promises_the_minimum),
    OPENED(abi_060_a_range_that_a_reader_found_broken_is_promised_nowhere),
    OPENED(abi_060_a_range_that_the_writer_found_broken_is_promised_to_no_reader),
    BARE(abi_060_a_range_that_broke_in_one_rank_is_promised_by_none),
    END,
};

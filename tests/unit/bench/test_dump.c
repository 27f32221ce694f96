/* Dumps: what is put is found again, of each entry, question, layer and list; ranks are shares of
 * the rows. */
#include "bench/dump.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { LAYERS = 2, HEADS = 4, KV_HEADS = 2, LISTS = HEADS + KV_HEADS };

static const struct bench_dump_entry ENTRIES[2] = {{.id = "a", .tokens = 7, .questions = 2},
                                                   {.id = "b", .tokens = 512, .questions = 1}};

/* The row that matters i-th in list `number` of all: another order for each. */
static uint32_t row_at(uint64_t number, uint64_t i, uint64_t tokens)
{
    return (uint32_t)((i + number) % tokens);
}

static void write_dump(const char *path)
{
    struct bench_dump_head head = {.magic = BENCH_DUMP_MAGIC,
                                   .source = "model, set",
                                   .layers = LAYERS,
                                   .heads = HEADS,
                                   .kv_heads = KV_HEADS,
                                   .entry_count = 2};
    uint32_t order[512];
    uint8_t scratch[512];
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    bench_dump_begin(file, &head, ENTRIES);
    uint64_t number = 0;
    for (uint64_t e = 0; e < 2; e++)
        for (uint64_t list = 0; list < ENTRIES[e].questions * LAYERS * LISTS; list++, number++) {
            for (uint64_t i = 0; i < ENTRIES[e].tokens; i++)
                order[i] = row_at(number, i, ENTRIES[e].tokens);
            bench_dump_put(file, order, ENTRIES[e].tokens, scratch);
        }
    assert_int_equal(fclose(file), 0);
}

static void read_back(struct bench_dump *ret_dump)
{
    char path[] = "/tmp/test_dump_XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(close(fd), 0);
    write_dump(path);
    bench_dump_read(ret_dump, path);
    assert_int_equal(unlink(path), 0);
}

static void every_list_is_found_where_it_belongs(void **state)
{
    struct bench_dump dump;
    (void)state;
    read_back(&dump);
    assert_string_equal(dump.head.source, "model, set");
    assert_string_equal(dump.entries[1].id, "b");
    uint64_t number = 0;
    for (uint64_t e = 0; e < 2; e++)
        for (uint64_t q = 0; q < ENTRIES[e].questions; q++)
            for (uint64_t layer = 0; layer < LAYERS; layer++)
                for (uint64_t list = 0; list < LISTS; list++, number++) {
                    const uint8_t *ranks = bench_dump_ranks(&dump, e, q, layer, list);
                    uint64_t tokens = ENTRIES[e].tokens;
                    for (uint64_t i = 0; i < tokens; i++)
                        assert_int_equal(ranks[row_at(number, i, tokens)], 255 - i * 256 / tokens);
                }
    bench_dump_done(&dump);
}

static void a_quarter_of_the_rows_are_those_from_192_on(void **state)
{
    struct bench_dump dump;
    (void)state;
    read_back(&dump);
    const uint8_t *ranks = bench_dump_ranks(&dump, 1, 0, 1, 3);
    uint64_t count = 0;
    for (uint64_t j = 0; j < 512; j++)
        count += ranks[j] >= 192;
    assert_int_equal(count, 128);
    bench_dump_done(&dump);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_list_is_found_where_it_belongs),
        cmocka_unit_test(a_quarter_of_the_rows_are_those_from_192_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

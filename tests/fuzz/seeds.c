/* Runs a target that fuzzes a log on logs made and bent by seeds: usage: PROGRAM FIRST COUNT. A
 * fuzzer without a fuzzer: in every build, and the same everywhere.
 *
 * Holds: of the logs that are made, more than a quarter bring pieces that are believed.
 * Threads: one.
 * Tests: it is one. */
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/mutate.h"

#include <inttypes.h>
#include <string.h>

#define ROOM (64u << 10)

/* Memory of exactly the input's size, so that ASan sees a read past its end. */
static void run(const uint8_t *data, size_t bytes)
{
    uint8_t *copy = malloc(bytes > 0 ? bytes : 1);
    FUZZ_CHECK(copy != NULL);
    memcpy(copy, data, bytes);
    LLVMFuzzerTestOneInput(copy, bytes);
    free(copy);
}

int main(int argc, char **argv)
{
    fuzz_keep_memory();
    static uint8_t bytes[ROOM];
    uint64_t first = argc == 3 ? strtoull(argv[1], NULL, 10) : 0;
    uint64_t count = argc == 3 ? strtoull(argv[2], NULL, 10) : 0;
    uint64_t accepted = 0;
    if (count == 0) {
        fprintf(stderr, "usage: %s FIRST COUNT (of seeds)\n", argv[0]);
        return 2;
    }
    for (uint64_t seed = first; seed < first + count; seed++) {
        size_t used = fuzz_log_make(fuzz_form(), seed, bytes, sizeof(bytes));
        if (seed % 4 > 0)
            used = fuzz_log_bend(fuzz_form(), seed, bytes, used, sizeof(bytes));
        if (getenv("FUZZ_SAVE") != NULL) { /* the last one, for a corpus */
            FILE *file = fopen(getenv("FUZZ_SAVE"), "wb");
            FUZZ_CHECK(file != NULL && fwrite(bytes, 1, used, file) == used);
            fclose(file);
        }
        run(bytes, used);
        accepted += fuzz_was_accepted != 0;
    }
    printf("%" PRIu64 " logs, %" PRIu64 " with pieces that were believed\n", count, accepted);
    return accepted > count / 4 ? 0 : 1;
}

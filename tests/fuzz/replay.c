/* Replays a corpus through a fuzz target: usage: PROGRAM CORPUS_DIR. Every build runs this, so what
 * a fuzzer once found stays found.
 *
 * Holds: an empty or missing corpus is a failure; so is an ok-* that is refused or a bad-* that is
 * accepted; every prefix of an ok-* is an input too (of sanitized builds every 16th).
 * Threads: one.
 * Tests: it is one. */
#include "tests/fuzz/fuzz.h"
#include "tests/sample.h"

#include <dirent.h>
#include <stdbool.h>
#include <string.h>

#define INPUT_BYTES_MAX (1u << 20)
#define EVERY           SAMPLE_OF(1u, 16u) /* one prefix of so many: each opens four stores */

static bool read_file(const char *path, uint8_t *buffer, size_t *ret_bytes)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        return false;
    *ret_bytes = fread(buffer, 1, INPUT_BYTES_MAX, file);
    bool is_whole = feof(file) != 0 && ferror(file) == 0;
    fclose(file);
    return is_whole;
}

/* The target gets memory of exactly the input's size, so that ASan sees a read past its end. */
static void run(const uint8_t *data, size_t bytes)
{
    uint8_t *copy = malloc(bytes > 0 ? bytes : 1);
    FUZZ_CHECK(copy != NULL);
    memcpy(copy, data, bytes);
    LLVMFuzzerTestOneInput(copy, bytes);
    free(copy);
}

/* Returns whether the file did what its name promises. */
static bool replay(const char *directory, const char *name, uint8_t *buffer)
{
    char path[4096];
    size_t bytes = 0;
    snprintf(path, sizeof(path), "%s/%s", directory, name);
    if (!read_file(path, buffer, &bytes)) {
        fprintf(stderr, "%s: cannot read, or larger than %u bytes\n", path, INPUT_BYTES_MAX);
        return false;
    }
    bool must_pass = strncmp(name, "ok-", 3) == 0, must_fail = strncmp(name, "bad-", 4) == 0;
    run(buffer, bytes);
    bool was_accepted = fuzz_was_accepted != 0;
    for (size_t cut = 0; must_pass && cut < bytes && bytes <= 4096; cut += EVERY)
        run(buffer, cut);
    if ((must_pass && !was_accepted) || (must_fail && was_accepted)) {
        fprintf(stderr, "%s: was %s\n", path, was_accepted ? "accepted" : "refused");
        return false;
    }
    return true;
}

int main(int argc, char **argv)
{
    fuzz_keep_memory();
    DIR *directory = argc == 2 ? opendir(argv[1]) : NULL;
    uint8_t *buffer = malloc(INPUT_BYTES_MAX);
    uint32_t count = 0, failed = 0;
    if (directory == NULL || buffer == NULL) {
        fprintf(stderr, "usage: %s CORPUS_DIR (which must exist)\n", argv[0]);
        return 2;
    }
    for (struct dirent *entry = readdir(directory); entry != NULL; entry = readdir(directory)) {
        if (entry->d_name[0] == '.')
            continue;
        count++;
        failed += !replay(argv[1], entry->d_name, buffer);
    }
    closedir(directory);
    free(buffer);
    printf("%u inputs, %u failed\n", count, failed);
    return count > 0 && failed == 0 ? 0 : 1;
}

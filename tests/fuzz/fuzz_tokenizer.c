/* Fuzz target of the tokenizers (libFuzzer's entry): files and texts from outside never crash.
 *
 *   input  | which u8 | bytes |
 *   which % 5   0 vocab.json, 1 merges.txt, 2 tokenizer.json, 3 tok512.bin: the file is the bytes,
 *               the other files are good small ones
 *               4: the files are good, the bytes are a text
 *
 * Holds: what opens also encodes, and whatever encode gave is decoded; a refusal has a text and
 *   gives no tokenizer.
 * Does not: keep files; they stand in one directory under the working directory, made once.
 * Threads: one.
 * Tests: with SC_FUZZ_REPLAY it is a plain program that runs corpus/tokenizer, as ctest does; for
 *   the fuzzer: clang -fsanitize=fuzzer,address,undefined, this file and the engine's tokenizers.
 */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "conformance/engine/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static const char *const names[4] = {"vocab.json", "merges.txt", "tokenizer.json", "tok512.bin"};
static const char good_vocab[] = "{\"a\":0,\"b\":1,\"ab\":2,\"\xC4\xA0\":3,\"1\":4,\"abab\":6}";
static const char good_merges[] = "#version: 0.2\na b\nab ab\n";
static const char good_settings[] =
    "{\"added_tokens\":[{\"id\":9,\"content\":\"<s>\"}],\"pre_tokenizer\":{\"type\":\"Sequence\","
    "\"pretokenizers\":[{\"type\":\"Digits\",\"individual_digits\":true},{\"type\":\"ByteLevel\","
    "\"add_prefix_space\":false,\"use_regex\":true}]},\"model\":{\"type\":\"BPE\"}}";

static char dir[32];

static void put(const char *name, const void *data, size_t bytes)
{
    char path[64];
    (void)snprintf(path, sizeof(path), "%s/%s", dir, name);
    FILE *file = fopen(path, "wb");
    if (file == NULL || fwrite(data, 1, bytes, file) != bytes || fclose(file) != 0)
        abort(); /* no room for the file: the run means nothing */
}

static void put_good(void)
{
    put(names[0], good_vocab, sizeof(good_vocab) - 1);
    put(names[1], good_merges, sizeof(good_merges) - 1);
    put(names[2], good_settings, sizeof(good_settings) - 1);
}

static void use(const struct eng_tokenizer *tokenizer, const uint8_t *data, size_t bytes)
{
    uint32_t *ids = NULL;
    uint64_t count = 0;
    char *text = NULL;
    struct eng_error error;
    if (eng_tokenizer_encode(tokenizer, (const char *)data, bytes, &ids, &count, &error) != ENG_OK)
        return;
    if (eng_tokenizer_decode(tokenizer, ids, count, &text, NULL, &error) != ENG_OK)
        abort(); /* an id that encode gave has a text */
    free(text);
    free(ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    if (bytes == 0)
        return 0;
    if (dir[0] == '\0') {
        (void)snprintf(dir, sizeof(dir), "fuzz-tokenizer-XXXXXX");
        if (mkdtemp(dir) == NULL)
            abort();
    }
    unsigned which = data[0] % 5;
    for (int i = 0; i < 4; i++) {
        char path[64];
        (void)snprintf(path, sizeof(path), "%s/%s", dir, names[i]);
        (void)unlink(path);
    }
    if (which != 3)
        put_good();
    if (which < 4)
        put(names[which], data + 1, bytes - 1);
    struct eng_tokenizer *tokenizer = NULL;
    struct eng_error error = {0};
    if (eng_tokenizer_open(dir, &tokenizer, &error) != ENG_OK) {
        if (error.text[0] == '\0' || tokenizer != NULL)
            abort(); /* an error says why, and gives nothing */
        return 0;
    }
    static const uint8_t sample[] = "ab abab 11\xC2\xBD a's \n\n x";
    use(tokenizer, sample, sizeof(sample) - 1);
    use(tokenizer, data + 1, bytes - 1);
    eng_tokenizer_close(tokenizer);
    return 0;
}

#ifdef SC_FUZZ_REPLAY
static int is_input(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

int main(void)
{
    static uint8_t data[1 << 16];
    struct dirent **entries = NULL;
    const char *corpus = SC_SOURCE_DIR "/tests/fuzz/corpus/tokenizer";
    int count = scandir(corpus, &entries, is_input, alphasort);
    for (int i = 0; i < count; i++) {
        char path[1024];
        (void)snprintf(path, sizeof(path), "%s/%s", corpus, entries[i]->d_name);
        free(entries[i]);
        FILE *file = fopen(path, "rb");
        if (file == NULL)
            return 1;
        size_t bytes = fread(data, 1, sizeof(data), file);
        (void)fclose(file);
        (void)LLVMFuzzerTestOneInput(data, bytes);
    }
    free(entries);
    for (int i = 0; i < 4 && dir[0] != '\0'; i++) {
        char path[64];
        (void)snprintf(path, sizeof(path), "%s/%s", dir, names[i]);
        (void)unlink(path);
    }
    (void)printf("%d inputs\n", count);
    return count < 10 || rmdir(dir) != 0; /* a corpus that was not found tests nothing */
}
#endif

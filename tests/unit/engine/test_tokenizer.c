/* Tokenizers: ids equal those of Hugging Face's tokenizers, every character has its class, and each
 * broken file is one clear error.
 *
 * Cases are JSON lines {"text", "ids"}: tests/data/bpe (ours, always there) and ../shared/golden
 * (real vocabularies; skipped where absent).
 *
 * Holds: every text that is encoded is decoded too, and must come back where it can.
 * Threads: one.
 */
#include "conformance/engine/tokenizer.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <json-c/json.h>

#include "conformance/engine/tokenizer_parts.h"
#include "conformance/engine/unicode.h"

#define DATA   SC_SOURCE_DIR "/tests/data/bpe/"
#define SHARED SC_SHARED_DIR "/"

static struct eng_tokenizer *open_good(const char *dir)
{
    struct eng_tokenizer *tokenizer = NULL;
    struct eng_error error = {0};
    if (eng_tokenizer_open(dir, &tokenizer, &error) != ENG_OK)
        fail_msg("%s", error.text);
    return tokenizer;
}

/* ---- equal ids ---- */

struct tally {
    uint64_t lines, lossy; /* lossy: the text did not come back from its ids */
};

static void check_line(const struct eng_tokenizer *tokenizer, const char *path, const char *line,
                       struct tally *tally)
{
    struct json_object *row = json_tokener_parse(line);
    struct json_object *text_value = NULL;
    struct json_object *want = NULL;
    assert_non_null(row);
    assert_true(json_object_object_get_ex(row, "text", &text_value));
    assert_true(json_object_object_get_ex(row, "ids", &want));
    const char *text = json_object_get_string(text_value);
    uint64_t text_bytes = (uint64_t)json_object_get_string_len(text_value);
    uint32_t *ids = NULL;
    uint64_t count = UINT64_MAX;
    struct eng_error error = {0};
    if (eng_tokenizer_encode(tokenizer, text, text_bytes, &ids, &count, &error) != ENG_OK)
        fail_msg("%s: %s in %s", path, error.text, line);
    if (count != json_object_array_length(want))
        fail_msg("%s: %" PRIu64 " ids, expected %zu: %s", path, count,
                 json_object_array_length(want), line);
    for (uint64_t i = 0; i < count; i++) {
        int64_t id = json_object_get_int64(json_object_array_get_idx(want, i));
        if (id != (int64_t)ids[i])
            fail_msg("%s: id %" PRIu64 " is %" PRIu32 ", expected %" PRId64 ": %s", path, i, ids[i],
                     id, line);
        assert_true(ids[i] < eng_tokenizer_vocab_count(tokenizer));
    }
    char *back = NULL;
    uint64_t back_bytes = UINT64_MAX;
    assert_int_equal(eng_tokenizer_decode(tokenizer, ids, count, &back, &back_bytes, &error),
                     ENG_OK);
    tally->lossy += back_bytes != text_bytes || memcmp(back, text, text_bytes) != 0;
    tally->lines++;
    free(back);
    free(ids);
    json_object_put(row);
}

static struct tally check_cases(const char *dir, const char *path)
{
    struct tally tally = {0};
    if (access(path, R_OK) != 0 || access(dir, R_OK) != 0) {
        print_message("skipped: %s or %s is absent\n", dir, path);
        skip();
    }
    struct eng_tokenizer *tokenizer = open_good(dir);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    char *line = NULL;
    size_t cap = 0;
    while (getline(&line, &cap, file) > 0)
        check_line(tokenizer, path, line, &tally);
    free(line);
    (void)fclose(file);
    eng_tokenizer_close(tokenizer);
    return tally;
}

static void ids_of_our_gpt2_cases_are_equal(void **state)
{
    (void)state;
    struct tally tally = check_cases(DATA "gpt2", DATA "gpt2/cases.jsonl");
    assert_int_equal(tally.lines, 207);
    assert_int_equal(tally.lossy, 0);
}

static void ids_of_our_digit_cases_are_equal(void **state)
{
    (void)state;
    struct tally tally = check_cases(DATA "digits", DATA "digits/cases.jsonl");
    assert_int_equal(tally.lines, 207);
    assert_in_range(tally.lossy, 1, 20); /* those with a byte that has no symbol */
}

static void ids_of_our_word_cases_are_equal(void **state)
{
    (void)state;
    assert_int_equal(check_cases(DATA "words", DATA "words/cases.jsonl").lines, 207);
}

static void ids_of_tok512_cases_are_equal(void **state)
{
    (void)state;
    struct tally tally = check_cases(SC_SOURCE_DIR "/models/stories260K", DATA "tok512.jsonl");
    assert_int_equal(tally.lines, 207);
    assert_int_equal(tally.lossy, 0);
}

static void golden_opt_ids_are_equal(void **state)
{
    (void)state;
    struct tally tally = check_cases(SHARED "data/tokenizers/opt", SHARED "golden/bpe-opt.jsonl");
    assert_int_equal(tally.lines, 300);
    assert_int_equal(tally.lossy, 0);
}

static void golden_tinychat_ids_are_equal(void **state)
{
    (void)state;
    struct tally tally =
        check_cases(SHARED "data/models/tinychat-opt", SHARED "golden/bpe-tinychat.jsonl");
    assert_int_equal(tally.lines, 150);
    assert_int_equal(tally.lossy, 0);
}

static void golden_smollm2_ids_are_equal(void **state)
{
    (void)state;
    const char *dir = getenv("SC_SMOLLM2_DIR");
    if (dir == NULL)
        dir = SC_SOURCE_DIR "/build/models/smollm2";
    struct tally tally = check_cases(dir, SHARED "golden/bpe-smollm2.jsonl");
    assert_int_equal(tally.lines, 200);
    assert_int_equal(tally.lossy, 0);
}

static void opt_recall_words_have_their_ids(void **state)
{
    (void)state;
    struct eng_tokenizer *tokenizer = open_good(SC_SOURCE_DIR "/models/opt-recall");
    assert_int_equal(eng_tokenizer_vocab_count(tokenizer), 1024);
    const char *text = " </s> Miss\n aunt unheard-of ?Miss ? ";
    const uint32_t want[] = {2, 16, 1023, 3, 3, 4};
    uint32_t *ids = NULL;
    uint64_t count = 0;
    assert_int_equal(eng_tokenizer_encode(tokenizer, text, strlen(text), &ids, &count, NULL), 0);
    assert_int_equal(count, 6);
    assert_memory_equal(ids, want, sizeof(want));
    char *back = NULL;
    assert_int_equal(eng_tokenizer_decode(tokenizer, ids, count, &back, NULL, NULL), ENG_OK);
    assert_string_equal(back, "</s> Miss aunt <unk> <unk> ?");
    free(back);
    free(ids);
    eng_tokenizer_close(tokenizer);
}

/* ---- characters ---- */

static void every_character_has_its_class(void **state)
{
    (void)state;
    uint8_t *want = calloc(0x110000, 1); /* low nibble: class, 0x10: digit */
    FILE *file = fopen(DATA "classes.txt", "r");
    assert_non_null(want);
    assert_non_null(file);
    char kind;
    uint32_t first;
    uint32_t last;
    uint64_t rows = 0;
    while (fscanf(file, " %c %" SCNx32 " %" SCNx32, &kind, &first, &last) == 3) {
        assert_true(first <= last && last < 0x110000);
        uint8_t mark = kind == 'L'   ? ENG_UNICODE_LETTER
                       : kind == 'N' ? ENG_UNICODE_NUMBER
                       : kind == 'S' ? ENG_UNICODE_SPACE
                                     : 0x10;
        for (uint32_t c = first; c <= last; c++)
            want[c] |= mark;
        rows++;
    }
    (void)fclose(file);
    assert_true(rows > 900);
    for (uint32_t c = 0; c < 0x110000; c++) {
        if (c >= 0xD800 && c < 0xE000)
            continue;
        if (eng_unicode_classify(c) != (want[c] & 0xF) ||
            eng_unicode_is_digit(c) != (want[c] >= 0x10))
            fail_msg("U+%04" PRIX32 ": class %d, digit %d, expected %d", c,
                     (int)eng_unicode_classify(c), (int)eng_unicode_is_digit(c), want[c]);
    }
    free(want);
}

/* Encodes a character by its definition; for checking the decoder. */
static uint64_t utf8_put(uint32_t c, char *text)
{
    uint64_t count = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    static const uint8_t lead[5] = {0, 0, 0xC0, 0xE0, 0xF0};
    for (uint64_t i = count; i-- > 1; c >>= 6)
        text[i] = (char)(0x80 | (c & 0x3F));
    text[0] = (char)(lead[count] | c);
    return count;
}

static void utf8_takes_all_characters_and_nothing_else(void **state)
{
    (void)state;
    for (uint32_t c = 0; c < 0x110000; c++) {
        char text[4];
        uint64_t bytes = utf8_put(c, text);
        bool surrogate = c >= 0xD800 && c < 0xE000;
        assert_int_equal(eng_utf8_valid_bytes(text, bytes), surrogate ? 0 : bytes);
        assert_int_equal(eng_utf8_valid_bytes(text, bytes - 1), 0); /* cut short */
        uint64_t at = 0;
        if (!surrogate)
            assert_int_equal(eng_utf8_next(text, &at), c);
        assert_int_equal(at, surrogate ? 0 : bytes);
    }
    static const char *const bad[] = {"\x80",
                                      "\xC0\x80",
                                      "\xC1\xBF",
                                      "\xE0\x9F\xBF",
                                      "\xF0\x8F\xBF\xBF",
                                      "\xF4\x90\x80\x80",
                                      "\xF5\x80",
                                      "\xFF",
                                      "\xE2\x28\xA1",
                                      "\xED\xA0\x80"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_int_equal(eng_utf8_valid_bytes(bad[i], strlen(bad[i])), 0);
}

static void a_text_that_is_not_utf8_is_refused_with_its_byte(void **state)
{
    (void)state;
    struct eng_tokenizer *tokenizer = open_good(DATA "gpt2");
    uint32_t *ids = NULL;
    uint64_t count = 77;
    struct eng_error error = {0};
    assert_int_equal(eng_tokenizer_encode(tokenizer, "ab\xC3(", 4, &ids, &count, &error),
                     ENG_E_INPUT);
    assert_string_equal(error.text, "the text is not UTF-8 at byte 2 (0xC3)");
    assert_null(ids);
    assert_int_equal(count, 77);
    assert_int_equal(eng_tokenizer_encode(tokenizer, NULL, 0, &ids, &count, &error), ENG_OK);
    assert_non_null(ids);
    assert_int_equal(count, 0);
    free(ids);
    eng_tokenizer_close(tokenizer);
}

/* ---- merging ---- */

static uint64_t random_next(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* Merges by looking at every pair in every round: the same rule without a heap. */
static uint64_t twin_merge(const struct eng_tokenizer *tokenizer, uint32_t *ids, uint64_t count)
{
    for (;;) {
        uint32_t best_rank = UINT32_MAX;
        uint32_t best_id = 0;
        uint64_t best_at = 0;
        for (uint64_t i = 0; i + 1 < count; i++) {
            uint32_t rank;
            uint32_t id;
            if (eng_tok_rule_find(tokenizer, ids[i], ids[i + 1], &rank, &id) && rank < best_rank) {
                best_rank = rank;
                best_id = id;
                best_at = i;
            }
        }
        if (best_rank == UINT32_MAX)
            return count;
        ids[best_at] = best_id;
        memmove(ids + best_at + 1, ids + best_at + 2, (count - best_at - 2) * sizeof(*ids));
        count--;
    }
}

static void merging_equals_a_twin_that_looks_at_every_pair(void **state)
{
    (void)state;
    const uint64_t seed = 0x5eed0f70u;
    uint64_t random = seed;
    struct eng_tokenizer *tokenizer = open_good(DATA "gpt2");
    static const char letters[] = "abcdeinorst";
    for (int round = 0; round < 3000; round++) {
        char text[128];
        uint32_t twin[128];
        uint64_t bytes = 1 + random_next(&random) % sizeof(text);
        for (uint64_t i = 0; i < bytes; i++) {
            text[i] = letters[random_next(&random) % (sizeof(letters) - 1)];
            twin[i] = tokenizer->byte_ids[(uint8_t)text[i]];
        }
        uint64_t twin_count = twin_merge(tokenizer, twin, bytes);
        uint32_t *ids = NULL;
        uint64_t count = 0;
        assert_int_equal(eng_tokenizer_encode(tokenizer, text, bytes, &ids, &count, NULL), ENG_OK);
        if (count != twin_count || memcmp(ids, twin, count * sizeof(*ids)) != 0)
            fail_msg("seed %" PRIx64 ", round %d: '%.*s'", seed, round, (int)bytes, text);
        free(ids);
    }
    eng_tokenizer_close(tokenizer);
}

/* One word of 2 MB: work that grows with the square of it would not end before the test's limit. */
static void a_word_of_two_megabytes_comes_back(void **state)
{
    (void)state;
    const uint64_t bytes = UINT64_C(2) << 20;
    char *text = malloc(bytes);
    assert_non_null(text);
    struct eng_tokenizer *tokenizer = open_good(DATA "gpt2");
    uint64_t random = 99;
    for (int alike = 0; alike < 2; alike++) {
        for (uint64_t i = 0; i < bytes; i++)
            text[i] = alike ? 'e' : (char)('a' + random_next(&random) % 26);
        uint32_t *ids = NULL;
        uint64_t count = 0;
        char *back = NULL;
        uint64_t back_bytes = 0;
        assert_int_equal(eng_tokenizer_encode(tokenizer, text, bytes, &ids, &count, NULL), ENG_OK);
        assert_in_range(count, 1, bytes);
        assert_int_equal(eng_tokenizer_decode(tokenizer, ids, count, &back, &back_bytes, NULL), 0);
        assert_int_equal(back_bytes, bytes);
        assert_memory_equal(back, text, bytes);
        free(back);
        free(ids);
    }
    eng_tokenizer_close(tokenizer);
    free(text);
}

/* ---- files: a directory of our own, written anew for each case ---- */

struct dir {
    char path[64];
};

static const char *const dir_names[] = {"vocab.json", "merges.txt", "tokenizer.json", "tok512.bin"};

static int dir_setup(void **state)
{
    static struct dir dir;
    (void)snprintf(dir.path, sizeof(dir.path), "tokenizer-XXXXXX");
    *state = &dir;
    return mkdtemp(dir.path) == NULL;
}

static void dir_clear(const struct dir *dir)
{
    for (size_t i = 0; i < sizeof(dir_names) / sizeof(dir_names[0]); i++) {
        char path[128];
        (void)snprintf(path, sizeof(path), "%s/%s", dir->path, dir_names[i]);
        (void)unlink(path);
    }
}

static int dir_teardown(void **state)
{
    struct dir *dir = *state;
    dir_clear(dir);
    return rmdir(dir->path);
}

static void dir_put(const struct dir *dir, const char *name, const void *data, uint64_t bytes)
{
    char path[128];
    (void)snprintf(path, sizeof(path), "%s/%s", dir->path, name);
    (void)unlink(path); /* some file systems write a file out at once when it was cut to nothing */
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
}

/* The directory must be refused by an error that contains `says` and starts with its path. */
static void assert_refused(const struct dir *dir, eng_status status, const char *says)
{
    struct eng_tokenizer *tokenizer = NULL;
    struct eng_error error = {0};
    eng_status got = eng_tokenizer_open(dir->path, &tokenizer, &error);
    if (got != status || strstr(error.text, says) == NULL ||
        strncmp(error.text, dir->path, strlen(dir->path)) != 0)
        fail_msg("status %d '%s', expected %d '%s'", got, error.text, status, says);
    assert_null(tokenizer);
}

static void bad_vocabularies_and_merges_are_refused(void **state)
{
    static const struct {
        const char *vocab, *merges, *settings;
        eng_status status;
        const char *says;
    } cases[] = {
        {NULL, NULL, NULL, ENG_E_INPUT, "no tokenizer: expected vocab.json"},
        {NULL, "a b\n", NULL, ENG_E_INPUT, "no tokenizer: expected vocab.json"},
        {"", "a b\n", NULL, ENG_E_INPUT, "the file is empty"},
        {"{}", "a b\n", NULL, ENG_E_INPUT, "expected tokens, found none"},
        {"[1]", "a b\n", NULL, ENG_E_INPUT, "expected a JSON object"},
        {"{\"a\":0,\"b\":1,", "a b\n", NULL, ENG_E_INPUT, "JSON ends too early"},
        {"{\"a\":0,\"b\":0,\"ab\":1}", "a b\n", NULL, ENG_E_INPUT,
         "id 0 stands twice: 'a' and 'b'"},
        {"{\"a\":0,\"b\":1,\"a\":2}", "a b\n", NULL, ENG_E_INPUT, "a name stands twice"},
        {"{\"a\":0,\"b\":-1}", "a b\n", NULL, ENG_E_INPUT, "the id of 'b' is -1"},
        {"{\"a\":0,\"b\":null}", "a b\n", NULL, ENG_E_INPUT, "the id of 'b' is null"},
        {"{\"a\":0,\"b\":1.5}", "a b\n", NULL, ENG_E_INPUT, "the id of 'b' is 1.5"},
        {"{\"a\":0,\"b\":\"1\"}", "a b\n", NULL, ENG_E_INPUT, "the id of 'b' is \"1\""},
        {"{\"a\":0,\"b\":99999999999}", "a b\n", NULL, ENG_E_INPUT, "expected 0 to 4194304"},
        {"{\"a\":0,\"b\":1}", "a b\n", NULL, ENG_E_INPUT, "line 1 needs 'ab', which vocab.json"},
        {"{\"a\":0,\"ab\":1}", "#version: 0.2\na b\n", NULL, ENG_E_INPUT, "line 2 needs 'b'"},
        {"{\"b\":0,\"ab\":1}", "a b\n", NULL, ENG_E_INPUT, "line 1 needs 'a'"},
        {"{\"a\":0,\"b\":1,\"ab\":2}", "a b\na b\n", NULL, ENG_E_INPUT,
         "line 2: 'a b' stands twice"},
        {"{\"a\":0,\"b\":1,\"ab\":2}", "ab\n", NULL, ENG_E_INPUT, "line 1 is 'ab', expected two"},
        {"{\"a\":0,\"b\":1,\"ab\":2}", "a b c\n", NULL, ENG_E_INPUT, "expected two symbols"},
        {"{\"a\":0,\"b\":1,\"ab\":2}", "a b\n\na b", NULL, ENG_E_INPUT,
         "line 2 is '', expected two"},
        {"{\"a\":0,\"b\":1,\"ab\":2}", "a \xFF\n", NULL, ENG_E_INPUT, "not UTF-8 at byte 2"},
        {"{\"a\":0,\"b\":1,\"ab\":2}", "", NULL, ENG_E_INPUT, "the file is empty"},
    };
    const struct dir *dir = *state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const char *texts[3] = {cases[i].vocab, cases[i].merges, cases[i].settings};
        dir_clear(dir);
        for (int k = 0; k < 3; k++) {
            if (texts[k] != NULL)
                dir_put(dir, dir_names[k], texts[k], strlen(texts[k]));
        }
        assert_refused(dir, cases[i].status, cases[i].says);
    }
    assert_int_equal(eng_tokenizer_open("no-such-directory", &(struct eng_tokenizer *){NULL}, NULL),
                     ENG_E_INPUT);
}

#define LEVEL                                                                                      \
    "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,\"use_regex\":true}"
#define MODEL "\"model\":{\"type\":\"BPE\"}"

static void settings_that_would_change_ids_are_refused(void **state)
{
    static const struct {
        const char *settings;
        eng_status status;
        const char *says; /* NULL: accepted */
    } cases[] = {
        {"{\"pre_tokenizer\":" LEVEL "," MODEL "}", ENG_OK, NULL},
        {"{\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[" LEVEL "]}," MODEL "}",
         ENG_OK, NULL},
        {"{\"pre_tokenizer\":" LEVEL "}", ENG_E_INPUT, "model is missing"},
        {"{" MODEL "}", ENG_E_UNSUPPORTED, "pre_tokenizer is null, expected ByteLevel"},
        {"{\"pre_tokenizer\":{\"type\":\"Metaspace\"}," MODEL "}", ENG_E_UNSUPPORTED, "Metaspace"},
        {"{\"pre_tokenizer\":7," MODEL "}", ENG_E_UNSUPPORTED, "pre_tokenizer is 7"},
        {"{\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Digits\","
         "\"individual_digits\":false}," LEVEL "]}," MODEL "}",
         ENG_E_UNSUPPORTED, "individual_digits true"},
        {"{\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\"}," LEVEL
         "]}," MODEL "}",
         ENG_E_UNSUPPORTED, "pre_tokenizer is"},
        {"{\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[]}," MODEL "}",
         ENG_E_UNSUPPORTED, "pre_tokenizer is"},
        {"{\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":true}," MODEL "}",
         ENG_E_UNSUPPORTED, "add_prefix_space true"},
        {"{\"normalizer\":{\"type\":\"NFC\"},\"pre_tokenizer\":" LEVEL "," MODEL "}",
         ENG_E_UNSUPPORTED, "a normalizer, expected none"},
        {"{\"pre_tokenizer\":" LEVEL ",\"model\":{\"type\":\"Unigram\"}}", ENG_E_UNSUPPORTED,
         "model.type is Unigram, expected BPE"},
        {"{\"pre_tokenizer\":" LEVEL ",\"model\":{\"ignore_merges\":true}}", ENG_E_UNSUPPORTED,
         "model.ignore_merges is set"},
        {"{\"pre_tokenizer\":" LEVEL ",\"model\":{\"end_of_word_suffix\":\"</w>\"}}",
         ENG_E_UNSUPPORTED, "model.end_of_word_suffix is set"},
        {"{\"pre_tokenizer\":" LEVEL ",\"model\":{\"dropout\":0.5}}", ENG_E_INPUT,
         "dropout is 0.5"},
        {"{\"pre_tokenizer\":" LEVEL ",\"model\":{\"unk_token\":\"a\"}}", ENG_E_UNSUPPORTED,
         "unk_token with a vocabulary that lacks bytes"},
        {"{\"pre_tokenizer\":" LEVEL ",\"model\":{\"merges\":[]}}", ENG_E_INPUT,
         "not a list of the 1 merges"},
        {"{\"pre_tokenizer\":" LEVEL ",\"model\":{\"vocab\":{\"a\":0}}}", ENG_E_INPUT,
         "model.vocab has 1 tokens, vocab.json has 3"},
        {"{\"pre_tokenizer\":" LEVEL ",\"model\":{\"vocab\":{\"a\":1,\"b\":0,\"ab\":2}}}",
         ENG_E_INPUT, "model.vocab gives 'a' an id"},
        {"{\"added_tokens\":[{\"id\":1,\"content\":\"x\"}],\"pre_tokenizer\":" LEVEL "," MODEL "}",
         ENG_E_INPUT, "id 1 stands twice: 'b' and 'x'"},
        {"{\"added_tokens\":[{\"id\":9}],\"pre_tokenizer\":" LEVEL "," MODEL "}", ENG_E_INPUT,
         "added_tokens[0] lacks id or content"},
    };
    static const char vocab[] = "{\"a\":0,\"b\":1,\"ab\":2}";
    const struct dir *dir = *state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        dir_clear(dir);
        dir_put(dir, "vocab.json", vocab, sizeof(vocab) - 1);
        dir_put(dir, "merges.txt", "a b\n", 4);
        dir_put(dir, "tokenizer.json", cases[i].settings, strlen(cases[i].settings));
        if (cases[i].says == NULL)
            eng_tokenizer_close(open_good(dir->path));
        else
            assert_refused(dir, cases[i].status, cases[i].says);
    }
}

static void added_tokens_decode_and_gaps_do_not(void **state)
{
    static const char vocab[] = "{\"a\":0,\"b\":1,\"ab\":2}";
    static const char settings[] =
        "{\"added_tokens\":[{\"id\":5,\"content\":\"<a b>\"},"
        "{\"id\":0,\"content\":\"a\"}],\"pre_tokenizer\":" LEVEL "," MODEL "}";
    const struct dir *dir = *state;
    dir_clear(dir);
    dir_put(dir, "vocab.json", vocab, sizeof(vocab) - 1);
    dir_put(dir, "merges.txt", "a b\r\n\r\n", 7);
    dir_put(dir, "tokenizer.json", settings, sizeof(settings) - 1);
    struct eng_tokenizer *tokenizer = open_good(dir->path);
    assert_int_equal(eng_tokenizer_vocab_count(tokenizer), 6);
    uint32_t *ids = NULL;
    uint64_t count = 0;
    assert_int_equal(eng_tokenizer_encode(tokenizer, "<a b>ab", 7, &ids, &count, NULL), ENG_OK);
    const uint32_t want[] = {0, 1, 2}; /* the other bytes have no symbol */
    assert_int_equal(count, 3);
    assert_memory_equal(ids, want, sizeof(want));
    free(ids);
    char *text = NULL;
    uint64_t bytes = 0;
    const uint32_t mixed[] = {2, 5, 1};
    assert_int_equal(eng_tokenizer_decode(tokenizer, mixed, 3, &text, &bytes, NULL), ENG_OK);
    assert_int_equal(bytes, 8);
    assert_string_equal(text, "ab<a b>b");
    free(text);
    struct eng_error error = {0};
    const uint32_t wrong[][2] = {{2, 4}, {2, 6}, {2, UINT32_MAX}};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(eng_tokenizer_decode(tokenizer, wrong[i], 2, &text, &bytes, &error),
                         ENG_E_INVALID);
        assert_non_null(strstr(error.text, "at place 1 is not in the vocabulary (6 ids)"));
    }
    eng_tokenizer_close(tokenizer);
}

static void an_unknown_word_is_refused_with_its_byte(void **state)
{
    static const char vocab[] = "{\"red\":0,\"green\":1}";
    const struct dir *dir = *state;
    dir_clear(dir);
    dir_put(dir, "vocab.json", vocab, sizeof(vocab) - 1);
    struct eng_tokenizer *tokenizer = open_good(dir->path);
    uint32_t *ids = NULL;
    uint64_t count = 0;
    struct eng_error error = {0};
    const char *text = "red  gr\xC3\xBCn green";
    assert_int_equal(eng_tokenizer_encode(tokenizer, text, strlen(text), &ids, &count, &error),
                     ENG_E_INPUT);
    assert_string_equal(error.text, "the word 'gr\xC3\xBCn' at byte 5 is not in the vocabulary, "
                                    "which has no unk_token");
    eng_tokenizer_close(tokenizer);
    static const struct {
        const char *settings;
        eng_status status;
        const char *says;
    } cases[] = {
        {"{\"pre_tokenizer\":{\"type\":\"Whitespace\"},\"model\":{\"type\":\"WordLevel\"}}",
         ENG_E_UNSUPPORTED, "pre_tokenizer is Whitespace, expected WhitespaceSplit"},
        {"{\"pre_tokenizer\":3,\"model\":{}}", ENG_E_INPUT, "pre_tokenizer is not an object"},
        {"{\"pre_tokenizer\":" LEVEL "," MODEL "}", ENG_E_UNSUPPORTED,
         "model.type is BPE, expected WordLevel"},
        {"{\"pre_tokenizer\":{\"type\":\"WhitespaceSplit\"},\"model\":{\"unk_token\":\"blue\"}}",
         ENG_E_INPUT, "model.unk_token 'blue' is not in the vocabulary"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        dir_put(dir, "tokenizer.json", cases[i].settings, strlen(cases[i].settings));
        assert_refused(dir, cases[i].status, cases[i].says);
    }
}

/* ---- llama2.c's file, written by hand ---- */

struct scores_file {
    uint8_t data[8192];
    uint64_t bytes;
};

static void scores_add(struct scores_file *file, float score, const char *text, uint32_t bytes)
{
    memcpy(file->data + file->bytes, &score, 4); /* tests run on little-endian machines only */
    memcpy(file->data + file->bytes + 4, &bytes, 4);
    memcpy(file->data + file->bytes + 8, text, strlen(text));
    file->bytes += 8 + strlen(text);
}

/* <unk> <s> </s>, the bytes, then id 259 on: ' ' a b aa ' a' ba; aa and ' a' have one score. */
static void scores_make(struct scores_file *file)
{
    const uint32_t bytes_max = 7;
    memcpy(file->data, &bytes_max, 4);
    file->bytes = 4;
    scores_add(file, 0, "<unk>", 5);
    scores_add(file, 0, "\n<s>\n", 5);
    scores_add(file, 0, "\n</s>\n", 6);
    for (unsigned byte = 0; byte < 256; byte++) {
        char name[8];
        (void)snprintf(name, sizeof(name), "<0x%02X>", byte);
        scores_add(file, 0, name, 6);
    }
    scores_add(file, -5, " ", 1);
    scores_add(file, -5, "a", 1);
    scores_add(file, -5, "b", 1);
    scores_add(file, -1, "aa", 2);
    scores_add(file, -1, " a", 2);
    scores_add(file, -0.5f, "ba", 2);
}

static void scores_merge_best_first_then_leftmost(void **state)
{
    struct scores_file file;
    scores_make(&file);
    const struct dir *dir = *state;
    dir_clear(dir);
    dir_put(dir, "tok512.bin", file.data, file.bytes);
    struct eng_tokenizer *tokenizer = open_good(dir->path);
    assert_int_equal(eng_tokenizer_vocab_count(tokenizer), 265);
    static const struct {
        const char *text;
        uint32_t ids[8];
        uint64_t count;
    } cases[] = {
        {"", {0}, 0},
        {"a", {263}, 1},
        {"aaa", {263, 262}, 2},      /* ' a' stands left of aa, and has the same score */
        {"baa", {259, 264, 260}, 3}, /* ba is better than aa */
        {"aba", {263, 264}, 2},
        {"\xC3\xA9z", {259, 3 + 0xC3, 3 + 0xA9, 3 + 'z'}, 4},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint32_t *ids = NULL;
        uint64_t count = 99;
        char *back = NULL;
        assert_int_equal(eng_tokenizer_encode(tokenizer, cases[i].text, strlen(cases[i].text), &ids,
                                              &count, NULL),
                         ENG_OK);
        assert_int_equal(count, cases[i].count);
        assert_memory_equal(ids, cases[i].ids, count * sizeof(*ids));
        assert_int_equal(eng_tokenizer_decode(tokenizer, ids, count, &back, NULL, NULL), ENG_OK);
        assert_string_equal(back, cases[i].text);
        free(back);
        free(ids);
    }
    char *text = NULL;
    const uint32_t after_start[] = {1, 263, 263};
    assert_int_equal(eng_tokenizer_decode(tokenizer, after_start, 3, &text, NULL, NULL), ENG_OK);
    assert_string_equal(text, "\n<s>\na a");
    free(text);
    eng_tokenizer_close(tokenizer);
}

static void bad_score_files_are_refused(void **state)
{
    const struct dir *dir = *state;
    struct scores_file file;
    scores_make(&file);
    dir_clear(dir);
    for (uint64_t cut = 1; cut < file.bytes; cut++) { /* only the last five tokens may lack */
        dir_put(dir, "tok512.bin", file.data, cut);
        struct eng_tokenizer *tokenizer = NULL;
        struct eng_error error = {0};
        eng_status status = eng_tokenizer_open(dir->path, &tokenizer, &error);
        assert_true(status == ENG_E_INPUT ? error.text[0] != '\0' : cut > file.bytes - 60);
        eng_tokenizer_close(tokenizer);
    }
    static const struct {
        float score;
        const char *text;
        uint32_t bytes;
        const char *says;
    } cases[] = {
        {0, "x", 0, "token 265 has 0 bytes, expected 1 to 7"},
        {0, "x", 8, "token 265 has 8 bytes, expected 1 to 7"},
        {0, "x", UINT32_MAX, "token 265 has 4294967295 bytes"},
        {0, "x", 2, "ends inside token 265"},
        {0, "aa", 2, "'aa' has two ids, 262 and 265"},
        {0, "\xFF", 1, "token 265 is not UTF-8"},
        {(float)(1e300 * 1e300), "x", 1, "token 265 has no finite score"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        scores_make(&file);
        scores_add(&file, cases[i].score, cases[i].text, cases[i].bytes);
        dir_put(dir, "tok512.bin", file.data, file.bytes);
        assert_refused(dir, ENG_E_INPUT, cases[i].says);
    }
    scores_make(&file);
    memset(file.data, 0xFF, 4);
    dir_put(dir, "tok512.bin", file.data, file.bytes);
    assert_refused(dir, ENG_E_INPUT, "the largest token has 4294967295 bytes, expected 1 to 4096");
}

/* ---- files of ours, cut everywhere ---- */

static char *slurp(const char *path, uint64_t *ret_bytes)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    char *data = malloc(1 << 16);
    assert_non_null(data);
    *ret_bytes = fread(data, 1, 1 << 16, file);
    assert_in_range(*ret_bytes, 1, (1 << 16) - 1);
    (void)fclose(file);
    return data;
}

/* Each file of tests/data/bpe/digits cut at many places, the others whole: an error with a text, or
 * a tokenizer that works (merges cut between lines). */
static void files_cut_anywhere_are_refused_or_work(void **state)
{
    const struct dir *dir = *state;
    uint64_t refused = 0;
    dir_clear(dir);
    char *data[3];
    uint64_t bytes[3];
    for (int k = 0; k < 3; k++) {
        char path[512];
        (void)snprintf(path, sizeof(path), "%sdigits/%s", DATA, dir_names[k]);
        data[k] = slurp(path, &bytes[k]);
        dir_put(dir, dir_names[k], data[k], bytes[k]);
    }
    for (int k = 0; k < 3; k++) {
        for (uint64_t cut = 0; cut < bytes[k]; cut += 1 + bytes[k] / 400) {
            dir_put(dir, dir_names[k], data[k], cut);
            struct eng_tokenizer *tokenizer = NULL;
            struct eng_error error = {0};
            if (eng_tokenizer_open(dir->path, &tokenizer, &error) != ENG_OK) {
                assert_null(tokenizer);
                assert_true(error.text[0] != '\0');
                refused++;
                continue;
            }
            assert_int_equal(k, 1);
            uint32_t *ids = NULL;
            uint64_t count = 0;
            assert_int_equal(eng_tokenizer_encode(tokenizer, "the store", 9, &ids, &count, NULL),
                             ENG_OK);
            free(ids);
            eng_tokenizer_close(tokenizer);
        }
        dir_put(dir, dir_names[k], data[k], bytes[k]);
        free(data[k]);
    }
    assert_true(refused > 800);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids_of_our_gpt2_cases_are_equal),
        cmocka_unit_test(ids_of_our_digit_cases_are_equal),
        cmocka_unit_test(ids_of_our_word_cases_are_equal),
        cmocka_unit_test(ids_of_tok512_cases_are_equal),
        cmocka_unit_test(golden_opt_ids_are_equal),
        cmocka_unit_test(golden_tinychat_ids_are_equal),
        cmocka_unit_test(golden_smollm2_ids_are_equal),
        cmocka_unit_test(opt_recall_words_have_their_ids),
        cmocka_unit_test(every_character_has_its_class),
        cmocka_unit_test(utf8_takes_all_characters_and_nothing_else),
        cmocka_unit_test(a_text_that_is_not_utf8_is_refused_with_its_byte),
        cmocka_unit_test(merging_equals_a_twin_that_looks_at_every_pair),
        cmocka_unit_test(a_word_of_two_megabytes_comes_back),
        cmocka_unit_test_setup_teardown(bad_vocabularies_and_merges_are_refused, dir_setup,
                                        dir_teardown),
        cmocka_unit_test_setup_teardown(settings_that_would_change_ids_are_refused, dir_setup,
                                        dir_teardown),
        cmocka_unit_test_setup_teardown(added_tokens_decode_and_gaps_do_not, dir_setup,
                                        dir_teardown),
        cmocka_unit_test_setup_teardown(an_unknown_word_is_refused_with_its_byte, dir_setup,
                                        dir_teardown),
        cmocka_unit_test_setup_teardown(scores_merge_best_first_then_leftmost, dir_setup,
                                        dir_teardown),
        cmocka_unit_test_setup_teardown(bad_score_files_are_refused, dir_setup, dir_teardown),
        cmocka_unit_test_setup_teardown(files_cut_anywhere_are_refused_or_work, dir_setup,
                                        dir_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

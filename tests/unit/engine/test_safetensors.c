/* Safetensors: what is well formed is read, every lie is one clear error.
 *
 * Each case writes a small file into a folder of its own and opens it.
 *
 * Holds: no case depends on another; the folder is removed at the end.
 * Threads: one.
 */
#include "conformance/engine/safetensors.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[] = "/tmp/eng_safetensors_XXXXXX";

static const char *path_of(const char *name)
{
    static char path[256];
    (void)snprintf(path, sizeof(path), "%s/%s", folder, name);
    return path;
}

static void write_bytes(const char *name, const void *bytes, size_t count)
{
    FILE *file = fopen(path_of(name), "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, count, file), count);
    assert_int_equal(fclose(file), 0);
}

/* A file of `header` and data_bytes bytes 0, 1, 2, ...; `claimed` is the header length it states.
 */
static void write_tensors_claiming(const char *name, const char *header, size_t data_bytes,
                                   uint64_t claimed)
{
    size_t length = strlen(header);
    unsigned char *bytes = malloc(8 + length + data_bytes);
    assert_non_null(bytes);
    for (int i = 0; i < 8; i++)
        bytes[i] = (unsigned char)(claimed >> (8 * i));
    memcpy(bytes + 8, header, length);
    for (size_t i = 0; i < data_bytes; i++)
        bytes[8 + length + i] = (unsigned char)i;
    write_bytes(name, bytes, 8 + length + data_bytes);
    free(bytes);
}

static void write_tensors(const char *name, const char *header, size_t data_bytes)
{
    write_tensors_claiming(name, header, data_bytes, strlen(header));
}

static void assert_refused(eng_status status, eng_status expected, struct eng_error *error,
                           const char *fragment)
{
    assert_int_equal(status, expected);
    assert_int_equal(error->code, expected);
    if (strstr(error->text, fragment) == NULL)
        fail_msg("\"%s\" is not in: %s", fragment, error->text);
    assert_null(strchr(error->text, '\n'));
}

static void expect_input_error(const char *name, const char *fragment)
{
    struct eng_tensors *set = (struct eng_tensors *)(uintptr_t)16;
    struct eng_error error = {0};
    eng_status status = eng_tensors_open_file(path_of(name), &set, &error);
    assert_refused(status, ENG_E_INPUT, &error, fragment);
    assert_ptr_equal(set, (void *)(uintptr_t)16); /* an error writes no output */
    assert_non_null(strstr(error.text, name));
}

static void reads_tensors_with_metadata_in_any_order(void **state)
{
    (void)state;
    write_tensors("good",
                  "{\"__metadata__\":{\"format\":\"pt\"},"
                  "\"b\":{\"dtype\":\"F16\",\"shape\":[2,3],\"data_offsets\":[4,16]},"
                  "\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]},"
                  "\"empty\":{\"dtype\":\"I8\",\"shape\":[0,7],\"data_offsets\":[16,16]}}  ",
                  16);
    struct eng_tensors *set = NULL;
    struct eng_error error = {0};
    assert_int_equal(eng_tensors_open_file(path_of("good"), &set, &error), ENG_OK);
    assert_int_equal(eng_tensors_count(set), 3);
    assert_string_equal(eng_tensors_at(set, 0)->name, "a");
    const struct eng_tensor *b = eng_tensors_find(set, "b");
    assert_non_null(b);
    assert_int_equal(b->dtype, ENG_TENSOR_F16);
    assert_int_equal(b->rank, 2);
    assert_int_equal(b->shape[1], 3);
    assert_int_equal(b->bytes, 12);
    assert_int_equal(b->data[0], 4);
    assert_int_equal(eng_tensors_find(set, "empty")->bytes, 0);
    assert_null(eng_tensors_find(set, "c"));
    assert_null(eng_tensors_at(set, 3));
    eng_tensors_close(set);
    eng_tensors_close(NULL);
}

static void refuses_a_missing_and_an_empty_file(void **state)
{
    (void)state;
    struct eng_tensors *set = NULL;
    struct eng_error error = {0};
    eng_status status = eng_tensors_open_file(path_of("absent"), &set, &error);
    assert_refused(status, ENG_E_SYSTEM, &error, "cannot open");
    write_bytes("nothing", "", 0);
    expect_input_error("nothing", "empty");
    status = eng_tensors_open_file(folder, &set, &error);
    assert_refused(status, ENG_E_INPUT, &error, "not a regular file");
    status = eng_tensors_open(folder, &set, &error);
    assert_refused(status, ENG_E_INPUT, &error, "no model.safetensors");
}

static void refuses_a_bad_header_length(void **state)
{
    (void)state;
    write_bytes("short", "abc", 3);
    expect_input_error("short", "expected at least the 8");
    write_tensors_claiming("long", "{}", 4, 7);
    expect_input_error("long", "truncated");
    write_tensors_claiming("huge", "{}", 0, UINT64_MAX);
    expect_input_error("huge", "at most");
    write_tensors_claiming("limit", "{}", 0, ENG_TENSOR_HEADER_MAX);
    expect_input_error("limit", "truncated");
}

static void refuses_bad_json(void **state)
{
    (void)state;
    write_tensors("array", "[]", 0);
    expect_input_error("array", "JSON object");
    write_tensors("cut", "{\"a\":{", 0);
    expect_input_error("cut", "ends too early");
    write_tensors("word", "{\"a\":frob}", 0);
    expect_input_error("word", "bad JSON");
    write_tensors("tail", "{} {}", 0);
    expect_input_error("tail", "follows");
    write_tensors("twice",
                  "{\"a\":{\"dtype\":\"I8\",\"shape\":[1],\"data_offsets\":[0,1]},"
                  "\"a\":{\"dtype\":\"I8\",\"shape\":[1],\"data_offsets\":[0,1]}}",
                  1);
    expect_input_error("twice", "stands twice");
}

#define ENTRY(dtype, shape, offsets)                                                               \
    "{\"w\":{\"dtype\":" dtype ",\"shape\":" shape ",\"data_offsets\":" offsets "}}"

static void refuses_bad_entries(void **state)
{
    static const struct {
        const char *header, *fragment;
    } cases[] = {
        {"{\"w\":7}", "expected an object"},
        {"{\"w\":{\"shape\":[1],\"data_offsets\":[0,4]}}", "no dtype"},
        {ENTRY("5", "[1]", "[0,4]"), "no dtype"},
        {"{\"w\":{\"dtype\":\"I8\",\"data_offsets\":[0,4]}}", "no shape"},
        {"{\"w\":{\"dtype\":\"I8\",\"shape\":[4]}}", "no data_offsets"},
        {ENTRY("\"F32\"", "[-1]", "[0,4]"), "whole numbers"},
        {ENTRY("\"F32\"", "[1.5]", "[0,4]"), "whole numbers"},
        {ENTRY("\"F32\"", "[\"1\"]", "[0,4]"), "whole numbers"},
        {ENTRY("\"F32\"", "[1,1,1,1,1,1,1,1,1]", "[0,4]"), "8 dimensions"},
        {ENTRY("\"F32\"", "[4611686018427387904]", "[0,0]"), "overflow"},
        {ENTRY("\"F32\"", "[4294967296,4294967296]", "[0,0]"), "overflow"},
        {ENTRY("\"F32\"", "[2]", "[0,4]"), "has 4 bytes, its shape and dtype need 8"},
        {ENTRY("\"F32\"", "[1]", "[4,0]"), "do not lie"},
        {ENTRY("\"F32\"", "[2]", "[0,8]"), "truncated"},
        {ENTRY("\"F32\"", "[1]", "[0]"), "no data_offsets"},
        {ENTRY("\"F32\"", "[1]", "[-4,0]"), "not whole"},
        {ENTRY("\"F32\"", "[1]", "[\"0\",4]"), "not whole"},
        {ENTRY("\"I16\"", "[1]", "[2,4]"), "hole"},
        {ENTRY("\"I16\"", "[1]", "[0,2]"), "follow the last tensor"},
        {"{\"v\":{\"dtype\":\"I8\",\"shape\":[3],\"data_offsets\":[0,3]},"
         "\"w\":{\"dtype\":\"I8\",\"shape\":[2],\"data_offsets\":[2,4]}}",
         "overlaps"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        write_tensors("entry", cases[i].header, 4);
        expect_input_error("entry", cases[i].fragment);
    }
}

static void refuses_an_unknown_dtype(void **state)
{
    (void)state;
    struct eng_tensors *set = NULL;
    struct eng_error error = {0};
    write_tensors("q4", ENTRY("\"Q4_0\"", "[8]", "[0,4]"), 4);
    assert_refused(eng_tensors_open_file(path_of("q4"), &set, &error), ENG_E_UNSUPPORTED, &error,
                   "Q4_0");
}

/* Every cut of a good file is refused: the header ends early or the data do. */
static void refuses_a_file_cut_anywhere(void **state)
{
    (void)state;
    const char *header = ENTRY("\"F32\"", "[2]", "[0,8]");
    size_t whole = 8 + strlen(header) + 8;
    for (size_t bytes = 1; bytes < whole; bytes++) {
        write_tensors("cuts", header, 8);
        assert_int_equal(truncate(path_of("cuts"), (off_t)bytes), 0);
        struct eng_tensors *set = NULL;
        struct eng_error error = {0};
        assert_int_equal(eng_tensors_open_file(path_of("cuts"), &set, &error), ENG_E_INPUT);
        assert_true(error.text[0] != '\0');
    }
    write_tensors("cuts", header, 8);
    struct eng_tensors *set = NULL;
    assert_int_equal(eng_tensors_open_file(path_of("cuts"), &set, NULL), ENG_OK);
    eng_tensors_close(set);
}

#define SHARD(name) "{\"" name "\":{\"dtype\":\"I8\",\"shape\":[1],\"data_offsets\":[0,1]}}"

static eng_status open_index(const char *index, struct eng_tensors **ret_set,
                             struct eng_error *error)
{
    (void)unlink(path_of("model.safetensors"));
    write_bytes("model.safetensors.index.json", index, strlen(index));
    return eng_tensors_open(folder, ret_set, error);
}

static void reads_shards_by_index(void **state)
{
    (void)state;
    struct eng_tensors *set = NULL;
    struct eng_error error = {0};
    write_tensors("s1", SHARD("a"), 1);
    write_tensors("s2", SHARD("b"), 1);
    assert_int_equal(open_index("{\"weight_map\":{\"b\":\"s2\",\"a\":\"s1\"}}", &set, &error),
                     ENG_OK);
    assert_int_equal(eng_tensors_count(set), 2);
    assert_non_null(strstr(eng_tensors_find(set, "b")->path, "/s2"));
    eng_tensors_close(set);
}

static void refuses_a_lying_index(void **state)
{
    static const struct {
        const char *index, *fragment;
        eng_status status;
    } cases[] = {
        {"{}", "no weight_map", ENG_E_INPUT},
        {"{\"weight_map\":{\"a\":5}}", "name of a file", ENG_E_INPUT},
        {"{\"weight_map\":{\"a\":\"../s1\"}}", "name of a file", ENG_E_INPUT},
        {"{\"weight_map\":{\"a\":\"none\"}}", "cannot open", ENG_E_SYSTEM},
        {"{\"weight_map\":{\"c\":\"s1\"}}", "tensor c is not in s1", ENG_E_INPUT},
        {"{\"weight_map\":{\"a\":\"s1\",\"b\":\"s1\"}}", "tensor b is not in s1", ENG_E_INPUT},
        {"{\"weight_map\":{\"a\":\"s1\",\"b\":\"s2\",\"c\":\"s3\"}}", "stands in", ENG_E_INPUT},
        {"{\"weight_map\":{\"a\":\"s4\"}}", "names 1 tensors", ENG_E_INPUT},
    };
    (void)state;
    write_tensors("s1", SHARD("a"), 1);
    write_tensors("s2", SHARD("b"), 1);
    write_tensors("s3", SHARD("a"), 1);
    write_tensors("s4",
                  "{\"a\":{\"dtype\":\"I8\",\"shape\":[1],\"data_offsets\":[0,1]},"
                  "\"d\":{\"dtype\":\"I8\",\"shape\":[1],\"data_offsets\":[1,2]}}",
                  2);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct eng_tensors *set = NULL;
        struct eng_error error = {0};
        eng_status status = open_index(cases[i].index, &set, &error);
        assert_refused(status, cases[i].status, &error, cases[i].fragment);
    }
}

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) == NULL ? -1 : 0;
}

static int remove_folder(void **state)
{
    static const char *const names[] = {"good",
                                        "nothing",
                                        "short",
                                        "long",
                                        "huge",
                                        "limit",
                                        "array",
                                        "cut",
                                        "word",
                                        "tail",
                                        "twice",
                                        "entry",
                                        "q4",
                                        "cuts",
                                        "s1",
                                        "s2",
                                        "s3",
                                        "s4",
                                        "model.safetensors.index.json"};
    (void)state;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        (void)unlink(path_of(names[i]));
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_tensors_with_metadata_in_any_order),
        cmocka_unit_test(refuses_a_missing_and_an_empty_file),
        cmocka_unit_test(refuses_a_bad_header_length),
        cmocka_unit_test(refuses_bad_json),
        cmocka_unit_test(refuses_bad_entries),
        cmocka_unit_test(refuses_an_unknown_dtype),
        cmocka_unit_test(refuses_a_file_cut_anywhere),
        cmocka_unit_test(reads_shards_by_index),
        cmocka_unit_test(refuses_a_lying_index),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}

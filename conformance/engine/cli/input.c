/* input: token ids of prompts. See input.h. */
#include "conformance/engine/cli/input.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "conformance/engine/json.h"
#include "conformance/engine/mapfile.h"

static bool is_file(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISREG(info.st_mode);
}

/* One word with a slash, or with the end of a file's name, is no prompt: a slip in it must not
 * become a text. */
static bool looks_like_path(const char *text)
{
    static const char *const ENDS[] = {".txt", ".md", ".ids", ".json", ".jsonl", ".csv"};
    bool looks = strchr(text, '/') != NULL;
    const char *end = strrchr(text, '.');
    for (size_t i = 0; end != NULL && end != text && i < sizeof(ENDS) / sizeof(ENDS[0]); i++)
        looks |= strcmp(end, ENDS[i]) == 0;
    return looks && strpbrk(text, " \t\n") == NULL;
}

/* Whether the source is a file; an error if it has to be one, and is not. */
static eng_status find_file(const struct eng_source_text *source, bool *ret_is_file,
                            struct eng_error *reterr)
{
    const char *text = source->argument;
    *ret_is_file = source->form != ENG_FORM_TEXT && is_file(text);
    if (*ret_is_file || source->form == ENG_FORM_TEXT)
        return ENG_OK;
    const char *why = access(text, F_OK) == 0 ? "no regular file" : "no such file";
    if (source->form == ENG_FORM_FILE)
        return eng_fail(reterr, ENG_E_INPUT,
                        "--prefix: %.200s: %s, expected one (--prefix-text takes a text)", text,
                        why);
    if (looks_like_path(text))
        return eng_fail(reterr, ENG_E_INPUT, "%.200s: %s, expected one, or %s", text, why,
                        source->ids ? "ids" : "a text (--query-text takes any)");
    return ENG_OK;
}

/* Decimal ids between commas or white space. */
static eng_status ids_parse(const char *what, const char *text, uint64_t bytes,
                            struct eng_ids *ret_ids, struct eng_error *reterr)
{
    struct eng_ids made = {.ids = calloc(bytes / 2 + 1, sizeof(*made.ids))};
    bool in_number = false;
    if (made.ids == NULL)
        return eng_fail(reterr, ENG_E_NO_MEMORY, "no memory for ids");
    for (uint64_t i = 0; i < bytes; i++) {
        char c = text[i];
        bool digit = c >= '0' && c <= '9';
        uint64_t value = in_number ? made.ids[made.count - 1] : 0;
        if (digit)
            value = value * 10 + (uint64_t)(c - '0');
        if ((!digit && c != ',' && c != ' ' && c != '\n' && c != '\t' && c != '\r') ||
            value > UINT32_MAX) {
            free(made.ids);
            return eng_fail(reterr, ENG_E_INPUT,
                            "%.80s: byte %" PRIu64 ": expected ids from 0 to %u and commas", what,
                            i, UINT32_MAX);
        }
        if (digit && !in_number)
            made.count++;
        if (digit)
            made.ids[made.count - 1] = (uint32_t)value;
        in_number = digit;
    }
    *ret_ids = made;
    return ENG_OK;
}

eng_status eng_ids_read(const struct eng_source_text *source, const struct eng_tokenizer *tokenizer,
                        struct eng_ids *ret_ids, struct eng_error *reterr)
{
    struct eng_mapfile map = {0};
    const char *text = source->argument;
    uint64_t bytes = strlen(text);
    bool found = false;
    eng_status status = find_file(source, &found, reterr);
    if (status != ENG_OK)
        return status;
    if (found) {
        status = eng_mapfile_open(source->argument, &map, reterr);
        text = (const char *)map.data;
        bytes = map.bytes;
    }
    if (status == ENG_OK && source->ids)
        status = ids_parse(source->argument, text, bytes, ret_ids, reterr);
    else if (status == ENG_OK)
        status =
            eng_tokenizer_encode(tokenizer, text, bytes, &ret_ids->ids, &ret_ids->count, reterr);
    eng_mapfile_close(&map);
    return status;
}

void eng_ids_done(struct eng_ids *ids)
{
    free(ids->ids);
    *ids = (struct eng_ids){0};
}

eng_status eng_ids_put_first(struct eng_ids *ids, uint32_t id, struct eng_error *reterr)
{
    uint32_t *grown = reallocarray(ids->ids, ids->count + 1, sizeof(*grown));
    if (grown == NULL)
        return eng_fail(reterr, ENG_E_NO_MEMORY, "no memory for ids");
    memmove(grown + 1, grown, ids->count * sizeof(*grown));
    grown[0] = id;
    ids->ids = grown;
    ids->count++;
    return ENG_OK;
}

eng_status eng_bos_wanted(const char *model, const struct eng_config *config, bool *ret_wanted,
                          struct eng_error *reterr)
{
    char *path = NULL;
    if (asprintf(&path, "%s/vocab.json", model) < 0)
        return eng_fail(reterr, ENG_E_NO_MEMORY, "no memory for a path");
    bool wanted = config->family == ENG_FAMILY_OPT || access(path, F_OK) != 0;
    free(path);
    if (asprintf(&path, "%s/tokenizer_config.json", model) < 0)
        return eng_fail(reterr, ENG_E_NO_MEMORY, "no memory for a path");
    eng_status status = ENG_OK;
    if (access(path, F_OK) == 0) {
        struct json_object *object = NULL;
        status = eng_json_load(path, &object, reterr);
        if (status == ENG_OK)
            status = eng_json_get_bool(path, object, "add_bos_token", &wanted, reterr);
        json_object_put(object);
    }
    free(path);
    if (status == ENG_OK)
        *ret_wanted = wanted && config->has_bos;
    return status;
}

static eng_status tokenize_line(const struct eng_tokenizer *tokenizer, const char *line,
                                uint64_t bytes, uint64_t number, FILE *out,
                                struct eng_error *reterr)
{
    char what[40];
    struct json_object *object = NULL;
    struct eng_ids ids = {0};
    struct eng_error inner = {0};
    (void)snprintf(what, sizeof(what), "line %" PRIu64, number);
    eng_status status = eng_json_parse(what, line, bytes, &object, reterr);
    if (status != ENG_OK)
        return status;
    struct json_object *text = eng_json_member(object, "text");
    if (!json_object_is_type(text, json_type_string))
        status = eng_fail(reterr, ENG_E_INPUT, "%s: expected {\"text\": \"...\"}", what);
    else
        status = eng_tokenizer_encode(tokenizer, json_object_get_string(text),
                                      (uint64_t)json_object_get_string_len(text), &ids.ids,
                                      &ids.count, &inner);
    if (inner.code != ENG_OK)
        (void)eng_fail(reterr, status, "%s: %s", what, inner.text);
    json_object_put(object);
    if (status != ENG_OK)
        return status;
    (void)fputs("{\"ids\":[", out);
    for (uint64_t i = 0; i < ids.count; i++)
        (void)fprintf(out, "%s%" PRIu32, i == 0 ? "" : ",", ids.ids[i]);
    (void)fputs("]}\n", out);
    eng_ids_done(&ids);
    return ENG_OK;
}

eng_status eng_tokenize_lines(const struct eng_tokenizer *tokenizer, FILE *in, FILE *out,
                              struct eng_error *reterr)
{
    char *line = NULL;
    size_t capacity = 0;
    uint64_t number = 0;
    eng_status status = ENG_OK;
    ssize_t bytes = 0;
    while (status == ENG_OK && (bytes = getline(&line, &capacity, in)) >= 0) {
        number++;
        if (line[strspn(line, " \t\r\n")] == '\0' && strlen(line) == (size_t)bytes)
            continue; /* an empty line */
        status = tokenize_line(tokenizer, line, (uint64_t)bytes, number, out, reterr);
    }
    if (status == ENG_OK && ferror(in))
        status = eng_fail(reterr, ENG_E_SYSTEM, "cannot read: %s", strerror(errno));
    if (status == ENG_OK && fflush(out) != 0)
        status = eng_fail(reterr, ENG_E_SYSTEM, "cannot write: %s", strerror(errno));
    free(line);
    return status;
}

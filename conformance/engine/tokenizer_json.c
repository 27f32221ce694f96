/* tokenizer_json: reads vocab.json and tokenizer.json. See tokenizer_parts.h.
 *
 *   vocab.json      {"token": id, ...}
 *   tokenizer.json  {"normalizer", "pre_tokenizer", "added_tokens", "model": {"type", "vocab"}}
 *
 * If both files have the vocabulary, they must agree. Unsupported requests of tokenizer.json are
 * refused, because ids would differ. post_processor, decoder and "truncation" are not read.
 * Threads: see tokenizer_parts.h. Tests: tests/unit/engine/test_tokenizer.c */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "conformance/engine/json.h"
#include "conformance/engine/tokenizer_parts.h"

eng_status eng_tok_path(const char *model_dir, const char *name, char **ret_path,
                        struct eng_error *reterr)
{
    if (asprintf(ret_path, "%s/%s", model_dir, name) < 0) {
        *ret_path = NULL;
        return eng_fail(reterr, ENG_E_NO_MEMORY, "no memory for the path of %s", name);
    }
    return ENG_OK;
}

static eng_status vocab_check_id(const char *path, const char *token, struct json_object *value,
                                 struct eng_error *reterr)
{
    if (json_object_is_type(value, json_type_int) && json_object_get_int64(value) >= 0 &&
        json_object_get_int64(value) <= ENG_TOK_ID_MAX)
        return ENG_OK;
    return eng_fail(reterr, ENG_E_INPUT, "%s: the id of '%s' is %.40s, expected 0 to %" PRIu32,
                    path, eng_tok_show(token, strlen(token)).text,
                    value == NULL ? "null" : json_object_to_json_string(value), ENG_TOK_ID_MAX);
}

static eng_status vocab_fill(const char *path, struct json_object *root,
                             struct eng_tok_vocab *vocab, struct eng_error *reterr)
{
    uint64_t id_count = 0;
    json_object_object_foreach(root, token, value)
    {
        eng_status status = vocab_check_id(path, token, value, reterr);
        if (status != ENG_OK)
            return status;
        uint64_t id = json_object_get_uint64(value);
        if (id >= id_count)
            id_count = id + 1;
    }
    if (id_count == 0)
        return eng_fail(reterr, ENG_E_INPUT, "%s: expected tokens, found none", path);
    eng_status status = eng_tok_vocab_init(vocab, id_count, reterr);
    json_object_object_foreach(root, name, number)
    {
        if (status == ENG_OK)
            status = eng_tok_vocab_put(vocab, path, json_object_get_uint64(number), name,
                                       strlen(name), true, reterr);
    }
    return status;
}

eng_status eng_tok_load_vocab(const char *path, struct eng_tok_vocab *vocab,
                              struct eng_error *reterr)
{
    struct json_object *root = NULL;
    eng_status status = eng_json_load(path, &root, reterr);
    if (status != ENG_OK)
        return status;
    status = vocab_fill(path, root, vocab, reterr);
    json_object_put(root);
    return status;
}

/* model.vocab says what vocab.json says. */
static eng_status settings_check_vocab(const char *path, struct json_object *model,
                                       const struct eng_tok_vocab *vocab, struct eng_error *reterr)
{
    struct json_object *stated = eng_json_member(model, "vocab");
    if (stated == NULL)
        return ENG_OK;
    if (!json_object_is_type(stated, json_type_object))
        return eng_fail(reterr, ENG_E_INPUT, "%s: model.vocab is not an object", path);
    uint64_t have = 0;
    for (uint64_t i = 0; i < vocab->id_count; i++)
        have += vocab->entries[i].present;
    uint64_t count = (uint64_t)json_object_object_length(stated);
    if (count != have)
        return eng_fail(reterr, ENG_E_INPUT,
                        "%s: model.vocab has %" PRIu64 " tokens, vocab.json has %" PRIu64, path,
                        count, have);
    json_object_object_foreach(stated, token, value)
    {
        uint32_t id = eng_tok_vocab_find(vocab, token, strlen(token));
        if (id == ENG_TOK_NONE || !json_object_is_type(value, json_type_int) ||
            json_object_get_int64(value) != (int64_t)id)
            return eng_fail(reterr, ENG_E_INPUT,
                            "%s: model.vocab gives '%s' an id that vocab.json does not", path,
                            eng_tok_show(token, strlen(token)).text);
    }
    return ENG_OK;
}

static eng_status settings_check(const char *path, const char *model_type, struct json_object *root,
                                 const struct eng_tok_vocab *vocab, struct eng_error *reterr)
{
    if (eng_json_member(root, "normalizer") != NULL)
        return eng_fail(reterr, ENG_E_UNSUPPORTED, "%s: a normalizer, expected none", path);
    struct json_object *model = eng_json_member(root, "model");
    if (model == NULL || !json_object_is_type(model, json_type_object))
        return eng_fail(reterr, ENG_E_INPUT, "%s: model is missing or not an object", path);
    const char *type = model_type; /* old files leave it out */
    eng_status status = eng_json_get_string(path, model, "type", &type, reterr);
    if (status != ENG_OK)
        return status;
    if (strcmp(type, model_type) != 0)
        return eng_fail(reterr, ENG_E_UNSUPPORTED,
                        "%s: model.type is %.40s, expected %s for the files beside it (merges.txt "
                        "belongs to BPE only)",
                        path, type, model_type);
    return settings_check_vocab(path, model, vocab, reterr);
}

eng_status eng_tok_load_settings(const char *model_dir, const char *model_type,
                                 const struct eng_tok_vocab *vocab, struct json_object **ret_root,
                                 struct eng_error *reterr)
{
    char *path = NULL;
    struct json_object *root = NULL;
    eng_status status = eng_tok_path(model_dir, "tokenizer.json", &path, reterr);
    if (status == ENG_OK && access(path, F_OK) == 0) {
        status = eng_json_load(path, &root, reterr);
        if (status == ENG_OK)
            status = settings_check(path, model_type, root, vocab, reterr);
    }
    free(path);
    if (status != ENG_OK) {
        json_object_put(root);
        return status;
    }
    *ret_root = root;
    return ENG_OK;
}

/* Room for ids up to id; tokens keep theirs. */
static eng_status vocab_widen(struct eng_tok_vocab *vocab, uint64_t id, struct eng_error *reterr)
{
    if (id < vocab->id_count)
        return ENG_OK;
    void *grown = realloc(vocab->entries, (id + 1) * sizeof(*vocab->entries));
    if (grown == NULL)
        return eng_fail(reterr, ENG_E_NO_MEMORY, "no memory for added tokens");
    vocab->entries = grown;
    memset(vocab->entries + vocab->id_count, 0,
           (id + 1 - vocab->id_count) * sizeof(*vocab->entries));
    vocab->id_count = id + 1;
    return ENG_OK;
}

eng_status eng_tok_load_added(const char *what, struct json_object *root,
                              struct eng_tok_vocab *vocab, struct eng_error *reterr)
{
    struct json_object *added = eng_json_member(root, "added_tokens");
    if (added == NULL)
        return ENG_OK;
    if (!json_object_is_type(added, json_type_array))
        return eng_fail(reterr, ENG_E_INPUT, "%s: added_tokens is not an array", what);
    for (size_t i = 0; i < json_object_array_length(added); i++) {
        struct json_object *token = json_object_array_get_idx(added, i);
        uint64_t id = UINT64_MAX;
        const char *content = NULL;
        if (!json_object_is_type(token, json_type_object))
            return eng_fail(reterr, ENG_E_INPUT, "%s: added_tokens[%zu] is not an object", what, i);
        eng_status status = eng_json_get_u64(what, token, "id", 0, ENG_TOK_ID_MAX, &id, reterr);
        if (status == ENG_OK)
            status = eng_json_get_string(what, token, "content", &content, reterr);
        if (status != ENG_OK)
            return status;
        if (id == UINT64_MAX || content == NULL)
            return eng_fail(reterr, ENG_E_INPUT, "%s: added_tokens[%zu] lacks id or content", what,
                            i);
        if (eng_tok_vocab_find(vocab, content, strlen(content)) == id)
            continue;
        status = vocab_widen(vocab, id, reterr);
        if (status == ENG_OK)
            status = eng_tok_vocab_put(vocab, what, id, content, strlen(content), false, reterr);
        if (status != ENG_OK)
            return status;
    }
    return ENG_OK;
}

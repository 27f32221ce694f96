/* tokenizer_words: word level: one id per word, split at white space. See tokenizer_parts.h.
 *
 * White space is Unicode's White_Space, as in Rust's char::is_whitespace. Decoding puts one space
 * between words.
 * Threads: see tokenizer_parts.h. Tests: tests/unit/engine/test_tokenizer.c */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "conformance/engine/json.h"
#include "conformance/engine/tokenizer_parts.h"
#include "conformance/engine/unicode.h"

static eng_status words_read_settings(const char *what, struct json_object *root,
                                      struct eng_tokenizer *tokenizer, struct eng_error *reterr)
{
    struct json_object *split = eng_json_member(root, "pre_tokenizer");
    const char *type = "none";
    const char *unk = NULL;
    if (split != NULL && !json_object_is_type(split, json_type_object))
        return eng_fail(reterr, ENG_E_INPUT, "%s: pre_tokenizer is not an object", what);
    eng_status status = ENG_OK;
    if (split != NULL)
        status = eng_json_get_string(what, split, "type", &type, reterr);
    if (status == ENG_OK && strcmp(type, "WhitespaceSplit") != 0)
        return eng_fail(reterr, ENG_E_UNSUPPORTED,
                        "%s: pre_tokenizer is %.40s, expected WhitespaceSplit", what, type);
    if (status == ENG_OK)
        status =
            eng_json_get_string(what, eng_json_member(root, "model"), "unk_token", &unk, reterr);
    if (status != ENG_OK || unk == NULL)
        return status;
    tokenizer->unk_id = eng_tok_vocab_find(&tokenizer->vocab, unk, strlen(unk));
    if (tokenizer->unk_id == ENG_TOK_NONE)
        return eng_fail(reterr, ENG_E_INPUT, "%s: model.unk_token '%s' is not in the vocabulary",
                        what, eng_tok_show(unk, strlen(unk)).text);
    return ENG_OK;
}

eng_status eng_tok_words_open(const char *model_dir, struct eng_tokenizer *tokenizer,
                              struct eng_error *reterr)
{
    tokenizer->kind = ENG_TOK_WORDS;
    tokenizer->unk_id = ENG_TOK_NONE;
    char *path = NULL;
    char *what = NULL;
    struct json_object *root = NULL;
    eng_status status = eng_tok_path(model_dir, "vocab.json", &path, reterr);
    if (status == ENG_OK)
        status = eng_tok_path(model_dir, "tokenizer.json", &what, reterr);
    if (status == ENG_OK)
        status = eng_tok_load_vocab(path, &tokenizer->vocab, reterr);
    if (status == ENG_OK)
        status = eng_tok_load_settings(model_dir, "WordLevel", &tokenizer->vocab, &root, reterr);
    if (status == ENG_OK && root != NULL) {
        status = words_read_settings(what, root, tokenizer, reterr);
        if (status == ENG_OK)
            status = eng_tok_load_added(what, root, &tokenizer->vocab, reterr);
    }
    json_object_put(root);
    free(what);
    free(path);
    return status;
}

/* The end of the characters from `at` on that are white space, or that are not. */
static uint64_t words_run_end(const char *text, uint64_t at, uint64_t end, bool space)
{
    while (at < end) {
        uint64_t next = at;
        uint32_t c = eng_utf8_next(text, &next);
        if ((eng_unicode_classify(c) == ENG_UNICODE_SPACE) != space)
            break;
        at = next;
    }
    return at;
}

eng_status eng_tok_words_encode(const struct eng_tokenizer *tokenizer, const char *text,
                                uint64_t text_bytes, struct eng_tok_work *work,
                                struct eng_error *reterr)
{
    uint64_t at = words_run_end(text, 0, text_bytes, true);
    while (at < text_bytes) {
        uint64_t end = words_run_end(text, at, text_bytes, false);
        uint32_t id = eng_tok_vocab_find(&tokenizer->vocab, text + at, end - at);
        if (id == ENG_TOK_NONE)
            id = tokenizer->unk_id;
        if (id == ENG_TOK_NONE)
            return eng_fail(reterr, ENG_E_INPUT,
                            "the word '%s' at byte %" PRIu64 " is not in the vocabulary, which has "
                            "no unk_token",
                            eng_tok_show(text + at, end - at).text, at);
        eng_status status = eng_tok_work_id(work, id, reterr);
        if (status != ENG_OK)
            return status;
        at = words_run_end(text, end, text_bytes, true);
    }
    return ENG_OK;
}

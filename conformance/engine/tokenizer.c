/* tokenizer: chooses the kind of tokenizer, and decodes. See tokenizer.h. */
#include "conformance/engine/tokenizer.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "conformance/engine/tokenizer_parts.h"
#include "conformance/engine/unicode.h"

/* *ret_path is model_dir/name where that exists, else NULL. */
static eng_status tokenizer_look(const char *model_dir, const char *name, char **ret_path,
                                 struct eng_error *reterr)
{
    char *path = NULL;
    eng_status status = eng_tok_path(model_dir, name, &path, reterr);
    if (status != ENG_OK)
        return status;
    if (access(path, F_OK) != 0) {
        free(path);
        path = NULL;
    }
    *ret_path = path;
    return ENG_OK;
}

static eng_status tokenizer_open_kind(const char *model_dir, struct eng_tokenizer *tokenizer,
                                      struct eng_error *reterr)
{
    static const char *const names[4] = {"vocab.json", "merges.txt", "tok512.bin", "tokenizer.bin"};
    char *paths[4] = {NULL};
    eng_status status = ENG_OK;
    for (int i = 0; i < 4 && status == ENG_OK; i++)
        status = tokenizer_look(model_dir, names[i], &paths[i], reterr);
    if (status != ENG_OK)
        goto free_paths;
    if (paths[0] != NULL && paths[1] != NULL)
        status = eng_tok_bytes_open(model_dir, tokenizer, reterr);
    else if (paths[0] != NULL)
        status = eng_tok_words_open(model_dir, tokenizer, reterr);
    else if (paths[2] != NULL || paths[3] != NULL)
        status = eng_tok_scores_open(paths[2] != NULL ? paths[2] : paths[3], tokenizer, reterr);
    else
        status = eng_fail(reterr, ENG_E_INPUT,
                          "%s: no tokenizer: expected vocab.json with or without merges.txt, "
                          "tok512.bin or tokenizer.bin",
                          model_dir);
free_paths:
    for (int i = 0; i < 4; i++)
        free(paths[i]);
    return status;
}

eng_status eng_tokenizer_open(const char *model_dir, struct eng_tokenizer **ret_tokenizer,
                              struct eng_error *reterr)
{
    struct eng_tokenizer *tokenizer = calloc(1, sizeof(*tokenizer));
    if (tokenizer == NULL)
        return eng_fail(reterr, ENG_E_NO_MEMORY, "%s: no memory for a tokenizer", model_dir);
    eng_status status = tokenizer_open_kind(model_dir, tokenizer, reterr);
    if (status != ENG_OK) {
        eng_tokenizer_close(tokenizer);
        return status;
    }
    *ret_tokenizer = tokenizer;
    return ENG_OK;
}

void eng_tokenizer_close(struct eng_tokenizer *tokenizer)
{
    if (tokenizer == NULL)
        return;
    eng_tok_vocab_done(&tokenizer->vocab);
    eng_tok_rules_done(&tokenizer->rules);
    free(tokenizer->ranks);
    free(tokenizer);
}

uint64_t eng_tokenizer_vocab_count(const struct eng_tokenizer *tokenizer)
{
    return tokenizer->vocab.id_count;
}

eng_status eng_tokenizer_encode(const struct eng_tokenizer *tokenizer, const char *text,
                                uint64_t text_bytes, uint32_t **ret_ids, uint64_t *ret_id_count,
                                struct eng_error *reterr)
{
    if (text_bytes > ENG_TOK_TEXT_BYTES_MAX)
        return eng_fail(reterr, ENG_E_INVALID,
                        "a text of %" PRIu64 " bytes, at most %" PRIu64 " can be tokenized",
                        text_bytes, ENG_TOK_TEXT_BYTES_MAX);
    uint64_t valid = eng_utf8_valid_bytes(text, text_bytes);
    if (valid != text_bytes)
        return eng_fail(reterr, ENG_E_INPUT, "the text is not UTF-8 at byte %" PRIu64 " (0x%02X)",
                        valid, (unsigned)(uint8_t)text[valid]);
    struct eng_tok_work work = {0};
    work.ids = eng_tok_grow(NULL, sizeof(*work.ids), 1, &work.id_cap); /* no ids: still not NULL */
    eng_status status = ENG_OK;
    if (work.ids == NULL)
        status = eng_fail(reterr, ENG_E_NO_MEMORY, "no memory to tokenize a text");
    else if (tokenizer->kind == ENG_TOK_BYTES)
        status = eng_tok_bytes_encode(tokenizer, text, text_bytes, &work, reterr);
    else if (tokenizer->kind == ENG_TOK_WORDS)
        status = eng_tok_words_encode(tokenizer, text, text_bytes, &work, reterr);
    else
        status = eng_tok_scores_encode(tokenizer, text, text_bytes, &work, reterr);
    if (status == ENG_OK) {
        *ret_ids = work.ids;
        *ret_id_count = work.id_count;
        work.ids = NULL;
    }
    eng_tok_work_done(&work);
    return status;
}

/* The bytes that ids[i] adds to the text; *ret_byte holds one where the token names a byte. */
static void decode_piece(const struct eng_tokenizer *tokenizer, const uint32_t *ids, uint64_t i,
                         char *ret_byte, const char **ret_bytes, uint64_t *ret_count)
{
    const struct eng_tok_entry *entry = &tokenizer->vocab.entries[ids[i]];
    *ret_bytes = tokenizer->vocab.arena + entry->offset;
    *ret_count = entry->bytes;
    if (tokenizer->kind != ENG_TOK_SCORES)
        return;
    int byte = eng_tok_scores_byte(*ret_bytes, *ret_count);
    if (byte >= 0) {
        *ret_byte = (char)byte;
        *ret_bytes = ret_byte;
        *ret_count = 1;
    } else if ((i == 0 || ids[i - 1] == 1) && (*ret_bytes)[0] == ' ') {
        *ret_bytes += 1; /* the space that encode put in front */
        *ret_count -= 1;
    }
}

eng_status eng_tokenizer_decode(const struct eng_tokenizer *tokenizer, const uint32_t *ids,
                                uint64_t id_count, char **ret_text, uint64_t *ret_text_bytes,
                                struct eng_error *reterr)
{
    const struct eng_tok_vocab *vocab = &tokenizer->vocab;
    uint64_t bytes_max = 1; /* the NUL; a token and a space between words below 2^13 bytes */
    if (id_count > UINT64_MAX >> 14)
        return eng_fail(reterr, ENG_E_INVALID, "%" PRIu64 " ids are too many", id_count);
    for (uint64_t i = 0; i < id_count; i++) {
        if (ids[i] >= vocab->id_count || !vocab->entries[ids[i]].present)
            return eng_fail(reterr, ENG_E_INVALID,
                            "id %" PRIu32 " at place %" PRIu64 " is not in the vocabulary (%" PRIu64
                            " ids)",
                            ids[i], i, vocab->id_count);
        bytes_max += vocab->entries[ids[i]].bytes + UINT64_C(1);
    }
    char *text = malloc(bytes_max);
    if (text == NULL)
        return eng_fail(reterr, ENG_E_NO_MEMORY, "no memory for a text of %" PRIu64 " bytes",
                        bytes_max);
    uint64_t at = 0;
    for (uint64_t i = 0; i < id_count; i++) {
        char byte;
        const char *bytes;
        uint64_t count;
        decode_piece(tokenizer, ids, i, &byte, &bytes, &count);
        if (tokenizer->kind == ENG_TOK_WORDS && i > 0)
            text[at++] = ' ';
        memcpy(text + at, bytes, count);
        at += count;
    }
    text[at] = '\0';
    *ret_text = text;
    if (ret_text_bytes != NULL)
        *ret_text_bytes = at;
    return ENG_OK;
}

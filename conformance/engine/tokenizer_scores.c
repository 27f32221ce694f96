/* tokenizer_scores: llama2.c's tokenizer (tok512.bin): greedy merges by score. See
 * tokenizer_parts.h.
 *
 *   file   | max_token_bytes i32 | then for id 0, 1, ...: | score f32 | bytes i32 | text |
 *   text   ' ', then a symbol per character, or <0xNN> per byte if no token is the character
 *   merge  of all neighbours whose joined text is a token the best score, leftmost among equals
 *
 * Tokens fill the file to its end. Numbers are little-endian, scores finite. Ranks order scores, 0
 * for the best, so that whole numbers are compared. id 1 is not put in front.
 * Threads: see tokenizer_parts.h. Tests: tests/unit/engine/test_tokenizer.c */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conformance/engine/mapfile.h"
#include "conformance/engine/tokenizer_parts.h"
#include "conformance/engine/unicode.h"

#define SCORES_HEAD_BYTES 8u /* score and length of one token */

static uint32_t scores_u32(const uint8_t *at)
{
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

int eng_tok_scores_byte(const char *text, uint64_t bytes)
{
    if (bytes != 6 || memcmp(text, "<0x", 3) != 0 || text[5] != '>')
        return -1;
    int high = hex_digit(text[3]);
    int low = hex_digit(text[4]);
    return high < 0 || low < 0 ? -1 : high * 16 + low;
}

/* The token at byte `at` of the file, checked. */
static eng_status scores_token(const char *path, const struct eng_mapfile *map, uint64_t at,
                               uint64_t id, float *ret_score, uint64_t *ret_bytes,
                               struct eng_error *reterr)
{
    if (map->bytes - at < SCORES_HEAD_BYTES)
        return eng_fail(reterr, ENG_E_INPUT, "%s: ends inside token %" PRIu64 ", at byte %" PRIu64,
                        path, id, map->bytes);
    uint32_t bits = scores_u32(map->data + at);
    uint32_t bytes = scores_u32(map->data + at + 4);
    uint32_t bytes_max = scores_u32(map->data);
    memcpy(ret_score, &bits, sizeof(bits));
    if (!isfinite(*ret_score))
        return eng_fail(reterr, ENG_E_INPUT, "%s: token %" PRIu64 " has no finite score", path, id);
    if (bytes == 0 || bytes > bytes_max)
        return eng_fail(reterr, ENG_E_INPUT,
                        "%s: token %" PRIu64 " has %" PRIu32 " bytes, expected 1 to %" PRIu32, path,
                        id, bytes, bytes_max);
    if (map->bytes - at - SCORES_HEAD_BYTES < bytes)
        return eng_fail(reterr, ENG_E_INPUT, "%s: ends inside token %" PRIu64 ", at byte %" PRIu64,
                        path, id, map->bytes);
    *ret_bytes = bytes;
    return ENG_OK;
}

struct scored {
    float score;
    uint32_t id;
};

static int scored_compare(const void *a, const void *b)
{
    float left = ((const struct scored *)a)->score;
    float right = ((const struct scored *)b)->score;
    return (left < right) - (left > right); /* best first */
}

static void scores_rank(struct scored *scored, uint64_t count, uint32_t *ranks)
{
    qsort(scored, count, sizeof(*scored), scored_compare);
    uint32_t rank = 0;
    for (uint64_t i = 0; i < count; i++) {
        if (i > 0 && scored[i].score < scored[i - 1].score)
            rank++;
        ranks[scored[i].id] = rank;
    }
}

static eng_status scores_fill(const char *path, const struct eng_mapfile *map, uint64_t count,
                              struct eng_tokenizer *tokenizer, struct eng_error *reterr)
{
    eng_status status = eng_tok_vocab_init(&tokenizer->vocab, count, reterr);
    if (status != ENG_OK)
        return status;
    tokenizer->ranks = calloc(count, sizeof(*tokenizer->ranks));
    struct scored *scored = calloc(count, sizeof(*scored));
    if (tokenizer->ranks == NULL || scored == NULL)
        status = eng_fail(reterr, ENG_E_NO_MEMORY, "%s: no memory for the vocabulary", path);
    uint64_t at = 4;
    for (uint64_t id = 0; id < count && status == ENG_OK; id++) {
        uint64_t bytes = 0;
        scored[id].id = (uint32_t)id;
        status = scores_token(path, map, at, id, &scored[id].score, &bytes, reterr);
        const char *text = (const char *)map->data + at + SCORES_HEAD_BYTES;
        if (status == ENG_OK)
            status = eng_tok_vocab_put(&tokenizer->vocab, path, id, text, bytes, true, reterr);
        at += SCORES_HEAD_BYTES + bytes;
    }
    if (status == ENG_OK)
        scores_rank(scored, count, tokenizer->ranks);
    free(scored);
    return status;
}

/* Counts the tokens, so that the tables have their size at once. */
static eng_status scores_count(const char *path, const struct eng_mapfile *map, uint64_t *ret_count,
                               struct eng_error *reterr)
{
    uint32_t bytes_max = map->bytes < 4 ? 0 : scores_u32(map->data);
    if (bytes_max == 0 || bytes_max > ENG_TOK_TOKEN_BYTES)
        return eng_fail(reterr, ENG_E_INPUT,
                        "%s: the largest token has %" PRIu32 " bytes, expected 1 to %u", path,
                        bytes_max, ENG_TOK_TOKEN_BYTES);
    uint64_t count = 0;
    for (uint64_t at = 4; at < map->bytes; count++) {
        float score;
        uint64_t bytes = 0;
        eng_status status = scores_token(path, map, at, count, &score, &bytes, reterr);
        if (status != ENG_OK)
            return status;
        at += SCORES_HEAD_BYTES + bytes;
    }
    if (count == 0 || count > ENG_TOK_ID_MAX)
        return eng_fail(reterr, ENG_E_INPUT, "%s: %" PRIu64 " tokens, expected 1 to %" PRIu32, path,
                        count, ENG_TOK_ID_MAX);
    *ret_count = count;
    return ENG_OK;
}

static eng_status scores_find_bytes(const char *path, struct eng_tokenizer *tokenizer,
                                    struct eng_error *reterr)
{
    for (unsigned byte = 0; byte < 256; byte++) {
        char name[8];
        (void)snprintf(name, sizeof(name), "<0x%02X>", byte);
        tokenizer->byte_ids[byte] = eng_tok_vocab_find(&tokenizer->vocab, name, 6);
        if (tokenizer->byte_ids[byte] == ENG_TOK_NONE)
            return eng_fail(reterr, ENG_E_INPUT, "%s: expected a token %s, found none", path, name);
    }
    tokenizer->prefix_id = eng_tok_vocab_find(&tokenizer->vocab, " ", 1);
    if (tokenizer->prefix_id == ENG_TOK_NONE)
        return eng_fail(reterr, ENG_E_INPUT, "%s: expected a token ' ', found none", path);
    return ENG_OK;
}

eng_status eng_tok_scores_open(const char *path, struct eng_tokenizer *tokenizer,
                               struct eng_error *reterr)
{
    tokenizer->kind = ENG_TOK_SCORES;
    struct eng_mapfile map = {0};
    uint64_t count = 0;
    eng_status status = eng_mapfile_open(path, &map, reterr);
    if (status == ENG_OK)
        status = scores_count(path, &map, &count, reterr);
    if (status == ENG_OK)
        status = scores_fill(path, &map, count, tokenizer, reterr);
    if (status == ENG_OK)
        status = scores_find_bytes(path, tokenizer, reterr);
    eng_mapfile_close(&map);
    return status;
}

eng_status eng_tok_scores_encode(const struct eng_tokenizer *tokenizer, const char *text,
                                 uint64_t text_bytes, struct eng_tok_work *work,
                                 struct eng_error *reterr)
{
    if (text_bytes == 0)
        return ENG_OK;
    eng_status status = eng_tok_work_symbol(work, tokenizer->prefix_id, reterr);
    for (uint64_t at = 0; at < text_bytes && status == ENG_OK;) {
        uint64_t next = at;
        (void)eng_utf8_next(text, &next);
        uint32_t id = eng_tok_vocab_find(&tokenizer->vocab, text + at, next - at);
        if (id != ENG_TOK_NONE)
            status = eng_tok_work_symbol(work, id, reterr);
        for (uint64_t i = at; i < next && id == ENG_TOK_NONE && status == ENG_OK; i++)
            status = eng_tok_work_symbol(work, tokenizer->byte_ids[(uint8_t)text[i]], reterr);
        at = next;
    }
    if (status == ENG_OK)
        status = eng_tok_work_merge(tokenizer, work, reterr);
    return status;
}

/* tokenizer_vocab: ids, their bytes, and the way back. See tokenizer_parts.h.
 *
 *   slots --hash--> id --> entries[id] --offset, bytes--> arena
 *
 * The hash table is at most half full, so that a probe ends.
 * Threads: see tokenizer_parts.h. Tests: tests/unit/engine/test_tokenizer.c */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "conformance/engine/tokenizer_parts.h"
#include "conformance/engine/unicode.h"

void *eng_tok_grow(void *old, uint64_t elem_bytes, uint64_t need, uint64_t *cap)
{
    if (need <= *cap && old != NULL)
        return old;
    uint64_t count = *cap < 64 ? 64 : *cap;
    while (count < need) {
        if (count > UINT64_MAX / 2 / elem_bytes)
            return NULL;
        count *= 2;
    }
    void *grown = realloc(old, count * elem_bytes);
    if (grown != NULL)
        *cap = count;
    return grown;
}

struct eng_tok_shown eng_tok_show(const char *text, uint64_t bytes)
{
    struct eng_tok_shown shown;
    uint64_t length = bytes < 60 ? bytes : 60;
    while (length < bytes && length > 0 && ((uint8_t)text[length] & 0xC0) == 0x80)
        length--; /* not inside a character */
    for (uint64_t i = 0; i < length; i++)
        shown.text[i] = (uint8_t)text[i] < 0x20 || text[i] == 0x7F ? '?' : text[i];
    shown.text[length] = '\0';
    return shown;
}

static uint64_t vocab_hash(const char *text, uint64_t bytes)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325); /* FNV-1a */
    for (uint64_t i = 0; i < bytes; i++)
        hash = (hash ^ (uint8_t)text[i]) * UINT64_C(0x100000001b3);
    return hash ^ hash >> 32;
}

eng_status eng_tok_vocab_init(struct eng_tok_vocab *vocab, uint64_t id_count,
                              struct eng_error *reterr)
{
    *vocab = (struct eng_tok_vocab){.id_count = id_count, .slot_count = 16};
    while (vocab->slot_count < 2 * id_count)
        vocab->slot_count *= 2;
    vocab->entries = calloc(id_count, sizeof(*vocab->entries));
    vocab->slots = malloc(vocab->slot_count * sizeof(*vocab->slots));
    vocab->arena = eng_tok_grow(NULL, 1, 1, &vocab->arena_cap); /* never NULL: no token, no byte */
    if (vocab->entries == NULL || vocab->slots == NULL || vocab->arena == NULL) {
        eng_tok_vocab_done(vocab);
        return eng_fail(reterr, ENG_E_NO_MEMORY, "no memory for a vocabulary of %" PRIu64 " ids",
                        id_count);
    }
    for (uint64_t i = 0; i < vocab->slot_count; i++)
        vocab->slots[i] = ENG_TOK_NONE;
    return ENG_OK;
}

void eng_tok_vocab_done(struct eng_tok_vocab *vocab)
{
    free(vocab->entries);
    free(vocab->slots);
    free(vocab->arena);
    *vocab = (struct eng_tok_vocab){0};
}

/* The slot that holds the text, or the free one where it would go. */
static uint64_t vocab_slot(const struct eng_tok_vocab *vocab, const char *text, uint64_t bytes)
{
    uint64_t slot = vocab_hash(text, bytes) & (vocab->slot_count - 1);
    for (; vocab->slots[slot] != ENG_TOK_NONE; slot = (slot + 1) & (vocab->slot_count - 1)) {
        const struct eng_tok_entry *entry = &vocab->entries[vocab->slots[slot]];
        if (entry->bytes == bytes && memcmp(vocab->arena + entry->offset, text, bytes) == 0)
            break;
    }
    return slot;
}

uint32_t eng_tok_vocab_find(const struct eng_tok_vocab *vocab, const char *text, uint64_t bytes)
{
    return vocab->slots[vocab_slot(vocab, text, bytes)];
}

eng_status eng_tok_vocab_put(struct eng_tok_vocab *vocab, const char *what, uint64_t id,
                             const char *text, uint64_t bytes, bool findable,
                             struct eng_error *reterr)
{
    if (bytes > ENG_TOK_TOKEN_BYTES)
        return eng_fail(reterr, ENG_E_INPUT,
                        "%s: token %" PRIu64 " has %" PRIu64 " bytes, at most %u", what, id, bytes,
                        ENG_TOK_TOKEN_BYTES);
    if (eng_utf8_valid_bytes(text, bytes) != bytes)
        return eng_fail(reterr, ENG_E_INPUT, "%s: token %" PRIu64 " is not UTF-8", what, id);
    struct eng_tok_entry *entry = &vocab->entries[id];
    if (entry->present)
        return eng_fail(reterr, ENG_E_INPUT, "%s: id %" PRIu64 " stands twice: '%s' and '%s'", what,
                        id, eng_tok_show(vocab->arena + entry->offset, entry->bytes).text,
                        eng_tok_show(text, bytes).text);
    uint64_t slot = vocab_slot(vocab, text, bytes);
    if (vocab->slots[slot] != ENG_TOK_NONE)
        return eng_fail(reterr, ENG_E_INPUT, "%s: '%s' has two ids, %" PRIu32 " and %" PRIu64, what,
                        eng_tok_show(text, bytes).text, vocab->slots[slot], id);
    char *arena = eng_tok_grow(vocab->arena, 1, vocab->arena_bytes + bytes, &vocab->arena_cap);
    if (arena == NULL)
        return eng_fail(reterr, ENG_E_NO_MEMORY, "%s: no memory for the vocabulary", what);
    vocab->arena = arena;
    memcpy(arena + vocab->arena_bytes, text, bytes);
    *entry = (struct eng_tok_entry){vocab->arena_bytes, (uint32_t)bytes, true};
    vocab->arena_bytes += bytes;
    if (findable)
        vocab->slots[slot] = (uint32_t)id;
    return ENG_OK;
}

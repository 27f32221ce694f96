/* tokenizer_merge: merges one piece by rules, best rank first, leftmost among equals.
 *
 *   symbols  h <-> e <-> l <-> l <-> o      list in an array; a merge keeps the left symbol's place
 *   heap     (rank, position of the left symbol, result), smallest on top
 *
 * A join in the heap may be stale. It counts only if its position is live, has a right neighbour,
 * and the two still join to the same result: exactly the rule of Hugging Face's tokenizers.
 *
 * Invariants: n symbols have at most n - 1 merges, each of which adds at most two joins to the
 * first n - 1. So the heap has at most 2n entries, and merging takes O(n log n). Nothing is
 * allocated.
 * Threads: see tokenizer_parts.h.
 * Tests: tests/unit/engine/test_tokenizer.c (also beside a twin that looks at every pair) */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "conformance/engine/tokenizer_parts.h"

eng_status eng_tok_rules_init(struct eng_tok_rules *rules, uint64_t rule_count,
                              struct eng_error *reterr)
{
    *rules = (struct eng_tok_rules){.slot_count = 16};
    while (rules->slot_count < 2 * rule_count)
        rules->slot_count *= 2;
    rules->slots = malloc(rules->slot_count * sizeof(*rules->slots));
    if (rules->slots == NULL)
        return eng_fail(reterr, ENG_E_NO_MEMORY, "no memory for %" PRIu64 " merges", rule_count);
    for (uint64_t i = 0; i < rules->slot_count; i++)
        rules->slots[i].key = UINT64_MAX;
    return ENG_OK;
}

void eng_tok_rules_done(struct eng_tok_rules *rules)
{
    free(rules->slots);
    *rules = (struct eng_tok_rules){0};
}

static struct eng_tok_rule *rules_slot(const struct eng_tok_rules *rules, uint64_t key)
{
    uint64_t hash = key * UINT64_C(0x9E3779B97F4A7C15); /* 2^64 / golden ratio: mixes upwards */
    uint64_t slot = (hash ^ hash >> 32) & (rules->slot_count - 1);
    while (rules->slots[slot].key != UINT64_MAX && rules->slots[slot].key != key)
        slot = (slot + 1) & (rules->slot_count - 1);
    return &rules->slots[slot];
}

bool eng_tok_rules_put(struct eng_tok_rules *rules, uint32_t left, uint32_t right, uint32_t rank,
                       uint32_t id)
{
    uint64_t key = (uint64_t)left << 32 | right;
    struct eng_tok_rule *slot = rules_slot(rules, key);
    if (slot->key == key)
        return false;
    *slot = (struct eng_tok_rule){key, rank, id};
    return true;
}

bool eng_tok_rule_find(const struct eng_tokenizer *tokenizer, uint32_t left, uint32_t right,
                       uint32_t *ret_rank, uint32_t *ret_id)
{
    if (tokenizer->kind == ENG_TOK_BYTES) {
        uint64_t key = (uint64_t)left << 32 | right;
        const struct eng_tok_rule *slot = rules_slot(&tokenizer->rules, key);
        if (slot->key != key)
            return false;
        *ret_rank = slot->rank;
        *ret_id = slot->id;
        return true;
    }
    /* By score: any two neighbours whose joined text is a token. */
    const struct eng_tok_vocab *vocab = &tokenizer->vocab;
    const struct eng_tok_entry *a = &vocab->entries[left];
    const struct eng_tok_entry *b = &vocab->entries[right];
    char joined[2 * ENG_TOK_TOKEN_BYTES];
    memcpy(joined, vocab->arena + a->offset, a->bytes);
    memcpy(joined + a->bytes, vocab->arena + b->offset, b->bytes);
    uint32_t id = eng_tok_vocab_find(vocab, joined, (uint64_t)a->bytes + b->bytes);
    if (id == ENG_TOK_NONE)
        return false;
    *ret_rank = tokenizer->ranks[id];
    *ret_id = id;
    return true;
}

void eng_tok_work_done(struct eng_tok_work *work)
{
    free(work->symbols);
    free(work->heap);
    free(work->ids);
    *work = (struct eng_tok_work){0};
}

eng_status eng_tok_work_symbol(struct eng_tok_work *work, uint32_t id, struct eng_error *reterr)
{
    uint64_t count = work->symbol_count;
    void *grown = eng_tok_grow(work->symbols, sizeof(*work->symbols), count + 1, &work->symbol_cap);
    if (grown == NULL)
        return eng_fail(reterr, ENG_E_NO_MEMORY, "no memory to tokenize a text");
    work->symbols = grown;
    uint32_t prev = ENG_TOK_NONE;
    if (count > 0) {
        prev = (uint32_t)(count - 1);
        work->symbols[prev].next = (uint32_t)count;
    }
    work->symbols[count] = (struct eng_tok_symbol){id, prev, ENG_TOK_NONE, true};
    work->symbol_count = count + 1;
    return ENG_OK;
}

eng_status eng_tok_work_id(struct eng_tok_work *work, uint32_t id, struct eng_error *reterr)
{
    void *grown = eng_tok_grow(work->ids, sizeof(*work->ids), work->id_count + 1, &work->id_cap);
    if (grown == NULL)
        return eng_fail(reterr, ENG_E_NO_MEMORY, "no memory to tokenize a text");
    work->ids = grown;
    work->ids[work->id_count++] = id;
    return ENG_OK;
}

static bool join_before(struct eng_tok_join a, struct eng_tok_join b)
{
    return a.rank != b.rank ? a.rank < b.rank : a.position < b.position;
}

static void heap_push(struct eng_tok_work *work, struct eng_tok_join join)
{
    uint64_t at = work->heap_count++;
    while (at > 0 && join_before(join, work->heap[(at - 1) / 2])) {
        work->heap[at] = work->heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    work->heap[at] = join;
}

static struct eng_tok_join heap_pop(struct eng_tok_work *work)
{
    struct eng_tok_join top = work->heap[0];
    struct eng_tok_join last = work->heap[--work->heap_count];
    uint64_t at = 0;
    for (;;) {
        uint64_t child = 2 * at + 1;
        if (child >= work->heap_count)
            break;
        if (child + 1 < work->heap_count && join_before(work->heap[child + 1], work->heap[child]))
            child++;
        if (!join_before(work->heap[child], last))
            break;
        work->heap[at] = work->heap[child];
        at = child;
    }
    work->heap[at] = last;
    return top;
}

/* Adds the join of the symbol at position with its right neighbour, if there is a rule. */
static void work_offer(const struct eng_tokenizer *tokenizer, struct eng_tok_work *work,
                       uint32_t position)
{
    uint32_t next = work->symbols[position].next;
    struct eng_tok_join join = {.position = position};
    if (next != ENG_TOK_NONE && eng_tok_rule_find(tokenizer, work->symbols[position].id,
                                                  work->symbols[next].id, &join.rank, &join.id))
        heap_push(work, join);
}

static void work_join(const struct eng_tokenizer *tokenizer, struct eng_tok_work *work,
                      struct eng_tok_join join)
{
    struct eng_tok_symbol *left = &work->symbols[join.position];
    if (!left->live || left->next == ENG_TOK_NONE)
        return;
    struct eng_tok_symbol *right = &work->symbols[left->next];
    uint32_t rank;
    uint32_t id;
    if (!eng_tok_rule_find(tokenizer, left->id, right->id, &rank, &id) || id != join.id)
        return; /* stale */
    left->id = id;
    left->next = right->next;
    right->live = false;
    if (right->next != ENG_TOK_NONE)
        work->symbols[right->next].prev = join.position;
    if (left->prev != ENG_TOK_NONE)
        work_offer(tokenizer, work, left->prev);
    work_offer(tokenizer, work, join.position);
}

eng_status eng_tok_work_merge(const struct eng_tokenizer *tokenizer, struct eng_tok_work *work,
                              struct eng_error *reterr)
{
    uint64_t count = work->symbol_count;
    if (count == 0)
        return ENG_OK;
    void *grown = eng_tok_grow(work->heap, sizeof(*work->heap), 2 * count, &work->heap_cap);
    if (grown == NULL)
        return eng_fail(reterr, ENG_E_NO_MEMORY, "no memory to tokenize a text");
    work->heap = grown;
    work->heap_count = 0;
    for (uint64_t i = 0; i + 1 < count; i++)
        work_offer(tokenizer, work, (uint32_t)i);
    while (work->heap_count > 0)
        work_join(tokenizer, work, heap_pop(work));
    /* The first symbol is never swallowed, so the list starts there. */
    for (uint32_t i = 0; i != ENG_TOK_NONE; i = work->symbols[i].next) {
        eng_status status = eng_tok_work_id(work, work->symbols[i].id, reterr);
        if (status != ENG_OK)
            return status;
    }
    work->symbol_count = 0;
    return ENG_OK;
}

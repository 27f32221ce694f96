/* tokenizer_parts: shared by the tokenizers: vocabulary, merge rules, merging of one piece.
 *
 *   tokenizer.c        chooses the kind, encode / decode for the caller
 *   tokenizer_bytes.c  byte-level BPE: files, GPT-2 pattern
 *   tokenizer_words.c  word level
 *   tokenizer_scores.c llama2.c's greedy merges
 *   tokenizer_json.c   vocab.json and tokenizer.json
 *   tokenizer_vocab.c  id <-> bytes
 *   tokenizer_merge.c  pairs -> merge, and a heap that merges one piece
 *
 * An id below vocab.id_count has an entry or does not exist (ids may have gaps).
 * Threads: one builds; afterwards all is constant. A work is one call's.
 * Tests: tests/unit/engine/test_tokenizer.c */
#ifndef CONFORMANCE_ENGINE_TOKENIZER_PARTS_H
#define CONFORMANCE_ENGINE_TOKENIZER_PARTS_H

#include <stdbool.h>
#include <stdint.h>

#include "conformance/engine/error.h"
#include "conformance/engine/tokenizer.h"

#define ENG_TOK_NONE           UINT32_MAX
#define ENG_TOK_ID_MAX         (UINT32_C(1) << 22) /* 16 times the largest vocabulary in use */
#define ENG_TOK_TOKEN_BYTES    4096u               /* of one token; real ones stay below 600 */
#define ENG_TOK_TEXT_BYTES_MAX (UINT64_C(1) << 30) /* positions in a piece are 32 bits */

/* Makes room for `need` elements; the result replaces old, NULL leaves old and *cap alone. */
void *eng_tok_grow(void *old, uint64_t elem_bytes, uint64_t need, uint64_t *cap);

/* "model_dir/name" in *ret_path, freed by free(). */
eng_status eng_tok_path(const char *model_dir, const char *name, char **ret_path,
                        struct eng_error *reterr);

/* A token for an error text: at most 60 bytes, cut between characters, controls as '?'. */
struct eng_tok_shown {
    char text[64];
};
struct eng_tok_shown eng_tok_show(const char *text, uint64_t bytes);

/* ---- vocabulary: id -> bytes, and bytes -> id through a hash table ---- */
struct eng_tok_entry {
    uint64_t offset; /* into arena */
    uint32_t bytes;
    bool present;
};

struct eng_tok_vocab {
    struct eng_tok_entry *entries; /* [id_count] */
    uint64_t id_count;             /* largest id + 1 */
    char *arena;
    uint64_t arena_bytes, arena_cap;
    uint32_t *slots; /* [slot_count], a power of two: id or ENG_TOK_NONE */
    uint64_t slot_count;
};

/* A vocabulary for ids below id_count, empty yet. */
eng_status eng_tok_vocab_init(struct eng_tok_vocab *vocab, uint64_t id_count,
                              struct eng_error *reterr);
void eng_tok_vocab_done(struct eng_tok_vocab *vocab);

/* Adds a token; an id or a text that is there already is an error. `what` names the file. A token
 * that is not findable can be decoded only. */
eng_status eng_tok_vocab_put(struct eng_tok_vocab *vocab, const char *what, uint64_t id,
                             const char *text, uint64_t bytes, bool findable,
                             struct eng_error *reterr);

/* The id, or ENG_TOK_NONE. */
uint32_t eng_tok_vocab_find(const struct eng_tok_vocab *vocab, const char *text, uint64_t bytes);

/* ---- merge rules of byte-level BPE: (left, right) -> rank and result ---- */
struct eng_tok_rule {
    uint64_t key; /* left << 32 | right; UINT64_MAX: a free slot */
    uint32_t rank, id;
};

struct eng_tok_rules {
    struct eng_tok_rule *slots; /* [slot_count], a power of two */
    uint64_t slot_count;
};

eng_status eng_tok_rules_init(struct eng_tok_rules *rules, uint64_t rule_count,
                              struct eng_error *reterr);
void eng_tok_rules_done(struct eng_tok_rules *rules);

/* False where the pair has a rule already; that rule stays. */
bool eng_tok_rules_put(struct eng_tok_rules *rules, uint32_t left, uint32_t right, uint32_t rank,
                       uint32_t id);

/* ---- the tokenizer ---- */
enum eng_tok_kind { ENG_TOK_BYTES, ENG_TOK_WORDS, ENG_TOK_SCORES };

struct eng_tokenizer {
    enum eng_tok_kind kind;
    struct eng_tok_vocab vocab;
    uint32_t byte_ids[256];     /* bytes, scores: id of a lone byte, or ENG_TOK_NONE */
    struct eng_tok_rules rules; /* bytes */
    bool split_digits;          /* bytes */
    uint32_t unk_id;            /* words: or ENG_TOK_NONE */
    uint32_t *ranks;            /* scores: [id_count], 0 for the best score */
    uint32_t prefix_id;         /* scores: the space put in front */
};

/* The rule that joins two neighbours; false: they stay apart. */
bool eng_tok_rule_find(const struct eng_tokenizer *tokenizer, uint32_t left, uint32_t right,
                       uint32_t *ret_rank, uint32_t *ret_id);

/* ---- merging one piece: symbols in a list, possible merges in a heap ---- */
struct eng_tok_symbol {
    uint32_t id;
    uint32_t prev, next; /* ENG_TOK_NONE at the ends */
    bool live;           /* false: its left neighbour swallowed it */
};

struct eng_tok_join {
    uint32_t rank, position; /* of the left symbol; the order of the heap, in this order */
    uint32_t id;             /* the result */
};

struct eng_tok_work {
    struct eng_tok_symbol *symbols;
    uint64_t symbol_count, symbol_cap;
    struct eng_tok_join *heap;
    uint64_t heap_count, heap_cap;
    uint32_t *ids; /* the output so far */
    uint64_t id_count, id_cap;
};

void eng_tok_work_done(struct eng_tok_work *work);
eng_status eng_tok_work_symbol(struct eng_tok_work *work, uint32_t id, struct eng_error *reterr);
eng_status eng_tok_work_id(struct eng_tok_work *work, uint32_t id, struct eng_error *reterr);

/* Merges the symbols gathered so far, appends the ids that remain, and forgets the symbols. */
eng_status eng_tok_work_merge(const struct eng_tokenizer *tokenizer, struct eng_tok_work *work,
                              struct eng_error *reterr);

/* ---- files ---- */
struct json_object;

/* Fills vocab from the file vocab.json. */
eng_status eng_tok_load_vocab(const char *path, struct eng_tok_vocab *vocab,
                              struct eng_error *reterr);

/* Opens model_dir/tokenizer.json, or NULL where there is none; model_type is the kind expected.
 * What every kind must check is checked: no normalizer, the type, the same vocabulary. */
eng_status eng_tok_load_settings(const char *model_dir, const char *model_type,
                                 const struct eng_tok_vocab *vocab, struct json_object **ret_root,
                                 struct eng_error *reterr);

/* Adds the added_tokens that the vocabulary lacks, for decoding only. */
eng_status eng_tok_load_added(const char *what, struct json_object *root,
                              struct eng_tok_vocab *vocab, struct eng_error *reterr);

/* ---- the kinds ---- */
eng_status eng_tok_bytes_open(const char *model_dir, struct eng_tokenizer *tokenizer,
                              struct eng_error *reterr);
eng_status eng_tok_bytes_encode(const struct eng_tokenizer *tokenizer, const char *text,
                                uint64_t text_bytes, struct eng_tok_work *work,
                                struct eng_error *reterr);
eng_status eng_tok_words_open(const char *model_dir, struct eng_tokenizer *tokenizer,
                              struct eng_error *reterr);
eng_status eng_tok_words_encode(const struct eng_tokenizer *tokenizer, const char *text,
                                uint64_t text_bytes, struct eng_tok_work *work,
                                struct eng_error *reterr);
eng_status eng_tok_scores_open(const char *path, struct eng_tokenizer *tokenizer,
                               struct eng_error *reterr);
eng_status eng_tok_scores_encode(const struct eng_tokenizer *tokenizer, const char *text,
                                 uint64_t text_bytes, struct eng_tok_work *work,
                                 struct eng_error *reterr);

/* The value of a token "<0xNN>", or -1 for another text. */
int eng_tok_scores_byte(const char *text, uint64_t bytes);

#endif

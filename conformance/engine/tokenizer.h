/* tokenizer: text to token ids and back.
 *
 * The files in the model's directory select the kind, in this order:
 *
 *   vocab.json + merges.txt     byte-level BPE with the GPT-2 pattern (GPT-2, OPT). tokenizer.json
 *                               may ask to split digits before the pattern (SmolLM2); unsupported
 *                               requests are refused.
 *   vocab.json + tokenizer.json word level: split at white space, one id per word (opt-recall)
 *   tok512.bin, tokenizer.bin   llama2.c: greedy merges by best score, <0xNN> for other bytes
 *
 * Ids equal those of Hugging Face tokenizers 0.23 (llama2.c's run.c for the last kind) for the bare
 * text: nothing is added, and names of special tokens are ordinary text.
 *
 * Invariants: a text is UTF-8 (NUL allowed); otherwise an error names the byte. Byte-level
 * decode(encode(text)) is the text if the vocabulary has all 256 byte symbols. SmolLM2's lacks 21
 * (some controls, and first bytes of planes 4 to 11): such a byte yields no id, as in Hugging Face.
 * An unknown word becomes unk_token, or an error that names it. Encoding n bytes takes O(n log n),
 * also for one word.
 * Threads: any; constant after open. Tests: tests/unit/engine/test_tokenizer.c */
#ifndef CONFORMANCE_ENGINE_TOKENIZER_H
#define CONFORMANCE_ENGINE_TOKENIZER_H

#include <stdint.h>

#include "conformance/engine/error.h"

struct eng_tokenizer;

/* Reads the tokenizer's files of model_dir; no other file is needed. *ret_tokenizer is ended by
 * eng_tokenizer_close. */
eng_status eng_tokenizer_open(const char *model_dir, struct eng_tokenizer **ret_tokenizer,
                              struct eng_error *reterr);

/* NULL: nothing. */
void eng_tokenizer_close(struct eng_tokenizer *tokenizer);

/* One more than the largest id: every id that encode gives is below. */
uint64_t eng_tokenizer_vocab_count(const struct eng_tokenizer *tokenizer);

/* Turns text [text_bytes] into *ret_ids [*ret_id_count], freed by free(); never NULL on success,
 * also for no ids. text may be NULL when text_bytes is 0. */
eng_status eng_tokenizer_encode(const struct eng_tokenizer *tokenizer, const char *text,
                                uint64_t text_bytes, uint32_t **ret_ids, uint64_t *ret_id_count,
                                struct eng_error *reterr);

/* Turns ids [id_count] into *ret_text, ended by NUL and freed by free(); *ret_text_bytes (NULL: not
 * wanted) counts its bytes without that NUL. The bytes are as the ids say: ids that stop inside
 * a character give text that is not UTF-8. Word level joins words by one space. llama2.c's kind
 * takes off the space that encode put in front, at the start and after id 1. */
eng_status eng_tokenizer_decode(const struct eng_tokenizer *tokenizer, const uint32_t *ids,
                                uint64_t id_count, char **ret_text, uint64_t *ret_text_bytes,
                                struct eng_error *reterr);

#endif

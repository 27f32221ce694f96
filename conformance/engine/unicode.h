/* unicode: UTF-8 and the four classes of characters that the GPT-2 pattern distinguishes.
 *
 *   table: ranges in rising order, binary search
 *   | first .. last | class |   characters without a range are ENG_UNICODE_OTHER
 *
 * Hugging Face tokenizers 0.23 uses two Unicode versions: Oniguruma's pattern 16.0, and the Digits
 * splitter (Rust's char::is_numeric) 17.0; they differ in 13 characters. So each has a function.
 * \p{L} and \p{N} are the general categories L* and N*; \s is White_Space.
 * Threads: any.
 * Tests: tests/unit/engine/test_tokenizer.c (every character, against tokenizers itself) */
#ifndef CONFORMANCE_ENGINE_UNICODE_H
#define CONFORMANCE_ENGINE_UNICODE_H

#include <stdbool.h>
#include <stdint.h>

enum eng_unicode_class {
    ENG_UNICODE_OTHER,
    ENG_UNICODE_LETTER,
    ENG_UNICODE_NUMBER,
    ENG_UNICODE_SPACE,
};

struct eng_unicode_range {
    uint32_t first, last; /* both inside */
    enum eng_unicode_class kind;
};

/* unicode_tables.c, generated */
extern const struct eng_unicode_range eng_unicode_ranges[];
extern const uint64_t eng_unicode_range_count;
extern const struct eng_unicode_range eng_unicode_late_digits[]; /* numbers in 17.0, not in 16.0 */
extern const uint64_t eng_unicode_late_digit_count;

/* The class of a character in the GPT-2 pattern (Unicode 16.0). */
enum eng_unicode_class eng_unicode_classify(uint32_t character);

/* Whether the Digits splitter takes it for a digit (Nd, Nl and No of Unicode 17.0). */
bool eng_unicode_is_digit(uint32_t character);

/* The length of the longest prefix of text [bytes] that is UTF-8 (no surrogates, no overlong forms,
 * nothing above U+10FFFF): bytes when all of it is. */
uint64_t eng_utf8_valid_bytes(const char *text, uint64_t bytes);

/* The character at *at of a text that is UTF-8; *at moves behind it. */
uint32_t eng_utf8_next(const char *text, uint64_t *at);

#endif

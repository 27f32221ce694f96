/* unicode: UTF-8 and character classes. See unicode.h. */
#include "conformance/engine/unicode.h"

static enum eng_unicode_class unicode_search(const struct eng_unicode_range *ranges, uint64_t count,
                                             uint32_t character)
{
    uint64_t low = 0;
    uint64_t high = count;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if (character < ranges[middle].first)
            high = middle;
        else if (character > ranges[middle].last)
            low = middle + 1;
        else
            return ranges[middle].kind;
    }
    return ENG_UNICODE_OTHER;
}

enum eng_unicode_class eng_unicode_classify(uint32_t character)
{
    if (character < 0x80) { /* most of most texts: no search */
        uint32_t lower = character | 0x20;
        if (lower >= 'a' && lower <= 'z')
            return ENG_UNICODE_LETTER;
        if (character >= '0' && character <= '9')
            return ENG_UNICODE_NUMBER;
        if (character == ' ' || (character >= '\t' && character <= '\r'))
            return ENG_UNICODE_SPACE;
        return ENG_UNICODE_OTHER;
    }
    return unicode_search(eng_unicode_ranges, eng_unicode_range_count, character);
}

bool eng_unicode_is_digit(uint32_t character)
{
    return eng_unicode_classify(character) == ENG_UNICODE_NUMBER ||
           unicode_search(eng_unicode_late_digits, eng_unicode_late_digit_count, character) ==
               ENG_UNICODE_NUMBER;
}

/* Bytes of the character that starts text [bytes], bytes > 0; 0 where none does. The ranges of the
 * second byte are those of the Unicode standard, table 3-7. */
static uint64_t utf8_character_bytes(const uint8_t *text, uint64_t bytes)
{
    uint8_t first = text[0];
    if (first < 0x80)
        return 1;
    if (first < 0xC2 || first > 0xF4)
        return 0;
    uint64_t length = first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
    if (bytes < length)
        return 0;
    uint8_t low = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
    uint8_t high = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
    if (text[1] < low || text[1] > high)
        return 0;
    for (uint64_t i = 2; i < length; i++) {
        if ((text[i] & 0xC0) != 0x80)
            return 0;
    }
    return length;
}

uint64_t eng_utf8_valid_bytes(const char *text, uint64_t bytes)
{
    uint64_t at = 0;
    while (at < bytes) {
        uint64_t length = utf8_character_bytes((const uint8_t *)text + at, bytes - at);
        if (length == 0)
            break;
        at += length;
    }
    return at;
}

uint32_t eng_utf8_next(const char *text, uint64_t *at)
{
    const uint8_t *c = (const uint8_t *)text + *at;
    if (c[0] < 0x80) {
        *at += 1;
        return c[0];
    }
    if (c[0] < 0xE0) {
        *at += 2;
        return (c[0] & 0x1Fu) << 6 | (c[1] & 0x3Fu);
    }
    if (c[0] < 0xF0) {
        *at += 3;
        return (c[0] & 0x0Fu) << 12 | (c[1] & 0x3Fu) << 6 | (c[2] & 0x3Fu);
    }
    *at += 4;
    return (c[0] & 0x07u) << 18 | (c[1] & 0x3Fu) << 12 | (c[2] & 0x3Fu) << 6 | (c[3] & 0x3Fu);
}

/* json: strict JSON over json-c. See json.h. */
#include "conformance/engine/json.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conformance/engine/mapfile.h"

#define JSON_DEPTH_MAX 32

/* Members in a valid text: every colon outside strings belongs to exactly one. */
static uint64_t json_count_colons(const char *text, uint64_t bytes)
{
    uint64_t count = 0;
    bool in_string = false;
    for (uint64_t i = 0; i < bytes; i++) {
        char c = text[i];
        if (in_string && c == '\\')
            i++;
        else if (c == '"')
            in_string = !in_string;
        else if (c == ':' && !in_string)
            count++;
    }
    return count;
}

/* Members in the parsed value; fewer than in the text means that names stood twice. Recursion is
 * bounded by JSON_DEPTH_MAX, which the parser enforced. */
static uint64_t json_count_members(struct json_object *value)
{
    uint64_t count = 0;
    if (json_object_is_type(value, json_type_object)) {
        json_object_object_foreach(value, key, member)
        {
            (void)key;
            count += 1 + json_count_members(member);
        }
    } else if (json_object_is_type(value, json_type_array)) {
        size_t length = json_object_array_length(value);
        for (size_t i = 0; i < length; i++)
            count += json_count_members(json_object_array_get_idx(value, i));
    }
    return count;
}

static bool json_rest_is_blank(const char *text, uint64_t from, uint64_t bytes)
{
    for (uint64_t i = from; i < bytes; i++) {
        if (strchr(" \t\r\n", text[i]) == NULL || text[i] == '\0')
            return false;
    }
    return true;
}

/* The value of a \uXXXX escape at text, or 0 where something else stands. */
static uint32_t json_escape_value(const char *text, uint64_t bytes)
{
    uint32_t value = 0;
    if (bytes < 6 || text[0] != '\\' || text[1] != 'u')
        return 0;
    for (int i = 2; i < 6; i++) {
        char c = text[i];
        uint32_t digit = c >= '0' && c <= '9'   ? (uint32_t)(c - '0')
                         : c >= 'a' && c <= 'f' ? (uint32_t)(c - 'a') + 10
                         : c >= 'A' && c <= 'F' ? (uint32_t)(c - 'A') + 10
                                                : 16;
        if (digit == 16)
            return 0;
        value = value * 16 + digit;
    }
    return value;
}

/* Copies JSON text with every escaped surrogate pair as the UTF-8 of its character: json-c (0.16)
 * takes a character whose low 16 bits are in 0xD800 .. 0xDFFF for half a pair. copy: [bytes]. */
static uint64_t json_join_pairs(const char *text, uint64_t bytes, char *copy)
{
    uint64_t used = 0;
    for (uint64_t i = 0; i < bytes;) {
        uint32_t high = json_escape_value(text + i, bytes - i);
        uint32_t low = high >> 10 == 0x36 ? json_escape_value(text + i + 6, bytes - i - 6) : 0;
        if (low >> 10 == 0x37) {
            uint32_t c = 0x10000 + ((high & 0x3ff) << 10) + (low & 0x3ff);
            copy[used++] = (char)(0xf0 | c >> 18);
            copy[used++] = (char)(0x80 | (c >> 12 & 0x3f));
            copy[used++] = (char)(0x80 | (c >> 6 & 0x3f));
            copy[used++] = (char)(0x80 | (c & 0x3f));
            i += 12;
            continue;
        }
        bool escape = text[i] == '\\' && i + 1 < bytes; /* its second byte begins none */
        copy[used++] = text[i++];
        if (escape)
            copy[used++] = text[i++];
    }
    return used;
}

static struct json_tokener *json_new_parser(void)
{
    struct json_tokener *tokener = json_tokener_new_ex(JSON_DEPTH_MAX);
    if (tokener != NULL)
        json_tokener_set_flags(tokener, JSON_TOKENER_STRICT | JSON_TOKENER_ALLOW_TRAILING_CHARS |
                                            JSON_TOKENER_VALIDATE_UTF8);
    return tokener;
}

/* Replaces *value, parsed from text, by what text says with its surrogate pairs joined. The text
 * is valid, so errors told of it before are at its own positions. */
static bool json_parse_joined(const char *text, uint64_t bytes, struct json_object **value)
{
    char *copy = malloc(bytes + 1);
    struct json_tokener *tokener = json_new_parser();
    struct json_object *joined = NULL;
    if (copy != NULL && tokener != NULL)
        joined = json_tokener_parse_ex(tokener, copy, (int)json_join_pairs(text, bytes, copy));
    free(copy);
    if (tokener != NULL)
        json_tokener_free(tokener);
    if (joined == NULL)
        return false;
    json_object_put(*value);
    *value = joined;
    return true;
}

static bool json_has_pairs(const char *text, uint64_t bytes)
{
    for (uint64_t i = 0; i + 12 <= bytes; i++)
        if (text[i] == '\\' && json_escape_value(text + i, bytes - i) >> 10 == 0x36)
            return true;
    return false;
}

eng_status eng_json_parse(const char *what, const char *text, uint64_t bytes,
                          struct json_object **ret_value, struct eng_error *reterr)
{
    if (bytes > INT_MAX)
        return eng_fail(reterr, ENG_E_INPUT, "%s: JSON of %" PRIu64 " bytes, at most %d", what,
                        bytes, INT_MAX);
    struct json_tokener *tokener = json_new_parser();
    if (tokener == NULL)
        return eng_fail(reterr, ENG_E_NO_MEMORY, "%s: no memory for JSON", what);
    struct json_object *value = json_tokener_parse_ex(tokener, text, (int)bytes);
    enum json_tokener_error error = json_tokener_get_error(tokener);
    uint64_t end = json_tokener_get_parse_end(tokener);
    json_tokener_free(tokener);
    eng_status status = ENG_OK;
    if (error == json_tokener_continue)
        status = eng_fail(reterr, ENG_E_INPUT, "%s: JSON ends too early, after %" PRIu64 " bytes",
                          what, bytes);
    else if (error != json_tokener_success)
        status = eng_fail(reterr, ENG_E_INPUT, "%s: bad JSON at byte %" PRIu64 ": %s", what, end,
                          json_tokener_error_desc(error));
    else if (!json_object_is_type(value, json_type_object))
        status = eng_fail(reterr, ENG_E_INPUT, "%s: expected a JSON object", what);
    else if (!json_rest_is_blank(text, end, bytes))
        status = eng_fail(reterr, ENG_E_INPUT,
                          "%s: something follows the JSON object at byte %" PRIu64, what, end);
    else if (json_has_pairs(text, end) && !json_parse_joined(text, end, &value))
        status = eng_fail(reterr, ENG_E_NO_MEMORY, "%s: no memory for JSON", what);
    else if (json_count_members(value) != json_count_colons(text, end))
        status = eng_fail(reterr, ENG_E_INPUT, "%s: a name stands twice in one JSON object", what);
    if (status != ENG_OK) {
        json_object_put(value);
        return status;
    }
    *ret_value = value;
    return ENG_OK;
}

eng_status eng_json_load(const char *path, struct json_object **ret_value, struct eng_error *reterr)
{
    struct eng_mapfile map = {0};
    eng_status status = eng_mapfile_open(path, &map, reterr);
    if (status != ENG_OK)
        return status;
    status = eng_json_parse(path, (const char *)map.data, map.bytes, ret_value, reterr);
    eng_mapfile_close(&map);
    return status;
}

struct json_object *eng_json_member(struct json_object *object, const char *name)
{
    struct json_object *member = NULL;
    (void)json_object_object_get_ex(object, name, &member);
    return member;
}

static eng_status json_wrong(const char *what, const char *name, struct json_object *member,
                             const char *expected, struct eng_error *reterr)
{
    return eng_fail(reterr, ENG_E_INPUT, "%s: %s is %.80s, expected %s", what, name,
                    json_object_to_json_string_ext(member, JSON_C_TO_STRING_PLAIN), expected);
}

eng_status eng_json_get_u64(const char *what, struct json_object *object, const char *name,
                            uint64_t low, uint64_t high, uint64_t *ret_value,
                            struct eng_error *reterr)
{
    struct json_object *member = eng_json_member(object, name);
    if (member == NULL)
        return ENG_OK;
    char expected[80];
    (void)snprintf(expected, sizeof(expected), "a whole number from %" PRIu64 " to %" PRIu64, low,
                   high);
    if (!json_object_is_type(member, json_type_int) || json_object_get_int64(member) < 0)
        return json_wrong(what, name, member, expected, reterr);
    uint64_t value = json_object_get_uint64(member);
    if (value < low || value > high)
        return json_wrong(what, name, member, expected, reterr);
    *ret_value = value;
    return ENG_OK;
}

eng_status eng_json_get_real(const char *what, struct json_object *object, const char *name,
                             double low, double high, double *ret_value, struct eng_error *reterr)
{
    struct json_object *member = eng_json_member(object, name);
    if (member == NULL)
        return ENG_OK;
    char expected[80];
    (void)snprintf(expected, sizeof(expected), "a number from %g to %g", low, high);
    if (!json_object_is_type(member, json_type_double) &&
        !json_object_is_type(member, json_type_int))
        return json_wrong(what, name, member, expected, reterr);
    double value = json_object_get_double(member);
    if (!(value >= low && value <= high)) /* NaN fails too */
        return json_wrong(what, name, member, expected, reterr);
    *ret_value = value;
    return ENG_OK;
}

eng_status eng_json_get_bool(const char *what, struct json_object *object, const char *name,
                             bool *ret_value, struct eng_error *reterr)
{
    struct json_object *member = eng_json_member(object, name);
    if (member == NULL)
        return ENG_OK;
    if (!json_object_is_type(member, json_type_boolean))
        return json_wrong(what, name, member, "true or false", reterr);
    *ret_value = json_object_get_boolean(member) != 0;
    return ENG_OK;
}

eng_status eng_json_get_string(const char *what, struct json_object *object, const char *name,
                               const char **ret_value, struct eng_error *reterr)
{
    struct json_object *member = eng_json_member(object, name);
    if (member == NULL)
        return ENG_OK;
    if (!json_object_is_type(member, json_type_string))
        return json_wrong(what, name, member, "a string", reterr);
    *ret_value = json_object_get_string(member);
    return ENG_OK;
}

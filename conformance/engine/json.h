/* json: strict JSON over json-c: whole text, no duplicate names, typed members with clear errors.
 *
 * json-c silently keeps the last of two members of one name; here that is an error. A failed getter
 * names the file, the member, what was found and what is allowed. json-c owns all values until
 * json_object_put.
 * Threads: any, one value by one thread at a time.
 * Tests: tests/unit/engine/test_config.c, test_safetensors.c */
#ifndef CONFORMANCE_ENGINE_JSON_H
#define CONFORMANCE_ENGINE_JSON_H

#include <json-c/json.h>
#include <stdbool.h>
#include <stdint.h>

#include "conformance/engine/error.h"

/* Parses text [bytes]; `what` names it in errors. Gives *ret_value (json_object_put frees it),
 * which is an object. */
eng_status eng_json_parse(const char *what, const char *text, uint64_t bytes,
                          struct json_object **ret_value, struct eng_error *reterr);

/* The same for a whole file. */
eng_status eng_json_load(const char *path, struct json_object **ret_value,
                         struct eng_error *reterr);

/* The member, or NULL where it is absent or null. */
struct json_object *eng_json_member(struct json_object *object, const char *name);

/* Getters: an absent (or null) member leaves *ret_value as it was; a member of another type, or
 * outside the stated range, is an error. */
eng_status eng_json_get_u64(const char *what, struct json_object *object, const char *name,
                            uint64_t low, uint64_t high, uint64_t *ret_value,
                            struct eng_error *reterr);
eng_status eng_json_get_real(const char *what, struct json_object *object, const char *name,
                             double low, double high, double *ret_value, struct eng_error *reterr);
eng_status eng_json_get_bool(const char *what, struct json_object *object, const char *name,
                             bool *ret_value, struct eng_error *reterr);
/* *ret_value lives as long as the object. */
eng_status eng_json_get_string(const char *what, struct json_object *object, const char *name,
                               const char **ret_value, struct eng_error *reterr);

#endif

/* select_text: parses a spec_select. See select_text.h. */
#include "conformance/engine/cli/select_text.h"

#include <string.h>

#include "conformance/engine/json.h"

#define PPM 1000000u

static const char what[] = "--select";

struct reading {
    struct json_object *object;
    struct eng_error *reterr;
    eng_status status;
};

/* The member, and the group that it makes count. */
static void read_count(struct reading *reading, const char *name, uint64_t high, uint32_t group,
                       struct spec_select *select, uint64_t *ret_value)
{
    if (reading->status != ENG_OK || eng_json_member(reading->object, name) == NULL)
        return;
    select->given |= group;
    reading->status =
        eng_json_get_u64(what, reading->object, name, 0, high, ret_value, reading->reterr);
}

static void read_word(struct reading *reading, const char *name, const char *const *words,
                      uint32_t group, struct spec_select *select, uint32_t *ret_value)
{
    const char *word = NULL;
    if (reading->status != ENG_OK || eng_json_member(reading->object, name) == NULL)
        return;
    select->given |= group;
    reading->status = eng_json_get_string(what, reading->object, name, &word, reading->reterr);
    for (uint32_t i = 0; reading->status == ENG_OK && words[i] != NULL; i++) {
        if (strcmp(words[i], word) == 0) {
            *ret_value = i;
            return;
        }
    }
    if (reading->status == ENG_OK)
        reading->status = eng_fail(reading->reterr, ENG_E_INVALID,
                                   "%s: %s is \"%.40s\", expected \"%s\", \"%s\" or \"%s\"", what,
                                   name, word, words[0], words[1], words[2]);
}

static eng_status check_names(struct json_object *object, struct eng_error *reterr)
{
    static const char *const names[] = {"budget", "retain_ppm", "mass_ppm",  "count",
                                        "metric", "keep_first", "keep_last", NULL};
    json_object_object_foreach(object, name, value)
    {
        int at = 0;
        (void)value;
        while (names[at] != NULL && strcmp(names[at], name) != 0)
            at++;
        if (names[at] == NULL)
            return eng_fail(reterr, ENG_E_INVALID, "%s: %.40s: unknown name", what, name);
    }
    return ENG_OK;
}

eng_status eng_select_parse(const char *text, struct spec_select *ret_select,
                            struct eng_error *reterr)
{
    /* In the order of the ABI's numbers. */
    static const char *const budgets[] = {"ratio", "count", "mass", NULL};
    static const char *const metrics[] = {"h2o", "last", "random", NULL};
    struct spec_select select = {.struct_size = sizeof(select), .retain_ppm = PPM};
    struct reading reading = {.reterr = reterr};
    uint64_t retain = PPM, mass = PPM, first = 0, last = 0;
    reading.status = eng_json_parse(what, text, strlen(text), &reading.object, reterr);
    if (reading.status != ENG_OK)
        return reading.status;
    reading.status = check_names(reading.object, reterr);
    read_word(&reading, "budget", budgets, SPEC_SELECT_BUDGET, &select, &select.budget);
    read_count(&reading, "retain_ppm", PPM, SPEC_SELECT_BUDGET, &select, &retain);
    read_count(&reading, "mass_ppm", PPM, SPEC_SELECT_BUDGET, &select, &mass);
    read_count(&reading, "count", UINT32_MAX, SPEC_SELECT_BUDGET, &select, &select.count);
    read_word(&reading, "metric", metrics, SPEC_SELECT_METRIC, &select, &select.metric);
    read_count(&reading, "keep_first", UINT32_MAX, SPEC_SELECT_KEEP, &select, &first);
    read_count(&reading, "keep_last", UINT32_MAX, SPEC_SELECT_KEEP, &select, &last);
    json_object_put(reading.object);
    if (reading.status != ENG_OK)
        return reading.status;
    select.retain_ppm = (uint32_t)retain;
    select.mass_ppm = (uint32_t)mass;
    select.keep_first = (uint32_t)first;
    select.keep_last = (uint32_t)last;
    *ret_select = select;
    return ENG_OK;
}

struct spec_select eng_select_ratio(double rho)
{
    uint32_t ppm = (uint32_t)(rho * PPM + .5);
    return (struct spec_select){.struct_size = sizeof(struct spec_select),
                                .given = SPEC_SELECT_BUDGET,
                                .budget = SPEC_BUDGET_RATIO,
                                .retain_ppm = ppm == 0 ? 1 : ppm};
}

/* results: collects the tests' results. See results.h. */
#include "conformance/results.h"

#include <inttypes.h>
#include <json-c/json.h>
#include <stdlib.h>
#include <string.h>

static const char *const OUTCOMES[CONF_OUTCOMES] = {"passed", "failed", "skipped"};

bool conf_results_add(struct conf_results *results, const struct conf_test *test,
                      enum conf_outcome outcome, const char *text)
{
    if (results->count == results->room) {
        size_t room = results->room > 0 ? 2 * results->room : 64;
        struct conf_result *grown = reallocarray(results->list, room, sizeof(*grown));
        if (grown == NULL)
            return false;
        results->list = grown;
        results->room = room;
    }
    char *copy = strdup(text);
    if (copy == NULL)
        return false;
    for (char *at = copy; *at != '\0'; at++)
        if ((*at < ' ' && *at != '\n' && *at != '\t') || *at > '~')
            *at = '?';
    results->list[results->count++] = (struct conf_result){test, outcome, copy};
    results->totals[outcome]++;
    return true;
}

void conf_results_done(struct conf_results *results)
{
    for (size_t i = 0; i < results->count; i++)
        free(results->list[i].text);
    free(results->list);
    *results = (struct conf_results){0};
}

/* ---- Clauses -------------------------------------------------------------------------------- */

struct clause {
    uint32_t number;
    size_t tests, totals[CONF_OUTCOMES];
};

/* The clause above `number` with the least number that has tests; tests 0: there is none. */
static struct clause next_clause(const struct conf_results *results, int64_t number)
{
    struct clause clause = {.number = UINT32_MAX};
    for (size_t i = 0; i < results->count; i++) {
        uint32_t of = conf_clause_of(results->list[i].test->name);
        if (of <= number || of > clause.number)
            continue;
        if (of < clause.number)
            clause = (struct clause){.number = of};
        clause.tests++;
        clause.totals[results->list[i].outcome]++;
    }
    return clause;
}

static const char *outcome_of(const struct clause *clause)
{
    return clause->totals[CONF_FAILED] > 0   ? "fails"
           : clause->totals[CONF_PASSED] > 0 ? "holds"
                                             : "skipped";
}

/* ---- Text ----------------------------------------------------------------------------------- */

void conf_results_print(const struct conf_results *results, FILE *out)
{
    fprintf(out, "\nclause   outcome  tests  what it is about\n");
    struct clause clause;
    for (int64_t number = -1; (clause = next_clause(results, number)).tests > 0;
         number = clause.number)
        fprintf(out, "%s-%03" PRIu32 "  %-7s  %-5zu  %s\n", conf_set->prefix, clause.number,
                outcome_of(&clause), clause.tests, conf_clause_title(clause.number));
    fprintf(out, "hits seen: %" PRIu64 ", misses: %" PRIu64 "\n", conf_options.shared->hits,
            conf_options.shared->misses);
    fprintf(out, "%zu passed, %zu failed, %zu skipped\n", results->totals[CONF_PASSED],
            results->totals[CONF_FAILED], results->totals[CONF_SKIPPED]);
}

/* ---- JSON ----------------------------------------------------------------------------------- */

/* Takes value over. False: no memory. */
static bool put(struct json_object *object, const char *name, struct json_object *value)
{
    if (value != NULL && json_object_object_add(object, name, value) == 0)
        return true;
    json_object_put(value);
    return false;
}

static bool put_text(struct json_object *object, const char *name, const char *text)
{
    return put(object, name, json_object_new_string(text));
}

static bool put_count(struct json_object *object, const char *name, uint64_t count)
{
    return put(object, name, json_object_new_uint64(count));
}

static bool append(struct json_object *list, struct json_object *value)
{
    if (json_object_array_add(list, value) == 0)
        return true;
    json_object_put(value);
    return false;
}

static bool put_clauses(struct json_object *list, const struct conf_results *results)
{
    struct clause clause;
    char name[16];
    for (int64_t number = -1; (clause = next_clause(results, number)).tests > 0;
         number = clause.number) {
        struct json_object *one = json_object_new_object();
        (void)snprintf(name, sizeof(name), "%s-%03" PRIu32, conf_set->prefix, clause.number);
        if (one == NULL || !append(list, one) || !put_text(one, "clause", name) ||
            !put_text(one, "title", conf_clause_title(clause.number)) ||
            !put_text(one, "outcome", outcome_of(&clause)) ||
            !put_count(one, "tests", clause.tests))
            return false;
    }
    return true;
}

static bool put_tests(struct json_object *list, const struct conf_results *results)
{
    for (size_t i = 0; i < results->count; i++) {
        const struct conf_result *result = &results->list[i];
        struct json_object *one = json_object_new_object();
        if (one == NULL || !append(list, one) || !put_text(one, "name", result->test->name) ||
            !put_text(one, "outcome", OUTCOMES[result->outcome]) ||
            (result->text[0] != '\0' && !put_text(one, "text", result->text)))
            return false;
    }
    return true;
}

bool conf_results_json(const struct conf_results *results, FILE *out)
{
    struct json_object *object = json_object_new_object();
    struct json_object *clauses = json_object_new_array(), *tests = json_object_new_array();
    bool good = object != NULL && put(object, "clauses", clauses) && put(object, "tests", tests) &&
                put_text(object, "connector", conf_options.so) &&
                put_count(object, "hits", conf_options.shared->hits) &&
                put_count(object, "misses", conf_options.shared->misses);
    for (int i = 0; good && i < CONF_OUTCOMES; i++)
        good = put_count(object, OUTCOMES[i], results->totals[i]);
    good = good && put_clauses(clauses, results) && put_tests(tests, results);
    if (good)
        fprintf(out, "%s\n",
                json_object_to_json_string_ext(object, JSON_C_TO_STRING_PRETTY |
                                                           JSON_C_TO_STRING_NOSLASHESCAPE));
    json_object_put(object);
    return good && fflush(out) == 0;
}

/* ---- JUnit ---------------------------------------------------------------------------------- */

static void put_xml(FILE *out, const char *text)
{
    for (; *text != '\0'; text++) {
        if (*text == '&')
            fputs("&amp;", out);
        else if (*text == '<')
            fputs("&lt;", out);
        else if (*text == '>')
            fputs("&gt;", out);
        else if (*text == '"')
            fputs("&quot;", out);
        else
            fputc(*text, out);
    }
}

bool conf_results_junit(const struct conf_results *results, FILE *out)
{
    fprintf(
        out,
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
        "<testsuites>\n"
        "<testsuite name=\"spec-conformance\" tests=\"%zu\" failures=\"%zu\" skipped=\"%zu\">\n",
        results->count, results->totals[CONF_FAILED], results->totals[CONF_SKIPPED]);
    for (size_t i = 0; i < results->count; i++) {
        const struct conf_result *result = &results->list[i];
        uint32_t clause = conf_clause_of(result->test->name);
        fprintf(out, "<testcase classname=\"%s-%03" PRIu32 " ", conf_set->prefix, clause);
        put_xml(out, conf_clause_title(clause));
        fprintf(out, "\" name=\"%s\"", result->test->name);
        if (result->outcome == CONF_PASSED) {
            fprintf(out, "/>\n");
            continue;
        }
        fprintf(out, result->outcome == CONF_FAILED ? "><failure message=\"it does not hold\">"
                                                    : "><skipped message=\"");
        put_xml(out, result->text);
        fprintf(out,
                result->outcome == CONF_FAILED ? "</failure></testcase>\n" : "\"/></testcase>\n");
    }
    fprintf(out, "</testsuite>\n</testsuites>\n");
    return fflush(out) == 0 && ferror(out) == 0;
}

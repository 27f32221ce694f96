/* eval_file: reads eval files. See eval_file.h. */
#include "bench/eval_file.h"

#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/bench.h"
#include "conformance/engine/json.h"

struct reading {
    struct eval_file *to;
    bool bos;
    int argc;
    char **argv;
};

void eval_must(eng_status status, const struct eng_error *error)
{
    if (status != ENG_OK)
        bench_die("%s", error->text);
}

void *eval_must_have(void *memory)
{
    if (memory == NULL)
        bench_die("no memory");
    return memory;
}

static struct eng_ids ids_of(const struct reading *file, struct json_object *value, bool bos)
{
    struct eng_ids ids = {0};
    struct eng_error error;
    if (json_object_is_type(value, json_type_array)) {
        ids.count = json_object_array_length(value);
        ids.ids = eval_must_have(calloc(ids.count + 1, sizeof(*ids.ids)));
        for (uint64_t i = 0; i < ids.count; i++)
            ids.ids[i] = (uint32_t)json_object_get_uint64(json_object_array_get_idx(value, i));
        return ids;
    }
    if (!json_object_is_type(value, json_type_string))
        bench_die("the file holds neither text nor ids where it should");
    if (file->to->tokenizer == NULL)
        bench_die("the file holds text, and the model has no tokenizer");
    const char *text = json_object_get_string(value);
    eval_must(
        eng_tokenizer_encode(file->to->tokenizer, text, strlen(text), &ids.ids, &ids.count, &error),
        &error);
    if (bos)
        eval_must(eng_ids_put_first(&ids, file->to->config->bos, &error), &error);
    return ids;
}

/* The member `name`, or `name`_ids, or NULL. */
static struct json_object *find_text_or_ids(struct json_object *object, const char *name)
{
    char ids[32];
    (void)snprintf(ids, sizeof(ids), "%s_ids", name);
    struct json_object *value = eng_json_member(object, ids);
    return value == NULL ? eng_json_member(object, name) : value;
}

static struct json_object *text_or_ids(struct json_object *object, const char *name)
{
    struct json_object *value = find_text_or_ids(object, name);
    if (value == NULL)
        bench_die("neither \"%s\" nor \"%s_ids\" in a line of the file", name, name);
    return value;
}

static struct eval_question read_question(const struct reading *file, struct json_object *object)
{
    struct eval_question question = {.query = ids_of(file, text_or_ids(object, "query"), false)};
    struct json_object *choices = text_or_ids(object, "choices");
    question.choice_count = json_object_array_length(choices);
    question.choices = eval_must_have(calloc(question.choice_count + 1, sizeof(*question.choices)));
    for (uint64_t i = 0; i < question.choice_count; i++)
        question.choices[i] = ids_of(file, json_object_array_get_idx(choices, i), false);
    question.label = json_object_get_int64(eng_json_member(object, "label"));
    question.new_tokens = json_object_get_uint64(eng_json_member(object, "new_tokens"));
    question.new_tokens = question.new_tokens == 0 ? 1 : question.new_tokens;
    question.forced_tokens = json_object_get_uint64(eng_json_member(object, "forced_tokens"));
    return question;
}

static struct eval_question *read_questions(struct reading *file, struct json_object *object,
                                            const char *name, uint64_t count_max,
                                            uint64_t prefix_count, uint64_t *ret_count)
{
    struct json_object *list = eng_json_member(object, name);
    uint64_t held = list == NULL ? 0 : json_object_array_length(list);
    uint64_t count = held < count_max ? held : count_max;
    struct eval_question *questions = eval_must_have(calloc(count + 1, sizeof(*questions)));
    for (uint64_t i = 0; i < count; i++) {
        questions[i] = read_question(file, json_object_array_get_idx(list, i));
        uint64_t said = questions[i].new_tokens > questions[i].forced_tokens
                            ? questions[i].new_tokens
                            : questions[i].forced_tokens;
        uint64_t asked = questions[i].query.count + said;
        for (uint64_t c = 0; c < questions[i].choice_count; c++)
            asked += questions[i].choices[c].count;
        uint64_t whole = prefix_count + asked;
        file->to->asked_tokens = asked > file->to->asked_tokens ? asked : file->to->asked_tokens;
        file->to->longest = whole > file->to->longest ? whole : file->to->longest;
    }
    *ret_count = count;
    return questions;
}

static void read_entry(struct reading *file, const char *line, uint64_t questions_max)
{
    struct eng_error error;
    struct json_object *object = NULL;
    const char *id = "", *group = "";
    eval_must(eng_json_parse("--eval", line, strlen(line), &object, &error), &error);
    eval_must(eng_json_get_string("--eval", object, "id", &id, &error), &error);
    eval_must(eng_json_get_string("--eval", object, "group", &group, &error), &error);
    file->to->entries = eval_must_have(
        reallocarray(file->to->entries, file->to->entry_count + 1, sizeof(*file->to->entries)));
    struct eval_entry *entry = &file->to->entries[file->to->entry_count++];
    *entry = (struct eval_entry){.prefix = ids_of(file, text_or_ids(object, "prefix"), file->bos)};
    (void)snprintf(entry->id, sizeof(entry->id), "%s", id);
    (void)snprintf(entry->group, sizeof(entry->group), "%s", group);
    struct json_object *taught = find_text_or_ids(object, "taught");
    if (taught != NULL)
        entry->taught = ids_of(file, taught, false);
    entry->questions = read_questions(file, object, "queries", questions_max, entry->prefix.count,
                                      &entry->question_count);
    entry->lessons = read_questions(file, object, "lessons", UINT64_MAX, entry->prefix.count,
                                    &entry->lesson_count);
    json_object_put(object);
}

static void read_file(struct reading *file)
{
    const char *path = bench_option(file->argc, file->argv, "--eval", NULL);
    uint64_t questions = bench_option_u64(file->argc, file->argv, "--questions", UINT64_MAX);
    char *line = NULL;
    size_t bytes = 0;
    FILE *lines = path == NULL ? NULL : fopen(path, "r");
    if (lines == NULL)
        bench_die("--eval %s: cannot be read", path == NULL ? "" : path);
    while (getline(&line, &bytes, lines) > 0)
        read_entry(file, line, questions);
    free(line);
    (void)fclose(lines);
    if (file->to->entry_count == 0)
        bench_die("--eval %s: holds nothing", path);
}

void eval_open(struct eval_file *file, int argc, char **argv)
{
    struct eng_error error;
    struct reading reading = {.to = file, .argc = argc, .argv = argv};
    const char *dir = bench_option(argc, argv, "--model", "models/opt-recall");
    uint32_t threads = (uint32_t)bench_option_u64(argc, argv, "--threads", 2);
    *file = (struct eval_file){0};
    eval_must(eng_model_open(dir, threads, &file->model, &error), &error);
    file->config = eng_model_config(file->model);
    (void)eng_tokenizer_open(dir, &file->tokenizer, &error); /* ids need none */
    eval_must(eng_bos_wanted(dir, file->config, &reading.bos, &error), &error);
    read_file(&reading);
}

static void free_questions(struct eval_question *questions, uint64_t count)
{
    for (uint64_t q = 0; q < count; q++) {
        for (uint64_t c = 0; c < questions[q].choice_count; c++)
            eng_ids_done(&questions[q].choices[c]);
        free(questions[q].choices);
        free(questions[q].full);
        eng_ids_done(&questions[q].said);
        eng_ids_done(&questions[q].query);
    }
    free(questions);
}

void eval_close(struct eval_file *file)
{
    for (uint64_t e = 0; e < file->entry_count; e++) {
        struct eval_entry *entry = &file->entries[e];
        free_questions(entry->questions, entry->question_count);
        free_questions(entry->lessons, entry->lesson_count);
        eng_ids_done(&entry->prefix);
        eng_ids_done(&entry->taught);
    }
    free(file->entries);
    eng_tokenizer_close(file->tokenizer);
    eng_model_close(file->model);
}

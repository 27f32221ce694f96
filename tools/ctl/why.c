/* why: explains why KV is not reused.
 *
 *   two models     the fields of their descriptors, in order: the first that differs
 *   a prompt       pieces whose chain the prompt has reached so far -> how far its tokens agree
 *
 * A prompt is followed as lookup does: chunk by chunk, token-exact, from the store's roots (one per
 * salt and LoRA).
 * Threads: one. Tests: tests/unit/tools/test_ctl.py */
#include "tools/ctl/ctl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Models --------------------------------------------------------------------------------- */

/* The wanted namespace of the rank: by digest prefix, else the newest; NULL: said on stderr. */
static const struct ctl_space *space_wanted(const struct ctl_rank *rank, const char *prefix)
{
    const struct ctl_space *found = NULL;
    for (uint64_t i = 0; i < rank->space_count; i++) {
        char digest[33];
        ctl_hex_text(rank->spaces[i].digest, digest);
        if (prefix == NULL || strncmp(digest, prefix, strlen(prefix)) == 0)
            found = &rank->spaces[i];
    }
    if (found == NULL)
        fprintf(stderr, "spec-ctl: %s holds no namespace%s%s\n", rank->path,
                prefix != NULL ? " that begins with " : "", prefix != NULL ? prefix : "");
    return found;
}

/* The first field, in the order of `mine`, that differs; NULL: none does. */
static const char *first_difference(struct json_object *mine, struct json_object *other)
{
    json_object_object_foreach(mine, name, value)
    {
        struct json_object *there = NULL;
        if (!json_object_object_get_ex(other, name, &there) || !json_object_equal(value, there))
            return name;
    }
    return NULL;
}

static struct json_object *compare(const struct ctl_space *mine, const struct ctl_space *other)
{
    struct json_object *a = json_tokener_parse(mine->descriptor);
    struct json_object *b = json_tokener_parse(other->descriptor);
    struct json_object *line = json_object_new_object(), *there = NULL;
    const char *name = a != NULL && b != NULL ? first_difference(a, b) : NULL;
    json_object_object_add(line, "namespace", ctl_hex(mine->digest));
    json_object_object_add(line, "other", ctl_hex(other->digest));
    json_object_object_add(line, "field", name != NULL ? json_object_new_string(name) : NULL);
    if (name != NULL) {
        json_object_object_add(line, "value", json_object_get(json_object_object_get(a, name)));
        json_object_object_get_ex(b, name, &there);
        json_object_object_add(line, "other_value", json_object_get(there));
    }
    json_object_put(a);
    json_object_put(b);
    return line;
}

static void compare_line(struct json_object *line)
{
    const char *field = json_object_get_string(json_object_object_get(line, "field"));
    printf("%.12s and %.12s: ", json_object_get_string(json_object_object_get(line, "namespace")),
           json_object_get_string(json_object_object_get(line, "other")));
    if (field == NULL)
        printf("the same model, as far as their descriptors say\n");
    else
        printf("%s is %s here and %s there\n", field,
               json_object_to_json_string(json_object_object_get(line, "value")),
               json_object_to_json_string(json_object_object_get(line, "other_value")));
}

static int why_models(const struct ctl_options *options, const struct ctl_rank *rank)
{
    const struct ctl_space *mine = space_wanted(rank, options->space);
    if (mine == NULL)
        return CTL_FAILED;
    struct json_object *list = json_object_new_array();
    for (uint64_t i = 0; i < rank->space_count; i++)
        if (&rank->spaces[i] != mine)
            json_object_array_add(list, compare(mine, &rank->spaces[i]));
    size_t count = json_object_array_length(list);
    if (options->json)
        printf("%s\n", json_object_to_json_string_ext(list, JSON_C_TO_STRING_PRETTY));
    for (size_t i = 0; i < count && !options->json; i++)
        compare_line(json_object_array_get_idx(list, i));
    if (count == 0 && !options->json)
        printf("one model only: give --tokens to ask about a prompt\n");
    json_object_put(list);
    return count > 0 ? CTL_FOUND : CTL_OK;
}

/* ---- A prompt ------------------------------------------------------------------------------- */

struct border { /* a grid border that the prompt reached */
    uint64_t position;
    uint8_t root[SC_STORE_SHA256_BYTES], hash[SC_STORE_HASH_BYTES];
};

struct prompt {
    const struct ctl_rank *rank; /* loaded: says what lives */
    const struct ctl_space *space;
    uint32_t *tokens;
    uint64_t token_count, token_room;
    struct border *borders;
    uint64_t border_count, border_room;

    /* What was found. */
    uint64_t matched;
    bool parts; /* a stored token differs at `matched` */
    bool keys;  /* what agrees longest carries extra keys, which tokens cannot tell */
    uint32_t stored_token;
};

static bool tokens_read(const char *path, struct prompt *prompt)
{
    FILE *file = strcmp(path, "-") == 0 ? stdin : fopen(path, "r");
    if (file == NULL) {
        fprintf(stderr, "spec-ctl: %s: %s\n", path, strerror(errno));
        return false;
    }
    uint64_t value;
    int got;
    while ((got = fscanf(file, "%*[][ ,\t\r\n]"), got = fscanf(file, "%" SCNu64, &value)) == 1 &&
           value <= UINT32_MAX) {
        prompt->tokens = ctl_grow(prompt->tokens, prompt->token_count, &prompt->token_room,
                                  sizeof(*prompt->tokens));
        prompt->tokens[prompt->token_count++] = (uint32_t)value;
    }
    bool good = got == EOF && prompt->token_count > 0;
    if (!good)
        fprintf(stderr,
                "spec-ctl: %s: token ids expected, the word after the first %" PRIu64 " is none\n",
                path, prompt->token_count);
    if (file != stdin)
        fclose(file);
    return good;
}

static bool border_reached(const struct prompt *prompt, const struct sc_store_piece *piece)
{
    if (piece->chunk_first == 0)
        return true;
    for (uint64_t i = 0; i < prompt->border_count; i++)
        if (prompt->borders[i].position == piece->chunk_first &&
            memcmp(prompt->borders[i].root, piece->root, SC_STORE_SHA256_BYTES) == 0 &&
            memcmp(prompt->borders[i].hash, piece->chunk_hash, SC_STORE_HASH_BYTES) == 0)
            return true;
    return false;
}

static void follow_record(const struct sc_store_record *record, void *user)
{
    struct prompt *prompt = user;
    const struct ctl_rank *rank = prompt->rank;
    const struct sc_store_piece *piece = &record->piece;
    if (record->type != SC_STORE_RECORD_PIECE)
        return;
    const struct ctl_piece *known = ctl_piece_find(rank, record->id);
    if (known == NULL || known->state != CTL_LIVE ||
        &rank->spaces[rank->extents[known->extent].space] != prompt->space ||
        !border_reached(prompt, piece))
        return;
    uint64_t end = piece->first_position + piece->row_count, at = piece->chunk_first;
    while (at < end && at < prompt->token_count &&
           prompt->tokens[at] == piece->tokens[at - piece->chunk_first])
        at++;
    bool parts = at < end && at < prompt->token_count;
    if (at > prompt->matched) {
        prompt->matched = at;
        prompt->parts = false;
        prompt->keys = piece->mark_count > 0;
    }
    if (at == prompt->matched && parts && !prompt->parts) {
        prompt->parts = true;
        prompt->stored_token = piece->tokens[at - piece->chunk_first];
    }
    if (at == end) {
        struct border border = {.position = end};
        memcpy(border.root, piece->root, sizeof(border.root));
        memcpy(border.hash, piece->hash, sizeof(border.hash));
        prompt->borders = ctl_grow(prompt->borders, prompt->border_count, &prompt->border_room,
                                   sizeof(*prompt->borders));
        prompt->borders[prompt->border_count++] = border;
    }
}

static void prompt_report(const struct ctl_options *options, const struct prompt *prompt)
{
    bool whole = prompt->matched == prompt->token_count;
    if (options->json) {
        struct json_object *object = json_object_new_object();
        json_object_object_add(object, "namespace", ctl_hex(prompt->space->digest));
        json_object_object_add(object, "tokens", json_object_new_uint64(prompt->token_count));
        json_object_object_add(object, "stored", json_object_new_uint64(prompt->matched));
        json_object_object_add(object, "parts_at",
                               whole ? NULL : json_object_new_uint64(prompt->matched));
        if (!whole)
            json_object_object_add(object, "token",
                                   json_object_new_uint64(prompt->tokens[prompt->matched]));
        json_object_object_add(object, "stored_token",
                               prompt->parts ? json_object_new_uint64(prompt->stored_token) : NULL);
        json_object_object_add(object, "extra_keys", json_object_new_boolean(prompt->keys));
        printf("%s\n", json_object_to_json_string_ext(object, JSON_C_TO_STRING_PRETTY));
        json_object_put(object);
        return;
    }
    printf("%" PRIu64 " of %" PRIu64 " tokens are stored\n", prompt->matched, prompt->token_count);
    if (!whole && prompt->parts)
        printf("at token %" PRIu64 " the prompt has %" PRIu32 ", what is stored has %" PRIu32 "\n",
               prompt->matched, prompt->tokens[prompt->matched], prompt->stored_token);
    else if (!whole)
        printf("nothing is stored behind token %" PRIu64 "\n", prompt->matched);
    if (prompt->keys)
        printf("what agrees was stored with extra keys (images, embeddings): it is reused with the "
               "same keys only\n");
}

static int why_prompt(const struct ctl_options *options, const struct ctl_store *store,
                      struct ctl_rank *rank)
{
    struct prompt prompt = {.rank = rank, .space = space_wanted(rank, options->space)};
    int code =
        prompt.space != NULL && tokens_read(options->token_file, &prompt) ? CTL_OK : CTL_FAILED;
    uint64_t before = UINT64_MAX; /* a merged piece may stand behind what hangs on it */
    while (code == CTL_OK && prompt.matched != before) {
        before = prompt.matched;
        if (!ctl_log_walk(store, rank, follow_record, &prompt))
            code = CTL_FAILED;
    }
    if (code == CTL_OK) {
        prompt_report(options, &prompt);
        code = prompt.matched < prompt.token_count ? CTL_FOUND : CTL_OK;
    }
    free(prompt.tokens);
    free(prompt.borders);
    return code;
}

int ctl_why(const struct ctl_options *options)
{
    struct ctl_store store;
    if (!ctl_store_open(options->path, options->rank, &store))
        return CTL_FAILED;
    int code = CTL_OK;
    if (store.rank_count == 0) {
        fprintf(stderr, "spec-ctl: %s: nothing was stored yet\n", options->path);
        code = CTL_FAILED;
    }
    for (uint64_t i = 0; i < store.rank_count && code != CTL_FAILED; i++) {
        struct ctl_rank *rank = &store.ranks[i];
        if (store.rank_count > 1 && !options->json)
            printf("rank %" PRIu32 " of %" PRIu32 ":\n", rank->rank, rank->rank_count);
        int one = CTL_FAILED;
        if (ctl_rank_load(&store, rank))
            one = options->token_file != NULL ? why_prompt(options, &store, rank)
                                              : why_models(options, rank);
        code = one > code ? one : code;
    }
    ctl_store_close(&store);
    return code;
}

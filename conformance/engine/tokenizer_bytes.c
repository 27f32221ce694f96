/* tokenizer_bytes: byte-level BPE: GPT-2, OPT, SmolLM2. See tokenizer_parts.h.
 *
 *   text --digits one by one (if tokenizer.json asks for it)--> parts
 *   part --'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+--> pieces
 *   piece --one symbol per byte, then merges by the rank of merges.txt's lines--> ids
 *
 * In the files a byte is a printable character: 33..126, 161..172 and 174..255 are themselves, the
 * other 68, in rising order, U+0100 and up (GPT-2's bytes_to_unicode).
 *
 * Invariants: the pattern matches everywhere, so pieces cover a part; \s+(?!\S) does not look
 * beyond a part. A byte without a symbol yields nothing, as in Hugging Face (no unk_token). A merge
 * of an unknown token, or a duplicate one, is refused. No space is added, unknowns are not fused.
 * Threads: see tokenizer_parts.h. Tests: tests/unit/engine/test_tokenizer.c */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "conformance/engine/json.h"
#include "conformance/engine/mapfile.h"
#include "conformance/engine/tokenizer_parts.h"
#include "conformance/engine/unicode.h"

static bool byte_is_itself(uint32_t byte)
{
    return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
}

/* bytes[character] for the characters below 324; -1 where a character stands for no byte. */
static void bytes_of_characters(int bytes[324])
{
    int shifted = 256;
    for (int i = 0; i < 324; i++)
        bytes[i] = -1;
    for (int byte = 0; byte < 256; byte++)
        bytes[byte_is_itself((uint32_t)byte) ? byte : shifted++] = byte;
}

static void bytes_find_symbols(struct eng_tokenizer *tokenizer)
{
    int bytes[324];
    bytes_of_characters(bytes);
    for (uint32_t c = 0; c < 324; c++) {
        if (bytes[c] < 0)
            continue;
        char text[2] = {(char)(c < 0x80 ? c : 0xC0 | c >> 6), (char)(0x80 | (c & 0x3F))};
        tokenizer->byte_ids[bytes[c]] =
            eng_tok_vocab_find(&tokenizer->vocab, text, c < 0x80 ? 1 : 2);
    }
}

/* Turns the stored texts into the bytes they stand for, which are never longer. A token with a
 * character that stands for no byte keeps its text, as in Hugging Face. Ends finding. */
static void bytes_unfold_vocab(struct eng_tok_vocab *vocab)
{
    int bytes[324];
    bytes_of_characters(bytes);
    for (uint64_t id = 0; id < vocab->id_count; id++) {
        struct eng_tok_entry *entry = &vocab->entries[id];
        char *text = vocab->arena + entry->offset;
        bool stands_for_bytes = true;
        for (uint64_t at = 0; at < entry->bytes && stands_for_bytes;) {
            uint32_t c = eng_utf8_next(text, &at);
            stands_for_bytes = c < 324 && bytes[c] >= 0;
        }
        if (!stands_for_bytes)
            continue;
        uint32_t count = 0;
        for (uint64_t at = 0; at < entry->bytes;)
            text[count++] = (char)bytes[eng_utf8_next(text, &at)];
        entry->bytes = count;
    }
    free(vocab->slots);
    vocab->slots = NULL;
    vocab->slot_count = 0;
}

/* ---- merges.txt ---- */

static eng_status merges_add(const char *path, uint64_t line, const char *text, uint64_t bytes,
                             uint32_t rank, struct eng_tokenizer *tokenizer,
                             struct eng_error *reterr)
{
    const char *space = memchr(text, ' ', bytes);
    uint64_t left_bytes = space == NULL ? 0 : (uint64_t)(space - text);
    uint64_t right_bytes = space == NULL ? 0 : bytes - left_bytes - 1;
    if (left_bytes == 0 || right_bytes == 0 || memchr(space + 1, ' ', right_bytes) != NULL)
        return eng_fail(reterr, ENG_E_INPUT,
                        "%s: line %" PRIu64 " is '%s', expected two symbols and a space between",
                        path, line, eng_tok_show(text, bytes).text);
    char joined[ENG_TOK_TOKEN_BYTES];
    if (bytes > sizeof(joined))
        return eng_fail(reterr, ENG_E_INPUT,
                        "%s: line %" PRIu64 " has %" PRIu64 " bytes, at most %u", path, line, bytes,
                        ENG_TOK_TOKEN_BYTES);
    memcpy(joined, text, left_bytes);
    memcpy(joined + left_bytes, space + 1, right_bytes);
    const struct eng_tok_vocab *vocab = &tokenizer->vocab;
    const struct {
        const char *text;
        uint64_t bytes;
    } parts[3] = {{text, left_bytes}, {space + 1, right_bytes}, {joined, bytes - 1}};
    uint32_t ids[3];
    for (int i = 0; i < 3; i++) {
        ids[i] = eng_tok_vocab_find(vocab, parts[i].text, parts[i].bytes);
        if (ids[i] == ENG_TOK_NONE)
            return eng_fail(reterr, ENG_E_INPUT,
                            "%s: line %" PRIu64 " needs '%s', which vocab.json lacks", path, line,
                            eng_tok_show(parts[i].text, parts[i].bytes).text);
    }
    if (!eng_tok_rules_put(&tokenizer->rules, ids[0], ids[1], rank, ids[2]))
        return eng_fail(reterr, ENG_E_INPUT, "%s: line %" PRIu64 ": '%s' stands twice", path, line,
                        eng_tok_show(text, bytes).text);
    return ENG_OK;
}

static eng_status merges_parse(const char *path, const char *text, uint64_t bytes,
                               struct eng_tokenizer *tokenizer, uint32_t *ret_count,
                               struct eng_error *reterr)
{
    uint64_t valid = eng_utf8_valid_bytes(text, bytes);
    if (valid != bytes)
        return eng_fail(reterr, ENG_E_INPUT, "%s: not UTF-8 at byte %" PRIu64, path, valid);
    while (bytes > 0 && (text[bytes - 1] == '\n' || text[bytes - 1] == '\r'))
        bytes--; /* blank lines at the end are none */
    uint64_t line_count = 1;
    for (uint64_t i = 0; i < bytes; i++)
        line_count += text[i] == '\n';
    if (line_count > ENG_TOK_ID_MAX)
        return eng_fail(reterr, ENG_E_INPUT, "%s: %" PRIu64 " lines, at most %" PRIu32, path,
                        line_count, ENG_TOK_ID_MAX);
    eng_status status = eng_tok_rules_init(&tokenizer->rules, line_count, reterr);
    uint32_t rank = 0;
    uint64_t line = 1;
    for (uint64_t at = 0; at < bytes && status == ENG_OK; line++) {
        const char *end = memchr(text + at, '\n', bytes - at);
        uint64_t length = end == NULL ? bytes - at : (uint64_t)(end - text) - at;
        uint64_t next = at + length + 1;
        if (length > 0 && text[at + length - 1] == '\r')
            length--;
        if (line != 1 || length < 8 || memcmp(text + at, "#version", 8) != 0)
            status = merges_add(path, line, text + at, length, rank++, tokenizer, reterr);
        at = next;
    }
    *ret_count = rank;
    return status;
}

static eng_status merges_load(const char *model_dir, struct eng_tokenizer *tokenizer,
                              uint32_t *ret_count, struct eng_error *reterr)
{
    char *path = NULL;
    eng_status status = eng_tok_path(model_dir, "merges.txt", &path, reterr);
    if (status != ENG_OK)
        return status;
    struct eng_mapfile map = {0};
    status = eng_mapfile_open(path, &map, reterr);
    if (status == ENG_OK)
        status =
            merges_parse(path, (const char *)map.data, map.bytes, tokenizer, ret_count, reterr);
    eng_mapfile_close(&map);
    free(path);
    return status;
}

/* ---- tokenizer.json ---- */

static const char *settings_type(struct json_object *object)
{
    if (object == NULL || !json_object_is_type(object, json_type_object))
        return "";
    struct json_object *type = eng_json_member(object, "type");
    return type != NULL && json_object_is_type(type, json_type_string)
               ? json_object_get_string(type)
               : "";
}

/* pre_tokenizer: ByteLevel, or a Sequence of Digits and ByteLevel. */
static eng_status settings_read_splits(const char *what, struct json_object *root,
                                       bool *ret_split_digits, struct eng_error *reterr)
{
    struct json_object *level = eng_json_member(root, "pre_tokenizer");
    if (strcmp(settings_type(level), "Sequence") == 0) {
        struct json_object *list = eng_json_member(level, "pretokenizers");
        bool is_list = list != NULL && json_object_is_type(list, json_type_array);
        size_t count = is_list ? json_object_array_length(list) : 0;
        level = count > 0 ? json_object_array_get_idx(list, count - 1) : NULL;
        struct json_object *digits = count == 2 ? json_object_array_get_idx(list, 0) : NULL;
        *ret_split_digits = strcmp(settings_type(digits), "Digits") == 0;
        bool one_by_one = true; /* as tokenizers' own default, were it left out */
        eng_status status = ENG_OK;
        if (*ret_split_digits)
            status = eng_json_get_bool(what, digits, "individual_digits", &one_by_one, reterr);
        if (status != ENG_OK)
            return status;
        if (count > 2 || (count == 2 && !*ret_split_digits) || !one_by_one)
            level = NULL;
    }
    if (strcmp(settings_type(level), "ByteLevel") != 0)
        return eng_fail(reterr, ENG_E_UNSUPPORTED,
                        "%s: pre_tokenizer is %.150s, expected ByteLevel, or a Sequence of Digits "
                        "(individual_digits true) and ByteLevel",
                        what,
                        json_object_to_json_string_ext(eng_json_member(root, "pre_tokenizer"),
                                                       JSON_C_TO_STRING_PLAIN));
    bool prefix_space = true;
    bool use_regex = true;
    eng_status status = eng_json_get_bool(what, level, "add_prefix_space", &prefix_space, reterr);
    if (status == ENG_OK)
        status = eng_json_get_bool(what, level, "use_regex", &use_regex, reterr);
    if (status == ENG_OK && (prefix_space || !use_regex))
        return eng_fail(reterr, ENG_E_UNSUPPORTED,
                        "%s: ByteLevel with add_prefix_space %s and use_regex %s, expected false "
                        "and true",
                        what, prefix_space ? "true" : "false", use_regex ? "true" : "false");
    return status;
}

/* Options of the model that would change ids. */
static eng_status settings_check_model(const char *what, struct json_object *model,
                                       const struct eng_tokenizer *tokenizer, uint32_t merge_count,
                                       struct eng_error *reterr)
{
    static const char *const flags[] = {"byte_fallback", "ignore_merges"};
    static const char *const affixes[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    double dropout = 0;
    eng_status status = eng_json_get_real(what, model, "dropout", 0, 0, &dropout, reterr);
    for (int i = 0; i < 2 && status == ENG_OK; i++) {
        bool flag = false;
        const char *affix = "";
        status = eng_json_get_bool(what, model, flags[i], &flag, reterr);
        if (status == ENG_OK)
            status = eng_json_get_string(what, model, affixes[i], &affix, reterr);
        if (status == ENG_OK && (flag || affix[0] != '\0'))
            return eng_fail(reterr, ENG_E_UNSUPPORTED, "%s: model.%s is set, expected not", what,
                            flag ? flags[i] : affixes[i]);
    }
    if (status != ENG_OK)
        return status;
    struct json_object *merges = eng_json_member(model, "merges");
    if (merges != NULL && (!json_object_is_type(merges, json_type_array) ||
                           json_object_array_length(merges) != merge_count))
        return eng_fail(reterr, ENG_E_INPUT,
                        "%s: model.merges is not a list of the %" PRIu32 " merges of merges.txt",
                        what, merge_count);
    bool has_all = true;
    for (int i = 0; i < 256; i++)
        has_all = has_all && tokenizer->byte_ids[i] != ENG_TOK_NONE;
    if (eng_json_member(model, "unk_token") != NULL && !has_all)
        return eng_fail(reterr, ENG_E_UNSUPPORTED,
                        "%s: model.unk_token with a vocabulary that lacks bytes", what);
    return ENG_OK;
}

eng_status eng_tok_bytes_open(const char *model_dir, struct eng_tokenizer *tokenizer,
                              struct eng_error *reterr)
{
    tokenizer->kind = ENG_TOK_BYTES;
    char *path = NULL;
    char *what = NULL;
    struct json_object *root = NULL;
    uint32_t merge_count = 0;
    eng_status status = eng_tok_path(model_dir, "vocab.json", &path, reterr);
    if (status == ENG_OK)
        status = eng_tok_path(model_dir, "tokenizer.json", &what, reterr);
    if (status == ENG_OK)
        status = eng_tok_load_vocab(path, &tokenizer->vocab, reterr);
    if (status == ENG_OK)
        status = merges_load(model_dir, tokenizer, &merge_count, reterr);
    if (status == ENG_OK)
        status = eng_tok_load_settings(model_dir, "BPE", &tokenizer->vocab, &root, reterr);
    if (status == ENG_OK)
        bytes_find_symbols(tokenizer);
    if (status == ENG_OK && root != NULL) {
        status = settings_read_splits(what, root, &tokenizer->split_digits, reterr);
        if (status == ENG_OK)
            status = settings_check_model(what, eng_json_member(root, "model"), tokenizer,
                                          merge_count, reterr);
        if (status == ENG_OK)
            status = eng_tok_load_added(what, root, &tokenizer->vocab, reterr);
    }
    if (status == ENG_OK)
        bytes_unfold_vocab(&tokenizer->vocab);
    json_object_put(root);
    free(what);
    free(path);
    return status;
}

/* ---- the pattern ---- */

/* The end of the run of characters of one class that starts at `at`. */
static uint64_t run_end(const char *text, uint64_t at, uint64_t end, enum eng_unicode_class kind)
{
    while (at < end) {
        uint64_t next = at;
        if (eng_unicode_classify(eng_utf8_next(text, &next)) != kind)
            break;
        at = next;
    }
    return at;
}

/* Bytes of 's 't 're 've 'm 'll 'd at text [bytes], else 0. */
static uint64_t contraction_bytes(const char *text, uint64_t bytes)
{
    if (bytes < 2 || text[0] != '\'')
        return 0;
    if (memchr("stmd", text[1], 4) != NULL)
        return 2;
    if (bytes >= 3 && ((text[1] == 'r' && text[2] == 'e') || (text[1] == 'v' && text[2] == 'e') ||
                       (text[1] == 'l' && text[2] == 'l')))
        return 3;
    return 0;
}

/* The end of the piece that starts at `at` of a part that ends at `end`, at < end. */
static uint64_t piece_end(const char *text, uint64_t at, uint64_t end)
{
    uint64_t contraction = contraction_bytes(text + at, end - at);
    if (contraction > 0)
        return at + contraction;
    uint64_t next = at;
    enum eng_unicode_class kind = eng_unicode_classify(eng_utf8_next(text, &next));
    if (kind != ENG_UNICODE_SPACE)
        return run_end(text, next, end, kind);
    if (text[at] == ' ' && next < end) { /* " ?" of the three runs */
        uint64_t after = next;
        kind = eng_unicode_classify(eng_utf8_next(text, &after));
        if (kind != ENG_UNICODE_SPACE)
            return run_end(text, after, end, kind);
    }
    uint64_t spaces_end = run_end(text, next, end, ENG_UNICODE_SPACE);
    if (spaces_end == end || spaces_end == next)
        return spaces_end;          /* \s+(?!\S) up to the end, or the single \s of \s+ */
    uint64_t last = spaces_end - 1; /* \s+(?!\S) leaves the last one, which \S follows */
    while (((uint8_t)text[last] & 0xC0) == 0x80)
        last--;
    return last;
}

static eng_status part_encode(const struct eng_tokenizer *tokenizer, const char *text, uint64_t at,
                              uint64_t end, struct eng_tok_work *work, struct eng_error *reterr)
{
    eng_status status = ENG_OK;
    while (at < end && status == ENG_OK) {
        uint64_t stop = piece_end(text, at, end);
        for (; at < stop && status == ENG_OK; at++) {
            uint32_t id = tokenizer->byte_ids[(uint8_t)text[at]];
            if (id != ENG_TOK_NONE)
                status = eng_tok_work_symbol(work, id, reterr);
        }
        if (status == ENG_OK)
            status = eng_tok_work_merge(tokenizer, work, reterr);
    }
    return status;
}

eng_status eng_tok_bytes_encode(const struct eng_tokenizer *tokenizer, const char *text,
                                uint64_t text_bytes, struct eng_tok_work *work,
                                struct eng_error *reterr)
{
    if (!tokenizer->split_digits)
        return part_encode(tokenizer, text, 0, text_bytes, work, reterr);
    uint64_t part = 0;
    eng_status status = ENG_OK;
    for (uint64_t at = 0; at < text_bytes && status == ENG_OK;) {
        uint64_t next = at;
        if (eng_unicode_is_digit(eng_utf8_next(text, &next))) {
            status = part_encode(tokenizer, text, part, at, work, reterr);
            if (status == ENG_OK)
                status = part_encode(tokenizer, text, at, next, work, reterr);
            part = next;
        }
        at = next;
    }
    if (status == ENG_OK)
        status = part_encode(tokenizer, text, part, text_bytes, work, reterr);
    return status;
}

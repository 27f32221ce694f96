/* config: parser of the configuration.
 *
 *   text --json-c, strict--> a tree                        well-formed? one UTF-8 document?
 *        --scan------------> key path, span of its value   known? given once? strict tokens?
 *   span --convert---------> a member of sc_config         type, range, unit
 *
 * The scan exists because json-c 0.16 is lax even in strict mode: it merges duplicate keys,
 * saturates integers, and accepts 'single quotes', NaN, 00, -01 and raw control characters. Numbers
 * are converted from the text itself; json-c decodes the strings.
 *
 * Invariants: a member is written through the table only, after its checks. The scan reads no byte
 * outside [text, text + bytes), even if json-c and it disagree about JSON. It does not recurse, and
 * accepts no escapes inside keys. */
#include "base/config_keys.h"

#include "base/assert.h"

#include <errno.h>
#include <fcntl.h>
#include <json-c/json.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define JSON_DEPTH_MAX  8  /* ours has 2; more gives a clearer error than "too deep" */
#define FOUND_BYTES_MAX 48 /* of a wrong value that an error quotes */
#define KEY_PATH_BYTES  96 /* "select.retain_ppm" has 17; a longer unknown key is cut */

#define KEY_COUNT sc_config_row_count()

/* ---- Convert: a span of text to a member ---------------------------------------------------- */

struct span {
    const char *at;
    uint64_t bytes;
};

static bool span_is(struct span span, const char *text)
{
    return span.bytes == strlen(text) && memcmp(span.at, text, span.bytes) == 0;
}

/* Reads digits: no sign, leading zero, fraction or exponent; at most UINT64_MAX. */
static bool read_digits(struct span span, uint64_t *ret_value)
{
    uint64_t value = 0;
    if (span.bytes == 0 || (span.bytes > 1 && span.at[0] == '0'))
        return false;
    for (uint64_t i = 0; i < span.bytes; i++) {
        if (span.at[i] < '0' || span.at[i] > '9')
            return false;
        if (__builtin_mul_overflow(value, 10u, &value) ||
            __builtin_add_overflow(value, (uint64_t)(span.at[i] - '0'), &value))
            return false;
    }
    *ret_value = value;
    return true;
}

/* Reads digits and a unit: "4GiB", "10GB". */
static bool read_size(struct span span, uint64_t *ret_value)
{
    static const struct {
        const char *name;
        uint64_t bytes;
    } units[] = {{"KiB", KIB},        {"MiB", MIB},           {"GiB", GIB},
                 {"TiB", TIB},        {"KB", 1000u},          {"MB", 1000000u},
                 {"GB", 1000000000u}, {"TB", 1000000000000u}, {"B", 1u}};
    uint64_t digits = 0;
    while (digits < span.bytes && span.at[digits] >= '0' && span.at[digits] <= '9')
        digits++;
    struct span unit = {span.at + digits, span.bytes - digits};
    uint64_t value;
    if (!read_digits((struct span){span.at, digits}, &value))
        return false;
    for (uint32_t i = 0; i < sizeof(units) / sizeof(units[0]); i++)
        if (span_is(unit, units[i].name))
            return !__builtin_mul_overflow(value, units[i].bytes, ret_value);
    return false;
}

static void member_write(const struct sc_config_row *key, struct sc_config *config, uint64_t value)
{
    char *member = (char *)config + key->offset;
    uint32_t narrow = (uint32_t)value; /* the table's max fits: a test checks it */
    if (key->member_bytes == sizeof(narrow))
        memcpy(member, &narrow, sizeof(narrow));
    else
        memcpy(member, &value, sizeof(value));
}

static bool is_in_range(const struct sc_config_row *key, uint64_t value)
{
    if (value < key->min || value > key->max)
        return false;
    if (key->multiple_of != 0 && value % key->multiple_of != 0)
        return false;
    return !key->is_power_of_two || (value & (value - 1)) == 0;
}

static bool read_choice(const struct sc_config_row *key, struct span span, uint64_t *ret_value)
{
    for (uint32_t i = 0; i < SC_CONFIG_CHOICES_MAX && key->choices[i] != NULL; i++) {
        if (span_is(span, key->choices[i])) {
            *ret_value = i;
            return true;
        }
    }
    return false;
}

/* Reads a number in steps of a quarter, such as "2.75"; the value is four times it. */
static bool read_quarters(struct span span, uint64_t *ret_value)
{
    static const char *const FRACTIONS[][3] = {{"", ".0", ".00"}, {".25"}, {".5", ".50"}, {".75"}};
    for (uint32_t i = 0; i < 4; i++)
        for (uint32_t k = 0; k < 3 && FRACTIONS[i][k] != NULL; k++) {
            uint64_t bytes = strlen(FRACTIONS[i][k]), value;
            if (span.bytes <= bytes)
                continue;
            const struct span whole = {span.at, span.bytes - bytes};
            if (memcmp(whole.at + whole.bytes, FRACTIONS[i][k], bytes) != 0 ||
                !read_digits(whole, &value) || value > UINT32_MAX)
                continue;
            *ret_value = 4 * value + i;
            return true;
        }
    return false;
}

/* Reads a value as a number; false: wrong type or out of range. A quoted value is without its
 * quotes. */
static bool read_number(const struct sc_config_row *key, struct span span, bool is_quoted,
                        uint64_t *ret_value)
{
    if (key->kind == KIND_CHOICE)
        return is_quoted && read_choice(key, span, ret_value);
    if (key->has_auto && is_quoted && span_is(span, "auto")) {
        *ret_value = SC_CONFIG_AUTO;
        return true;
    }
    if (key->kind == KIND_QUARTERS)
        return !is_quoted && read_quarters(span, ret_value) && is_in_range(key, *ret_value);
    if (key->kind == KIND_SIZE && is_quoted)
        return read_size(span, ret_value) && is_in_range(key, *ret_value);
    return !is_quoted && read_digits(span, ret_value) && is_in_range(key, *ret_value);
}

/* Reads a default of the table like a value of the configuration. */
static uint64_t text_value(const struct sc_config_row *key, const char *text)
{
    struct span span = {text, strlen(text)};
    uint64_t value = 0;
    bool is_read = read_number(key, span, false, &value) || read_number(key, span, true, &value);
    SC_ASSERT(NULL, is_read);
    return value;
}

static uint64_t initial_value(const struct sc_config_row *key)
{
    return text_value(key, key->shown.initial);
}

/* ---- Parse: the scan over the text ---------------------------------------------------------- */

struct parse {
    const char *text;
    uint64_t bytes;
    uint64_t at;
    struct json_object *root;
    uint64_t seen[2];        /* bit i: key i was given */
    uint64_t groups_seen[2]; /* bit i: the group of key i was given, i its first key */
    const uint64_t *kept;    /* preset's text: keys that it does not change; NULL: none */
    struct sc_config *config;
    struct spec_error *reterr;
};

static bool has_key(const uint64_t keys[2], uint32_t i)
{
    return (keys[i / 64] >> i % 64 & 1u) != 0;
}

static spec_status fail_at(const struct parse *parse, uint64_t at, const char *what)
{
    uint64_t line = 1, column = 1;
    for (uint64_t i = 0; i < at && i < parse->bytes; i++) {
        column = parse->text[i] == '\n' ? 1 : column + 1;
        line += parse->text[i] == '\n';
    }
    return sc_fail(parse->reterr, SPEC_E_CONFIG, "config: line %" PRIu64 " column %" PRIu64 ": %s",
                   line, column, what);
}

/* Returns how many bytes of a span an error quotes: all, or up to a UTF-8 boundary. */
static int quoted_bytes(struct span span, uint64_t bytes_max)
{
    uint64_t bytes = span.bytes;
    if (bytes > bytes_max)
        for (bytes = bytes_max; bytes > 0 && ((unsigned char)span.at[bytes] & 0xc0u) == 0x80u;)
            bytes--;
    return (int)bytes;
}

static spec_status fail_value(const struct parse *parse, const struct sc_config_row *key,
                              struct span found)
{
    static const char *const nouns[] = {"", "a size ", "an integer ", "", ""};
    const char *cut = found.bytes > FOUND_BYTES_MAX ? "..." : "";
    if (found.bytes > 0 && (found.at[0] == '{' || found.at[0] == '[')) {
        const char *container = found.at[0] == '{' ? "an object" : "an array";
        found = (struct span){container, strlen(container)};
        cut = "";
    }
    return sc_fail(parse->reterr, SPEC_E_CONFIG, "config: %s: found %.*s%s, expected %s%s",
                   key->shown.path, quoted_bytes(found, FOUND_BYTES_MAX), found.at, cut,
                   nouns[key->kind], key->shown.allowed);
}

/* Returns the next non-blank byte; 0 at the end (the text has no NUL byte). */
static char peek(struct parse *parse)
{
    while (parse->at < parse->bytes && strchr(" \t\r\n", parse->text[parse->at]) != NULL)
        parse->at++;
    return parse->at < parse->bytes ? parse->text[parse->at] : '\0';
}

static spec_status expect(struct parse *parse, char wanted, const char *what)
{
    if (peek(parse) != wanted)
        return fail_at(parse, parse->at, what);
    parse->at++;
    return SPEC_OK;
}

/* Scans a string token; the span is inside its quotes, with escapes as they are. */
static spec_status scan_string(struct parse *parse, struct span *ret_inner)
{
    spec_status status = expect(parse, '"', "expected a double quote");
    if (status != SPEC_OK)
        return status;
    uint64_t start = parse->at;
    for (; parse->at < parse->bytes && parse->text[parse->at] != '"'; parse->at++) {
        if ((unsigned char)parse->text[parse->at] < 0x20)
            return fail_at(parse, parse->at, "a control character in a string");
        parse->at += parse->text[parse->at] == '\\';
    }
    if (parse->at >= parse->bytes)
        return fail_at(parse, parse->bytes, "the string does not end");
    *ret_inner = (struct span){parse->text + start, parse->at - start};
    parse->at++;
    return SPEC_OK;
}

/* Writes the string that json-c decoded for a key as a path. */
static spec_status path_write(struct parse *parse, const struct sc_config_row *key,
                              struct span found)
{
    struct json_object *value = NULL;
    if (!json_object_object_get_ex(parse->root, key->shown.path, &value) ||
        !json_object_is_type(value, json_type_string))
        return fail_value(parse, key, found);
    const char *path = json_object_get_string(value);
    uint64_t bytes = (uint64_t)json_object_get_string_len(value);
    if (bytes < key->min || bytes > key->max || memchr(path, '\0', bytes) != NULL)
        return fail_value(parse, key, found);
    if (strstr(path, "\xef\xbf\xbd") != NULL) /* json-c's substitute for half a surrogate pair */
        return sc_fail(parse->reterr, SPEC_E_CONFIG,
                       "config: %s: half a surrogate pair, or U+FFFD, expected valid Unicode",
                       key->shown.path);
    memcpy(parse->config->path, path, bytes + 1);
    return SPEC_OK;
}

struct token { /* of a value */
    struct span whole;
    struct span inner; /* a string without its quotes, else the whole */
    bool is_quoted;
};

static spec_status scan_token(struct parse *parse, struct token *ret_token)
{
    bool is_quoted = peek(parse) == '"';
    struct token token = {.whole.at = parse->text + parse->at, .is_quoted = is_quoted};
    spec_status status = is_quoted ? scan_string(parse, &token.inner) : SPEC_OK;
    while (!is_quoted && parse->at < parse->bytes &&
           strchr(" \t\r\n,}", parse->text[parse->at]) == NULL)
        parse->at++;
    token.whole.bytes = (uint64_t)(parse->text + parse->at - token.whole.at);
    if (!is_quoted)
        token.inner = token.whole;
    *ret_token = token;
    return status;
}

static spec_status scan_value(struct parse *parse, const struct sc_config_row *key)
{
    struct token token;
    spec_status status = scan_token(parse, &token);
    if (status != SPEC_OK)
        return status;
    struct span whole = token.whole;
    if (key->kind == KIND_PATH)
        return token.is_quoted ? path_write(parse, key, whole) : fail_value(parse, key, whole);
    uint64_t value = 0;
    if (!read_number(key, token.inner, token.is_quoted, &value))
        return fail_value(parse, key, whole);
    if (parse->kept == NULL || !has_key(parse->kept, (uint32_t)(key - sc_config_row_at(0))))
        member_write(key, parse->config, value);
    return SPEC_OK;
}

/* Enters a group, whose value must be an object. */
static spec_status scan_group(struct parse *parse, const char *group)
{
    if (peek(parse) == '{') {
        parse->at++;
        return SPEC_OK;
    }
    struct token token;
    spec_status status = scan_token(parse, &token);
    if (status != SPEC_OK)
        return status;
    return sc_fail(parse->reterr, SPEC_E_CONFIG, "config: %s: found %.*s, expected an object",
                   group, quoted_bytes(token.whole, FOUND_BYTES_MAX), token.whole.at);
}

/* Finds a full path: the index of a key, of a group's first key, or KEY_COUNT. */
static uint32_t key_find(const char *path, bool *ret_is_group)
{
    uint64_t bytes = strlen(path);
    for (uint32_t i = 0; i < KEY_COUNT; i++) {
        const char *name = sc_config_row_at(i)->shown.path;
        *ret_is_group = strncmp(name, path, bytes) == 0 && name[bytes] == '.';
        if (*ret_is_group || strcmp(name, path) == 0)
            return i;
    }
    return KEY_COUNT;
}

static spec_status fail_unknown(const struct parse *parse, const char *path)
{
    const struct sc_config_removed_key *removed;
    for (uint32_t i = 0; (removed = sc_config_removed_key_at(i)) != NULL; i++) {
        if (strcmp(removed->path, path) == 0)
            return sc_fail(parse->reterr, SPEC_E_CONFIG, "config: %s was removed; %s", path,
                           removed->advice);
    }
    char near[SC_CONFIG_NEAR_BYTES];
    if (sc_config_near(path, near))
        return sc_fail(parse->reterr, SPEC_E_CONFIG, "config: %s: unknown key; did you mean %s?",
                       path, near);
    return sc_fail(parse->reterr, SPEC_E_CONFIG, "config: %s: unknown key", path);
}

/* Reads `"key" :` inside a group ("": the outermost object) and marks it as seen. */
static spec_status scan_key(struct parse *parse, const char *group,
                            const struct sc_config_row **ret_key, bool *ret_is_group)
{
    struct span name = {"", 0};
    spec_status status = scan_string(parse, &name);
    if (status != SPEC_OK)
        return status;
    char path[KEY_PATH_BYTES]; /* a cut path is longer than every key: unknown */
    int wanted = snprintf(path, sizeof(path), "%s%s%.*s", group, group[0] != '\0' ? "." : "",
                          quoted_bytes(name, KEY_PATH_BYTES), name.at);
    sc_status_text_finish(path, sizeof(path), wanted);
    if (memchr(name.at, '.', name.bytes) != NULL)
        return sc_fail(parse->reterr, SPEC_E_CONFIG,
                       "config: %s: unknown key; a dot stands for an object in an object", path);
    uint32_t i = key_find(path, ret_is_group);
    if (i == KEY_COUNT)
        return fail_unknown(parse, path);
    uint64_t *seen = *ret_is_group ? parse->groups_seen : parse->seen;
    if (has_key(seen, i))
        return sc_fail(parse->reterr, SPEC_E_CONFIG, "config: %s: given twice", path);
    seen[i / 64] |= 1ull << i % 64;
    *ret_key = sc_config_row_at(i);
    return expect(parse, ':', "expected ':'");
}

static spec_status scan_all(struct parse *parse)
{
    char group[KEY_PATH_BYTES] = "";
    bool is_after_value = false, is_after_comma = false;
    spec_status status = expect(parse, '{', "expected an object");
    while (status == SPEC_OK) {
        const struct sc_config_row *key = NULL;
        bool is_group = false;
        if (peek(parse) == '}' && !is_after_comma) {
            parse->at++;
            is_after_value = true;
            if (group[0] == '\0')
                break;
            group[0] = '\0';
            continue;
        }
        if (is_after_value) {
            status = expect(parse, ',', "expected ',' or '}'");
            is_after_value = false;
            is_after_comma = true;
            continue;
        }
        is_after_comma = false;
        status = scan_key(parse, group, &key, &is_group);
        if (status != SPEC_OK)
            return status;
        if (is_group) {
            uint64_t bytes = (uint64_t)(strchr(key->shown.path, '.') - key->shown.path);
            memcpy(group, key->shown.path, bytes);
            group[bytes] = '\0';
            status = scan_group(parse, group);
        } else {
            status = scan_value(parse, key);
            is_after_value = true;
        }
    }
    if (status == SPEC_OK && peek(parse) != '\0')
        return fail_at(parse, parse->at, "text after the configuration's end");
    return status;
}

/* Runs json-c's check: one well-formed document, UTF-8, not too deep. */
static spec_status tree_parse(struct parse *parse)
{
    const char *nul = memchr(parse->text, '\0', parse->bytes);
    if (nul != NULL)
        return fail_at(parse, (uint64_t)(nul - parse->text), "a NUL byte");
    struct json_tokener *tokener = json_tokener_new_ex(JSON_DEPTH_MAX);
    if (tokener == NULL)
        return sc_fail(parse->reterr, SPEC_E_NO_MEMORY, "config: the JSON parser");
    json_tokener_set_flags(tokener, JSON_TOKENER_STRICT | JSON_TOKENER_VALIDATE_UTF8);
    parse->root = json_tokener_parse_ex(tokener, parse->text, (int)parse->bytes);
    enum json_tokener_error error = json_tokener_get_error(tokener);
    uint64_t end = json_tokener_get_parse_end(tokener);
    json_tokener_free(tokener);
    if (error == json_tokener_continue)
        return fail_at(parse, parse->bytes, "unexpected end of the text");
    if (error != json_tokener_success)
        return fail_at(parse, end, json_tokener_error_desc(error));
    return SPEC_OK;
}

static void default_write(const struct parse *parse, const char *path, const char *value)
{
    bool is_group;
    uint32_t i = key_find(path, &is_group);
    SC_ASSERT(NULL, i < KEY_COUNT && !is_group);
    const struct sc_config_row *key = sc_config_row_at(i);
    if (!has_key(parse->seen, i))
        member_write(key, parse->config, text_value(key, value));
}

/* Applies the preset to keys that were not given. */
static void preset_apply(const struct parse *parse)
{
    struct sc_config *config = parse->config;
    if (config->preset >= SC_PRESETS) {
        config->preset -= SC_PRESETS;
        default_write(parse, "read.planner", "range");
    }
    const char *text = sc_config_preset_text(config->preset);
    struct parse preset = {
        .text = text, .bytes = strlen(text), .kept = parse->seen, .config = config};
    spec_status status = scan_all(&preset);
    SC_ASSERT(NULL, status == SPEC_OK);
    bool is_quantised =
        config->identify == SC_IDENTIFY_QUANTISED || config->base == SC_BASE_QUANTISED;
    bool probes = config->identify == SC_IDENTIFY_PROBES || config->predictor == SC_PREDICTOR_HINT;
    if (!sc_config_selects(config) || !probes || is_quantised)
        default_write(parse, "select.probe_heads", "0"); /* nothing would read them */
}

/* Uniform bits allow only some widths. */
static spec_status check_bit_allocation(const struct parse *parse)
{
    const struct sc_config *config = parse->config;
    static const char *const FRACTIONS[] = {"", ".25", ".5", ".75"};
    const uint32_t quarters[2] = {config->quarters_k, config->quarters_v};
    for (uint32_t i = 0; i < 2 && config->bit_allocation == SC_BITS_UNIFORM; i++)
        if (quarters[i] % 4 != 0 || quarters[i] == 28 || quarters[i] == 4)
            return sc_fail(parse->reterr, SPEC_E_CONFIG,
                           "config: layered.bits_%c: found %" PRIu32 "%s, expected 2, 3, 4, 5, 6 "
                           "or 8 where layered.bit_allocation is uniform",
                           i == 0 ? 'k' : 'v', quarters[i] / 4, FRACTIONS[quarters[i] % 4]);
    return SPEC_OK;
}

uint32_t sc_config_upper_policy(const struct sc_config *config)
{
    return config->upper_policy > 0 ? config->upper_policy - 1 : config->host_policy;
}

bool sc_config_selects(const struct sc_config *config)
{
    return config->budget != SPEC_BUDGET_RATIO || config->retain_ppm < 1000000;
}

bool sc_config_stores_quantised(const struct sc_config *config)
{
    bool reads = config->base == SC_BASE_QUANTISED || config->identify == SC_IDENTIFY_QUANTISED;
    return config->quantise == SC_QUANTISE_YES || (config->quantise == SC_QUANTISE_AUTO && reads);
}

static spec_status text_parse(const char *text, uint64_t bytes, struct sc_config *ret_config,
                              struct spec_error *reterr)
{
    struct sc_config config = {.preset = 0};
    struct parse parse = {.text = text, .bytes = bytes, .config = &config, .reterr = reterr};
    for (uint32_t i = 0; i < KEY_COUNT; i++)
        if (sc_config_row_at(i)->kind != KIND_PATH) /* that key is required */
            member_write(sc_config_row_at(i), &config, initial_value(sc_config_row_at(i)));
    spec_status status = tree_parse(&parse);
    if (status == SPEC_OK)
        status = scan_all(&parse);
    json_object_put(parse.root); /* takes NULL */
    if (status != SPEC_OK)
        return status;
    if (config.path[0] == '\0')
        return sc_fail(reterr, SPEC_E_CONFIG, "config: path: missing, expected %s",
                       sc_config_row_at(0)->shown.allowed);
    if (config.disk_bytes != 0 && config.disk_bytes < config.segment_bytes)
        return sc_fail(reterr, SPEC_E_CONFIG,
                       "config: disk_bytes: found %" PRIu64
                       ", expected 0 or at least segment_bytes, %" PRIu64,
                       config.disk_bytes, config.segment_bytes);
    preset_apply(&parse);
    status = check_bit_allocation(&parse);
    if (status == SPEC_OK)
        *ret_config = config;
    return status;
}

/* ---- The file ------------------------------------------------------------------------------- */

/* Reads at most buffer_bytes; returns bytes, or -errno. */
static int64_t read_whole(int fd, char *buffer, uint64_t buffer_bytes)
{
    uint64_t bytes = 0;
    while (bytes < buffer_bytes) {
        ssize_t got = read(fd, buffer + bytes, buffer_bytes - bytes);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return -errno;
        if (got == 0)
            break;
        bytes += (uint64_t)got;
    }
    return (int64_t)bytes;
}

static spec_status file_read(const char *path, char *buffer, uint64_t buffer_bytes,
                             uint64_t *ret_bytes, struct spec_error *reterr)
{
    struct stat info;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return sc_fail_errno(reterr, SPEC_E_IO, errno, "config: cannot read \"%s\"", path);
    int64_t got = -ENOTSUP; /* a pipe or device could block the host */
    if (fstat(fd, &info) != 0)
        got = -errno;
    else if (S_ISDIR(info.st_mode))
        got = -EISDIR;
    else if (S_ISREG(info.st_mode))
        got = read_whole(fd, buffer, buffer_bytes);
    close(fd);
    if (got == -ENOTSUP)
        return sc_fail(reterr, SPEC_E_IO, "config: cannot read \"%s\": not a regular file", path);
    if (got < 0)
        return sc_fail_errno(reterr, SPEC_E_IO, (int)-got, "config: cannot read \"%s\"", path);
    *ret_bytes = (uint64_t)got;
    return SPEC_OK;
}

static spec_status too_large(struct spec_error *reterr)
{
    return sc_fail(reterr, SPEC_E_CONFIG, "config: larger than %u bytes",
                   (unsigned)SC_LIMIT_CONFIG_BYTES);
}

spec_status sc_config_parse(struct sc_alloc *alloc, const char *text, struct sc_config *ret_config,
                            struct spec_error *reterr)
{
    if (text == NULL)
        return sc_fail(reterr, SPEC_E_INVALID, "config: NULL, expected a path or JSON");
    if (text[strspn(text, " \t\r\n")] == '{') {
        uint64_t bytes = strnlen(text, SC_LIMIT_CONFIG_BYTES + 1);
        return bytes > SC_LIMIT_CONFIG_BYTES ? too_large(reterr)
                                             : text_parse(text, bytes, ret_config, reterr);
    }
    uint64_t bytes = 0;
    char *buffer = sc_alloc(alloc, SC_LIMIT_CONFIG_BYTES + 1);
    if (buffer == NULL)
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "config: the file's bytes");
    spec_status status = file_read(text, buffer, SC_LIMIT_CONFIG_BYTES + 1, &bytes, reterr);
    if (status == SPEC_OK && bytes > SC_LIMIT_CONFIG_BYTES)
        status = too_large(reterr);
    if (status == SPEC_OK)
        status = text_parse(buffer, bytes, ret_config, reterr);
    sc_alloc_free(alloc, buffer);
    return status;
}

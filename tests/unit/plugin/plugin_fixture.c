/* The connector under test, the truth about its rows, and whole requests; see plugin_fixture.h.
 *
 * Holds, Threads: as plugin_fixture.h. */
#include "tests/unit/plugin/plugin_fixture.h"
#include "tests/unit/awaits.h"

#include <ftw.h>

/* ---- Prompts and rows ----------------------------------------------------------------------- */

struct prompt rig_prompt(uint64_t seed, uint64_t shared, uint64_t branch, uint64_t count)
{
    struct prompt prompt = {.count = count,
                            .tokens = malloc((count + 1) * sizeof(uint32_t)),
                            .history = malloc((count + 1) * sizeof(uint64_t))};
    assert_true(prompt.tokens != NULL && prompt.history != NULL);
    uint64_t history = 1;
    for (uint64_t p = 0; p < count; p++) {
        uint64_t word = rig_mix(seed * 1000003 + p + (p >= shared ? rig_mix(branch + 7) : 0));
        prompt.tokens[p] = (uint32_t)(word % 50272);
        history = rig_mix(history ^ prompt.tokens[p]);
        prompt.history[p] = history;
    }
    return prompt;
}

void rig_prompt_free(struct prompt *prompt)
{
    free(prompt->tokens);
    free(prompt->history);
    *prompt = (struct prompt){0};
}

void rig_prompts_free_all(struct prompt *prompts, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        rig_prompt_free(&prompts[i]);
}

void rig_prompts_free_named(struct prompt *const *prompts, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        rig_prompt_free(prompts[i]);
}

uint64_t rig_part_bytes(const struct rig *rig) /* K of one token and layer */
{
    return (uint64_t)rig->heads * rig->head_size * sc_plugin_dtype_bytes(rig->dtype);
}

void rig_row(const struct rig *rig, const struct prompt *prompt, uint64_t position, uint32_t layer,
             uint32_t part, uint8_t *dst)
{
    uint64_t word = rig_mix(prompt->history[position] ^ rig_mix(layer * 2 + part));
    const uint64_t bytes = rig_part_bytes(rig);
    for (uint64_t i = 0; i < bytes; i += 8) { /* words, which a sanitizer looks at once each */
        word = word * 6364136223846793005ull + 1442695040888963407ull;
        /* finite and within (-2, 2), whatever the type is */
        const uint64_t small = word & 0xbfffbfffbfffbfffull;
        if (bytes - i >= 8)
            memcpy(dst + i, &small, 8);
        else
            memcpy(dst + i, &small, bytes - i);
    }
}

/* ---- Memory that is described: [guard][K rows][guard][V rows][guard] ------------------------ */

struct area rig_area(const struct rig *rig, uint64_t count)
{
    struct area area = {.part_bytes = count * rig_part_bytes(rig), .count = count};
    uint64_t v_at = (RIG_GUARD + area.part_bytes + RIG_GUARD + 63) / 64 * 64;
    area.bytes = malloc(v_at + area.part_bytes + RIG_GUARD);
    assert_non_null(area.bytes);
    memset(area.bytes, 0xa5, v_at + area.part_bytes + RIG_GUARD);
    uint64_t head_bytes = (uint64_t)rig->head_size * sc_plugin_dtype_bytes(rig->dtype);
    area.memory = (struct spec_memory){.struct_size = sizeof(area.memory),
                                       .dtype = rig->dtype,
                                       .k_base = area.bytes + RIG_GUARD,
                                       .v_base = area.bytes + v_at,
                                       .k_bytes = area.part_bytes,
                                       .v_bytes = area.part_bytes,
                                       .token_stride_bytes = rig_part_bytes(rig),
                                       .head_stride_bytes = head_bytes};
    return area;
}

void rig_area_free(struct area *area)
{
    free(area->bytes);
    area->bytes = NULL;
}

bool rig_is_poison(const uint8_t *bytes, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        if (bytes[i] != 0xa5)
            return false;
    return true;
}

void rig_area_fill(const struct rig *rig, const struct area *area, const struct prompt *prompt,
                   uint64_t first, uint64_t count, uint32_t layer)
{
    uint64_t part_bytes = rig_part_bytes(rig);
    uint8_t *k = area->memory.k_base, *v = area->memory.v_base;
    for (uint64_t j = 0; j < count; j++) {
        rig_row(rig, prompt, first + j, layer, 0, k + j * part_bytes);
        rig_row(rig, prompt, first + j, layer, 1, v + j * part_bytes);
    }
}

bool rig_area_is_right(const struct rig *rig, const struct area *area, const struct prompt *prompt,
                       uint64_t first, uint64_t rows, uint32_t layer)
{
    uint64_t part_bytes = rig_part_bytes(rig);
    uint8_t *row = malloc(part_bytes);
    bool right = row != NULL;
    for (uint32_t part = 0; part < 2 && right; part++) {
        const uint8_t *base = part == 0 ? area->memory.k_base : area->memory.v_base;
        right = rig_is_poison(base - RIG_GUARD, RIG_GUARD) &&
                rig_is_poison(base + rows * part_bytes,
                              area->part_bytes - rows * part_bytes + RIG_GUARD);
        for (uint64_t j = 0; j < rows && right; j++) {
            rig_row(rig, prompt, first + j, layer, part, row);
            right = memcmp(base + j * part_bytes, row, part_bytes) == 0;
        }
    }
    free(row);
    return right;
}

/* ---- Opening and closing -------------------------------------------------------------------- */

void *rig_alloc(uint64_t bytes, uint64_t align_bytes, void *user)
{
    struct rig_memory *memory = user;
    if (atomic_load(&memory->countdown) >= 0 && atomic_fetch_sub(&memory->countdown, 1) == 0) {
        atomic_fetch_add(&memory->failed, 1);
        return NULL;
    }
    void *block = sc_sim_memory_get(bytes, align_bytes);
    if (block != NULL) {
        memset(block, 0xcd, bytes < 4096 ? bytes : 4096); /* what is read was written before */
        atomic_fetch_add(&memory->live_blocks, 1);
        atomic_fetch_add(&memory->live_bytes, bytes);
    }
    return block;
}

void rig_free(void *block, uint64_t bytes, void *user)
{
    struct rig_memory *memory = user;
    sc_sim_memory_put(block, bytes);
    atomic_fetch_sub(&memory->live_blocks, 1);
    atomic_fetch_sub(&memory->live_bytes, bytes);
}

struct spec_model rig_model(const struct rig *rig)
{
    const struct rig_rope *rope = &rig->rope;
    struct spec_model model = {.struct_size = sizeof(struct spec_model),
                               .layer_count = rig->layers,
                               .kv_head_count = rig->heads,
                               .query_head_count =
                                   rig->heads * (rig->query_group > 0 ? rig->query_group : 1),
                               .head_size = rig->head_size,
                               .kv_dtype = rig->dtype,
                               .weights_id = {"rig", 3},
                               .rope_kind = rope->kind,
                               .rope_theta = rope->theta,
                               .rope_scaling_kind = rope->scaling_kind};
    memcpy(model.rope_scaling, rope->scaling, sizeof(rope->scaling));
    return model;
}

/* The members of a rig, with rows chosen of matches of any length (they are short in tests), and 8
 * MiB for selectors: tests use 1.5 at most, and ASan marks 128 at every open. A text that says
 * itself which are short, or how much selectors have, stays as it is. */
static const char *rig_members(const char *extra, char *text, uint64_t capacity)
{
    static const char GROUP[] = "\"select\": {", ANY[] = "\"min_tokens\": 0, \"min_share_ppm\": 0";
    static const char ROOM[] = ", \"selector_bytes\": \"8MiB\"";
    const char *group = strstr(extra, GROUP);
    if (strstr(extra, "min_share_ppm") != NULL)
        return extra;
    if (group == NULL)
        (void)snprintf(text, capacity, "%s, %s%s%s}", extra, GROUP, ANY, ROOM);
    else
        (void)snprintf(text, capacity, "%.*s%s%s%s, %s", (int)(group - extra), extra, GROUP, ANY,
                       strstr(extra, "selector_bytes") == NULL ? ROOM : "", group + strlen(GROUP));
    return text;
}

/* The members, with little memory of a device, but for what they say themselves: the fake driver
 * touches all of it at every attach, and guards it at every operation. */
static const char *rig_gpu(const char *extra, char *text, uint64_t capacity)
{
    static const char GROUP[] = "\"gpu\": {";
    static const char *const KEYS[] = {"staging_bytes", "store_bytes", "score_bytes",
                                       "query_bytes"};
    static const char *const BYTES[] = {"4MiB", "4MiB", "1MiB", "1MiB"};
    const char *group = strstr(extra, GROUP), *inside = "}", *next = "";
    char added[160] = "";
    uint64_t before = group != NULL ? (uint64_t)(group - extra) : strlen(extra);
    if (group != NULL) {
        inside = group + strlen(GROUP);
        next = inside[0] == '}' ? "" : ", ";
    }
    for (uint64_t i = 0, used = 0; i < sizeof(KEYS) / sizeof(KEYS[0]); i++)
        if (group == NULL || strstr(inside, KEYS[i]) == NULL)
            used += (uint64_t)snprintf(added + used, sizeof(added) - used, "%s\"%s\": \"%s\"",
                                       used > 0 ? ", " : "", KEYS[i], BYTES[i]);
    (void)snprintf(text, capacity, "%.*s%s%s%s%s%s", (int)before, extra,
                   group == NULL && before > 0 ? ", " : "", GROUP, added, added[0] != 0 ? next : "",
                   inside);
    return text;
}

/* Members for few and short requests, but for what the text says itself: 64 of 131,072 tokens are
 * 200 MB at every open, which ASan marks and unmarks, page fault by page fault. */
static const char *rig_requests(const char *extra, char *text, uint64_t capacity)
{
    (void)snprintf(
        text, capacity, "%s%s",
        strstr(extra, "\"max_requests\"") != NULL ? "" : ", \"max_requests\": 16",
        strstr(extra, "\"max_request_tokens\"") != NULL ? "" : ", \"max_request_tokens\": 16384");
    return text;
}

spec_status rig_try_open_model(struct rig *rig, const struct spec_model *model)
{
    struct spec_alloc alloc = {
        .struct_size = sizeof(alloc), .alloc = rig_alloc, .free = rig_free, .user = &rig->memory};
    char gpu[768], members[1024], requests[96];
    const char *extra = rig_gpu(rig->extra, gpu, sizeof(gpu));
    (void)snprintf(
        rig->config, sizeof(rig->config),
        "{\"path\": \"%s\", \"staging_bytes\": \"%s\", \"io\": {\"backend\": "
        "\"%s\", \"op_bytes\": \"%s\"}%s%s%s, %s}",
        rig->path, rig->stage != NULL ? rig->stage : "16MiB",
        rig->backend != NULL ? rig->backend : "pread", rig->op != NULL ? rig->op : "1MiB",
        strstr(rig->extra, "\"load_policy\"") != NULL ? "" : ", \"load_policy\": \"load\"",
        strstr(rig->extra, "\"host_bytes\"") != NULL ? "" : ", \"host_bytes\": 0",
        rig_requests(rig->extra, requests, sizeof(requests)),
        rig_members(extra, members, sizeof(members)));
    struct spec_open_params params = {.struct_size = sizeof(params),
                                      .role = rig->role,
                                      .rank = rig->rank,
                                      .rank_count = rig->rank_count,
                                      .config = rig->config,
                                      .model = model,
                                      .alloc = &alloc,
                                      .log_level_max = SPEC_LOG_DEBUG};
    rig->error = (struct spec_error){.struct_size = sizeof(rig->error)};
    spec_status status = rig->is_sim
                             ? sc_sim_connector_open(&params, rig->disk, &rig->conn, &rig->error)
                             : sc_plugin_open(&params, &rig->conn, &rig->error);
    if (status != SPEC_OK)
        sc_sim_memory_rest();
    assert_int_equal(rig->error.code, status); /* of what is OK nothing is written [ABI-003] */
    return status;
}

spec_status rig_try_open(struct rig *rig)
{
    struct spec_model model = rig_model(rig);
    return rig_try_open_model(rig, &model);
}

void rig_open(struct rig *rig)
{
    spec_status status = rig_try_open(rig);
    if (status != SPEC_OK)
        fail_msg("open: %s: %s", sc_status_name(status), rig->error.text);
}

void rig_close(struct rig *rig)
{
    assert_int_equal(atomic_load(&rig->conn->poison.broken), 0);
    sc_plugin_close(rig->conn);
    sc_sim_memory_rest();
    rig->conn = NULL;
    assert_int_equal(atomic_load(&rig->memory.live_blocks), 0);
    assert_int_equal(atomic_load(&rig->memory.live_bytes), 0);
}

void rig_reopen(struct rig *rig)
{
    rig_close(rig);
    rig_open(rig);
}

void rig_shape(struct rig *rig, uint32_t layers, uint32_t heads, uint32_t head_size, uint32_t dtype)
{
    rig->layers = layers;
    rig->heads = heads;
    rig->head_size = head_size;
    rig->dtype = dtype;
}

void rig_init(struct rig *rig, bool is_sim, const char *extra)
{
    *rig = (struct rig){.is_sim = is_sim, .extra = extra};
    rig_shape(rig, 3, 2, 8, SPEC_DTYPE_F16);
    atomic_init(&rig->memory.countdown, -1);
    sc_alloc_init(&rig->disk_alloc);
    (void)snprintf(rig->dir, sizeof(rig->dir), "/tmp/spec-plugin-XXXXXX");
    if (is_sim) {
        (void)snprintf(rig->path, sizeof(rig->path), "/sim/store");
        struct sc_io_sim_disk_params disk = {.alloc = &rig->disk_alloc, .seed = 1};
        assert_int_equal(sc_io_sim_disk_open(&disk, &rig->disk, NULL), SPEC_OK);
    } else {
        assert_non_null(mkdtemp(rig->dir));
        (void)snprintf(rig->path, sizeof(rig->path), "%s/store", rig->dir);
    }
}

void rig_begin(struct rig *rig, bool is_sim, const char *extra)
{
    rig_init(rig, is_sim, extra);
    rig_open(rig);
}

void rig_begin_shape(struct rig *rig, bool is_sim, const char *extra, uint32_t layers,
                     uint32_t heads, uint32_t head_size, uint32_t dtype)
{
    rig_init(rig, is_sim, extra);
    rig_shape(rig, layers, heads, head_size, dtype);
    rig_open(rig);
}

static int rig_remove_one(const char *path, const struct stat *info, int type, struct FTW *at)
{
    (void)info, (void)type, (void)at;
    return remove(path);
}

void rig_done(struct rig *rig)
{
    if (rig->conn != NULL)
        rig_close(rig);
    sc_io_sim_disk_close(rig->disk);
    if (!rig->is_sim)
        (void)nftw(rig->dir, rig_remove_one, 16, FTW_DEPTH | FTW_PHYS);
    sc_alloc_done(&rig->disk_alloc);
}

void rig_beside(struct rig *rig, const struct rig *first, uint32_t role, uint32_t rank)
{
    *rig = *first;
    rig->conn = NULL;
    rig->role = role;
    rig->rank = rank;
    rig->memory = (struct rig_memory){0};
    atomic_init(&rig->memory.countdown, -1);
}

void rig_open_beside(struct rig *rig, const struct rig *first, uint32_t role, uint32_t rank)
{
    rig_beside(rig, first, role, rank);
    rig_open(rig);
}

void rig_leave(struct rig *rig)
{
    if (rig->conn != NULL)
        rig_close(rig);
}

void rig_pass_ns(struct rig *rig, uint64_t ns)
{
    _Atomic uint32_t never = 0;
    (void)sc_exec_wait(rig->conn->exec, &never, 0, sc_exec_now_ns(rig->conn->exec) + ns);
}

/* ---- Calls ---------------------------------------------------------------------------------- */

struct spec_important rig_item(spec_request request, uint32_t layer,
                               const struct spec_memory *destination)
{
    return (struct spec_important){.struct_size = sizeof(struct spec_important),
                                   .request = request,
                                   .layer = layer,
                                   .destination = destination};
}

struct spec_store_params rig_store_params(spec_request request, uint32_t layer, uint64_t first,
                                          uint64_t count, const struct spec_memory *memory)
{
    return (struct spec_store_params){.struct_size = sizeof(struct spec_store_params),
                                      .request = request,
                                      .layer = layer,
                                      .first_token = first,
                                      .token_count = count,
                                      .memory = memory};
}

struct sc_store_stats rig_store_stats(const struct rig *rig)
{
    struct sc_store_stats stats;
    sc_store_stats(rig->conn->store, &stats);
    return stats;
}

struct spec_lookup_params rig_lookup_params(const struct prompt *prompt, uint64_t from_token,
                                            uint64_t max_tokens, uint32_t flags)
{
    return (struct spec_lookup_params){.struct_size = sizeof(struct spec_lookup_params),
                                       .flags = flags,
                                       .tokens = prompt->tokens,
                                       .token_count = prompt->count,
                                       .from_token = from_token,
                                       .max_tokens =
                                           max_tokens == RIG_MAX ? prompt->count : max_tokens};
}

struct spec_lookup_result rig_lookup_as(struct rig *rig, const struct spec_lookup_params *params)
{
    struct spec_lookup_result result = {.struct_size = sizeof(result)};
    assert_int_equal(sc_plugin_lookup(rig->conn, params, &result, NULL), SPEC_OK);
    return result;
}

spec_status rig_attach(struct rig *rig, const uint8_t lease[64], uint64_t from_token,
                       struct spec_lookup_result *ret_result)
{
    const struct spec_attach_params params = {
        .struct_size = sizeof(params), .lease = {lease, 64}, .from_token = from_token};
    *ret_result = (struct spec_lookup_result){.struct_size = sizeof(*ret_result)};
    return sc_plugin_attach(rig->conn, &params, ret_result, NULL);
}

spec_status rig_maintain(struct rig *rig, uint32_t flags)
{
    const struct spec_maintain_params params = {.struct_size = sizeof(params), .flags = flags};
    return sc_plugin_maintain(rig->conn, &params, NULL);
}

spec_status rig_try_stage(struct rig *rig, spec_request request, uint64_t deadline_ns,
                          spec_ticket *ret_ticket)
{
    const struct spec_prefetch_to_host_params params = {
        .struct_size = sizeof(params), .request = request, .deadline_ns = deadline_ns};
    return sc_plugin_host_prefetch(rig->conn, &params, ret_ticket, &rig->error);
}

spec_ticket rig_stage(struct rig *rig, spec_request request, uint64_t deadline_ns)
{
    spec_ticket ticket = 0;
    assert_int_equal(rig_try_stage(rig, request, deadline_ns, &ticket), SPEC_OK);
    assert_int_not_equal(ticket, 0);
    return ticket;
}

/* The error is the status', and nothing is written of what is OK [ABI-003]. */
static spec_status told(const struct spec_error *error, spec_status status)
{
    assert_int_equal(error->code, status);
    assert_true((error->text[0] == 0) == (status == SPEC_OK));
    return status;
}

spec_status rig_try_lookup(struct rig *rig, const struct prompt *prompt, uint64_t from_token,
                           uint64_t max_tokens, struct spec_lookup_result *ret_result)
{
    const struct spec_lookup_params params = rig_lookup_params(prompt, from_token, max_tokens, 0);
    *ret_result = (struct spec_lookup_result){.struct_size = sizeof(*ret_result)};
    struct spec_error error = {.struct_size = sizeof(error)};
    spec_status status = sc_plugin_lookup(rig->conn, &params, ret_result, &error);
    return told(&error, status);
}

spec_status rig_peek(struct rig *rig, const struct prompt *prompt, uint64_t from_token,
                     struct spec_lookup_result *ret_result)
{
    const struct spec_lookup_params params =
        rig_lookup_params(prompt, from_token, RIG_MAX, SPEC_LOOKUP_PEEK);
    *ret_result = (struct spec_lookup_result){.struct_size = sizeof(*ret_result), .request = 77};
    struct spec_error error = {.struct_size = sizeof(error)};
    spec_status status = sc_plugin_lookup(rig->conn, &params, ret_result, &error);
    return told(&error, status);
}

struct spec_lookup_result rig_lookup_from(struct rig *rig, const struct prompt *prompt,
                                          uint64_t from_token)
{
    struct spec_lookup_result result;
    assert_int_equal(rig_try_lookup(rig, prompt, from_token, RIG_MAX, &result), SPEC_OK);
    return result;
}

struct spec_lookup_result rig_peeked(struct rig *rig, const struct prompt *prompt,
                                     uint64_t from_token)
{
    struct spec_lookup_result result;
    assert_int_equal(rig_peek(rig, prompt, from_token, &result), SPEC_OK);
    return result;
}

struct spec_lookup_result rig_lookup(struct rig *rig, const struct prompt *prompt)
{
    return rig_lookup_from(rig, prompt, 0);
}

void rig_release(struct rig *rig, spec_request request)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    spec_status status = sc_plugin_release(rig->conn, request, &error);
    assert_int_equal(told(&error, status), SPEC_OK);
}

uint64_t rig_matched(struct rig *rig, const struct prompt *prompt)
{
    struct spec_lookup_result result = rig_lookup(rig, prompt);
    rig_release(rig, result.request);
    return result.matched_tokens;
}

spec_status rig_store_layer(struct rig *rig, spec_request request, const struct prompt *prompt,
                            uint64_t first, uint64_t count, uint32_t layer, spec_ticket *ret_ticket)
{
    struct area area = rig_area(rig, count);
    rig_area_fill(rig, &area, prompt, first, count, layer);
    struct spec_store_params params = rig_store_params(request, layer, first, count, &area.memory);
    struct spec_error error = {.struct_size = sizeof(error)};
    spec_status status = sc_plugin_store(rig->conn, &params, 1, ret_ticket, &error);
    rig_area_free(&area); /* the source is free at return */
    return told(&error, status);
}

spec_status rig_wait(struct rig *rig, spec_ticket ticket)
{
    spec_status status = SPEC_PENDING;
    if (ticket == 0)
        return SPEC_OK;
    struct spec_error error = {.struct_size = sizeof(error)};
    spec_status waited = sc_plugin_wait(rig->conn, &ticket, 1, UINT64_MAX, &status, &error);
    assert_int_equal(told(&error, waited), SPEC_OK);
    return status;
}

spec_ticket rig_store(struct rig *rig, spec_request request, const struct prompt *prompt,
                      uint64_t first, uint64_t count)
{
    spec_ticket ticket = 0;
    for (uint32_t layer = 0; layer < rig->layers; layer++) {
        assert_int_equal(ticket, 0);
        assert_int_equal(rig_store_layer(rig, request, prompt, first, count, layer, &ticket),
                         SPEC_OK);
    }
    assert_int_not_equal(ticket, 0);
    return ticket;
}

spec_status rig_load(struct rig *rig, spec_request request, const struct prompt *prompt,
                     uint64_t from_token, uint64_t matched, uint32_t layer)
{
    uint64_t rows = matched - from_token;
    struct area area = rig_area(rig, rows + 1);
    struct spec_important item = rig_item(request, layer, &area.memory);
    struct spec_error error = {.struct_size = sizeof(error)};
    spec_status status = sc_plugin_get_important(rig->conn, &item, 1, &error);
    assert_int_equal(told(&error, status), item.status);
    if (status == SPEC_OK) {
        assert_int_equal(item.row_count, rows);
        assert_true(rig_area_is_right(rig, &area, prompt, from_token, rows, layer));
    }
    rig_area_free(&area);
    return status;
}

void rig_load_all(struct rig *rig, spec_request request, const struct prompt *prompt,
                  uint64_t from_token, uint64_t matched)
{
    for (uint32_t layer = 0; layer < rig->layers; layer++)
        assert_int_equal(rig_load(rig, request, prompt, from_token, matched, layer), SPEC_OK);
}

spec_ticket rig_submit_whole(struct rig *rig, struct spec_important *items, uint64_t count)
{
    spec_ticket ticket = 0;
    assert_int_equal(sc_plugin_submit(rig->conn, items, count, &ticket, NULL), SPEC_OK);
    assert_int_equal(sc_plugin_submit_wait(rig->conn, ticket, UINT64_MAX, NULL), SPEC_OK);
    return ticket;
}

uint64_t rig_read(struct rig *rig, const struct prompt *prompt, spec_status *ret_status)
{
    struct spec_lookup_result result = rig_lookup(rig, prompt);
    spec_status status = SPEC_OK;
    for (uint32_t layer = 0; layer < rig->layers && status == SPEC_OK; layer++) {
        assert_int_equal(sc_plugin_begin_layer(rig->conn, &result.request, 1, layer, NULL),
                         SPEC_OK);
        status = rig_load(rig, result.request, prompt, 0, result.matched_tokens, layer);
    }
    rig_release(rig, result.request);
    if (ret_status != NULL)
        *ret_status = status;
    return status == SPEC_OK ? result.matched_tokens : UINT64_MAX;
}

void rig_settle(struct rig *rig)
{
    spec_connector *conn = rig->conn;
    for (;;) {
        uint32_t seen = atomic_load(&conn->saves.word);
        if (atomic_load(&conn->saves.live) == 0)
            break;
        (void)sc_exec_wait(conn->exec, &conn->saves.word, seen, SC_EXEC_FOREVER);
    }
}

bool rig_saves_are_free(struct rig *rig)
{
    const struct sc_plugin_saves *all = &rig->conn->saves;
    uint64_t saves = 0, sharers = 0;
    rig_settle(rig);
    for (const struct sc_plugin_save *at = all->free; at != NULL; at = at->next)
        saves++;
    for (const struct sc_plugin_sharer *at = all->sharers.free; at != NULL; at = at->next)
        sharers++;
    return saves == all->count && sharers == all->count;
}

void rig_landed(struct rig *rig)
{
    uint32_t looks = 0;
    while (sc_store_selector_bytes_used(rig->conn->store) > 0)
        if (!sc_exec_is_loop(rig->conn->exec))
            await_or_fail(&looks, "the last selector gives its memory back");
        else
            assert_true(sc_exec_step_one(rig->conn->exec));
}

void rig_check_index(struct rig *rig)
{
    pthread_mutex_lock(&rig->conn->index.lock);
    assert_int_equal(sc_radix_check(rig->conn->radix, NULL), SPEC_OK);
    pthread_mutex_unlock(&rig->conn->index.lock);
}

void rig_background(struct rig *rig)
{
    spec_connector *conn = rig->conn;
    for (;;) {
        uint32_t seen = atomic_load(&conn->jobs.word), busy = 0;
        pthread_mutex_lock(&conn->jobs.lock);
        for (uint32_t i = 0; i < SC_JOBS; i++)
            busy += conn->jobs.slots[i].state != 0;
        pthread_mutex_unlock(&conn->jobs.lock);
        if (busy == 0)
            break;
        (void)sc_exec_wait(conn->exec, &conn->jobs.word, seen, SC_EXEC_FOREVER);
    }
}

void rig_store_all(struct rig *rig, const struct prompt *prompt, uint64_t count)
{
    struct spec_lookup_result result = rig_lookup(rig, prompt);
    assert_int_equal(rig_wait(rig, rig_store(rig, result.request, prompt, 0, count)), SPEC_OK);
    rig_release(rig, result.request);
}

void rig_wait_for_quant(struct rig *rig)
{
    do
        rig_pass_ns(rig, 1000000);
    while (rig_store_stats(rig).is_building);
}

void rig_press(struct rig *rig)
{
    sc_plugin_evict_ask(rig->conn, NULL, 1);
    rig_background(rig);
}

spec_status rig_fill(struct rig *rig, const struct prompt *prompt)
{
    struct spec_lookup_result result = rig_lookup(rig, prompt);
    spec_status status = SPEC_OK;
    if (result.matched_tokens < prompt->count)
        status = rig_wait(rig, rig_store(rig, result.request, prompt, result.matched_tokens,
                                         prompt->count - result.matched_tokens));
    rig_release(rig, result.request);
    return status;
}

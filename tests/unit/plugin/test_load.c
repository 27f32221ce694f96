/* Loading: what is promised, what is delivered, and what happens when the disk does not keep it. */
#include "tests/unit/plugin/plugin_fixture.h"
#include "tests/unit/threads.h"

static const char *const LAYOUTS[] = {"", "\"store\": {\"layout\": \"split\"}"};

static void open_filled(struct rig *rig, bool is_sim, const char *extra,
                        const struct prompt *prompt)
{
    rig_begin(rig, is_sim, extra);
    assert_int_equal(rig_fill(rig, prompt), SPEC_OK);
}

/* from_token, max_tokens and multiple_of over a grid, against arithmetic; rows are right. */
static void matches_are_cut_as_asked(void **state)
{
    (void)state;
    struct prompt prompt = rig_prompt(1, 0, 0, 150);
    struct rig rig;
    open_filled(&rig, true, "\"chunk_tokens\": 16", &prompt);
    static const uint64_t VALUES[] = {0, 1, 15, 16, 17, 64, 100, 149, 150};
    for (uint32_t f = 0; f < 9; f++)
        for (uint32_t m = 0; m < 9; m++)
            for (uint64_t multiple = 0; multiple < 49; multiple += 16) {
                struct spec_lookup_params params = {.struct_size = sizeof(params),
                                                    .tokens = prompt.tokens,
                                                    .token_count = prompt.count,
                                                    .from_token = VALUES[f],
                                                    .max_tokens = VALUES[m],
                                                    .multiple_of = multiple};
                uint64_t end = VALUES[m] == 0 ? 149 : VALUES[m];
                end = multiple > 0 ? end - end % multiple : end;
                struct spec_lookup_result result = rig_lookup_as(&rig, &params);
                bool hits = end > VALUES[f];
                assert_int_equal(result.state, hits ? SPEC_LOOKUP_HIT : SPEC_LOOKUP_MISS);
                assert_int_equal(result.matched_tokens, hits ? end : VALUES[f]);
                for (uint32_t layer = 0; layer < rig.layers; layer++)
                    assert_int_equal(rig_load(&rig, result.request, &prompt, VALUES[f],
                                              result.matched_tokens, layer),
                                     SPEC_OK);
                rig_release(&rig, result.request);
            }
    rig_end(&rig, &prompt);
}

/* Prompts that part inside chunks: a request holds pieces of several passes. */
static void prompts_that_part_anywhere_share_what_they_share(void **state)
{
    (void)state;
    struct rig rig;
    rig_begin(&rig, true, "\"chunk_tokens\": 64");
    for (uint32_t round = 0; round < 2; round++) {
        for (uint64_t i = 0; i < 60; i++) {
            struct prompt prompt = rig_prompt(1, (i * 37) % 300, i, 320);
            if (round == 0) {
                assert_int_equal(rig_fill(&rig, &prompt), SPEC_OK);
            }
            assert_int_equal(rig_read(&rig, &prompt, NULL), 320);
            rig_prompt_free(&prompt);
        }
        rig_reopen(&rig);
    }
    rig_done(&rig);
}

#define LARGE_ROWS 1100u

/* Memory of some layout, somewhere, and what it must hold: [K][V], poison where no row belongs. */
struct laid {
    uint8_t *bytes, *want;
    uint64_t size;
    struct spec_memory memory;
    int64_t slots[LARGE_ROWS];
};

/* K in columns, V in rows behind them, block by block, whose blocks come in any order. */
static void laid_columns(struct laid *laid, uint64_t part, uint64_t heads, bool skips)
{
    uint64_t head = part / heads, block = 128, blocks = LARGE_ROWS / block + 1;
    struct spec_memory *memory = &laid->memory;
    memory->token_stride_bytes = 2;
    memory->k_element_stride_bytes = block * 2;
    memory->v_token_stride_bytes = head;
    memory->head_stride_bytes = 2 * block * head;
    memory->block_tokens = block;
    memory->block_stride_bytes = 2 * block * part;
    memory->v_base = (uint8_t *)memory->k_base + block * head;
    memory->k_bytes = memory->v_bytes = 2 * blocks * block * part;
    for (uint64_t j = 0; j < LARGE_ROWS; j++)
        laid->slots[j] =
            skips && j % 50 == 3 ? -1 : (int64_t)((blocks - 1 - j / block) * block + j % block);
}

/* seed: by tokens, by heads, in blocks of 16 tokens, or in columns; padded or not; at any multiple
 * of two bytes; tokens in turn, or in any slots, of which a load skips some. */
static struct laid *laid_make(const struct rig *rig, uint64_t seed, bool skips)
{
    struct laid *laid = calloc(1, sizeof(*laid));
    assert_non_null(laid);
    uint64_t part = rig_part_bytes(rig), head = part / rig->heads, kind = seed % 3;
    uint64_t pad = seed / 3 % 2 == 0 ? 0 : 2 * (rig_mix(seed) % 40);
    uint64_t v_at = 4 * LARGE_ROWS * part + 4096;
    laid->size = 2 * v_at;
    laid->bytes = aligned_alloc(64, laid->size);
    laid->want = malloc(laid->size);
    assert_true(laid->bytes != NULL && laid->want != NULL);
    memset(laid->bytes, 0xa5, laid->size);
    memset(laid->want, 0xa5, laid->size);
    uint64_t shift = seed / 6 % 2 == 0 ? seed / 12 * 64 % 256 : 2 * (rig_mix(seed + 1) % 100);
    laid->memory = (struct spec_memory){.struct_size = sizeof(laid->memory),
                                        .dtype = rig->dtype,
                                        .k_base = laid->bytes + 64 + shift,
                                        .v_base = laid->bytes + v_at + shift,
                                        .k_bytes = v_at - 256,
                                        .v_bytes = v_at - 256,
                                        .head_stride_bytes = head,
                                        .token_stride_bytes = part + pad};
    if (kind == 1) {
        laid->memory.token_stride_bytes = head + pad;
        laid->memory.head_stride_bytes = (LARGE_ROWS + 1) * (head + pad);
    } else if (kind == 2) {
        laid->memory.block_tokens = 16;
        laid->memory.block_stride_bytes = 16 * (part + pad) + pad;
    }
    for (uint64_t j = 0; j < LARGE_ROWS; j++) /* 7 and 1,100 have no factor in common */
        laid->slots[j] = skips && j % 5 == 3 ? -1 : (int64_t)(j * 7 % LARGE_ROWS);
    if (seed % 8 == 5 || seed % 8 == 6)
        laid_columns(laid, part, rig->heads, skips);
    if (seed % 4 >= 2) {
        laid->memory.slots = laid->slots;
        laid->memory.slot_count = LARGE_ROWS;
    }
    return laid;
}

static void laid_free(struct laid *laid)
{
    free(laid->bytes);
    free(laid->want);
    free(laid);
}

/* The layer's rows, by the ABI's formula, where `base` stands for the memory's first byte. */
static void laid_fill(const struct rig *rig, const struct laid *laid, const struct prompt *prompt,
                      uint32_t layer, uint8_t *base)
{
    const struct spec_memory *memory = &laid->memory;
    uint64_t part_bytes = rig_part_bytes(rig), head_bytes = part_bytes / rig->heads;
    uint64_t token[2] = {memory->token_stride_bytes, memory->token_stride_bytes};
    uint64_t element[2] = {2, 2};
    uint8_t *row = malloc(part_bytes);
    assert_non_null(row);
    token[1] = memory->v_token_stride_bytes != 0 ? memory->v_token_stride_bytes : token[0];
    element[0] = memory->k_element_stride_bytes != 0 ? memory->k_element_stride_bytes : 2;
    for (uint64_t j = 0; j < LARGE_ROWS; j++) {
        int64_t slot = memory->slots != NULL ? memory->slots[j] : (int64_t)j;
        uint64_t block = memory->block_tokens != 0 ? (uint64_t)slot / memory->block_tokens : 0;
        uint64_t in = (uint64_t)slot - block * memory->block_tokens;
        for (uint32_t part = 0; slot >= 0 && part < 2; part++) {
            const uint8_t *from = part == 0 ? memory->k_base : memory->v_base;
            uint8_t *at =
                base + (from - laid->bytes) + block * memory->block_stride_bytes + in * token[part];
            rig_row(rig, prompt, j, layer, part, row);
            for (uint64_t i = 0; i < part_bytes; i += 2)
                memcpy(at + i / head_bytes * memory->head_stride_bytes +
                           i % head_bytes / 2 * element[part],
                       row + i, 2);
        }
    }
    free(row);
}

static spec_status load_laid(struct rig *rig, spec_request request, const struct prompt *prompt,
                             uint32_t layer, uint64_t seed)
{
    struct laid *laid = laid_make(rig, seed, true);
    struct spec_important item = rig_item(request, layer, &laid->memory);
    spec_status status = sc_plugin_get_important(rig->conn, &item, 1, NULL);
    laid_fill(rig, laid, prompt, layer, laid->want);
    if (status == SPEC_OK)
        assert_memory_equal(laid->bytes, laid->want, laid->size);
    laid_free(laid);
    return status;
}

static void store_laid(struct rig *rig, const struct prompt *prompt, uint64_t seed)
{
    struct spec_lookup_result result = rig_lookup(rig, prompt);
    spec_ticket ticket = 0;
    assert_int_equal(result.matched_tokens, 0);
    for (uint32_t layer = 0; layer < rig->layers; layer++) {
        struct laid *laid = laid_make(rig, seed + layer, false);
        laid_fill(rig, laid, prompt, layer, laid->bytes);
        struct spec_store_params params =
            rig_store_params(result.request, layer, 0, LARGE_ROWS, &laid->memory);
        assert_int_equal(sc_plugin_store(rig->conn, &params, 1, &ticket, NULL), SPEC_OK);
        laid_free(laid);
    }
    assert_int_equal(rig_wait(rig, ticket), SPEC_OK);
    rig_release(rig, result.request);
}

static void flip_at(const struct rig *rig, uint64_t offset)
{
    char path[160];
    uint8_t byte;
    (void)snprintf(path, sizeof(path), "%s/rank-0000-of-0001/seg-00000000", rig->path);
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    assert_int_equal(fseek(file, (long)offset, SEEK_SET), 0);
    assert_int_equal(fread(&byte, 1, 1, file), 1);
    byte ^= 4;
    assert_int_equal(fseek(file, (long)offset, SEEK_SET), 0);
    assert_int_equal(fwrite(&byte, 1, 1, file), 1);
    assert_int_equal(fclose(file), 0);
}

/* Large enough to go past the caches: rows of both layouts on disk, out of host memory of every
 * layout and into it, are right, and nothing is written beside them. */
static void large_rows_come_and_go_in_every_layout(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 24; seed++) {
        struct prompt prompt = rig_prompt(seed, 0, 0, LARGE_ROWS);
        struct rig rig;
        rig_init(&rig, false, LAYOUTS[seed / 2 % 2]);
        rig_shape(&rig, 2, 8, seed % 5 == 4 ? 60 : 64, SPEC_DTYPE_F16); /* 2.2 MiB a layer */
        rig_open(&rig);
        store_laid(&rig, &prompt, seed);
        struct spec_lookup_result result = rig_lookup(&rig, &prompt);
        assert_int_equal(result.matched_tokens, LARGE_ROWS);
        for (uint32_t layer = 0; layer < 2; layer++)
            for (uint64_t way = 0; way < 3; way++)
                assert_int_equal(load_laid(&rig, result.request, &prompt, layer, seed * 5 + way),
                                 SPEC_OK);
        rig_release(&rig, result.request);
        rig_end(&rig, &prompt);
    }
}

/* A bit of a row that is verified on its way: the load fails, and what is found later is right. */
static void a_bad_row_of_a_large_load_is_found(void **state)
{
    (void)state;
    struct prompt prompt = rig_prompt(3, 0, 0, LARGE_ROWS);
    for (uint32_t i = 0; i < 2; i++)
        for (uint64_t row = 0; row < 3; row++) { /* of which two are wanted */
            struct rig rig;
            rig_begin_shape(&rig, false, LAYOUTS[i], 2, 8, 64, SPEC_DTYPE_F16);
            assert_int_equal(rig_fill(&rig, &prompt), SPEC_OK);
            flip_at(&rig, 2000000 + row * 2 * rig_part_bytes(&rig)); /* layer 0 */
            struct spec_lookup_result result = rig_lookup(&rig, &prompt);
            assert_int_equal(load_laid(&rig, result.request, &prompt, 0, 2), SPEC_E_CORRUPT);
            rig_release(&rig, result.request);
            result = rig_lookup(&rig, &prompt);
            assert_true(result.matched_tokens > 0 && result.matched_tokens < LARGE_ROWS);
            assert_int_equal(rig_load(&rig, result.request, &prompt, 0, result.matched_tokens, 0),
                             SPEC_OK);
            rig_release(&rig, result.request);
            rig_done(&rig);
        }
    rig_prompt_free(&prompt);
}

static spec_status lookup_with_key(struct rig *rig, const struct prompt *prompt, const char *value,
                                   uint64_t first_token, struct spec_lookup_result *ret_result)
{
    struct spec_extra_key key = {.struct_size = sizeof(key),
                                 .kind = 1,
                                 .first_token = first_token,
                                 .token_count = 4,
                                 .value = {value, strlen(value)}};
    struct spec_lookup_params params = {.struct_size = sizeof(params),
                                        .tokens = prompt->tokens,
                                        .token_count = prompt->count,
                                        .max_tokens = prompt->count,
                                        .extra_keys = &key,
                                        .extra_key_count = value[0] != 0};
    *ret_result = (struct spec_lookup_result){.struct_size = sizeof(*ret_result)};
    return sc_plugin_lookup(rig->conn, &params, ret_result, NULL);
}

/* An image at token 70: rows before it are shared, from it on they are its own, also later. */
static void extra_keys_part_where_they_begin(void **state)
{
    (void)state;
    struct rig rig;
    rig_begin(&rig, true, "\"chunk_tokens\": 16");
    struct prompt prompt = rig_prompt(2, 0, 0, 120), image = rig_prompt(2, 0, 0, 120);
    for (uint64_t p = 70; p < image.count; p++)
        image.history[p] = rig_mix(image.history[p] ^ 99); /* its rows are others */
    assert_int_equal(rig_fill(&rig, &prompt), SPEC_OK);
    struct spec_lookup_result result;
    assert_int_equal(lookup_with_key(&rig, &prompt, "cat", 70, &result), SPEC_OK);
    assert_int_equal(result.matched_tokens, 70);
    assert_int_equal(rig_wait(&rig, rig_store(&rig, result.request, &image, 70, 50)), SPEC_OK);
    rig_release(&rig, result.request);
    for (uint32_t round = 0; round < 2; round++) {
        static const char *const KEYS[] = {"", "cat", "dog"};
        static const uint64_t MATCHED[] = {120, 120, 70};
        for (uint32_t i = 0; i < 3; i++) {
            assert_int_equal(lookup_with_key(&rig, &prompt, KEYS[i], 70, &result), SPEC_OK);
            assert_int_equal(result.matched_tokens, MATCHED[i]);
            for (uint32_t layer = 0; layer < rig.layers; layer++)
                assert_int_equal(rig_load(&rig, result.request, i == 1 ? &image : &prompt, 0,
                                          result.matched_tokens, layer),
                                 SPEC_OK);
            rig_release(&rig, result.request);
        }
        assert_int_equal(lookup_with_key(&rig, &prompt, "cat", 71, &result), SPEC_OK);
        assert_int_equal(result.matched_tokens, 71); /* the key begins later: another prompt */
        rig_release(&rig, result.request);
        rig_reopen(&rig);
    }
    rig_end(&rig, &prompt, &image);
}

/* Any order of layers, any of them twice, in one call or in several, with and without a start. */
static void layers_come_in_any_order_and_again(void **state)
{
    (void)state;
    struct prompt prompt = rig_prompt(3, 0, 0, 500), other = rig_prompt(4, 0, 0, 77);
    struct rig rig;
    rig_begin_shape(&rig, true, "", 5, 2, 8, SPEC_DTYPE_F32);
    assert_int_equal(rig_fill(&rig, &prompt), SPEC_OK);
    assert_int_equal(rig_fill(&rig, &other), SPEC_OK);
    spec_request requests[2] = {rig_lookup(&rig, &prompt).request,
                                rig_lookup(&rig, &other).request};
    uint64_t random = 1;
    for (uint32_t round = 0; round < 300; round++) {
        struct spec_important items[6];
        struct area areas[6];
        random = rig_mix(random);
        uint64_t count = 1 + random % 6;
        if (random >> 10 & 1)
            assert_int_equal(
                sc_plugin_begin_layer(rig.conn, requests, 2, (uint32_t)(random >> 20) % 5, NULL),
                SPEC_OK);
        if (random >> 11 & 1)
            assert_int_equal(sc_plugin_prefetch_next(rig.conn, requests[random >> 12 & 1],
                                                     (uint32_t)(random >> 24) % 5, NULL, NULL),
                             SPEC_OK);
        for (uint64_t i = 0; i < count; i++) {
            random = rig_mix(random);
            areas[i] = rig_area(&rig, 501);
            items[i] = (struct spec_important){.struct_size = sizeof(items[i]),
                                               .request = requests[random & 1],
                                               .layer = (uint32_t)(random >> 8) % 5,
                                               .destination = &areas[i].memory};
        }
        assert_int_equal(sc_plugin_get_important(rig.conn, items, count, NULL), SPEC_OK);
        for (uint64_t i = 0; i < count; i++) {
            const struct prompt *mine = items[i].request == requests[0] ? &prompt : &other;
            assert_int_equal(items[i].row_count, mine->count);
            assert_true(rig_area_is_right(&rig, &areas[i], mine, 0, mine->count, items[i].layer));
            rig_area_free(&areas[i]);
        }
    }
    rig_release(&rig, requests[0]);
    rig_release(&rig, requests[1]);
    rig_end(&rig, &prompt, &other);
}

/* A negative slot is skipped; slots elsewhere get their rows; positions ascend from from_token. */
static void negative_slots_are_skipped(void **state)
{
    (void)state;
    struct prompt prompt = rig_prompt(5, 0, 0, 90);
    struct rig rig;
    open_filled(&rig, true, "", &prompt);
    struct spec_lookup_result result = rig_lookup_from(&rig, &prompt, 10);
    struct area area = rig_area(&rig, 80);
    int64_t slots[80];
    uint32_t positions[80];
    for (int64_t j = 0; j < 80; j++)
        slots[j] = j % 3 == 0 ? -1 - j : 79 - j; /* the others backwards */
    area.memory.slots = slots;
    area.memory.slot_count = 80;
    struct spec_important item = {.struct_size = sizeof(item),
                                  .request = result.request,
                                  .layer = 2,
                                  .destination = &area.memory,
                                  .positions = positions,
                                  .position_capacity = 79};
    assert_int_equal(sc_plugin_get_important(rig.conn, &item, 1, NULL), SPEC_E_INVALID);
    item.position_capacity = 80;
    assert_int_equal(sc_plugin_get_important(rig.conn, &item, 1, NULL), SPEC_OK);
    uint8_t row[64];
    uint64_t part_bytes = rig_part_bytes(&rig);
    assert_true(part_bytes <= sizeof(row));
    for (uint64_t j = 0; j < 80; j++) {
        assert_int_equal(positions[j], 10 + j);
        for (uint32_t part = 0; part < 2; part++) {
            const uint8_t *base = part == 0 ? area.memory.k_base : area.memory.v_base;
            rig_row(&rig, &prompt, 10 + j, 2, part, row);
            if (j % 3 == 0)
                assert_true(rig_is_poison(base + (79 - j) * part_bytes, part_bytes));
            else
                assert_memory_equal(base + (79 - j) * part_bytes, row, part_bytes);
        }
    }
    rig_area_free(&area);
    rig_release(&rig, result.request);
    rig_end(&rig, &prompt);
}

/* Items of a host that is older (shorter) and newer (longer): walked by the first one's size,
 * results written as far as each reaches; one of another size is refused before anything is read
 * behind it. */
static void items_are_walked_by_their_size(void **state)
{
    (void)state;
    struct prompt prompt = rig_prompt(5, 0, 0, 90);
    struct rig rig;
    open_filled(&rig, true, "", &prompt);
    spec_request request = rig_lookup(&rig, &prompt).request;
    static const uint32_t SIZES[] = {offsetof(struct spec_important, next_position),
                                     sizeof(struct spec_important),
                                     sizeof(struct spec_important) + 24};
    for (uint32_t s = 0; s < 3; s++) {
        struct area areas[3];
        uint8_t *host = calloc(3, SIZES[s]);
        assert_non_null(host);
        for (uint32_t i = 0; i < 3; i++) {
            areas[i] = rig_area(&rig, 90);
            struct spec_important item = {.struct_size = SIZES[s],
                                          .request = request,
                                          .layer = i,
                                          .destination = &areas[i].memory};
            memcpy(host + i * SIZES[s], &item, SIZES[s] < sizeof(item) ? SIZES[s] : sizeof(item));
        }
        struct spec_important *items = (struct spec_important *)(void *)host;
        uint32_t other = SIZES[s] + 8;
        memcpy(host + 2 * SIZES[s], &other, sizeof(other));
        assert_int_equal(sc_plugin_get_important(rig.conn, items, 3, NULL), SPEC_E_INVALID);
        memcpy(host + 2 * SIZES[s], &SIZES[s], sizeof(other));
        assert_int_equal(sc_plugin_get_important(rig.conn, items, 3, NULL), SPEC_OK);
        for (uint32_t i = 0; i < 3; i++) {
            uint64_t row_count;
            memcpy(&row_count, host + i * SIZES[s] + offsetof(struct spec_important, row_count),
                   sizeof(row_count));
            assert_int_equal(row_count, 90);
            assert_true(rig_area_is_right(&rig, &areas[i], &prompt, 0, 90, i));
            rig_area_free(&areas[i]);
        }
        free(host);
    }
    rig_release(&rig, request);
    rig_end(&rig, &prompt);
}

/* A device of one second an operation: an earlier deadline is a timeout, and the rows come later.
 */
static void a_deadline_leaves_the_request_usable(void **state)
{
    (void)state;
    struct prompt prompt = rig_prompt(6, 0, 0, 200);
    struct rig rig;
    open_filled(&rig, true, "\"sim\": {\"op_ns\": 1000000000}", &prompt);
    struct spec_lookup_result result = rig_lookup(&rig, &prompt);
    struct area area = rig_area(&rig, 200);
    struct spec_important item = {.struct_size = sizeof(item),
                                  .request = result.request,
                                  .destination = &area.memory,
                                  .deadline_ns = 1000000};
    for (uint32_t layer = 0; layer < rig.layers; layer++) {
        item.layer = layer;
        uint64_t before_ns = sc_exec_now_ns(rig.conn->exec);
        assert_int_equal(sc_plugin_get_important(rig.conn, &item, 1, NULL), SPEC_E_TIMEOUT);
        assert_int_equal(item.status, SPEC_E_TIMEOUT);
        assert_int_equal(item.row_count, 0);
        assert_int_equal(sc_exec_now_ns(rig.conn->exec) - before_ns, 1000000);
        assert_int_equal(rig_load(&rig, result.request, &prompt, 0, 200, layer), SPEC_OK);
    }
    item.deadline_ns = UINT64_MAX;
    assert_int_equal(sc_plugin_get_important(rig.conn, &item, 1, NULL), SPEC_OK);
    rig_area_free(&area);
    rig_release(&rig, result.request);
    rig_end(&rig, &prompt);
}

/* ---- Failures ------------------------------------------------------------------------------- */

static void fail_read(struct rig *rig, uint64_t n)
{
    sc_fault_arm(&rig->conn->fault, SC_FAULT_READ, n);
}

static void fail_one(struct rig *rig, spec_request request, uint64_t rows,
                     struct spec_important *ret_item)
{
    struct area area = rig_area(rig, rows);
    *ret_item = (struct spec_important){
        .struct_size = sizeof(*ret_item), .request = request, .destination = &area.memory};
    spec_status status = sc_plugin_get_important(rig->conn, ret_item, 1, NULL);
    assert_int_equal(status, ret_item->status);
    rig_area_free(&area);
}

/* A read fails: the match is void at every layer, later lookups do not find it, requests beside it
 * that need it are told too, requests that do not are served; stored anew it is found again. */
static void a_failed_range_is_void_until_stored_anew(void **state)
{
    (void)state;
    struct prompt whole = rig_prompt(7, 0, 0, 96), start = {32, whole.tokens, whole.history};
    struct prompt apart = rig_prompt(8, 0, 0, 96);
    for (uint32_t way = 0; way < 4; way++) { /* whose pin is the last; which extent fails */
        struct rig rig;
        rig_begin(&rig, true, "\"chunk_tokens\": 16");
        assert_int_equal(rig_fill(&rig, &start), SPEC_OK);
        assert_int_equal(rig_fill(&rig, &whole), SPEC_OK); /* another extent, from 32 on */
        assert_int_equal(rig_fill(&rig, &apart), SPEC_OK);
        struct sc_store_stats store = rig_store_stats(&rig);
        assert_int_equal(store.piece_count, 12);
        spec_request failing = rig_lookup(&rig, &whole).request;
        spec_request beside = rig_lookup(&rig, &whole).request;
        spec_request before = rig_lookup(&rig, &start).request;
        spec_request other = rig_lookup(&rig, &apart).request;
        struct spec_important item;
        fail_read(&rig, way / 2);
        fail_one(&rig, failing, 96, &item);
        assert_int_equal(item.status, SPEC_E_IO);
        uint64_t failed = item.failed_position;
        assert_int_equal(failed, way / 2 == 0 ? 0 : 32);
        item.layer = 2;
        fail_one(&rig, failing, 96, &item);
        assert_int_equal(item.status, SPEC_E_IO); /* at every layer */
        assert_int_equal(item.failed_position, failed);
        rig_background(&rig);
        fail_one(&rig, beside, 96, &item);
        assert_true(item.status == SPEC_E_IO || item.status == SPEC_E_CORRUPT);
        assert_int_equal(item.failed_position, failed);
        assert_int_equal(rig_load(&rig, other, &apart, 0, 96, 0), SPEC_OK);
        if (failed == 32)
            assert_int_equal(rig_load(&rig, before, &start, 0, 32, 0), SPEC_OK);
        spec_status status;
        assert_int_equal(rig_read(&rig, &whole, &status), failed);
        rig_release(&rig, way % 2 == 0 ? failing : beside);
        rig_release(&rig, before);
        rig_release(&rig, way % 2 == 0 ? beside : failing);
        rig_release(&rig, other);
        rig_background(&rig);
        sc_store_stats(rig.conn->store, &store); /* all that lay below went with the last pin */
        assert_int_equal(store.piece_count, 6 + failed / 16);
        struct sc_radix_stats radix;
        sc_radix_stats(rig.conn->radix, &radix);
        assert_int_equal(radix.hidden, 0);
        assert_int_equal(rig_fill(&rig, &whole), SPEC_OK);
        assert_int_equal(rig_read(&rig, &whole, NULL), 96);
        rig_reopen(&rig);
        assert_int_equal(rig_read(&rig, &whole, NULL), 96);
        assert_int_equal(rig_read(&rig, &apart, NULL), 96);
        rig_done(&rig);
    }
    rig_prompts_free(&whole, &apart);
}

/* The process dies when a failed piece is in the log and what hangs on it is still pinned: the next
 * open finds nothing of it, and its space comes back. */
static void what_hung_on_a_failed_piece_goes_with_a_crash(void **state)
{
    (void)state;
    struct prompt whole = rig_prompt(7, 0, 0, 96), start = {32, whole.tokens, whole.history};
    struct rig rig;
    open_filled(&rig, true, "\"chunk_tokens\": 16, \"lease_ns_max\": 0", &start);
    struct sc_store_stats before, after;
    sc_store_stats(rig.conn->store, &before);
    assert_int_equal(rig_fill(&rig, &whole), SPEC_OK);
    spec_request request = rig_lookup(&rig, &whole).request;
    struct spec_important item;
    fail_read(&rig, 1);
    fail_one(&rig, request, 96, &item);
    assert_int_equal(item.failed_position, 32);
    rig_background(&rig); /* the log is told of the piece, not of what lies below */
    struct sc_io_sim_disk *disk = NULL;
    assert_int_equal(sc_io_sim_disk_copy(rig.disk, &disk, NULL), SPEC_OK);
    rig_release(&rig, request);
    rig_close(&rig);
    sc_io_sim_disk_close(rig.disk);
    rig.disk = disk;
    rig_open(&rig);
    rig_background(&rig);
    assert_int_equal(rig_read(&rig, &whole, NULL), 32);
    sc_store_stats(rig.conn->store, &after);
    assert_int_equal(after.piece_count, before.piece_count);
    assert_int_equal(after.extent_bytes, before.extent_bytes);
    rig_reopen(&rig);
    assert_int_equal(rig_read(&rig, &whole, NULL), 32);
    rig_end(&rig, &whole);
}

/* The prefix fails at layer 1 of a pass: the pass was computed on rows that never came, so nothing
 * of it is stored, however the engine goes on. */
static void a_pass_on_a_void_match_is_not_stored(void **state)
{
    (void)state;
    struct prompt prompt = rig_prompt(9, 0, 0, 100), start = {50, prompt.tokens, prompt.history};
    struct rig rig;
    open_filled(&rig, true, "\"chunk_tokens\": 16", &start);
    spec_request request = rig_lookup(&rig, &prompt).request;
    spec_ticket ticket;
    struct spec_important item;
    assert_int_equal(rig_load(&rig, request, &prompt, 0, 50, 0), SPEC_OK);
    assert_int_equal(rig_store_layer(&rig, request, &prompt, 50, 50, 0, &ticket), SPEC_OK);
    assert_int_equal(rig_wait(&rig, ticket), SPEC_OK);
    fail_read(&rig, 0);
    fail_one(&rig, request, 50, &item);
    assert_int_equal(item.status, SPEC_E_IO);
    for (uint32_t layer = 1; layer < rig.layers; layer++) {
        assert_int_equal(rig_store_layer(&rig, request, &prompt, 50, 50, layer, &ticket), SPEC_OK);
    }
    assert_int_equal(rig_wait(&rig, ticket), SPEC_E_DROPPED);
    assert_int_equal(rig_wait(&rig, rig_store(&rig, request, &prompt, 50, 50)), SPEC_E_DROPPED);
    assert_int_equal(rig_wait(&rig, rig_store(&rig, request, &prompt, 0, 100)), SPEC_E_DROPPED);
    rig_release(&rig, request);
    assert_int_equal(rig_read(&rig, &prompt, NULL), 0);
    assert_int_equal(rig_fill(&rig, &prompt), SPEC_OK);
    assert_int_equal(rig_read(&rig, &prompt, NULL), 100);
    rig_end(&rig, &prompt);
}

/* ---- Memory and threads --------------------------------------------------------------------- */

/* After open, calls allocate nothing. The index and the log's tables grow in slabs when a save is
 * committed, by the executor: with the loop, inside the wait, which is not sealed here. */
static void calls_allocate_nothing(void **state)
{
    (void)state;
    struct rig rig;
    rig_begin(&rig, true, "");
    struct sc_alloc *alloc = &rig.conn->alloc;
    for (uint64_t i = 0; i < 20; i++) {
        struct prompt prompt = rig_prompt(1, 90 + i, i, 200 + i);
        sc_alloc_seal(alloc);
        struct spec_lookup_result result = rig_lookup(&rig, &prompt);
        uint64_t matched = result.matched_tokens;
        for (uint32_t layer = 0; layer < rig.layers; layer++) {
            assert_int_equal(sc_plugin_begin_layer(rig.conn, &result.request, 1, layer, NULL),
                             SPEC_OK);
            assert_int_equal(rig_load(&rig, result.request, &prompt, 0, matched, layer), SPEC_OK);
            assert_int_equal(sc_plugin_prefetch_next(rig.conn, result.request, layer, NULL, NULL),
                             SPEC_OK);
        }
        spec_ticket ticket =
            rig_store(&rig, result.request, &prompt, matched, prompt.count - matched);
        rig_release(&rig, result.request);
        sc_alloc_unseal(alloc);
        assert_int_equal(rig_wait(&rig, ticket), SPEC_OK);
        sc_alloc_seal(alloc);
        assert_int_equal(rig_read(&rig, &prompt, NULL), prompt.count);
        sc_alloc_unseal(alloc);
        rig_prompt_free(&prompt);
    }
    assert_int_equal(atomic_load(&alloc->sealed_refusals), 0);
    rig_done(&rig);
}

struct worker {
    struct rig *rig;
    uint64_t number, stored;
};

/* Lookups, loads, stores, aborts and releases on prompts that all workers share. Rounds that found
 * all requests or frames taken did nothing: there are more of them until the worker has stored. */
static void *work(void *user)
{
    struct worker *worker = user;
    struct rig *rig = worker->rig;
    uint64_t random = worker->number + 1;
    for (uint32_t round = 0; round < 60 || worker->stored == 0; round++) {
        random = rig_mix(random);
        struct prompt prompt = rig_prompt(1, random % 200, random >> 32 & 7, 220);
        struct spec_lookup_result result = {.struct_size = sizeof(result)};
        if (rig_try_lookup(rig, &prompt, 0, RIG_MAX, &result) == SPEC_OK) {
            uint64_t matched = result.matched_tokens;
            for (uint32_t layer = 0; layer < rig->layers; layer++) {
                (void)sc_plugin_begin_layer(rig->conn, &result.request, 1, layer, NULL);
                assert_int_equal(rig_load(rig, result.request, &prompt, 0, matched, layer),
                                 SPEC_OK);
            }
            if (matched < prompt.count && (random >> 40) % 4 != 0) {
                spec_ticket ticket =
                    rig_store(rig, result.request, &prompt, matched, prompt.count - matched);
                if (random >> 44 & 1) /* else released while it is written */
                    worker->stored += rig_wait(rig, ticket) == SPEC_OK;
                else
                    sc_plugin_ticket_forget(rig->conn, ticket);
            } else if (matched < prompt.count) {
                spec_ticket ticket;
                assert_int_equal(rig_store_layer(rig, result.request, &prompt, matched,
                                                 prompt.count - matched, 0, &ticket),
                                 SPEC_OK);
                (void)rig_wait(rig, ticket);
                if (random >> 45 & 1)
                    assert_int_equal(sc_plugin_store_abort(rig->conn, result.request, 0, NULL),
                                     SPEC_OK);
            }
            rig_release(rig, result.request);
        }
        rig_prompt_free(&prompt);
    }
    return NULL;
}

static struct threads workers_start(struct rig *rig, struct worker *workers, uint64_t count,
                                    void *(*run)(void *user))
{
    for (uint64_t i = 0; i < count; i++)
        workers[i] = (struct worker){.rig = rig, .number = i};
    return threads_begin(run, workers, sizeof(workers[0]), count);
}

/* Some of what they stored is there, and nothing of theirs is open any more. */
static void workers_end(struct rig *rig, const struct worker *workers,
                        const struct threads *threads)
{
    uint64_t stored = 0;
    threads_join(threads);
    for (uint64_t i = 0; i < threads->count; i++)
        stored += workers[i].stored;
    assert_true(stored > 0);
    rig_settle(rig);
    assert_int_equal(atomic_load(&rig->conn->stats.tickets_open), 0);
    assert_int_equal(atomic_load(&rig->conn->stats.requests_open), 0);
    rig_check_index(rig);
}

static void eight_threads_at_once(void **state)
{
    (void)state;
    struct rig rig;
    rig_begin(&rig, false, "\"chunk_tokens\": 16, \"max_requests\": 16");
    struct worker workers[8];
    const struct threads threads = workers_start(&rig, workers, 8, work);
    workers_end(&rig, workers, &threads);
    struct sc_store_stats store = rig_store_stats(&rig);
    rig_reopen(&rig);
    struct sc_store_stats again = rig_store_stats(&rig);
    assert_int_equal(again.piece_count, store.piece_count);
    for (uint64_t i = 0; i < 8; i++) {
        struct prompt prompt = rig_prompt(1, i * 25, i, 220);
        assert_true(rig_read(&rig, &prompt, NULL) <= 220);
        rig_prompt_free(&prompt);
    }
    rig_done(&rig);
}

/* ---- Calls for several requests -------------------------------------------------------------- */

#define TOGETHER    4u /* requests of a call */
#define TOGETHER_AT 48u

/* What is there is right; whether all of it is, and no reset came. */
static bool reads_whole(struct rig *rig, const struct prompt *prompt)
{
    struct spec_lookup_result result = rig_lookup(rig, prompt);
    spec_status status = SPEC_OK;
    for (uint32_t layer = 0; layer < rig->layers && status == SPEC_OK; layer++) {
        struct area area = rig_area(rig, result.matched_tokens + 1);
        struct spec_important item = rig_item(result.request, layer, &area.memory);
        status = sc_plugin_get_important(rig->conn, &item, 1, NULL);
        assert_true(status == SPEC_OK || status == SPEC_E_STALE);
        if (status == SPEC_OK)
            assert_true(rig_area_is_right(rig, &area, prompt, 0, result.matched_tokens, layer));
        rig_area_free(&area);
    }
    rig_release(rig, result.request);
    return status == SPEC_OK && result.matched_tokens == prompt->count;
}

/* Stores the layers of four passes, of prompts that no other worker has, a call a layer. A reset
 * may come at any moment: then the call is STALE, and what is found later is right. */
static void *store_together(void *user)
{
    struct worker *worker = user;
    struct rig *rig = worker->rig;
    for (uint32_t round = 0; round < 25; round++) {
        struct prompt prompts[TOGETHER];
        struct area areas[TOGETHER];
        struct spec_store_params params[TOGETHER];
        spec_ticket tickets[TOGETHER] = {0};
        for (uint64_t i = 0; i < TOGETHER; i++) {
            prompts[i] =
                rig_prompt(1000 * worker->number + TOGETHER * round + i, 0, 0, TOGETHER_AT + i);
            areas[i] = rig_area(rig, prompts[i].count);
            params[i] = (struct spec_store_params){.struct_size = sizeof(params[i]),
                                                   .request = rig_lookup(rig, &prompts[i]).request,
                                                   .token_count = prompts[i].count,
                                                   .memory = &areas[i].memory};
        }
        spec_status status = SPEC_OK;
        for (uint32_t layer = 0; layer < rig->layers && status == SPEC_OK; layer++) {
            for (uint64_t i = 0; i < TOGETHER; i++) {
                params[i].layer = layer;
                for (uint64_t j = 0; j < prompts[i].count; j++)
                    for (uint32_t part = 0; part < 2; part++)
                        rig_row(
                            rig, &prompts[i], j, layer, part,
                            (uint8_t *)(part ? areas[i].memory.v_base : areas[i].memory.k_base) +
                                j * rig_part_bytes(rig));
            }
            status = sc_plugin_store(rig->conn, params, TOGETHER,
                                     worker->number % 2 == 0 ? tickets : NULL, NULL);
            assert_true(status == SPEC_OK || status == SPEC_E_STALE);
        }
        for (uint64_t i = 0; i < TOGETHER; i++) {
            rig_release(rig, params[i].request);
            (void)rig_wait(rig, tickets[i]);
            worker->stored += reads_whole(rig, &prompts[i]);
            rig_area_free(&areas[i]);
            rig_prompt_free(&prompts[i]);
        }
    }
    return NULL;
}

static void *reset_again_and_again(void *user)
{
    struct worker *worker = user;
    for (uint32_t i = 0; i < 20; i++) {
        assert_int_equal(sc_plugin_reset(worker->rig->conn, NULL), SPEC_OK);
        for (uint32_t wait = 0; wait < 50; wait++)
            (void)sched_yield();
    }
    return NULL;
}

static void calls_for_several_requests_beside_resets(void **state)
{
    (void)state;
    struct rig rig;
    rig_begin(&rig, false, "\"chunk_tokens\": 16, \"max_requests\": 256");
    struct worker workers[4], resetter = {.rig = &rig};
    const struct threads threads = workers_start(&rig, workers, 4, store_together);
    threads_run(reset_again_and_again, &resetter, 0, 1);
    workers_end(&rig, workers, &threads);
    rig_done(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matches_are_cut_as_asked),
        cmocka_unit_test(prompts_that_part_anywhere_share_what_they_share),
        cmocka_unit_test(extra_keys_part_where_they_begin),
        cmocka_unit_test(layers_come_in_any_order_and_again),
        cmocka_unit_test(negative_slots_are_skipped),
        cmocka_unit_test(large_rows_come_and_go_in_every_layout),
        cmocka_unit_test(a_bad_row_of_a_large_load_is_found),
        cmocka_unit_test(items_are_walked_by_their_size),
        cmocka_unit_test(a_deadline_leaves_the_request_usable),
        cmocka_unit_test(a_failed_range_is_void_until_stored_anew),
        cmocka_unit_test(what_hung_on_a_failed_piece_goes_with_a_crash),
        cmocka_unit_test(a_pass_on_a_void_match_is_not_stored),
        cmocka_unit_test(calls_allocate_nothing),
        cmocka_unit_test(eight_threads_at_once),
        cmocka_unit_test(calls_for_several_requests_beside_resets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

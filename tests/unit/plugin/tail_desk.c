/* Holds, Threads: tests/unit/plugin/tail_desk.h. */
#include "tests/unit/plugin/tail_desk.h"
#include "kernels/codec.h"
#include "kernels/kernels.h"
#include "plugin/load/bidirectional.h"

void tail_desk_look(struct tail_desk *desk, struct rig *rig, const struct prompt *prompt,
                    uint64_t from_token, uint64_t max_tokens)
{
    const struct spec_lookup_params params = rig_lookup_params(prompt, from_token, max_tokens, 0);
    struct spec_lookup_result found = rig_lookup_as(rig, &params);
    *desk = (struct tail_desk){.rig = rig,
                               .prompt = prompt,
                               .request = found.request,
                               .from = from_token,
                               .rows = found.matched_tokens - from_token};
    for (uint32_t i = 0; i < rig->layers; i++) {
        desk->areas[i] = rig_area(rig, desk->rows);
        desk->bases[i][0] = desk->areas[i].memory.k_base;
        desk->bases[i][1] = desk->areas[i].memory.v_base;
        desk->items[i] = (struct spec_important){.struct_size = sizeof(desk->items[i]),
                                                 .flags = SPEC_ITEM_BIDIRECTIONAL,
                                                 .request = found.request,
                                                 .layer = i,
                                                 .destination = &desk->areas[i].memory};
    }
}

void tail_desk_dress(struct tail_desk *desk, uint64_t skipped)
{
    desk->slots = malloc((desk->rows + 1) * sizeof(*desk->slots));
    assert_non_null(desk->slots);
    for (uint64_t row = 0; row < desk->rows; row++)
        desk->slots[row] = skipped > 0 && row % skipped == 0 ? -1 : (int64_t)(desk->rows - 1 - row);
    for (uint32_t i = 0; i < desk->rig->layers; i++) {
        struct spec_memory *memory = &desk->areas[i].memory;
        memory->slots = desk->slots;
        memory->slot_count = desk->rows;
        memory->block_tokens = 16;
        memory->block_stride_bytes = 16 * memory->token_stride_bytes;
    }
}

void tail_desk_leave(struct tail_desk *desk)
{
    free(desk->slots);
    for (uint32_t i = 0; i < desk->rig->layers; i++)
        rig_area_free(&desk->areas[i]);
    if (desk->request != 0)
        rig_release(desk->rig, desk->request);
}

spec_status tail_desk_submit(struct tail_desk *desk)
{
    return sc_plugin_submit(desk->rig->conn, desk->items, desk->rig->layers, &desk->ticket, NULL);
}

spec_status tail_desk_wait(struct tail_desk *desk, uint64_t timeout_ns)
{
    return sc_plugin_submit_wait(desk->rig->conn, desk->ticket, timeout_ns, NULL);
}

/* What row i of the match is: stored, or as it is "computed" here. */
static void row_is(const struct tail_desk *desk, uint32_t layer, uint32_t part, uint64_t row,
                   bool is_computed, uint8_t *ret_bytes)
{
    rig_row(desk->rig, desk->prompt, desk->from + row, layer, part, ret_bytes);
    for (uint64_t i = 0; is_computed && i < rig_part_bytes(desk->rig); i++)
        ret_bytes[i] = (uint8_t)~ret_bytes[i];
}

/* Where it stands; NULL: nowhere. */
static uint8_t *row_at(const struct tail_desk *desk, uint32_t layer, uint32_t part, uint64_t row)
{
    int64_t slot = desk->slots != NULL ? desk->slots[row] : (int64_t)row;
    return slot < 0 ? NULL : desk->bases[layer][part] + (uint64_t)slot * rig_part_bytes(desk->rig);
}

bool tail_desk_next(struct tail_desk *desk, uint64_t budget, spec_status *ret_status)
{
    struct spec_next_chunk chunk = {
        .struct_size = sizeof(chunk), .request = desk->request, .budget_tokens = budget};
    spec_status status = sc_plugin_next_chunk(desk->rig->conn, &chunk, NULL);
    if (ret_status != NULL)
        *ret_status = status;
    else
        assert_int_equal(status, SPEC_OK);
    if (status != SPEC_OK)
        return false;
    assert_int_equal(chunk.first_token, desk->from + desk->front);
    assert_int_equal(chunk.state, chunk.token_count > 0 ? SPEC_CHUNK_COMPUTE : SPEC_CHUNK_MET);
    assert_true(chunk.token_count <= budget && chunk.token_count <= desk->rows - desk->front);
    for (uint64_t row = desk->front; row < desk->front + chunk.token_count; row++)
        for (uint32_t i = 0; i < 2 * desk->rig->layers; i++) {
            uint8_t *at = row_at(desk, i / 2, i % 2, row);
            if (at != NULL)
                row_is(desk, i / 2, i % 2, row, true, at);
            if (at != NULL && desk->put != NULL)
                desk->put(desk, i / 2, at);
        }
    desk->front += chunk.token_count;
    return chunk.token_count > 0;
}

/* The quantised rows of a chunk in a layer's K or V, made by ref/. */
struct slab {
    struct sc_kernels_codec code;
    uint64_t first, row_count; /* row_count 0: none yet */
    uint8_t *rows, *scales, *codes;
};

static uint32_t kernel_dtype(const struct tail_desk *desk)
{
    return desk->rig->dtype == SPEC_DTYPE_F32   ? SC_KERNELS_F32
           : desk->rig->dtype == SPEC_DTYPE_F16 ? SC_KERNELS_F16
                                                : SC_KERNELS_BF16;
}

static struct slab slab_of(const struct tail_desk *desk, uint32_t part)
{
    uint64_t chunk = desk->rig->conn->config.chunk_tokens;
    uint64_t channels = (uint64_t)desk->rig->heads * desk->rig->head_size;
    uint32_t bits = part == 0 ? desk->bits_k : desk->bits_v;
    struct slab slab = {.code = {channels, bits, kernel_dtype(desk)},
                        .rows = malloc(chunk * rig_part_bytes(desk->rig)),
                        .scales = malloc(sc_kernels_codec_scale_bytes(channels)),
                        .codes = malloc(chunk * sc_kernels_codec_row_bytes(channels, 8))};
    assert_true(slab.rows != NULL && slab.scales != NULL && slab.codes != NULL);
    return slab;
}

static void slab_free(struct slab *slab)
{
    free(slab->rows);
    free(slab->scales);
    free(slab->codes);
}

/* The values that the quantised row decodes to. */
static void row_decode(const struct tail_desk *desk, struct slab *slab, uint32_t layer,
                       uint32_t part, uint64_t row, uint8_t *ret_bytes)
{
    uint64_t chunk = desk->rig->conn->config.chunk_tokens, bytes = rig_part_bytes(desk->rig);
    uint64_t position = desk->from + row, first = position / chunk * chunk;
    const uint8_t *rows[256];
    uint8_t *dst[1] = {ret_bytes};
    assert_true(chunk <= 256);
    if (slab->row_count == 0 || slab->first != first) {
        uint64_t left = desk->prompt->count - first;
        slab->first = first;
        slab->row_count = left < chunk ? left : chunk;
        for (uint64_t i = 0; i < slab->row_count; i++) {
            rows[i] = slab->rows + i * bytes;
            rig_row(desk->rig, desk->prompt, first + i, layer, part, slab->rows + i * bytes);
        }
        assert_true(sc_kernels_ref_codec_encode(&slab->code, rows, slab->row_count, slab->scales,
                                                slab->codes));
    }
    uint64_t row_bytes = sc_kernels_codec_row_bytes(slab->code.channels, slab->code.bits);
    sc_kernels_ref_codec_decode(&(struct sc_kernels_codec_decode){
        &slab->code, slab->scales, slab->codes + (position - first) * row_bytes, 1, 0,
        slab->code.channels, dst, slab->code.dtype, false});
}

static void row_fail(const struct tail_desk *desk, uint32_t i, uint64_t row, uint64_t loaded)
{
    fail_msg("layer %u part %u row %lu of %lu, %s, front %lu, loaded %lu", i / 2, i % 2,
             (unsigned long)row, (unsigned long)desk->rows,
             row >= desk->rows - loaded ? "loaded" : "computed", (unsigned long)desk->front,
             (unsigned long)loaded);
}

/* Returns how many loaded rows of a layer's K or V stand as they were stored; rows without a place
 * count in *ret_nowhere. */
static uint64_t part_compare(const struct tail_desk *desk, uint32_t i, uint64_t loaded,
                             uint64_t *ret_nowhere)
{
    uint64_t part_bytes = rig_part_bytes(desk->rig), exact = 0;
    struct slab slab = slab_of(desk, i % 2);
    uint8_t *right = malloc(part_bytes);
    assert_non_null(right);
    *ret_nowhere = 0;
    for (uint64_t row = 0; row < desk->rows; row++) {
        bool is_loaded = row >= desk->rows - loaded;
        const uint8_t *at = row_at(desk, i / 2, i % 2, row);
        *ret_nowhere += is_loaded && at == NULL;
        if ((!is_loaded && row >= desk->front) || at == NULL)
            continue;
        row_is(desk, i / 2, i % 2, row, !is_loaded, right);
        bool is_right = memcmp(at, right, part_bytes) == 0;
        exact += is_loaded && is_right;
        if (!is_right && is_loaded && desk->bits_k != 0) {
            row_decode(desk, &slab, i / 2, i % 2, row, right);
            is_right = memcmp(at, right, part_bytes) == 0;
        }
        if (!is_right)
            row_fail(desk, i, row, loaded);
    }
    free(right);
    slab_free(&slab);
    return exact;
}

void tail_desk_compare(struct tail_desk *desk, uint64_t loaded)
{
    uint64_t part_bytes = rig_part_bytes(desk->rig);
    assert_true(loaded + desk->front <= desk->rows);
    for (uint32_t i = 0; i < 2 * desk->rig->layers; i++) {
        const uint8_t *base = desk->bases[i / 2][i % 2];
        uint64_t nowhere, told = desk->items[i / 2].exact_rows;
        uint64_t exact = part_compare(desk, i, loaded, &nowhere);
        if (desk->items[i / 2].row_count == loaded) /* as reported */
            assert_true(exact <= told && told <= exact + nowhere);
        assert_true(rig_is_poison(base - RIG_GUARD, RIG_GUARD));
        assert_true(rig_is_poison(base + desk->rows * part_bytes, RIG_GUARD));
    }
}

static void provenance_check(const struct tail_desk *desk, const struct spec_important *item)
{
    if (item->exact_rows == item->row_count)
        return;
    assert_int_equal(item->provenance.kind, SPEC_PROVENANCE_LOSSY);
    assert_int_equal(item->provenance.bits_k, desk->bits_k);
    assert_int_equal(item->provenance.bits_v, desk->bits_v);
    assert_int_equal(item->provenance.exact_ppm, item->exact_rows * 1000000 / item->row_count);
}

uint64_t tail_desk_check(struct tail_desk *desk)
{
    uint64_t loaded = desk->items[0].row_count;
    for (uint32_t i = 0; i < desk->rig->layers; i++) {
        const struct spec_important *item = &desk->items[i];
        uint64_t told = 0;
        for (uint32_t tier = 0; tier < SPEC_TIERS; tier++)
            told += item->tier_rows[tier];
        assert_int_equal(item->row_count, loaded);
        assert_true(item->exact_rows == loaded || (desk->bits_k != 0 && item->exact_rows < loaded));
        assert_int_equal(item->union_rows, loaded);
        assert_int_equal(item->status, desk->items[0].status);
        assert_int_equal(item->next_position, desk->from + desk->rows);
        assert_int_equal(told, loaded);
        provenance_check(desk, item);
    }
    tail_desk_compare(desk, loaded);
    return loaded;
}

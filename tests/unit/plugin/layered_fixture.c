/* Items of layered delivery and what they have to deliver; see layered_fixture.h. */
#include "tests/unit/plugin/layered_fixture.h"

void shot_make(struct shot *shot, const struct world *world, spec_request request, uint32_t layer,
               uint64_t from, uint32_t exact_ppm)
{
    *shot = (struct shot){.area = rig_area(&world->rig, world->matched - from),
                          .pass = world_pass(world, layer, world->rig.dtype)};
    shot->select = (struct spec_select){
        .struct_size = sizeof(shot->select), .given = SPEC_SELECT_EXACT, .exact_ppm = exact_ppm};
    shot->item = (struct spec_important){.struct_size = sizeof(shot->item),
                                         .request = request,
                                         .layer = layer,
                                         .queries = &shot->pass.q,
                                         .new_keys = &shot->pass.fresh.memory,
                                         .destination = &shot->area.memory,
                                         .positions = shot->positions,
                                         .position_capacity = ROWS_MAX,
                                         .exact_bits = shot->exact,
                                         .exact_bit_words = (ROWS_MAX + 63) / 64,
                                         .select = &shot->select};
}

void shot_free(struct shot *shot)
{
    rig_area_free(&shot->area);
    pass_free(&shot->pass);
}

void shot_release(struct shot *shot, struct world *world, spec_request request)
{
    shot_free(shot);
    rig_release(&world->rig, request);
}

void shot_end(struct shot *shot, struct world *world, spec_request request)
{
    shot_free(shot);
    world_leave(world, request);
}

spec_status fire(struct world *world, struct shot *shot)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    spec_status status = sc_plugin_get_important(world->rig.conn, &shot->item, 1, &error);
    assert_int_equal(error.code, status); /* of what is OK nothing is written [ABI-003] */
    return status;
}

void wait_for_quant(struct world *world)
{
    rig_wait_for_quant(&world->rig);
}

void world_open_quantised(struct world *world, const char *extra, uint32_t heads, uint32_t group,
                          uint32_t head_size, uint32_t dtype, uint64_t matched, int64_t agree)
{
    world_open(world, extra, heads, group, head_size, dtype, matched, agree);
    wait_for_quant(world);
}

spec_ticket fire_ahead(struct world *world, struct shot *shot, spec_request request, uint32_t layer,
                       uint32_t exact_ppm)
{
    shot_make(shot, world, request, layer, 0, exact_ppm);
    shot->item.flags = SPEC_ITEM_AHEAD;
    shot->item.queries = NULL;
    shot->item.new_keys = NULL;
    return rig_submit_whole(&world->rig, &shot->item, 1);
}

void reset_step(struct sc_task *task)
{
    struct resetter *resetter = (struct resetter *)(void *)task;
    assert_int_equal(sc_plugin_reset(resetter->rig->conn, NULL), SPEC_OK);
}

bool is_exact(const struct shot *shot, uint64_t row)
{
    return (shot->exact[row / 64] >> (row % 64) & 1) != 0;
}

uint64_t exact_count(const struct shot *shot)
{
    uint64_t count = 0;
    for (uint64_t w = 0; w < (ROWS_MAX + 63) / 64; w++)
        count += (uint64_t)__builtin_popcountll(shot->exact[w]);
    return count;
}

void stored_row(const struct world *world, uint64_t position, uint32_t layer, uint32_t part,
                uint8_t *ret_row)
{
    const uint64_t d = world->rig.head_size, element = sc_plugin_dtype_bytes(world->rig.dtype);
    for (uint64_t n = 0; n < world->rig.heads * d; n++)
        world_put(ret_row + n * element, world->rig.dtype,
                  world_kv(world, position, layer, part, n / d, n % d));
}

void slab_make(const struct world *world, uint64_t first, uint32_t layer, uint32_t part,
               uint32_t bits, struct slab *ret_slab)
{
    static uint8_t bytes[64][64 * 4];
    const uint8_t *rows[64];
    uint64_t left = world->matched - first;
    uint32_t dtype = world->rig.dtype == SPEC_DTYPE_F32   ? SC_KERNELS_F32
                     : world->rig.dtype == SPEC_DTYPE_F16 ? SC_KERNELS_F16
                                                          : SC_KERNELS_BF16;
    ret_slab->code =
        (struct sc_kernels_codec){(uint64_t)world->rig.heads * world->rig.head_size, bits, dtype};
    ret_slab->first = first;
    ret_slab->row_count = left < 64 ? left : 64;
    for (uint64_t i = 0; i < ret_slab->row_count; i++) {
        rows[i] = bytes[i];
        stored_row(world, first + i, layer, part, bytes[i]);
    }
    assert_true(sc_kernels_ref_codec_encode(&ret_slab->code, rows, ret_slab->row_count,
                                            ret_slab->scales, ret_slab->codes));
}

void decoded(const struct world *world, uint64_t position, uint32_t layer, uint32_t part,
             uint32_t bits, struct slab *slab, uint32_t dst_dtype, void *ret_row)
{
    uint8_t *dst[1] = {ret_row};
    if (slab->row_count == 0 || slab->first != position / 64 * 64)
        slab_make(world, position / 64 * 64, layer, part, bits, slab);
    assert_true(position - slab->first < slab->row_count);
    uint64_t row_bytes = sc_kernels_codec_row_bytes(slab->code.channels, bits);
    sc_kernels_ref_codec_decode(&(struct sc_kernels_codec_decode){
        &slab->code, slab->scales, slab->codes + (position - slab->first) * row_bytes, 1, 0,
        slab->code.channels, dst, dst_dtype == SPEC_DTYPE_F32 ? SC_KERNELS_F32 : slab->code.dtype,
        false});
}

void assert_rows(const struct world *world, const struct shot *shot, uint64_t from, uint32_t bits_k,
                 uint32_t bits_v)
{
    uint64_t rows = world->matched - from, bytes = rig_part_bytes(&world->rig);
    struct slab slabs[2] = {{.row_count = 0}, {.row_count = 0}};
    uint8_t expected[64 * 4];
    assert_int_equal(shot->item.row_count, rows);
    assert_int_equal(shot->item.next_position, world->matched);
    assert_int_equal(shot->item.exact_rows, exact_count(shot));
    for (uint64_t j = 0; j < rows; j++) {
        assert_int_equal(shot->positions[j], from + j);
        for (uint32_t part = 0; part < 2; part++) {
            const uint8_t *at = part == 0 ? shot->area.memory.k_base : shot->area.memory.v_base;
            if (!is_exact(shot, j))
                decoded(world, from + j, shot->item.layer, part, part == 0 ? bits_k : bits_v,
                        &slabs[part], world->rig.dtype, expected);
            else
                stored_row(world, from + j, shot->item.layer, part, expected);
            if (memcmp(at + j * bytes, expected, bytes) != 0)
                fail_msg("layer %u row %lu part %u (%s) is not what it should be", shot->item.layer,
                         j, part, is_exact(shot, j) ? "exact" : "coarse");
        }
    }
}

static float half_value(const uint8_t *at)
{
    bool is_normal = (at[1] & 0x7c) != 0;
    float value = (float)(((at[1] & 3) << 8 | at[0]) + (is_normal ? 1024 : 0));
    return ldexpf((at[1] & 0x80) != 0 ? -value : value, (is_normal ? at[1] >> 2 & 31 : 1) - 25);
}

#define CHANNELS_MAX 64u

/* Of the layer's K or V: rows as stored, and of each chunk what its values span. */
static void spans_make(const struct world *world, uint32_t layer, uint32_t part,
                       float (*ret_rows)[CHANNELS_MAX], float (*ret_spans)[CHANNELS_MAX])
{
    uint64_t channels = rig_part_bytes(&world->rig) / 2;
    float least[CHANNELS_MAX];
    uint8_t row[CHANNELS_MAX * 2];
    assert_true(channels <= CHANNELS_MAX);
    for (uint64_t i = 0; i < world->matched; i++) {
        stored_row(world, i, layer, part, row);
        for (uint64_t c = 0; c < channels; c++) {
            float value = half_value(row + 2 * c), *span = &ret_spans[i / 64][c];
            bool is_first = i % 64 == 0;
            float most = is_first ? value : fmaxf(least[c] + *span, value);
            least[c] = is_first ? value : fminf(least[c], value);
            *span = most - least[c]; /* exact: values are multiples of 1 / 64 */
            ret_rows[i][c] = value;
        }
    }
}

void assert_rows_near(const struct world *world, const struct shot *shot, uint64_t from)
{
    static float stored[ROWS_MAX][CHANNELS_MAX], spans[ROWS_MAX / 64 + 1][CHANNELS_MAX];
    uint64_t bytes = rig_part_bytes(&world->rig), channels = bytes / 2;
    assert_int_equal(shot->item.row_count, world->matched - from);
    assert_int_equal(shot->item.exact_rows, exact_count(shot));
    for (uint32_t part = 0; part < 2; part++) {
        const uint8_t *at = part == 0 ? shot->area.memory.k_base : shot->area.memory.v_base;
        spans_make(world, shot->item.layer, part, stored, spans);
        for (uint64_t n = 0; n < (world->matched - from) * channels; n++) {
            uint64_t j = n / channels, c = n % channels;
            float right = stored[from + j][c], span = spans[(from + j) / 64][c];
            const char *how = is_exact(shot, j) ? "exact" : "coarse";
            float most = span + ldexpf(fabsf(right), -9) + ldexpf(span, -10);
            float value = half_value(at + j * bytes + 2 * c);
            if (!(fabsf(value - right) <= (is_exact(shot, j) ? 0 : most)))
                fail_msg("layer %u row %lu part %u channel %lu (%s): %g, not %g", shot->item.layer,
                         j, part, c, how, (double)value, (double)right);
        }
    }
}

bool set_is_the_best_of(const struct world *world, const struct shot *shot, uint64_t from,
                        const float *keys, uint64_t stride)
{
    uint64_t rows = world->matched - from, d = world->rig.head_size, heads = world->rig.heads;
    static double total[ROWS_MAX], logits[ROWS_MAX + FRESH_ROWS];
    static bool in[ROWS_MAX];
    double gap = 1;
    memset(total, 0, sizeof(total));
    for (uint64_t n = 0; n < FRESH_ROWS * heads * world->group; n++) {
        uint64_t row = world->matched + n / (heads * world->group);
        uint64_t head = n / world->group % heads, seen = row + 1 - from;
        double most = -1e300, sum = 0;
        for (uint64_t j = 0; j < seen; j++) {
            double dot = 0;
            for (uint64_t i = 0; i < d; i++)
                dot += (double)world_query(world, row, shot->item.layer,
                                           head * world->group + n % world->group, i) *
                       (j < rows ? (double)keys[j * stride + head * d + i]
                                 : (double)world_kv(world, from + j, shot->item.layer, 0, head, i));
            logits[j] = dot / sqrt((double)d);
            most = fmax(most, logits[j]);
        }
        for (uint64_t j = 0; j < seen; j++)
            sum += exp(logits[j] - most);
        for (uint64_t j = 0; j < rows; j++)
            total[j] += exp(logits[j] - most) / sum;
    }
    reference_top(total, NULL, rows, shot->item.exact_rows, in, &gap);
    if (gap < 1e-5)
        return false;
    for (uint64_t j = 0; j < rows; j++)
        assert_int_equal(is_exact(shot, j), in[j]);
    return true;
}

bool set_is_the_best(const struct world *world, const struct shot *shot, uint64_t from,
                     uint32_t bits)
{
    static float keys[ROWS_MAX][64];
    struct slab slab = {.row_count = 0};
    for (uint64_t j = 0; j < world->matched - from; j++)
        decoded(world, from + j, shot->item.layer, 0, bits, &slab, SPEC_DTYPE_F32, keys[j]);
    return set_is_the_best_of(world, shot, from, keys[0], 64);
}

spec_ticket fire_first(struct world *world, struct shot *shot, spec_request request, uint32_t layer,
                       uint32_t exact_ppm, uint64_t deadline_ns)
{
    shot_make(shot, world, request, layer, 0, exact_ppm);
    shot->item.deadline_ns = deadline_ns;
    spec_ticket ticket = rig_submit_whole(&world->rig, &shot->item, 1);
    return ticket;
}

void aim(struct shot *shot, spec_ticket ticket, uint32_t exact_ppm)
{
    shot->item.refine_of = ticket;
    shot->item.queries = NULL;
    shot->item.new_keys = NULL;
    shot->item.deadline_ns = 0;
    shot->select.exact_ppm = exact_ppm;
}

spec_status refine(struct world *world, struct shot *shot, spec_ticket ticket, uint32_t exact_ppm)
{
    aim(shot, ticket, exact_ppm);
    return fire(world, shot);
}

void negate(struct shot *shot)
{
    for (uint64_t i = 1; i < shot->pass.q.byte_count; i += 2) /* float16: the sign's byte */
        shot->pass.queries[i] ^= 0x80;
}

spec_ticket store_fresh(const struct world *world, spec_request request, uint32_t layer)
{
    struct area area = world_area(world, world->matched, FRESH_ROWS, layer);
    spec_ticket ticket = 0;
    struct spec_store_params params =
        rig_store_params(request, layer, world->matched, FRESH_ROWS, &area.memory);
    assert_int_equal(sc_plugin_store(world->rig.conn, &params, 1, &ticket, NULL), SPEC_OK);
    rig_area_free(&area);
    return ticket;
}

void expect_lossy(struct world *world, uint32_t exact_ppm)
{
    struct spec_lookup_result result;
    uint64_t end = world->matched + FRESH_ROWS;
    assert_int_equal(rig_try_lookup(&world->rig, &world->prompt, 0, end, &result), SPEC_OK);
    assert_int_equal(result.matched_tokens, end);
    assert_int_equal(result.provenance.kind, SPEC_PROVENANCE_LOSSY);
    assert_int_equal(result.provenance.bits_k, 4);
    assert_int_equal(result.provenance.bits_v, 2);
    assert_int_equal(result.provenance.exact_ppm, exact_ppm);
    rig_release(&world->rig, result.request);
}

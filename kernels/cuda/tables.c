/* launch.h: bit plane tables for the device (spec.h): a head's units, and where a run's bits are.
 *
 *   rotated by halves   [0 .. 7 | half .. half + 7][8 .. 15 | ...] ...  then channels not rotated
 *   by pairs, or none   [0 .. 7 | n/2 .. n/2 + 7][8 .. 15 | ...] ...     a run inside 8 channels
 *
 * Invariants: a run is inside a group, so its bits of a plane are consecutive.
 * Threads: any. Tests: tests/unit/kernels/test_cuda_bitplanes.c */
#include "kernels/cuda/launch.h"

#include <string.h>

#define GROUP        SC_KERNELS_BITPLANES_GROUP
#define BYTES_MAX    (UINT32_C(1) << 24) /* bytes of a row: `where` has 24 bits for them */
#define HEADS_MAX    UINT16_MAX
#define NO_BIT       7u
#define SELECT_WIDTH 4u

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* Units of one head; ret_units NULL: only count. */
struct units {
    struct sc_cuda_unit *ret_units;
    uint32_t count;
};

static void unit_add(struct units *units, struct sc_cuda_unit unit)
{
    if (units->ret_units != NULL)
        units->ret_units[units->count] = unit;
    units->count++;
}

/* Sets run `number` of channels [first, end), none across a multiple of 8; 0 channels if none. */
static void span_run(struct sc_cuda_unit *unit, uint32_t run, uint32_t first, uint32_t end,
                     uint32_t number)
{
    uint32_t from = number == 0 ? first : (first / SC_CUDA_RUN + number) * SC_CUDA_RUN;
    if (from >= end)
        return;
    unit->first[run] = (uint8_t)from;
    unit->count[run] = (uint8_t)least(SC_CUDA_RUN - from % SC_CUDA_RUN, end - from);
}

/* Adds channels [first, end), two runs a unit: one of the first half of all runs and one of the
 * second, so that consecutive units have consecutive bytes. */
static void span_add(struct units *units, uint32_t first, uint32_t end, uint8_t rope_kind)
{
    uint32_t runs = (end + SC_CUDA_RUN - 1) / SC_CUDA_RUN - first / SC_CUDA_RUN;
    for (uint32_t half = (runs + 1) / 2, i = 0; first < end && i < half; i++) {
        struct sc_cuda_unit unit = {.rope_kind = rope_kind};
        span_run(&unit, 0, first, end, i);
        span_run(&unit, 1, first, end, i + half);
        unit_add(units, unit);
    }
}

static void halves_add(struct units *units, uint32_t half)
{
    for (uint32_t first = 0, count; first < half; first += count) {
        uint32_t other = first + half;
        count = least(SC_CUDA_RUN - first % SC_CUDA_RUN, half - first);
        count = least(count, GROUP - other % GROUP);
        unit_add(units, (struct sc_cuda_unit){.first = {(uint8_t)first, (uint8_t)other},
                                              .count = {(uint8_t)count, (uint8_t)count},
                                              .rope_kind = SC_CUDA_HALF});
    }
}

static uint32_t head_units(uint32_t head_size, const struct sc_kernels_rotary *rotary,
                           struct sc_cuda_unit *ret_units)
{
    struct units units = {ret_units, 0};
    uint32_t turned = rotary != NULL ? rotary->turned : 0;
    if (turned > 0 && rotary->pairs == SC_KERNELS_ROTARY_HALF)
        halves_add(&units, turned / 2);
    else
        span_add(&units, 0, turned, SC_CUDA_INTERLEAVED);
    span_add(&units, turned, head_size, SC_CUDA_STILL);
    return units.count;
}

uint64_t sc_cuda_bitplanes_table_bytes(const struct sc_kernels_bitplanes *planes,
                                       const struct sc_kernels_rotary *rotary)
{
    if (planes->head_count == 0 || planes->head_count > HEADS_MAX ||
        planes->head_size > SC_KERNELS_BITPLANES_HEAD || planes->row_bytes >= BYTES_MAX ||
        (rotary != NULL && (rotary->turned > planes->head_size || rotary->turned % 2 != 0)))
        return 0;
    uint64_t units = planes->head_count * head_units((uint32_t)planes->head_size, rotary, NULL);
    return sizeof(struct sc_cuda_bitplanes_table) + units * sizeof(struct sc_cuda_unit) +
           SC_KERNELS_BITPLANES * units * sizeof(struct sc_cuda_unit_plane);
}

static void run_plane(const struct sc_kernels_bitplanes_group *group, uint32_t plane,
                      uint32_t first, uint32_t count, uint32_t *ret_where, uint32_t *ret_select)
{
    uint64_t mask = group->masks[plane], before = mask & ((UINT64_C(1) << first) - 1);
    uint32_t at = (uint32_t)__builtin_popcountll(before), bits = 0, select = 0;
    for (uint32_t c = 0; c < SC_CUDA_RUN; c++) {
        bool has_bit = c < count && (mask >> (first + c) & 1) != 0;
        select |= (has_bit ? bits : NO_BIT) << SELECT_WIDTH * c;
        bits += has_bit;
    }
    *ret_where = (group->offset + group->at[plane] + at / 8) << 8 | at % 8 << 4 | bits;
    if (bits == 0)
        *ret_where = 0; /* a byte is read nevertheless; here it could be beyond the row */
    *ret_select = select;
}

static void unit_fill(const struct sc_kernels_bitplanes *planes, struct sc_cuda_unit *unit)
{
    for (uint32_t run = 0; run < 2; run++) {
        unit->to[run] = 0;
        for (uint32_t c = 0; c < unit->count[run]; c++)
            unit->to[run] |=
                (uint32_t)planes->to[unit->head * planes->head_size + unit->first[run] + c]
                << SELECT_WIDTH * c;
    }
}

void sc_cuda_bitplanes_table_make(const struct sc_kernels_bitplanes *planes,
                                  const struct sc_kernels_rotary *rotary,
                                  struct sc_cuda_bitplanes_table *ret_table)
{
    uint32_t each = head_units((uint32_t)planes->head_size, rotary, NULL);
    uint32_t count = (uint32_t)planes->head_count * each, end = 0;
    struct sc_cuda_unit *units = (struct sc_cuda_unit *)(ret_table + 1);
    struct sc_cuda_unit_plane *bits = (struct sc_cuda_unit_plane *)(units + count);
    for (uint32_t u = 0; u < count; u++) {
        if (u % each == 0)
            (void)head_units((uint32_t)planes->head_size, rotary, units + u);
        units[u].head = (uint16_t)(u / each);
        unit_fill(planes, &units[u]);
        for (uint32_t p = 0; p < SC_KERNELS_BITPLANES; p++)
            for (uint32_t run = 0; run < 2; run++) {
                uint32_t group = units[u].first[run] / GROUP;
                run_plane(&planes->groups[units[u].head * planes->head_groups + group], p,
                          units[u].first[run] % GROUP, units[u].count[run],
                          &bits[p * count + u].where[run], &bits[p * count + u].select[run]);
            }
    }
    for (uint64_t g = 0; g < planes->head_count * planes->head_groups; g++)
        end = planes->groups[g].end > end ? planes->groups[g].end : end;
    *ret_table = (struct sc_cuda_bitplanes_table){
        .unit_count = count,
        .row_bytes = (uint32_t)planes->row_bytes,
        .turned = rotary != NULL ? rotary->turned : 0,
        .end = end,
    };
}

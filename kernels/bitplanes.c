/* bitplanes.h: tables of planes. */
#include "kernels/bitplanes.h"

#include <string.h>

#define GROUP SC_KERNELS_BITPLANES_GROUP

static bool group_init(struct sc_kernels_bitplanes_group *group, const uint8_t *to, uint64_t count)
{
    uint32_t at = 0;
    memset(group->masks, 0, sizeof(group->masks));
    memset(group->places, 0x80, sizeof(group->places));
    memset(group->channels, 0, sizeof(group->channels));
    group->end = 0;
    for (uint32_t p = 0; p < SC_KERNELS_BITPLANES; p++) {
        uint8_t place = 0;
        for (uint64_t c = 0; c < count; c++) {
            if (to[c] > SC_KERNELS_BITPLANES)
                return false;
            if (p >= to[c])
                continue;
            group->masks[p] |= UINT64_C(1) << c;
            group->channels[p][place] = (uint8_t)c;
            group->places[p][c] = place++;
        }
        if (place % 8 != 0)
            return false;
        group->at[p] = (uint16_t)at;
        group->bytes[p] = place / 8;
        at += place / 8;
        if (place > 0)
            group->end = p + 1;
    }
    return true;
}

bool sc_kernels_bitplanes_init(struct sc_kernels_bitplanes *ret_planes, uint64_t head_count,
                               uint64_t head_size, const uint8_t *to,
                               struct sc_kernels_bitplanes_group *groups)
{
    uint64_t head_groups = sc_kernels_bitplanes_head_groups(head_size), row_bytes = 0;
    if (head_size == 0 || head_size > SC_KERNELS_BITPLANES_HEAD)
        return false;
    for (uint64_t h = 0; h < head_count; h++)
        for (uint64_t g = 0; g < head_groups; g++) {
            uint64_t first = g * GROUP, left = head_size - first, c = h * head_size + first;
            struct sc_kernels_bitplanes_group *group = &groups[h * head_groups + g];
            if (!group_init(group, to + c, left < GROUP ? left : GROUP))
                return false;
            group->offset = (uint32_t)row_bytes;
            row_bytes +=
                group->at[SC_KERNELS_BITPLANES - 1] + group->bytes[SC_KERNELS_BITPLANES - 1];
        }
    *ret_planes =
        (struct sc_kernels_bitplanes){head_count, head_size, head_groups, row_bytes, groups, to};
    return true;
}

void sc_kernels_bitplanes_rope_tiles(const float *rope, uint64_t row_count, uint64_t turned,
                                     float *ret_tiles)
{
    const uint64_t tile = SC_KERNELS_BITPLANES_TILE;
    memset(ret_tiles, 0, sc_kernels_bitplanes_tile_floats(row_count, turned) * sizeof(*ret_tiles));
    for (uint64_t i = 0; i < row_count; i++)
        for (uint64_t t = 0; t < turned; t++)
            ret_tiles[(i / tile * turned + t) * tile + i % tile] = rope[i * turned + t];
}

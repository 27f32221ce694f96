/* bit_tables.h: stores bit tables and finds them by content. */
#include "plugin/quant/bit_tables.h"

#include "base/status.h"
#include "hashing/digest.h"

#include <string.h>

#define LINE 64u

static uint64_t up(uint64_t bytes)
{
    return (bytes + LINE - 1) / LINE * LINE;
}

static uint64_t channels_of(const struct sc_plugin_tables *tables)
{
    return tables->head_count * tables->head_size;
}

static uint64_t groups_bytes(const struct sc_plugin_tables *tables)
{
    return tables->head_count * sc_kernels_bitplanes_head_groups(tables->head_size) *
           sizeof(struct sc_kernels_bitplanes_group);
}

/* [the table][groups][bits][packed] */
static uint64_t slot_bytes_of(const struct sc_plugin_tables *tables)
{
    return up(sizeof(struct sc_plugin_table)) + up(groups_bytes(tables)) + up(channels_of(tables)) +
           up(tables->packed_bytes);
}

uint64_t sc_plugin_tables_slot_bytes(uint64_t head_count, uint64_t head_size)
{
    return slot_bytes_of(&(struct sc_plugin_tables){.head_count = head_count,
                                                    .head_size = head_size,
                                                    .packed_bytes = head_count * head_size / 2});
}

static struct sc_plugin_table *slot_at(const struct sc_plugin_tables *tables, uint64_t number)
{
    return (struct sc_plugin_table *)(void *)(tables->slots + number * tables->slot_bytes);
}

/* *ret_place: the table's place, or the free one for it */
static const struct sc_plugin_table *find_at(const struct sc_plugin_tables *tables,
                                             const uint8_t *packed, uint64_t *ret_place)
{
    uint64_t place = sc_hash_bytes64(packed, tables->packed_bytes, 0) & tables->place_mask;
    for (uint32_t number;
         (number = atomic_load_explicit(&tables->places[place], memory_order_acquire)) != 0;
         place = (place + 1) & tables->place_mask) {
        const struct sc_plugin_table *table = slot_at(tables, number - 1);
        if (memcmp(table->packed, packed, tables->packed_bytes) == 0)
            return table;
    }
    *ret_place = place;
    return NULL;
}

const struct sc_plugin_table *sc_plugin_tables_find(struct sc_plugin_tables *tables,
                                                    const uint8_t *packed)
{
    uint64_t place;
    return tables->capacity > 0 ? find_at(tables, packed, &place) : NULL;
}

/* Lock held. Fills the next slot with the table; NULL: invalid. */
static struct sc_plugin_table *slot_fill(const struct sc_plugin_tables *tables,
                                         const uint8_t *packed, uint64_t row_bytes)
{
    struct sc_plugin_table *table = slot_at(tables, tables->count);
    uint8_t *at = (uint8_t *)table + up(sizeof(*table));
    struct sc_kernels_bitplanes_group *groups = (struct sc_kernels_bitplanes_group *)(void *)at;
    uint8_t *to = at + up(groups_bytes(tables)), *kept = to + up(channels_of(tables));
    for (uint64_t c = 0; c < channels_of(tables); c++)
        to[c] = packed[c / 2] >> (c % 2 * 4) & 15;
    if (!sc_kernels_bitplanes_init(&table->planes, tables->head_count, tables->head_size, to,
                                   groups) ||
        table->planes.row_bytes != row_bytes)
        return NULL;
    memcpy(kept, packed, tables->packed_bytes);
    table->packed = kept;
    return table;
}

static const struct sc_plugin_table *
table_add(struct sc_plugin_tables *tables, const uint8_t *packed, uint64_t row_bytes, bool is_other)
{
    uint64_t place;
    if (tables->capacity == 0)
        return NULL;
    const struct sc_plugin_table *table = find_at(tables, packed, &place);
    if (table == NULL) {
        pthread_mutex_lock(&tables->lock);
        table = find_at(tables, packed, &place); /* another thread may have added it */
        bool has_room =
            tables->count < tables->capacity && (!is_other || tables->others < tables->others_most);
        if (table == NULL && has_room && (table = slot_fill(tables, packed, row_bytes)) != NULL) {
            tables->others += is_other ? 1 : 0;
            atomic_store_explicit(&tables->places[place], (uint32_t)++tables->count,
                                  memory_order_release);
        }
        pthread_mutex_unlock(&tables->lock);
    }
    return table != NULL && table->planes.row_bytes == row_bytes ? table : NULL;
}

const struct sc_plugin_table *sc_plugin_tables_add(struct sc_plugin_tables *tables,
                                                   const uint8_t *packed, uint64_t row_bytes)
{
    return table_add(tables, packed, row_bytes, false);
}

const struct sc_plugin_table *sc_plugin_tables_add_other(struct sc_plugin_tables *tables,
                                                         const uint8_t *packed, uint64_t row_bytes)
{
    return table_add(tables, packed, row_bytes, true);
}

spec_status sc_plugin_tables_open(struct sc_plugin_tables *tables, struct sc_alloc *alloc,
                                  uint64_t head_count, uint64_t head_size, uint64_t capacity,
                                  struct spec_error *reterr)
{
    *tables = (struct sc_plugin_tables){.head_count = head_count,
                                        .head_size = head_size,
                                        .packed_bytes = head_count * head_size / 2,
                                        .capacity = capacity > 0 ? capacity + 1 : 0,
                                        .others_most = capacity,
                                        .place_mask = 1};
    pthread_mutex_init(&tables->lock, NULL);
    if (capacity == 0)
        return SPEC_OK;
    tables->slot_bytes = slot_bytes_of(tables);
    while (tables->place_mask + 1 < 2 * tables->capacity)
        tables->place_mask = 2 * tables->place_mask + 1;
    tables->places = sc_alloc_array(alloc, tables->place_mask + 1, sizeof(*tables->places));
    tables->slots = sc_alloc(alloc, tables->capacity * tables->slot_bytes);
    uint8_t *zeros = sc_alloc_zero(alloc, tables->packed_bytes);
    if (tables->places != NULL && tables->slots != NULL && zeros != NULL)
        tables->none = sc_plugin_tables_add(tables, zeros, 0);
    sc_alloc_free(alloc, zeros);
    if (tables->none == NULL)
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "%" PRIu64 " tables of widths", capacity);
    return SPEC_OK;
}

void sc_plugin_tables_close(struct sc_plugin_tables *tables, struct sc_alloc *alloc)
{
    sc_alloc_free(alloc, tables->places);
    sc_alloc_free(alloc, tables->slots);
    pthread_mutex_destroy(&tables->lock);
}

void sc_plugin_table_pack(const uint8_t *to, uint64_t channels, uint8_t *ret_packed)
{
    for (uint64_t c = 0; c + 1 < channels; c += 2)
        ret_packed[c / 2] = (uint8_t)(to[c] | to[c + 1] << 4);
}

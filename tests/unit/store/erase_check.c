/* What was erased, by extents and keys; see erase_check.h. */
#include "tests/unit/store/erase_check.h"
#include "store/internal.h"

static void plant_parts(struct sc_sim_fragments *fragments, const struct world *world,
                        const struct sc_store_part *parts, uint32_t count, uint64_t stride)
{
    for (uint32_t i = 0; i < count; i++) {
        uint64_t bytes = sc_store_part_pages(&parts[i], stride) * SC_IO_PAGE_BYTES;
        uint8_t *memory = malloc(bytes);
        char path[96];
        assert_non_null(memory);
        (void)snprintf(path, sizeof(path), "%s/seg-%08x", world->store->dir,
                       world->store->disk.segments[parts[i].segment].number);
        assert_true(sc_io_sim_disk_peek(world->disk, path, parts[i].offset, memory, bytes));
        sc_sim_fragments_add(fragments, memory, bytes);
        free(memory);
    }
}

static void plant_section(struct sc_sim_fragments *fragments, const struct world *world,
                          const struct sc_store_section *derived)
{
    if (derived != NULL)
        plant_parts(fragments, world, derived->parts, derived->part_count, derived->stride);
}

void fragments_plant(struct sc_sim_fragments *fragments, const struct world *world,
                     const struct sc_store_erasure *what)
{
    const struct sc_store_table *table = &world->store->table;
    for (uint64_t id = 1; (id = sc_store_table_extent_from(table, id)) < table->extent_next; id++) {
        const struct sc_store_extent_entry *extent = sc_store_table_extent(table, id);
        if (extent->held_pages == 0 || !sc_store_erasure_covers(what, &extent->salt))
            continue;
        plant_parts(fragments, world, extent->parts, extent->part_count, extent->stride);
        plant_section(fragments, world, extent->held_section);
        plant_section(fragments, world, extent->held_quant);
        plant_section(fragments, world, extent->held_permutation);
    }
}

void fragments_plant_tokens(struct sc_sim_fragments *fragments, uint64_t key, uint64_t count)
{
    for (uint64_t first = 0; first < count; first += 64) { /* a record has a chunk's */
        uint32_t tokens[64];
        for (uint64_t i = 0; i < 64; i++)
            tokens[i] = token_of(key, first + i);
        sc_sim_fragments_add_tokens(fragments, tokens, count - first < 64 ? count - first : 64);
    }
}

/* ---- Storing and erasing --------------------------------------------------------------------- */

struct sc_store_salt salt_of(uint64_t number)
{
    struct sc_store_salt salt = {.state = number == 0 ? SC_STORE_SALT_NONE : SC_STORE_SALT_KNOWN};
    uint64_t words[2] = {mix(number), mix(number + 1000)};
    if (number != 0)
        memcpy(salt.digest, words, sizeof(words));
    return salt;
}

struct sc_store_erasure erasure_of_salt(uint64_t number)
{
    struct sc_store_erasure what = {.is_all = false};
    struct sc_store_salt salt = salt_of(number);
    memcpy(what.salt, salt.digest, sizeof(what.salt));
    return what;
}

spec_status world_store_salted(struct world *world, uint64_t key, uint32_t rows,
                               struct sc_store_salt salt)
{
    struct pass *pass = pass_make(world, key, 0, rows);
    pass->salt = salt;
    spec_status status = pass_begin(pass);
    while (status == SPEC_OK && pass->layer < world->setup->layers)
        status = pass_put(pass);
    if (pass->extent != NULL)
        pass_wait(pass);
    status = status == SPEC_OK ? pass->status : status;
    if (status == SPEC_OK)
        pass_note(pass);
    pass_free(pass);
    return status;
}

spec_status world_erase(struct world *world, uint32_t tries)
{
    spec_status status = sc_store_erase_hear(world->store, NULL, NULL, &world->error);
    while (sc_store_erasures(world->store) > 0) {
        bool more = true;
        if (status == SPEC_OK)
            sc_store_erase_mark(world->store, NULL, NULL);
        while (status == SPEC_OK && more)
            status = sc_store_erase_step(world->store, &more, &world->error);
        if (status != SPEC_OK && status != SPEC_PENDING && --tries == 0)
            return status;
        if (status == SPEC_PENDING)
            world_wait_ns(world, 1000000);
        status = sc_store_erase_hear(world->store, NULL, NULL, &world->error);
    }
    return status;
}

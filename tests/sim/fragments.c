/* Looking for fragments in every byte of every file of a simulated disk; see fragments.h. */
#include "tests/sim/fragments.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOKENS    4u /* of a fragment */
#define FILES     256u
#define ROW_BYTES 64u
#define SLOT_BITS 20u
#define SLOTS     (1u << SLOT_BITS)

struct fragment {
    uint8_t bytes[ROW_BYTES];
    uint32_t count; /* of them that count; 0: a free slot */
};

struct sc_sim_fragments {
    struct fragment *slots; /* [SLOTS] by their first 8 bytes */
    uint64_t count;
};

struct sc_sim_fragments *sc_sim_fragments_new(void)
{
    struct sc_sim_fragments *fragments = calloc(1, sizeof(*fragments));
    if (fragments != NULL)
        fragments->slots = calloc(SLOTS, sizeof(*fragments->slots));
    if (fragments == NULL || fragments->slots == NULL)
        abort();
    return fragments;
}

void sc_sim_fragments_free(struct sc_sim_fragments *fragments)
{
    free(fragments->slots);
    free(fragments);
}

uint64_t sc_sim_fragments_count(const struct sc_sim_fragments *fragments)
{
    return fragments->count;
}

static uint64_t slot_of(const uint8_t *bytes)
{
    uint64_t word;
    memcpy(&word, bytes, 8);
    return word * 0x9e3779b97f4a7c15ull >> (64 - SLOT_BITS);
}

/* Whether as many of the bytes differ from the one before that they stand nowhere by chance. */
static bool is_telling(const uint8_t *bytes, uint32_t count)
{
    uint32_t changes = 0;
    uint64_t word;
    memcpy(&word, bytes, 8);
    for (uint32_t i = 1; i < count; i++)
        changes += bytes[i] != bytes[i - 1];
    return word != 0 && changes >= count / 2; /* words of zeros are not looked up */
}

static void fragment_add(struct sc_sim_fragments *fragments, const uint8_t *bytes, uint32_t count)
{
    if (!is_telling(bytes, count))
        return;
    uint64_t slot = slot_of(bytes);
    for (; fragments->slots[slot].count != 0; slot = (slot + 1) % SLOTS)
        if (fragments->slots[slot].count == count &&
            memcmp(fragments->slots[slot].bytes, bytes, count) == 0)
            return;
    memcpy(fragments->slots[slot].bytes, bytes, count);
    fragments->slots[slot].count = count;
    if (++fragments->count > SLOTS / 2)
        abort();
}

void sc_sim_fragments_add(struct sc_sim_fragments *fragments, const uint8_t *bytes, uint64_t count)
{
    for (uint64_t at = 0; at + ROW_BYTES <= count; at += ROW_BYTES)
        fragment_add(fragments, bytes + at, ROW_BYTES);
}

void sc_sim_fragments_add_tokens(struct sc_sim_fragments *fragments, const uint32_t *tokens,
                                 uint64_t count)
{
    for (uint64_t i = 0; i + TOKENS <= count; i++) {
        uint8_t bytes[4 * TOKENS];
        for (uint32_t t = 0; t < TOKENS; t++)
            for (uint32_t b = 0; b < 4; b++)
                bytes[4 * t + b] = (uint8_t)(tokens[i + t] >> (8 * b));
        fragment_add(fragments, bytes, sizeof(bytes));
    }
}

struct look {
    struct {
        char path[128];
        uint64_t bytes;
    } files[FILES];
    uint32_t file_count;
};

static void on_file(const char *path, uint64_t bytes, void *user)
{
    struct look *look = user;
    if (look->file_count == FILES)
        abort();
    (void)snprintf(look->files[look->file_count].path, 128, "%s", path);
    look->files[look->file_count++].bytes = bytes;
}

static bool fragment_is(const struct sc_sim_fragments *fragments, const uint8_t *at, uint64_t left)
{
    for (uint64_t slot = slot_of(at); fragments->slots[slot].count != 0; slot = (slot + 1) % SLOTS)
        if (fragments->slots[slot].count <= left &&
            memcmp(fragments->slots[slot].bytes, at, fragments->slots[slot].count) == 0)
            return true;
    return false;
}

uint64_t sc_sim_fragments_found(const struct sc_sim_fragments *fragments,
                                struct sc_io_sim_disk *disk, char ret_where[160])
{
    struct look *look = calloc(1, sizeof(*look));
    uint64_t found = 0;
    if (look == NULL)
        abort();
    sc_io_sim_disk_files(disk, on_file, look);
    ret_where[0] = '\0';
    for (uint32_t i = 0; i < look->file_count; i++) {
        uint64_t bytes = look->files[i].bytes;
        uint8_t *memory = malloc(bytes + 1);
        if (memory == NULL || !sc_io_sim_disk_peek(disk, look->files[i].path, 0, memory, bytes))
            abort();
        for (uint64_t at = 0; at + 8 <= bytes; at++) {
            uint64_t word;
            memcpy(&word, memory + at, 8);
            if (word == 0 || !fragment_is(fragments, memory + at, bytes - at))
                continue;
            if (found++ == 0)
                (void)snprintf(ret_where, 160, "%s at byte %lu", look->files[i].path,
                               (unsigned long)at);
        }
        free(memory);
    }
    free(look);
    return found;
}

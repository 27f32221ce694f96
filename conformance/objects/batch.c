/* Keys, values and the memory of a call; see objects.h.
 *
 *   slot   [value, shift bytes into a page | guard], a piece apart from the next by GAP bytes
 *
 * Holds, Does not, Threads, Tests: as objects.h. */
#include "conformance/objects/objects.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GAP   24u /* poison between pieces, where there are several */
#define GUARD 64u /* poison behind a value, at the least */

static uint64_t mix(uint64_t x)
{
    x += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

void key_write(uint64_t number, uint8_t key[KEY_BYTES])
{
    char text[KEY_BYTES + 1];
    (void)snprintf(text, sizeof(text), "key-%016" PRIx64 "%016" PRIx64, mix(number), number);
    memcpy(key, text, KEY_BYTES);
}

/* Bytes [at, at + count) of the value. */
static void value_part(uint64_t seed, uint64_t at, uint8_t *dst, uint64_t count)
{
    uint64_t base = mix(seed), word = 0;
    for (uint64_t i = 0; i < count;) {
        uint64_t in_word = (at + i) % 8, bytes = 8 - in_word;
        word = mix(base + (at + i) / 8);
        if (bytes > count - i)
            bytes = count - i;
        memcpy(dst + i, (const uint8_t *)&word + in_word, bytes);
        i += bytes;
    }
}

void value_write(uint64_t seed, uint8_t *dst, uint64_t bytes)
{
    value_part(seed, 0, dst, bytes);
}

static bool part_is(uint64_t seed, uint64_t at, const uint8_t *bytes, uint64_t count)
{
    uint8_t expected[PAGE];
    for (uint64_t i = 0; i < count; i += sizeof(expected)) {
        uint64_t part = count - i < sizeof(expected) ? count - i : sizeof(expected);
        value_part(seed, at + i, expected, part);
        if (memcmp(expected, bytes + i, part) != 0)
            return false;
    }
    return true;
}

bool value_is(uint64_t seed, const uint8_t *bytes, uint64_t count)
{
    return part_is(seed, 0, bytes, count);
}

static bool is_poison(const uint8_t *bytes, uint64_t count)
{
    return count == 0 || (bytes[0] == POISON && memcmp(bytes, bytes + 1, count - 1) == 0);
}

/* ---- Batches ---- */

/* Bytes of piece p of `pieces`: unequal, and at least 1 where the value has that many. */
static uint64_t piece_size(uint64_t value_bytes, uint32_t pieces, uint32_t p)
{
    uint64_t left = value_bytes - pieces, share = left / pieces;
    uint64_t odd = pieces > 1 ? share / 2 : 0;
    uint64_t size = 1 + share + (p % 2 == 0 ? odd : 0) - (p % 2 == 1 ? odd : 0);
    if (p + 1 == pieces) { /* what is left */
        uint64_t before = 0;
        for (uint32_t i = 0; i + 1 < pieces; i++)
            before += piece_size(value_bytes, pieces, i);
        size = value_bytes - before;
    }
    return size;
}

struct batch batch_split(uint64_t first, uint32_t count, uint64_t value_bytes, uint32_t pieces,
                         uint64_t shift)
{
    uint64_t gaps = pieces > 1 ? pieces * (uint64_t)GAP : 0;
    uint64_t stride = (shift + value_bytes + gaps + GUARD + PAGE - 1) / PAGE * PAGE;
    struct batch batch = {.first = first,
                          .value_bytes = value_bytes,
                          .stride_bytes = stride,
                          .shift = shift,
                          .memory_bytes = count * stride};
    batch.key_data = malloc((uint64_t)count * KEY_BYTES);
    batch.memory = aligned_alloc(PAGE, batch.memory_bytes);
    batch.addresses = calloc((uint64_t)count * pieces, sizeof(uint64_t));
    batch.sizes = calloc((uint64_t)count * pieces, sizeof(uint64_t));
    batch.status = calloc(count, sizeof(*batch.status));
    if (batch.key_data == NULL || batch.memory == NULL || batch.addresses == NULL ||
        batch.sizes == NULL || batch.status == NULL)
        fail_msg("no memory for a batch of %" PRIu32 " values", count);
    for (uint32_t i = 0; i < count; i++) {
        key_write(first + i, batch.key_data + (uint64_t)i * KEY_BYTES);
        uint64_t at = (uint64_t)(uintptr_t)batch.memory + i * stride + shift;
        for (uint32_t p = 0; p < pieces; p++) {
            uint64_t size = piece_size(value_bytes, pieces, p);
            batch.addresses[(uint64_t)i * pieces + p] = at;
            batch.sizes[(uint64_t)i * pieces + p] = size;
            at += size + GAP;
        }
    }
    batch.keys = (struct spec_keys){.struct_size = sizeof(batch.keys),
                                    .count = count,
                                    .data = batch.key_data,
                                    .key_bytes = KEY_BYTES};
    batch.pieces = (struct spec_pieces){.struct_size = sizeof(batch.pieces),
                                        .pieces = pieces,
                                        .addresses = batch.addresses,
                                        .sizes = pieces > 1 ? batch.sizes : NULL,
                                        .piece_bytes = pieces > 1 ? 0 : value_bytes};
    batch.params = (struct spec_transfer_params){.struct_size = sizeof(batch.params),
                                                 .timeout_ns = SPEC_TIMEOUT_NONE,
                                                 .ret_status = batch.status};
    batch_poison(&batch);
    return batch;
}

struct batch batch_make(uint64_t first, uint32_t count, uint64_t value_bytes)
{
    return batch_split(first, count, value_bytes, 1, 0);
}

void batch_free(struct batch *batch)
{
    free(batch->key_data);
    free(batch->memory);
    free(batch->addresses);
    free(batch->sizes);
    free(batch->status);
    *batch = (struct batch){0};
}

uint8_t *batch_value(const struct batch *batch, uint32_t i)
{
    return batch->memory + i * batch->stride_bytes + batch->shift;
}

void batch_poison(struct batch *batch)
{
    memset(batch->memory, POISON, batch->memory_bytes);
}

/* Address and size of piece p of key i. */
static uint8_t *piece_at(const struct batch *batch, uint32_t i, uint32_t p, uint64_t *ret_size)
{
    uint64_t at = (uint64_t)i * batch->pieces.pieces + p;
    *ret_size = batch->sizes[at];
    return (uint8_t *)(uintptr_t)batch->addresses[at];
}

void batch_fill(struct batch *batch)
{
    batch_poison(batch);
    for (uint32_t i = 0; i < batch->keys.count; i++) {
        uint64_t at = 0, size = 0;
        for (uint32_t p = 0; p < batch->pieces.pieces; p++, at += size) {
            uint8_t *piece = piece_at(batch, i, p, &size);
            value_part(batch->first + i + batch->salt, at, piece, size);
        }
    }
}

/* Compares the slot: pieces with the value, where that is expected, and the rest with poison. */
static bool slot_is_right(const struct batch *batch, uint32_t i, bool has_value)
{
    uint8_t *end = batch->memory + i * batch->stride_bytes;
    uint64_t at = 0, size = 0;
    for (uint32_t p = 0; p < batch->pieces.pieces; p++, at += size) {
        uint8_t *piece = piece_at(batch, i, p, &size);
        if (!is_poison(end, (uint64_t)(piece - end)) ||
            (has_value && !part_is(batch->first + i + batch->salt, at, piece, size)))
            return false;
        end = piece + size;
    }
    uint8_t *next = batch->memory + (i + 1) * batch->stride_bytes;
    return is_poison(end, (uint64_t)(next - end));
}

bool batch_is_right(const struct batch *batch, uint32_t i)
{
    return slot_is_right(batch, i, true);
}

void batch_check(const struct batch *batch, uint32_t i)
{
    int32_t status = batch->status[i];
    bool is_known = status == SPEC_KEY_ABSENT || status == SPEC_KEY_DONE ||
                    status == SPEC_E_CORRUPT || status == SPEC_E_IO || status == SPEC_E_TIMEOUT ||
                    status == SPEC_E_DROPPED || status == SPEC_E_INVALID;
    if (!is_known)
        fail_msg("get: key %" PRIu64 " has status %" PRId32, batch->first + i, status);
    if (!slot_is_right(batch, i, status == SPEC_KEY_DONE))
        fail_msg("get: key %" PRIu64 ", status %" PRId32 ": %s", batch->first + i, status,
                 status == SPEC_KEY_DONE ? "wrong bytes, or memory around them was written"
                                         : "memory around the value was written");
    if (status == SPEC_E_INVALID)
        assert_true(is_poison(batch->memory + i * batch->stride_bytes, batch->stride_bytes));
}

void batch_check_all(const struct batch *batch)
{
    for (uint32_t i = 0; i < batch->keys.count; i++)
        batch_check(batch, i);
}

uint32_t batch_count(const struct batch *batch, int32_t status)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < batch->keys.count; i++)
        count += batch->status[i] == status;
    return count;
}

void batch_expect(const struct batch *batch, int32_t status)
{
    for (uint32_t i = 0; i < batch->keys.count; i++)
        if (batch->status[i] != status)
            fail_msg("key %" PRIu64 " has status %" PRId32 ", expected %" PRId32, batch->first + i,
                     batch->status[i], status);
}

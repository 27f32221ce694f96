/* kv: the key/value cache of one sequence. See kv.h. */
#include "conformance/engine/kv.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* Pages of an anonymous map cost nothing until they are written: capacity may be generous. */
eng_status eng_kv_init(struct eng_kv *kv, const struct eng_config *config, enum eng_dtype dtype,
                       uint64_t capacity, struct eng_error *reterr)
{
    struct eng_kv made = {.dtype = dtype,
                          .layers = config->layers,
                          .kv_heads = config->kv_heads,
                          .head_dim = config->head_dim,
                          .capacity = capacity};
    made.row_elems = made.kv_heads * made.head_dim;
    made.row_bytes = made.row_elems * eng_dtype_bytes(dtype);
    if (__builtin_mul_overflow(made.row_bytes * 2 * made.layers, capacity, &made.base_bytes) ||
        made.base_bytes > SIZE_MAX / 2)
        return eng_fail(reterr, ENG_E_NO_MEMORY, "KV of %" PRIu64 " rows does not fit memory",
                        capacity);
    made.rows = calloc(made.layers * 3, sizeof(*made.rows));
    if (made.rows == NULL)
        return eng_fail(reterr, ENG_E_NO_MEMORY, "no memory for a KV cache");
    made.gap_first = made.rows + made.layers;
    made.gap_end = made.gap_first + made.layers;
    if (made.base_bytes != 0) {
        void *base = mmap(NULL, made.base_bytes, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (base == MAP_FAILED) {
            free(made.rows);
            return eng_fail(reterr, ENG_E_NO_MEMORY,
                            "no memory for a KV cache of %" PRIu64 " bytes", made.base_bytes);
        }
        (void)madvise(base, made.base_bytes, MADV_HUGEPAGE); /* a hint: fewer page faults */
        made.base = base;
    }
    *kv = made;
    return ENG_OK;
}

void eng_kv_touch(struct eng_kv *kv)
{
    if (kv->base != NULL)
        memset(kv->base, 0, kv->base_bytes);
}

void eng_kv_done(struct eng_kv *kv)
{
    if (kv->base != NULL)
        (void)munmap(kv->base, kv->base_bytes);
    free(kv->rows);
    *kv = (struct eng_kv){0};
}

uint8_t *eng_kv_k(const struct eng_kv *kv, uint64_t layer, uint64_t row)
{
    return kv->base + (2 * layer * kv->capacity + row) * kv->row_bytes;
}

uint8_t *eng_kv_v(const struct eng_kv *kv, uint64_t layer, uint64_t row)
{
    return kv->base + ((2 * layer + 1) * kv->capacity + row) * kv->row_bytes;
}

void eng_kv_set_prefix(struct eng_kv *kv, uint64_t layer, uint64_t capacity, uint64_t count)
{
    kv->gap_first[layer] = count;
    kv->gap_end[layer] = capacity;
    if (kv->rows[layer] < capacity)
        kv->rows[layer] = capacity;
}

void eng_kv_truncate(struct eng_kv *kv, uint64_t rows)
{
    for (uint64_t layer = 0; layer < kv->layers; layer++) {
        if (rows < kv->gap_end[layer]) {
            uint64_t whole = kv->gap_first[layer];
            kv->rows[layer] = whole < kv->rows[layer] ? whole : kv->rows[layer];
            kv->gap_first[layer] = kv->gap_end[layer] = 0;
        }
        if (kv->rows[layer] > rows)
            kv->rows[layer] = rows;
    }
}

void eng_kv_copy(struct eng_kv *to, const struct eng_kv *from, uint64_t rows)
{
    for (uint64_t layer = 0; layer < from->layers; layer++) {
        memcpy(eng_kv_k(to, layer, 0), eng_kv_k(from, layer, 0), rows * from->row_bytes);
        memcpy(eng_kv_v(to, layer, 0), eng_kv_v(from, layer, 0), rows * from->row_bytes);
        to->rows[layer] = rows;
        to->gap_first[layer] = to->gap_end[layer] = 0;
    }
}

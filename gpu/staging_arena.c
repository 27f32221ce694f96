/* staging_arena.h: head and tail count bytes and never decrease. If a range would wrap, the rest of
 * the arena is skipped and belongs to that range. */
#include "gpu/staging_arena.h"

#include "base/counter.h"

#include <string.h>

bool sc_gpu_staging_open(struct sc_gpu_staging *staging, struct sc_alloc *alloc,
                         struct sc_poison *poison, sc_cu_ptr base, uint64_t bytes,
                         uint64_t range_count)
{
    memset(staging, 0, sizeof(*staging));
    staging->poison = poison;
    staging->base = base;
    staging->bytes = bytes / SC_GPU_STAGING_ALIGN_BYTES * SC_GPU_STAGING_ALIGN_BYTES;
    staging->ends = sc_alloc_array(alloc, range_count, sizeof(*staging->ends));
    if (staging->ends == NULL)
        return false;
    staging->range_count = range_count;
    staging->alloc = alloc;
    pthread_mutex_init(&staging->lock, NULL); /* cannot fail without attributes */
    return true;
}

void sc_gpu_staging_close(struct sc_gpu_staging *staging, bool is_forked)
{
    if (staging->alloc == NULL)
        return;
    if (!is_forked) {
        SC_ASSERT(staging->poison, staging->taken == staging->returned);
        pthread_mutex_destroy(&staging->lock);
    }
    sc_alloc_free(staging->alloc, staging->ends);
    memset(staging, 0, sizeof(*staging));
}

/* Returns the byte count at which a range would begin; false: it does not fit now. */
static bool room_find(const struct sc_gpu_staging *staging, uint64_t bytes, uint64_t *ret_at)
{
    if (bytes > staging->bytes || staging->taken - staging->returned == staging->range_count)
        return false;
    uint64_t at = staging->head, place = at % staging->bytes;
    if (bytes > staging->bytes - place)
        at += staging->bytes - place;
    *ret_at = at;
    return at + bytes - staging->tail <= staging->bytes;
}

bool sc_gpu_staging_take(struct sc_gpu_staging *staging, uint64_t bytes,
                         struct sc_gpu_range *ret_range)
{
    SC_ASSERT(staging->poison, bytes > 0);
    if (staging->alloc == NULL || bytes == 0 || bytes > staging->bytes) {
        sc_count(&staging->refused, 1);
        return false;
    }
    uint64_t whole = (bytes + SC_GPU_STAGING_ALIGN_BYTES - 1) / SC_GPU_STAGING_ALIGN_BYTES *
                     SC_GPU_STAGING_ALIGN_BYTES;
    pthread_mutex_lock(&staging->lock);
    if (staging->taken == staging->returned) /* empty: restart at the front */
        staging->head = staging->tail = 0;
    uint64_t at;
    bool is_found = room_find(staging, whole, &at);
    if (is_found) {
        staging->head = at + whole;
        staging->ends[staging->taken % staging->range_count] =
            (struct sc_gpu_staging_end){.end = staging->head};
        *ret_range = (struct sc_gpu_range){
            .at = staging->base + at % staging->bytes, .bytes = bytes, .number = staging->taken};
        staging->taken++;
        SC_ASSERT(staging->poison, staging->head - staging->tail <= staging->bytes);
    }
    pthread_mutex_unlock(&staging->lock);
    if (!is_found)
        sc_count(&staging->refused, 1);
    return is_found;
}

void sc_gpu_staging_give(struct sc_gpu_staging *staging, const struct sc_gpu_range *range)
{
    if (range->bytes == 0)
        return;
    pthread_mutex_lock(&staging->lock);
    bool is_out = range->number >= staging->returned && range->number < staging->taken &&
                  !staging->ends[range->number % staging->range_count].is_given;
    SC_ASSERT(staging->poison, is_out); /* fails if given back twice or never taken */
    if (is_out)
        staging->ends[range->number % staging->range_count].is_given = true;
    while (staging->returned < staging->taken) {
        const struct sc_gpu_staging_end *oldest =
            &staging->ends[staging->returned % staging->range_count];
        if (!oldest->is_given)
            break;
        staging->tail = oldest->end;
        staging->returned++;
    }
    pthread_mutex_unlock(&staging->lock);
}

uint64_t sc_gpu_staging_used(struct sc_gpu_staging *staging)
{
    if (staging->alloc == NULL)
        return 0;
    pthread_mutex_lock(&staging->lock);
    uint64_t used = staging->taken - staging->returned;
    pthread_mutex_unlock(&staging->lock);
    return used;
}

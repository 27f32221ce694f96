/* The staging arena (staging_arena.h says what holds). head and tail count bytes and never go back;
 * where a range would wrap, the rest of the arena is skipped and counts as the range's. */
#include "gpu/staging_arena.h"

#include "base/counter.h"

#include <string.h>

bool sc_gpu_staging_open(struct sc_gpu_staging *stage, struct sc_alloc *alloc,
                         struct sc_poison *poison, sc_cu_ptr base, uint64_t bytes,
                         uint64_t range_count)
{
    memset(stage, 0, sizeof(*stage));
    stage->poison = poison;
    stage->base = base;
    stage->bytes = bytes / SC_GPU_STAGING_ALIGN_BYTES * SC_GPU_STAGING_ALIGN_BYTES;
    stage->ends = sc_alloc_array(alloc, range_count, sizeof(*stage->ends));
    if (stage->ends == NULL)
        return false;
    stage->range_count = range_count;
    stage->alloc = alloc;
    pthread_mutex_init(&stage->lock, NULL); /* with no attributes it cannot fail */
    return true;
}

void sc_gpu_staging_close(struct sc_gpu_staging *stage, bool is_forked)
{
    if (stage->alloc == NULL)
        return;
    if (!is_forked) {
        SC_ASSERT(stage->poison, stage->taken == stage->returned);
        pthread_mutex_destroy(&stage->lock);
    }
    sc_alloc_free(stage->alloc, stage->ends);
    memset(stage, 0, sizeof(*stage));
}

/* Where a range would begin, as a count of bytes; false: it does not fit now. */
static bool room_find(const struct sc_gpu_staging *stage, uint64_t bytes, uint64_t *ret_at)
{
    if (bytes > stage->bytes || stage->taken - stage->returned == stage->range_count)
        return false;
    uint64_t at = stage->head, place = at % stage->bytes;
    if (bytes > stage->bytes - place)
        at += stage->bytes - place;
    *ret_at = at;
    return at + bytes - stage->tail <= stage->bytes;
}

bool sc_gpu_staging_take(struct sc_gpu_staging *stage, uint64_t bytes,
                         struct sc_gpu_range *ret_range)
{
    SC_ASSERT(stage->poison, bytes > 0);
    if (stage->alloc == NULL || bytes == 0 || bytes > stage->bytes) {
        sc_count(&stage->refused, 1);
        return false;
    }
    uint64_t whole = (bytes + SC_GPU_STAGING_ALIGN_BYTES - 1) / SC_GPU_STAGING_ALIGN_BYTES *
                     SC_GPU_STAGING_ALIGN_BYTES;
    pthread_mutex_lock(&stage->lock);
    if (stage->taken == stage->returned) /* empty: begin at the front, where most fits */
        stage->head = stage->tail = 0;
    uint64_t at;
    bool is_found = room_find(stage, whole, &at);
    if (is_found) {
        stage->head = at + whole;
        stage->ends[stage->taken % stage->range_count] =
            (struct sc_gpu_staging_end){.end = stage->head};
        *ret_range = (struct sc_gpu_range){
            .at = stage->base + at % stage->bytes, .bytes = bytes, .number = stage->taken};
        stage->taken++;
        SC_ASSERT(stage->poison, stage->head - stage->tail <= stage->bytes);
    }
    pthread_mutex_unlock(&stage->lock);
    if (!is_found)
        sc_count(&stage->refused, 1);
    return is_found;
}

void sc_gpu_staging_give(struct sc_gpu_staging *stage, const struct sc_gpu_range *range)
{
    if (range->bytes == 0)
        return;
    pthread_mutex_lock(&stage->lock);
    bool is_out = range->number >= stage->returned && range->number < stage->taken &&
                  !stage->ends[range->number % stage->range_count].is_given;
    SC_ASSERT(stage->poison, is_out); /* else: given back twice, or never taken */
    if (is_out)
        stage->ends[range->number % stage->range_count].is_given = true;
    while (stage->returned < stage->taken) {
        const struct sc_gpu_staging_end *oldest =
            &stage->ends[stage->returned % stage->range_count];
        if (!oldest->is_given)
            break;
        stage->tail = oldest->end;
        stage->returned++;
    }
    pthread_mutex_unlock(&stage->lock);
}

uint64_t sc_gpu_staging_used(struct sc_gpu_staging *stage)
{
    if (stage->alloc == NULL)
        return 0;
    pthread_mutex_lock(&stage->lock);
    uint64_t used = stage->taken - stage->returned;
    pthread_mutex_unlock(&stage->lock);
    return used;
}

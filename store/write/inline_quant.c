/* inline_quant: the storing side of inline quantisation (inline_quant_state.h). Contract:
 * store/write/inline_quant.h. */
#include "store/write/inline_quant.h"

#include "store/cache/written_frames.h"
#include "store/write/extent.h"
#include "store/write/inline_quant_state.h"

#include <string.h>

void sc_store_inline_quant_wake(struct sc_store_inline_quant *live)
{
    if (live->is_posted)
        return;
    live->is_posted = true;
    atomic_fetch_add(&live->store->busy, 1);
    sc_exec_post(live->store->params.exec, &live->task,
                 sc_store_inline_quant_io_class(live->store));
}

void sc_store_inline_quant_due_give(struct sc_store_inline_quant_job *job)
{
    struct sc_store_inline_quant *live = job->live;
    pthread_mutex_lock(&live->lock);
    uint64_t quant_stride = job->quant_stride;
    job->quant_stride = 0;
    pthread_mutex_unlock(&live->lock);
    sc_store_quant_due_give(live->store, quant_stride);
}

/* Sets the entries that the extent's commit will make. */
static void entry_set(struct sc_store_inline_quant_job *job, const struct sc_store_extent *extent)
{
    uint64_t row = 0;
    memcpy(job->parts, extent->parts, extent->part_count * sizeof(*job->parts));
    job->entry = (struct sc_store_extent_entry){.parts = job->parts,
                                                .part_count = extent->part_count,
                                                .row_count = (uint32_t)extent->row_count,
                                                .row_offset = extent->place.row_offset,
                                                .tag_offset = extent->place.tag_offset,
                                                .stride = extent->place.stride,
                                                .copy = extent->copy};
    for (uint64_t i = 0; i < extent->piece_count; i++) {
        const struct sc_store_piece_plan *plan = &extent->pieces[i];
        struct sc_store_piece_entry *piece = &job->pieces[i];
        *piece = (struct sc_store_piece_entry){.first_position = plan->first_position,
                                               .extent_row = (uint16_t)row,
                                               .row_count = (uint16_t)plan->row_count};
        memcpy(piece->hash, plan->hash, sizeof(piece->hash));
        row += plan->row_count;
    }
}

struct sc_store_inline_quant_job *sc_store_inline_quant_begin(struct sc_store *store,
                                                              const struct sc_store_extent *extent)
{
    struct sc_store_inline_quant *live = store->live;
    struct sc_store_inline_quant_job *found = NULL;
    if (live == NULL) {
        sc_store_quant_due_give(store, extent->quant_stride);
        return NULL;
    }
    pthread_mutex_lock(&live->lock);
    for (uint32_t i = 0; i < SC_STORE_INLINE_QUANT_MAX && found == NULL && !live->is_closing; i++)
        found = live->jobs[i].is_used ? NULL : &live->jobs[i];
    if (found != NULL) {
        found->is_used = true;
        found->is_left = found->is_lost = found->is_written = false;
        found->order = ++live->order;
        found->extent_id = 0;
        found->packed = 0;
        found->quant_stride = extent->quant_stride;
        found->state = SC_STORE_INLINE_QUANT_MAKING;
    }
    pthread_mutex_unlock(&live->lock);
    if (found != NULL)
        entry_set(found, extent); /* the task reads it only after a layer is packed */
    else
        sc_store_quant_due_give(store, extent->quant_stride);
    return found;
}

void sc_store_inline_quant_window(struct sc_store_inline_quant_job *job, uint8_t *frame,
                                  const struct sc_store_part *part, uint64_t start, uint64_t end)
{
    if (job == NULL)
        return;
    struct sc_store_inline_quant *live = job->live;
    uint64_t stride = job->entry.stride, at = part->layer_first * stride + (start - part->offset);
    uint64_t last = (part->layer_first + part->layer_count) * stride;
    pthread_mutex_lock(&live->lock);
    if (!job->is_lost && at < last)
        sc_store_cache_enter(live->store->cache, frame, job->entry.copy, at,
                             end - start < last - at ? end - start : last - at);
    pthread_mutex_unlock(&live->lock);
}

void sc_store_inline_quant_window_cut(struct sc_store_inline_quant_job *job, uint8_t *frame,
                                      uint64_t bytes)
{
    if (job != NULL)
        sc_store_cache_shorten(job->live->store->cache, frame, bytes);
}

void sc_store_inline_quant_packed(struct sc_store_inline_quant_job *job)
{
    if (job == NULL)
        return;
    pthread_mutex_lock(&job->live->lock);
    job->packed++;
    sc_store_inline_quant_wake(job->live);
    pthread_mutex_unlock(&job->live->lock);
}

void sc_store_inline_quant_lose(struct sc_store_inline_quant_job *job)
{
    if (job == NULL)
        return;
    pthread_mutex_lock(&job->live->lock);
    job->is_lost = true;
    sc_store_inline_quant_wake(job->live);
    pthread_mutex_unlock(&job->live->lock);
}

void sc_store_inline_quant_end(struct sc_store_inline_quant_job *job, uint64_t extent_id)
{
    if (job == NULL)
        return;
    if (extent_id == 0) /* now, not in the task: reserved room keeps other rows out */
        sc_store_inline_quant_due_give(job);
    pthread_mutex_lock(&job->live->lock);
    job->is_left = true;
    job->extent_id = extent_id;
    job->is_lost = job->is_lost || extent_id == 0;
    sc_store_inline_quant_wake(job->live);
    pthread_mutex_unlock(&job->live->lock);
}

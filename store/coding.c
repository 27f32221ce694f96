/* Codes of rows that are being stored: the side of who stores them (coding_state.h).
 *
 * Holds, Does not, Threads: store/coding.h.
 * Tests: tests/unit/store/test_coding.c, tests/fault/test_store_faults.c */
#include "store/coding.h"
#include "store/codes.h"
#include "store/coding_state.h"

#include <string.h>

/* ---- Windows -------------------------------------------------------------------------------- */

static struct sc_store_coding_window *window_of(const struct sc_store *store, const uint8_t *frame)
{
    uint64_t at = (uint64_t)(frame - sc_frames_memory(store->frames));
    return &store->coding->windows[at / sc_frames_frame_bytes(store->frames)];
}

/* Lock held. */
static void window_unlink(struct sc_store_coding_window *window)
{
    struct sc_store_coder *coder = window->coder;
    *(window->prev != NULL ? &window->prev->next : &coder->first) = window->next;
    *(window->next != NULL ? &window->next->prev : &coder->last) = window->prev;
    window->coder = NULL;
}

void sc_store_window_leave(struct sc_store *store, struct sc_store_coding_window *window)
{
    uint8_t *frame = sc_store_coding_frame_of(store, window);
    bool is_ours = window->has_left; /* else its write gives it back */
    if (is_ours && !window->is_pinned)
        is_ours = sc_frames_claim(store->frames, frame, window->ticket);
    if (is_ours)
        sc_frames_put(store->frames, frame);
    window->is_pinned = false;
    window_unlink(window);
}

void sc_store_windows_leave(struct sc_store_coder *coder)
{
    while (coder->first != NULL)
        sc_store_window_leave(coder->store, coder->first);
}

static bool is_before(const struct sc_store_coding_window *window, uint32_t part, uint64_t start)
{
    return window->part < part || (window->part == part && window->start < start);
}

uint8_t *sc_store_coding_take(struct sc_store *store)
{
    struct sc_store_coding *coding = store->coding;
    uint8_t *frame = sc_frames_take(store->frames, SC_LANE_WRITER);
    if (frame == NULL || coding == NULL)
        return frame;
    pthread_mutex_lock(&coding->lock);
    struct sc_store_coding_window *window = window_of(store, frame);
    if (window->coder != NULL) { /* it was kept */
        window->coder->is_lost = true;
        window_unlink(window);
    }
    pthread_mutex_unlock(&coding->lock);
    return frame;
}

void sc_store_coding_put(struct sc_store *store, uint8_t *frame)
{
    struct sc_store_coding *coding = store->coding;
    if (coding == NULL) {
        sc_frames_put(store->frames, frame);
        return;
    }
    pthread_mutex_lock(&coding->lock);
    struct sc_store_coding_window *window = window_of(store, frame);
    bool is_wanted = window->coder != NULL;
    if (is_wanted && window->coder->is_lost && !window->is_pinned) {
        window_unlink(window);
        is_wanted = false;
    }
    window->has_left = true;
    if (is_wanted && !window->is_pinned)
        window->ticket = sc_frames_keep(store->frames, frame);
    pthread_mutex_unlock(&coding->lock);
    if (!is_wanted)
        sc_frames_put(store->frames, frame);
}

void sc_store_coder_window(struct sc_store_coder *coder, const uint8_t *frame,
                           const struct sc_store_part *part, uint64_t start, uint64_t end)
{
    if (coder == NULL)
        return;
    struct sc_store_coding *coding = coder->store->coding;
    struct sc_store_coding_window *window = window_of(coder->store, frame);
    uint32_t index = 0; /* places of parts ascend with their layers */
    while (coder->parts[index].layer_first != part->layer_first)
        index++;
    pthread_mutex_lock(&coding->lock);
    if (!coder->is_lost) {
        struct sc_store_coding_window *prev = coder->last;
        while (prev != NULL && !is_before(prev, index, start))
            prev = prev->prev;
        *window = (struct sc_store_coding_window){.coder = coder,
                                                  .prev = prev,
                                                  .next = prev != NULL ? prev->next : coder->first,
                                                  .start = start,
                                                  .end = end,
                                                  .part = index};
        *(prev != NULL ? &prev->next : &coder->first) = window;
        *(window->next != NULL ? &window->next->prev : &coder->last) = window;
    }
    pthread_mutex_unlock(&coding->lock);
}

/* ---- Extents -------------------------------------------------------------------------------- */

void sc_store_coding_wake(struct sc_store_coding *coding)
{
    if (coding->is_posted)
        return;
    coding->is_posted = true;
    atomic_fetch_add(&coding->store->busy, 1);
    sc_exec_post(coding->store->params.exec, &coding->task, sc_store_coding_lane(coding->store));
}

uint64_t sc_store_coder_frames(const struct sc_store_coder *coder)
{
    return coder->layer_bytes / coder->store->limits.op_bytes + 3;
}

uint64_t sc_store_coding_frames_most(const struct sc_store *store)
{
    return sc_frames_count(store->frames) / 8 * 5;
}

struct sc_store_coder *sc_store_coder_begin(struct sc_store *store,
                                            const struct sc_store_coder_plan *plan)
{
    struct sc_store_coding *coding = store->coding;
    struct sc_store_coder *found = NULL;
    if (coding == NULL)
        return NULL;
    uint64_t bytes = sc_store_codes_layer_bytes(store, &store->params.codes.shape,
                                                plan->pieces[0].first_position, plan->row_count);
    pthread_mutex_lock(&coding->lock);
    for (uint32_t i = 0; i < SC_STORE_CODERS && found == NULL && !coding->is_closing; i++)
        found = coding->coders[i].is_used ? NULL : &coding->coders[i];
    if (found != NULL) {
        *found = (struct sc_store_coder){.store = store,
                                         .pieces = found->pieces,
                                         .parts = found->parts,
                                         .is_used = true,
                                         .order = ++coding->order,
                                         .place = plan->place,
                                         .piece_count = plan->piece_count,
                                         .part_count = plan->part_count,
                                         .row_count = plan->row_count,
                                         .layer_bytes = bytes};
        found->is_lost = sc_store_coder_frames(found) >
                         sc_store_coding_frames_most(store); /* it would wait for ever */
    }
    pthread_mutex_unlock(&coding->lock);
    if (found == NULL)
        return NULL;
    memcpy(found->pieces, plan->pieces, plan->piece_count * sizeof(*plan->pieces));
    memcpy(found->parts, plan->parts, plan->part_count * sizeof(*plan->parts));
    return found;
}

void sc_store_coder_packed(struct sc_store_coder *coder)
{
    if (coder == NULL)
        return;
    struct sc_store_coding *coding = coder->store->coding;
    pthread_mutex_lock(&coding->lock);
    coder->packed++;
    sc_store_coding_wake(coding);
    pthread_mutex_unlock(&coding->lock);
}

void sc_store_coder_end(struct sc_store_coder *coder, uint64_t extent_id)
{
    if (coder == NULL)
        return;
    struct sc_store *store = coder->store;
    pthread_mutex_lock(&store->coding->lock);
    coder->is_left = true;
    coder->extent_id = extent_id;
    coder->is_lost = coder->is_lost || extent_id == 0;
    sc_store_coding_wake(store->coding);
    pthread_mutex_unlock(&store->coding->lock);
}

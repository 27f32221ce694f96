/* Codes of rows that are being stored: the task that makes them (coding_state.h).
 *
 * Holds, Does not, Threads: store/coding.h.
 * Tests: tests/unit/store/test_coding.c, tests/fault/test_store_faults.c */
#include "store/coding_state.h"

#include "store/build.h"
#include "store/codes.h"
#include "store/extent.h"
#include "store/where.h"

#include <string.h>

#define STEP_BYTES (1ull << 20) /* of rows that one step codes */
#define WAIT_NS    1000000ull   /* for staging memory */
#define WAITS      5000u        /* then the extent is build.c's */

/* ---- Slabs ---------------------------------------------------------------------------------- */

/* Lock held. Its bytes stay until unpin; false: the frame was reused, its bytes are gone. */
static bool window_pin(struct sc_store *store, struct sc_store_coding_window *window)
{
    if (window->has_left &&
        !sc_frames_claim(store->frames, sc_store_coding_frame_of(store, window), window->ticket))
        return false;
    window->is_pinned = true;
    return true;
}

/* Pins the windows of these bytes of a part. */
static bool slab_pin(struct sc_store_coder *coder, uint32_t part, uint64_t start, uint64_t end)
{
    struct sc_store_coding *coding = coder->store->coding;
    uint64_t at = start;
    coding->pin_count = 0;
    pthread_mutex_lock(&coding->lock);
    bool good = !coder->is_lost;
    for (struct sc_store_coding_window *window = coder->first; good && window != NULL && at < end;
         window = window->next) {
        if (window->part < part || (window->part == part && window->end <= start))
            continue;
        good = window->part == part && window->start <= at &&
               coding->pin_count < coding->pins_max && window_pin(coder->store, window);
        if (good)
            coding->pins[coding->pin_count++] = window;
        at = window->end;
    }
    good = good && at >= end;
    coder->is_lost = coder->is_lost || !good;
    pthread_mutex_unlock(&coding->lock);
    return good;
}

/* Windows that end at or before `end` of the part are coded whole. */
static void slab_unpin(struct sc_store_coder *coder, uint32_t part, uint64_t end)
{
    struct sc_store *store = coder->store;
    struct sc_store_coding *coding = store->coding;
    pthread_mutex_lock(&coding->lock);
    for (uint64_t i = 0; i < coding->pin_count; i++) {
        struct sc_store_coding_window *window = coding->pins[i];
        if (window->end <= end || coder->is_lost) {
            sc_store_window_leave(store, window);
        } else {
            window->is_pinned = false;
            if (window->has_left)
                window->ticket =
                    sc_frames_keep(store->frames, sc_store_coding_frame_of(store, window));
        }
    }
    coding->pin_count = 0;
    while (coder->first != NULL && coder->first->part == part && coder->first->end <= end)
        sc_store_window_leave(store, coder->first); /* tags alone */
    pthread_mutex_unlock(&coding->lock);
}

/* The item at a place of the file, in a pinned window or put together from several. */
static const uint8_t *item_at(struct sc_store_coding *coding, uint64_t at, uint64_t bytes)
{
    const struct sc_store *store = coding->store;
    uint64_t i = 0;
    while (coding->pins[i]->end <= at)
        i++;
    const struct sc_store_coding_window *window = coding->pins[i];
    if (at + bytes <= window->end)
        return sc_store_coding_frame_of(store, window) + (at - window->start);
    uint8_t *item = coding->bounce + coding->bounced++ * store->shape.row_bytes;
    for (uint64_t done = 0, now; done < bytes; done += now) {
        window = coding->pins[i++];
        now = window->end - (at + done) < bytes - done ? window->end - (at + done) : bytes - done;
        memcpy(item + done, sc_store_coding_frame_of(store, window) + (at + done - window->start),
               now);
    }
    return item;
}

/* K's or V's block of a slab that begins at `start`. */
static void block_code(struct sc_store_coder *coder, uint32_t part, uint64_t start)
{
    const struct sc_store *store = coder->store;
    struct sc_store_coding *coding = store->coding;
    const struct sc_store_piece_plan *plan = &coder->pieces[coder->piece];
    bool is_split = store->shape.layout == SC_STORE_SPLIT, is_k = part == SC_STORE_PART_K;
    uint64_t k_bytes = store->shape.k_row_bytes;
    uint64_t bytes = is_split ? k_bytes : store->shape.row_bytes;
    const struct sc_store_extent_entry extent = {.row_count = (uint32_t)coder->row_count};
    struct sc_store_piece_entry piece = {.first_position = plan->first_position,
                                         .extent_row = (uint16_t)coder->row,
                                         .row_count = (uint16_t)plan->row_count};
    struct sc_store_blocks blocks;
    memcpy(piece.hash, plan->hash, sizeof(piece.hash));
    sc_store_codes_blocks(store, &extent, coder->annex->copy, &store->params.codes.shape, &piece,
                          &blocks);
    const uint8_t *rows[SC_LIMIT_CHUNK_TOKENS];
    start += is_split && !is_k ? plan->row_count * bytes : 0;
    coding->bounced = 0;
    for (uint64_t i = 0; i < plan->row_count; i++)
        rows[i] = item_at(coding, start + i * bytes, bytes) + (is_split || is_k ? 0 : k_bytes);
    sc_store_block_make(store, &blocks, coder->layer, part, rows,
                        coding->codes + (is_k ? blocks.k_at : blocks.v_at));
}

/* The next slab of the layer; false: its rows are not there any more. */
static bool slab_code(struct sc_store_coder *coder)
{
    const struct sc_store *store = coder->store;
    const struct sc_store_part *part =
        sc_store_part_of(coder->parts, (uint32_t)coder->part_count, coder->layer);
    uint32_t index = (uint32_t)(part - coder->parts);
    uint64_t row_bytes = store->shape.row_bytes, rows = coder->pieces[coder->piece].row_count;
    uint64_t start = sc_store_part_at(part, coder->place.stride, coder->layer) +
                     coder->place.row_offset + coder->row * row_bytes;
    bool good = slab_pin(coder, index, start, start + rows * row_bytes);
    if (good) {
        block_code(coder, SC_STORE_PART_K, start);
        block_code(coder, SC_STORE_PART_V, start);
        coder->row += rows;
        coder->piece++;
    }
    slab_unpin(coder, index, start + rows * row_bytes);
    return good;
}

/* ---- Coders --------------------------------------------------------------------------------- */

static void coder_lose(struct sc_store_coder *coder)
{
    pthread_mutex_lock(&coder->store->coding->lock);
    coder->is_lost = true;
    pthread_mutex_unlock(&coder->store->coding->lock);
}

static void on_written(struct sc_store_extent *annex, spec_status status, void *user)
{
    struct sc_store_coder *coder = user;
    struct sc_store_coding *coding = coder->store->coding;
    (void)annex;
    pthread_mutex_lock(&coding->lock);
    coder->is_written = true;
    coder->written = status;
    sc_store_coding_wake(coding);
    pthread_mutex_unlock(&coding->lock);
}

/* Nobody codes the extent any more, unless it has an annex now: build.c may. */
static void hand_over(struct sc_store *store, uint64_t extent_id, bool has_codes)
{
    pthread_mutex_lock(&store->log.lock);
    atomic_store(&sc_store_table_extent(&store->table, extent_id)->is_coding, false);
    pthread_mutex_unlock(&store->log.lock);
    if (!has_codes)
        sc_store_build_missed(store, extent_id);
}

/* It is over, and its extent has left it: until now that counted as being coded. */
static void coder_ended(struct sc_store_coder *coder, bool has_codes)
{
    struct sc_store_coding *coding = coder->store->coding;
    if (coder->extent_id != 0)
        hand_over(coder->store, coder->extent_id, has_codes);
    pthread_mutex_lock(&coding->lock);
    coder->is_used = false;
    pthread_mutex_unlock(&coding->lock);
}

/* The coder has no annex any more. */
static void coder_over(struct sc_store_coder *coder, bool has_codes)
{
    struct sc_store *store = coder->store;
    struct sc_store_coding *coding = store->coding;
    pthread_mutex_lock(&coding->lock);
    sc_store_windows_leave(coder);
    coder->is_lost = coder->is_over = true;
    bool is_left = coder->is_left;
    pthread_mutex_unlock(&coding->lock);
    coding->current = coding->current == coder ? NULL : coding->current;
    if (is_left) /* else sc_store_coder_end wakes the task */
        coder_ended(coder, has_codes);
}

/* All writes of its annex ended, and the extent is left unless the codes are lost. */
static void coder_written(struct sc_store_coder *coder)
{
    struct sc_store *store = coder->store;
    pthread_mutex_lock(&store->coding->lock);
    bool good = !coder->is_lost && coder->written == SPEC_OK && coder->extent_id != 0;
    uint64_t extent_id = coder->extent_id;
    pthread_mutex_unlock(&store->coding->lock);
    if (good)
        good = sc_store_annex_commit_to(coder->annex, extent_id, NULL) == SPEC_OK;
    else
        sc_store_extent_discard(coder->annex);
    coder->annex = NULL;
    coder_over(coder, good);
}

static void coder_give_up(struct sc_store_coder *coder)
{
    struct sc_store_coding *coding = coder->store->coding;
    coding->current = coding->current == coder ? NULL : coding->current;
    if (coder->annex == NULL) {
        coder_over(coder, false);
        return;
    }
    pthread_mutex_lock(&coding->lock);
    sc_store_windows_leave(coder);
    coder->is_put = true;
    pthread_mutex_unlock(&coding->lock);
    sc_store_extent_abort(coder->annex);
}

/* ---- Layers --------------------------------------------------------------------------------- */

static void pack_codes(void *user, uint32_t part, uint64_t first, uint64_t count, uint8_t *dst)
{
    const struct sc_store_coding *coding = user;
    (void)part;
    memcpy(dst, coding->codes + first, count);
}

static bool layer_begin(struct sc_store_coder *coder)
{
    struct sc_store *store = coder->store;
    struct sc_store_coding *coding = store->coding;
    if (coder->annex == NULL &&
        sc_store_annex_begin(store, UINT64_MAX, coder->pieces, coder->piece_count,
                             coder->layer_bytes, on_written, coder, &coder->annex,
                             NULL) != SPEC_OK) {
        coder->annex = NULL;
        return false;
    }
    if (coding->codes_bytes < coder->layer_bytes) {
        sc_alloc_free(store->params.alloc, coding->codes);
        coding->codes_bytes = 0;
        coding->codes = sc_alloc(store->params.alloc, coder->layer_bytes);
        if (coding->codes == NULL)
            return false;
        coding->codes_bytes = coder->layer_bytes;
    }
    memset(coding->codes + coder->layer_bytes - 64, 0, 64); /* what blocks do not fill */
    coder->piece = coder->row = 0;
    coder->waits = 0;
    coding->current = coder;
    return true;
}

/* A layer is coded. false: there is no room for it now. */
static bool layer_put(struct sc_store_coder *coder)
{
    struct sc_store *store = coder->store;
    struct sc_store_coding *coding = store->coding;
    if (sc_frames_used(store->frames) + sc_store_coder_frames(coder) >
        sc_store_coding_frames_most(store)) {
        if (++coder->waits > WAITS)
            coder_lose(coder);
        return false;
    }
    coding->current = NULL;
    bool is_last = coder->layer + 1 == store->shape.layer_count;
    const struct sc_store_source source = {.pack = pack_codes, .user = coding};
    spec_status status = sc_store_extent_put_layer(coder->annex, coder->layer, &source, NULL);
    coder->layer++;
    pthread_mutex_lock(&coding->lock);
    coder->is_lost = coder->is_lost || status != SPEC_OK;
    coder->is_put = status != SPEC_OK || is_last;
    if (coder->is_put)
        sc_store_windows_leave(coder);
    pthread_mutex_unlock(&coding->lock);
    return true;
}

/* ---- The task ------------------------------------------------------------------------------- */

/* Lock held. What the coder can be stepped for. */
static bool has_work(const struct sc_store_coder *coder)
{
    if (!coder->is_used)
        return false;
    if (coder->is_over)
        return coder->is_left;
    if (coder->is_put)
        return coder->is_written && (coder->is_left || coder->is_lost);
    return coder->is_lost || coder->layer < coder->packed;
}

/* Lock held. The one that goes on, or that began first; NULL: none. */
static struct sc_store_coder *coder_next(struct sc_store_coding *coding)
{
    struct sc_store_coder *found = coding->current;
    for (uint32_t i = 0; i < SC_STORE_CODERS; i++) {
        struct sc_store_coder *coder = &coding->coders[i];
        coder->is_lost = coder->is_lost || (coder->is_used && coding->is_closing);
        if (coding->current == NULL && has_work(coder) &&
            (found == NULL || coder->order < found->order))
            found = coder;
    }
    return found;
}

/* true: it waits for room. */
static bool coder_step(struct sc_store_coder *coder, bool is_lost)
{
    struct sc_store_coding *coding = coder->store->coding;
    uint64_t bytes = 0;
    if (coder->is_over) {
        coder_ended(coder, false);
    } else if (coder->is_put) {
        coder_written(coder);
    } else if (is_lost) {
        coder_give_up(coder);
    } else if (coding->current == NULL && !layer_begin(coder)) {
        coder_lose(coder);
    } else {
        while (coder->piece < coder->piece_count && bytes < STEP_BYTES) {
            bytes += coder->pieces[coder->piece].row_count * coder->store->shape.row_bytes;
            if (!slab_code(coder))
                return false; /* it is lost */
        }
        if (coder->piece == coder->piece_count)
            return !layer_put(coder);
    }
    return false;
}

/* Lock held. The layer's memory, when nobody will be coded soon. */
static uint8_t *codes_leave(struct sc_store_coding *coding)
{
    uint8_t *codes = coding->codes;
    for (uint32_t i = 0; i < SC_STORE_CODERS; i++)
        if (coding->coders[i].is_used)
            return NULL;
    coding->codes = NULL;
    coding->codes_bytes = 0;
    return codes;
}

static void coding_step(struct sc_task *task)
{
    struct sc_store_coding *coding =
        (struct sc_store_coding *)((char *)task - offsetof(struct sc_store_coding, task));
    struct sc_exec *exec = coding->store->params.exec;
    pthread_mutex_lock(&coding->lock);
    struct sc_store_coder *coder = coder_next(coding);
    bool is_lost = coder != NULL && coder->is_lost;
    coding->is_posted = coder != NULL;
    uint8_t *unused = coder == NULL ? codes_leave(coding) : NULL;
    pthread_mutex_unlock(&coding->lock);
    if (coder == NULL) {
        sc_alloc_free(coding->store->params.alloc, unused);
        sc_store_busy_end(coding->store);
        return;
    }
    bool waits = coder_step(coder, is_lost);
    pthread_mutex_lock(&coding->lock); /* stop cancels what is posted under it */
    if (waits && !coding->is_closing)
        sc_exec_post_at(exec, &coding->task, sc_store_coding_lane(coding->store),
                        sc_exec_now_ns(exec) + WAIT_NS);
    else
        sc_exec_post(exec, &coding->task, sc_store_coding_lane(coding->store));
    pthread_mutex_unlock(&coding->lock);
}

/* ---- Open and close ------------------------------------------------------------------------- */

spec_status sc_store_coding_open(struct sc_store *store, struct spec_error *reterr)
{
    struct sc_alloc *alloc = store->params.alloc;
    uint64_t slab = store->params.config->chunk_tokens * store->shape.row_bytes;
    if (store->params.codes.shape.bits_k == 0 || !store->params.codes.with_rows)
        return SPEC_OK;
    struct sc_store_coding *coding = sc_alloc_zero(alloc, sizeof(*coding));
    if (coding == NULL)
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "what codes rows");
    store->coding = coding;
    coding->store = store;
    coding->task.step = coding_step;
    coding->pins_max = slab / store->limits.op_bytes + 2;
    pthread_mutex_init(&coding->lock, NULL);
    coding->windows =
        sc_alloc_array(alloc, sc_frames_count(store->frames), sizeof(*coding->windows));
    coding->pins = sc_alloc_array(alloc, coding->pins_max, sizeof(struct sc_store_coding_window *));
    coding->bounce = sc_alloc_array(alloc, coding->pins_max, store->shape.row_bytes);
    struct sc_store_piece_plan *pieces =
        sc_alloc_array(alloc, SC_STORE_CODERS * store->limits.pieces_max, sizeof(*pieces));
    coding->coders[0].pieces = pieces;
    struct sc_store_part *parts =
        sc_alloc_array(alloc, SC_STORE_CODERS * (uint64_t)store->shape.layer_count, sizeof(*parts));
    coding->coders[0].parts = parts;
    if (coding->windows == NULL || coding->pins == NULL || coding->bounce == NULL ||
        pieces == NULL || parts == NULL)
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "what codes rows");
    for (uint32_t i = 0; i < SC_STORE_CODERS; i++) {
        coding->coders[i].pieces = pieces + i * store->limits.pieces_max;
        coding->coders[i].parts = parts + (uint64_t)i * store->shape.layer_count;
    }
    return SPEC_OK;
}

bool sc_store_coding_runs(struct sc_store *store)
{
    struct sc_store_coding *coding = store->coding;
    bool runs = false;
    if (coding == NULL)
        return false;
    pthread_mutex_lock(&coding->lock);
    for (uint32_t i = 0; i < SC_STORE_CODERS; i++)
        runs = runs || (coding->coders[i].is_used && coding->coders[i].extent_id != 0);
    pthread_mutex_unlock(&coding->lock);
    return runs;
}

void sc_store_coding_stop(struct sc_store *store)
{
    struct sc_store_coding *coding = store->coding;
    if (coding == NULL)
        return;
    pthread_mutex_lock(&coding->lock);
    coding->is_closing = true;
    if (sc_exec_cancel(store->params.exec, &coding->task)) /* it waits for room: no more */
        sc_exec_post(store->params.exec, &coding->task, sc_store_coding_lane(store));
    sc_store_coding_wake(coding);
    pthread_mutex_unlock(&coding->lock);
}

void sc_store_coding_close(struct sc_store *store)
{
    struct sc_store_coding *coding = store->coding;
    struct sc_alloc *alloc = store->params.alloc;
    if (coding == NULL)
        return;
    sc_alloc_free(alloc, coding->coders[0].parts);
    sc_alloc_free(alloc, coding->coders[0].pieces);
    sc_alloc_free(alloc, coding->codes);
    sc_alloc_free(alloc, coding->bounce);
    sc_alloc_free(alloc, coding->pins);
    sc_alloc_free(alloc, coding->windows);
    pthread_mutex_destroy(&coding->lock);
    sc_alloc_free(alloc, coding);
    store->coding = NULL;
}

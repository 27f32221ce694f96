/* fetch_match: prefetches a match to host memory. Contract: store/read/fetch_match.h. */
#include "store/read/fetch_match.h"

#include "store/cache/host_tier_slab.h"
#include "store/cache/readback.h"
#include "store/read/fetch_selectors.h"
#include "store/read/scan_plan.h"
#include "store/space/segment.h"

#include <string.h>

#define WINDOWS      2u /* one is verified while the other is read */
#define WINDOW_BYTES (4ull << 20)
#define PIECES       SC_STORE_SELECTOR_FETCH_PIECES
#define LOOKS        1024u                 /* pieces examined per step, so that a cancel is fast */

struct piece { /* a piece of a window whose slab was begun */
    const struct sc_store_piece_entry *entry;
    struct sc_host_slab_fill fill; /* rows only */
    uint64_t range, bytes;
    uint32_t stretch, layer;
};

struct window {
    struct sc_store_match_fetcher *fetcher;
    struct sc_task task;
    struct sc_store_readback back;
    struct sc_store_selector_fetch fetch; /* in the memory of `back` */
    bool is_choice;              /* the window has selector keys; else rows */
    uint32_t piece_count;
    struct piece pieces[PIECES];
};

struct sc_store_match_fetcher {
    struct sc_store *store;
    struct window windows[WINDOWS];

    pthread_mutex_t lock; /* rank 28 */
    /* Guarded by lock. */
    struct sc_store_match_fetch what;
    uint32_t running; /* windows that have not ended; 0: idle */
    bool is_cancelled, closing;
    bool is_loose; /* a published slab could not be kept; nothing may be evicted from then on */
    uint32_t pass; /* [selector keys of layer 0, 1 ..][rows of layer 0, 1 ..] */
    uint64_t range;
    struct sc_store_match_fetched staged;
};

/* ---- Next window: lock held ------------------------------------------------------------------ */

/* Returns all readable rows of the range's piece. Returns false if the piece is void. */
static bool whole_of(const struct sc_store *store, const struct sc_store_range *range,
                     struct sc_store_range *ret_whole,
                     const struct sc_store_piece_entry **ret_entry,
                     const struct sc_store_extent_entry **ret_extent)
{
    uint64_t row;
    *ret_extent = sc_store_range_find(store, 0, range, &row);
    if (*ret_extent == NULL)
        return false;
    *ret_entry = sc_store_table_piece(&store->table, range->piece);
    *ret_whole = (struct sc_store_range){
        .piece = range->piece,
        .row_first = (*ret_entry)->skip,
        .row_count = (uint32_t)((*ret_entry)->row_count - (*ret_entry)->skip)};
    return true;
}

static uint32_t pass_end(const struct sc_store_match_fetcher *fetcher)
{
    return 2 * fetcher->store->shape.layer_count;
}

static uint32_t layer_of(const struct sc_store_match_fetcher *fetcher)
{
    return fetcher->pass % fetcher->store->shape.layer_count;
}

static bool is_choice(const struct sc_store_match_fetcher *fetcher)
{
    return fetcher->pass < fetcher->store->shape.layer_count;
}

static void fetch_ends(struct sc_store_match_fetcher *fetcher, spec_status status, uint64_t range)
{
    if (fetcher->staged.status == SPEC_OK) {
        fetcher->staged.status = status;
        fetcher->staged.failed_range = range;
    }
    fetcher->pass = pass_end(fetcher);
}

/* Moves to the next range with rows, in this pass or a later one. Returns false at the end. */
static bool range_seek(struct sc_store_match_fetcher *fetcher)
{
    const struct sc_store_match_fetch *what = &fetcher->what;
    while (fetcher->pass < pass_end(fetcher)) {
        while (fetcher->range < what->range_count && what->ranges[fetcher->range].row_count == 0)
            fetcher->range++;
        if (fetcher->range < what->range_count)
            return true;
        fetcher->range = 0;
        fetcher->pass++;
    }
    return false;
}

/* Returns true if the piece continues the window's last stretch and fits one operation with it. */
static bool piece_joins(const struct sc_store *store, const struct sc_store_stretch_rows *last,
                        const struct sc_store_extent_entry *extent, uint32_t layer,
                        const struct sc_store_piece_entry *entry)
{
    uint64_t first = (uint64_t)entry->extent_row + entry->skip;
    uint64_t end = (uint64_t)entry->extent_row + entry->row_count;
    return last->extent == extent && last->layer == layer && last->end == first &&
           (end - last->first) * store->shape.row_bytes <= store->limits.op_bytes;
}

/* Keeps the piece's slab if it is published, else begins it. Reports FULL after a published slab
 * could not be kept, because a new slab might evict it. */
static enum sc_host_tier_begun slab_begin(struct sc_store_match_fetcher *fetcher,
                                          const struct sc_host_slab_wish *wish,
                                          struct sc_host_slab_fill *fill)
{
    const struct sc_store *store = fetcher->store;
    uint64_t keeper = fetcher->what.keeper;
    if (sc_host_slab_keep(store, wish, keeper))
        return SC_STORE_HOST_THERE;
    bool is_there = sc_host_tier_has(store->host, &wish->key);
    if (is_there && sc_host_slab_keep(store, wish, keeper)) /* published meanwhile */
        return SC_STORE_HOST_THERE;
    fetcher->is_loose = fetcher->is_loose || is_there;
    if (fetcher->is_loose)
        return is_there ? SC_STORE_HOST_THERE : SC_STORE_HOST_FULL;
    return sc_host_slab_begin_kept(store, fill, wish, keeper);
}

/* Returns true if loads read only the (readable) piece's quantised rows in the layer. */
static bool reads_quant_alone(const struct sc_store *store,
                              const struct sc_store_match_fetch_wants *wants, uint32_t layer,
                              const struct sc_store_range *whole)
{
    struct sc_store_blocks blocks;
    return wants->is_quant && layer >= wants->rows_end &&
           sc_store_selector_quant_of(store, whole, &blocks) != NULL;
}

/* Returns true if the piece is before the layer's window at the end of the match. */
static bool is_unseen(const struct sc_store_match_fetch_wants *wants, uint32_t layer,
                      const struct sc_store_piece_entry *entry)
{
    uint64_t window = wants->windows != NULL ? wants->windows[layer] : 0;
    return entry->first_position + entry->row_count <= sc_store_window_first(window, wants->end);
}

/* Plans a window of rows and begins its slabs. Returns the number of stretches in ret_rows. */
static uint32_t rows_plan(struct sc_store_match_fetcher *fetcher, struct window *window,
                          struct sc_store_stretch_rows *ret_rows)
{
    struct sc_store *store = fetcher->store;
    uint64_t used = 0;
    uint32_t count = 0;
    for (uint32_t i = 0; i < LOOKS && window->piece_count < PIECES && range_seek(fetcher);
         i++, fetcher->range++) {
        struct piece *piece = &window->pieces[window->piece_count];
        const struct sc_store_extent_entry *extent;
        struct sc_host_slab_wish wish;
        struct sc_store_range whole;
        uint32_t layer = layer_of(fetcher);
        if (!whole_of(store, &fetcher->what.ranges[fetcher->range], &whole, &piece->entry,
                      &extent)) {
            fetch_ends(fetcher, SPEC_E_CORRUPT, fetcher->range); /* a load reports the same */
            break;
        }
        if (reads_quant_alone(store, &fetcher->what.wants, layer, &whole) ||
            is_unseen(&fetcher->what.wants, layer, piece->entry) ||
            !sc_host_slab_wish(store, layer, &whole, &wish))
            continue;
        uint64_t first = (uint64_t)piece->entry->extent_row + piece->entry->skip;
        bool joins =
            count > 0 && piece_joins(store, &ret_rows[count - 1], extent, layer, piece->entry);
        uint64_t bytes = sc_store_stretch_bytes(store, piece->entry->row_count);
        if ((!joins && count == SC_STORE_STRETCHES) ||
            (count > 0 && used + bytes > window->back.memory_bytes))
            break;
        enum sc_host_tier_begun begun = slab_begin(fetcher, &wish, &piece->fill);
        if (begun == SC_STORE_HOST_FULL) {
            fetch_ends(fetcher, SPEC_E_NO_SPACE, fetcher->range);
            break;
        }
        if (begun != SC_STORE_HOST_BEGUN)
            continue;
        if (!joins)
            ret_rows[count++] = (struct sc_store_stretch_rows){
                .extent = extent, .layer = layer, .from = piece->entry, .first = first};
        ret_rows[count - 1].to = piece->entry;
        ret_rows[count - 1].end = first + whole.row_count;
        piece->stretch = count - 1;
        piece->layer = layer;
        piece->range = fetcher->range;
        piece->bytes = wish.bytes;
        window->piece_count++;
        used += bytes;
    }
    return count;
}

/* Plans a window of one layer's selector keys. Returns the number of pieces. */
static uint32_t choice_plan(struct sc_store_match_fetcher *fetcher, struct window *window)
{
    const struct sc_store *store = fetcher->store;
    struct sc_store_selector_fetch *fetch = &window->fetch;
    uint32_t pass = fetcher->pass;
    sc_store_selector_fetch_begin(fetch, &fetcher->what.wants, layer_of(fetcher),
                                  window->back.memory, window->back.memory_bytes);
    for (uint32_t i = 0;
         i < LOOKS && fetch->count < PIECES && range_seek(fetcher) && fetcher->pass == pass;
         i++, fetcher->range++) {
        const struct sc_store_range *range = &fetcher->what.ranges[fetcher->range];
        struct piece *piece = &window->pieces[fetch->count];
        const struct sc_store_extent_entry *extent;
        struct sc_host_slab_wish wish;
        struct sc_store_range whole;
        if (!whole_of(store, range, &whole, &piece->entry, &extent)) {
            fetch_ends(fetcher, SPEC_E_CORRUPT, fetcher->range);
            break;
        }
        if (!sc_store_selector_fetch_wish(fetch, &whole, &wish))
            continue;
        if (!sc_store_selector_fetch_fits(fetch, &wish))
            break;
        enum sc_host_tier_begun begun = slab_begin(fetcher, &wish, &fetch->fills[fetch->count]);
        if (begun == SC_STORE_HOST_FULL) {
            fetch_ends(fetcher, SPEC_E_NO_SPACE, fetcher->range);
            break;
        }
        if (begun != SC_STORE_HOST_BEGUN)
            continue;
        piece->range = fetcher->range;
        piece->bytes = wish.bytes;
        sc_store_selector_fetch_add(fetch, &wish);
    }
    return window->piece_count = fetch->count;
}

/* Plans a window. Returns its stretches or pieces; 0 if nothing that was examined is to be read. */
static uint32_t window_plan(struct sc_store_match_fetcher *fetcher, struct window *window,
                            struct sc_store_stretch_rows *ret_rows)
{
    window->piece_count = 0;
    window->is_choice = range_seek(fetcher) && is_choice(fetcher);
    return window->is_choice ? choice_plan(fetcher, window) : rows_plan(fetcher, window, ret_rows);
}

/* Lock held. Returns true if nothing is left to examine. */
static bool is_through(const struct sc_store_match_fetcher *fetcher)
{
    return fetcher->is_cancelled || fetcher->pass == pass_end(fetcher);
}

static spec_status piece_take(struct window *window, struct piece *piece)
{
    const struct sc_store *store = window->fetcher->store;
    uint64_t first = (uint64_t)piece->entry->extent_row + piece->entry->skip;
    struct sc_store_back back;
    bool good = sc_store_readback_rows(&window->back, piece->stretch, piece->entry, first,
                                       piece->fill.row_count, &back);
    if (good)
        sc_host_slab_put(store, &piece->fill, 0, piece->fill.row_count, back.tags, back.halves[0],
                         back.halves[1]);
    sc_host_slab_end(store, &piece->fill, good);
    return good ? SPEC_OK : sc_store_readback_why(&window->back, piece->stretch);
}

static void rows_take(struct sc_store_match_fetcher *fetcher, struct window *window,
                      bool is_cancelled)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < window->piece_count; i++) {
        struct piece *piece = &window->pieces[i];
        if (is_cancelled) {
            sc_host_slab_end(fetcher->store, &piece->fill, false);
            continue;
        }
        spec_status status = piece_take(window, piece);
        if (status == SPEC_OK) {
            bytes += piece->bytes;
            continue;
        }
        pthread_mutex_lock(&fetcher->lock);
        fetch_ends(fetcher, status, piece->range);
        pthread_mutex_unlock(&fetcher->lock);
    }
    window->piece_count = 0;
    (void)sc_store_readback_clear(&window->back);
    pthread_mutex_lock(&fetcher->lock);
    fetcher->staged.bytes += bytes;
    pthread_mutex_unlock(&fetcher->lock);
}

/* Ends the pieces of a window of selector keys, which are published already or unavailable. */
static void choice_take(struct sc_store_match_fetcher *fetcher, struct window *window,
                        bool is_cancelled)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < window->piece_count; i++) {
        bool is_there = window->fetch.fills[i].slab == NULL;
        spec_status status = sc_store_selector_fetch_end(&window->fetch, i);
        bytes += is_there ? window->pieces[i].bytes : 0;
        if (status == SPEC_OK || is_cancelled)
            continue;
        pthread_mutex_lock(&fetcher->lock);
        fetch_ends(fetcher, status, window->pieces[i].range);
        pthread_mutex_unlock(&fetcher->lock);
    }
    window->piece_count = 0;
    pthread_mutex_lock(&fetcher->lock);
    fetcher->staged.bytes += bytes;
    pthread_mutex_unlock(&fetcher->lock);
}

/* Ends the window. The last one calls done; nothing is touched afterwards. */
static void window_end(struct sc_store_match_fetcher *fetcher, struct window *window)
{
    struct sc_store *store = fetcher->store;
    sc_store_readback_leave(&window->back);
    pthread_mutex_lock(&fetcher->lock);
    const struct sc_store_match_fetch what = fetcher->what;
    struct sc_store_match_fetched staged = fetcher->staged;
    if (fetcher->is_cancelled)
        staged.status = SPEC_E_DROPPED;
    bool is_last = --fetcher->running == 0;
    pthread_mutex_unlock(&fetcher->lock);
    if (is_last)
        what.done(&staged, what.user);
    sc_store_busy_end(store);
}

/* Returns true if the task will be posted when the reads complete; it may run already. */
static bool window_read(struct window *window, const struct sc_store_stretch_rows *rows,
                        uint32_t count)
{
    if (window->is_choice)
        return count > 0 && sc_store_selector_fetch_next(&window->fetch);
    for (uint32_t i = 0; i < count; i++)
        sc_store_readback_add(&window->back, &rows[i]);
    return sc_store_readback_submit(&window->back);
}

static void window_step(struct sc_task *task)
{
    struct window *window = SC_TASK_OWNER(task, struct window, task);
    struct sc_store_match_fetcher *fetcher = window->fetcher;
    struct sc_store_stretch_rows rows[SC_STORE_STRETCHES];
    pthread_mutex_lock(&fetcher->lock);
    bool is_cancelled = fetcher->is_cancelled;
    pthread_mutex_unlock(&fetcher->lock);
    if (window->piece_count > 0 && window->is_choice && !is_cancelled &&
        sc_store_selector_fetch_next(&window->fetch))
        return; /* more reads of this window */
    if (window->piece_count > 0 && window->is_choice)
        choice_take(fetcher, window, is_cancelled);
    else if (window->piece_count > 0)
        rows_take(fetcher, window, is_cancelled);
    pthread_mutex_lock(&fetcher->lock);
    uint32_t count = fetcher->is_cancelled ? 0 : window_plan(fetcher, window, rows);
    bool ends = count == 0 && is_through(fetcher);
    pthread_mutex_unlock(&fetcher->lock);
    if (ends) {
        window_end(fetcher, window);
        return;
    }
    if (!window_read(window, rows, count)) /* nothing to read */
        sc_exec_post(fetcher->store->params.exec, &window->task, SC_IO_CLASS_BACKGROUND);
}

static bool memory_take(struct sc_store_match_fetcher *fetcher,
                        const struct sc_store_match_fetch *what)
{
    const struct sc_store *store = fetcher->store;
    uint64_t most = WINDOW_BYTES;
    bool good = true;
    for (uint64_t i = 0; i < what->range_count; i++) {
        const struct sc_store_piece_entry *entry =
            sc_store_table_piece(&store->table, what->ranges[i].piece);
        uint64_t bytes = entry != NULL ? sc_store_stretch_bytes(store, entry->row_count) : 0;
        most = bytes > most ? bytes : most;
        struct sc_store_range whole;
        const struct sc_store_extent_entry *extent;
        if (what->wants.choice_from < store->shape.layer_count &&
            whole_of(store, &what->ranges[i], &whole, &entry, &extent))
            bytes = sc_store_selector_fetch_bytes(store, &what->wants, &whole);
        most = bytes > most ? bytes : most;
    }
    for (uint32_t i = 0; i < WINDOWS && good; i++)
        good = sc_store_readback_take(&fetcher->windows[i].back, most);
    for (uint32_t i = 0; i < WINDOWS && !good; i++)
        sc_store_readback_leave(&fetcher->windows[i].back);
    return good;
}

bool sc_store_can_fetch_match(const struct sc_store *store)
{
    return store->fetcher != NULL;
}

spec_status sc_store_match_fetch_begin(struct sc_store *store,
                                       const struct sc_store_match_fetch *what,
                                       struct spec_error *reterr)
{
    struct sc_store_match_fetcher *fetcher = store->fetcher;
    if (fetcher == NULL)
        return sc_fail(reterr, SPEC_E_UNSUPPORTED, "host_bytes is 0: there is no host tier");
    pthread_mutex_lock(&fetcher->lock);
    bool is_free = fetcher->running == 0 && !fetcher->closing;
    if (is_free)
        fetcher->running = WINDOWS;
    pthread_mutex_unlock(&fetcher->lock);
    if (!is_free)
        return sc_fail(reterr, SPEC_E_BUSY, "another match is staged, or the store closes");
    bool good = memory_take(fetcher, what);
    pthread_mutex_lock(&fetcher->lock);
    fetcher->what = *what;
    fetcher->running = good ? WINDOWS : 0;
    fetcher->is_cancelled = fetcher->closing;
    fetcher->pass = what->wants.choice_from;
    fetcher->range = 0;
    fetcher->is_loose = false;
    fetcher->staged = (struct sc_store_match_fetched){.status = SPEC_OK};
    pthread_mutex_unlock(&fetcher->lock);
    if (!good)
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "windows to stage a match through");
    atomic_fetch_add(&store->busy, WINDOWS);
    for (uint32_t i = 0; i < WINDOWS; i++)
        sc_exec_post(store->params.exec, &fetcher->windows[i].task, SC_IO_CLASS_BACKGROUND);
    return SPEC_OK;
}

/* Returns true if host memory has the slabs of layers [first, end). Counts without the lock
 * first. */
static bool has_layers(const struct sc_store *store, const struct sc_host_tier_key *key,
                       uint32_t first, uint32_t end)
{
    bool is_all = first == 0 && end == store->shape.layer_count;
    return sc_host_tier_layers(store->host, key, NULL) >= end - first &&
           (is_all || first == end ||
            sc_host_tier_layers_in(store->host, key, first, end) == end - first);
}

/* Returns true if every layer that reads the piece's rows has them in host memory. */
static bool has_seen_layers(const struct sc_store *store,
                            const struct sc_store_match_fetch_wants *wants,
                            const struct sc_store_piece_entry *entry,
                            const struct sc_store_range *whole)
{
    struct sc_host_slab_wish wish;
    for (uint32_t layer = 0; layer < store->shape.layer_count; layer++)
        if (!is_unseen(wants, layer, entry) && (!sc_host_slab_wish(store, layer, whole, &wish) ||
                                                !sc_host_tier_has(store->host, &wish.key)))
            return false;
    return true;
}

bool sc_store_match_fetch_has(const struct sc_store *store,
                              const struct sc_store_match_fetch_wants *wants, uint64_t piece)
{
    const struct sc_store_piece_entry *entry = sc_store_table_leased(&store->table, piece);
    uint32_t layers = store->shape.layer_count;
    struct sc_host_slab_wish wish;
    if (entry == NULL)
        return false;
    const struct sc_store_range whole = {.piece = piece,
                                         .row_first = entry->skip,
                                         .row_count = (uint32_t)(entry->row_count - entry->skip)};
    struct sc_store_selector_plan plan = sc_store_selector_fetch_plan(store, wants, 0);
    plan.ranges = &whole;
    if (wants->choice_from < layers && sc_store_selector_wish(&plan, 0, &wish) &&
        !has_layers(store, &wish.key, wants->choice_from, layers))
        return false;
    uint32_t rows_end = wants->rows_end;
    rows_end = reads_quant_alone(store, wants, rows_end, &whole) ? rows_end : layers;
    if (wants->windows != NULL)
        return has_seen_layers(store, wants, entry, &whole);
    return sc_host_slab_wish(store, 0, &whole, &wish) && has_layers(store, &wish.key, 0, rows_end);
}

void sc_store_match_fetch_cancel(struct sc_store *store)
{
    if (store->fetcher == NULL)
        return;
    pthread_mutex_lock(&store->fetcher->lock);
    store->fetcher->is_cancelled = true;
    pthread_mutex_unlock(&store->fetcher->lock);
}

void sc_store_match_fetch_let_go(struct sc_store *store, uint64_t keeper, uint64_t until_ns)
{
    sc_host_tier_let_go(store->host, keeper, until_ns);
}

spec_status sc_store_match_fetcher_open(struct sc_store *store, struct spec_error *reterr)
{
    if (store->host == NULL)
        return SPEC_OK;
    struct sc_store_match_fetcher *fetcher = sc_alloc_zero(store->params.alloc, sizeof(*fetcher));
    if (fetcher == NULL)
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "what stages matches");
    fetcher->store = store;
    pthread_mutex_init(&fetcher->lock, NULL);
    for (uint32_t i = 0; i < WINDOWS; i++) {
        struct window *window = &fetcher->windows[i];
        window->fetcher = fetcher;
        window->task.step = window_step;
        window->back.store = store;
        window->back.task = &window->task;
        window->fetch.store = store;
        window->fetch.task = &window->task;
    }
    store->fetcher = fetcher;
    return SPEC_OK;
}

void sc_store_match_fetcher_stop(struct sc_store *store)
{
    if (store->fetcher == NULL)
        return;
    pthread_mutex_lock(&store->fetcher->lock);
    store->fetcher->closing = store->fetcher->is_cancelled = true;
    pthread_mutex_unlock(&store->fetcher->lock);
}

void sc_store_match_fetcher_close(struct sc_store *store)
{
    if (store->fetcher == NULL)
        return;
    pthread_mutex_destroy(&store->fetcher->lock);
    sc_alloc_free(store->params.alloc, store->fetcher);
    store->fetcher = NULL;
}

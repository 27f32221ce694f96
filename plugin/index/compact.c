/* compact: combines pieces stored in many passes into one piece per chunk (docs/decisions/0016).
 *
 *   pieces   [0][1][2] ... [63] | [64][65]     decoded token by token; 63 ends the chunk and leaves
 *                                              an id free behind it; 65 is the prompt's end
 *   job      tails of ended requests, then a cursor over ids for chunk ends
 *              -> the chunk's runs -> the store reads and writes
 *   commit   a chunk: under the free id, so before its children
 *            a prompt's end, which has none: under the next id -> record -> the runs get the piece
 *   waiting  until requests matched before are released -> the old pieces are dropped
 *
 * Invariants: the pieces are consecutive in one chunk, equal in provenance, held as rows, without a
 * child older than the new piece's id. Rows are durable before the log names them: a crash leaves
 * the old pieces, the new one, or both. The next open keeps the new one. Averages restart.
 * Threads: the job (executor, one at a time); tail and on_compacted any. */
#include "plugin/connector.h"

#include <string.h>

#define PIECES_MIN 4u    /* per chunk; fewer are not worth another write */
#define LOOKS      4096u /* ids per step */
#define TRIES      16u   /* for lack of space, memory or frames */
#define WAITING    64u   /* compacted pieces whose old ones are not dropped yet */

/* The old pieces of one compacted piece. */
struct waiting {
    uint64_t before; /* requests taken before this may use them */
    bool is_durable; /* the new piece's record is durable */
    uint32_t count, least;
    uint32_t old[SC_LIMIT_CHUNK_TOKENS];
};

/* A chunk or a prompt's end to be compacted. */
struct candidate {
    uint64_t last;  /* piece that ends it; 0: none */
    uint64_t bound; /* pieces up to this id must not be children of its runs */
    bool is_tail;
    uint64_t first, end; /* tokens */
    uint64_t count;
    uint64_t pieces[SC_LIMIT_CHUNK_TOKENS];
    uint32_t flags;
    struct sc_store_provenance provenance;
};

struct sc_plugin_compact {
    /* The job's. */
    uint64_t next; /* pieces with lower ids were examined */
    uint64_t tail; /* prompt's end under examination; 0: none */
    uint64_t epoch;
    uint32_t tries;
    struct candidate candidate, again;
    struct sc_radix_chunk chunk;
    struct sc_store_mark marks[SC_LIMIT_CHUNK_TOKENS];
    struct waiting waiting[WAITING];
    uint32_t waiting_count;

    /* Guarded by jobs.lock. */
    bool runs;
    struct sc_store_extent *written; /* to be committed */
    spec_status status;              /* of the last compaction, once it has ended */
};

/* ---- Which pieces --------------------------------------------------------------------------- */

/* Index lock held. Tests whether segments [*i, end) are all rows of one piece like the last. */
static bool piece_fits(spec_connector *conn, const struct sc_radix_chunk *chunk, uint64_t end,
                       const struct candidate *candidate, uint64_t *ret_i)
{
    uint64_t i = end - 1, piece = chunk->segments[i].value.piece, rows = chunk->segments[i].count;
    struct sc_store_piece_place place;
    struct sc_store_provenance provenance;
    while (i > 0 && chunk->segments[i - 1].value.piece == piece)
        rows += chunk->segments[--i].count;
    *ret_i = i;
    for (uint64_t s = i; s < end; s++) {
        bool hangs_behind = s + 1 == chunk->segment_count && !candidate->is_tail;
        if (chunk->segments[s].value.flags != candidate->flags ||
            (chunk->beside[s] <= candidate->bound && !hangs_behind))
            return false;
    }
    return sc_store_piece_place(conn->store, piece, &place) &&
           rows == place.row_count - place.skip &&
           chunk->segments[i].first == place.first_position + place.skip &&
           sc_store_piece_provenance(conn->store, piece, &provenance) &&
           memcmp(&provenance, &candidate->provenance, sizeof(provenance)) == 0;
}

/* Index lock held. Finds what can be compacted of the piece's chunk; false: too little. */
static bool candidate_find(spec_connector *conn, struct sc_radix_chunk *chunk, uint64_t last,
                           struct candidate *ret)
{
    struct sc_radix_ref run = sc_plugin_ref_of(sc_store_piece_mark(conn->store, last));
    ret->last = 0;
    if (!sc_store_piece_provenance(conn->store, last, &ret->provenance) ||
        !sc_radix_chunk_of(conn->radix, run, chunk))
        return false;
    uint64_t end = chunk->segment_count;
    const struct sc_radix_segment *tail = &chunk->segments[end - 1];
    ret->end = tail->first + tail->count;
    ret->flags = tail->value.flags;
    if (tail->value.piece != last)
        return false;
    ret->is_tail = ret->end % conn->config.chunk_tokens != 0;
    ret->bound = ret->is_tail ? UINT64_MAX - 1 : last + 1;
    ret->last = last;
    ret->first = ret->end;
    ret->count = 0;
    for (uint64_t i; end > 0 && piece_fits(conn, chunk, end, ret, &i); end = i) {
        ret->pieces[ret->count++] = chunk->segments[i].value.piece;
        ret->first = chunk->segments[i].first;
    }
    for (uint64_t i = 0; i < ret->count / 2; i++) { /* collected from the end */
        uint64_t piece = ret->pieces[i];
        ret->pieces[i] = ret->pieces[ret->count - 1 - i];
        ret->pieces[ret->count - 1 - i] = piece;
    }
    return ret->count >= PIECES_MIN;
}

void sc_plugin_compact_tail(spec_connector *conn, uint64_t piece)
{
    pthread_mutex_lock(&conn->jobs.lock);
    if (conn->compaction.tail_count == SC_PLUGIN_TAILS) { /* the oldest is not compacted */
        conn->compaction.tail_first = (conn->compaction.tail_first + 1) % SC_PLUGIN_TAILS;
        conn->compaction.tail_count--;
    }
    conn->compaction
        .tails[(conn->compaction.tail_first + conn->compaction.tail_count++) % SC_PLUGIN_TAILS] =
        piece;
    pthread_mutex_unlock(&conn->jobs.lock);
    sc_plugin_kick(conn, SC_JOB_COMPACT);
}

static uint64_t tail_next(spec_connector *conn, struct sc_plugin_compact *compact)
{
    pthread_mutex_lock(&conn->jobs.lock);
    if (compact->tail == 0 && conn->compaction.tail_count > 0) {
        compact->tail = conn->compaction.tails[conn->compaction.tail_first];
        conn->compaction.tail_first = (conn->compaction.tail_first + 1) % SC_PLUGIN_TAILS;
        conn->compaction.tail_count--;
    }
    pthread_mutex_unlock(&conn->jobs.lock);
    return compact->tail;
}

/* Returns the next piece that may end one; 0: none among LOOKS, or at all (*ret_more false). */
static uint64_t candidate_next(spec_connector *conn, struct sc_plugin_compact *compact,
                               bool *ret_more)
{
    if (tail_next(conn, compact) != 0)
        return compact->tail;
    uint64_t end = sc_store_piece_next(conn->store);
    struct sc_store_piece_place place;
    uint64_t stop = end - compact->next < LOOKS ? end : compact->next + LOOKS;
    while (compact->next < stop) {
        if (sc_store_piece_place(conn->store, compact->next, &place) && place.leaves_ids)
            return compact->next;
        uint64_t from = sc_store_piece_from(conn->store, compact->next + 1); /* gaps may be long */
        compact->next = from < end ? from : end;
    }
    *ret_more = compact->next < end;
    return 0;
}

/* ---- Reading and writing -------------------------------------------------------------------- */

static void on_compacted(struct sc_store_extent *extent, spec_status status, void *user)
{
    spec_connector *conn = user;
    struct sc_plugin_compact *compact = conn->compaction.job;
    pthread_mutex_lock(&conn->jobs.lock);
    bool closed = conn->jobs.closed;
    compact->runs = false;
    compact->status = status;
    compact->written = closed ? NULL : extent;
    pthread_mutex_unlock(&conn->jobs.lock);
    if (closed && extent != NULL)
        sc_store_extent_discard(extent);
    sc_plugin_kick(conn, SC_JOB_COMPACT);
}

static void candidate_end(struct sc_plugin_compact *compact)
{
    compact->tries = 0;
    compact->next += compact->tail == 0;
    compact->tail = 0;
}

/* Ends a failed attempt. Returns false to retry at the next kick, true to go on with the next. */
static bool pass_over(struct sc_plugin_compact *compact, spec_status status)
{
    bool is_want = status == SPEC_E_BUSY || status == SPEC_E_NO_SPACE || status == SPEC_E_NO_MEMORY;
    if (is_want && ++compact->tries < TRIES) /* may succeed later */
        return false;
    candidate_end(compact);
    return true;
}

/* Returns true if the next candidate may be tried now. */
static bool compact_begin(spec_connector *conn, struct sc_plugin_compact *compact, uint64_t last)
{
    const struct candidate *candidate = &compact->candidate;
    const struct sc_radix_chunk *chunk = &compact->chunk;
    struct spec_error error = {.struct_size = sizeof(error)};
    if (sc_store_budget_wait_ns(conn->store) > 0) /* passes precede; the next kick retries */
        return false;
    compact->epoch = atomic_load(&conn->epoch);
    pthread_mutex_lock(&conn->index.lock);
    bool found = candidate_find(conn, &compact->chunk, last, &compact->candidate);
    pthread_mutex_unlock(&conn->index.lock);
    if (!found)
        return pass_over(compact, SPEC_E_DROPPED);
    struct sc_store_compact what = {
        .pieces = candidate->pieces,
        .piece_count = candidate->count,
        .plan = {.first_position = candidate->first,
                 .chunk_first = chunk->first,
                 .row_count = (uint32_t)(candidate->end - candidate->first)},
        .provenance = candidate->provenance,
        .bytes_per_s = conn->config.maintain_bytes_per_s,
        .done = on_compacted,
        .user = conn};
    sc_hash_to_bytes(chunk->border, what.plan.chunk_hash);
    sc_hash_to_bytes(chunk->segments[chunk->segment_count - 1].hash, what.plan.hash);
    pthread_mutex_lock(&conn->jobs.lock);
    compact->runs = true;
    pthread_mutex_unlock(&conn->jobs.lock);
    spec_status status = sc_store_compact_begin(conn->store, &what, &error);
    if (status == SPEC_OK)
        return false;
    SC_LOG(&conn->log, SPEC_LOG_DEBUG, "%" PRIu64 " pieces are not compacted: %s", candidate->count,
           error.text);
    pthread_mutex_lock(&conn->jobs.lock);
    compact->runs = false;
    pthread_mutex_unlock(&conn->jobs.lock);
    return pass_over(compact, status);
}

/* ---- Committing ----------------------------------------------------------------------------- */

/* commit_lock held. Returns true if the runs are those that were read. */
static bool is_same(spec_connector *conn, struct sc_plugin_compact *compact)
{
    const struct candidate *was = &compact->candidate, *is = &compact->again;
    pthread_mutex_lock(&conn->index.lock);
    bool found = candidate_find(conn, &compact->chunk, was->last, &compact->again);
    pthread_mutex_unlock(&conn->index.lock);
    return found && compact->epoch == atomic_load(&conn->epoch) && is->first == was->first &&
           is->end == was->end && is->count == was->count && is->flags == was->flags &&
           memcmp(is->pieces, was->pieces, is->count * sizeof(is->pieces[0])) == 0 &&
           memcmp(&is->provenance, &was->provenance, sizeof(is->provenance)) == 0;
}

/* commit_lock held, record logged. Assigns the piece to the runs. */
static bool runs_move(spec_connector *conn, struct sc_plugin_compact *compact, uint64_t piece)
{
    const struct candidate *candidate = &compact->candidate;
    uint64_t mark = sc_store_piece_mark(conn->store, candidate->last);
    const struct sc_radix_value value = {piece, 0, candidate->flags};
    pthread_mutex_lock(&conn->index.lock);
    bool moved = sc_radix_move(conn->radix, sc_plugin_ref_of(mark), candidate->first, &value, NULL);
    if (moved)
        sc_store_piece_set_mark(conn->store, piece, mark);
    pthread_mutex_unlock(&conn->index.lock);
    return moved;
}

static void wait_begin(spec_connector *conn, struct sc_plugin_compact *compact)
{
    const struct candidate *candidate = &compact->candidate;
    struct waiting *waiting = &compact->waiting[compact->waiting_count++];
    waiting->before = atomic_load(&conn->requests.taken);
    waiting->is_durable = false;
    waiting->count = (uint32_t)candidate->count;
    waiting->least = UINT32_MAX;
    for (uint64_t i = 0; i < candidate->count; i++) {
        waiting->old[i] = (uint32_t)candidate->pieces[i];
        waiting->least = waiting->old[i] < waiting->least ? waiting->old[i] : waiting->least;
    }
}

/* commit_lock held. Replaces the pieces. */
static spec_status compact_commit(spec_connector *conn, struct sc_plugin_compact *compact,
                                  struct sc_store_extent *extent, struct spec_error *reterr)
{
    const struct sc_radix_chunk *chunk = &compact->chunk;
    uint64_t piece = 0;
    if (!is_same(conn, compact)) {
        sc_store_extent_discard(extent);
        return sc_fail(reterr, SPEC_E_DROPPED, "they are not what they were");
    }
    struct sc_store_commit commit = {.token_first = chunk->first,
                                     .tokens = chunk->tokens,
                                     .marks = compact->marks,
                                     .mark_count = chunk->mark_count,
                                     .behind =
                                         compact->candidate.is_tail ? 0 : compact->candidate.last};
    memcpy(commit.root, chunk->root.bytes, sizeof(commit.root));
    sc_plugin_marks_stored((struct sc_marks){chunk->marks, chunk->mark_count}, compact->marks);
    spec_status status = sc_store_extent_commit(extent, &commit, &piece, reterr);
    if (status != SPEC_OK)
        return status;
    if (!runs_move(conn, compact, piece)) { /* a load has failed in between */
        sc_store_piece_drop(conn->store, piece);
        return sc_fail(reterr, SPEC_E_DROPPED, "they are not there any more");
    }
    wait_begin(conn, compact);
    sc_store_build_quant(conn->store);
    sc_count(&conn->stats.compacted_chunks, 1);
    return SPEC_OK;
}

/* Ends a read and write. Returns true if the next may follow. */
static bool compact_end(spec_connector *conn, struct sc_plugin_compact *compact,
                        struct sc_store_extent *extent, spec_status status)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    if (extent != NULL)
        status = sc_store_extent_sync(extent, &error);
    if (extent != NULL && status != SPEC_OK)
        sc_store_extent_discard(extent);
    if (extent != NULL && status == SPEC_OK) {
        pthread_mutex_lock(&conn->commit_lock);
        sc_plugin_drops_flush(conn);
        status = compact_commit(conn, compact, extent, &error);
        pthread_mutex_unlock(&conn->commit_lock);
    }
    if (status != SPEC_OK)
        SC_LOG(&conn->log, status == SPEC_E_CORRUPT ? SPEC_LOG_WARN : SPEC_LOG_DEBUG,
               "the %" PRIu64 " pieces up to %" PRIu64 " are not compacted: %s: %s",
               compact->candidate.count, compact->candidate.last, sc_status_name(status),
               error.text);
    if (status != SPEC_OK)
        return pass_over(compact, status);
    candidate_end(compact);
    return true;
}

/* ---- Old pieces ----------------------------------------------------------------------------- */

/* Returns true if a request may have one of them in its ranges. */
static bool is_held(spec_connector *conn, const struct waiting *waiting)
{
    for (uint32_t i = 0; i < conn->config.max_requests + SC_PLUGIN_PEEKS; i++) {
        struct sc_plugin_request *request = &conn->requests.slots[i];
        if (sc_plugin_request_phase(request) != SC_REQUEST_FREE &&
            atomic_load(&request->taken) < waiting->before &&
            atomic_load(&request->piece_last) >= waiting->least)
            return true;
    }
    return false;
}

static void old_drop(spec_connector *conn, const struct waiting *waiting)
{
    uint64_t pieces[SC_LIMIT_CHUNK_TOKENS];
    for (uint32_t i = 0; i < waiting->count; i++)
        pieces[i] = waiting->old[i];
    sc_store_pieces_drop(conn->store, pieces, waiting->count);
}

/* Makes the records durable: dropping allows the old pages to be overwritten. False: failed. */
static bool waiting_sync(spec_connector *conn, struct sc_plugin_compact *compact)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    if (sc_store_log_sync(conn->store, &error) != SPEC_OK) {
        SC_LOG(&conn->log, SPEC_LOG_WARN, "compacted pieces are kept twice: %s", error.text);
        return false;
    }
    for (uint32_t i = 0; i < compact->waiting_count; i++)
        compact->waiting[i].is_durable = true;
    return true;
}

static void waiting_end(spec_connector *conn, struct sc_plugin_compact *compact)
{
    uint32_t kept = 0;
    bool syncs = true; /* until one fails */
    for (uint32_t i = 0; i < compact->waiting_count; i++) {
        bool is_held_now = is_held(conn, &compact->waiting[i]);
        if (!is_held_now && !compact->waiting[i].is_durable && syncs)
            syncs = waiting_sync(conn, compact);
        if (is_held_now || !compact->waiting[i].is_durable)
            compact->waiting[kept++] = compact->waiting[i];
        else
            old_drop(conn, &compact->waiting[i]);
    }
    bool went = kept < compact->waiting_count;
    compact->waiting_count = kept;
    atomic_store(&conn->compaction.waiting, kept + (compact->tries > 0));
    if (went && sc_store_checkpoint_due(conn->store))
        sc_plugin_kick(conn, SC_JOB_CHECKPOINT);
}

/* ---- The job -------------------------------------------------------------------------------- */

static struct sc_plugin_compact *compact_make(spec_connector *conn)
{
    struct sc_plugin_compact *compact = sc_alloc_zero(&conn->alloc, sizeof(*compact));
    if (compact == NULL)
        return NULL; /* the next kick tries again */
    compact->next = 1;
    conn->compaction.job = compact;
    return compact;
}

bool sc_plugin_compact_some(spec_connector *conn)
{
    if (conn->ranks.is_member) /* ids that were left free would be taken by several */
        return false;
    struct sc_plugin_compact *compact =
        conn->compaction.job != NULL ? conn->compaction.job : compact_make(conn);
    bool more = false;
    if (compact == NULL)
        return false;
    pthread_mutex_lock(&conn->jobs.lock);
    bool runs = compact->runs;
    struct sc_store_extent *extent = compact->written;
    spec_status status = compact->status;
    compact->written = NULL;
    compact->status = SPEC_OK;
    pthread_mutex_unlock(&conn->jobs.lock);
    bool goes_on =
        (extent == NULL && status == SPEC_OK) || compact_end(conn, compact, extent, status);
    if (!runs && goes_on && !sc_plugin_is_bypassed(conn) &&
        compact->waiting_count < WAITING) { /* else its end kicks, or a request's */
        uint64_t last = candidate_next(conn, compact, &more);
        more = last != 0 ? compact_begin(conn, compact, last) : more;
    }
    waiting_end(conn, compact);
    return more;
}

void sc_plugin_compact_close(spec_connector *conn)
{
    struct sc_plugin_compact *compact = conn->compaction.job;
    if (compact == NULL)
        return;
    pthread_mutex_lock(&conn->jobs.lock); /* a running compaction ends later */
    struct sc_store_extent *extent = compact->written;
    compact->written = NULL;
    pthread_mutex_unlock(&conn->jobs.lock);
    if (extent != NULL)
        sc_store_extent_discard(extent);
}

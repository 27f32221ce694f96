/* Extents that have codes and no rows: who may take them for a match, and which become so.
 *
 *   lookup   match, pinned -> segments whose pieces are coarse only: marked; the match ends before
 *            the first of them where rows are needed
 *   evict    oldest leaf -> up, as long as nothing else hangs on it -> the first extent that can:
 *            codes read back, a layer a step -> marked, runs lossy, pins looked at -> record
 *            none can: the leaf goes behind all that were not asked; only they are evicted
 *
 *   root -- [ A A A A ] -- [ B B ]          A, B extents; the leaf is B's. B gives its rows up,
 *                                           later A; only then the leaf goes (decision 0010)
 *
 * Holds: an extent whose rows a request of this process may ask for keeps them; no leaf goes for
 * bytes before each, but what has just come, was asked for rows since its last use. (Codes that
 * come and pins that go later are seen when its turn to go has come.) Does not: wait for leases
 * (the store's quarantine does). Threads: find_coarse any; some: the executor's, one at a time (the
 * job of evict.c). Tests: tests/unit/plugin/test_coarse.c, conformance (abi_157_*, abi_158_*) */
#include "plugin/args/provenance.h"
#include "plugin/connector.h"

#define STEPS_MAX  4096u /* runs above a leaf that are looked at with the index' lock held, */
#define LEAVES_MAX 16u   /* and leaves, one after the other */

/* ---- Matches -------------------------------------------------------------------------------- */

void sc_plugin_coarse_find(const spec_connector *conn, struct sc_plugin_request *request,
                           uint64_t segment_count, uint64_t marks_before, uint64_t expiry_ns)
{
    uint64_t marks = sc_store_coarse_marks(conn->store);
    for (uint64_t i = 0; i < segment_count && marks > 0; i++) {
        struct sc_radix_value *value = &request->segments[i].value;
        bool may_be = value->flags != SPEC_PROVENANCE_EXACT || marks != marks_before;
        if (may_be && sc_store_piece_is_coarse(conn->store, value->piece, expiry_ns))
            value->flags |= SC_PLUGIN_FLAG_COARSE;
    }
}

uint64_t sc_plugin_coarse_first(const spec_connector *conn, const struct sc_plugin_request *request,
                                uint64_t segment_count, uint64_t from_token, bool needs_rows)
{
    uint64_t marks = sc_store_coarse_marks(conn->store);
    for (uint64_t i = 0; i < segment_count && marks > 0; i++) {
        const struct sc_radix_segment *segment = &request->segments[i];
        if ((segment->value.flags & SC_PLUGIN_FLAG_COARSE) != 0 &&
            segment->first + segment->count > from_token &&
            (needs_rows || sc_store_piece_is_unread(conn->store, segment->value.piece)))
            return segment->first;
    }
    return UINT64_MAX;
}

void sc_plugin_coarse_worsen(struct sc_radix *radix, uint64_t piece, uint64_t mark)
{
    struct sc_radix_segment segment;
    if (sc_radix_get(radix, sc_plugin_ref_of(mark), &segment) && segment.value.piece == piece &&
        segment.value.flags < SPEC_PROVENANCE_LOSSY)
        (void)sc_radix_flags_set(radix, segment.node, SPEC_PROVENANCE_LOSSY);
}

void sc_plugin_on_coarse(uint64_t piece, uint64_t mark, void *user)
{
    spec_connector *conn = user;
    pthread_mutex_lock(&conn->index.lock);
    sc_plugin_coarse_worsen(conn->radix, piece, mark);
    pthread_mutex_unlock(&conn->index.lock);
}

/* ---- Which extent --------------------------------------------------------------------------- */

/* Index lock held. On the way from the leaf to the root, as far as nothing else hangs on it: the
 * lowest extent all of whose pieces lie there. */
static bool extent_above(spec_connector *conn, struct sc_radix_segment at,
                         struct sc_store_coarse_extent *ret_extent)
{
    struct sc_radix_segment above;
    struct sc_store_coarse_extent found = {0};
    uint64_t count = 0;
    bool is_alone = true;
    for (uint32_t i = 0; i < STEPS_MAX && is_alone; i++, at = above) {
        bool has_above = sc_radix_above(conn->radix, at.node, &above, &is_alone);
        if (has_above && above.value.piece == at.value.piece)
            continue; /* the rest of the piece, which others may share */
        struct sc_store_coarse_extent next = sc_store_coarse_find(conn->store, at.value.piece);
        count = next.id == found.id ? count + 1 : 1;
        found = next;
        if (found.id != 0 && count == found.live_count) {
            *ret_extent = found;
            return !sc_radix_is_pinned(conn->radix, at.node);
        }
        if (!has_above)
            return false;
    }
    return false;
}

enum victim { NONE, FOUND, LATER };

/* Index lock held. Among these leaves, the one that was used longest ago and has
 * an extent that can; those that have none are set behind on the way. NONE: no leaf has one. LATER:
 * many had none; the next ones have not been looked at. */
static enum victim victim_find(spec_connector *conn, struct sc_plugin_coarse *coarse,
                               struct sc_radix_among among)
{
    struct sc_radix_segment leaf;
    for (uint32_t i = 0; i < LEAVES_MAX; i++) {
        if (!sc_plugin_index_leaf(conn, among, &leaf))
            return NONE;
        coarse->leaf = leaf.node;
        if (extent_above(conn, leaf, &coarse->extent))
            return FOUND;
        if (sc_radix_is_behind(conn->radix, leaf.node))
            return NONE;
        sc_radix_set_behind(conn->radix, leaf.node);
    }
    return LATER;
}

/* ---- Giving rows up ------------------------------------------------------------------------- */

/* Index lock held. The runs of the extent's live pieces say what they are worth (worsens: as codes
 * alone). Returns the highest of them. */
static struct sc_radix_ref runs_set(spec_connector *conn,
                                    const struct sc_store_coarse_extent *extent, bool worsens)
{
    struct sc_radix_ref top = {0};
    for (uint64_t id = extent->piece_first; id <= extent->piece_last; id++) {
        uint64_t mark = sc_store_piece_mark(conn->store, id);
        struct sc_store_provenance of;
        struct sc_radix_segment segment;
        if (!sc_store_piece_provenance(conn->store, id, &of) ||
            !sc_radix_get(conn->radix, sc_plugin_ref_of(mark), &segment) ||
            segment.value.piece != id)
            continue;
        if (top.generation == 0)
            top = segment.node;
        if (worsens)
            sc_plugin_coarse_worsen(conn->radix, id, mark);
        else
            (void)sc_radix_flags_set(conn->radix, segment.node, sc_plugin_provenance_kind(&of));
    }
    return top;
}

/* Index lock held. Whether a request holds one of the runs, or one below. */
static bool is_held(spec_connector *conn, struct sc_radix_ref top)
{
    struct sc_radix_segment at, above;
    bool is_alone;
    if (!sc_radix_get(conn->radix, top, &at))
        return false;
    while (sc_radix_above(conn->radix, at.node, &above, &is_alone) &&
           above.value.piece == at.value.piece)
        at = above;
    return sc_radix_is_pinned(conn->radix, at.node);
}

/* The commit's lock is held. false: it keeps its rows. */
static bool rows_give(spec_connector *conn, const struct sc_plugin_coarse *coarse)
{
    const struct sc_store_coarse_extent *extent = &coarse->extent;
    struct spec_error error = {.struct_size = sizeof(error)};
    uint64_t pieces = extent->live_count;
    pthread_mutex_lock(&conn->index.lock);
    sc_store_coarse_mark(conn->store, extent->id);
    struct sc_radix_ref top = runs_set(conn, extent, true);
    sc_store_coarse_marked(conn->store);
    bool gives = top.generation != 0 && !is_held(conn, top);
    pthread_mutex_unlock(&conn->index.lock);
    if (gives && sc_store_coarse_commit(conn->store, extent->id, &error) != SPEC_OK) {
        SC_LOG(&conn->log, SPEC_LOG_WARN, "rows are kept beside their codes: %s", error.text);
        gives = false;
    }
    pthread_mutex_lock(&conn->index.lock);
    if (!gives) {
        sc_store_coarse_unmark(conn->store, extent->id);
        (void)runs_set(conn, extent, false);
    }
    if (!gives)
        sc_radix_pass_over(conn->radix, coarse->leaf);
    pthread_mutex_unlock(&conn->index.lock);
    sc_count(&conn->stats.coarsened_chunks, gives ? pieces : 0);
    return gives;
}

/* Whether rows may go alone at all. */
static bool is_on(const spec_connector *conn)
{
    return conn->choice.takes_coarse && conn->config.coarse_only;
}

bool sc_plugin_coarse_is_asked(const spec_connector *conn, struct sc_radix_ref leaf)
{
    return !is_on(conn) || sc_radix_is_behind(conn->radix, leaf);
}

bool sc_plugin_coarse_can(const spec_connector *conn, uint64_t piece)
{
    return is_on(conn) && sc_store_coarse_find(conn->store, piece).id != 0;
}

bool sc_plugin_coarse_some(spec_connector *conn, struct sc_radix_among among)
{
    struct sc_plugin_coarse *coarse = &conn->evict.coarse;
    if (!is_on(conn))
        return false;
    if (coarse->extent.id == 0) {
        pthread_mutex_lock(&conn->index.lock);
        enum victim found = victim_find(conn, coarse, among);
        pthread_mutex_unlock(&conn->index.lock);
        coarse->extent.id = found == FOUND ? coarse->extent.id : 0;
        coarse->layer = 0;
        if (found != FOUND)
            return found == LATER;
    }
    spec_status status = sc_store_coarse_check(conn->store, coarse->extent.id, coarse->layer);
    if (status != SPEC_OK) {
        coarse->extent.id = 0;
        return status == SPEC_E_CORRUPT; /* another, or the leaf; else the leaf, and it later */
    }
    if (++coarse->layer < conn->dims.layer_count)
        return true;
    pthread_mutex_lock(&conn->commit_lock);
    bool gave = rows_give(conn, coarse);
    pthread_mutex_unlock(&conn->commit_lock);
    coarse->extent.id = 0;
    return gave;
}

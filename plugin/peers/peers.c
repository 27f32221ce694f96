/* peers: follows other processes' logs into indexes here, at each tick (tick.c).
 *
 *   own log (a reader)      -> own index
 *   log of each other rank  -> one index per rank
 *   lookup: the minimum over own index and each peer's
 *
 * A promise on another process's data ends lease_ns_max after its log was last read. A log missing
 * or not read for that long promises nothing. Only notifications (notify.c) are written for others.
 *
 * An index is changed by one thread at a time, under index.lock or the peer's lock. It holds the
 * lock for one piece, so that attach waits briefly; lookups take no lock. */
#include "plugin/peers/peers.h"
#include "plugin/args/lease.h"
#include "plugin/args/provenance.h"
#include "plugin/connector.h"

#define TURN_WINDOWS 64u /* of a log per tick, 1 MiB each */

struct sc_plugin_peer { /* another rank */
    /* Set by open, constant after. */
    spec_connector *conn;
    struct sc_store *store;
    struct sc_radix *radix;
    uint32_t rank;

    _Atomic uint64_t pieces_followed; /* pieces with lower ids are indexed, or void */
    pthread_mutex_t lock;             /* rank 10; the index's writer; memory only */

    /* The tick's (and open's). */
    bool lacks_memory;
    struct sc_plugin_old_roots old_roots;
    spec_status status; /* of following; changes are logged once */
};

struct dropped {
    spec_connector *conn;
    uint64_t piece;
    bool has_orphans; /* its children are in the log without drop records so far */
};

/* False while a process opens: its jobs would read what the open still fills. */
static bool drops_for_all(const spec_connector *conn)
{
    return conn->ranks.is_member && sc_plugin_can_store(conn);
}

static void dropped_removed(const struct sc_radix_segment *segment, void *user)
{
    struct dropped *dropped = user;
    bool is_orphan = segment->value.piece != dropped->piece;
    dropped->has_orphans = dropped->has_orphans || is_orphan;
    /* A member drops them for all: whoever dropped their parent may not know them. */
    if (is_orphan && drops_for_all(dropped->conn))
        sc_plugin_piece_drop_later(dropped->conn, segment->value.piece);
}

/* The index's writer. Returns false if the run was removed or compacted into another piece. */
static bool has_run(struct sc_radix *radix, uint64_t piece, uint64_t mark)
{
    struct sc_radix_segment run;
    return sc_radix_get(radix, sc_plugin_ref_of(mark), &run) && run.value.piece == piece;
}

void sc_plugin_on_drop(uint64_t piece, uint64_t mark, void *user)
{
    spec_connector *conn = user;
    struct dropped dropped = {.conn = conn, .piece = piece};
    struct sc_radix_removal removal = {.removed = dropped_removed, .user = &dropped};
    pthread_mutex_lock(&conn->index.lock);
    if (has_run(conn->radix, piece, mark)) {
        sc_plugin_grace_entry_begin(conn, sc_plugin_ref_of(mark), false);
        (void)sc_radix_remove(conn->radix, sc_plugin_ref_of(mark), SC_RADIX_PIECE, &removal);
    }
    conn->index.has_orphans = conn->index.has_orphans || dropped.has_orphans;
    pthread_mutex_unlock(&conn->index.lock);
    if (dropped.has_orphans && drops_for_all(conn))
        sc_plugin_kick(conn, SC_JOB_TIDY);
}

void sc_plugin_on_epoch(uint64_t epoch, void *user)
{
    spec_connector *conn = user;
    pthread_mutex_lock(&conn->index.lock);
    sc_plugin_epoch_move(conn, epoch);
    sc_plugin_roots_are_old(conn->radix, &conn->index.old_roots);
    pthread_mutex_unlock(&conn->index.lock);
}

static spec_status peer_on_secret(const uint8_t secret[SC_STORE_SECRET_BYTES], void *user,
                                  struct spec_error *reterr)
{
    struct sc_plugin_peer *peer = user;
    pthread_mutex_lock(&peer->lock);
    spec_status status = sc_radix_secret_set(peer->radix, secret, reterr);
    pthread_mutex_unlock(&peer->lock);
    return status;
}

static bool peer_piece_holds(const struct sc_store_piece *piece, void *user)
{
    const struct sc_plugin_peer *peer = user;
    return sc_plugin_index_holds(peer->radix, piece);
}

static bool peer_on_piece(const struct sc_store_piece *piece, uint64_t *ret_mark, void *user)
{
    struct sc_plugin_peer *peer = user;
    pthread_mutex_lock(&peer->lock);
    bool believed =
        sc_plugin_piece_index(peer->conn, peer->radix, &peer->lacks_memory, piece, ret_mark);
    pthread_mutex_unlock(&peer->lock);
    return believed;
}

static void peer_on_drop(uint64_t piece, uint64_t mark, void *user)
{
    struct sc_plugin_peer *peer = user;
    pthread_mutex_lock(&peer->lock);
    if (has_run(peer->radix, piece, mark))
        (void)sc_radix_remove(peer->radix, sc_plugin_ref_of(mark), SC_RADIX_PIECE, NULL);
    pthread_mutex_unlock(&peer->lock);
}

static void peer_on_epoch(uint64_t epoch, void *user)
{
    struct sc_plugin_peer *peer = user;
    (void)epoch; /* the tick asks the store */
    sc_plugin_roots_are_old(peer->radix, &peer->old_roots);
}

/* Uses rank 0's estimates only, so that all ranks promise the same. */
static void peer_on_note(const uint16_t *words, uint64_t count, void *user)
{
    struct sc_plugin_peer *peer = user;
    if (peer->rank == 0 && words[0] >> 8 == SC_PLUGIN_NOTE_ESTIMATE)
        sc_plugin_load_policy_heard(peer->conn, words, count);
}

/* ---- Peers ----------------------------------------------------------------------------------- */

static spec_status peer_open(spec_connector *conn, struct sc_plugin_peer *peer, uint32_t rank,
                             const struct sc_store_params *own, struct spec_error *reterr)
{
    *peer = (struct sc_plugin_peer){.conn = conn, .rank = rank};
    pthread_mutex_init(&peer->lock, NULL);
    spec_status status = sc_plugin_index_open(conn, &peer->radix, reterr);
    if (status != SPEC_OK)
        return status;
    struct sc_store_params params = *own;
    params.rank = rank;
    params.role = SC_STORE_PEER;
    params.on_secret = peer_on_secret;
    params.piece_holds = peer_piece_holds;
    params.on_piece = peer_on_piece;
    params.on_pieces_soon = NULL;
    params.on_piece_soon = NULL;
    params.on_drop = peer_on_drop;
    params.on_epoch = peer_on_epoch;
    params.on_average = NULL;
    params.on_note = peer_on_note;
    params.on_written = NULL;
    params.user = peer;
    status = sc_store_open(&params, &peer->store, reterr);
    if (status == SPEC_OK)
        atomic_store(&peer->pieces_followed, sc_store_piece_next(peer->store));
    return status;
}

spec_status sc_plugin_peers_open(spec_connector *conn, const struct sc_store_params *own,
                                 struct spec_error *reterr)
{
    if (conn->ranks.count == 1)
        return SPEC_OK;
    conn->ranks.peers =
        sc_alloc_array(&conn->alloc, conn->ranks.count - 1, sizeof(*conn->ranks.peers));
    if (conn->ranks.peers == NULL)
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "%" PRIu32 " ranks", conn->ranks.count);
    spec_status status = SPEC_OK;
    for (uint32_t rank = 0; rank < conn->ranks.count && status == SPEC_OK; rank++)
        if (rank != conn->ranks.rank)
            status =
                peer_open(conn, &conn->ranks.peers[conn->ranks.peer_count++], rank, own, reterr);
    return status;
}

void sc_plugin_peers_close(spec_connector *conn)
{
    for (uint64_t i = 0; i < conn->ranks.peer_count; i++) {
        sc_store_close(conn->ranks.peers[i].store);
        sc_radix_close(conn->ranks.peers[i].radix);
        pthread_mutex_destroy(&conn->ranks.peers[i].lock);
    }
    sc_alloc_free(&conn->alloc, conn->ranks.peers);
}

void sc_plugin_peers_fork_close(spec_connector *conn)
{
    for (uint64_t i = 0; i < conn->ranks.peer_count; i++)
        if (conn->ranks.peers[i].store != NULL)
            sc_store_fork_close(conn->ranks.peers[i].store);
}

uint64_t sc_plugin_peers_match(spec_connector *conn, const struct sc_radix_query *query,
                               uint64_t end)
{
    for (uint64_t i = 0; i < conn->ranks.peer_count && end > 0; i++) {
        struct sc_radix_query shorter = *query;
        struct sc_radix_match match;
        shorter.token_count = end;
        sc_radix_match(conn->ranks.peers[i].radix, &shorter, NULL, 0, &match);
        end = match.token_count;
    }
    return end;
}

/* Returns the longest end <= `most` at which the peer has a whole branch, or 0. Adds to `worst`. */
static uint64_t branch_end(const struct sc_plugin_peer *peer, const struct sc_radix_query *query,
                           const struct sc_radix_branch *branch, uint64_t most,
                           struct spec_provenance *worst)
{
    struct sc_radix_query shorter = *query;
    struct sc_radix_branch any = *branch;
    struct sc_radix_match match, found;
    shorter.token_count = most;
    sc_radix_match_pin(peer->radix, &shorter, NULL, 0, &match);
    any.count = 0; /* other ranks have other layers */
    any.most = match.token_count;
    bool has = sc_radix_branch_pin(peer->radix, match.last, &any, NULL, 0, &found);
    if (has && found.last_flags != SPEC_PROVENANCE_EXACT)
        sc_plugin_provenance_add_piece(worst, peer->store, found.last_piece);
    if (has)
        sc_radix_unpin(peer->radix, found.last);
    sc_radix_unpin(peer->radix, match.last);
    return has ? found.token_count : 0;
}

bool sc_plugin_peers_branch(spec_connector *conn, const struct sc_radix_query *query,
                            const struct sc_radix_branch *branch, uint64_t *least,
                            struct spec_provenance *worst)
{
    uint64_t own = *least;
    bool is_same = true;
    for (uint64_t i = 0; i < conn->ranks.peer_count; i++) {
        uint64_t end = branch_end(&conn->ranks.peers[i], query, branch, branch->most, worst);
        is_same = is_same && end == own;
        *least = end < *least ? end : *least;
    }
    return is_same;
}

void sc_plugin_peers_provenance(spec_connector *conn, const struct sc_radix_query *query,
                                uint64_t end, struct spec_provenance *worst)
{
    for (uint64_t i = 0; i < conn->ranks.peer_count && end > 0; i++) {
        const struct sc_plugin_peer *peer = &conn->ranks.peers[i];
        struct sc_radix_query shorter = *query;
        struct sc_radix_match match;
        shorter.token_count = end;
        sc_radix_match(peer->radix, &shorter, NULL, 0, &match);
        if (match.last_flags != SPEC_PROVENANCE_EXACT) /* never improves along a path */
            sc_plugin_provenance_add_piece(worst, peer->store, match.last_piece);
    }
}

static struct sc_plugin_peer *peer_of(const spec_connector *conn, uint32_t rank)
{
    for (uint64_t i = 0; i < conn->ranks.peer_count; i++)
        if (conn->ranks.peers[i].rank == rank)
            return &conn->ranks.peers[i];
    return NULL;
}

bool sc_plugin_peer_has(const spec_connector *conn, uint32_t rank, uint64_t piece)
{
    const struct sc_plugin_peer *peer = peer_of(conn, rank);
    return peer != NULL && atomic_load(&peer->pieces_followed) > piece &&
           !sc_store_piece_is_left(peer->store, piece);
}

spec_status sc_plugin_peer_recall(spec_connector *conn, const struct sc_plugin_lease *lease,
                                  const struct sc_radix_room *room,
                                  struct sc_radix_attached *ret_attached)
{
    struct sc_plugin_peer *peer = peer_of(conn, lease->rank);
    if (peer == NULL)
        return SPEC_E_STALE;
    sc_plugin_lock(conn, &peer->lock);
    struct sc_radix_claim claim = {
        .run = sc_plugin_ref_of(sc_store_piece_mark(peer->store, lease->piece)),
        .piece = lease->piece,
        .piece_first = sc_store_piece_first(peer->store, lease->piece),
        .place = lease->place};
    spec_status status = sc_radix_recall(peer->radix, &claim, room, ret_attached, NULL);
    pthread_mutex_unlock(&peer->lock);
    return status;
}

/* Returns the earliest time (executor's clock) at which a followed log was known completely; 0: one
 * is missing; UINT64_MAX: none is followed. */
static uint64_t known_ns(const spec_connector *conn)
{
    uint64_t known = UINT64_MAX;
    if (sc_plugin_follows(conn))
        known = sc_store_follow_now_ns(conn->store);
    for (uint64_t i = 0; i < conn->ranks.peer_count; i++) {
        uint64_t ns = sc_store_follow_now_ns(conn->ranks.peers[i].store);
        known = ns < known ? ns : known;
    }
    return known;
}

uint64_t sc_plugin_promise_end(const spec_connector *conn)
{
    uint64_t known = known_ns(conn), now = sc_exec_now_ns(conn->exec);
    uint64_t wall = sc_exec_wall_ns(conn->exec), lease = conn->config.lease_ns_max;
    if (known == UINT64_MAX)
        return lease > 0 ? wall + lease : UINT64_MAX;
    uint64_t age = known < now ? now - known : 0;
    return known > 0 && age < lease ? wall + (lease - age) : 0;
}

uint64_t sc_plugin_follow_lag_ns(const spec_connector *conn)
{
    uint64_t known = known_ns(conn), now = sc_exec_now_ns(conn->exec);
    return known < now ? now - known : 0;
}

uint64_t sc_plugin_epoch_known(const spec_connector *conn)
{
    uint64_t epoch = sc_store_epoch(conn->store);
    for (uint64_t i = 0; i < conn->ranks.peer_count; i++) {
        uint64_t other = sc_store_epoch(conn->ranks.peers[i].store);
        epoch = other > epoch ? other : epoch;
    }
    return epoch;
}

/* ---- Following ------------------------------------------------------------------------------- */

static bool log_follow(spec_connector *conn, struct sc_store *store, uint32_t rank,
                       spec_status *last_status)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    spec_status status = SPEC_OK;
    bool more = true;
    if (!sc_store_follow_due(store))
        return false;
    for (uint32_t i = 0; i < TURN_WINDOWS && more && status == SPEC_OK; i++)
        status = sc_store_follow(store, &more, &error);
    if (status != *last_status && status != SPEC_OK)
        SC_LOG(&conn->log, SPEC_LOG_WARN, "log of rank %" PRIu32 " is not followed: %s", rank,
               error.text);
    *last_status = status;
    return more && status == SPEC_OK;
}

void sc_plugin_lease_seed_find(spec_connector *conn)
{
    uint8_t store_id[16];
    if (atomic_load(&conn->ranks.lease_seed) == 0 && sc_store_id(conn->store, store_id))
        atomic_store(&conn->ranks.lease_seed, sc_plugin_lease_seed(store_id, conn->family));
}

bool sc_plugin_follow_own(spec_connector *conn)
{
    if (!sc_plugin_follows(conn))
        return false;
    pthread_mutex_lock(&conn->ranks.follow_lock);
    bool more = log_follow(conn, conn->store, conn->ranks.rank, &conn->ranks.follow_status);
    sc_plugin_lease_seed_find(conn);
    atomic_store(&conn->ranks.pieces_followed, sc_store_piece_next(conn->store));
    pthread_mutex_unlock(&conn->ranks.follow_lock);
    return more;
}

/* Removes what was only hidden, because a lookup pinned a branch there. */
static void hidden_sweep(struct sc_plugin_peer *peer)
{
    struct sc_radix_stats stats;
    sc_radix_stats(peer->radix, &stats);
    if (stats.hidden == 0)
        return;
    pthread_mutex_lock(&peer->lock);
    (void)sc_radix_sweep(peer->radix, NULL);
    pthread_mutex_unlock(&peer->lock);
}

bool sc_plugin_peers_follow(spec_connector *conn)
{
    bool more = false;
    for (uint64_t i = 0; i < conn->ranks.peer_count; i++) {
        struct sc_plugin_peer *peer = &conn->ranks.peers[i];
        more = log_follow(conn, peer->store, peer->rank, &peer->status) || more;
        atomic_store(&peer->pieces_followed, sc_store_piece_next(peer->store));
        more = sc_plugin_roots_clear(peer->radix, &peer->lock, &peer->old_roots) || more;
        hidden_sweep(peer);
    }
    return more;
}

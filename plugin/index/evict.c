/* Eviction: what is worth least goes (base/policy.h), leaf by leaf, until there is room (decisions
 * 0015, 0027, 0055).
 *
 *   segments    [ live ............................ | quarantine | free ]
 *                                                   |<--  share   ---->|
 *   share       what was stored, or missed, in a lease's time, and a quarter more; 1/8 .. 5/8
 *
 *   radix       root -- [0..64) -- [64..90) -- [90..128)    the last is a leaf: it goes first
 *                          \------ [64..128)                 pinned: passed over
 *
 * First what no lookup here can find (other namespaces, earlier epochs), then leaves; a piece goes
 * with its last run. Hints of requests come before the order of use: by priority, and what is of
 * use for some time yet after all that is not. Nothing goes for a pass, or for the demand of passes
 * like it, that would go later than the pass itself; a pass that would go first of all is not
 * admitted (decision 0055). What was asked for beyond the share goes too: for a pass as long as
 * that until it would fit, and if it finds no room though enough is free in sum, or the index is
 * full, once nothing is on its way out of quarantine. What a device that failed lately refuses
 * lacks no room and asks for none.
 *
 * Holds: a step evicts something, turns to the demand of another class, or is the last one. Runs
 * leave the index before their pieces' records, and nothing is committed in between.
 * Does not: wait for leases (the store's quarantine does), evict what is pinned, evict while the
 * device fails: drops could not be written down. */
#include "plugin/index/evict.h"
#include "plugin/connector.h"

#define LEAST_PART   8u            /* of what may be held: at least this is free or on its way, */
#define MOST_PART(x) ((x) / 8 * 5) /* and at most this: the rest lives, whatever is asked for */
#define DEMAND_PART  4u            /* of what a lease took, more: evicting comes a little behind */
#define GAP_PART     64u           /* goes at once, so that not each commit is followed by a job */
#define LEAVES       64u           /* of a step: index.lock is held for so many */
#define RUNS_PART    16u           /* of a full index */
#define LOOKS        1024u         /* runs that are looked at for what could go before a pass */
#define CRUMBS_PART  128u /* of the disk: what a pass takes beyond its own bytes, at most */

/* The most that anybody asked for since it was looked at last. */
static void asked_raise(_Atomic uint64_t *asked, uint64_t amount)
{
    uint64_t old = atomic_load_explicit(asked, memory_order_relaxed);
    while (old < amount && !atomic_compare_exchange_weak(asked, &old, amount))
        ;
}

/* Comes before what is asked for is told: who sees that sees at least this. */
static void asked_now(spec_connector *conn)
{
    asked_raise(&conn->evict.asked_piece_end, sc_store_piece_next(conn->store));
}

uint64_t sc_plugin_evict_place(const spec_connector *conn, const struct sc_plugin_request *request)
{
    return sc_radix_place(sc_plugin_hint_of(conn, request));
}

/* The class of a pass at that place, before it is told that it wants something. */
static uint32_t class_wants(struct sc_plugin_evict *evict, uint64_t place)
{
    if (place >= SC_RADIX_PLACE_KEPT)
        atomic_store(&evict->kept_place, place);
    return sc_plugin_class_of(place);
}

/* Places below it may be evicted for a pass at that place: its own, too. */
static uint64_t place_end(uint64_t place)
{
    return place < UINT64_MAX ? place + 1 : place;
}

/* The same for what a class wants. */
static uint64_t class_end(struct sc_plugin_evict *evict, uint32_t class_of)
{
    return place_end(class_of < SC_RADIX_PLACE_KEPT ? class_of : atomic_load(&evict->kept_place));
}

static void missed(spec_connector *conn, uint64_t place, uint64_t rows)
{
    uint32_t class_of = class_wants(&conn->evict, place);
    uint64_t bytes = sc_store_free_space_bytes(conn->store, rows);
    sc_store_free_space_missed(conn->store, rows);
    atomic_fetch_add(&conn->evict.demand_bytes[class_of], bytes);
    atomic_fetch_or(&conn->evict.wanting, UINT32_C(1) << class_of);
}

void sc_plugin_evict_missed(spec_connector *conn, const struct sc_plugin_request *request,
                            uint64_t rows)
{
    missed(conn, sc_plugin_evict_place(conn, request), rows);
}

void sc_plugin_evict_ask(spec_connector *conn, const struct sc_plugin_request *request,
                         uint64_t rows)
{
    uint64_t bytes = sc_store_free_space_bytes(conn->store, rows), place = UINT64_MAX;
    if (bytes > sc_store_free_space_most(conn->store)) /* it never fits: nothing goes for it */
        return;
    if (request != NULL)
        place = sc_plugin_evict_place(conn, request);
    asked_now(conn);
    asked_raise(&conn->evict.asked_bytes[class_wants(&conn->evict, place)], bytes);
    missed(conn, place, rows);
    sc_plugin_kick(conn, SC_JOB_EVICT);
}

void sc_plugin_evict_ask_least(spec_connector *conn)
{
    asked_now(conn);
    atomic_store(&conn->evict.asks_least, true);
    sc_plugin_kick(conn, SC_JOB_EVICT);
}

void sc_plugin_evict_ask_runs(spec_connector *conn)
{
    struct sc_radix_stats stats;
    sc_radix_stats(conn->radix, &stats);
    asked_raise(&conn->evict.asked_runs, stats.runs / RUNS_PART + 1);
    sc_plugin_kick(conn, SC_JOB_EVICT);
}

static uint64_t sub_to_zero(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

/* What is free, or will be when leases have ended. */
static uint64_t room_to_be(const struct sc_store_free_space *room)
{
    return room->free_bytes + room->quarantine_bytes;
}

/* What shall be: pages that go now are free a lease later, so as much as a lease's time takes. */
static uint64_t room_wanted(const struct sc_store_free_space *room, uint64_t demand_bytes)
{
    uint64_t least = room->bytes_max / LEAST_PART, most = MOST_PART(room->bytes_max);
    uint64_t wanted = demand_bytes + demand_bytes / DEMAND_PART;
    wanted = wanted > least ? wanted : least;
    return wanted < most ? wanted : most;
}

/* What may be stored before something has to go, but for crumbs between extents. */
static void spare_set(spec_connector *conn, const struct sc_store_free_space *room)
{
    uint64_t least = room->bytes_max / LEAST_PART, gap = room->bytes_max / GAP_PART;
    uint64_t spare = sub_to_zero(room_to_be(room) + gap, least + room->bytes_max / CRUMBS_PART);
    atomic_store(&conn->evict.spare_bytes, spare);
}

void sc_plugin_evict_open(spec_connector *conn)
{
    struct sc_store_free_space room;
    sc_store_free_space(conn->store, &room);
    spare_set(conn, &room);
}

void sc_plugin_evict_check(spec_connector *conn, uint64_t place, uint64_t rows)
{
    struct sc_plugin_evict *evict = &conn->evict;
    struct sc_store_free_space room;
    sc_store_free_space(conn->store, &room);
    spare_set(conn, &room);
    uint32_t class_of = class_wants(evict, place);
    uint64_t gap = room.bytes_max / GAP_PART;
    bool none_left = room.piece_new == atomic_load(&evict->none_piece_new) &&
                     place_end(place) <= atomic_load(&evict->none_place_end);
    bool lacks = room_to_be(&room) + gap < room_wanted(&room, room.demand_bytes) && !none_left;
    atomic_fetch_add(&evict->demand_bytes[class_of], sc_store_free_space_bytes(conn->store, rows));
    if (lacks)
        atomic_fetch_or(&evict->wanting, UINT32_C(1) << class_of);
    if (lacks || room.log_pieces_over > 0)
        sc_plugin_kick(conn, SC_JOB_EVICT);
}

/* The index's lock is held. */
static bool leaf_evict(spec_connector *conn, struct sc_radix_among among,
                       struct sc_radix_evicted *ret)
{
    struct sc_radix_segment leaf;
    for (uint32_t i = 0; i < LEAVES; i++) {
        if (!sc_plugin_index_leaf(conn, among, &leaf))
            return false;
        if (sc_radix_evict_leaf(conn->radix, leaf.node, ret)) /* else a reader has just pinned it */
            return true;
    }
    return false;
}

/* Leaves until so many bytes and runs have gone, up to LEAVES, for bytes only those among these;
 * returns how many. The commit's lock is held. */
static uint64_t evict_leaves(spec_connector *conn, uint64_t bytes, uint64_t runs,
                             struct sc_radix_among among)
{
    uint64_t pieces[LEAVES], piece_count = 0, leaf_count = 0, given = 0;
    struct sc_radix_evicted evicted;
    pthread_mutex_lock(&conn->index.lock);
    while (leaf_count < LEAVES && (leaf_count < runs || given < bytes)) {
        if (!leaf_evict(conn, leaf_count < runs ? sc_radix_below(UINT64_MAX) : among, &evicted))
            break;
        uint64_t piece = evicted.segment.value.piece;
        leaf_count++;
        if (evicted.rest.generation != 0) {
            sc_store_piece_set_mark(conn->store, piece, sc_plugin_mark_of(evicted.rest));
            continue;
        }
        pieces[piece_count++] = piece;
        given += sc_store_piece_bytes(conn->store, piece);
    }
    pthread_mutex_unlock(&conn->index.lock);
    sc_store_pieces_drop(conn->store, pieces, piece_count);
    sc_count(&conn->stats.evicted_chunks, piece_count);
    return leaf_count;
}

/* What was asked for since the last look; false: nobody asked. Sets what may go for it: nothing of
 * a higher class than the askers', nor, of their own, what was stored since. */
static bool asked_take(struct sc_plugin_evict *evict, uint64_t *ret_bytes)
{
    bool asks_least = atomic_exchange(&evict->asks_least, false);
    bool goes_on = evict->goal_bytes > 0 || evict->left_bytes > 0;
    uint64_t most = 0, end = goes_on ? evict->asked.place_end : 0;
    for (uint32_t i = 0; i < SC_PLUGIN_CLASSES; i++) {
        uint64_t bytes = atomic_exchange(&evict->asked_bytes[i], 0);
        most = bytes > most ? bytes : most;
        if (bytes > 0 && class_end(evict, i) > end)
            end = class_end(evict, i);
    }
    *ret_bytes = most;
    if (most == 0 && !asks_least)
        return false;
    evict->asked.place_end = asks_least ? UINT64_MAX : end;
    evict->asked.piece_end = atomic_load(&evict->asked_piece_end);
    return true;
}

/* Comes before a look at the room. */
static void demand_take(spec_connector *conn)
{
    struct sc_plugin_evict *evict = &conn->evict;
    sc_plugin_class_demand_move(&evict->demand, sc_exec_now_ns(conn->exec),
                                conn->config.lease_ns_max);
    evict->share_classes |= atomic_exchange(&evict->wanting, 0);
    for (uint32_t i = 0; i < SC_PLUGIN_CLASSES; i++)
        sc_plugin_class_demand_add(&evict->demand, i, atomic_exchange(&evict->demand_bytes[i], 0));
}

/* What is lacking for the demand of a class and those above it: of the highest class that lacks
 * something. The demand of lower ones makes nothing go that stands higher. */
static uint64_t share_of(struct sc_plugin_evict *evict, const struct sc_store_free_space *room,
                         uint64_t *ret_place_end)
{
    for (uint32_t i = SC_PLUGIN_CLASSES; i-- > 0;) {
        if ((evict->share_classes >> i & 1) == 0)
            continue;
        uint64_t below = sc_plugin_class_demand_below(&evict->demand, i);
        uint64_t demand = sub_to_zero(room->demand_bytes, below);
        uint64_t share = sub_to_zero(room_wanted(room, demand), room_to_be(room));
        *ret_place_end = class_end(evict, i);
        if (share > 0)
            return share;
        evict->share_classes &= ~(UINT32_C(1) << i);
    }
    *ret_place_end = 0;
    return 0;
}

/* Nothing is left below the place that could go for its class. True: another one lacks something.
 */
static bool share_ended(struct sc_plugin_evict *evict, uint64_t share_end)
{
    if (share_end > 0)
        evict->share_classes &= ~(UINT32_C(1) << sc_plugin_class_of(share_end - 1));
    return evict->share_classes != 0;
}

/* Bytes that shall go. *ret_among: what may go for them. What was stored just now, as a rule the
 * end of a request that goes on, does not go for what may come, unless that stands later, but for
 * who found no room; and what was stored since then does not go for him either: it may be his own,
 * now that he found room. */
static uint64_t bytes_wanted(spec_connector *conn, const struct sc_store_free_space *room,
                             struct sc_radix_among *ret_among, bool *ret_is_share)
{
    struct sc_plugin_evict *evict = &conn->evict;
    uint64_t asked, to_be = room_to_be(room), share_end;
    bool asks = asked_take(evict, &asked);
    uint64_t least = asks ? room->bytes_max / LEAST_PART : 0, goal = asked;
    if (asked > room->bytes_max / 2)
        goal = room->bytes_max; /* it finds no runs beside what else lives */
    goal = goal > least ? goal : least;
    goal = goal > evict->goal_bytes ? goal : evict->goal_bytes;
    evict->goal_bytes = goal > to_be ? goal : 0;
    uint64_t more = sub_to_zero(goal, to_be), share = share_of(evict, room, &share_end);
    if (room->quarantine_bytes > 0 || share > 0 || more > 0)
        asked = 0; /* what is on its way may do */
    evict->left_bytes = asked > evict->left_bytes ? asked : evict->left_bytes;
    more = more > evict->left_bytes ? more : evict->left_bytes;
    *ret_is_share = more == 0;
    *ret_among = (struct sc_radix_among){room->piece_new, share_end};
    if (more > 0)
        *ret_among = evict->asked;
    return more > 0 ? more : share;
}

/* Leaves that shall go: the index is full, or the log is. */
static uint64_t runs_wanted(spec_connector *conn, const struct sc_store_free_space *room)
{
    struct sc_plugin_evict *evict = &conn->evict;
    uint64_t asked = atomic_exchange(&evict->asked_runs, 0);
    evict->left_runs = asked > evict->left_runs ? asked : evict->left_runs;
    return evict->left_runs > room->log_pieces_over ? evict->left_runs : room->log_pieces_over;
}

bool sc_plugin_evict_some(spec_connector *conn)
{
    struct sc_plugin_evict *evict = &conn->evict;
    struct sc_store_free_space before, after;
    struct sc_radix_among among;
    bool is_share;
    demand_take(conn);
    sc_store_free_space(conn->store, &before);
    uint64_t bytes = bytes_wanted(conn, &before, &among, &is_share);
    uint64_t runs = runs_wanted(conn, &before);
    uint64_t leaf_count = 0, others = bytes > 0 ? bytes : before.log_pieces_over > 0;
    bool goes = (bytes > 0 || runs > 0) && !before.is_paused;
    bool gave = goes && others > 0 && sc_store_evict_unreachable(conn->store, others) > 0;
    if (goes && !gave) {
        pthread_mutex_lock(&conn->commit_lock);
        leaf_count = evict_leaves(conn, bytes, runs, among);
        pthread_mutex_unlock(&conn->commit_lock);
        bool none_is_old = leaf_count == 0 && before.piece_new != UINT64_MAX;
        atomic_store(&evict->none_place_end, among.place_end);
        atomic_store(&evict->none_piece_new, none_is_old ? before.piece_new : 0);
    }
    sc_store_free_space(conn->store, &after);
    spare_set(conn, &after);
    uint64_t freed = sub_to_zero(room_to_be(&after), room_to_be(&before));
    bool found = gave || leaf_count > 0;
    bool goes_on = is_share && goes && !found && share_ended(evict, among.place_end);
    evict->left_bytes = sub_to_zero(evict->left_bytes, freed);
    evict->left_runs = sub_to_zero(evict->left_runs, leaf_count);
    /* Each drop has made the log longer; and what leases held in it may be void by now. */
    if (sc_store_checkpoint_due(conn->store))
        sc_plugin_kick(conn, SC_JOB_CHECKPOINT);
    /* All is pinned, or the device is given a rest: the next who finds no room asks again. What it
     * refused to write lacks no room. */
    if (before.is_paused || (goes && !found))
        evict->goal_bytes = evict->left_bytes = evict->left_runs = 0;
    return found || goes_on;
}

/* ---- Admission ------------------------------------------------------------------------------ */

struct goes_before { /* what could be evicted before a pass is */
    const struct sc_store *store;
    uint64_t bytes, enough;
};

static bool add_piece(uint64_t piece, void *user)
{
    struct goes_before *before = user;
    before->bytes += sc_store_piece_bytes(before->store, piece);
    return before->bytes < before->enough;
}

/* So many bytes at most, of what could be evicted before a pass of the request's that begins at
 * `first`. What the pass hangs on could not: it is pinned meanwhile. In doubt there is enough. */
static uint64_t bytes_before(spec_connector *conn, const struct sc_plugin_request *request,
                             uint64_t first, uint64_t most)
{
    struct goes_before before = {conn->store, 0, most};
    struct sc_radix_query query = sc_plugin_query_of(request);
    struct sc_radix_match match = {0};
    query.token_count = first;
    query.hint = sc_plugin_hint_of(conn, request);
    if (first > 0)
        sc_radix_match_pin(conn->radix, &query, NULL, 0, &match);
    sc_plugin_lock(conn, &conn->index.lock);
    bool has_more = sc_radix_evictable(conn->radix, place_end(sc_radix_place(query.hint)), LOOKS,
                                       add_piece, &before);
    pthread_mutex_unlock(&conn->index.lock);
    if (match.token_count > 0) {
        sc_radix_unpin(conn->radix, match.last);
        sc_plugin_unpinned(conn);
    }
    return has_more ? most : before.bytes;
}

uint64_t sc_plugin_evict_admits(spec_connector *conn, const struct sc_plugin_request *request,
                                uint64_t first, uint64_t rows)
{
    uint64_t place = sc_plugin_evict_place(conn, request), chunk = conn->config.chunk_tokens;
    if (rows == 0 || !sc_radix_has_later(conn->radix, place))
        return rows;
    _Atomic uint64_t *spare_bytes = &conn->evict.spare_bytes;
    uint64_t spare = atomic_load(spare_bytes), bytes = sc_store_free_space_bytes(conn->store, rows);
    uint64_t stay = bytes < spare ? bytes : spare;
    while (!atomic_compare_exchange_weak(spare_bytes, &spare, sub_to_zero(spare, stay)))
        ;
    if (stay < bytes)
        stay += bytes_before(conn, request, first, bytes - stay);
    if (stay >= bytes)
        return rows;
    sc_plugin_kick(conn, SC_JOB_EVICT); /* it looks how much may be stored by now */
    uint64_t end = first + (uint64_t)((double)rows * (double)stay / (double)bytes);
    end -= end % chunk;
    while (end > first && sc_store_free_space_bytes(conn->store, end - first) > stay)
        end = end > chunk ? end - chunk : 0;
    return sub_to_zero(end, first);
}

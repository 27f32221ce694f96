/* evict: evicts the least valuable leaves (base/policy.h) until there is space (decisions 0015,
 * 0027, 0055).
 *
 *   segments    [ live ............................ | quarantine | free ]
 *                                                   |<--  share   ---->|
 *   share       5/4 of what was stored or lacked in a lease time; 1/8 .. 5/8 of the disk
 *
 *   radix       root -- [0..64) -- [64..90) -- [90..128)    a leaf is evicted first
 *                          \------ [64..128)                 pinned: skipped
 *
 * Pieces that no lookup here can find (other namespaces, earlier epochs) are evicted first, unless
 * a process of their model stores beside this one: other_models.h tells whose rows are older. Then
 * leaves; a piece is dropped with its last run. Uses by other processes count (uses.h): a leaf that
 * they used within a lease is evicted only for a pass that was refused twice. Hints precede the
 * order of use: lower priority
 * first, retained prefixes last. A pass, or its class's demand, evicts nothing that is placed above
 * it. A pass that would itself be evicted first is not admitted. If space is fragmented or the
 * index full, leaves are evicted once the quarantine is empty.
 *
 * Invariants: a step evicts something, continues with another class, or is the last. Runs leave the
 * index before their pieces' records, without a commit in between. Leases are left to the store's
 * quarantine. While the device fails nothing is evicted: drops could not be logged. */
#include "plugin/index/evict.h"
#include "plugin/connector.h"

#define LEAST_PART   8u            /* minimum share that is free or in quarantine */
#define MOST_PART(x) ((x) / 8 * 5) /* maximum share; the rest stays live */
#define DEMAND_PART  4u            /* added to a lease's demand: eviction lags a little */
#define GAP_PART     64u           /* evicted in advance, so that not each commit starts a job */
#define LEAVES       64u           /* per step, under one hold of index.lock */
#define LEAF_LOOKS   256u          /* the same: leaves examined */
#define RUNS_PART    16u           /* of a full index */
#define REFUSED_NS   UINT64_C(1000000000) /* a pass is tried again within this, or a lease */
#define LOG_LACK_BYTES (UINT64_C(1) << 20) /* asked of another model if the log is full */
#define LOOKS        1024u                /* runs examined for eviction before a pass */
#define CRUMBS_PART  128u /* of the disk: a pass's overhead beyond its own bytes, at most */

/* Raises the maximum requested since the job last looked. */
static void asked_raise(_Atomic uint64_t *asked, uint64_t amount)
{
    uint64_t old = atomic_load_explicit(asked, memory_order_relaxed);
    while (old < amount && !atomic_compare_exchange_weak(asked, &old, amount))
        ;
}

/* Set before the request, so that whoever sees the request sees this, too. */
static void asked_now(spec_connector *conn)
{
    asked_raise(&conn->evict.asked_piece_end, sc_store_piece_next(conn->store));
}

uint64_t sc_plugin_evict_place(const spec_connector *conn, const struct sc_plugin_request *request)
{
    return sc_radix_place(sc_plugin_hint_of(conn, request));
}

/* Returns the class of a pass at that place; set before its request. */
static uint32_t class_wants(struct sc_plugin_evict *evict, uint64_t place)
{
    if (place >= SC_RADIX_PLACE_KEPT)
        atomic_store(&evict->kept_place, place);
    return sc_plugin_class_of(place);
}

/* Places below the result may be evicted for a pass at `place`, including its own. */
static uint64_t place_end(uint64_t place)
{
    return place < UINT64_MAX ? place + 1 : place;
}

/* Does the same for a class's request. */
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
    if (bytes > sc_store_free_space_most(conn->store)) /* never fits: evicts nothing */
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

/* Returns what is free now or after leases end. */
static uint64_t room_to_be(const struct sc_store_free_space *room)
{
    return room->free_bytes + room->quarantine_bytes;
}

/* Returns the target: a lease time's demand, because pages evicted now are free a lease later. */
static uint64_t room_wanted(const struct sc_store_free_space *room, uint64_t demand_bytes)
{
    uint64_t least = room->bytes_max / LEAST_PART, most = MOST_PART(room->bytes_max);
    uint64_t wanted = demand_bytes + demand_bytes / DEMAND_PART;
    wanted = wanted > least ? wanted : least;
    return wanted < most ? wanted : most;
}

/* Sets what may be stored before something is evicted, apart from the overhead of extents. */
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

/* index.lock held. */
static bool leaf_evict(spec_connector *conn, struct sc_radix_among among,
                       struct sc_plugin_looks *looks, struct sc_radix_evicted *ret)
{
    struct sc_radix_segment leaf;
    for (; looks->left > 0; looks->left--) {
        if (!sc_plugin_index_leaf(conn, among, &leaf))
            return false;
        if (looks->before_s != 0 && sc_plugin_uses_second(conn, &leaf) >= looks->before_s)
            return false;
        if (!sc_plugin_uses_keep(conn, &leaf, looks) &&
            sc_radix_evict_leaf(conn->radix, leaf.node, ret)) /* else a reader has just pinned it */
            return true;
    }
    return false;
}

/* commit_lock held. Evicts up to LEAVES leaves until so many bytes and runs are evicted; for bytes
 * only leaves of `among`. Returns their number. */
static uint64_t evict_leaves(spec_connector *conn, uint64_t bytes, uint64_t runs,
                             struct sc_radix_among among, struct sc_plugin_looks *looks)
{
    uint64_t pieces[LEAVES], piece_count = 0, leaf_count = 0, given = 0;
    struct sc_radix_evicted evicted;
    pthread_mutex_lock(&conn->index.lock);
    sc_plugin_uses_now(conn);
    while (leaf_count < LEAVES && (leaf_count < runs || given < bytes)) {
        struct sc_radix_among of = leaf_count < runs ? sc_radix_below(UINT64_MAX) : among;
        if (!leaf_evict(conn, of, looks, &evicted))
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
    looks->given += given;
    sc_store_pieces_drop(conn->store, pieces, piece_count);
    sc_count(&conn->stats.evicted_chunks, piece_count);
    return leaf_count;
}

/* Takes the requests made since the last look; false: none. Sets what may be evicted for them: no
 * higher class than theirs, and in their own class nothing stored since. */
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

/* Called before a look at the space. */
static void demand_take(spec_connector *conn)
{
    struct sc_plugin_evict *evict = &conn->evict;
    sc_plugin_class_demand_move(&evict->demand, sc_exec_now_ns(conn->exec),
                                conn->config.lease_ns_max);
    evict->share_classes |= atomic_exchange(&evict->wanting, 0);
    for (uint32_t i = 0; i < SC_PLUGIN_CLASSES; i++)
        sc_plugin_class_demand_add(&evict->demand, i, atomic_exchange(&evict->demand_bytes[i], 0));
}

/* Returns the bytes lacking for the highest class that lacks any, with the classes above it. Demand
 * of lower classes evicts nothing placed higher. */
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

/* Ends a class for which nothing is left to evict. Returns true if another class lacks space. */
static bool share_ended(struct sc_plugin_evict *evict, uint64_t share_end)
{
    if (share_end > 0)
        evict->share_classes &= ~(UINT32_C(1) << sc_plugin_class_of(share_end - 1));
    return evict->share_classes != 0;
}

/* Returns the bytes to evict, and in *ret_among from what. Recently stored pieces, often the end of
 * a running request, are evicted only for a pass that found no space, or if placed lower. Pieces
 * stored after such a request are kept: they may be the requester's own. */
static uint64_t bytes_wanted(spec_connector *conn, const struct sc_store_free_space *room,
                             struct sc_radix_among *ret_among, bool *ret_is_share)
{
    struct sc_plugin_evict *evict = &conn->evict;
    uint64_t asked, to_be = room_to_be(room), share_end;
    bool asks = asked_take(evict, &asked);
    uint64_t least = asks ? room->bytes_max / LEAST_PART : 0, goal = asked;
    if (asked > room->bytes_max / 2)
        goal = room->bytes_max; /* it finds no free runs beside other live data */
    goal = goal > least ? goal : least;
    goal = goal > evict->goal_bytes ? goal : evict->goal_bytes;
    evict->goal_bytes = goal > to_be ? goal : 0;
    uint64_t more = sub_to_zero(goal, to_be), share = share_of(evict, room, &share_end);
    if (room->quarantine_bytes > 0 || share > 0 || more > 0)
        asked = 0; /* the quarantine may suffice */
    evict->left_bytes = asked > evict->left_bytes ? asked : evict->left_bytes;
    more = more > evict->left_bytes ? more : evict->left_bytes;
    *ret_is_share = more == 0;
    *ret_among = (struct sc_radix_among){room->piece_new, share_end};
    if (more > 0)
        *ret_among = evict->asked;
    return more > 0 ? more : share;
}

/* Returns the leaves to evict because the index or the log is full. */
static uint64_t runs_wanted(spec_connector *conn, const struct sc_store_free_space *room)
{
    struct sc_plugin_evict *evict = &conn->evict;
    uint64_t asked = atomic_exchange(&evict->asked_runs, 0);
    evict->left_runs = asked > evict->left_runs ? asked : evict->left_runs;
    return evict->left_runs > room->log_pieces_over ? evict->left_runs : room->log_pieces_over;
}

/* A pass that was refused because other processes use all that is old, or have all, is refused
 * once: the next evicts it. Returns true if the step has not seen all that may be evicted. */
static bool looks_end(spec_connector *conn, const struct sc_plugin_looks *looks, bool is_refused)
{
    uint64_t lease_ns = conn->config.lease_ns_max;
    if (is_refused && (looks->spared > 0 || atomic_load(&conn->other_models.live)))
        conn->evict.refused_ns =
            sc_exec_now_ns(conn->exec) + (lease_ns > REFUSED_NS ? lease_ns : REFUSED_NS);
    return looks->left == 0 && looks->raised > 0;
}

/* Evicts what another model's member asked for, if it is older than that one's own. Returns true
 * if there is more. */
static bool evict_for_others(spec_connector *conn)
{
    uint64_t bytes = atomic_exchange(&conn->other_models.asked_bytes, 0);
    struct sc_plugin_looks looks = {.left = LEAF_LOOKS,
                                    .before_s = atomic_load(&conn->other_models.asked_before_s)};
    const struct sc_radix_among among = {.piece_end = UINT64_MAX,
                                         .place_end = SC_RADIX_PLACE_KEPT};
    if (bytes == 0 || looks.before_s == 0 || sc_store_is_paused(conn->store))
        return false;
    pthread_mutex_lock(&conn->commit_lock);
    uint64_t leaf_count = evict_leaves(conn, bytes, 0, among, &looks);
    pthread_mutex_unlock(&conn->commit_lock);
    if (leaf_count == 0 || looks.given >= bytes)
        return false;
    atomic_fetch_add(&conn->other_models.asked_bytes, bytes - looks.given);
    return true;
}

bool sc_plugin_evict_some(spec_connector *conn)
{
    struct sc_plugin_evict *evict = &conn->evict;
    struct sc_store_free_space before, after;
    struct sc_radix_among among;
    bool is_share;
    bool serves = evict_for_others(conn);
    demand_take(conn);
    sc_store_claims_tick(conn->store); /* there may be room in a segment that others had */
    sc_store_free_space(conn->store, &before);
    uint64_t bytes = bytes_wanted(conn, &before, &among, &is_share);
    uint64_t runs = runs_wanted(conn, &before);
    uint64_t leaf_count = 0, others = bytes > 0 ? bytes : before.log_pieces_over > 0;
    bool goes = (bytes > 0 || runs > 0) && !before.is_paused;
    bool gave = goes && others > 0 && sc_store_evict_unreachable(conn->store, others) > 0;
    bool looks_on = false;
    uint64_t lacks = bytes == 0 && before.log_pieces_over > 0 ? LOG_LACK_BYTES : bytes;
    bool was_refused = !is_share && sc_exec_now_ns(conn->exec) < evict->refused_ns;
    if (goes && !gave && sc_plugin_other_models_wait(conn, lacks, was_refused))
        return serves;
    if (goes && !gave) {
        struct sc_plugin_looks looks = {.left = LEAF_LOOKS, .spares = !was_refused};
        pthread_mutex_lock(&conn->commit_lock);
        leaf_count = evict_leaves(conn, bytes, runs, among, &looks);
        pthread_mutex_unlock(&conn->commit_lock);
        looks_on = looks_end(conn, &looks, !is_share && leaf_count == 0);
        bool none_is_old = leaf_count == 0 && !looks_on && before.piece_new != UINT64_MAX;
        atomic_store(&evict->none_place_end, among.place_end);
        atomic_store(&evict->none_piece_new, none_is_old ? before.piece_new : 0);
    }
    sc_store_free_space(conn->store, &after);
    spare_set(conn, &after);
    uint64_t freed = sub_to_zero(room_to_be(&after), room_to_be(&before));
    bool found = gave || leaf_count > 0 || looks_on;
    bool goes_on = is_share && goes && !found && share_ended(evict, among.place_end);
    evict->left_bytes = sub_to_zero(evict->left_bytes, freed);
    evict->left_runs = sub_to_zero(evict->left_runs, leaf_count);
    /* Drops made the log longer, and leases on its entries may have ended. */
    if (sc_store_checkpoint_due(conn->store))
        sc_plugin_kick(conn, SC_JOB_CHECKPOINT);
    /* All is pinned, or the device is paused: the next that finds no space asks again. */
    if (before.is_paused || (goes && !found))
        evict->goal_bytes = evict->left_bytes = evict->left_runs = 0;
    return found || goes_on || serves;
}

/* ---- Admission ------------------------------------------------------------------------------ */

struct goes_before { /* bytes that could be evicted before a pass */
    const struct sc_store *store;
    uint64_t bytes, enough;
};

static bool add_piece(uint64_t piece, void *user)
{
    struct goes_before *before = user;
    before->bytes += sc_store_piece_bytes(before->store, piece);
    return before->bytes < before->enough;
}

/* Returns at most `most` bytes that could be evicted before a pass of the request from `first` on.
 * The pass's own prefix is pinned meanwhile and left out. In doubt it returns `most`. */
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
    sc_plugin_kick(conn, SC_JOB_EVICT); /* it updates spare_bytes */
    uint64_t end = first + (uint64_t)((double)rows * (double)stay / (double)bytes);
    end -= end % chunk;
    while (end > first && sc_store_free_space_bytes(conn->store, end - first) > stay)
        end = end > chunk ? end - chunk : 0;
    return sub_to_zero(end, first);
}

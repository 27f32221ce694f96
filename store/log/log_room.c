/* log_room: space for two logs: the present one, and the one that a checkpoint writes beside it.
 *
 *   disk_bytes   [fixed | log | its successor | segments ...................... | not created ]
 *                        |<--- their room ---->|
 *                        2 x (log + reservations) + a head  <=  room
 *   reservations for started extents, and one drop of each live piece
 *
 * A checkpoint copies each frame at most once behind a new head, so counting the log twice always
 * leaves room for it. An append that would exceed the room is refused before anything is written.
 * Drops were reserved when their piece began; resets always fit. A refused caller asks for room: a
 * checkpoint makes it if much of the log is void, otherwise eviction (void after the leases end).
 * So nothing is refused for good (decision 0015).
 *
 *   room    0 ............. 5/8 ......... 3/4 ........ 1
 *           live data ------->| evict       |            | appends are refused
 *           whole log ------------------->| checkpoint, if it would free 1/16
 *
 * The share follows from the smallest possible pieces: twice the log bytes per page of such pieces,
 * so that live data is 5/8 of the room when segments are full of them. It is usually 1/64 of
 * disk_bytes; chunks of thousands of short rows may need half, and may fill the log before the
 * segments.
 *
 * Invariants: bytes counted are <= disk_bytes_max after every reservation. Eviction and checkpoints
 * are started by plugin/index/evict.c.
 * Threads: any; the space lock or the log lock, as stated, never both.
 * Tests: tests/unit/store/test_free_space.c, tests/unit/plugin/test_soak.c */
#include "store/log/log_room.h"
#include "store/internal.h"
#include "store/log/hints.h"
#include "store/log/where.h"

#define PAGE          ((uint64_t)SC_IO_PAGE_BYTES)
#define SHARE_MIN     64u /* smallest share: 1/64 */
#define SHARE_MAX     2u  /* largest share: 1/2; plain prompts need rows */
#define MILLION       1000000u
#define EPOCHS_BYTES  8192u           /* kept for resets */
#define SLACK_BYTES   (64ull << 10)   /* for records other than pieces' */
#define ASK_PART      2u              /* a request for more than half of the room is ignored */
#define DEVICE_NS     600000000000ull /* a full file system counts as full for this long */
#define LIVE_PART(x)  ((x) / 8 * 5)   /* live data above this: evict pieces */
#define LEFT_PART(x)  ((x) / 16 * 9)  /* until this is left */
#define TIGHT_PART(x) ((x) / 4 * 3)
#define GAIN_PART(x)  ((x) / 16)

static uint64_t fixed_bytes(const struct sc_store *store)
{
    uint64_t hints = store->params.shares ? sc_store_hints_bytes(store->disk.bytes_max) : 0;
    return SC_STORE_FIXED_BYTES + hints;
}

/* ---- The share ------------------------------------------------------------------------------ */

/* Usual record sizes, with the longest ids and times. (Reservations use upper bounds.) */
struct usual {
    uint64_t extent, piece, drop, token;
};

static struct usual usual_records(const struct sc_store *store, uint64_t rows)
{
    uint8_t bytes[1024];
    uint32_t token = 0;
    struct sc_store_writer writer = {.bytes = bytes, .capacity = sizeof(bytes)};
    struct sc_store_place place =
        sc_store_shape_place(&store->shape, store->params.probe_row_bytes, rows);
    struct sc_store_part part = {.offset = store->params.config->segment_bytes,
                                 .segment = SC_STORE_SEGMENT_NUMBERS - 1,
                                 .layer_count = store->shape.layer_count};
    struct sc_store_record_extent extent = {.space = SC_STORE_SPACES_MAX,
                                            .copy = UINT64_MAX,
                                            .row_count = rows,
                                            .probe_tag_offset = place.probe_tag_offset,
                                            .tag_offset = place.tag_offset,
                                            .row_offset = place.row_offset,
                                            .probe_row_bytes = store->params.probe_row_bytes,
                                            .stride = place.stride,
                                            .part_count = 1,
                                            .parts = &part};
    struct sc_store_piece piece = {.id = SC_STORE_IDS - 1,
                                   .extent = SC_STORE_IDS - 1,
                                   .row_count = 1,
                                   .first_position = SC_STORE_ROWS_MAX,
                                   .chunk_first = SC_STORE_ROWS_MAX,
                                   .tokens = &token};
    struct usual usual = {.token = sizeof(token)};
    sc_store_record_encode_extent(&writer, SC_STORE_IDS - 1, &extent);
    usual.extent = SC_STORE_FRAME_BYTES + writer.used;
    writer.used = 0;
    sc_store_record_encode_piece(&writer, &piece);
    usual.piece = SC_STORE_FRAME_BYTES + writer.used - usual.token;
    usual.drop = SC_STORE_DROP_BYTES;
    return usual;
}

/* Considers the two kinds of pieces with most log bytes per page: single rows (with half a chunk of
 * tokens before them on average), and whole chunks of rows so short that several share a page. */
static void share_of_pieces(struct sc_store *store)
{
    uint64_t chunk = store->params.config->chunk_tokens, layers = store->shape.layer_count;
    uint64_t probe = store->params.probe_row_bytes;
    struct usual usual = usual_records(store, 1);
    uint64_t one = sc_store_shape_place(&store->shape, probe, 1).stride * layers;
    uint64_t pages = (one + PAGE - 1) / PAGE;
    uint64_t one_bytes = usual.extent + usual.piece + chunk / 2 * usual.token + usual.drop;
    if (store->params.codes.shape.bits_k != 0) { /* quantised rows have pages of their own */
        one_bytes += sc_store_record_bytes_parts(1);
        pages++;
    }
    uint64_t chunk_bytes = usual.piece + chunk * usual.token + usual.drop;
    uint64_t rows = sc_store_shape_place(&store->shape, probe, chunk).stride * layers;
    store->share.bytes = one_bytes;
    store->share.pages = pages * PAGE;
    if (chunk_bytes * store->share.pages > one_bytes * rows) {
        store->share.bytes = chunk_bytes;
        store->share.pages = rows;
    }
    store->share.bytes *= 2 * 8; /* two logs, 5/8 of them live */
    store->share.pages *= 5;
}

/* Returns the share of `bytes` in all. */
static uint64_t share_of(const struct sc_store *store, uint64_t bytes)
{
    uint64_t unit = store->share.bytes + store->share.pages;
    uint64_t share =
        SLACK_BYTES + bytes / unit * store->share.bytes + bytes % unit * store->share.bytes / unit;
    share = share > bytes / SHARE_MIN ? share : bytes / SHARE_MIN;
    share = share < bytes / SHARE_MAX ? share : bytes / SHARE_MAX;
    return sc_store_up(share, PAGE);
}

spec_status sc_store_log_share_decide(struct sc_store *store, struct spec_error *reterr)
{
    uint64_t bytes = store->disk.bytes_max, least = 2 * SC_STORE_SEGMENT_MIN;
    if (store->params.is_objects)
        store->share =
            (struct sc_store_log_share){.bytes = store->params.config->objects_log_ppm,
                                        .pages = MILLION - store->params.config->objects_log_ppm};
    else
        share_of_pieces(store);
    store->disk.device_bytes = UINT64_MAX;
    while (fixed_bytes(store) + share_of(store, least) + SC_STORE_SEGMENT_MIN > least)
        least += SC_STORE_SEGMENT_MIN / 16;
    if (bytes >= least)
        return SPEC_OK;
    return sc_fail(reterr, SPEC_E_NO_SPACE,
                   "%" PRIu64 " bytes of disk for %s, at least %" PRIu64 " are needed", bytes,
                   store->dir, least);
}

/* ---- Accounting ------------------------------------------------------------------------------ */

/* Space lock held, or open. The log, its successor and reservations of both. */
static uint64_t logs_bytes(const struct sc_store *store)
{
    uint64_t bytes = sc_store_counted(&store->counts.log_bytes) + store->share.reserved;
    return sc_store_up(2 * bytes + SC_STORE_HEAD_BYTES, PAGE) + PAGE;
}

uint64_t sc_store_disk_used(struct sc_store *store)
{
    return fixed_bytes(store) + store->disk.segment_bytes + logs_bytes(store);
}

uint64_t sc_store_disk_beside(struct sc_store *store)
{
    uint64_t used = logs_bytes(store), share = share_of(store, store->disk.bytes_max);
    return fixed_bytes(store) + (used > share ? used : share);
}

uint64_t sc_store_segment_room(struct sc_store *store)
{
    if (sc_exec_now_ns(store->params.exec) < store->disk.device_retry_ns)
        return 0;
    uint64_t bytes = store->disk.bytes_max, used = logs_bytes(store);
    bytes = store->disk.device_bytes < bytes ? store->disk.device_bytes : bytes;
    uint64_t log_room = share_of(store, bytes);
    used += sc_store_up(used / 4, PAGE); /* a log above its share keeps growing */
    uint64_t taken =
        fixed_bytes(store) + store->disk.segment_bytes + (used > log_room ? used : log_room);
    return taken < bytes ? sc_store_down(bytes - taken, PAGE) : 0;
}

/* Space lock held. Leaves `others` bytes of the room free. */
static bool log_take(struct sc_store *store, uint64_t bytes, uint64_t others)
{
    store->share.reserved += bytes;
    if (sc_store_disk_used(store) + others <= store->disk.bytes_max)
        return true;
    store->share.reserved -= bytes;
    store->share.asked = store->share.asked > 2 * bytes ? store->share.asked : 2 * bytes;
    return false;
}

bool sc_store_log_take(struct sc_store *store, uint64_t bytes)
{
    return log_take(store, bytes, EPOCHS_BYTES);
}

bool sc_store_log_reserve(struct sc_store *store, uint64_t bytes)
{
    pthread_mutex_lock(&store->disk.lock);
    bool fits = log_take(store, bytes, EPOCHS_BYTES);
    pthread_mutex_unlock(&store->disk.lock);
    return fits;
}

bool sc_store_log_reserve_epoch(struct sc_store *store, uint64_t bytes)
{
    pthread_mutex_lock(&store->disk.lock);
    bool fits = log_take(store, bytes, 0);
    pthread_mutex_unlock(&store->disk.lock);
    return fits;
}

void sc_store_log_unreserve(struct sc_store *store, uint64_t bytes)
{
    pthread_mutex_lock(&store->disk.lock);
    SC_ASSERT(store->params.poison, store->share.reserved >= bytes);
    store->share.reserved -= bytes;
    pthread_mutex_unlock(&store->disk.lock);
}

/* ---- A file system with less than disk_bytes ------------------------------------------------- */

/* Returns the bytes of segments and log plus free bytes of the file system; 0: unknown. */
static uint64_t device_has(struct sc_store *store, uint64_t beside, uint64_t *ret_free)
{
    if (sc_io_free_bytes(store->io, store->dir, ret_free, NULL) != SPEC_OK)
        return 0;
    uint64_t bytes = fixed_bytes(store) + beside + sc_store_counted(&store->counts.log_bytes);
    pthread_mutex_lock(&store->disk.lock);
    for (uint64_t i = 0; i < store->disk.segment_count; i++)
        if (store->disk.segments[i].state == SC_STORE_SEGMENT_READY ||
            store->disk.segments[i].state == SC_STORE_SEGMENT_TOLD)
            bytes += store->disk.segments[i].bytes;
    pthread_mutex_unlock(&store->disk.lock);
    return bytes + *ret_free;
}

spec_status sc_store_log_fits_device(struct sc_store *store, uint64_t segment_bytes,
                                     struct spec_error *reterr)
{
    uint64_t free_bytes, bytes = device_has(store, segment_bytes, &free_bytes);
    if (bytes == 0)
        return SPEC_OK;
    bytes = bytes < store->disk.bytes_max ? bytes : store->disk.bytes_max;
    uint64_t share = share_of(store, bytes), log_bytes = sc_store_counted(&store->counts.log_bytes);
    if (free_bytes + log_bytes >= share)
        return SPEC_OK;
    return sc_fail(reterr, SPEC_E_NO_SPACE,
                   "%" PRIu64 " bytes are left on the file system, the log needs %" PRIu64,
                   free_bytes, share - log_bytes);
}

void sc_store_device_is_full(struct sc_store *store, const char *what)
{
    uint64_t now_ns = sc_exec_now_ns(store->params.exec), free_bytes;
    uint64_t bytes = device_has(store, 0, &free_bytes);
    pthread_mutex_lock(&store->disk.lock);
    bool says = store->disk.device_bytes == UINT64_MAX;
    store->disk.device_bytes = bytes > 0 ? bytes : store->disk.bytes_max;
    store->disk.device_retry_ns = now_ns + SC_STORE_RETRY_NS;
    store->disk.device_until_ns = now_ns + DEVICE_NS;
    pthread_mutex_unlock(&store->disk.lock);
    if (says)
        SC_LOG(store->params.log, 1, "the file system of %s is full, segments stay as they are: %s",
               store->dir, what);
}

/* Space lock held. Room of both logs; on a full file system at least the segments' share. */
static uint64_t logs_room(struct sc_store *store)
{
    uint64_t others = fixed_bytes(store) + store->disk.segment_bytes + EPOCHS_BYTES;
    uint64_t room = store->disk.bytes_max > others ? store->disk.bytes_max - others : 0;
    uint64_t longest = sc_io_file_limit(); /* of one log */
    room = longest < room / 2 ? 2 * longest : room;
    if (sc_exec_now_ns(store->params.exec) >= store->disk.device_until_ns)
        store->disk.device_bytes = UINT64_MAX;
    if (store->disk.device_bytes == UINT64_MAX)
        return room;
    uint64_t device = store->disk.device_bytes > others ? store->disk.device_bytes - others : 0;
    uint64_t share =
        SLACK_BYTES + store->disk.segment_bytes / store->share.pages * store->share.bytes;
    device = device > share ? device : share;
    return device < room ? device : room;
}

/* ---- Making room
 * ------------------------------------------------------------------------------ */

/* Bytes count twice: in the log and in its successor. */
struct look {
    uint64_t room, used, asked;
    uint64_t live;  /* live and reserved */
    uint64_t gain;  /* what a checkpoint would drop */
    uint64_t piece; /* one live piece on average */
    bool is_short;  /* an append met ENOSPC */
};

uint64_t sc_store_log_pieces(const struct sc_store *store)
{
    const struct sc_store_journal *journal = &store->log.journal;
    return journal->pieces_read;
}

/* No lock held. Assumes equal pieces: after a checkpoint, with all pieces held, gain is 0. */
static struct look look_at(struct sc_store *store)
{
    struct look look = {0};
    pthread_mutex_lock(&store->disk.lock);
    look.room = logs_room(store);
    look.used = logs_bytes(store);
    look.asked = store->share.asked;
    uint64_t reserved = store->share.reserved;
    pthread_mutex_unlock(&store->disk.lock);
    look.asked = look.asked <= look.room / ASK_PART ? look.asked : 0;
    pthread_mutex_lock(&store->log.lock);
    const struct sc_store_journal *journal = &store->log.journal;
    const struct sc_store_spaces *spaces = &store->log.spaces;
    uint64_t pieces = sc_store_log_pieces(store);
    uint64_t stale = store->log.averages.all_bytes - store->log.averages.last_bytes;
    uint64_t fixed =
        spaces->record_bytes + SC_STORE_HEAD_BYTES + spaces->record_count * SC_STORE_EPOCH_BYTES;
    uint64_t dead_count, dead_bytes = sc_store_spaces_dead(spaces, &dead_count);
    look.is_short = journal->is_short;
    uint64_t end = journal->end.offset;
    uint64_t rest = end > stale + fixed ? end - stale - fixed : 0;
    pthread_mutex_unlock(&store->log.lock);
    uint64_t live = sc_store_counted(&store->counts.piece_count);
    uint64_t held = sc_store_counted(&store->counts.held_count);
    live = live < pieces ? live : pieces;
    held = held < pieces ? held : pieces;
    uint64_t each = pieces > 0 ? rest / pieces : 0;
    look.live = 2 * (each * live + reserved);
    look.gain = 2 * (rest - each * held + stale);
    look.gain -= pieces > 0 && held == pieces ? 2 * (rest - each * held) : 0; /* rounding */
    look.gain += 2 * dead_bytes;
    look.piece = 2 * (each + SC_STORE_DROP_BYTES);
    return look;
}

uint64_t sc_store_log_pieces_over(struct sc_store *store)
{
    struct look look = look_at(store);
    uint64_t most = LIVE_PART(look.room), left = LEFT_PART(look.room);
    if (sc_io_file_limit() < SLACK_BYTES)
        return 0; /* RLIMIT_FSIZE: no log may be written at all */
    if (look.used + look.asked <= look.room) {
        pthread_mutex_lock(&store->disk.lock);
        store->share.asked = 0; /* there is room now, or never will be */
        pthread_mutex_unlock(&store->disk.lock);
    } else if (look.asked > 0) {
        uint64_t others = look.asked + GAIN_PART(look.room);
        most = look.room - others < most ? look.room - others : most;
        left = most < left ? most : left;
    }
    return look.live > most && look.piece > 0 ? (look.live - left) / look.piece + 1 : 0;
}

bool sc_store_log_is_tight(struct sc_store *store)
{
    struct look look = look_at(store);
    uint64_t used = look.used + look.asked;
    if (used <= TIGHT_PART(look.room) && !look.is_short)
        return false;
    return look.gain > 0 && look.gain >= GAIN_PART(look.room);
}

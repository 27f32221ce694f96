/* open: open, close, statistics.
 *
 *   writer           identity -> rank directory -> its lock -> log -> segments -> pools -> replay
 *   heir             page map -> pools -> existing identity, log and segments; take_over.c
 *   reader, peer     pools (a reader's) -> existing identity, log and segments
 *
 * Invariants: a failed open leaves an existing store unchanged and leaks nothing. No thread is
 * started (params.exec is the connector's).
 * Threads: open and close by one thread; statistics from any.
 * Tests: tests/unit/store/test_store.c, tests/fault/test_store_faults.c */
#include "store/open.h"
#include "base/memory_limit.h"
#include "store/cache/host_tier_slab.h"
#include "store/erase/eraser.h"
#include "store/log/hints.h"
#include "store/log/identity.h"
#include "store/log/members.h"
#include "store/log/where.h"
#include "store/read/fetch_match.h"
#include "store/replay/checkpoint.h"
#include "store/replay/replay.h"
#include "store/section/build_sections.h"
#include "store/write/compactor.h"
#include "store/write/extent.h"
#include "store/write/inline_quant.h"

#include <stdio.h>
#include <string.h>

#define EXTENTS_EACH   8u /* per request: being packed, written, committed; in bursts */
#define EXTENTS_SPARE  SC_STORE_PASS_EXTENTS /* for one pass that is cut into many */
#define EXTENTS_MAX    2048u                 /* bounds their bounce buffers */
#define FILES_SPARE    8u /* log, lock, identity, a few segments beyond disk_bytes */
#define FILES_MAX      4096u
#define FRAMES_PART    2u   /* part of staging: most extents of a pass, a frame each */
#define FRAMES_WANTED  256u /* in staging, if io.op_bytes allows it */
#define OP_BYTES_LEAST (UINT64_C(64) << 10)
#define HOST_PART      8u /* part of the memory that the process may use */
#define HOST_MOST      (UINT64_C(4) << 30)
#define UPPER_OF_32    10u /* upper_bytes auto, in 1/32 of host_bytes: IMPRESS has 10 to 32 */

/* ---- Checks --------------------------------------------------------------------------------- */

/* Bytes of an operation for one row; each half of a split row is rounded out to pages. */
static uint64_t row_op_bytes(const struct sc_store_namespace *space)
{
    uint64_t halves = space->layout == SC_STORE_SPLIT ? 2 * SC_IO_PAGE_BYTES : 0;
    return 2 * space->k_row_bytes + halves;
}

static spec_status params_check(const struct sc_store_params *params, struct spec_error *reterr)
{
    const struct sc_store_namespace *space = &params->space;
    if (space->layer_count == 0 || space->layer_count > SC_LIMIT_LAYERS ||
        space->layout > SC_STORE_SPLIT)
        return sc_fail(reterr, SPEC_E_INVALID, "namespace with %" PRIu32 " layers, layout %" PRIu32,
                       space->layer_count, space->layout);
    if (space->k_row_bytes == 0 || space->k_row_bytes > SC_STORE_K_ROW_BYTES_MAX ||
        row_op_bytes(space) > params->config->io_op_bytes)
        return sc_fail(reterr, SPEC_E_UNSUPPORTED,
                       "a row of %" PRIu64 " bytes does not fit io.op_bytes %" PRIu64,
                       2 * space->k_row_bytes, params->config->io_op_bytes);
    if (params->probe_row_bytes > space->k_row_bytes || params->probe_row_bytes % 2 != 0)
        return sc_fail(reterr, SPEC_E_INVALID, "probe rows of %" PRIu64 " bytes, keys of %" PRIu64,
                       params->probe_row_bytes, space->k_row_bytes);
    if (space->descriptor == NULL || strlen(space->descriptor) > SC_STORE_DESCRIPTOR_BYTES)
        return sc_fail(reterr, SPEC_E_INVALID, "namespace descriptor: none, or over %u bytes",
                       (unsigned)SC_STORE_DESCRIPTOR_BYTES);
    if (params->role > SC_STORE_HEIR)
        return sc_fail(reterr, SPEC_E_INVALID, "role %" PRIu32, params->role);
    if (params->rank_count == 0 || params->rank >= params->rank_count ||
        params->rank_count > SC_LIMIT_RANKS)
        return sc_fail(reterr, SPEC_E_INVALID, "rank %" PRIu32 " of %" PRIu32, params->rank,
                       params->rank_count);
    return SPEC_OK;
}

/* Sets the rows of an extent: a layer fits a segment, its tags an operation, and all layers a
 * quarter of the disk, so that one pass does not fill it; but at least a chunk. */
static spec_status rows_max_decide(struct sc_store *store, struct spec_error *reterr)
{
    const struct sc_store_shape *shape = &store->shape;
    const struct sc_config *config = store->params.config;
    uint64_t probe_bytes = store->params.probe_row_bytes;
    uint64_t tags_per_row = shape->tags_per_row + (probe_bytes > 0 ? 1ull : 0ull);
    uint64_t rows = store->limits.op_bytes / (8 * tags_per_row);
    rows = rows < SC_STORE_ROWS_MAX ? rows : SC_STORE_ROWS_MAX;
    for (; rows > 0; rows--) {
        uint64_t stride = sc_store_shape_place(shape, probe_bytes, rows).stride;
        bool small = stride * shape->layer_count <= store->disk.bytes_max / 4;
        if (stride <= config->segment_bytes && (small || rows <= config->chunk_tokens))
            break;
    }
    if (rows < config->chunk_tokens)
        return sc_fail(reterr, SPEC_E_UNSUPPORTED,
                       "a chunk's layer of %" PRIu64 " bytes does not fit segment_bytes %" PRIu64,
                       config->chunk_tokens * shape->row_bytes, config->segment_bytes);
    store->limits.rows_max = rows;
    store->limits.pieces_max =
        rows / config->chunk_tokens + 2; /* the first and last may be short */
    return SPEC_OK;
}

/* ---- Open ----------------------------------------------------------------------------------- */

spec_status sc_store_io_open(struct sc_store *store, struct spec_error *reterr)
{
    const struct sc_config *config = store->params.config;
    struct sc_io_params io = {.alloc = store->params.alloc,
                              .exec = store->params.exec,
                              .log = store->params.log,
                              .fault = store->params.fault,
                              .backend = config->io_backend,
                              .ring_count = config->io_threads,
                              .in_flight_bytes = config->io_in_flight_bytes,
                              .custom = store->params.custom,
                              .allow_shared = config->allow_shared != 0,
                              .allow_network_fs = config->allow_network_fs != 0};
    if (store->params.role == SC_STORE_PEER)
        io.backend = SC_BACKEND_PREAD; /* reads a log now and then: needs no rings */
    uint64_t disk_bytes = config->disk_bytes > 0 ? config->disk_bytes : SC_STORE_DEFAULT_BYTES;
    uint64_t files = disk_bytes / config->segment_bytes + FILES_SPARE;
    io.files_reserved = files < FILES_MAX ? files : FILES_MAX;
    return sc_io_open(&io, &store->io, reterr);
}

spec_status sc_store_dir_name(struct sc_store *store, const char *prefix, struct spec_error *reterr)
{
    char path[SC_LIMIT_PATH_BYTES + 64];
    (void)snprintf(path, sizeof(path), "%s/%s%04" PRIu32 "-of-%04" PRIu32,
                   store->params.config->path, prefix, store->params.rank,
                   store->params.rank_count);
    store->dir = sc_alloc_string(store->params.alloc, path);
    if (store->dir == NULL)
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "path of the store");
    return SPEC_OK;
}

struct kind {
    const char *prefix;
    char found[64]; /* "": none */
};

static void kind_look(const char *name, void *user)
{
    struct kind *kind = user;
    if (strncmp(name, kind->prefix, strlen(kind->prefix)) == 0 && kind->found[0] == '\0')
        (void)snprintf(kind->found, sizeof(kind->found), "%.60s", name);
}

spec_status sc_store_kind_check(struct sc_store *store, const char *prefix, const char *what,
                                struct spec_error *reterr)
{
    const char *path = store->params.config->path;
    struct kind kind = {.prefix = prefix};
    spec_status status = sc_io_list(store->io, path, kind_look, &kind, reterr);
    if (status == SPEC_OK && kind.found[0] != '\0')
        status = sc_fail(reterr, SPEC_E_CONFIG,
                         "path: %s holds %s (found %s); give the other kind a directory of its own",
                         path, what, kind.found);
    return status;
}

spec_status sc_store_dir_open(struct sc_store *store, struct spec_error *reterr)
{
    char path[SC_LIMIT_PATH_BYTES + 64];
    spec_status status = sc_io_mkdir(store->io, store->dir, reterr);
    if (status == SPEC_OK)
        status = sc_io_dir_keep(store->io, store->dir, reterr);
    if (status != SPEC_OK)
        return status;
    (void)snprintf(path, sizeof(path), "%s/lock", store->dir);
    status = sc_io_file_open(store->io, path, SC_IO_OPEN_CREATE | SC_IO_OPEN_WRITE,
                             &store->lock_file, reterr);
    if (status == SPEC_OK)
        status = sc_io_file_lock(store->io, store->lock_file, reterr);
    return status == SPEC_OK ? sc_store_identity_upgrade(store, reterr) : status;
}

/* Default of host_bytes auto. `processes` of each of the ranks live on this machine. */
static uint64_t host_share(uint32_t rank_count, uint32_t processes)
{
    uint64_t share = sc_memory_limit() / HOST_PART / (rank_count > 0 ? rank_count : 1);
    share = share < HOST_MOST ? share : HOST_MOST;
    return share / processes;
}

/* Opens the host tier. Configured sizes must succeed; the automatic size may be too large here. */
static spec_status host_open(struct sc_store *store, struct spec_error *reterr)
{
    const struct sc_config *config = store->params.config;
    bool is_share = config->host_bytes == SC_CONFIG_AUTO;
    bool is_auto = is_share && (config->upper_bytes == SC_CONFIG_AUTO || config->upper_bytes == 0);
    uint64_t bytes = is_share ? host_share(store->params.rank_count, sc_store_members_count(store))
                              : config->host_bytes;
    const struct sc_host_tier_params host = {
        .alloc = store->params.alloc,
        .poison = store->params.poison,
        .bytes = bytes,
        .upper_bytes =
            config->upper_bytes == SC_CONFIG_AUTO ? bytes / 32 * UPPER_OF_32 : config->upper_bytes,
        .policy = (enum sc_policy)config->host_policy,
        .upper_policy = sc_config_upper_policy(config),
        .slab_bytes = sc_host_slab_bytes(&store->shape, config->chunk_tokens),
        .windows = store->params.windows};
    struct spec_error error = {.struct_size = sizeof(error)};
    spec_status status = sc_host_tier_open(&host, &store->host, is_auto ? &error : reterr);
    if (status == SPEC_E_NO_MEMORY && is_auto) {
        SC_LOG(store->params.log, SPEC_LOG_WARN, "host_bytes auto: none: %s", error.text);
        status = SPEC_OK;
    }
    if (store->host != NULL)
        store->piece_gone = sc_host_slab_piece_gone;
    return status;
}

static spec_status frames_open(struct sc_store *store, struct spec_error *reterr)
{
    const struct sc_config *config = store->params.config;
    uint64_t frame_bytes = store->limits.op_bytes + SC_STAGING_SLACK_BYTES;
    struct sc_staging_params frames = {.alloc = store->params.alloc,
                                       .exec = store->params.exec,
                                       .poison = store->params.poison,
                                       .staging_bytes = config->staging_bytes - frame_bytes,
                                       .op_bytes = store->limits.op_bytes};
    spec_status status = sc_staging_open(&frames, &store->frames, reterr);
    if (status != SPEC_OK)
        return status;
    sc_io_buffers(store->io, sc_staging_memory(store->frames), sc_staging_bytes(store->frames),
                  sc_staging_frame_bytes(store->frames));
    store->writing.write_max = sc_staging_count(store->frames);
    store->limits.pass_extents_max = sc_staging_count(store->frames) / FRAMES_PART;
    store->spare.frame = sc_alloc_aligned(store->params.alloc, frame_bytes, SC_IO_PAGE_BYTES);
    if (store->spare.frame == NULL)
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "the spare staging frame");
    if (!sc_store_pool_open(&store->pool, store->params.alloc, store->params.poison,
                            store->params.selector_bytes_max))
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "%" PRIu64 " bytes for selector keys",
                       store->params.selector_bytes_max);
    status = host_open(store, reterr);
    return status == SPEC_OK ? sc_store_match_fetcher_open(store, reterr) : status;
}

static spec_status tables_open(struct sc_store *store, struct spec_error *reterr)
{
    struct sc_alloc *alloc = store->params.alloc;
    if (!sc_store_spaces_init(&store->log.spaces, alloc) ||
        !sc_store_table_init(&store->table, alloc) ||
        !sc_store_table_reserve(&store->table, 1, 1, 1))
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "tables of the store");
    return SPEC_OK;
}

/* Opens the parts that write extents; their sizes follow from the limits. */
static spec_status writing_open(struct sc_store *store, struct spec_error *reterr)
{
    spec_status status = sc_store_copies_open(store, reterr);
    store->extent_hand = sc_store_extent_hand;
    store->extents_retake = sc_store_extents_retake;
    if (status == SPEC_OK)
        status = sc_store_extents_open(store, reterr);
    if (status == SPEC_OK)
        status = sc_store_write_queue_open(store, reterr);
    if (status == SPEC_OK)
        status = sc_store_build_open(store, reterr);
    if (status == SPEC_OK)
        status = sc_store_compactor_open(store, reterr);
    return status == SPEC_OK ? sc_store_inline_quant_open(store, reterr) : status;
}

/* All memory of a writer, so that taking over allocates little. */
static spec_status open_heir(struct sc_store *store, struct spec_error *reterr)
{
    sc_store_write_budget_heir_open(store);
    (void)sc_store_members_join(store, NULL); /* following tries again, and says if it cannot */
    if (sc_store_is_member(store))
        sc_store_follow_members(store);
    spec_status status = sc_store_segments_heir_open(store, reterr);
    if (status == SPEC_OK)
        status = rows_max_decide(store, reterr);
    if (status == SPEC_OK)
        status = frames_open(store, reterr);
    if (status == SPEC_OK)
        status = tables_open(store, reterr);
    if (status == SPEC_OK)
        status = writing_open(store, reterr);
    return status == SPEC_OK ? sc_store_follow_open(store, reterr) : status;
}

static spec_status open_follower(struct sc_store *store, struct spec_error *reterr)
{
    store->writing.extent_max = 0;
    spec_status status = tables_open(store, reterr);
    if (status == SPEC_OK && store->params.role == SC_STORE_READER)
        status = frames_open(store, reterr);
    return status == SPEC_OK ? sc_store_follow_open(store, reterr) : status;
}

/* A writer without a place stores all the same. */
static spec_status member_join(struct sc_store *store, struct spec_error *reterr)
{
    spec_status status = sc_store_members_join(store, reterr);
    if (status != SPEC_E_LOCKED)
        return status;
    SC_LOG(store->params.log, SPEC_LOG_WARN,
           "%s: 16 processes wait to store here; this one does, and is not counted", store->dir);
    return SPEC_OK;
}

static spec_status open_steps(struct sc_store *store, struct spec_error *reterr)
{
    spec_status status = sc_store_io_open(store, reterr);
    if (status == SPEC_OK)
        status = sc_store_dir_name(store, SC_STORE_ROWS_PREFIX, reterr);
    if (status == SPEC_OK && store->params.role == SC_STORE_HEIR)
        return open_heir(store, reterr);
    if (status == SPEC_OK && store->params.role != SC_STORE_WRITER)
        return open_follower(store, reterr);
    if (status == SPEC_OK)
        status = sc_store_identity_open(store, reterr);
    if (status == SPEC_OK)
        status = sc_store_kind_check(store, SC_STORE_OBJECTS_PREFIX, "objects", reterr);
    if (status == SPEC_OK)
        status = sc_store_dir_open(store, reterr);
    if (status == SPEC_OK)
        status = member_join(store, reterr);
    if (status == SPEC_OK)
        status = sc_store_notify_open(store, reterr);
    if (status == SPEC_OK)
        status = sc_store_journal_open(store, reterr);
    if (status == SPEC_OK)
        status = sc_store_write_budget_open(store, reterr);
    if (status == SPEC_OK)
        status = sc_store_segments_open(store, reterr);
    if (status == SPEC_OK)
        status = rows_max_decide(store, reterr);
    if (status == SPEC_OK)
        status = frames_open(store, reterr);
    if (status == SPEC_OK)
        status = tables_open(store, reterr);
    if (status == SPEC_OK)
        status = writing_open(store, reterr);
    if (status == SPEC_OK)
        status = sc_store_replay_log(store, reterr); /* last: it may rewrite the log */
    if (status == SPEC_OK)
        sc_store_reserve_open(store);
    return status;
}

/* Returns the largest operation, which is a staging frame: io.op_bytes, or less if staging would
 * have too few frames. Each extent being written holds one partly filled. */
static uint64_t op_bytes_decide(const struct sc_store_params *params)
{
    const struct sc_config *config = params->config;
    uint64_t bytes = OP_BYTES_LEAST;
    while (bytes < row_op_bytes(&params->space) ||
           bytes * 2 <= config->staging_bytes / FRAMES_WANTED)
        bytes *= 2;
    return bytes < config->io_op_bytes ? bytes : config->io_op_bytes;
}

static void turn_init(pthread_mutex_t *lock)
{
    pthread_mutexattr_t recursive;
    pthread_mutexattr_init(&recursive);
    pthread_mutexattr_settype(&recursive, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(lock, &recursive);
    pthread_mutexattr_destroy(&recursive);
}

struct sc_store *sc_store_base_make(const struct sc_store_params *params)
{
    struct sc_store *store = sc_alloc_zero(params->alloc, sizeof(*store));
    if (store == NULL)
        return NULL;
    store->params = *params;
    atomic_store(&store->can_store, params->role == SC_STORE_WRITER);
    atomic_store(&store->keeps_space,
                 params->role == SC_STORE_WRITER || params->role == SC_STORE_HEIR);
    pthread_mutex_init(&store->disk.lock, NULL);
    pthread_mutex_init(&store->log.lock, NULL);
    turn_init(&store->log.turn.lock);
    pthread_mutex_init(&store->spare.lock, NULL);
    pthread_mutex_init(&store->day_budget.lock, NULL);
    pthread_mutex_init(&store->erasures.lock, NULL);
    return store;
}

void sc_store_base_free(struct sc_store *store)
{
    struct sc_alloc *alloc = store->params.alloc;
    sc_store_segments_close(store);
    sc_store_seal_old_close(store);
    sc_store_hints_close(store);
    sc_store_journal_close(store);
    sc_store_members_leave(store);
    if (store->lock_file != NULL)
        sc_io_file_close(store->io, store->lock_file);
    if (store->io != NULL)
        sc_io_close(store->io);
    sc_alloc_free(alloc, store->dir);
    pthread_mutex_destroy(&store->disk.lock);
    pthread_mutex_destroy(&store->log.lock);
    pthread_mutex_destroy(&store->log.turn.lock);
    pthread_mutex_destroy(&store->spare.lock);
    pthread_mutex_destroy(&store->day_budget.lock);
    pthread_mutex_destroy(&store->erasures.lock);
    sc_alloc_free(alloc, store);
}

void sc_store_base_wait(struct sc_store *store)
{
    for (;;) {
        uint32_t busy = atomic_load(&store->busy);
        if (busy == 0 || !sc_exec_wait(store->params.exec, &store->busy, busy, SC_EXEC_FOREVER))
            break;
    }
}

static void store_free(struct sc_store *store)
{
    struct sc_alloc *alloc = store->params.alloc;
    sc_store_eraser_close(store);
    sc_store_inline_quant_close(store);
    sc_store_compactor_close(store);
    sc_store_build_close(store);
    sc_store_write_queue_close(store);
    sc_store_extents_close(store);
    sc_store_averages_done(&store->log.averages, alloc);
    sc_store_table_done(&store->table);
    sc_store_spaces_done(&store->log.spaces);
    sc_store_pool_close(&store->pool);
    sc_store_match_fetcher_close(store);
    sc_host_tier_close(store->host);
    sc_alloc_free(alloc, store->spare.frame);
    if (store->io != NULL)
        sc_io_buffers(store->io, NULL, 0, 0); /* the frames are freed before it */
    sc_staging_close(store->frames);
    sc_store_replay_close(store);
    sc_store_notify_close(store);
    sc_alloc_free(alloc, store->descriptor);
    sc_store_base_free(store);
}

static void drop_ignore(uint64_t piece, uint64_t mark, void *user)
{
    (void)piece;
    (void)mark;
    (void)user;
}

/* Before a process joins others: if nobody has the store, opens it as its only writer, which makes,
 * repairs and converts it, and closes it. */
static spec_status recover_alone(const struct sc_store_params *params, struct spec_error *reterr)
{
    struct sc_config config = *params->config;
    struct sc_store_params alone = *params;
    struct spec_error error = {.struct_size = sizeof(error)};
    struct sc_store *store;
    config.host_bytes = 0;
    alone.config = &config;
    alone.role = SC_STORE_WRITER;
    alone.selector_bytes_max = alone.extents_more = 0;
    alone.codes = (struct sc_store_quant){0};
    alone.permutation = (struct sc_store_permutation){0};
    alone.on_secret = NULL;
    alone.on_piece = NULL;
    alone.piece_holds = NULL;
    alone.on_pieces_soon = NULL;
    alone.on_piece_soon = NULL;
    alone.on_drop = drop_ignore; /* else the log is read twice */
    alone.on_epoch = NULL;
    alone.on_average = NULL;
    alone.on_note = NULL;
    spec_status status = sc_store_open(&alone, &store, &error);
    if (status == SPEC_E_LOCKED)
        return SPEC_OK;
    if (status != SPEC_OK)
        return sc_fail_errno(reterr, status, error.sys_errno, "%s", error.text);
    sc_store_close(store);
    return SPEC_OK;
}

bool sc_store_stores(const struct sc_store *store)
{
    return sc_store_can_store(store);
}

/* A member's, unless another process has the store alone: then it tries again later. */
static void join(struct sc_store *store)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    if (sc_store_is_member(store) && sc_store_take_over(store, &error) != SPEC_OK)
        SC_LOG(store->params.log, SPEC_LOG_INFO, "%s: reads for now: %s", store->dir, error.text);
}

spec_status sc_store_open(const struct sc_store_params *params, struct sc_store **ret_store,
                          struct spec_error *reterr)
{
    spec_status status = params_check(params, reterr);
    if (status == SPEC_OK && params->shares && params->role == SC_STORE_HEIR)
        status = recover_alone(params, reterr);
    if (status != SPEC_OK)
        return status;
    struct sc_store *store = sc_store_base_make(params);
    if (store == NULL)
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "store handle");
    store->limits.op_bytes = op_bytes_decide(params);
    store->writing.extent_max =
        params->config->max_requests < (EXTENTS_MAX - EXTENTS_SPARE) / EXTENTS_EACH
            ? params->config->max_requests * EXTENTS_EACH + EXTENTS_SPARE
            : EXTENTS_MAX;
    store->writing.extent_max += params->extents_more;
    if (params->codes.shape.bits_k != 0 && params->codes.with_rows)
        store->writing.extent_max += SC_STORE_INLINE_QUANT_MAX;
    sc_store_shape_set(&store->shape, &params->space);
    store->shape.is_own = true; /* as a commit adds it to the log's namespaces */
    store->descriptor = sc_alloc_string(params->alloc, params->space.descriptor);
    if (store->descriptor == NULL)
        status = sc_fail(reterr, SPEC_E_NO_MEMORY, "namespace descriptor");
    else
        status = open_steps(store, reterr);
    if (status != SPEC_OK) {
        store_free(store);
        return status;
    }
    store->params.space.descriptor = store->descriptor;
    join(store);
    *ret_store = store;
    return SPEC_OK;
}

void sc_store_close(struct sc_store *store)
{
    if (store == NULL)
        return;
    sc_store_inline_quant_stop(store);
    sc_store_build_stop(store);
    sc_store_compactor_stop(store);
    sc_store_match_fetcher_stop(store);
    sc_store_base_wait(store);
    pthread_mutex_lock(&store->disk.lock); /* the last task has left it */
    bool idle = sc_store_extents_idle(store) && atomic_load(&store->busy) == 0;
    pthread_mutex_unlock(&store->disk.lock);
    SC_ASSERT(store->params.poison, idle);
    if (idle)
        sc_store_checkpoint_close(store);
    store_free(store);
}

void sc_store_fork_close(struct sc_store *store)
{
    sc_io_fork_close(store->io);
}

uint64_t sc_store_awaited_ns(const struct sc_store *store)
{
    return sc_store_counted(&store->counts.awaited_ns);
}

void sc_store_stats(struct sc_store *store, struct sc_store_stats *ret_stats)
{
    struct sc_store_stats stats = {
        .disk_bytes_max = store->disk.bytes_max,
        .log_bytes = sc_store_counted(&store->counts.log_bytes),
        .piece_count = sc_store_counted(&store->counts.piece_count),
        .extent_count = sc_store_counted(&store->counts.extent_count),
        .read_bytes = sc_store_counted(&store->counts.read_bytes),
        .read_ops = sc_store_counted(&store->counts.read_ops),
        .write_bytes = sc_store_counted(&store->counts.write_bytes),
        .write_ops = sc_store_counted(&store->counts.write_ops),
        .stored_row_bytes = sc_store_counted(&store->counts.stored_row_bytes),
        .budget_left = sc_store_write_budget_left(store),
        .quantised_write_bytes =
            sc_store_counted(&store->day_budget.written[SC_STORE_WRITTEN_QUANT]) +
            sc_store_counted(&store->day_budget.written[SC_STORE_WRITTEN_PERMUTED]),
        .compaction_write_bytes =
            sc_store_counted(&store->day_budget.written[SC_STORE_WRITTEN_COMPACTION]),
        .log_write_bytes = sc_store_counted(&store->day_budget.written[SC_STORE_WRITTEN_LOG]),
        .checkpoint_write_bytes =
            sc_store_counted(&store->day_budget.written[SC_STORE_WRITTEN_CHECKPOINTS]),
        .permuted_write_bytes =
            sc_store_counted(&store->day_budget.written[SC_STORE_WRITTEN_PERMUTED]),
        .verify_ns = sc_store_counted(&store->counts.verify_ns),
        .corrupt_rows = sc_store_counted(&store->counts.corrupt_rows),
        .corrupt_records = sc_store_counted(&store->counts.corrupt_records),
        .io_errors = sc_store_counted(&store->counts.io_errors),
        .no_space = sc_store_counted(&store->counts.no_space),
        .stage_full = sc_store_counted(&store->counts.stage_full),
        .evicted_pieces = sc_store_counted(&store->counts.evicted_pieces),
        .checkpoints = sc_store_counted(&store->counts.checkpoints),
        .built_pieces = sc_store_counted(&store->counts.built_pieces),
        .built_bytes = sc_store_counted(&store->counts.built_bytes),
        .bad_blocks = sc_store_counted(&store->counts.bad_blocks),
        .quantised_bytes = sc_store_counted(&store->counts.quantised_bytes),
        .permuted_pieces = sc_store_counted(&store->counts.permuted_pieces),
        .permuted_again = sc_store_counted(&store->counts.permuted_again),
        .selectors_refused = sc_store_counted(&store->pool.refused)};
    uint64_t now_ns = sc_exec_now_ns(store->params.exec);
    bool is_quantising = sc_store_inline_quant_runs(store);
    pthread_mutex_lock(&store->disk.lock);
    stats.is_building = is_quantising || (store->build != NULL && sc_store_build_runs(store));
    (void)sc_store_quarantine_release_some(store, now_ns, SC_STORE_RELEASE_MAX);
    stats.quarantine_bytes = store->quarantine.bytes;
    stats.disk_bytes_used =
        store->disk.segment_bytes + sc_store_up(stats.log_bytes, SC_IO_PAGE_BYTES);
    stats.extent_bytes = store->disk.extent_bytes;
    pthread_mutex_unlock(&store->disk.lock);
    if (store->frames != NULL)
        stats.staging_bytes_used =
            sc_staging_used(store->frames) * sc_staging_frame_bytes(store->frames);
    struct sc_host_tier_stats host;
    sc_host_tier_stats(store->host, &host);
    stats.host_bytes_max = host.bytes_max;
    stats.host_bytes_used = host.bytes_used;
    stats.host_bytes_kept = host.bytes_kept;
    stats.host_hits = host.hits;
    stats.host_misses = host.misses;
    stats.host_evictions = host.evictions;
    stats.upper_bytes_max = host.upper_bytes_max;
    stats.upper_bytes_used = host.upper_bytes_used;
    stats.upper_hits = host.upper_hits;
    stats.upper_promoted = host.risen;
    stats.upper_demoted = host.sunk;
    *ret_stats = stats;
}

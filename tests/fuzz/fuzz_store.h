/* A store for targets that fuzz its log: a simulated disk with an identity and one empty segment of
 * 1 MiB, whose log the target writes.
 *
 *   params (the target's members) -> fuzz_world_make -> empty disk --copy--> the target's disk
 *                                                                  log: fuzz_frame_put, poke
 *
 * Threads: one (the seeded loop).
 * Tests: tests/fuzz/fuzz_log.c, fuzz_follow.c */
#ifndef SC_TESTS_FUZZ_FUZZ_STORE_H
#define SC_TESTS_FUZZ_FUZZ_STORE_H

#include "store/internal.h"
#include "store/load.h"
#include "tests/fuzz/fuzz.h"
#include "tests/sim/io_sim.h"
#include "tests/sim/sim_memory.h"

#include <string.h>

#define RANK_DIR     "/sim/store/rank-0000-of-0001"
#define LOG_PATH     RANK_DIR "/log"
#define SEGMENT_PATH RANK_DIR "/seg-00000000"
#define LOG_BYTES    (1u << 20)
#define TOLD_MAX     4096u

struct fuzz_world {
    struct sc_alloc alloc;
    struct sc_log log;
    struct sc_poison poison;
    struct sc_exec *exec;
    struct sc_config config;
    struct sc_store_params params; /* the target's: callbacks but on_written, family, probes */
    struct sc_io_sim_disk *empty;  /* identity and a segment; NULL: not made */
    struct sc_store_log_end start; /* of the log */
};

static inline void fuzz_on_written(struct sc_store_extent *extent, spec_status status,
                                   void *extent_user, void *user)
{
    (void)status;
    (void)extent_user;
    (void)user;
    sc_store_extent_discard(extent);
}

/* Codes of slabs are their first bytes. */
static inline bool fuzz_encode(void *user, const struct sc_store_encode *what)
{
    (void)user;
    memset(what->scales, (int)what->part, 16);
    for (uint64_t i = 0; i < what->row_count; i++)
        memcpy(what->codes + i * 8, what->rows[i], 8);
    return true;
}

static inline void fuzz_on_line(int32_t level, const char *line, void *user)
{
    (void)level;
    (void)line;
    (void)user;
}

static inline void fuzz_store_close(struct sc_store *store)
{
    sc_store_close(store);
    sc_sim_memory_rest();
}

static inline struct sc_io *fuzz_io(struct fuzz_world *world, struct sc_io_sim_disk *disk)
{
    struct sc_io_params params = {.alloc = &world->alloc,
                                  .exec = world->exec,
                                  .log = &world->log,
                                  .custom = sc_io_sim_custom(disk)};
    struct sc_io *io = NULL;
    FUZZ_CHECK(sc_io_open(&params, &io, NULL) == SPEC_OK);
    return io;
}

static inline void fuzz_file_make(struct sc_io *io, const char *path, uint64_t bytes)
{
    struct sc_io_file *file = NULL;
    FUZZ_CHECK(sc_io_file_open(io, path, SC_IO_OPEN_CREATE | SC_IO_OPEN_WRITE, &file, NULL) ==
               SPEC_OK);
    FUZZ_CHECK(bytes == 0 || sc_io_file_reserve(io, file, bytes, NULL) == SPEC_OK);
    sc_io_file_close(io, file);
}

static inline void fuzz_world_make(struct fuzz_world *world)
{
    struct sc_io_sim_disk_params disk = {.alloc = &world->alloc};
    struct sc_exec_params exec = {.alloc = &world->alloc, .poison = &world->poison};
    struct sc_store_params *params = &world->params;
    struct sc_store *store;
    sc_sim_memory_alloc_init(&world->alloc);
    sc_log_init(&world->log, fuzz_on_line, NULL, 0);
    FUZZ_CHECK(sc_exec_open(&exec, &world->exec, NULL) == SPEC_OK);
    FUZZ_CHECK(sc_io_sim_disk_open(&disk, &world->empty, NULL) == SPEC_OK);
    world->config = (struct sc_config){.path = "/sim/store",
                                       .chunk_tokens = 64,
                                       .disk_bytes = 4u << 20,
                                       .segment_bytes = 1u << 20,
                                       .staging_bytes = 1u << 20,
                                       .io_op_bytes = 64u << 10,
                                       .max_requests = 1};
    params->alloc = &world->alloc;
    params->exec = world->exec;
    params->log = &world->log;
    params->poison = &world->poison;
    params->config = &world->config;
    params->custom = sc_io_sim_custom(world->empty);
    params->rank_count = 1;
    params->space.digest[0] = 7;
    params->space.layer_count = 2;
    params->space.k_row_bytes = 48;
    params->space.descriptor = "{}";
    params->selector_bytes_max = 1u << 20;
    params->codes = (struct sc_store_quant){
        .shape = {.bits_k = 4, .bits_v = 2, .scale_bytes = 16, .k_row_bytes = 8, .v_row_bytes = 8},
        .with_rows = true,
        .encode = fuzz_encode};
    params->on_written = fuzz_on_written;
    FUZZ_CHECK(sc_store_open(params, &store, NULL) == SPEC_OK);
    sc_store_log_begin(&world->start, store->store_id, 0, 1);
    fuzz_store_close(store);
    struct sc_io *io = fuzz_io(world, world->empty);
    fuzz_file_make(io, SEGMENT_PATH, 1u << 20);
    sc_io_close(io);
}

/* The payload in an honest frame behind the log's first *count bytes; false: there is no room, and
 * nothing is changed. */
static inline bool fuzz_frame_put(uint8_t *log, uint64_t *count, const uint8_t *payload,
                                  uint64_t bytes, struct sc_store_log_end *end)
{
    struct sc_store_writer writer = {log, *count, LOG_BYTES, false};
    if (bytes == 0 || SC_STORE_FRAME_BYTES + bytes > LOG_BYTES - *count)
        return false;
    uint64_t begin = sc_store_frame_begin(&writer);
    memcpy(writer.bytes + writer.used, payload, bytes);
    writer.used += bytes;
    end->offset = begin;
    sc_store_frame_end(&writer, begin, false, end);
    *count = writer.used;
    return true;
}

#endif

/* A store under test, and the twin that knows what every piece must hold; see store_fixture.h.
 *
 * Holds, Threads: as store_fixture.h. */
#include "tests/unit/store/store_fixture.h"

void row_fill(uint8_t *dst, uint64_t bytes, uint64_t key, uint64_t layer, uint64_t position)
{
    uint64_t word = mix(key ^ mix(layer * 1000003 + position));
    for (uint64_t i = 0; i < bytes; i += 8) { /* words, which a sanitizer looks at once each */
        word = word * 6364136223846793005ull + 1442695040888963407ull;
        if (bytes - i >= 8)
            memcpy(dst + i, &word, 8);
        else
            memcpy(dst + i, &word, bytes - i);
    }
}

uint32_t token_of(uint64_t key, uint64_t position)
{
    return (uint32_t)mix(key * 31 + position);
}

void hash_of(uint64_t key, uint64_t position, uint8_t hash[16])
{
    uint64_t words[2] = {key, mix(key + position)}; /* the key stands in it: replay reads it back */
    memcpy(hash, words, 16);
}

/* ---- Making and ending ---------------------------------------------------------------------- */

static void world_line(int32_t level, const char *line, void *user)
{
    struct world *world = user;
    (void)level;
    (void)snprintf(world->last_line, sizeof(world->last_line), "%s", line);
}

static bool world_on_piece(const struct sc_store_piece *piece, uint64_t *ret_mark, void *user)
{
    struct world *world = user;
    uint64_t key;
    uint8_t hash[16];
    *ret_mark = piece->id + 1000; /* test_store.c asks for it */
    memcpy(&key, piece->hash, 8);
    hash_of(key, piece->first_position + piece->row_count, hash);
    assert_memory_equal(hash, piece->hash, 16); /* the record's own words agree */
    hash_of(key, piece->chunk_first, hash);
    assert_memory_equal(hash, piece->chunk_hash, 16);
    for (uint64_t p = piece->chunk_first; p < piece->first_position + piece->row_count; p++)
        assert_int_equal(piece->tokens[p - piece->chunk_first], token_of(key, p));
    if (piece->id == world->refuse_id)
        return false;
    world->open_count++;
    for (uint32_t i = 0; i < world->piece_count; i++) {
        struct world_piece *mine = &world->pieces[i];
        if (mine->id == piece->id && mine->key == key) {
            assert_int_equal(mine->first_position, piece->first_position);
            assert_int_equal(mine->row_count, piece->row_count);
            assert_int_equal(mine->computed_on, piece->provenance.computed_on);
            mine->seen = true;
            return true;
        }
    }
    /* Committed by a run that this twin did not see the end of (a crash). */
    if (world->piece_count < WORLD_PIECES)
        world->pieces[world->piece_count++] =
            (struct world_piece){.id = piece->id,
                                 .key = key,
                                 .first_position = piece->first_position,
                                 .row_count = piece->row_count,
                                 .computed_on = piece->provenance.computed_on,
                                 .seen = true};
    return true;
}

void world_on_written(struct sc_store_extent *extent, spec_status status, void *extent_user,
                      void *user)
{
    struct pass *pass = extent_user;
    struct world *world = user;
    pass->status = status;
    if (status != SPEC_OK || pass->discards)
        sc_store_extent_discard(extent);
    else
        do { /* PENDING: another member was faster */
            pass->status =
                sc_store_extent_commit(extent, &pass->commit, &pass->first_id, &pass->error);
        } while (pass->status == SPEC_PENDING);
    struct sc_exec *exec = world->exec;
    atomic_store(&pass->done, 1);
    sc_exec_wake(exec, &pass->done);
}

spec_status world_open(struct world *world)
{
    world->open_count = 0;
    world->error = (struct spec_error){.struct_size = sizeof(world->error)};
    for (uint32_t i = 0; i < world->piece_count; i++)
        world->pieces[i].seen = false;
    spec_status status = sc_store_open(&world->params, &world->store, &world->error);
    if (status != SPEC_OK)
        sc_sim_memory_rest();
    return status;
}

bool world_opens(struct world *world)
{
    spec_status status = world_open(world);
    if (status == SPEC_E_UNSUPPORTED) {
        print_message("%s: skipped: %s\n", world->setup->name, world->error.text);
        return false;
    }
    if (status != SPEC_OK)
        fail_msg("%s: open: %s", world->setup->name, world->error.text);
    return true;
}

void world_open_ok(struct world *world)
{
    if (world_open(world) != SPEC_OK)
        fail_msg("open: %s", world->error.text);
}

void world_close(struct world *world)
{
    sc_store_close(world->store);
    sc_sim_memory_rest();
    world->store = NULL;
}

void world_exec(struct world *world, uint64_t seed)
{
    struct sc_exec_params exec = {.alloc = &world->alloc,
                                  .thread_count = world->setup->thread_count,
                                  .seed = seed,
                                  .name = "test",
                                  .poison = &world->poison};
    assert_int_equal(sc_exec_open(&exec, &world->exec, NULL), SPEC_OK);
    world->params.exec = world->exec;
}

struct world *world_make(const struct world_setup *setup, uint64_t seed)
{
    struct world *world = calloc(1, sizeof(*world));
    assert_non_null(world);
    world->setup = setup;
    sc_sim_memory_alloc_init(&world->alloc);
    sc_log_init(&world->log, world_line, world, 3);
    sc_fault_init(&world->fault);
    const char *base = "/sim";
    if (setup->backend == SC_BACKEND_SIM) {
        struct sc_io_sim_disk_params disk = {
            .alloc = &world->alloc, .seed = seed, .journal = setup->journal};
        assert_int_equal(sc_io_sim_disk_open(&disk, &world->disk, NULL), SPEC_OK);
        sc_io_sim_disk_device(world->disk, &(const struct sc_io_sim_device){
                                               .bytes_per_s = 5000000000u, .op_ns = 80000});
    } else {
        (void)snprintf(world->root, sizeof(world->root), "/var/tmp/sc-store-XXXXXX");
        base = mkdtemp(world->root);
        assert_non_null(base);
    }
    world->config = (struct sc_config){
        .chunk_tokens = 64,
        .disk_bytes = setup->disk_bytes,
        .segment_bytes = setup->segment_bytes,
        .staging_bytes = setup->staging_bytes > 0 ? setup->staging_bytes : 16u << 20,
        .io_backend = setup->backend,
        .io_op_bytes = setup->op_bytes,
        .max_requests = 8};
    (void)snprintf(world->config.path, sizeof(world->config.path), "%s/store", base);
    world->params = (struct sc_store_params){
        .alloc = &world->alloc,
        .log = &world->log,
        .fault = &world->fault,
        .poison = &world->poison,
        .config = &world->config,
        .custom = sc_io_sim_custom(world->disk),
        .rank_count = 1,
        .probe_row_bytes = setup->probe_row_bytes,
        .selector_bytes_max = 1u << 20, /* test_selector.c wants more */
        .space = {.digest = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16},
                  .family = {16, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1},
                  .layer_count = setup->layers,
                  .layout = setup->layout,
                  .k_row_bytes = setup->k_row_bytes,
                  .descriptor = "{\"model\":\"test\"}"},
        .on_piece = world_on_piece,
        .on_written = world_on_written,
        .user = world};
    world_exec(world, seed);
    return world;
}

struct world *world_new(const struct world_setup *setup, uint64_t seed)
{
    struct world *world = world_make(setup, seed);
    world_open_ok(world);
    return world;
}

void world_disk(struct world *world, struct sc_io_sim_disk *disk)
{
    world->disk = disk;
    world->params.custom = sc_io_sim_custom(disk);
}

struct world *world_cut(const struct world *origin, uint64_t events, uint64_t world_seed,
                        uint64_t disk_seed)
{
    struct world *world = world_make(origin->setup, world_seed);
    memcpy(world->pieces, origin->pieces, sizeof(world->pieces));
    world->piece_count = origin->piece_count;
    sc_io_sim_disk_close(world->disk);
    struct sc_io_sim_disk *cut = NULL;
    assert_int_equal(sc_io_sim_disk_fork(origin->disk, events, disk_seed, &cut, NULL), SPEC_OK);
    world_disk(world, cut);
    return world;
}

void remove_tree(const char *path)
{
    DIR *dir = opendir(path);
    for (const struct dirent *entry; dir != NULL && (entry = readdir(dir)) != NULL;) {
        char child[4096 + 300];
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        (void)snprintf(child, sizeof(child), "%.4096s/%s", path, entry->d_name);
        remove_tree(child);
    }
    if (dir != NULL)
        (void)closedir(dir);
    (void)remove(path);
}

void world_free(struct world *world)
{
    sc_store_close(world->store);
    sc_io_sim_disk_close(world->disk);
    sc_exec_close(world->exec);
    sc_sim_memory_rest();
    sc_log_done(&world->log);
    assert_int_equal(atomic_load(&world->alloc.live_blocks), 0);
    assert_int_equal(atomic_load(&world->alloc.live_bytes), 0);
    assert_int_equal(atomic_load(&world->alloc.sealed_refusals), 0);
    assert_int_equal(atomic_load(&world->poison.broken), 0);
    if (world->root[0] != '\0')
        remove_tree(world->root);
    free(world);
}

struct world *world_opened(struct world *world)
{
    if (world_opens(world))
        return world;
    world_free(world);
    return NULL;
}

void world_reopen(struct world *world)
{
    world_close(world);
    world_open_ok(world);
}

struct sc_store_stats stats_of(const struct world *world)
{
    struct sc_store_stats stats;
    sc_store_stats(world->store, &stats);
    return stats;
}

void world_wait_ns(const struct world *world, uint64_t ns)
{
    _Atomic uint32_t never = 0;
    (void)sc_exec_wait(world->exec, &never, 0, sc_exec_now_ns(world->exec) + ns);
}

void world_faults(struct world *world)
{
    world->params.fault = &world->fault;
    world->alloc.fault = &world->fault;
}

void disk_flip(const struct world *world, const char *path, uint64_t at, uint8_t bits)
{
    uint8_t byte;
    assert_true(sc_io_sim_disk_peek(world->disk, path, at, &byte, 1));
    byte ^= bits;
    assert_true(sc_io_sim_disk_poke(world->disk, path, at, &byte, 1));
}

void segment_flip(const struct world *world, uint32_t number, uint64_t at, uint8_t bits)
{
    char path[64];
    (void)snprintf(path, sizeof(path), "/sim/store/rank-0000-of-0001/seg-%08x", number);
    disk_flip(world, path, at, bits);
}

void world_drop(struct world *world, uint32_t first, uint32_t count)
{
    uint64_t ids[64];
    assert_true(count <= 64 && first + count <= world->piece_count);
    for (uint32_t i = 0; i < count; i++)
        ids[i] = world->pieces[first + i].id;
    sc_store_pieces_drop(world->store, ids, count);
    memmove(&world->pieces[first], &world->pieces[first + count],
            (world->piece_count - first - count) * sizeof(world->pieces[0]));
    world->piece_count -= count;
}

/* ---- Writing -------------------------------------------------------------------------------- */

void pass_pack(void *user, uint32_t part, uint64_t row_first, uint64_t row_count, uint8_t *dst)
{
    struct pass *pass = user;
    uint64_t k_bytes = pass->world->setup->k_row_bytes;
    uint64_t bytes = part == SC_STORE_PART_ROW ? 2 * k_bytes : k_bytes;
    bytes = part == SC_STORE_PART_PROBE ? pass->world->params.probe_row_bytes : bytes;
    uint8_t *row = malloc(2 * k_bytes);
    assert_non_null(row);
    for (uint64_t i = 0; i < row_count; i++) {
        row_fill(row, 2 * k_bytes, pass->key, pass->layer, pass->first_position + row_first + i);
        memcpy(dst + i * bytes, part == SC_STORE_PART_V ? row + k_bytes : row, bytes);
    }
    free(row);
}

struct pass *pass_make(struct world *world, uint64_t key, uint64_t first_position, uint32_t rows)
{
    struct pass *pass = calloc(1, sizeof(*pass));
    assert_non_null(pass);
    *pass = (struct pass){
        .world = world, .key = key, .first_position = first_position, .row_count = rows};
    pass->error.struct_size = sizeof(pass->error);
    uint64_t chunk = world->config.chunk_tokens, end = first_position + rows;
    for (uint64_t p = first_position; p < end;) {
        struct sc_store_piece_plan *plan = &pass->plans[pass->piece_count++];
        uint64_t next = (p / chunk + 1) * chunk < end ? (p / chunk + 1) * chunk : end;
        plan->first_position = p;
        plan->chunk_first = p / chunk * chunk;
        plan->row_count = (uint32_t)(next - p);
        hash_of(key, plan->chunk_first, plan->chunk_hash);
        hash_of(key, next, plan->hash);
        p = next;
    }
    pass->tokens = calloc(end, sizeof(uint32_t));
    assert_non_null(pass->tokens);
    for (uint64_t p = 0; p < end; p++)
        pass->tokens[p] = token_of(key, p);
    pass->commit.tokens = pass->tokens;
    hash_of(key, 0, pass->commit.root);
    return pass;
}

spec_status pass_begin(struct pass *pass)
{
    const struct sc_store_pass what = {.pieces = pass->plans,
                                       .piece_count = pass->piece_count,
                                       .provenance = {.computed_on = (uint32_t)(pass->key % 3)},
                                       .salt = pass->salt,
                                       .user = pass};
    return sc_store_extent_begin(pass->world->store, &what, &pass->extent, &pass->error);
}

spec_status pass_put(struct pass *pass)
{
    const struct sc_store_source source = {.pack = pass_pack, .user = pass};
    spec_status status =
        sc_store_extent_put_layer(pass->extent, pass->layer, &source, &pass->error);
    pass->layer++;
    return status;
}

void pass_wait(struct pass *pass)
{
    while (atomic_load(&pass->done) == 0)
        if (!sc_exec_wait(pass->world->exec, &pass->done, 0, SC_EXEC_FOREVER))
            fail_msg("nothing will ever complete this extent");
}

void pass_run(struct pass *pass)
{
    assert_int_equal(pass_begin(pass), SPEC_OK);
    while (pass->layer < pass->world->setup->layers)
        assert_int_equal(pass_put(pass), SPEC_OK);
    pass_wait(pass);
    assert_int_equal(pass->status, SPEC_OK);
}

void pass_note(struct pass *pass)
{
    struct world *world = pass->world;
    for (uint32_t i = pass->commit.piece_first; i < pass->piece_count; i++) {
        assert_true(world->piece_count < WORLD_PIECES);
        world->pieces[world->piece_count++] =
            (struct world_piece){.id = pass->first_id + i - pass->commit.piece_first,
                                 .key = pass->key,
                                 .first_position = pass->plans[i].first_position,
                                 .row_count = pass->plans[i].row_count,
                                 .computed_on = (uint32_t)(pass->key % 3)};
    }
}

void pass_free(struct pass *pass)
{
    free(pass->tokens);
    free(pass);
}

spec_status world_store(struct world *world, uint64_t key, uint64_t first_position, uint32_t rows)
{
    struct pass *pass = pass_make(world, key, first_position, rows);
    spec_status status = pass_begin(pass);
    if (status == SPEC_OK) {
        while (status == SPEC_OK && pass->layer < world->setup->layers)
            status = pass_put(pass);
        pass_wait(pass);
        status = pass->status;
    }
    if (status == SPEC_OK)
        pass_note(pass);
    pass_free(pass);
    return status;
}

void world_store_two(struct world *world, uint32_t rows_1, uint32_t rows_2)
{
    assert_int_equal(world_store(world, 1, 0, rows_1), SPEC_OK);
    assert_int_equal(world_store(world, 2, 0, rows_2), SPEC_OK);
}

/* ---- Reading -------------------------------------------------------------------------------- */

struct loaded world_load(struct world *world, struct sc_store_reader *reader, uint32_t layer,
                         const struct sc_store_range *ranges,
                         const struct world_piece *const *twins, uint64_t count)
{
    uint64_t row_bytes = 2 * world->setup->k_row_bytes, all = 0;
    struct loaded loaded = {0};
    for (uint64_t i = 0; i < count; i++)
        all += ranges[i].row_count;
    uint8_t *expected = malloc(row_bytes), *seen = calloc(all + 1, 1);
    assert_non_null(expected);
    assert_non_null(seen);
    sc_store_reader_begin(reader, layer, ranges, count, SC_IO_CLASS_DEMAND);
    for (;;) {
        struct sc_store_rows rows;
        loaded.status = sc_store_reader_next(reader, SC_EXEC_FOREVER, NULL, &rows, &world->error);
        loaded.failed_range = rows.failed_range;
        if (loaded.status != SPEC_OK || rows.row_count == 0)
            break;
        if (world->params.permutation.span_rows == 0) /* else they come in any order */
            assert_int_equal(rows.row_first, loaded.rows);
        uint64_t range = 0, range_row = rows.row_first;
        assert_true(rows.row_first + rows.row_count <= all);
        for (uint64_t i = 0; i < rows.row_count; i++) {
            for (; range_row >= ranges[range].row_count; range++)
                range_row -= ranges[range].row_count;
            const struct world_piece *twin = twins[range];
            assert_int_equal(seen[rows.row_first + i]++, 0);
            row_fill(expected, row_bytes, twin->key, layer,
                     twin->first_position + ranges[range].row_first + range_row);
            bytes_equal(rows.rows + i * row_bytes, expected, row_bytes);
            range_row++;
        }
        loaded.rows += rows.row_count;
    }
    assert_true(sc_store_reader_is_idle(reader));
    assert_true(loaded.status != SPEC_OK || loaded.rows == all);
    free(expected);
    free(seen);
    return loaded;
}

struct loaded world_load_piece(struct world *world, struct sc_store_reader *reader, uint32_t layer,
                               const struct world_piece *piece)
{
    struct sc_store_range range = {.piece = piece->id, .row_count = piece->row_count};
    return world_load(world, reader, layer, &range, &piece, 1);
}

struct loaded world_load_key(struct world *world, struct sc_store_reader *reader, uint32_t layer,
                             uint64_t key)
{
    struct sc_store_range *ranges = calloc(WORLD_PIECES, sizeof(*ranges));
    const struct world_piece **twins = calloc(WORLD_PIECES, sizeof(*twins));
    assert_non_null(ranges);
    assert_non_null(twins);
    uint64_t count = 0;
    for (uint32_t i = 0; i < world->piece_count; i++) {
        if (world->pieces[i].key != key || world->pieces[i].id == 0)
            continue;
        twins[count] = &world->pieces[i];
        ranges[count++] = (struct sc_store_range){.piece = world->pieces[i].id,
                                                  .row_count = world->pieces[i].row_count};
    }
    struct loaded loaded = world_load(world, reader, layer, ranges, twins, count);
    free(ranges);
    free(twins);
    return loaded;
}

struct sc_store_reader *world_reader(struct world *world)
{
    struct sc_store_reader *reader = NULL;
    assert_int_equal(sc_store_readers_open(world->store, 1, &reader, &world->error), SPEC_OK);
    return reader;
}

void rows_ok(struct world *world, uint64_t key)
{
    struct sc_store_reader *reader = world_reader(world);
    for (uint32_t layer = 0; layer < world->setup->layers; layer++)
        if (world_load_key(world, reader, layer, key).status != SPEC_OK)
            fail_msg("%s: %s; %s", world->setup->name, world->error.text, world->last_line);
    sc_store_readers_close(reader, 1);
}

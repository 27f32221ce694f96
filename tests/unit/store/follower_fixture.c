/* Contract: follower_fixture.h. */
#include "tests/unit/store/follower_fixture.h"

static bool follower_on_piece(const struct sc_store_piece *piece, uint64_t *ret_mark, void *user)
{
    struct follower *follower = user;
    uint64_t key;
    uint8_t hash[16];
    memcpy(&key, piece->hash, 8);
    hash_of(key, piece->first_position + piece->row_count, hash);
    assert_memory_equal(hash, piece->hash, 16);
    if (follower->store != NULL) { /* who finds it by what we note here can load it at once */
        uint8_t live[SC_STORE_HASH_BYTES];
        assert_true(sc_store_piece_hash(follower->store, piece->id, live));
        assert_memory_equal(live, hash, sizeof(live));
    }
    if (follower->piece_ns > 0) {
        struct sc_exec *exec = follower->world->exec;
        _Atomic uint32_t never = 0;
        (void)sc_exec_wait(exec, &never, 0, sc_exec_now_ns(exec) + follower->piece_ns);
    }
    if (piece->id == follower->refuse_id)
        return false;
    for (uint32_t i = 0; i < follower->told_count; i++)
        assert_int_not_equal(follower->told[i].id, piece->id); /* never twice */
    assert_true(follower->told_count < TOLD_MAX);
    *ret_mark = ++follower->mark_next;
    follower->told[follower->told_count++] =
        (struct told){.id = piece->id,
                      .mark = *ret_mark,
                      .piece = {.id = piece->id,
                                .key = key,
                                .first_position = piece->first_position,
                                .row_count = piece->row_count,
                                .computed_on = piece->provenance.computed_on}};
    return true;
}

static void follower_on_drop(uint64_t piece, uint64_t mark, void *user)
{
    struct follower *follower = user;
    for (uint32_t i = 0; i < follower->told_count; i++) {
        if (follower->told[i].id != piece)
            continue;
        assert_int_equal(follower->told[i].mark, mark);
        follower->told[i] = follower->told[--follower->told_count];
        follower->drops++;
        return;
    }
    fail_msg("piece %llu was dropped and never told", (unsigned long long)piece);
}

static void follower_on_epoch(uint64_t epoch, void *user)
{
    struct follower *follower = user;
    follower->epoch = epoch;
    follower->told_count = 0;
    follower->epochs++;
}

/* Called for extents of an heir that took over. */
static void follower_on_written(struct sc_store_extent *extent, spec_status status,
                                void *extent_user, void *user)
{
    const struct follower *follower = user;
    world_on_written(extent, status, extent_user, follower->world);
}

struct follower *follower_make(struct world *world, uint32_t role)
{
    struct follower *follower = calloc(1, sizeof(*follower));
    assert_non_null(follower);
    follower->world = world;
    follower->params = world->params;
    follower->params.role = role;
    follower->params.on_piece = follower_on_piece;
    follower->params.on_drop = follower_on_drop;
    follower->params.on_epoch = follower_on_epoch;
    follower->params.on_written = follower_on_written;
    follower->params.user = follower;
    follower->error.struct_size = sizeof(follower->error);
    if (role == SC_STORE_PEER) { /* another rank's model: rows of another shape */
        follower->params.space.digest[0] ^= 0xFF;
        follower->params.space.k_row_bytes = 16;
        follower->params.space.layer_count = 1;
    }
    return follower;
}

void follower_open(struct follower *follower)
{
    if (sc_store_open(&follower->params, &follower->store, &follower->error) != SPEC_OK)
        fail_msg("open: %s", follower->error.text);
}

struct follower *follower_new(struct world *world, uint32_t role)
{
    struct follower *follower = follower_make(world, role);
    follower_open(follower);
    return follower;
}

void follower_free(struct follower *follower)
{
    sc_store_close(follower->store);
    sc_sim_memory_rest();
    free(follower);
}

void follow(struct follower *follower)
{
    bool more = sc_store_follow_due(follower->store);
    for (uint32_t calls = 0; more; calls++) {
        assert_true(calls < 1000);
        if (sc_store_follow(follower->store, &more, &follower->error) != SPEC_OK)
            fail_msg("follow: %s", follower->error.text);
    }
}

void check_same(const struct follower *follower)
{
    const struct world *world = follower->world;
    uint32_t live = 0;
    uint8_t hash[SC_STORE_HASH_BYTES], expected[SC_STORE_HASH_BYTES];
    for (uint32_t i = 0; i < world->piece_count; i++)
        live += world->pieces[i].id != 0;
    assert_int_equal(follower->told_count, live);
    for (uint32_t i = 0; i < follower->told_count; i++) {
        const struct told *told = &follower->told[i];
        const struct world_piece *mine = NULL;
        for (uint32_t p = 0; p < world->piece_count && mine == NULL; p++)
            if (world->pieces[p].id == told->id)
                mine = &world->pieces[p];
        assert_non_null(mine);
        assert_int_equal(mine->key, told->piece.key);
        assert_int_equal(mine->first_position, told->piece.first_position);
        assert_int_equal(mine->row_count, told->piece.row_count);
        hash_of(mine->key, mine->first_position + mine->row_count, expected);
        assert_true(sc_store_piece_hash(follower->store, told->id, hash));
        assert_memory_equal(hash, expected, sizeof(hash));
        assert_int_equal(sc_store_piece_mark(follower->store, told->id), told->mark);
    }
    assert_int_equal(sc_store_piece_next(follower->store), sc_store_piece_next(world->store));
    assert_int_equal(sc_store_epoch(follower->store), sc_store_epoch(world->store));
    struct sc_store_stats stats;
    sc_store_stats(follower->store, &stats);
    assert_int_equal(stats.piece_count, live);
}

void check_rows_told(struct follower *follower)
{
    struct world reading = *follower->world;
    struct sc_store_reader *reader = NULL;
    reading.store = follower->store;
    assert_int_equal(sc_store_readers_open(follower->store, 1, &reader, NULL), SPEC_OK);
    for (uint32_t i = 0; i < follower->told_count; i++) {
        const struct world_piece *piece = &follower->told[i].piece;
        for (uint32_t layer = 0; layer < reading.setup->layers; layer++) {
            struct loaded loaded = world_load_piece(&reading, reader, layer, piece);
            assert_int_equal(loaded.status, SPEC_OK);
            assert_int_equal(loaded.rows, piece->row_count);
        }
    }
    sc_store_readers_close(reader, 1);
}

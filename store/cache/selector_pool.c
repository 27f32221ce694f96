/* selector_pool: allocates runs of blocks. Contract: store/cache/selector_pool.h. */
#include "store/cache/selector_pool.h"

#include <string.h>

bool sc_store_pool_open(struct sc_store_pool *pool, struct sc_alloc *alloc,
                        struct sc_poison *poison, uint64_t bytes)
{
    memset(pool, 0, sizeof(*pool));
    uint64_t count = bytes / SC_STORE_POOL_BLOCK_BYTES;
    pool->alloc = alloc;
    pool->poison = poison;
    pthread_mutex_init(&pool->lock, NULL);
    if (count == 0)
        return true;
    if (count > UINT32_MAX || !sc_store_space_init(&pool->map, alloc, poison, 1, count))
        return false;
    pool->runs = sc_alloc_array(alloc, count, sizeof(*pool->runs));
    pool->base = sc_alloc_huge(alloc, count * SC_STORE_POOL_BLOCK_BYTES);
    if (pool->runs == NULL || pool->base == NULL)
        return false;
    pool->block_count = count;
    sc_store_space_add(&pool->map, 0, count);
    return true;
}

void sc_store_pool_close(struct sc_store_pool *pool)
{
    if (pool->alloc == NULL)
        return;
    SC_ASSERT(pool->poison, atomic_load(&pool->used_bytes) == 0);
    sc_store_space_done(&pool->map);
    sc_alloc_free(pool->alloc, pool->runs);
    sc_alloc_free(pool->alloc, pool->base);
    pthread_mutex_destroy(&pool->lock);
    memset(pool, 0, sizeof(*pool));
}

static uint64_t block_of(const struct sc_store_pool *pool, const uint8_t *run)
{
    uint64_t at = (uint64_t)(run - pool->base);
    SC_ASSERT(pool->poison, at % SC_STORE_POOL_BLOCK_BYTES == 0);
    SC_ASSERT(pool->poison, at / SC_STORE_POOL_BLOCK_BYTES < pool->block_count);
    return at / SC_STORE_POOL_BLOCK_BYTES;
}

uint8_t *sc_store_pool_take(struct sc_store_pool *pool, uint64_t bytes)
{
    uint64_t blocks = bytes / SC_STORE_POOL_BLOCK_BYTES + (bytes % SC_STORE_POOL_BLOCK_BYTES > 0);
    uint64_t first = 0;
    pthread_mutex_lock(&pool->lock);
    bool found = blocks <= pool->block_count && sc_store_space_take(&pool->map, 0, blocks, &first);
    if (found)
        pool->runs[first] = (struct sc_store_pool_run){.blocks = (uint32_t)blocks, .holds = 1};
    pthread_mutex_unlock(&pool->lock);
    atomic_fetch_add_explicit(found ? &pool->used_bytes : &pool->refused,
                              found ? blocks * SC_STORE_POOL_BLOCK_BYTES : 1, memory_order_relaxed);
    return found ? pool->base + first * SC_STORE_POOL_BLOCK_BYTES : NULL;
}

void sc_store_pool_hold(struct sc_store_pool *pool, const uint8_t *run)
{
    uint64_t first = block_of(pool, run);
    pthread_mutex_lock(&pool->lock);
    SC_ASSERT(pool->poison, pool->runs[first].holds > 0);
    pool->runs[first].holds++;
    pthread_mutex_unlock(&pool->lock);
}

void sc_store_pool_leave(struct sc_store_pool *pool, const uint8_t *run)
{
    uint64_t first = block_of(pool, run), blocks = 0;
    pthread_mutex_lock(&pool->lock);
    SC_ASSERT(pool->poison, pool->runs[first].holds > 0);
    if (--pool->runs[first].holds == 0) {
        blocks = pool->runs[first].blocks;
        pool->runs[first].blocks = 0;
        sc_store_space_free(&pool->map, 0, first, blocks);
    }
    pthread_mutex_unlock(&pool->lock);
    atomic_fetch_sub_explicit(&pool->used_bytes, blocks * SC_STORE_POOL_BLOCK_BYTES,
                              memory_order_relaxed);
}

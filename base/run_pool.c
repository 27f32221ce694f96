/* run_pool: a bitmap of pages. */
#include "base/run_pool.h"

#include "base/counter.h"

#include <string.h>

#ifdef SC_SANITIZED
#include <sanitizer/asan_interface.h>
#define HIDE(at, bytes) ASAN_POISON_MEMORY_REGION(at, bytes)
#define SHOW(at, bytes) ASAN_UNPOISON_MEMORY_REGION(at, bytes)
#else
#define HIDE(at, bytes) ((void)(at), (void)(bytes))
#define SHOW(at, bytes) ((void)(at), (void)(bytes))
#endif

#define WORD_PAGES 64u
#define LONG_PAGES (SC_RUN_LONG_BYTES / SC_RUN_PAGE_BYTES) /* more are long */

static uint64_t word_count(const struct sc_run_pool *pool)
{
    return (pool->page_count + WORD_PAGES - 1) / WORD_PAGES;
}

/* Sets or clears pages [first, end), which are all free or all taken. */
static void pages_mark(struct sc_run_pool *pool, uint64_t first, uint64_t end, bool is_taken)
{
    for (uint64_t page = first, next; page < end; page = next) {
        next = (page / WORD_PAGES + 1) * WORD_PAGES;
        next = next < end ? next : end;
        uint64_t mask = next - page == WORD_PAGES
                            ? UINT64_MAX
                            : ((UINT64_C(1) << (next - page)) - 1) << page % WORD_PAGES;
        uint64_t *word = &pool->taken[page / WORD_PAGES];
        SC_ASSERT(pool->poison, (*word & mask) == (is_taken ? 0 : mask));
        *word = is_taken ? *word | mask : *word & ~mask;
    }
}

/* Returns the first taken (or, with is_taken false, free) page in [page, end); end: none. */
static uint64_t page_next(const struct sc_run_pool *pool, uint64_t page, uint64_t end,
                          bool is_taken)
{
    for (uint64_t w = page / WORD_PAGES; w * WORD_PAGES < end; w++) {
        uint64_t word = is_taken ? pool->taken[w] : ~pool->taken[w];
        if (w == page / WORD_PAGES)
            word &= UINT64_MAX << page % WORD_PAGES;
        if (word == 0)
            continue;
        uint64_t found = w * WORD_PAGES + (uint64_t)__builtin_ctzll(word);
        return found < end ? found : end;
    }
    return end;
}

/* Lock held. Returns where a run of so many pages fits; page_count: nowhere. */
static uint64_t gap_find(struct sc_run_pool *pool, uint64_t pages)
{
    bool is_long = pages > LONG_PAGES;
    uint64_t count = pool->page_count, found = count, end;
    pool->free_from = page_next(pool, pool->free_from, count, false);
    for (uint64_t first = pool->free_from; first < count && pages <= count - first;
         first = page_next(pool, end, count, false)) {
        end = page_next(pool, first, is_long ? count : first + pages, true);
        if (end - first < pages)
            continue;
        if (!is_long)
            return first;
        found = end - pages;
    }
    return found;
}

bool sc_run_pool_open(struct sc_run_pool *pool, struct sc_alloc *alloc, struct sc_poison *poison,
                      uint64_t bytes)
{
    *pool = (struct sc_run_pool){.alloc = alloc, .poison = poison};
    pool->page_count = sc_run_bytes(bytes) / SC_RUN_PAGE_BYTES;
    pthread_mutex_init(&pool->lock, NULL);
    pool->taken = sc_alloc_array(alloc, word_count(pool), sizeof(*pool->taken));
    pool->base = sc_alloc_aligned(alloc, pool->page_count * SC_RUN_PAGE_BYTES, SC_RUN_PAGE_BYTES);
    if (pool->taken == NULL || pool->base == NULL)
        return false;
    if (pool->page_count % WORD_PAGES != 0) /* bits behind the last page */
        pool->taken[word_count(pool) - 1] = UINT64_MAX << pool->page_count % WORD_PAGES;
    pool->long_first = pool->page_count;
    return true;
}

void sc_run_pool_close(struct sc_run_pool *pool)
{
    if (pool->alloc == NULL)
        return;
    SC_ASSERT(pool->poison, sc_counted(&pool->used_bytes) == 0);
    if (pool->base != NULL) { /* the poisoned pages only, since unpoisoning touches shadow memory */
        SHOW(pool->base, pool->short_end * SC_RUN_PAGE_BYTES);
        SHOW(pool->base + pool->long_first * SC_RUN_PAGE_BYTES,
             (pool->page_count - pool->long_first) * SC_RUN_PAGE_BYTES);
    }
    sc_alloc_free(pool->alloc, pool->base);
    sc_alloc_free(pool->alloc, pool->taken);
    pthread_mutex_destroy(&pool->lock);
    *pool = (struct sc_run_pool){.alloc = NULL};
}

/* Lock held. */
static void run_begin(struct sc_run_pool *pool, uint64_t first, uint64_t end)
{
    pages_mark(pool, first, end, true);
    if (end - first > LONG_PAGES)
        pool->long_first = first < pool->long_first ? first : pool->long_first;
    else
        pool->short_end = end > pool->short_end ? end : pool->short_end;
}

bool sc_run_take(struct sc_run_pool *pool, uint64_t bytes, struct sc_run *ret_run)
{
    *ret_run = (struct sc_run){NULL, 0};
    if (bytes == 0)
        return true;
    uint64_t pages = bytes / SC_RUN_PAGE_BYTES + (bytes % SC_RUN_PAGE_BYTES != 0);
    pthread_mutex_lock(&pool->lock);
    uint64_t first = gap_find(pool, pages);
    if (first < pool->page_count)
        run_begin(pool, first, first + pages);
    pthread_mutex_unlock(&pool->lock);
    if (first == pool->page_count) {
        sc_count(&pool->refused, 1);
        return false;
    }
    *ret_run = (struct sc_run){pool->base + first * SC_RUN_PAGE_BYTES, pages * SC_RUN_PAGE_BYTES};
    sc_count(&pool->used_bytes, ret_run->bytes);
    SHOW(ret_run->at, ret_run->bytes);
    return true;
}

void sc_run_trim(struct sc_run_pool *pool, struct sc_run *run, uint64_t bytes)
{
    uint64_t kept = sc_run_bytes(bytes);
    if (kept >= run->bytes)
        return;
    uint64_t page = (uint64_t)(run->at - pool->base) / SC_RUN_PAGE_BYTES;
    uint64_t first = page + kept / SC_RUN_PAGE_BYTES, end = page + run->bytes / SC_RUN_PAGE_BYTES;
    SC_ASSERT(pool->poison, run->at >= pool->base && end <= pool->page_count);
    HIDE(run->at + kept, run->bytes - kept);
    sc_uncount(&pool->used_bytes, run->bytes - kept);
    pthread_mutex_lock(&pool->lock);
    pages_mark(pool, first, end, false);
    pool->free_from = first < pool->free_from ? first : pool->free_from;
    pthread_mutex_unlock(&pool->lock);
    run->bytes = kept;
    run->at = kept > 0 ? run->at : NULL;
}

void sc_run_put(struct sc_run_pool *pool, struct sc_run *run)
{
    sc_run_trim(pool, run, 0);
}

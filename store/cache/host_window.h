/* host_window: chooses the neighbouring slabs to evict when no run of free pages is long enough.
 *
 *   pages   | a a a | . | b | c c c c | d d |       . free; c has the lowest worth, a is pinned
 *   sets      of neighbours, long enough together, around c:   [. b c] [b c] [c d] [c]
 *
 * Scattered slabs of low worth do not free one run. So the set of the lowest worth per page is
 * evicted, if the new slab is worth more.
 *
 * Invariants: a found set spans enough pages and nothing unevictable. Nothing is changed.
 * Threads: the caller's lock.
 * Tests: tests/unit/store/test_host_tier_window.c, test_host_tier.c */
#ifndef SC_STORE_CACHE_HOST_WINDOW_H
#define SC_STORE_CACHE_HOST_WINDOW_H

#include <stdbool.h>
#include <stdint.h>

#define SC_STORE_WINDOW_FREE UINT32_MAX

struct sc_store_window {
    const uint32_t *owners; /* [page_count] slab of each page, or SC_STORE_WINDOW_FREE */
    uint64_t page_count;
    /* Returns the worth lost by evicting the slab; negative: unevictable. Sets its pages. */
    double (*lost)(const void *user, uint32_t slab, uint64_t *ret_page, uint64_t *ret_pages);
    const void *user;
};

struct sc_store_window_found {
    uint64_t page;
    double each; /* worth lost per page; negative: none found */
};

/* Searches the sets around a page for the lowest loss per page, and updates *found if it is lower.
 * The set need not include that page's slab. pages > 0. */
void sc_store_window_find(const struct sc_store_window *window, uint64_t pages, uint64_t around,
                          struct sc_store_window_found *found);

#endif

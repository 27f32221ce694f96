/* Where in the host tier's memory a slab is put when no run of free pages is long enough: which
 * neighbours go for it.
 *
 *   pages   | a a a | . | b | c c c c | d d |       . free; c is worth least, a is pinned
 *   sets      of neighbours that are long enough together, around c:   [. b c] [b c] [c d] [c]
 *
 * Slabs that lie elsewhere and are worth less would go in vain: what they leave is not one run. So
 * it is one set that goes, the one that is worth least a page, and only if the slab is worth more.
 *
 * Holds: what is found spans enough pages and nothing that may not go; nothing is changed.
 * Does not: know ranks, evict.
 * Threads: the caller's lock.
 * Tests: tests/unit/store/test_host_tier_window.c, test_host_tier.c */
#ifndef SC_STORE_CACHE_HOST_WINDOW_H
#define SC_STORE_CACHE_HOST_WINDOW_H

#include <stdbool.h>
#include <stdint.h>

#define SC_STORE_WINDOW_FREE UINT32_MAX

struct sc_store_window {
    const uint32_t *owners; /* [page_count] the slab of each page; SC_STORE_WINDOW_FREE */
    uint64_t page_count;
    /* The slab's pages, and what is lost when it goes; negative: it may not. */
    double (*lost)(const void *user, uint32_t slab, uint64_t *ret_page, uint64_t *ret_pages);
    const void *user;
};

struct sc_store_window_found {
    uint64_t page;
    double each; /* lost, a page of the set; negative: none was found */
};

/* Of the sets around a page, in which the slab of that page need not be, the one that loses least a
 * page, if that is less than what was found before. pages > 0. */
void sc_store_window_find(const struct sc_store_window *window, uint64_t pages, uint64_t around,
                          struct sc_store_window_found *found);

#endif

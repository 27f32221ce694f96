/* host_window: finds neighbouring slabs to evict together. Contract: store/cache/host_window.h. */
#include "store/cache/host_window.h"

#define PARTS 64u /* slabs and gaps of a set; beyond that neighbours are joined */

struct part {
    uint64_t page, pages;
    double lost;
};

static struct part part_at(const struct sc_store_window *window, uint64_t page)
{
    struct part part = {.page = page};
    if (window->owners[page] != SC_STORE_WINDOW_FREE) {
        part.lost = window->lost(window->user, window->owners[page], &part.page, &part.pages);
        return part;
    }
    while (page < window->page_count && window->owners[page] == SC_STORE_WINDOW_FREE)
        page++;
    part.pages = page - part.page;
    return part;
}

/* Returns the first page of the part; for free pages, the page itself. */
static uint64_t begin_of(const struct sc_store_window *window, uint64_t page)
{
    uint64_t pages;
    if (window->owners[page] != SC_STORE_WINDOW_FREE)
        (void)window->lost(window->user, window->owners[page], &page, &pages);
    return page;
}

/* Neighbouring parts; the first is at index first % PARTS. */
struct set {
    struct part parts[PARTS];
    uint32_t first, count;
};

/* Joins each pair of neighbours into one part, so the set's start is found less exactly. */
static void set_halve(struct set *set)
{
    for (uint32_t i = 0; i < PARTS / 2; i++) {
        const struct part *a = &set->parts[(set->first + 2 * i) % PARTS];
        const struct part *b = &set->parts[(set->first + 2 * i + 1) % PARTS];
        set->parts[(set->first + i) % PARTS] =
            (struct part){.page = a->page, .pages = a->pages + b->pages, .lost = a->lost + b->lost};
    }
    set->count = PARTS / 2;
}

static void set_add(struct set *set, const struct part *part)
{
    if (set->count == PARTS)
        set_halve(set);
    set->parts[(set->first + set->count++) % PARTS] = *part;
}

static void set_cut(struct set *set, uint64_t end, uint64_t pages)
{
    while (set->count > 1 && end - set->parts[(set->first + 1) % PARTS].page >= pages) {
        set->first++;
        set->count--;
    }
}

/* Sums anew: a running sum would lose precision. */
static double set_lost(const struct set *set)
{
    double lost = 0;
    for (uint32_t i = 0; i < set->count; i++)
        lost += set->parts[(set->first + i) % PARTS].lost;
    return lost;
}

void sc_store_window_find(const struct sc_store_window *window, uint64_t pages, uint64_t around,
                          struct sc_store_window_found *found)
{
    struct set set;
    uint64_t at = begin_of(window, around > pages ? around - pages : 0),
             left = window->page_count - around;
    uint64_t end = around + (2 * pages < left ? 2 * pages : left);
    set.first = set.count = 0;
    while (at < end) {
        struct part next = part_at(window, at);
        at = next.page + next.pages;
        if (next.lost < 0) {
            set.count = 0;
            continue;
        }
        set_add(&set, &next);
        set_cut(&set, at, pages);
        uint64_t page = set.parts[set.first % PARTS].page;
        if (at - page < pages)
            continue;
        double each = set_lost(&set) / (double)(at - page);
        if (found->each < 0 || each < found->each)
            *found = (struct sc_store_window_found){.page = page, .each = each};
    }
}

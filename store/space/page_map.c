/* page_map: see page_map.h. */
#include "store/space/page_map.h"

#include <string.h>

#define WORD_BITS 64u

bool sc_store_space_init(struct sc_store_space *space, struct sc_alloc *alloc,
                         struct sc_poison *poison, uint64_t segment_max, uint64_t pages_max)
{
    *space = (struct sc_store_space){.alloc = alloc, .poison = poison, .segment_max = segment_max};
    space->segment_words = (pages_max + WORD_BITS - 1) / WORD_BITS;
    space->segments = sc_alloc_array(alloc, segment_max, sizeof(*space->segments));
    if (space->segments == NULL)
        return false;
    space->words = sc_alloc_array(alloc, segment_max, space->segment_words * sizeof(uint64_t));
    if (space->words == NULL) {
        sc_alloc_free(alloc, space->segments);
        space->segments = NULL;
        return false;
    }
    return true;
}

void sc_store_space_done(struct sc_store_space *space)
{
    if (space->alloc == NULL)
        return;
    sc_alloc_free(space->alloc, space->words);
    sc_alloc_free(space->alloc, space->segments);
    *space = (struct sc_store_space){0};
}

static uint64_t *space_words(struct sc_store_space *space, uint64_t index)
{
    return space->words + index * space->segment_words;
}

void sc_store_space_add(struct sc_store_space *space, uint64_t index, uint64_t page_count)
{
    SC_ASSERT(space->poison, index < space->segment_max);
    SC_ASSERT(space->poison, page_count <= space->segment_words * WORD_BITS);
    SC_ASSERT(space->poison, space->segments[index].page_count == 0);
    space->segments[index] = (struct sc_store_space_segment){
        .page_count = page_count, .free_pages = page_count, .run_max = page_count};
    memset(space_words(space, index), 0, space->segment_words * sizeof(uint64_t));
}

void sc_store_space_clear(struct sc_store_space *space, uint64_t index)
{
    uint64_t page_count = space->segments[index].page_count;
    space->segments[index].page_count = 0;
    sc_store_space_add(space, index, page_count);
}

void sc_store_space_remove(struct sc_store_space *space, uint64_t index)
{
    struct sc_store_space_segment *segment = &space->segments[index];
    SC_ASSERT(space->poison, segment->free_pages == segment->page_count);
    *segment = (struct sc_store_space_segment){0};
}

/* Mask of bits [page, page + pages) in the word of `page`, cut at the word's end. */
static uint64_t space_mask(uint64_t page, uint64_t pages, uint64_t *ret_bits)
{
    uint64_t shift = page % WORD_BITS;
    uint64_t bits = WORD_BITS - shift < pages ? WORD_BITS - shift : pages;
    *ret_bits = bits;
    return (bits == WORD_BITS ? UINT64_MAX : (UINT64_C(1) << bits) - 1) << shift;
}

static bool space_is_free(struct sc_store_space *space, uint64_t index, uint64_t page,
                          uint64_t pages)
{
    const uint64_t *words = space_words(space, index);
    while (pages > 0) {
        uint64_t bits;
        if ((words[page / WORD_BITS] & space_mask(page, pages, &bits)) != 0)
            return false;
        page += bits;
        pages -= bits;
    }
    return true;
}

static void space_set(struct sc_store_space *space, uint64_t index, uint64_t page, uint64_t pages,
                      bool taken)
{
    uint64_t *words = space_words(space, index);
    while (pages > 0) {
        uint64_t bits;
        uint64_t mask = space_mask(page, pages, &bits);
        uint64_t *word = &words[page / WORD_BITS];
        SC_ASSERT(space->poison, taken ? (*word & mask) == 0 : (*word & mask) == mask);
        *word = taken ? *word | mask : *word & ~mask;
        page += bits;
        pages -= bits;
    }
    space->segments[index].fit_bytes = 0;
}

/* Returns the first page from `page` on whose bit is `taken`; page_count: none. */
static uint64_t space_find(struct sc_store_space *space, uint64_t index, uint64_t page, bool taken)
{
    const uint64_t *words = space_words(space, index);
    uint64_t page_count = space->segments[index].page_count;
    while (page < page_count) {
        uint64_t word = taken ? words[page / WORD_BITS] : ~words[page / WORD_BITS];
        word &= UINT64_MAX << (page % WORD_BITS);
        if (word != 0) {
            uint64_t found = page / WORD_BITS * WORD_BITS + (uint64_t)__builtin_ctzll(word);
            return found < page_count ? found : page_count;
        }
        page = (page / WORD_BITS + 1) * WORD_BITS;
    }
    return page_count;
}

/* Finds the first free run of >= pages. Makes run_max exact if there is none. */
static bool space_scan(struct sc_store_space *space, uint64_t index, uint64_t pages,
                       uint64_t *ret_page)
{
    struct sc_store_space_segment *segment = &space->segments[index];
    uint64_t longest = 0;
    uint64_t page = space_find(space, index, 0, false);
    while (page < segment->page_count) {
        uint64_t end = space_find(space, index, page, true);
        if (end - page >= pages) {
            *ret_page = page;
            return true;
        }
        longest = end - page > longest ? end - page : longest;
        page = space_find(space, index, end, false);
    }
    segment->run_max = longest;
    return false;
}

bool sc_store_space_take(struct sc_store_space *space, uint64_t index, uint64_t pages,
                         uint64_t *ret_page)
{
    struct sc_store_space_segment *segment = &space->segments[index];
    SC_ASSERT(space->poison, pages > 0);
    if (pages > segment->run_max || pages > segment->free_pages)
        return false;
    if (!space_scan(space, index, pages, ret_page))
        return false;
    space_set(space, index, *ret_page, pages, true);
    segment->free_pages -= pages;
    return true;
}

bool sc_store_space_take_at(struct sc_store_space *space, uint64_t index, uint64_t page,
                            uint64_t pages)
{
    struct sc_store_space_segment *segment = &space->segments[index];
    if (page > segment->page_count || pages > segment->page_count - page)
        return false;
    if (!space_is_free(space, index, page, pages))
        return false;
    space_set(space, index, page, pages, true);
    segment->free_pages -= pages;
    return true;
}

uint64_t sc_store_space_run_max(struct sc_store_space *space, uint64_t index)
{
    uint64_t page;
    (void)space_scan(space, index, UINT64_MAX, &page);
    return space->segments[index].run_max;
}

uint64_t sc_store_space_fit(struct sc_store_space *space, uint64_t index, uint64_t bytes,
                            uint64_t most, uint64_t *ret_pages)
{
    struct sc_store_space_segment *segment = &space->segments[index];
    uint64_t count = 0, longest = 0;
    *ret_pages = segment->fit_bytes == bytes ? segment->fit_pages : 0;
    if (segment->fit_bytes == bytes)
        return segment->fit_count < most ? segment->fit_count : most;
    if (segment->run_max * SC_STORE_SPACE_PAGE_BYTES < bytes)
        return 0;
    uint64_t page = space_find(space, index, 0, false);
    while (page < segment->page_count) {
        uint64_t end = space_find(space, index, page, true);
        uint64_t fit = (end - page) * SC_STORE_SPACE_PAGE_BYTES / bytes;
        longest = end - page > longest ? end - page : longest;
        *ret_pages += fit > 0 ? end - page : 0;
        count += fit;
        if (count >= most)
            return most;
        page = space_find(space, index, end, false);
    }
    segment->run_max = longest;
    segment->fit_bytes = bytes;
    segment->fit_count = count;
    segment->fit_pages = *ret_pages;
    return count;
}

void sc_store_space_free(struct sc_store_space *space, uint64_t index, uint64_t page,
                         uint64_t pages)
{
    struct sc_store_space_segment *segment = &space->segments[index];
    SC_ASSERT(space->poison, page <= segment->page_count && pages <= segment->page_count - page);
    space_set(space, index, page, pages, false);
    segment->free_pages += pages;
    segment->run_max = segment->page_count; /* unknown until the next scan */
    SC_ASSERT(space->poison, segment->free_pages <= segment->page_count);
}

bool sc_store_space_copy(const struct sc_store_space *space, bool all_taken,
                         struct sc_store_space *ret_copy)
{
    uint64_t bytes = space->segment_max * space->segment_words * sizeof(uint64_t);
    if (!sc_store_space_init(ret_copy, space->alloc, space->poison, space->segment_max,
                             space->segment_words * WORD_BITS))
        return false;
    memcpy(ret_copy->segments, space->segments, space->segment_max * sizeof(*space->segments));
    if (!all_taken) {
        memcpy(ret_copy->words, space->words, bytes);
        return true;
    }
    memset(ret_copy->words, 0xff, bytes);
    for (uint64_t i = 0; i < space->segment_max; i++)
        ret_copy->segments[i].free_pages = 0;
    return true;
}

uint64_t sc_store_space_run(struct sc_store_space *space, uint64_t index, uint64_t page,
                            uint64_t pages_max, uint64_t *ret_page)
{
    *ret_page = space_find(space, index, page, false);
    if (*ret_page >= space->segments[index].page_count)
        return 0;
    uint64_t pages = space_find(space, index, *ret_page, true) - *ret_page;
    return pages < pages_max ? pages : pages_max;
}

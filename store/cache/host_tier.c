/* host_tier: implements the host and upper tiers. Contract: store/cache/host_tier.h.
 *
 *   slabs    [slabs_max]    free, being filled, published, or forgotten and pinned
 *   heads    [a power of two] -> slabs of one hash, published or being filled
 *   tiers    [2] host memory and the upper tier: a limit in pages, and a heap by rank (base/heap.h)
 *            of the published slabs that are neither pinned nor kept
 *   owners   [pages] each page's slab, or NONE; used to evict neighbours together (host_window.h)
 *   kept     [slab] <-> [slab] ..   kept slabs, pinned or not; not in a heap once published */
#include "store/cache/host_tier.h"

#include "base/heap.h"
#include "store/cache/ghost_list.h"
#include "store/cache/host_window.h"
#include "store/cache/residency.h"
#include "store/space/page_map.h"

#include <pthread.h>

#define PAGE  ((uint64_t)SC_STORE_SPACE_PAGE_BYTES)
#define NONE  UINT32_MAX
#define SHARE 4u /* slabs may be this many times shorter than params.slab_bytes */
#define SEEDS 8u /* lowest slabs of the heap; room_clear() searches around the pages of each */
#define KEPT  4u /* at most (KEPT - 1) / KEPT of the memory, and of the slabs, may be kept */
#define LOST  8u /* slabs that one insertion may displace from a tier at most */

/* Dual cache (decision 0046): turnovers of the upper tier per half-life; ghost entries per slab. */
#define HALF_LIFE 16u
#define PAST      8u
#define WHOLE     1000000u /* millionths: importance of a slab whose rows are all used */

#define UPPER SPEC_TIER_UPPER
#define HOST  SPEC_TIER_HOST
_Static_assert(UPPER == 0 && HOST == 1, "tiers stand in the order of their numbers");

enum state { FREE, FILLING, PUBLISHED, FORGOTTEN };

struct sc_host_tier_memory_slab {
    struct sc_host_tier_key key;
    uint32_t next;
    uint32_t pins, rows;
    uint32_t group, group_prev, group_next; /* list of one group (residency.h) */
    uint32_t kept_prev, kept_next;          /* list of kept slabs, while keeper != 0 */
    enum state state;
    uint32_t tier;
    uint64_t page, pages;
    uint64_t rank;
    uint64_t keeper;
    uint64_t until_ns;
    uint64_t promised_ns; /* expiry that an earlier keeper was given */
    struct sc_use use;
};

struct tier {
    enum sc_policy policy;
    uint64_t pages_max, pages_used;
    struct sc_heap heap;
};

struct sc_host_tier {
    /* Set by open, constant after. */
    struct sc_alloc *alloc;
    struct sc_poison *poison;
    uint8_t *memory;
    uint64_t page_count, page_heat; /* page_heat: heat time that the use of one page takes */
    uint32_t slabs_max, head_mask;
    bool is_dual; /* slabs with rows are used at touch(), not at find(); the ghost list is on */

    const uint64_t *windows; /* window of each layer; NULL: no layer has one */
    pthread_mutex_t lock;    /* rank 57 */
    /* Guarded by lock. */
    struct sc_store_space map;
    struct sc_host_tier_memory_slab *slabs;
    uint32_t *heads, *owners;
    struct tier tiers[2];
    struct sc_store_ghost past;
    struct sc_store_residency residency; /* counts, read without the lock */
    uint32_t free, kept, slabs_kept;
    uint32_t fresh; /* slabs from here on were never used; their memory is untouched */
    uint64_t stamp;
    uint64_t now;   /* heat time; a use or a refused insertion advances it */
    uint64_t pages_kept, published, hits[2], misses, evictions;
    uint64_t risen, sunk;
    struct sc_host_tier_key doubted; /* last SLOTS slab that failed; copy 0: none */

    /* Changed under the lock, read by any thread. */
    _Atomic uint64_t kept_until_ns; /* earliest expiry of a kept slab */
    _Atomic uint64_t promoted_halves; /* unwanted halves of rows in promoted slabs */
};

/* ---- By key: lock held ----------------------------------------------------------------------- */

static uint64_t what_of(const struct sc_host_tier_key *key)
{
    return (uint64_t)key->kind << 32 | key->first;
}

/* Returns the second part of the group's name. A group has the slabs that differ by layer only, or
 * all SLOTS slabs of one copy. Layers with a window have a group of their own. */
static uint64_t group_of(const struct sc_host_tier_key *key, bool is_windowed)
{
    return (sc_host_tier_has_slots(key->kind) ? (uint64_t)key->kind << 32 : what_of(key)) |
           (uint64_t)is_windowed << 63;
}

static bool is_windowed(const struct sc_host_tier *host, uint32_t layer)
{
    return host->windows != NULL && host->windows[layer] > 0;
}

static bool has_rows(const struct sc_host_tier_key *key)
{
    return key->kind == SC_STORE_HOST_ROWS || key->kind >= SC_STORE_HOST_K;
}

static uint64_t hash_of(const struct sc_host_tier_key *key)
{
    uint64_t hash = key->copy * UINT64_C(0x9e3779b97f4a7c15) + key->kind;
    hash = (hash ^ hash >> 29) * UINT64_C(0xbf58476d1ce4e5b9) + key->layer;
    return (hash ^ hash >> 32) * UINT64_C(0x94d049bb133111eb);
}

/* Neighbours in a layer have neighbouring heads, because a load asks for them in order. */
static uint32_t *head_of(const struct sc_host_tier *host, const struct sc_host_tier_key *key)
{
    return &host->heads[((hash_of(key) >> 32) + key->first / SC_RESIDENCY_NEAR) & host->head_mask];
}

static uint64_t name_of(const struct sc_host_tier_key *key)
{
    uint64_t hash = (hash_of(key) + key->first) * UINT64_C(0xbf58476d1ce4e5b9);
    return hash ^ hash >> 31;
}

static struct sc_host_tier_memory_slab *slab_find(const struct sc_host_tier *host,
                                                  const struct sc_host_tier_key *key)
{
    uint32_t i = *head_of(host, key);
    while (i != NONE &&
           (host->slabs[i].key.copy != key->copy || host->slabs[i].key.layer != key->layer ||
            what_of(&host->slabs[i].key) != what_of(key)))
        i = host->slabs[i].next;
    return i != NONE ? &host->slabs[i] : NULL;
}

static uint32_t number_of(const struct sc_host_tier *host,
                          const struct sc_host_tier_memory_slab *slab)
{
    return (uint32_t)(slab - host->slabs);
}

static void slab_link(struct sc_host_tier *host, struct sc_host_tier_memory_slab *slab)
{
    uint32_t *head = head_of(host, &slab->key), i = number_of(host, slab);
    slab->group = sc_store_residency_join(&host->residency, slab->key.copy,
                                          group_of(&slab->key, is_windowed(host, slab->key.layer)));
    slab->group_prev = NONE;
    slab->group_next = host->residency.groups[slab->group].first;
    if (slab->group_next != NONE)
        host->slabs[slab->group_next].group_prev = i;
    host->residency.groups[slab->group].first = i;
    slab->next = *head;
    *head = i;
}

static void slab_unlink(struct sc_host_tier *host, const struct sc_host_tier_memory_slab *slab)
{
    uint32_t *link = head_of(host, &slab->key), i = number_of(host, slab);
    while (*link != i)
        link = &host->slabs[*link].next;
    *link = slab->next;
    if (slab->group_next != NONE)
        host->slabs[slab->group_next].group_prev = slab->group_prev;
    *(slab->group_prev != NONE ? &host->slabs[slab->group_prev].group_next
                               : &host->residency.groups[slab->group].first) = slab->group_next;
    sc_store_residency_leave(&host->residency, slab->group);
}

/* ---- By rank: lock held ---------------------------------------------------------------------- */

static void use_add(struct sc_host_tier *host, struct sc_use *use, uint64_t pages)
{
    host->now += pages * host->page_heat;
    use->stamp = ++host->stamp;
    use->heat = sc_heat_used(use->heat, host->now);
    use->count += use->count < UINT32_MAX;
}

static uint64_t rank_in(const struct sc_host_tier *host, uint32_t tier, const struct sc_use *use)
{
    return sc_rank_by(host->tiers[tier].policy, use);
}

/* Counts a use and updates the rank. The slab must not be in a heap. */
static void slab_used(struct sc_host_tier *host, struct sc_host_tier_memory_slab *slab)
{
    use_add(host, &slab->use, slab->pages);
    slab->rank = rank_in(host, slab->tier, &slab->use);
}

/* ---- Kept: lock held ------------------------------------------------------------------------- */

static void kept_add(struct sc_host_tier *host, struct sc_host_tier_memory_slab *slab)
{
    slab->kept_prev = NONE;
    slab->kept_next = host->kept;
    if (host->kept != NONE)
        host->slabs[host->kept].kept_prev = number_of(host, slab);
    host->kept = number_of(host, slab);
    host->pages_kept += slab->pages;
    host->slabs_kept++;
}

static void kept_remove(struct sc_host_tier *host, struct sc_host_tier_memory_slab *slab)
{
    if (slab->kept_next != NONE)
        host->slabs[slab->kept_next].kept_prev = slab->kept_prev;
    *(slab->kept_prev != NONE ? &host->slabs[slab->kept_prev].kept_next : &host->kept) =
        slab->kept_next;
    slab->keeper = 0;
    host->pages_kept -= slab->pages;
    host->slabs_kept--;
}

/* Limits pages and slabs: loads still find room, even if kept slabs are short. */
static bool may_keep(const struct sc_host_tier *host, uint64_t pages)
{
    uint64_t most = host->tiers[HOST].pages_max;
    return host->pages_kept + pages <= most - most / KEPT &&
           host->slabs_kept < host->slabs_max - host->slabs_max / KEPT;
}

/* ---- Allocation and eviction: lock held ------------------------------------------------------ */

/* Makes the slab evictable unless it is pinned or kept. */
static void slab_rest(struct sc_host_tier *host, const struct sc_host_tier_memory_slab *slab)
{
    if (slab->state == PUBLISHED && slab->pins == 0 && slab->keeper == 0)
        sc_heap_add(&host->tiers[slab->tier].heap, number_of(host, slab), slab->rank);
}

/* Makes the slab unevictable and ends its keeping. */
static void slab_stir(struct sc_host_tier *host, struct sc_host_tier_memory_slab *slab)
{
    if (slab->keeper != 0)
        kept_remove(host, slab);
    else if (slab->pins == 0)
        sc_heap_remove(&host->tiers[slab->tier].heap, number_of(host, slab));
}

static void slab_free(struct sc_host_tier *host, struct sc_host_tier_memory_slab *slab)
{
    sc_store_space_free(&host->map, 0, slab->page, slab->pages);
    for (uint64_t p = slab->page; p < slab->page + slab->pages; p++)
        host->owners[p] = NONE;
    host->tiers[slab->tier].pages_used -= slab->pages;
    slab->state = FREE;
    slab->next = host->free;
    host->free = (uint32_t)(slab - host->slabs);
}

/* Unlinks a published slab; frees it unless it is pinned. */
static void slab_leave(struct sc_host_tier *host, struct sc_host_tier_memory_slab *slab)
{
    host->published--;
    if (slab->tier == UPPER)
        sc_store_residency_rise(&host->residency, slab->group, false);
    sc_store_residency_publish(&host->residency, slab->group, false);
    slab_unlink(host, slab);
    slab_stir(host, slab);
    slab->state = FORGOTTEN;
    if (slab->pins == 0)
        slab_free(host, slab);
}

static void slab_forget(struct sc_host_tier *host, struct sc_host_tier_memory_slab *slab)
{
    if (slab->state == PUBLISHED) {
        slab_leave(host, slab);
    } else { /* the filler frees it */
        if (slab->keeper != 0)
            kept_remove(host, slab);
        slab_unlink(host, slab);
        slab->state = FORGOTTEN;
    }
}

/* Evicts a published slab that is in a heap. The disk has its rows. */
static void slab_evict(struct sc_host_tier *host, struct sc_host_tier_memory_slab *slab)
{
    host->evictions++;
    sc_store_ghost_put(&host->past, name_of(&slab->key), &slab->use);
    slab_leave(host, slab);
}

/* Evicts the lowest slab of host memory if its rank is below `rank`; else returns false. */
static bool evict_one(struct sc_host_tier *host, uint64_t rank)
{
    const struct sc_heap *heap = &host->tiers[HOST].heap;
    if (heap->count == 0 || heap->nodes[0].rank >= rank)
        return false;
    slab_evict(host, &host->slabs[heap->nodes[0].item]);
    return true;
}

/* Returns the worth of a page relative to the lowest rank. Policy value has logarithmic ranks:
 * exact within 1/16. Other policies return the rank itself. */
static double page_worth(const struct sc_host_tier *host, uint64_t rank)
{
    uint64_t above = rank - host->tiers[HOST].heap.nodes[0].rank, power = above / SC_HEAT_ONE;
    if (host->tiers[HOST].policy != SC_POLICY_VALUE)
        return (double)rank;
    double worth = 1 + (double)(above % SC_HEAT_ONE) / (double)SC_HEAT_ONE;
    return power < 63 ? worth * (double)(UINT64_C(1) << power) : 1e20 * worth;
}

static double slab_lost(const void *user, uint32_t number, uint64_t *ret_page, uint64_t *ret_pages)
{
    const struct sc_host_tier *host = user;
    const struct sc_host_tier_memory_slab *slab = &host->slabs[number];
    *ret_page = slab->page;
    *ret_pages = slab->pages;
    bool may_go =
        slab->state == PUBLISHED && slab->pins == 0 && slab->keeper == 0 && slab->tier == HOST;
    return may_go ? (double)slab->pages * page_worth(host, slab->rank) : -1;
}

/* Evicts neighbouring slabs whose worth per page is below `rank`, and takes their pages. Returns
 * false, without an eviction, if there are none. */
static bool room_clear(struct sc_host_tier *host, uint64_t pages, uint64_t rank, uint64_t *ret_page)
{
    const struct sc_store_window window = {
        .owners = host->owners, .page_count = host->page_count, .lost = slab_lost, .user = host};
    struct sc_store_window_found found = {.each = -1};
    const struct sc_heap *heap = &host->tiers[HOST].heap;
    if (heap->count == 0 || heap->nodes[0].rank >= rank)
        return false;
    for (uint32_t i = 0; i < SEEDS && i < heap->count; i++)
        sc_store_window_find(&window, pages, host->slabs[heap->nodes[i].item].page, &found);
    if (found.each < 0 || (rank != UINT64_MAX && found.each >= page_worth(host, rank)))
        return false;
    for (uint64_t p = found.page; p < found.page + pages; p++)
        if (host->owners[p] != NONE)
            slab_evict(host, &host->slabs[host->owners[p]]);
    *ret_page = found.page;
    bool has = sc_store_space_take_at(&host->map, 0, found.page, pages);
    SC_ASSERT(host->poison, has);
    return has;
}

/* Lowest slabs of a tier, removed from its heap. The caller demotes, evicts or re-inserts them. */
struct lost {
    uint32_t slabs[LOST], count;
    uint64_t pages;
};

/* Takes the slabs that must leave the tier to free `pages` pages. Returns false, and changes
 * nothing, if these are more than LOST or one has a rank of at least `rank`. */
static bool lost_take(struct sc_host_tier *host, uint32_t number, uint64_t pages, uint64_t rank,
                      struct lost *ret_lost)
{
    struct tier *tier = &host->tiers[number];
    struct lost *lost = ret_lost;
    lost->count = 0;
    lost->pages = 0;
    while (tier->pages_used - lost->pages + pages > tier->pages_max) {
        bool is_stuck = lost->count == LOST || tier->heap.count == 0 ||
                        tier->heap.nodes[0].rank >= rank || pages > tier->pages_max;
        for (uint32_t i = 0; is_stuck && i < lost->count; i++)
            slab_rest(host, &host->slabs[lost->slabs[i]]);
        if (is_stuck)
            return false;
        uint32_t least = tier->heap.nodes[0].item;
        sc_heap_remove(&tier->heap, least);
        lost->slabs[lost->count++] = least;
        lost->pages += host->slabs[least].pages;
    }
    return true;
}

/* Evicts slabs of lower rank for `pages` more pages. Returns false, without an eviction, if it
 * cannot. */
static bool host_clear(struct sc_host_tier *host, uint64_t pages, uint64_t rank)
{
    struct lost lost;
    if (!lost_take(host, HOST, pages, rank, &lost))
        return false;
    for (uint32_t i = 0; i < lost.count; i++) {
        slab_rest(host, &host->slabs[lost.slabs[i]]);
        slab_evict(host, &host->slabs[lost.slabs[i]]);
    }
    return true;
}

/* Moves a published slab that is in no heap to the other tier. Copies no bytes. */
static void slab_move(struct sc_host_tier *host, struct sc_host_tier_memory_slab *slab,
                      uint32_t tier)
{
    host->tiers[slab->tier].pages_used -= slab->pages;
    host->tiers[tier].pages_used += slab->pages;
    sc_store_residency_rise(&host->residency, slab->group, tier == UPPER);
    slab->tier = tier;
    slab->rank = rank_in(host, tier, &slab->use);
}

/* Demotes the slab if its rank displaces others in host memory; else evicts it. */
static void slab_sink(struct sc_host_tier *host, struct sc_host_tier_memory_slab *slab)
{
    if (host_clear(host, slab->pages, rank_in(host, HOST, &slab->use))) {
        slab_move(host, slab, HOST);
        slab_rest(host, slab);
        host->sunk++;
    } else {
        slab_rest(host, slab);
        slab_evict(host, slab);
    }
}

/* Frees `pages` pages of the upper tier by demoting slabs of lower rank. Moves `riser`, if any,
 * first: the demoted slabs may need its host pages. */
static bool upper_clear(struct sc_host_tier *host, uint64_t pages, uint64_t rank,
                        struct sc_host_tier_memory_slab *riser)
{
    struct lost lost;
    if (!lost_take(host, UPPER, pages, rank, &lost))
        return false;
    if (riser != NULL) {
        slab_move(host, riser, UPPER);
        host->risen++;
    }
    for (uint32_t i = 0; i < lost.count; i++)
        slab_sink(host, &host->slabs[lost.slabs[i]]);
    return true;
}

static void risen_add(struct sc_host_tier *host, const struct sc_host_tier_key *key, uint64_t rows,
                      uint64_t rows_used)
{
    uint64_t more = rows > rows_used ? rows - rows_used : 0;
    bool is_half = key->kind != SC_STORE_HOST_ROWS && key->kind != SC_STORE_HOST_SLOTS;
    atomic_fetch_add_explicit(&host->promoted_halves, is_half ? more : 2 * more,
                              memory_order_relaxed);
}

/* Takes pages for the next free slab entry, evicting slabs of lower rank. Returns false on
 * failure. */
static bool room_take(struct sc_host_tier *host, uint64_t pages, uint64_t rank, uint32_t tier,
                      uint64_t *ret_page)
{
    bool has = sc_store_space_take(&host->map, 0, pages, ret_page);
    if (host->free == NONE && host->fresh < host->slabs_max) {
        host->slabs[host->fresh].next = NONE;
        host->free = host->fresh++;
    }
    if (has && host->free == NONE && !evict_one(host, rank)) {
        sc_store_space_free(&host->map, 0, *ret_page, pages);
        return false;
    }
    if (!has && !room_clear(host, pages, rank, ret_page))
        return false;
    if (tier == HOST && !host_clear(host, pages, rank)) { /* free pages are the upper tier's */
        sc_store_space_free(&host->map, 0, *ret_page, pages);
        return false;
    }
    for (uint64_t p = *ret_page; p < *ret_page + pages; p++)
        host->owners[p] = host->free;
    host->tiers[tier].pages_used += pages;
    return true;
}

struct sc_host_tier_memory_slab *
sc_host_tier_find(struct sc_host_tier *host, const struct sc_host_tier_key *key, uint32_t *ret_tier)
{
    *ret_tier = HOST;
    if (host == NULL)
        return NULL;
    pthread_mutex_lock(&host->lock);
    struct sc_host_tier_memory_slab *slab = slab_find(host, key);
    if (slab != NULL && slab->state != PUBLISHED)
        slab = NULL;
    host->misses += slab == NULL;
    if (slab != NULL) {
        host->hits[slab->tier]++;
        *ret_tier = slab->tier;
        slab_stir(host, slab);
        slab->pins++;
        if (!host->is_dual || !has_rows(key))
            slab_used(host, slab);
    }
    pthread_mutex_unlock(&host->lock);
    return slab;
}

struct sc_host_tier_memory_slab *sc_host_tier_get(struct sc_host_tier *host,
                                                  const struct sc_host_tier_key *key)
{
    uint32_t tier;
    return sc_host_tier_find(host, key, &tier);
}

static uint32_t share_of(uint64_t rows, uint64_t all)
{
    return rows < all ? (uint32_t)(rows * WHOLE / all) : WHOLE;
}

void sc_host_tier_touch(struct sc_host_tier *host, struct sc_host_tier_memory_slab *slab,
                        uint64_t rows)
{
    if (!host->is_dual)
        return;
    pthread_mutex_lock(&host->lock);
    SC_ASSERT(host->poison, slab->pins > 0);
    if (slab->state == PUBLISHED) {
        slab_stir(host, slab); /* also ends its keeping: this is the load that it was kept for */
        slab->use.importance =
            sc_importance_touched(slab->use.importance, share_of(rows, slab->rows));
        slab_used(host, slab);
        uint64_t rank = rank_in(host, UPPER, &slab->use);
        if (slab->tier == HOST && upper_clear(host, slab->pages, rank, slab))
            risen_add(host, &slab->key, slab->rows, rows);
    }
    pthread_mutex_unlock(&host->lock);
}

bool sc_host_tier_has(struct sc_host_tier *host, const struct sc_host_tier_key *key)
{
    if (host == NULL)
        return false;
    pthread_mutex_lock(&host->lock);
    const struct sc_host_tier_memory_slab *slab = slab_find(host, key);
    bool has = slab != NULL && slab->state == PUBLISHED;
    pthread_mutex_unlock(&host->lock);
    return has;
}

void sc_host_tier_pin(struct sc_host_tier *host, struct sc_host_tier_memory_slab *slab)
{
    pthread_mutex_lock(&host->lock);
    SC_ASSERT(host->poison, slab->pins > 0);
    slab->pins++;
    pthread_mutex_unlock(&host->lock);
}

void sc_host_tier_unpin(struct sc_host_tier *host, struct sc_host_tier_memory_slab *slab)
{
    if (slab == NULL)
        return;
    pthread_mutex_lock(&host->lock);
    SC_ASSERT(host->poison, slab->pins > 0);
    if (--slab->pins == 0 && slab->state == FORGOTTEN)
        slab_free(host, slab);
    else
        slab_rest(host, slab);
    pthread_mutex_unlock(&host->lock);
}

bool sc_host_tier_is_empty(const struct sc_host_tier *host)
{
    return host == NULL || sc_store_residency_is_empty(&host->residency);
}

uint32_t sc_host_tier_layers(const struct sc_host_tier *host, const struct sc_host_tier_key *key,
                             uint32_t *ret_risen)
{
    uint32_t risen = 0, risen_windowed = 0, count = 0;
    if (host != NULL)
        count = sc_store_residency_count(&host->residency, key->copy, group_of(key, false), &risen);
    count += sc_host_tier_windowed(host, key, &risen_windowed);
    if (ret_risen != NULL)
        *ret_risen = risen + risen_windowed;
    return count;
}

uint32_t sc_host_tier_windowed(const struct sc_host_tier *host, const struct sc_host_tier_key *key,
                               uint32_t *ret_risen)
{
    *ret_risen = 0;
    if (host == NULL || host->windows == NULL)
        return 0;
    return sc_store_residency_count(&host->residency, key->copy, group_of(key, true), ret_risen);
}

uint64_t sc_host_tier_promoted_halves(const struct sc_host_tier *host)
{
    return host != NULL ? atomic_load_explicit(&host->promoted_halves, memory_order_relaxed) : 0;
}

uint32_t sc_host_tier_layers_in(struct sc_host_tier *host, const struct sc_host_tier_key *key,
                                uint32_t first, uint32_t end)
{
    uint32_t count = 0;
    if (host == NULL)
        return 0;
    pthread_mutex_lock(&host->lock);
    for (uint32_t is_apart = 0; is_apart < 2; is_apart++) {
        uint32_t group =
            sc_store_residency_find(&host->residency, key->copy, group_of(key, is_apart));
        uint32_t i = group != NONE ? host->residency.groups[group].first : NONE;
        for (; i != NONE; i = host->slabs[i].group_next)
            count += host->slabs[i].state == PUBLISHED && host->slabs[i].key.layer >= first &&
                     host->slabs[i].key.layer < end;
    }
    pthread_mutex_unlock(&host->lock);
    return count;
}

/* Lock held. The pages were taken by room_take(). */
static struct sc_host_tier_memory_slab *slab_make(struct sc_host_tier *host,
                                                  const struct sc_host_tier_key *key, uint64_t page,
                                                  uint64_t pages, uint32_t tier,
                                                  const struct sc_use *use)
{
    struct sc_host_tier_memory_slab *slab = &host->slabs[host->free];
    host->free = slab->next;
    *slab = (struct sc_host_tier_memory_slab){.key = *key,
                                              .state = FILLING,
                                              .tier = tier,
                                              .page = page,
                                              .pages = pages,
                                              .rank = rank_in(host, tier, use),
                                              .use = *use};
    slab_link(host, slab);
    return slab;
}

struct begin {
    uint64_t pages, cost_ns;
    uint64_t heat_less;       /* taken off the heat of a slab that nobody has used yet */
    uint64_t keeper;          /* 0: evicts only slabs of lower rank */
    uint32_t rows, rows_used;
};

static struct sc_use use_begin(struct sc_host_tier *host, const struct sc_host_tier_key *key,
                               const struct begin *begin)
{
    struct sc_use use = {.bytes = begin->pages * PAGE, .cost_ns = begin->cost_ns};
    sc_store_ghost_take(&host->past, name_of(key), &use);
    use_add(host, &use, begin->pages); /* counted even if refused, so that unused slabs age */
    use.heat -= begin->heat_less;
    if (begin->rows_used > 0)
        use.importance =
            sc_importance_touched(use.importance, share_of(begin->rows_used, begin->rows));
    return use;
}

/* Lock held. Takes pages in the upper tier if the rank suffices, else in host memory. */
static bool begin_place(struct sc_host_tier *host, const struct sc_host_tier_key *key,
                        const struct begin *begin, const struct sc_use *use, uint64_t *ret_page,
                        uint32_t *ret_tier)
{
    uint64_t rank = sc_rank_coming(host->tiers[UPPER].policy, use);
    bool rises =
        begin->rows_used > 0 && has_rows(key) && upper_clear(host, begin->pages, rank, NULL);
    *ret_tier = rises ? UPPER : HOST;
    rank = begin->keeper != 0 ? UINT64_MAX : sc_rank_coming(host->tiers[HOST].policy, use);
    if (!room_take(host, begin->pages, rank, *ret_tier, ret_page))
        return false;
    host->risen += rises;
    if (rises)
        risen_add(host, key, begin->rows, begin->rows_used);
    return true;
}

/* Returns true for the SLOTS slab that failed last, if it is not wanted completely. Unwanted rows
 * are not verified, so the disk may have the same bad bytes. Caching them would hide the disk
 * error. */
static bool is_doubted(const struct sc_host_tier *host, const struct sc_host_tier_key *key,
                       const struct begin *begin)
{
    const struct sc_host_tier_key *last = &host->doubted;
    return sc_host_tier_has_slots(key->kind) && key->copy == last->copy &&
           key->first == last->first && key->layer == last->layer && begin->rows_used < begin->rows;
}

/* Lock held. */
static enum sc_host_tier_begun slab_begin(struct sc_host_tier *host,
                                          const struct sc_host_tier_key *key,
                                          const struct begin *begin,
                                          struct sc_host_tier_memory_slab **ret_slab)
{
    uint64_t page;
    uint32_t tier;
    struct sc_host_tier_memory_slab *other = slab_find(host, key);
    bool yields = begin->keeper != 0 && other != NULL && other->state == FILLING &&
                  other->keeper == 0; /* it belongs to a load, which may end early */
    if (other != NULL && !yields)
        return SC_STORE_HOST_THERE;
    if (is_doubted(host, key, begin))
        return SC_STORE_HOST_FULL;
    const struct sc_use use = use_begin(host, key, begin);
    if ((begin->keeper != 0 && !may_keep(host, begin->pages)) ||
        !begin_place(host, key, begin, &use, &page, &tier)) {
        sc_store_ghost_put(&host->past, name_of(key), &use);
        return SC_STORE_HOST_FULL;
    }
    if (yields)
        slab_forget(host, other);
    *ret_slab = slab_make(host, key, page, begin->pages, tier, &use);
    (*ret_slab)->rows = begin->rows;
    return SC_STORE_HOST_BEGUN;
}

static struct sc_host_tier_memory_slab *slab_begin_unkept(struct sc_host_tier *host,
                                                          const struct sc_host_tier_key *key,
                                                          const struct begin *begin)
{
    struct sc_host_tier_memory_slab *slab = NULL;
    if (host == NULL || begin->pages == 0 || begin->pages > host->page_count)
        return NULL;
    pthread_mutex_lock(&host->lock);
    (void)slab_begin(host, key, begin, &slab);
    pthread_mutex_unlock(&host->lock);
    return slab;
}

struct sc_host_tier_memory_slab *sc_host_tier_begin_used(struct sc_host_tier *host,
                                                         const struct sc_host_tier_key *key,
                                                         uint32_t row_count, uint64_t bytes,
                                                         uint64_t cost_ns, uint64_t rows_used)
{
    const struct begin begin = {.pages = (bytes + PAGE - 1) / PAGE,
                                .cost_ns = cost_ns,
                                .rows = row_count,
                                .rows_used = (uint32_t)rows_used};
    return slab_begin_unkept(host, key, &begin);
}

struct sc_host_tier_memory_slab *sc_host_tier_begin(struct sc_host_tier *host,
                                                    const struct sc_host_tier_key *key,
                                                    uint32_t row_count, uint64_t bytes,
                                                    uint64_t cost_ns)
{
    return sc_host_tier_begin_used(host, key, row_count, bytes, cost_ns, row_count);
}

struct sc_host_tier_memory_slab *sc_host_tier_begin_stored(struct sc_host_tier *host,
                                                           const struct sc_host_tier_key *key,
                                                           uint32_t row_count, uint64_t bytes,
                                                           uint64_t cost_ns)
{
    const struct begin begin = {.pages = (bytes + PAGE - 1) / PAGE,
                                .cost_ns = cost_ns,
                                .heat_less = SC_HEAT_ONE,
                                .rows = row_count};
    return slab_begin_unkept(host, key, &begin);
}

enum sc_host_tier_begun sc_host_tier_begin_kept(struct sc_host_tier *host,
                                                const struct sc_host_tier_key *key,
                                                uint32_t row_count, uint64_t bytes,
                                                uint64_t cost_ns, uint64_t keeper,
                                                struct sc_host_tier_memory_slab **ret_slab)
{
    const struct begin begin = {.pages = (bytes + PAGE - 1) / PAGE,
                                .cost_ns = cost_ns,
                                .keeper = keeper,
                                .rows = row_count};
    *ret_slab = NULL;
    if (host == NULL || begin.pages == 0 || begin.pages > host->page_count)
        return SC_STORE_HOST_FULL;
    pthread_mutex_lock(&host->lock);
    enum sc_host_tier_begun begun = slab_begin(host, key, &begin, ret_slab);
    if (begun == SC_STORE_HOST_BEGUN) {
        struct sc_host_tier_memory_slab *slab = *ret_slab;
        slab->keeper = keeper;
        slab->until_ns = UINT64_MAX;
        kept_add(host, slab);
    }
    pthread_mutex_unlock(&host->lock);
    return begun;
}

void sc_host_tier_publish(struct sc_host_tier *host, struct sc_host_tier_memory_slab *slab)
{
    pthread_mutex_lock(&host->lock);
    if (slab->state == FORGOTTEN) {
        slab_free(host, slab);
    } else {
        slab->state = PUBLISHED;
        host->published++;
        sc_store_residency_publish(&host->residency, slab->group, true);
        if (slab->tier == UPPER)
            sc_store_residency_rise(&host->residency, slab->group, true);
        slab_rest(host, slab);
    }
    pthread_mutex_unlock(&host->lock);
}

void sc_host_tier_abandon(struct sc_host_tier *host, struct sc_host_tier_memory_slab *slab)
{
    if (slab == NULL)
        return;
    pthread_mutex_lock(&host->lock);
    if (slab->state == FILLING) {
        sc_store_ghost_put(&host->past, name_of(&slab->key), &slab->use);
        slab_forget(host, slab);
    }
    slab_free(host, slab);
    pthread_mutex_unlock(&host->lock);
}

void sc_host_tier_forget(struct sc_host_tier *host, const struct sc_host_tier_key *key)
{
    if (host == NULL)
        return;
    pthread_mutex_lock(&host->lock);
    struct sc_host_tier_memory_slab *slab = slab_find(host, key);
    if (slab != NULL)
        slab_forget(host, slab);
    pthread_mutex_unlock(&host->lock);
}

void sc_host_tier_forget_pinned(struct sc_host_tier *host, struct sc_host_tier_memory_slab *slab)
{
    pthread_mutex_lock(&host->lock);
    SC_ASSERT(host->poison, slab->pins > 0);
    if (sc_host_tier_has_slots(slab->key.kind))
        host->doubted = slab->key;
    if (slab->state == PUBLISHED)
        slab_forget(host, slab);
    pthread_mutex_unlock(&host->lock);
}

void sc_host_tier_forget_layers(struct sc_host_tier *host, const struct sc_host_tier_key *key)
{
    if (host == NULL)
        return;
    pthread_mutex_lock(&host->lock);
    for (uint32_t is_apart = 0; is_apart < 2; is_apart++) {
        uint64_t what = group_of(key, is_apart);
        uint32_t group;
        while ((group = sc_store_residency_find(&host->residency, key->copy, what)) != NONE)
            slab_forget(host, &host->slabs[host->residency.groups[group].first]);
    }
    pthread_mutex_unlock(&host->lock);
}

bool sc_host_tier_keep(struct sc_host_tier *host, const struct sc_host_tier_key *key,
                       uint64_t keeper)
{
    if (host == NULL)
        return false;
    pthread_mutex_lock(&host->lock);
    struct sc_host_tier_memory_slab *slab = slab_find(host, key);
    bool has = slab != NULL && slab->state == PUBLISHED &&
               (slab->keeper != 0 || may_keep(host, slab->pages));
    if (has) {
        if (slab->keeper == 0)
            slab->promised_ns = 0;
        else if (slab->until_ns != UINT64_MAX)
            slab->promised_ns = slab->until_ns;
        slab_stir(host, slab);
        slab->keeper = keeper;
        slab->until_ns = UINT64_MAX;
        kept_add(host, slab);
    }
    pthread_mutex_unlock(&host->lock);
    return has;
}

/* Lock held. Makes slabs whose expiry has passed evictable. */
static void kept_expire(struct sc_host_tier *host, uint64_t now_ns)
{
    uint64_t first_ns = UINT64_MAX;
    for (uint32_t next, i = host->kept; i != NONE; i = next) {
        struct sc_host_tier_memory_slab *slab = &host->slabs[i];
        next = slab->kept_next;
        if (slab->until_ns <= now_ns) {
            kept_remove(host, slab);
            slab_rest(host, slab);
        } else if (slab->until_ns < first_ns) {
            first_ns = slab->until_ns;
        }
    }
    atomic_store_explicit(&host->kept_until_ns, first_ns, memory_order_relaxed);
}

void sc_host_tier_let_go(struct sc_host_tier *host, uint64_t keeper, uint64_t until_ns)
{
    if (host == NULL)
        return;
    pthread_mutex_lock(&host->lock);
    for (uint32_t i = host->kept; i != NONE; i = host->slabs[i].kept_next)
        if (host->slabs[i].keeper == keeper)
            host->slabs[i].until_ns =
                until_ns > host->slabs[i].promised_ns ? until_ns : host->slabs[i].promised_ns;
    kept_expire(host, 0);
    pthread_mutex_unlock(&host->lock);
}

void sc_host_tier_expire(struct sc_host_tier *host, uint64_t now_ns)
{
    if (host == NULL || atomic_load_explicit(&host->kept_until_ns, memory_order_relaxed) > now_ns)
        return;
    pthread_mutex_lock(&host->lock);
    kept_expire(host, now_ns);
    pthread_mutex_unlock(&host->lock);
}

uint8_t *sc_host_tier_memory(const struct sc_host_tier *host, uint64_t *ret_bytes)
{
    *ret_bytes = host != NULL ? host->page_count * PAGE : 0;
    return host != NULL ? host->memory : NULL;
}

uint8_t *sc_host_tier_bytes(const struct sc_host_tier *host,
                            const struct sc_host_tier_memory_slab *slab)
{
    return host->memory + slab->page * PAGE;
}

uint32_t sc_host_tier_rows(const struct sc_host_tier_memory_slab *slab)
{
    return slab->rows;
}

void sc_host_tier_stats(struct sc_host_tier *host, struct sc_host_tier_stats *ret_stats)
{
    *ret_stats = (struct sc_host_tier_stats){0};
    if (host == NULL)
        return;
    pthread_mutex_lock(&host->lock);
    const struct tier *upper = &host->tiers[UPPER], *low = &host->tiers[HOST];
    *ret_stats = (struct sc_host_tier_stats){.bytes_max = low->pages_max * PAGE,
                                             .bytes_used = low->pages_used * PAGE,
                                             .bytes_kept = host->pages_kept * PAGE,
                                             .slabs = host->published,
                                             .hits = host->hits[HOST],
                                             .misses = host->misses,
                                             .evictions = host->evictions,
                                             .upper_bytes_max = upper->pages_max * PAGE,
                                             .upper_bytes_used = upper->pages_used * PAGE,
                                             .upper_hits = host->hits[UPPER],
                                             .risen = host->risen,
                                             .sunk = host->sunk};
    pthread_mutex_unlock(&host->lock);
}

/* Returns the heat time of a page. A half-life is one turnover of all memory (HALF_LIFE turnovers
 * for score ranks; decision 0027). */
static uint64_t page_heat_of(const struct sc_host_tier_params *params, uint64_t pages)
{
    uint64_t upper = params->upper_bytes / PAGE;
    if (upper > 0 && params->upper_policy == SC_POLICY_SCORE)
        pages = HALF_LIFE * upper;
    else if (params->policy == SC_POLICY_SCORE)
        pages *= HALF_LIFE;
    return SC_HEAT_ONE / pages + 1;
}

static bool memory_take(struct sc_host_tier *host, uint64_t count, uint64_t heads)
{
    struct sc_alloc *alloc = host->alloc;
    bool good = sc_store_space_init(&host->map, alloc, host->poison, 1, host->page_count);
    good = sc_store_residency_init(&host->residency, alloc, (uint32_t)count) && good;
    for (uint32_t i = 0; i < 2; i++)
        good = sc_heap_init(&host->tiers[i].heap, alloc, count) && good;
    if (host->is_dual)
        good = sc_store_ghost_init(&host->past, alloc, PAST * count) && good;
    host->memory = sc_alloc_huge(alloc, host->page_count * PAGE);
    host->slabs = sc_alloc_array(alloc, count, sizeof(*host->slabs));
    host->heads = sc_alloc_array(alloc, heads, sizeof(*host->heads));
    host->owners = sc_alloc_array(alloc, host->page_count, sizeof(*host->owners));
    return good && host->memory != NULL && host->slabs != NULL && host->heads != NULL &&
           host->owners != NULL;
}

spec_status sc_host_tier_open(const struct sc_host_tier_params *params,
                              struct sc_host_tier **ret_host, struct spec_error *reterr)
{
    uint64_t low = params->bytes / PAGE, upper = params->upper_bytes / PAGE, pages = low + upper;
    uint64_t least = params->slab_bytes / SHARE, heads = 1;
    uint64_t count = (low + upper) * PAGE / (least > PAGE ? least : PAGE) + 1;
    *ret_host = NULL;
    if (pages == 0)
        return SPEC_OK;
    count = count < NONE ? count : NONE - 1;
    while (heads < count)
        heads *= 2;
    struct sc_host_tier *host = sc_alloc_zero(params->alloc, sizeof(*host));
    if (host == NULL)
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "host tier");
    *host = (struct sc_host_tier){.alloc = params->alloc,
                                  .poison = params->poison,
                                  .windows = params->windows,
                                  .page_count = pages,
                                  .page_heat = page_heat_of(params, pages),
                                  .now = SC_HEAT_FIRST,
                                  .slabs_max = (uint32_t)count,
                                  .head_mask = (uint32_t)(heads - 1),
                                  .is_dual = upper > 0 || params->policy == SC_POLICY_SCORE,
                                  .free = NONE,
                                  .kept = NONE,
                                  .kept_until_ns = UINT64_MAX};
    host->tiers[UPPER] = (struct tier){.policy = params->upper_policy, .pages_max = upper};
    host->tiers[HOST] = (struct tier){.policy = params->policy, .pages_max = low};
    pthread_mutex_init(&host->lock, NULL);
    if (!memory_take(host, count, heads)) {
        sc_host_tier_close(host);
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "host tier of %" PRIu64 " bytes",
                       params->bytes + params->upper_bytes);
    }
    sc_store_space_add(&host->map, 0, pages);
    for (uint64_t i = 0; i < heads; i++)
        host->heads[i] = NONE;
    for (uint64_t i = 0; i < pages; i++)
        host->owners[i] = NONE;
    *ret_host = host;
    return SPEC_OK;
}

void sc_host_tier_close(struct sc_host_tier *host)
{
    if (host == NULL)
        return;
    struct sc_alloc *alloc = host->alloc;
    for (uint32_t i = 0; i < host->fresh; i++)
        SC_ASSERT(host->poison, host->slabs[i].pins == 0 && host->slabs[i].state != FILLING);
    sc_store_residency_done(&host->residency);
    sc_store_space_done(&host->map);
    sc_alloc_free(alloc, host->owners);
    sc_heap_done(&host->tiers[UPPER].heap);
    sc_heap_done(&host->tiers[HOST].heap);
    sc_store_ghost_done(&host->past);
    sc_alloc_free(alloc, host->heads);
    sc_alloc_free(alloc, host->slabs);
    sc_alloc_free(alloc, host->memory);
    pthread_mutex_destroy(&host->lock);
    sc_alloc_free(alloc, host);
}

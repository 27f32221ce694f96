/* Images and journal of the sim disk. Plain arrays: a simulated disk has tens of files.
 *
 * Tests: tests/unit/store/test_io_sim.c */
#include "tests/sim/io_sim_image.h"

#include "tests/sim/io_sim.h"

#include <errno.h>
#include <string.h>

#define SECTOR SC_IO_SIM_SECTOR_BYTES

uint64_t sc_sim_random(uint64_t *state)
{
    uint64_t x = *state += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

uint64_t sc_sim_random_below(uint64_t *state, uint64_t bound)
{
    return sc_sim_random(state) % bound;
}

/* Makes room for one more item in a growing array. */
static int grow(struct sc_alloc *alloc, void **items, uint64_t count, uint64_t *room, uint64_t need,
                uint64_t item_bytes)
{
    if (need <= *room)
        return 0;
    uint64_t new_room = *room < 8 ? 8 : *room * 2;
    while (new_room < need)
        new_room *= 2;
    void *grown = sc_alloc_array(alloc, new_room, item_bytes);
    if (grown == NULL)
        return ENOMEM;
    if (count > 0)
        memcpy(grown, *items, (size_t)(count * item_bytes));
    sc_alloc_free(alloc, *items);
    *items = grown;
    *room = new_room;
    return 0;
}

/* ---- Images --------------------------------------------------------------------------------- */

void sc_sim_image_init(struct sc_sim_image *image, struct sc_alloc *alloc)
{
    *image = (struct sc_sim_image){.alloc = alloc};
}

static void inode_free(struct sc_sim_image *image, struct sc_sim_inode *inode)
{
    for (uint64_t i = 0; i < inode->block_count; i++)
        sc_alloc_free(image->alloc, inode->blocks[i]);
    sc_alloc_free(image->alloc, inode->blocks);
    image->used_bytes -= inode->bytes;
    *inode = (struct sc_sim_inode){0};
}

void sc_sim_image_done(struct sc_sim_image *image)
{
    for (uint64_t i = 0; i < image->inode_count; i++)
        inode_free(image, &image->inodes[i]);
    for (uint64_t i = 0; i < image->name_count; i++)
        sc_alloc_free(image->alloc, image->names[i].path);
    sc_alloc_free(image->alloc, image->inodes);
    sc_alloc_free(image->alloc, image->names);
    *image = (struct sc_sim_image){.alloc = image->alloc};
}

int sc_sim_image_copy(struct sc_sim_image *image, const struct sc_sim_image *from)
{
    int sys_errno = 0;
    for (uint64_t i = 0; i < from->name_count && sys_errno == 0; i++)
        sys_errno = sc_sim_image_name(image, from->names[i].path, from->names[i].inode);
    for (uint64_t i = 0; i < from->inode_count && sys_errno == 0; i++) {
        const struct sc_sim_inode *inode = &from->inodes[i];
        sys_errno = sc_sim_image_resize(image, i, inode->bytes);
        for (uint64_t j = 0; j < inode->block_count && sys_errno == 0; j++) {
            const uint64_t offset = j * SC_SIM_BLOCK_BYTES;
            if (inode->blocks[j] == NULL || offset >= inode->bytes)
                continue;
            const uint64_t rest = inode->bytes - offset;
            sys_errno = sc_sim_image_write(image, i, offset, inode->blocks[j],
                                           rest < SC_SIM_BLOCK_BYTES ? rest : SC_SIM_BLOCK_BYTES);
        }
    }
    return sys_errno;
}

struct sc_sim_name *sc_sim_image_find(struct sc_sim_image *image, const char *path)
{
    const uint64_t last = image->name_found;
    if (last < image->name_count && strcmp(image->names[last].path, path) == 0)
        return &image->names[last];
    for (uint64_t i = 0; i < image->name_count; i++)
        if (strcmp(image->names[i].path, path) == 0) {
            image->name_found = i;
            return &image->names[i];
        }
    return NULL;
}

int sc_sim_image_name(struct sc_sim_image *image, const char *path, uint64_t inode)
{
    void *names = image->names;
    if (grow(image->alloc, &names, image->name_count, &image->name_room, image->name_count + 1,
             sizeof(*image->names)) != 0)
        return ENOMEM;
    image->names = names;
    char *copy = sc_alloc_string(image->alloc, path);
    if (copy == NULL || (inode != SC_SIM_NO_INODE && sc_sim_image_inode(image, inode) != 0)) {
        sc_alloc_free(image->alloc, copy);
        return ENOMEM;
    }
    image->names[image->name_count++] = (struct sc_sim_name){.path = copy, .inode = inode};
    image->name_changes++;
    return 0;
}

void sc_sim_image_unname(struct sc_sim_image *image, const char *path)
{
    struct sc_sim_name *name = sc_sim_image_find(image, path);
    if (name == NULL)
        return;
    sc_alloc_free(image->alloc, name->path);
    const uint64_t i = (uint64_t)(name - image->names);
    memmove(name, name + 1, (size_t)(image->name_count - i - 1) * sizeof(*name));
    image->name_count--;
    image->name_changes++;
}

int sc_sim_image_rename(struct sc_sim_image *image, const char *from, const char *to)
{
    if (sc_sim_image_find(image, from) == NULL || strcmp(from, to) == 0)
        return 0;
    char *copy = sc_alloc_string(image->alloc, to);
    if (copy == NULL)
        return ENOMEM;
    sc_sim_image_unname(image, to);
    struct sc_sim_name *name = sc_sim_image_find(image, from); /* it may have moved */
    sc_alloc_free(image->alloc, name->path);
    name->path = copy;
    image->name_changes++;
    return 0;
}

int sc_sim_image_inode(struct sc_sim_image *image, uint64_t inode)
{
    void *inodes = image->inodes;
    if (grow(image->alloc, &inodes, image->inode_count, &image->inode_room, inode + 1,
             sizeof(*image->inodes)) != 0)
        return ENOMEM;
    image->inodes = inodes;
    if (image->inode_count < inode + 1)
        image->inode_count = inode + 1;
    return 0;
}

int sc_sim_image_resize(struct sc_sim_image *image, uint64_t inode, uint64_t bytes)
{
    if (sc_sim_image_inode(image, inode) != 0)
        return ENOMEM;
    struct sc_sim_inode *file = &image->inodes[inode];
    for (uint64_t i = bytes / SC_SIM_BLOCK_BYTES; i < file->block_count; i++) {
        const uint64_t keep_bytes =
            i == bytes / SC_SIM_BLOCK_BYTES ? bytes % SC_SIM_BLOCK_BYTES : 0;
        if (keep_bytes != 0 && file->blocks[i] != NULL) {
            memset(file->blocks[i] + keep_bytes, 0, SC_SIM_BLOCK_BYTES - keep_bytes);
        } else {
            sc_alloc_free(image->alloc, file->blocks[i]);
            file->blocks[i] = NULL;
        }
    }
    image->used_bytes = image->used_bytes - file->bytes + bytes;
    file->bytes = bytes;
    file->changes++;
    return 0;
}

int sc_sim_image_write(struct sc_sim_image *image, uint64_t inode, uint64_t offset,
                       const uint8_t *data, uint64_t bytes)
{
    if (bytes == 0)
        return 0;
    if (sc_sim_image_inode(image, inode) != 0)
        return ENOMEM;
    struct sc_sim_inode *file = &image->inodes[inode];
    const uint64_t last = (offset + bytes - 1) / SC_SIM_BLOCK_BYTES;
    void *blocks = file->blocks;
    if (grow(image->alloc, &blocks, file->block_count, &file->block_count, last + 1,
             sizeof(*file->blocks)) != 0)
        return ENOMEM;
    file->blocks = blocks;
    file->changes++;
    for (uint64_t i = offset / SC_SIM_BLOCK_BYTES; i <= last; i++) {
        if (file->blocks[i] == NULL)
            file->blocks[i] = sc_alloc_zero(image->alloc, SC_SIM_BLOCK_BYTES);
        if (file->blocks[i] == NULL)
            return ENOMEM; /* blocks made so far are zero: nothing visible changed */
    }
    if (file->bytes < offset + bytes) {
        image->used_bytes += offset + bytes - file->bytes;
        file->bytes = offset + bytes;
    }
    while (bytes > 0) {
        const uint64_t at = offset % SC_SIM_BLOCK_BYTES;
        const uint64_t n = SC_SIM_BLOCK_BYTES - at < bytes ? SC_SIM_BLOCK_BYTES - at : bytes;
        memcpy(file->blocks[offset / SC_SIM_BLOCK_BYTES] + at, data, (size_t)n);
        offset += n;
        data += n;
        bytes -= n;
    }
    return 0;
}

void sc_sim_image_read(const struct sc_sim_image *image, uint64_t inode, uint64_t offset,
                       uint8_t *data, uint64_t bytes)
{
    const struct sc_sim_inode *file = &image->inodes[inode];
    while (bytes > 0) {
        const uint64_t block = offset / SC_SIM_BLOCK_BYTES, at = offset % SC_SIM_BLOCK_BYTES;
        const uint64_t n = SC_SIM_BLOCK_BYTES - at < bytes ? SC_SIM_BLOCK_BYTES - at : bytes;
        if (block < file->block_count && file->blocks[block] != NULL)
            memcpy(data, file->blocks[block] + at, (size_t)n);
        else
            memset(data, 0, (size_t)n);
        offset += n;
        data += n;
        bytes -= n;
    }
}

void sc_sim_image_sweep(struct sc_sim_image *image,
                        bool (*is_kept)(uint64_t inode, const void *user), const void *user)
{
    for (uint64_t i = 0; i < image->inode_count; i++) {
        bool is_named = false;
        for (uint64_t j = 0; j < image->name_count && !is_named; j++)
            is_named = image->names[j].inode == i;
        if (!is_named && (is_kept == NULL || !is_kept(i, user)))
            inode_free(image, &image->inodes[i]);
    }
}

int sc_sim_image_apply(struct sc_sim_image *image, const struct sc_sim_event *event)
{
    switch (event->kind) {
    case SC_SIM_EVENT_MKDIR:
    case SC_SIM_EVENT_CREATE:
        if (sc_sim_image_find(image, event->data) != NULL)
            return 0; /* a collapse that ran out of memory is tried again */
        return sc_sim_image_name(image, event->data, event->inode);
    case SC_SIM_EVENT_UNLINK:
        sc_sim_image_unname(image, event->data);
        return 0;
    case SC_SIM_EVENT_RENAME:
        return sc_sim_image_rename(image, event->data,
                                   (const char *)event->data + strlen(event->data) + 1);
    case SC_SIM_EVENT_WRITE:
        return sc_sim_image_write(image, event->inode, event->offset, event->data, event->bytes);
    case SC_SIM_EVENT_RESIZE:
        return sc_sim_image_resize(image, event->inode, event->bytes);
    default:
        return 0;
    }
}

/* ---- The journal ---------------------------------------------------------------------------- */

void sc_sim_journal_init(struct sc_sim_journal *journal, struct sc_alloc *alloc)
{
    *journal = (struct sc_sim_journal){.alloc = alloc};
}

void sc_sim_journal_done(struct sc_sim_journal *journal)
{
    for (uint64_t i = 0; i < journal->count; i++)
        sc_alloc_free(journal->alloc, journal->events[i].data);
    sc_alloc_free(journal->alloc, journal->events);
    *journal = (struct sc_sim_journal){.alloc = journal->alloc};
}

static bool is_name_event(const struct sc_sim_event *event)
{
    return event->kind == SC_SIM_EVENT_MKDIR || event->kind == SC_SIM_EVENT_CREATE ||
           event->kind == SC_SIM_EVENT_UNLINK || event->kind == SC_SIM_EVENT_RENAME;
}

int sc_sim_journal_add(struct sc_sim_journal *journal, uint32_t kind, uint64_t inode,
                       uint64_t offset, uint64_t bytes, const void *data)
{
    void *events = journal->events;
    if (grow(journal->alloc, &events, journal->count, &journal->room, journal->count + 1,
             sizeof(*journal->events)) != 0)
        return ENOMEM;
    journal->events = events;
    struct sc_sim_event event = {.kind = kind, .inode = inode, .offset = offset, .bytes = bytes};
    if (kind == SC_SIM_EVENT_WRITE || kind == SC_SIM_EVENT_RENAME) {
        event.data = sc_alloc(journal->alloc, bytes);
        if (event.data != NULL)
            memcpy(event.data, data, (size_t)bytes);
    } else if (is_name_event(&event)) {
        event.data = sc_alloc_string(journal->alloc, data);
    }
    if (event.data == NULL && data != NULL)
        return ENOMEM;
    journal->events[journal->count++] = event;
    return 0;
}

int sc_sim_journal_collapse(struct sc_sim_journal *journal, struct sc_sim_image *base,
                            uint64_t inode)
{
    for (uint64_t i = 0; i < journal->count; i++) {
        const struct sc_sim_event *event = &journal->events[i];
        if ((event->inode == inode || is_name_event(event)) && !event->forsaken &&
            sc_sim_image_apply(base, event) != 0)
            return ENOMEM;
    }
    uint64_t kept = 0;
    for (uint64_t i = 0; i < journal->count; i++) {
        if (journal->events[i].inode == inode || is_name_event(&journal->events[i]))
            sc_alloc_free(journal->alloc, journal->events[i].data);
        else
            journal->events[kept++] = journal->events[i];
    }
    journal->count = kept;
    return 0;
}

void sc_sim_journal_forsake(struct sc_sim_journal *journal, uint64_t inode, uint64_t seed)
{
    for (uint64_t i = journal->count; i-- > 0;) {
        struct sc_sim_event *event = &journal->events[i];
        if (event->inode != inode || is_name_event(event))
            continue;
        if (event->kind == SC_SIM_EVENT_SYNC)
            break;
        event->forsaken |= (uint32_t)(sc_sim_random(&seed) & 1);
    }
}

/* ---- A power cut ---------------------------------------------------------------------------- */

enum { CUT_NOTHING, CUT_EVERYTHING, CUT_PREFIX, CUT_WRITES, CUT_SECTORS, CUT_MODES };

struct cut {
    uint64_t random;
    uint32_t mode;
    uint64_t keep_of_8;   /* CUT_WRITES, CUT_SECTORS: the chance of each */
    uint64_t prefix_left; /* CUT_PREFIX: changes of data that last whole */
    uint64_t names_left;  /* names last as a prefix in every mode */
};

static bool cut_keeps(struct cut *cut)
{
    return sc_sim_random_below(&cut->random, 8) < cut->keep_of_8;
}

/* The first sectors of a write, a seeded number of them. */
static int apply_torn(struct cut *cut, struct sc_sim_image *image, const struct sc_sim_event *event)
{
    const uint64_t lead = event->offset % SECTOR;
    const uint64_t sectors = (lead + event->bytes + SECTOR - 1) / SECTOR;
    const uint64_t end = sc_sim_random_below(&cut->random, sectors + 1) * SECTOR;
    if (end <= lead)
        return 0;
    const uint64_t bytes = end - lead < event->bytes ? end - lead : event->bytes;
    return sc_sim_image_write(image, event->inode, event->offset, event->data, bytes);
}

static int apply_sectors(struct cut *cut, struct sc_sim_image *image,
                         const struct sc_sim_event *event)
{
    int sys_errno = 0;
    for (uint64_t at = 0; at < event->bytes && sys_errno == 0;) {
        const uint64_t rest = SECTOR - (event->offset + at) % SECTOR;
        const uint64_t bytes = rest < event->bytes - at ? rest : event->bytes - at;
        if (cut_keeps(cut))
            sys_errno = sc_sim_image_write(image, event->inode, event->offset + at,
                                           (const uint8_t *)event->data + at, bytes);
        at += bytes;
    }
    return sys_errno;
}

/* A change of data that no sync covers. */
static int apply_volatile(struct cut *cut, struct sc_sim_image *image,
                          const struct sc_sim_event *event)
{
    switch (cut->mode) {
    case CUT_EVERYTHING:
        return sc_sim_image_apply(image, event);
    case CUT_PREFIX:
        if (cut->prefix_left > 0) {
            cut->prefix_left--;
            return sc_sim_image_apply(image, event);
        }
        cut->mode = CUT_NOTHING; /* this one is torn, the rest is lost */
        return event->kind == SC_SIM_EVENT_WRITE ? apply_torn(cut, image, event) : 0;
    case CUT_WRITES:
        return cut_keeps(cut) ? sc_sim_image_apply(image, event) : 0;
    case CUT_SECTORS:
        if (event->kind == SC_SIM_EVENT_WRITE)
            return apply_sectors(cut, image, event);
        return cut_keeps(cut) ? sc_sim_image_apply(image, event) : 0;
    default:
        return 0;
    }
}

/* [inode] -> events before this one are covered by a sync of it; one more entry at the end: by a
 * sync of any file. NULL: no memory. */
static uint64_t *synced_of(const struct sc_sim_journal *journal, uint64_t count,
                           uint64_t *ret_inode_count)
{
    uint64_t inode_count = 0;
    for (uint64_t i = 0; i < count; i++)
        if (journal->events[i].inode != SC_SIM_NO_INODE && journal->events[i].inode >= inode_count)
            inode_count = journal->events[i].inode + 1;
    uint64_t *synced = sc_alloc_array(journal->alloc, inode_count + 1, sizeof(*synced));
    for (uint64_t i = 0; i < count && synced != NULL; i++)
        if (journal->events[i].kind == SC_SIM_EVENT_SYNC) {
            synced[inode_count] = i;
            if (journal->events[i].inode != SC_SIM_NO_INODE)
                synced[journal->events[i].inode] = i;
        }
    *ret_inode_count = inode_count;
    return synced;
}

static void cut_choose(struct cut *cut, const struct sc_sim_journal *journal, uint64_t count,
                       const uint64_t *synced, uint64_t inode_count)
{
    static const uint8_t chances[] = {1, 4, 7};
    uint64_t names = 0, changes = 0;
    for (uint64_t i = 0; i < count; i++) {
        const struct sc_sim_event *event = &journal->events[i];
        if (is_name_event(event))
            names += i >= synced[inode_count];
        else if (event->kind != SC_SIM_EVENT_SYNC && !event->forsaken)
            changes += i >= synced[event->inode];
    }
    cut->mode = (uint32_t)sc_sim_random_below(&cut->random, CUT_MODES);
    cut->keep_of_8 = chances[sc_sim_random_below(&cut->random, sizeof(chances))];
    cut->prefix_left = sc_sim_random_below(&cut->random, changes + 1);
    cut->names_left = sc_sim_random_below(&cut->random, names + 1);
    if (cut->mode == CUT_NOTHING)
        cut->names_left = 0;
    if (cut->mode == CUT_EVERYTHING)
        cut->names_left = names;
}

int sc_sim_journal_crash(const struct sc_sim_journal *journal, const struct sc_sim_image *base,
                         uint64_t count, uint64_t seed, struct sc_sim_image *ret_image)
{
    uint64_t inode_count;
    uint64_t *synced = synced_of(journal, count, &inode_count);
    if (synced == NULL)
        return ENOMEM;
    struct cut cut = {.random = seed};
    cut_choose(&cut, journal, count, synced, inode_count);
    int sys_errno = sc_sim_image_copy(ret_image, base);
    for (uint64_t i = 0; i < count && sys_errno == 0; i++) {
        const struct sc_sim_event *event = &journal->events[i];
        if (is_name_event(event)) {
            const bool is_volatile = i >= synced[inode_count];
            if (!is_volatile || cut.names_left > 0)
                sys_errno = sc_sim_image_apply(ret_image, event);
            if (is_volatile && cut.names_left > 0)
                cut.names_left--;
        } else if (event->kind != SC_SIM_EVENT_SYNC && !event->forsaken) {
            if (i < synced[event->inode])
                sys_errno = sc_sim_image_apply(ret_image, event);
            else
                sys_errno = apply_volatile(&cut, ret_image, event);
        }
    }
    sc_alloc_free(journal->alloc, synced);
    if (sys_errno == 0)
        sc_sim_image_sweep(ret_image, NULL, NULL);
    return sys_errno;
}

/* log: reads a store from outside: identity, ranks, logs.
 *
 *   log (mapped) -> frames, checked in a chain -> records, decoded -> spaces, extents, pieces
 *
 * Damaged frames are restored as the store does. See ctl.h.
 * Threads: one. Tests: tests/unit/tools/test_ctl.py */
#include "tools/ctl/ctl.h"

#include "store/open.h"

#include "store/log/record_format.h"
#include "store/rows/row_permutation.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- Helpers -------------------------------------------------------------------------------- */

static void *no_memory(void)
{
    fputs("spec-ctl: out of memory\n", stderr);
    exit(CTL_FAILED);
}

void *ctl_grow(void *array, uint64_t count, uint64_t *room, uint64_t size)
{
    if (count < *room)
        return array;
    *room = *room > 0 ? 2 * *room : 64;
    void *grown = realloc(array, *room * size);
    return grown != NULL ? grown : no_memory();
}

void *ctl_alloc(uint64_t bytes)
{
    void *memory = calloc(1, bytes > 0 ? bytes : 1);
    return memory != NULL ? memory : no_memory();
}

static char *path_in(const char *dir, const char *name)
{
    char *text;
    return asprintf(&text, "%s/%s", dir, name) >= 0 ? text : no_memory();
}

void ctl_hex_text(const uint8_t bytes[SC_STORE_HASH_BYTES], char text[33])
{
    for (uint32_t i = 0; i < SC_STORE_HASH_BYTES; i++)
        (void)snprintf(text + 2 * i, 3, "%02x", bytes[i]);
}

struct json_object *ctl_hex(const uint8_t bytes[SC_STORE_HASH_BYTES])
{
    char text[33];
    ctl_hex_text(bytes, text);
    return json_object_new_string(text);
}

struct json_object *ctl_hex_root(const uint8_t bytes[SC_STORE_SHA256_BYTES])
{
    char text[65];
    ctl_hex_text(bytes, text);
    ctl_hex_text(bytes + SC_STORE_HASH_BYTES, text + 32);
    return json_object_new_string(text);
}

const char *ctl_bytes_text(uint64_t bytes, char text[32])
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double value = (double)bytes;
    uint32_t unit = 0;
    for (; value >= 1024 && unit < 4; unit++)
        value /= 1024;
    (void)snprintf(text, 32, unit == 0 ? "%.0f %s" : "%.1f %s", value, units[unit]);
    return text;
}

uint64_t ctl_row_bytes(const struct ctl_space *space)
{
    return 2 * space->k_row_bytes;
}

/* The file's bytes, mapped; an empty one gives NULL with 0 bytes. False: said on stderr. */
static bool map_file(const char *path, const uint8_t **ret_bytes, uint64_t *ret_count)
{
    struct stat info;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    bool is_open = fd >= 0 && fstat(fd, &info) == 0;
    void *bytes = NULL;
    if (is_open && info.st_size > 0)
        bytes = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (!is_open || bytes == MAP_FAILED) {
        fprintf(stderr, "spec-ctl: %s: %s\n", path, strerror(errno));
        if (fd >= 0)
            close(fd);
        return false;
    }
    close(fd);
    *ret_bytes = bytes;
    *ret_count = (uint64_t)info.st_size;
    return true;
}

static void unmap_file(const uint8_t *bytes, uint64_t count)
{
    if (count > 0)
        munmap((void *)(uintptr_t)bytes, count);
}

/* ---- Identity and ranks --------------------------------------------------------------------- */

static bool identity_read(struct ctl_store *store)
{
    char *path = path_in(store->path, SC_STORE_IDENTITY_NAME);
    const uint8_t *bytes;
    uint64_t count, chain = 0;
    struct sc_store_frame frame;
    if (access(path, F_OK) != 0 && errno == ENOENT) {
        fprintf(stderr,
                "spec-ctl: %s is no store: it has no %s, expected the directory that \"path\" of a "
                "connector's configuration names\n",
                store->path, SC_STORE_IDENTITY_NAME);
        free(path);
        return false;
    }
    bool good = map_file(path, &bytes, &count);
    if (good) {
        good = sc_store_old_frame_check(bytes, count, 0, &chain, &frame) == SC_STORE_FRAME_OK &&
               sc_store_record_get_identity(frame.payload, frame.payload_bytes, &store->identity);
        if (!good)
            fprintf(stderr, "spec-ctl: %s is no identity of a store\n", path);
        unmap_file(bytes, count);
    }
    if (good && (store->identity.version < SC_STORE_FORMAT_OLDEST ||
                 store->identity.version > SC_STORE_FORMAT_VERSION)) {
        fprintf(stderr, "spec-ctl: %s: format %" PRIu64 ", this program reads formats %u to %u\n",
                path, store->identity.version, SC_STORE_FORMAT_OLDEST, SC_STORE_FORMAT_VERSION);
        good = false;
    }
    free(path);
    return good;
}

/* Returns true if a process, of this machine or another, has a lock on the file. */
static bool is_locked(int fd)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    return fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

/* Returns true if processes share the lock: each stores (store.writers: many). */
static bool is_shared(int fd)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    return fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type == F_RDLCK;
}

/* The line in the lock file, when somebody holds the lock; and whether the log is followed. */
static void holder_read(struct ctl_rank *rank)
{
    char *path = path_in(rank->path, "lock"), *log = path_in(rank->path, "log");
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0 && is_shared(fd)) { /* its line is of an earlier writer */
        (void)snprintf(rank->holder, sizeof(rank->holder), "every member");
    } else if (fd >= 0 && is_locked(fd)) {
        ssize_t bytes = pread(fd, rank->holder, sizeof(rank->holder) - 1, 0);
        rank->holder[bytes > 0 ? bytes : 0] = '\0';
        rank->holder[strcspn(rank->holder, "\n")] = '\0';
    }
    if (fd >= 0)
        close(fd);
    fd = open(log, O_RDONLY | O_CLOEXEC);
    rank->is_followed = fd >= 0 && is_locked(fd);
    if (fd >= 0)
        close(fd);
    free(log);
    free(path);
}

/* The lines of the places that somebody has. */
static void members_read(struct ctl_rank *rank)
{
    char *path = path_in(rank->path, "members");
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    for (uint32_t place = 0; fd >= 0 && place < SC_STORE_MEMBERS_MAX; place++) {
        const off_t at = (off_t)place * SC_IO_PLACE_BYTES;
        struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = at, .l_len = 1};
        char *line = rank->members[rank->member_count];
        if (fcntl(fd, F_OFD_GETLK, &lock) != 0 || lock.l_type == F_UNLCK)
            continue;
        ssize_t bytes = pread(fd, line, SC_IO_PLACE_BYTES - 1, at);
        line[bytes > 0 ? bytes : 0] = '\0';
        line[strcspn(line, "\n")] = '\0';
        rank->member_count++;
    }
    if (fd >= 0)
        close(fd);
    free(path);
}

static void segments_count(struct ctl_rank *rank)
{
    DIR *dir = opendir(rank->path);
    for (struct dirent *entry; dir != NULL && (entry = readdir(dir)) != NULL;) {
        struct stat info;
        if (strncmp(entry->d_name, "seg-", 4) != 0 ||
            fstatat(dirfd(dir), entry->d_name, &info, 0) != 0)
            continue;
        rank->segment_count++;
        rank->segment_bytes += (uint64_t)info.st_blocks * 512;
        int fd = openat(dirfd(dir), entry->d_name, O_RDONLY | O_CLOEXEC);
        rank->claimed_count += fd >= 0 && is_locked(fd);
        if (fd >= 0)
            close(fd);
    }
    if (dir != NULL)
        closedir(dir);
}

static int rank_compare(const void *left, const void *right)
{
    const struct ctl_rank *a = left, *b = right;
    if (a->rank_count != b->rank_count)
        return a->rank_count < b->rank_count ? -1 : 1;
    return a->rank < b->rank ? -1 : a->rank > b->rank;
}

/* Directories of ranks have the prefix. */
static bool store_open(const char *path, int64_t rank, const char *prefix,
                       struct ctl_store *ret_store)
{
    const size_t prefix_bytes = strlen(prefix);
    *ret_store = (struct ctl_store){.path = path};
    uint64_t room = 0;
    DIR *dir = opendir(path);
    if (dir == NULL) {
        fprintf(stderr, "spec-ctl: %s: %s, expected a store's directory\n", path, strerror(errno));
        return false;
    }
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        struct ctl_rank found = {0};
        int end = 0;
        if (strncmp(entry->d_name, prefix, prefix_bytes) != 0 ||
            sscanf(entry->d_name + prefix_bytes, "%" SCNu32 "-of-%" SCNu32 "%n", &found.rank,
                   &found.rank_count, &end) != 2 ||
            entry->d_name[prefix_bytes + (size_t)end] != '\0' ||
            (rank >= 0 && found.rank != (uint64_t)rank))
            continue;
        found.path = path_in(path, entry->d_name);
        ret_store->ranks = ctl_grow(ret_store->ranks, ret_store->rank_count, &room, sizeof(found));
        ret_store->ranks[ret_store->rank_count++] = found;
    }
    closedir(dir);
    bool good = identity_read(ret_store);
    if (good && rank >= 0 && ret_store->rank_count == 0) {
        fprintf(stderr, "spec-ctl: %s has no rank %" PRId64 "\n", path, rank);
        good = false;
    }
    if (!good) {
        ctl_store_close(ret_store);
        return false;
    }
    if (ret_store->rank_count > 0)
        qsort(ret_store->ranks, ret_store->rank_count, sizeof(*ret_store->ranks), rank_compare);
    for (uint64_t i = 0; i < ret_store->rank_count; i++) {
        holder_read(&ret_store->ranks[i]);
        members_read(&ret_store->ranks[i]);
        segments_count(&ret_store->ranks[i]);
    }
    return true;
}

bool ctl_store_open(const char *path, int64_t rank, struct ctl_store *ret_store)
{
    return store_open(path, rank, SC_STORE_ROWS_PREFIX, ret_store);
}

bool ctl_objects_open(const char *path, int64_t rank, struct ctl_store *ret_store)
{
    return store_open(path, rank, SC_STORE_OBJECTS_PREFIX, ret_store);
}

static void derived_free(struct ctl_extent *derived_section)
{
    if (derived_section != NULL) {
        free(derived_section->parts);
    }
    free(derived_section);
}

void ctl_store_close(struct ctl_store *store)
{
    for (uint64_t i = 0; i < store->rank_count; i++) {
        struct ctl_rank *rank = &store->ranks[i];
        for (uint64_t j = 0; j < rank->space_count; j++)
            free(rank->spaces[j].descriptor);
        for (uint64_t j = 0; j < rank->extent_count; j++) {
            derived_free(rank->extents[j].derived_section);
            derived_free(rank->extents[j].codes);
            free(rank->extents[j].slots);
            free(rank->extents[j].parts);
        }
        free(rank->order.slots);
        free(rank->spaces);
        free(rank->extents);
        free(rank->pieces);
        free(rank->path);
    }
    free(store->ranks);
    *store = (struct ctl_store){0};
}

/* ---- Records -------------------------------------------------------------------------------- */

static bool version_known(const struct ctl_rank *rank, const struct sc_store_record *record)
{
    if (record->version == SC_STORE_RECORD_VERSION && sc_store_record_is_of_rows(record->type))
        return true;
    fprintf(stderr,
            "spec-ctl: %s/log: record %" PRIu64 " has type %" PRIu64 " version %" PRIu64
            ", this program does not know it\n",
            rank->path, rank->record_count + 1, record->type, record->version);
    return false;
}

struct walk {
    const uint8_t *bytes;
    uint8_t *scratch; /* [SC_STORE_FRAME_BYTES_MAX] */
    struct sc_store_log_end end;
    uint32_t searches_left;
    ctl_on_payload *on_payload;
    void *user;
};

static bool payload_tell(struct ctl_rank *rank, struct walk *walk,
                         const struct sc_store_frame *frame)
{
    bool goes_on = walk->on_payload(rank, frame->payload, frame->payload_bytes, walk->user);
    rank->resets_lost = false;
    rank->record_count++;
    return goes_on;
}

/* Pieces that were told so far are void: a reset may be lost. */
static void resets_lost(struct ctl_rank *rank)
{
    rank->resets_lost = true;
    for (uint64_t i = 0; i < rank->piece_count; i++)
        if (rank->pieces[i].state == CTL_LIVE)
            rank->pieces[i].state = CTL_VOID;
}

/* Nothing is believed, and no frame begins at `at`. */
static void tail_look(struct ctl_rank *rank, const struct walk *walk, uint64_t at)
{
    const uint64_t left = rank->log_bytes - at;
    const uint64_t count = left < SC_STORE_TAIL_BYTES ? left : SC_STORE_TAIL_BYTES;
    if (sc_store_tail_is_torn(walk->bytes + at, count, at, &walk->end))
        return;
    rank->gap_count++;
    rank->gap_bytes += left;
    resets_lost(rank);
}

/* The frame at `at` is not believed. Returns false at the log's end, else moves walk->end, in front
 * of the next frame, or behind one that was restored (*ret_frame, payload not NULL). */
static bool walk_beyond(struct ctl_rank *rank, struct walk *walk, uint64_t at,
                        struct sc_store_frame *ret_frame)
{
    struct sc_store_log_end *end = &walk->end;
    struct sc_store_frame_search next = {.offset = end->offset};
    const uint64_t left = rank->log_bytes - at;
    bool is_found = sc_store_frame_search(walk->bytes + end->offset, rank->log_bytes - end->offset,
                                          true, end, &next);
    *ret_frame = (struct sc_store_frame){0};
    if (is_found && !next.misses) {
        sc_store_log_jump(end, &next);
        return true;
    }
    if (rank->damaged_count + rank->gap_count < SC_STORE_DAMAGED_MAX &&
        sc_store_frame_recover(
            walk->bytes + at, left < SC_STORE_RECOVER_BYTES ? left : SC_STORE_RECOVER_BYTES, at,
            is_found ? &next : NULL, end, walk->scratch, &walk->searches_left, ret_frame)) {
        rank->damaged_offset = rank->damaged_count++ == 0 ? at : rank->damaged_offset;
        return true;
    }
    if (!is_found) {
        if (next.has_junk)
            tail_look(rank, walk, next.junk);
        return false;
    }
    rank->gap_count++;
    rank->gap_bytes += next.offset - end->offset;
    if (sc_store_jump_loses_resets(end, &next))
        resets_lost(rank);
    sc_store_log_jump(end, &next);
    return true;
}

static bool frames_walk(struct ctl_rank *rank, struct walk *walk)
{
    struct sc_store_frame frame;
    bool goes_on = true;
    rank->record_count = rank->lie_count = rank->damaged_count = 0;
    rank->gap_count = rank->gap_bytes = 0;
    rank->resets_lost = false;
    for (uint64_t at = 0; goes_on;) {
        enum sc_store_frame_state state =
            sc_store_frame_check(walk->bytes + at, rank->log_bytes - at, at, &walk->end, &frame);
        if (state == SC_STORE_FRAME_LOST) {
            at += frame.bytes;
            continue;
        }
        if (state != SC_STORE_FRAME_OK && !walk_beyond(rank, walk, at, &frame))
            break;
        if (frame.payload != NULL)
            goes_on = payload_tell(rank, walk, &frame);
        at = walk->end.offset;
    }
    rank->log_bytes_believed = walk->end.offset;
    return goes_on;
}

static void say_damage(const struct ctl_rank *rank)
{
    if (rank->damaged_count > 0)
        fprintf(stderr,
                "spec-ctl: %s/log: %" PRIu64
                " damaged records were restored, the first at byte %" PRIu64 "\n",
                rank->path, rank->damaged_count, rank->damaged_offset);
    if (rank->gap_count > 0)
        fprintf(stderr,
                "spec-ctl: %s/log: %" PRIu64 " ranges, %" PRIu64
                " bytes in all, are damaged: their records are lost\n",
                rank->path, rank->gap_count, rank->gap_bytes);
}

bool ctl_payloads_walk(const struct ctl_store *store, struct ctl_rank *rank,
                       ctl_on_payload *on_payload, void *user)
{
    char *path = path_in(rank->path, "log");
    const uint8_t *bytes;
    bool good = map_file(path, &bytes, &rank->log_bytes);
    free(path);
    if (!good)
        return false;
    struct walk walk = {.bytes = bytes,
                        .scratch = malloc(SC_STORE_FRAME_BYTES_MAX),
                        .searches_left = SC_STORE_SEARCHES_MAX,
                        .on_payload = on_payload,
                        .user = user};
    if (walk.scratch == NULL)
        no_memory();
    sc_store_log_begin(&walk.end, store->identity.store_id, rank->rank, rank->rank_count);
    good = frames_walk(rank, &walk);
    say_damage(rank);
    free(walk.scratch);
    unmap_file(bytes, rank->log_bytes);
    return good;
}

struct record_walk {
    struct sc_store_record record;
    ctl_on_record *on_record;
    void *user;
};

static bool record_walk(struct ctl_rank *rank, const uint8_t *payload, uint64_t payload_bytes,
                        void *user)
{
    struct record_walk *walk = user;
    bool known = sc_store_record_peek(payload, payload_bytes, &walk->record);
    if (known && !version_known(rank, &walk->record))
        return false;
    if (known && sc_store_record_decode(payload, payload_bytes, &walk->record))
        walk->on_record(&walk->record, walk->user);
    else
        rank->lie_count++;
    return true;
}

bool ctl_log_walk(const struct ctl_store *store, struct ctl_rank *rank, ctl_on_record *on_record,
                  void *user)
{
    struct record_walk walk = {.on_record = on_record, .user = user};
    walk.record.tokens = calloc(SC_STORE_ROWS_MAX, sizeof(*walk.record.tokens));
    walk.record.marks = calloc(SC_STORE_MARKS_MAX, sizeof(*walk.record.marks));
    walk.record.extent.parts = calloc(SC_LIMIT_LAYERS, sizeof(*walk.record.extent.parts));
    if (walk.record.tokens == NULL || walk.record.marks == NULL || walk.record.extent.parts == NULL)
        no_memory();
    bool good = ctl_payloads_walk(store, rank, record_walk, &walk);
    free(walk.record.tokens);
    free(walk.record.marks);
    free(walk.record.extent.parts);
    return good;
}

/* ---- What lives ----------------------------------------------------------------------------- */

static void add_space(struct ctl_rank *rank, const struct sc_store_record *record)
{
    const struct sc_store_record_space *in = &record->space;
    struct ctl_space space = {.id = record->id,
                              .layer_count = in->space.layer_count,
                              .layout = in->space.layout,
                              .k_row_bytes = in->space.k_row_bytes};
    memcpy(space.digest, in->space.digest, sizeof(space.digest));
    memcpy(space.family, in->space.family, sizeof(space.family));
    space.descriptor = strndup(in->space.descriptor, in->descriptor_bytes);
    if (space.descriptor == NULL)
        no_memory();
    struct json_object *model = json_tokener_parse(space.descriptor), *tokens;
    if (json_object_object_get_ex(model, "chunk_tokens", &tokens))
        space.chunk_tokens = json_object_get_uint64(tokens);
    json_object_put(model);
    rank->spaces =
        ctl_grow(rank->spaces, rank->space_count, &rank->space_room, sizeof(*rank->spaces));
    rank->spaces[rank->space_count++] = space;
}

static void add_extent(struct ctl_rank *rank, const struct sc_store_record *record)
{
    const struct sc_store_record_extent *in = &record->extent;
    uint32_t space = 0;
    while (space < rank->space_count && rank->spaces[space].id != in->space)
        space++;
    if (space == rank->space_count) {
        rank->lie_count++;
        return;
    }
    struct ctl_extent extent = {.id = record->id,
                                .copy = in->copy,
                                .row_count = in->row_count,
                                .row_offset = in->row_offset,
                                .stride = in->stride,
                                .probe_offset = in->probe_offset,
                                .probe_tag_offset = in->probe_tag_offset,
                                .probe_row_bytes = in->probe_row_bytes,
                                .tag_offset = in->tag_offset,
                                .space = space,
                                .part_count = in->part_count,
                                .parts = calloc(in->part_count, sizeof(*in->parts))};
    if (extent.parts == NULL)
        no_memory();
    const struct ctl_space *of = &rank->spaces[space];
    extent.fits =
        sc_store_record_extent_fits(in, of->layout == SC_STORE_SPLIT ? 2 : 1, of->k_row_bytes);
    memcpy(extent.parts, in->parts, in->part_count * sizeof(*in->parts));
    rank->extents =
        ctl_grow(rank->extents, rank->extent_count, &rank->extent_room, sizeof(*rank->extents));
    rank->extents[rank->extent_count++] = extent;
}

static struct ctl_extent *extent_find(const struct ctl_rank *rank, uint64_t id)
{
    for (uint64_t i = rank->extent_count; i-- > 0;)
        if (rank->extents[i].id == id)
            return &rank->extents[i];
    return NULL;
}

/* Slots of some layers. Of an extent that is not there: ignored, as a replay does. */
static void add_order(struct ctl_rank *rank, const struct sc_store_record *record)
{
    const struct sc_store_record_permutation *in = &record->permutation;
    const struct ctl_extent *extent = extent_find(rank, record->id);
    if (extent == NULL)
        return;
    uint64_t layers = rank->spaces[extent->space].layer_count, rows = extent->row_count;
    uint64_t words = sc_store_permutation_words(rows), count = in->slots_bytes / 2 / rows,
             seen[256];
    if (in->layer_first == 0) {
        free(rank->order.slots);
        rank->order.slots = calloc(words * layers, 8);
        if (rank->order.slots == NULL)
            no_memory();
        rank->order.extent = record->id;
        rank->order.copy = in->copy;
        rank->order.layer_next = 0;
    }
    bool fits = rank->order.slots != NULL && rank->order.extent == record->id &&
                rank->order.copy == in->copy && rank->order.layer_next == in->layer_first &&
                in->slots_bytes == count * rows * 2 && count <= layers - in->layer_first;
    for (uint64_t layer = in->layer_first; fits && layer < in->layer_first + count; layer++) {
        uint16_t *slots = sc_store_permutation_of(rank->order.slots, rows, (uint32_t)layer);
        for (uint64_t i = 0; i < rows; i++)
            slots[i] = (uint16_t)sc_store_le_get(
                in->slots + ((layer - in->layer_first) * rows + i) * 2, 2);
        fits = sc_store_permutation_is(slots, rows, seen);
    }
    rank->order.layer_next += count;
    rank->lie_count += !fits;
    if (fits)
        return;
    free(rank->order.slots);
    rank->order.slots = NULL;
}

/* All that the extent has of its own lies elsewhere from now on. */
static void extent_move(struct ctl_rank *rank, struct ctl_extent *extent,
                        const struct sc_store_record_extent *in)
{
    bool is_older = extent->slots != NULL && in->permuted_at_ns <= extent->permuted_at_ns;
    if (is_older || rank->order.slots == NULL || rank->order.extent != extent->id ||
        rank->order.copy != in->copy || in->probe_row_bytes != extent->probe_row_bytes ||
        rank->order.layer_next != rank->spaces[extent->space].layer_count) {
        rank->lie_count++;
        return;
    }
    free(extent->parts);
    free(extent->slots);
    extent->parts = calloc(in->part_count, sizeof(*in->parts));
    if (extent->parts == NULL)
        no_memory();
    memcpy(extent->parts, in->parts, in->part_count * sizeof(*in->parts));
    extent->slots_copy = in->copy;
    extent->permuted_at_ns = in->permuted_at_ns;
    extent->part_count = in->part_count;
    extent->stride = in->stride;
    extent->row_offset = in->row_offset;
    extent->tag_offset = in->tag_offset;
    extent->probe_offset = in->probe_offset;
    extent->probe_tag_offset = in->probe_tag_offset;
    extent->slots = rank->order.slots;
    rank->order.slots = NULL;
}

/* A retired one, or one of an extent that is not there, is ignored, as a replay does. */
static void add_section(struct ctl_rank *rank, const struct sc_store_record *record)
{
    const struct sc_store_record_extent *in = &record->extent;
    struct ctl_extent *extent = extent_find(rank, record->id);
    if (extent == NULL || in->is_retired || in->is_replaced)
        return;
    uint64_t k_row_bytes = rank->spaces[extent->space].k_row_bytes;
    const struct sc_store_part *last = &in->parts[in->part_count - 1];
    struct ctl_extent **place =
        in->codec_shape.bits_k != 0 ? &extent->codes : &extent->derived_section;
    if ((*place != NULL && !in->is_order) ||
        last->layer_first + last->layer_count != rank->spaces[extent->space].layer_count ||
        !sc_store_record_section_fits(in, extent->row_count,
                                      rank->spaces[extent->space].layout == SC_STORE_SPLIT ? 2 : 1,
                                      k_row_bytes)) {
        rank->lie_count++;
        return;
    }
    if (in->is_order) {
        extent_move(rank, extent, in);
        return;
    }
    struct ctl_extent *derived_section = calloc(1, sizeof(*derived_section));
    struct sc_store_part *parts = calloc(in->part_count, sizeof(*parts));
    if (derived_section == NULL || parts == NULL)
        no_memory();
    memcpy(parts, in->parts, in->part_count * sizeof(*parts));
    *derived_section = (struct ctl_extent){.id = record->id,
                                           .copy = in->copy,
                                           .row_count = extent->row_count,
                                           .stride = in->stride,
                                           .probe_offset = in->probe_offset,
                                           .probe_tag_offset = in->probe_tag_offset,
                                           .probe_row_bytes = in->probe_row_bytes,
                                           .codec_shape = in->codec_shape,
                                           .fits = true,
                                           .space = extent->space,
                                           .part_count = in->part_count,
                                           .parts = parts};
    *place = derived_section;
}

static int piece_by_id(const void *key, const void *element)
{
    const uint64_t *id = key;
    const struct ctl_piece *piece = element;
    return *id < piece->id ? -1 : *id > piece->id;
}

struct ctl_piece *ctl_piece_find(const struct ctl_rank *rank, uint64_t id)
{
    if (rank->piece_count == 0)
        return NULL;
    return bsearch(&id, rank->pieces, rank->piece_count, sizeof(*rank->pieces), piece_by_id);
}

static void add_piece(struct ctl_rank *rank, const struct sc_store_record *record)
{
    const struct sc_store_piece *in = &record->piece;
    const struct ctl_extent *extent =
        rank->extent_count > 0 ? &rank->extents[rank->extent_count - 1] : NULL;
    bool fits = extent != NULL && extent->id == in->extent && in->extent_row < extent->row_count &&
                in->row_count <= extent->row_count - in->extent_row &&
                ctl_piece_find(rank, record->id) == NULL;
    if (!fits) {
        rank->lie_count++;
        return;
    }
    struct ctl_piece piece = {.id = record->id,
                              .first_position = in->first_position,
                              .chunk_first = in->chunk_first,
                              .extent = (uint32_t)(rank->extent_count - 1),
                              .extent_row = in->extent_row,
                              .row_count = in->row_count,
                              .skip = in->skip,
                              .mark_count = in->mark_count};
    memcpy(piece.root, in->root, sizeof(piece.root));
    memcpy(piece.chunk_hash, in->chunk_hash, sizeof(piece.chunk_hash));
    memcpy(piece.hash, in->hash, sizeof(piece.hash));
    rank->pieces =
        ctl_grow(rank->pieces, rank->piece_count, &rank->piece_room, sizeof(*rank->pieces));
    uint64_t at =
        rank->piece_count++; /* one that others were merged into stands behind larger ids */
    for (; at > 0 && rank->pieces[at - 1].id > piece.id; at--)
        rank->pieces[at] = rank->pieces[at - 1];
    rank->pieces[at] = piece;
}

static void drop_piece(struct ctl_rank *rank, const struct sc_store_record *record)
{
    struct ctl_piece *piece = ctl_piece_find(rank, record->id);
    if (piece == NULL || piece->state != CTL_LIVE)
        return; /* a checkpoint keeps drops of pieces whose pages wait, without the pieces */
    piece->state = CTL_DROPPED;
    piece->dropped_ns = record->drop.at_ns;
}

/* An earlier version left the extent without rows: its pieces are dropped, as a replay does it. */
static void drop_extent(struct ctl_rank *rank, const struct sc_store_record *record)
{
    for (uint64_t i = 0; i < rank->piece_count; i++) {
        struct ctl_piece *piece = &rank->pieces[i];
        if (piece->state != CTL_LIVE || rank->extents[piece->extent].id != record->id)
            continue;
        piece->state = CTL_DROPPED;
        piece->dropped_ns = record->drop.at_ns;
    }
}

/* All pieces of the namespace so far are void. */
static void move_epoch(struct ctl_rank *rank, const struct sc_store_record *record)
{
    for (uint64_t i = 0; i < rank->space_count; i++)
        if (rank->spaces[i].id == record->id)
            rank->spaces[i].epoch = record->epoch.epoch;
    for (uint64_t i = 0; i < rank->piece_count; i++) {
        struct ctl_piece *piece = &rank->pieces[i];
        if (rank->spaces[rank->extents[piece->extent].space].id == record->id &&
            piece->state == CTL_LIVE)
            piece->state = CTL_VOID;
    }
}

static void load_record(const struct sc_store_record *record, void *user)
{
    struct ctl_rank *rank = user;
    switch (record->type) {
    case SC_STORE_RECORD_NAMESPACE:
        add_space(rank, record);
        break;
    case SC_STORE_RECORD_EXTENT:
        add_extent(rank, record);
        break;
    case SC_STORE_RECORD_PIECE:
        add_piece(rank, record);
        break;
    case SC_STORE_RECORD_DROP:
        drop_piece(rank, record);
        break;
    case SC_STORE_RECORD_EPOCH:
        move_epoch(rank, record);
        break;
    case SC_STORE_RECORD_AVERAGE:
        rank->average_count++;
        break;
    case SC_STORE_RECORD_SECTION:
        add_section(rank, record);
        break;
    case SC_STORE_RECORD_ROWS_GONE:
        drop_extent(rank, record);
        break;
    case SC_STORE_RECORD_PERMUTATION:
        add_order(rank, record);
        break;
    case SC_STORE_RECORD_SEGMENT: /* the directory says the same */
    case SC_STORE_RECORD_LIMITS:
    case SC_STORE_RECORD_SEAL:
        break;
    default:
        rank->checkpoint = record->head.number;
        break;
    }
}

static uint64_t pages_bytes(const struct ctl_extent *derived_section)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < derived_section->part_count; i++)
        bytes += (derived_section->parts[i].layer_count * derived_section->stride +
                  SC_IO_PAGE_BYTES - 1) /
                 SC_IO_PAGE_BYTES * SC_IO_PAGE_BYTES;
    return bytes;
}

bool ctl_rank_load(const struct ctl_store *store, struct ctl_rank *rank)
{
    if (!ctl_log_walk(store, rank, load_record, rank))
        return false;
    for (uint64_t i = 0; i < rank->piece_count; i++) {
        const struct ctl_piece *piece = &rank->pieces[i];
        struct ctl_extent *extent = &rank->extents[piece->extent];
        if (piece->state != CTL_LIVE)
            continue;
        extent->live_rows += piece->row_count;
        rank->spaces[extent->space].pieces++;
        rank->spaces[extent->space].rows += piece->row_count;
        if (extent->slots != NULL)
            rank->spaces[extent->space].ordered_rows += piece->row_count;
        const struct ctl_extent *probes =
            extent->derived_section != NULL ? extent->derived_section : extent;
        struct ctl_space *space = &rank->spaces[extent->space];
        space->code_pieces += extent->codes != NULL;
        space->code_rows += extent->codes != NULL ? piece->row_count : 0;
        if (probes->probe_row_bytes == 0)
            continue;
        space->probe_rows += piece->row_count;
        space->derived_rows += extent->derived_section != NULL ? piece->row_count : 0;
        space->probe_bytes += piece->row_count * (probes->probe_row_bytes + 8) * space->layer_count;
    }
    for (uint64_t i = 0; i < rank->extent_count; i++)
        if (rank->extents[i].live_rows > 0 && rank->extents[i].codes != NULL)
            rank->spaces[rank->extents[i].space].quantised_bytes +=
                pages_bytes(rank->extents[i].codes);
    return true;
}

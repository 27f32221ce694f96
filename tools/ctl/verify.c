/* verify: reads every live row, layer by layer, and checks its tag; also probe rows, and the
 * checksums of quantised blocks. Reports damage of the logs.
 *
 * A bad piece is reported only if it is still live afterwards, because a store in use may have
 * reused its space.
 * Threads: one. Tests: tests/unit/tools/test_ctl.py */
#include "tools/ctl/ctl.h"

#include "store/log/where.h"
#include "store/rows/row_permutation.h"
#include "store/rows/tag.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct bad {
    uint64_t piece, first_position, row_count;
    uint32_t layer;
    const char *what;
    bool is_ordered;     /* the rows had another order when they were looked at, */
    uint64_t slots_copy; /* that of this copy */
    char digest[33];
};

struct verify {
    const struct ctl_options *options;
    struct ctl_rank *rank;
    int fd; /* of the segment that was read last */
    uint32_t segment;
    uint8_t *buffer;
    uint64_t buffer_bytes;
    uint64_t read_bytes, whole_bytes, rows, blocks; /* of all ranks */
    struct bad *bad;
    uint64_t bad_count, bad_room;
    uint64_t damaged_records, lost_ranges;
    double said_s;
};

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void say_progress(struct verify *verify)
{
    char done[32], whole[32];
    double now = now_s();
    if (verify->options->quiet || now - verify->said_s < 0.5 || !isatty(STDERR_FILENO))
        return;
    verify->said_s = now;
    fprintf(stderr, "\r%s of %s  ", ctl_bytes_text(verify->read_bytes, done),
            ctl_bytes_text(verify->whole_bytes, whole));
}

/* The layer's bytes of the extent; NULL: they cannot be read. */
static const uint8_t *layer_read(struct verify *verify, const struct ctl_extent *extent,
                                 uint32_t layer)
{
    const struct sc_store_part *part = extent->parts;
    while (layer >= part->layer_first + part->layer_count)
        part++; /* parts cover all layers: the decoder saw to it */
    if (verify->fd < 0 || verify->segment != part->segment) {
        char path[SC_LIMIT_PATH_BYTES + 64];
        (void)snprintf(path, sizeof(path), "%s/seg-%08" PRIx32, verify->rank->path, part->segment);
        if (verify->fd >= 0)
            close(verify->fd);
        verify->fd = open(path, O_RDONLY | O_CLOEXEC);
        verify->segment = part->segment;
        if (verify->fd < 0)
            return NULL;
    }
    if (extent->stride > verify->buffer_bytes) {
        free(verify->buffer);
        verify->buffer_bytes = extent->stride;
        verify->buffer = malloc(extent->stride);
        if (verify->buffer == NULL) {
            verify->buffer_bytes = 0;
            return NULL;
        }
    }
    uint64_t offset = sc_store_part_at(part, extent->stride, layer);
    for (uint64_t got = 0; got < extent->stride;) {
        ssize_t bytes =
            pread(verify->fd, verify->buffer + got, extent->stride - got, (off_t)(offset + got));
        if (bytes < 0 && errno == EINTR)
            continue;
        if (bytes <= 0)
            return NULL;
        got += (uint64_t)bytes;
    }
    (void)posix_fadvise(verify->fd, (off_t)offset, (off_t)extent->stride, POSIX_FADV_DONTNEED);
    verify->read_bytes += extent->stride;
    return verify->buffer;
}

/* tags: the first row's, as it stands in the layer, on any address. */
static bool part_good(const struct sc_store_tag_rows *what, const uint8_t *rows,
                      const uint8_t *tags)
{
    if (what->count == 0)
        return true;
    uint64_t bytes = ((what->count - 1) * what->tag_step + 1) * 8;
    uint64_t *copy = malloc(bytes);
    if (copy == NULL)
        return false;
    memcpy(copy, tags, bytes);
    bool good = sc_store_tag_verify(what, rows, copy) == what->count;
    free(copy);
    return good;
}

/* Of the piece's rows from `skip` on; bytes: of the layer of the extent, or of its annex. */
static bool probes_good(const struct ctl_space *space, const struct ctl_extent *extent,
                        const struct ctl_piece *piece, uint32_t skip, uint32_t layer,
                        const uint8_t *bytes)
{
    uint64_t row = (uint64_t)piece->extent_row + skip;
    const struct sc_store_tag_rows what = {
        .base =
            sc_store_tag_base(space->digest, piece->hash, extent->copy, layer, SC_STORE_PART_PROBE),
        .position_first = piece->first_position + skip,
        .row_bytes = extent->probe_row_bytes,
        .count = piece->row_count - skip,
        .tag_step = 1};
    return part_good(&what, bytes + extent->probe_offset + row * extent->probe_row_bytes,
                     bytes + extent->probe_tag_offset + row * 8);
}

/* One by one, from where they stand. */
static bool ordered_good(const struct ctl_space *space, const struct ctl_extent *extent,
                         const struct ctl_piece *piece, uint32_t layer, const uint8_t *bytes)
{
    uint32_t parts = space->layout == SC_STORE_SPLIT ? 2 : 1;
    uint64_t row_bytes = ctl_row_bytes(space) / parts;
    const uint16_t *slots = sc_store_permutation_of(extent->slots, extent->row_count, layer);
    for (uint64_t i = piece->skip; i < piece->row_count; i++) { /* others are not there */
        uint64_t row = piece->extent_row + i;
        for (uint32_t p = 0; p < parts; p++) {
            const struct sc_store_tag_rows what = {
                .base = sc_store_tag_base(space->digest, piece->hash, extent->copy, layer,
                                          parts == 1 ? SC_STORE_PART_ROW : SC_STORE_PART_K + p),
                .position_first = piece->first_position + i,
                .row_bytes = row_bytes,
                .count = 1,
                .tag_step = parts};
            if (!part_good(&what,
                           bytes + extent->row_offset +
                               (p * extent->row_count + slots[row]) * row_bytes,
                           bytes + extent->tag_offset + (row * parts + p) * 8))
                return false;
        }
    }
    return true;
}

static bool piece_good(const struct ctl_space *space, const struct ctl_extent *extent,
                       const struct ctl_piece *piece, uint32_t layer, const uint8_t *bytes)
{
    uint64_t row_bytes = ctl_row_bytes(space);
    uint32_t parts = space->layout == SC_STORE_SPLIT ? 2 : 1;
    bool is_slab = space->layout == SC_STORE_SPLIT && extent->slots == NULL;
    uint32_t skip = is_slab ? 0 : piece->skip; /* of those the pages may be another's */
    uint64_t from = (uint64_t)piece->extent_row + skip;
    const uint8_t *rows = bytes + extent->row_offset + from * row_bytes;
    const uint8_t *tags = bytes + extent->tag_offset + from * (8ull * parts);
    struct sc_store_tag_rows what = {.position_first = piece->first_position + skip,
                                     .row_bytes = row_bytes / parts,
                                     .count = piece->row_count - skip,
                                     .tag_step = parts};
    if (extent->probe_row_bytes > 0 && !probes_good(space, extent, piece, skip, layer, bytes))
        return false;
    if (extent->slots != NULL)
        return ordered_good(space, extent, piece, layer, bytes);
    for (uint32_t p = 0; p < parts; p++, rows += what.count * what.row_bytes, tags += 8) {
        what.base = sc_store_tag_base(space->digest, piece->hash, extent->copy, layer,
                                      parts == 1 ? SC_STORE_PART_ROW : SC_STORE_PART_K + p);
        if (!part_good(&what, rows, tags))
            return false;
    }
    return true;
}

/* K's or V's block of a piece's codes: its checksum, and that it says what it should be. */
static bool block_good(const struct ctl_space *space, const struct ctl_piece *piece, uint64_t copy,
                       uint32_t layer, uint32_t part, const struct sc_store_codec_shape *shape,
                       const uint8_t *block, uint64_t bytes)
{
    uint64_t rows = piece->row_count - piece->skip, said, sum;
    bool is_k = part == SC_STORE_PART_K_QUANT;
    const uint8_t head[8] = {is_k ? 3 : 4,
                             (uint8_t)(is_k ? shape->bits_k : shape->bits_v),
                             (uint8_t)(is_k ? shape->form & 3u : shape->form >> 2),
                             block[3],
                             (uint8_t)rows,
                             (uint8_t)(rows >> 8),
                             0,
                             0};
    const struct sc_store_tag_rows one = {
        .base = sc_store_tag_base(space->digest, piece->hash, copy, layer, part),
        .position_first = piece->first_position + piece->skip,
        .row_bytes = bytes - 8,
        .count = 1};
    memcpy(&said, block + bytes - 8, 8);
    sc_store_tag_make(&one, block, &sum);
    return sum == said && block[3] <= 1 && memcmp(head, block, sizeof(head)) == 0;
}

/* Both blocks, by docs/reference/store-format.md. bytes: of the layer; NULL if unreadable. */
static bool codes_good(const struct ctl_space *space, const struct ctl_extent *codes,
                       const struct ctl_piece *piece, uint32_t layer, const uint8_t *bytes)
{
    const struct sc_store_codec_shape *shape = &codes->codec_shape;
    uint64_t chunk = space->chunk_tokens, rows = piece->row_count - piece->skip;
    if (bytes == NULL || chunk == 0 || piece->first_position < piece->extent_row)
        return false;
    uint64_t first = piece->first_position - piece->extent_row;
    uint64_t number = piece->first_position / chunk - first / chunk;
    uint64_t slots = (first + codes->row_count - 1) / chunk - first / chunk + 1;
    uint64_t row = (uint64_t)piece->extent_row + piece->skip;
    uint64_t fixed_k = 16 + shape->scale_bytes + sc_store_quant_table_bytes(shape, true);
    uint64_t fixed_v = 16 + shape->scale_bytes + sc_store_quant_table_bytes(shape, false);
    uint64_t k_at = number * fixed_k + row * shape->k_row_bytes;
    uint64_t v_at = slots * fixed_k + codes->row_count * shape->k_row_bytes + number * fixed_v +
                    row * shape->v_row_bytes;
    uint64_t k_bytes = fixed_k + rows * shape->k_row_bytes;
    uint64_t v_bytes = fixed_v + rows * shape->v_row_bytes;
    return number < slots && v_at + v_bytes <= codes->stride &&
           block_good(space, piece, codes->copy, layer, SC_STORE_PART_K_QUANT, shape, bytes + k_at,
                      k_bytes) &&
           block_good(space, piece, codes->copy, layer, SC_STORE_PART_V_QUANT, shape, bytes + v_at,
                      v_bytes);
}

static void note_bad(struct verify *verify, const struct ctl_space *space,
                     const struct ctl_piece *piece, uint32_t layer, const char *what)
{
    struct bad bad = {.piece = piece->id,
                      .first_position = piece->first_position,
                      .row_count = piece->row_count,
                      .layer = layer,
                      .what = what,
                      .is_ordered = verify->rank->extents[piece->extent].slots != NULL,
                      .slots_copy = verify->rank->extents[piece->extent].slots_copy};
    ctl_hex_text(space->digest, bad.digest);
    verify->bad = ctl_grow(verify->bad, verify->bad_count, &verify->bad_room, sizeof(*verify->bad));
    verify->bad[verify->bad_count++] = bad;
}

/* Pieces [first, end) are those of the extent. */
static void extent_verify(struct verify *verify, const struct ctl_extent *extent, uint64_t first,
                          uint64_t end)
{
    const struct ctl_space *space = &verify->rank->spaces[extent->space];
    for (uint32_t layer = 0; layer < space->layer_count; layer++) {
        const struct sc_store_part *last = &extent->parts[extent->part_count - 1];
        bool has = extent->fits && layer < last->layer_first + last->layer_count;
        const uint8_t *bytes = has ? layer_read(verify, extent, layer) : NULL;
        for (uint64_t i = first; i < end; i++) {
            const struct ctl_piece *piece = &verify->rank->pieces[i];
            if (piece->state != CTL_LIVE)
                continue;
            verify->rows += piece->row_count;
            if (bytes == NULL || !piece_good(space, extent, piece, layer, bytes))
                note_bad(verify, space, piece, layer, "rows");
        }
        const struct ctl_extent *derived_section = extent->derived_section;
        bytes = derived_section != NULL ? layer_read(verify, derived_section, layer) : NULL;
        for (uint64_t i = first; i < end && derived_section != NULL; i++) {
            const struct ctl_piece *piece = &verify->rank->pieces[i];
            if (piece->state == CTL_LIVE &&
                (bytes == NULL ||
                 !probes_good(space, derived_section, piece, piece->skip, layer, bytes)))
                note_bad(verify, space, piece, layer, "probe keys");
        }
        bytes = extent->codes != NULL ? layer_read(verify, extent->codes, layer) : NULL;
        for (uint64_t i = first; i < end && extent->codes != NULL; i++) {
            const struct ctl_piece *piece = &verify->rank->pieces[i];
            verify->blocks += piece->state == CTL_LIVE ? 2 : 0;
            if (piece->state == CTL_LIVE && !codes_good(space, extent->codes, piece, layer, bytes))
                note_bad(verify, space, piece, layer, "codes");
        }
        say_progress(verify);
    }
}

static void rank_verify(struct verify *verify, struct ctl_rank *rank)
{
    verify->rank = rank;
    verify->fd = -1;
    for (uint64_t first = 0, end; first < rank->piece_count; first = end) {
        uint32_t extent = rank->pieces[first].extent;
        for (end = first; end < rank->piece_count && rank->pieces[end].extent == extent;)
            end++;
        if (rank->extents[extent].live_rows > 0)
            extent_verify(verify, &rank->extents[extent], first, end);
    }
    if (verify->fd >= 0)
        close(verify->fd);
}

/* Returns true if the rows may have been freed since they were read, because a newer copy of them
 * exists. Quantised rows stay. */
static bool rows_went(const struct ctl_extent *extent, const struct bad *bad)
{
    return extent->slots != NULL && (!bad->is_ordered || bad->slots_copy != extent->slots_copy) &&
           strcmp(bad->what, "codes") != 0;
}

/* Takes out of the bad list, from `first` on, what the log has dropped since, and rows that went
 * while the piece stayed. */
static bool bad_confirm(struct verify *verify, const struct ctl_rank *old, uint64_t first)
{
    struct ctl_store again;
    if (first == verify->bad_count)
        return true;
    if (!ctl_store_open(verify->options->path, old->rank, &again))
        return false;
    uint64_t kept = first;
    bool good = true;
    for (uint64_t r = 0; r < again.rank_count && good; r++) {
        struct ctl_rank *rank = &again.ranks[r];
        if (rank->rank_count != old->rank_count)
            continue;
        good = ctl_rank_load(&again, rank);
        for (uint64_t i = first, at = 0; i < verify->bad_count && good; i++) {
            for (at = 0; at < rank->piece_count && rank->pieces[at].id != verify->bad[i].piece;)
                at++;
            if (at == rank->piece_count || rank->pieces[at].state != CTL_LIVE)
                continue;
            if (!rows_went(&rank->extents[rank->pieces[at].extent], &verify->bad[i]))
                verify->bad[kept++] = verify->bad[i];
        }
    }
    verify->bad_count = kept;
    ctl_store_close(&again);
    return good;
}

static void report(const struct verify *verify, double took_s)
{
    char bytes[32];
    if (!verify->options->json) {
        for (uint64_t i = 0; i < verify->bad_count; i++)
            printf("bad: piece %" PRIu64 ", layer %" PRIu32 ", tokens %" PRIu64 " .. %" PRIu64
                   ", namespace %.12s: %s\n",
                   verify->bad[i].piece, verify->bad[i].layer, verify->bad[i].first_position,
                   verify->bad[i].first_position + verify->bad[i].row_count, verify->bad[i].digest,
                   verify->bad[i].what);
        printf("%" PRIu64 " rows and %" PRIu64
               " blocks of codes in %s verified in %.1f s (%.2f GB/s), %" PRIu64 " slabs bad\n",
               verify->rows, verify->blocks, ctl_bytes_text(verify->read_bytes, bytes), took_s,
               took_s > 0 ? (double)verify->read_bytes / took_s / 1e9 : 0.0, verify->bad_count);
        if (verify->damaged_records > 0 || verify->lost_ranges > 0)
            printf("%" PRIu64 " damaged records of logs were restored; %" PRIu64
                   " ranges of logs are damaged, their records are lost\n",
                   verify->damaged_records, verify->lost_ranges);
        return;
    }
    struct json_object *object = json_object_new_object(), *list = json_object_new_array();
    for (uint64_t i = 0; i < verify->bad_count; i++) {
        struct json_object *bad = json_object_new_object();
        json_object_object_add(bad, "piece", json_object_new_uint64(verify->bad[i].piece));
        json_object_object_add(bad, "layer", json_object_new_uint64(verify->bad[i].layer));
        json_object_object_add(bad, "first_position",
                               json_object_new_uint64(verify->bad[i].first_position));
        json_object_object_add(bad, "tokens", json_object_new_uint64(verify->bad[i].row_count));
        json_object_object_add(bad, "what", json_object_new_string(verify->bad[i].what));
        json_object_object_add(bad, "namespace", json_object_new_string(verify->bad[i].digest));
        json_object_array_add(list, bad);
    }
    json_object_object_add(object, "rows", json_object_new_uint64(verify->rows));
    json_object_object_add(object, "blocks", json_object_new_uint64(verify->blocks));
    json_object_object_add(object, "bytes", json_object_new_uint64(verify->read_bytes));
    json_object_object_add(object, "seconds", json_object_new_double(took_s));
    json_object_object_add(object, "damaged_records",
                           json_object_new_uint64(verify->damaged_records));
    json_object_object_add(object, "lost_ranges", json_object_new_uint64(verify->lost_ranges));
    json_object_object_add(object, "bad", list);
    printf("%s\n", json_object_to_json_string_ext(object, JSON_C_TO_STRING_PRETTY));
    json_object_put(object);
}

int ctl_verify(const struct ctl_options *options)
{
    struct ctl_store store;
    struct verify verify = {.options = options};
    if (ctl_objects_refuse(options->path, "use spec-ctl objects --verify") ||
        !ctl_store_open(options->path, options->rank, &store))
        return CTL_FAILED;
    int code = CTL_OK;
    double start_s = now_s();
    for (uint64_t i = 0; i < store.rank_count && code == CTL_OK; i++)
        code = ctl_rank_load(&store, &store.ranks[i]) ? CTL_OK : CTL_FAILED;
    for (uint64_t i = 0; i < store.rank_count; i++) {
        verify.damaged_records += store.ranks[i].damaged_count;
        verify.lost_ranges += store.ranks[i].gap_count;
    }
    for (uint64_t i = 0; i < store.rank_count; i++)
        for (uint64_t j = 0; j < store.ranks[i].extent_count; j++) {
            const struct ctl_extent *extent = &store.ranks[i].extents[j];
            if (extent->live_rows > 0)
                verify.whole_bytes +=
                    (extent->stride + (extent->codes != NULL ? extent->codes->stride : 0)) *
                    store.ranks[i].spaces[extent->space].layer_count;
        }
    for (uint64_t i = 0; i < store.rank_count && code == CTL_OK; i++) {
        uint64_t first = verify.bad_count;
        rank_verify(&verify, &store.ranks[i]);
        code = bad_confirm(&verify, &store.ranks[i], first) ? CTL_OK : CTL_FAILED;
    }
    if (!options->quiet && isatty(STDERR_FILENO))
        fputs("\r\033[K", stderr);
    if (code == CTL_OK) {
        report(&verify, now_s() - start_s);
        if (verify.bad_count > 0 || verify.damaged_records > 0 || verify.lost_ranges > 0)
            code = CTL_FOUND;
    }
    free(verify.buffer);
    free(verify.bad);
    ctl_store_close(&store);
    return code;
}

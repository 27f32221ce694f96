/* ctl: shared by the commands of spec-ctl.
 *
 *   DIR -> identity -> ranks -> log (mapped, read only) -> records -> live objects
 *
 * Only erase writes to or locks a store. A log that grows or is replaced meanwhile is read as it
 * was at open. Records are checked as at open; invalid ones are counted, never followed.
 * Threads: one. Tests: tests/unit/tools/test_ctl.py */
#ifndef SC_TOOLS_CTL_CTL_H
#define SC_TOOLS_CTL_CTL_H

#include "store/log/members.h"
#include "store/log/record.h"

#include <json-c/json.h>
#include <stdbool.h>

/* Exit codes, as the usage text says. */
enum ctl_exit { CTL_OK = 0, CTL_FOUND = 1, CTL_USAGE = 2, CTL_FAILED = 3 };

struct ctl_space {
    uint64_t id, epoch;
    uint8_t digest[SC_STORE_HASH_BYTES], family[SC_STORE_HASH_BYTES];
    uint32_t layer_count, layout;
    uint64_t k_row_bytes;
    char *descriptor;
    uint64_t pieces, rows;           /* that live */
    uint64_t probe_rows;             /* of them, with probe keys */
    uint64_t derived_rows;           /* of those, in an annex */
    uint64_t probe_bytes;            /* of all layers, with their tags */
    uint64_t chunk_tokens;           /* as the descriptor says; 0: it does not */
    uint64_t code_pieces, code_rows; /* that live and have codes */
    uint64_t quantised_bytes;        /* taken by codes of extents that live, whole pages */
    uint64_t ordered_rows;           /* that live and stand in another order */
};

struct ctl_extent {
    uint64_t id, row_count, row_offset, stride;
    uint64_t probe_offset, probe_tag_offset, probe_row_bytes, tag_offset;
    uint64_t copy;
    bool fits;      /* the layer's sections are where they may be */
    uint32_t space; /* index in spaces */
    uint32_t part_count;
    struct sc_store_part *parts; /* segment: the file's number */
    uint64_t live_rows;
    struct ctl_extent
        *derived_section;     /* probe rows that lie elsewhere: its probe members, stride, parts */
    struct ctl_extent *codes; /* its codec_shape, stride, parts */
    struct sc_store_codec_shape codec_shape;
    uint16_t *slots; /* rows stand in another order, where the members above say:
                      * store/rows/row_permutation.h; NULL: as they were stored */
    uint64_t slots_copy, permuted_at_ns; /* of the copy with these slots */
};

enum ctl_piece_state { CTL_LIVE, CTL_DROPPED, CTL_VOID };

struct ctl_piece {
    uint64_t id, first_position, chunk_first, dropped_ns;
    uint32_t extent; /* index in extents */
    uint32_t extent_row, row_count, skip;
    uint8_t root[SC_STORE_SHA256_BYTES];
    uint8_t chunk_hash[SC_STORE_HASH_BYTES], hash[SC_STORE_HASH_BYTES];
    uint32_t mark_count;
    enum ctl_piece_state state;
};

struct ctl_rank {
    uint32_t rank, rank_count;
    char *path; /* of its directory */
    uint64_t log_bytes, log_bytes_believed, record_count, lie_count;
    uint64_t damaged_count;        /* records that were restored, */
    uint64_t damaged_offset;       /* the first of them */
    uint64_t gap_count, gap_bytes; /* damaged ranges whose records are lost */
    bool resets_lost;    /* before the current record, a reset may be lost: all before is void */
    uint64_t checkpoint; /* its log's number */
    uint64_t average_count;
    uint64_t segment_count, segment_bytes;
    uint64_t claimed_count; /* segments that a process may write rows into */
    bool is_followed;       /* a process has the log open to follow it */
    struct { /* of an annex that is still to come; slots NULL: of none */
        uint16_t *slots;
        uint64_t extent, copy, layer_next;
    } order;
    struct ctl_space *spaces;
    struct ctl_extent *extents;
    struct ctl_piece *pieces;
    uint64_t space_count, extent_count, piece_count;
    uint64_t space_room, extent_room, piece_room;
    char holder[256]; /* the writer's lock line; "": nobody holds it */
    char members[SC_STORE_MEMBERS_MAX][SC_IO_PLACE_BYTES]; /* lines of processes that live */
    uint32_t member_count;
};

struct ctl_store {
    const char *path;
    struct sc_store_identity identity;
    struct ctl_rank *ranks;
    uint64_t rank_count;
};

/* What the namespaces and pieces of a rank hold, added up. */
struct ctl_sum {
    uint64_t code_pieces, code_rows, quantised_bytes, ordered_rows, probe_rows, derived_rows,
        probe_bytes, live_pieces, live_rows, live_bytes, live_extents, dropped_pieces, void_pieces;
};

struct ctl_options {
    const char *path;
    bool json, prometheus, tokens, quiet;
    int64_t rank;       /* -1: all */
    const char *output; /* stat: a file; NULL: standard output */
    const char *token_file, *space;
    uint64_t bytes;
    const char *only;
    bool lists, verifies; /* objects: each of them; and its bytes */
    bool all;             /* erase: everything; */
    const char *salt;     /* or what lies under it */
    uint64_t timeout_s;
};

/* Reads the store's identity and finds its ranks; their logs are not read. False: said on stderr.
 */
bool ctl_store_open(const char *path, int64_t rank, struct ctl_store *ret_store);
/* The same for ranks that hold objects by key. */
bool ctl_objects_open(const char *path, int64_t rank, struct ctl_store *ret_store);
void ctl_store_close(struct ctl_store *store);

/* The rank's piece with this id, loaded; NULL: there is none. */
struct ctl_piece *ctl_piece_find(const struct ctl_rank *rank, uint64_t id);
/* Calls on_record for every believed record of the rank's log; a record that says what cannot be
 * is skipped and counted. The record and its arrays are valid during the call. False: no such log,
 * or one of another version; said on stderr. */
typedef void ctl_on_record(const struct sc_store_record *record, void *user);
/* Of every believed frame; false ends the walk. */
typedef bool ctl_on_payload(struct ctl_rank *rank, const uint8_t *payload, uint64_t bytes,
                            void *user);
bool ctl_payloads_walk(const struct ctl_store *store, struct ctl_rank *rank,
                       ctl_on_payload *on_payload, void *user);
bool ctl_log_walk(const struct ctl_store *store, struct ctl_rank *rank, ctl_on_record *on_record,
                  void *user);
/* Walks it and fills in what the rank holds. */
bool ctl_rank_load(const struct ctl_store *store, struct ctl_rank *rank);

struct ctl_sum ctl_sum_of(const struct ctl_rank *rank);
/* prometheus.c: loads every rank and prints its metrics. Returns an exit code. */
int ctl_prometheus(struct ctl_store *store);

/* Helpers. */
struct json_object *ctl_hex(const uint8_t bytes[SC_STORE_HASH_BYTES]);
struct json_object *ctl_hex_root(const uint8_t bytes[SC_STORE_SHA256_BYTES]);
void ctl_hex_text(const uint8_t bytes[SC_STORE_HASH_BYTES], char text[33]);
void *ctl_grow(void *array, uint64_t count, uint64_t *room, uint64_t size); /* ends the program
                                                                             * without memory */
void *ctl_alloc(uint64_t bytes);                                            /* zeroed; likewise */
/* "1.2 GiB" */
const char *ctl_bytes_text(uint64_t bytes, char text[32]);
uint64_t ctl_row_bytes(const struct ctl_space *space);

/* objects.c: what the rank's objects are, in all. False: said on stderr. */
struct ctl_object_sum {
    uint64_t domains, objects, bytes, page_bytes;
};
bool ctl_objects_sum(const struct ctl_store *store, struct ctl_rank *rank,
                     struct ctl_object_sum *ret_sum);
/* Whether a command for rows cannot be meant: the store holds objects, or is none; said on stderr,
 * with what is done instead. */
bool ctl_objects_refuse(const char *path, const char *instead);
int ctl_objects(const struct ctl_options *options);

int ctl_ls(const struct ctl_options *options);
int ctl_stat(const struct ctl_options *options);
int ctl_verify(const struct ctl_options *options);
int ctl_dump(const struct ctl_options *options);
int ctl_why(const struct ctl_options *options);
int ctl_erase(const struct ctl_options *options);
int ctl_bench_device(const struct ctl_options *options);

#endif

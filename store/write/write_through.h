/* What a pass writes, in host memory for the load that comes next: the next turn of a conversation
 * loads what the last one stored.
 *
 *   layer packed    a slab is begun for each piece, where there is room for what nobody asked for
 * yet window written  its bytes of tags and rows are copied to their slabs, by who completes the
 * write committed       published, but what skips rows: its slab has them; else all are abandoned
 *
 * Holds: a slab is found when its piece is, and has all its bytes: a commit comes after all writes.
 * Does not: hold up the caller of a store, who only begins slabs; verify (tags do, when it is
 * used). Threads: begin, of a layer: the extent's producer; copies: any, of other bytes; end: its
 * committer. Tests: tests/unit/store/test_write_through.c */
#ifndef SC_STORE_WRITE_WRITE_THROUGH_H
#define SC_STORE_WRITE_WRITE_THROUGH_H

#include "store/write/extent.h"

struct sc_host_tier_memory_slab;

/* Pointers of all extents' slabs; without a host tier, or where it keeps nothing that is written,
 * there are none. false: no memory; close frees what there is. */
bool sc_store_write_through_open(struct sc_store *store);
void sc_store_write_through_close(struct sc_store *store);

/* An extent of rows begins. */
void sc_store_write_through_layer_begin(struct sc_store_extent *extent);
/* An extent of one piece that takes the place of others: where it does not keep all that is written
 * anyway, it keeps layers of which `inherits` says, before they are packed, that host memory has
 * those. slabs: [layer_count], the caller's until it is committed or discarded; NULL: none. */
void sc_store_write_through_layer_inherit(struct sc_store_extent *extent,
                                          struct sc_host_tier_memory_slab **slabs);
/* Before a layer is packed. */
void sc_store_write_through_layer_layer(struct sc_store_extent *extent, uint32_t layer);
/* The window was written; its bytes are still there. */
void sc_store_write_through_layer_window(struct sc_store_extent *extent,
                                         const struct sc_store_write *write);
/* Its pieces from piece_first on are first_id and on, the first of them without `skip` rows; 0:
 * none is. */
void sc_store_write_through_layer_end(struct sc_store_extent *extent, uint32_t piece_first,
                                      uint32_t skip, uint64_t first_id);

#endif

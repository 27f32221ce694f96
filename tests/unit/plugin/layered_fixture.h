/* What tests of layered delivery share: an item as a host makes it, and what it has to deliver, row
 * by row and as a set, from ref/ and a float64 reference over decoded keys. */
#ifndef SC_TESTS_UNIT_PLUGIN_LAYERED_FIXTURE_H
#define SC_TESTS_UNIT_PLUGIN_LAYERED_FIXTURE_H

#include "kernels/codec.h"
#include "tests/unit/plugin/select_fixture.h"

#define ROWS_MAX 400u

struct shot {
    struct spec_important item;
    struct spec_select select;
    struct area area;
    struct pass pass;
    uint32_t positions[ROWS_MAX];
    uint64_t exact[(ROWS_MAX + 63) / 64];
};

void shot_make(struct shot *shot, const struct world *world, spec_request request, uint32_t layer,
               uint64_t from, uint32_t exact_ppm);
void shot_free(struct shot *shot);

/* shot_free, and the request is released; and the world is done. */
void shot_release(struct shot *shot, struct world *world, spec_request request);
void shot_end(struct shot *shot, struct world *world, spec_request request);
spec_status fire(struct world *world, struct shot *shot);

/* Until what was stored has its codes. */
void wait_for_quant(struct world *world);

/* world_open and wait_for_quant. */
void world_open_quantised(struct world *world, const char *extra, uint32_t heads, uint32_t group,
                          uint32_t head_size, uint32_t dtype, uint64_t matched, int64_t agree);

/* Submits the layer ahead of its queries, and waits for it; its ticket. */
spec_ticket fire_ahead(struct world *world, struct shot *shot, spec_request request, uint32_t layer,
                       uint32_t exact_ppm);

/* A task of the loop that resets everything. */
struct resetter {
    struct sc_task task;
    struct rig *rig;
};
void reset_step(struct sc_task *task);

bool is_exact(const struct shot *shot, uint64_t row);
uint64_t exact_count(const struct shot *shot);

/* A row as the host stored it. */
void stored_row(const struct world *world, uint64_t position, uint32_t layer, uint32_t part,
                uint8_t *ret_row);

/* The codes of a chunk's rows, made by ref/; row_count 0: none yet. */
struct slab {
    struct sc_kernels_codec code;
    uint64_t first, row_count;
    uint8_t scales[64 * 4], codes[64 * 64];
};

void slab_make(const struct world *world, uint64_t first, uint32_t layer, uint32_t part,
               uint32_t bits, struct slab *ret_slab);

/* What the codes of a position stand for. The slab, of this layer, part and bits, is made again
 * where the position is in another chunk. */
void decoded(const struct world *world, uint64_t position, uint32_t layer, uint32_t part,
             uint32_t bits, struct slab *slab, uint32_t dst_dtype, void *ret_row);

/* All rows are there, each as its bit says. */
void assert_rows(const struct world *world, const struct shot *shot, uint64_t from, uint32_t bits_k,
                 uint32_t bits_v);

/* The same of codes of free widths that are not turned, of float16 and chunks of 64, whatever the
 * tables: what is not exact is within its chunk's span. */
void assert_rows_near(const struct world *world, const struct shot *shot, uint64_t from);

/* The set by the definition, in float64 over prefix keys: row j's at keys + j *
 * stride, [heads * head_size]. false: too close to tell. */
bool set_is_the_best_of(const struct world *world, const struct shot *shot, uint64_t from,
                        const float *keys, uint64_t stride);
/* The same over keys that were decoded from even codes. */
bool set_is_the_best(const struct world *world, const struct shot *shot, uint64_t from,
                     uint32_t bits);

/* One layer, submitted and waited for; its ticket. */
spec_ticket fire_first(struct world *world, struct shot *shot, spec_request request, uint32_t layer,
                       uint32_t exact_ppm, uint64_t deadline_ns);

void aim(struct shot *shot, spec_ticket ticket, uint32_t exact_ppm);
spec_status refine(struct world *world, struct shot *shot, spec_ticket ticket, uint32_t exact_ppm);

/* The queries of the layer the other way round. */
void negate(struct shot *shot);

/* The layer's new rows, behind the match; the last layer's ticket is done when all are visible. */
spec_ticket store_fresh(const struct world *world, spec_request request, uint32_t layer);

/* Lookups say what the rows that were stored behind the match were computed on. */
void expect_lossy(struct world *world, uint32_t exact_ppm);

#endif /* SC_TESTS_UNIT_PLUGIN_LAYERED_FIXTURE_H */

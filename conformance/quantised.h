/* quantised: computes what an item with exact_ppm shall deliver, from the truth of the rows.
 *
 *   rows of a slab, of one pass  ->  min, step, code, value, by docs/reference/store-format.md
 *   shot    one item: the request, what the connector delivered, the bits of its exact rows
 *   importance over those values, in float64  ->  the set  ->  every byte of an area
 *
 * A set is compared if its last row differs by more than 1e-5 of a score from the next one. Rows,
 * bits and the memory around them always are. Connectors without quantised rows pass if they
 * deliver every row exactly, unless hits are required.
 * Threads: one. Tests: see fixture.h. */
#ifndef CONFORMANCE_QUANTISED_H
#define CONFORMANCE_QUANTISED_H

#include "conformance/choice.h"

#define ROWS_MAX 512u
#define CHANNELS 128u
#define PPM      1000000u
#define STORED   170u
#define NOWHERE  UINT64_MAX

struct scale {
    double min, step;
    bool is_known;
};

struct quantised {
    struct scene scene;
    uint64_t stored, cut; /* tokens; those from cut on by a pass of their own */
    uint32_t bits[2];     /* of K, of V */
    struct scale *scales; /* [layer][K, V][slab][CHANNELS], made when they are asked for */

    /* The slab of this position has no codes at this layer; with is_nan because of its number 0. */
    uint32_t lost_layer;
    uint64_t lost;
    bool is_nan;
    int nan_value;

    bool is_taught;        /* averages are of the queries that an item without any would have */
    struct bit_counts *bit_counts; /* of codes of free widths (bit_tables.h); NULL: they are even */
};

struct shot {
    struct ask ask;
    enum layout layout;
    uint32_t dtype; /* of the destination; 0: the rows' */
    uint64_t deadline_ns, budget_bytes;
    bool has_slot_less; /* a token without a place */
    bool may_be_late, is_hinted;

    uint64_t bits[ROWS_MAX / 64];
    struct answer answer;
    bool missed;
};

extern const struct shape WIDE;

/* ---- Numbers ---- */

/* To the nearest that f16 has, ties to even. */
double quantised_f16(double x);
/* A number that the dtype has. */
void put_number(double x, uint32_t dtype, uint8_t *dst);
/* The rows that are coded together: of the position's chunk, stored by its pass. */
void quantised_slab(const struct quantised *quantised, uint64_t position, uint64_t *first,
                    uint64_t *end);
struct scale quantised_scale(const struct quantised *quantised, uint64_t position, uint32_t layer,
                             int value, uint32_t channel);
uint32_t scale_code(double x, struct scale scale, uint32_t bits);

/* ---- A scene with codes ---- */

/* Closes, opens with a configuration that makes codes; skips where the command line's says what is
 * chosen. members: more of the configuration, or "". */
void quantised_configure(struct fixture *fx, uint32_t bits_k, uint32_t bits_v, const char *members);
/* The same; layered: members of "layered". */
void quantised_configure_layered(struct fixture *fx, const char *layered, const char *members);
/* Until what was stored has its codes: they are made in the background. */
void quantised_settle(struct fixture *fx);
/* A bit of V of a stored row turns over while the store is closed; how many copies of the row were
 * found (hits required: one at least). Codes are settled again. */
uint64_t quantised_damage(const struct quantised *quantised, uint64_t position, uint32_t layer);
/* Describes, and stores nothing yet. */
struct quantised quantised_make(struct fixture *fx, uint64_t seed, uint32_t bits_k, uint32_t bits_v,
                                uint64_t stored);
/* Stores what is not matched of [0, end); the coded's NaN goes with it. Returns where it began. */
uint64_t quantised_store_part(struct quantised *quantised, uint64_t end);
/* Stores what is described, in two passes where it is cut, and waits for its codes. */
void quantised_store(struct quantised *quantised);
/* Stores a layer of what follows the match that was found; what its ticket says. */
spec_status quantised_put(struct quantised *quantised, const struct spec_lookup_result *found,
                          uint32_t layer);
/* Configures, makes and stores STORED tokens. */
struct quantised quantised_open(struct fixture *fx, struct shape shape, uint64_t seed,
                                uint32_t bits_k, uint32_t bits_v);
void quantised_close(struct quantised *quantised);
/* Hits required: nearly all sets were sure enough to be compared. */
void quantised_expect_sure(const struct quantised *quantised);

/* ---- A shot ---- */

struct shot shot_of(uint32_t layer, uint32_t exact_ppm);
/* What the item needs; the call is the caller's. */
void shot_make(struct quantised *quantised, struct shot *shot,
               const struct spec_lookup_result *found);
void shot_free(struct shot *shot);
/* The smaller of `exact_ppm` and the item's, where that is LOSSY. */
uint32_t shot_worse(const struct shot *shot, uint32_t exact_ppm);

/* One item of a request; the hint may be of any use or none. False: it was late. */
bool fire_in(struct quantised *quantised, struct shot *shot,
             const struct spec_lookup_result *found);
/* lookup, the one item, compared, release. */
bool fire(struct quantised *quantised, struct shot shot);
/* The shot by submit and wait; false: it was late. Its item can be refined then. */
bool fire_first(struct quantised *quantised, struct shot *shot,
                const struct spec_lookup_result *found, spec_ticket *ret_ticket);
/* The same destination shall have this share of exact rows; nothing is given to choose by. */
void aim(struct shot *shot, spec_ticket ticket, uint32_t exact_ppm, uint64_t budget_bytes);
/* By either call. The verdict is by the queries of the first. */
spec_status refine(struct quantised *quantised, struct shot *shot, bool submits);

/* ---- What it gave ---- */

bool shot_bit(const struct shot *shot, uint64_t row); /* it came exactly */
uint64_t shot_count_bits(const struct shot *shot);
/* The whole answer: its numbers, its set, and what the next two compare. */
void shot_expect(struct quantised *quantised, const struct shot *shot);
/* Every byte of the area: rows as their bits say, poison around them. */
void shot_expect_area(const struct quantised *quantised, const struct shot *shot);
/* Whatever came: bits, count and rows agree, and so does the provenance. */
void shot_expect_told(const struct quantised *quantised, const struct shot *shot);
/* The provenance. */
void shot_expect_worth(const struct quantised *quantised, const struct shot *shot);
/* What is exact are the best rows, so many as there are. */
void shot_expect_best(struct quantised *quantised, const struct shot *shot);

#endif

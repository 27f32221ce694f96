/* calibrate.h: makes tables from observed rows and queries. */
#include "plugin/quant/calibrate.h"

#include "base/status.h"
#include "kernels/allot.h"

#include <float.h>
#include <string.h>

#define ROWS_A_CALL 16u    /* query rows sampled per call */
#define ROWS_MOST   4096u  /* query rows that suffice */
#define ROWS_FIRST  16u    /* fewer query rows are ignored */
#define SHRINK      0.002f /* share of the mean square added, for values not yet seen */
#define BETTER      0.9    /* error ratio that a new table must reach */

static uint64_t channels_of(const struct sc_plugin_learning *learning)
{
    return learning->head_count * learning->head_size;
}

static struct sc_plugin_learnt *learnt_of(const struct sc_plugin_learning *learning, uint32_t layer,
                                          uint32_t part)
{
    return &learning->learnt[2 * layer + part];
}

spec_status sc_plugin_learning_open(struct sc_plugin_learning *learning, struct sc_alloc *alloc,
                                    struct spec_error *reterr)
{
    uint64_t channels = channels_of(learning), count = 2 * learning->layer_count;
    pthread_mutex_init(&learning->lock, NULL);
    if (learning->row_bytes[0] == 0 && learning->row_bytes[1] == 0)
        return SPEC_OK;
    learning->learnt = sc_alloc_array(alloc, count, sizeof(*learning->learnt));
    learning->sums = sc_alloc_array(alloc, count * 2 * channels, sizeof(float));
    learning->weights = sc_alloc_array(alloc, channels, sizeof(float));
    learning->scratch = sc_alloc(alloc, sc_kernels_allot_scratch_bytes(channels));
    learning->to = sc_alloc(alloc, channels);
    learning->packed = sc_alloc(alloc, channels / 2);
    if (learning->learnt == NULL || learning->sums == NULL || learning->weights == NULL ||
        learning->scratch == NULL || learning->to == NULL || learning->packed == NULL)
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "widths of %" PRIu64 " layers",
                       learning->layer_count);
    memset(learning->sums, 0, count * 2 * channels * sizeof(float));
    for (uint64_t i = 0; i < count; i++)
        learning->learnt[i] =
            (struct sc_plugin_learnt){.spans = learning->sums + 2 * i * channels,
                                      .queries = learning->sums + (2 * i + 1) * channels};
    return SPEC_OK;
}

void sc_plugin_learning_close(struct sc_plugin_learning *learning, struct sc_alloc *alloc)
{
    sc_alloc_free(alloc, learning->learnt);
    sc_alloc_free(alloc, learning->sums);
    sc_alloc_free(alloc, learning->weights);
    sc_alloc_free(alloc, learning->scratch);
    sc_alloc_free(alloc, learning->to);
    sc_alloc_free(alloc, learning->packed);
    pthread_mutex_destroy(&learning->lock);
}

const struct sc_plugin_table *sc_plugin_learnt_table(const struct sc_plugin_learning *learning,
                                                     uint32_t layer, uint32_t part)
{
    return atomic_load_explicit(&learnt_of(learning, layer, part)->table, memory_order_acquire);
}

/* Lock held. Averages the channels of a rotary pair, which queries do not distinguish. */
static void pairs_even(const struct sc_plugin_learning *learning, float *squares)
{
    for (uint64_t head = 0; head < learning->head_count; head++)
        for (uint64_t c = 0; c < learning->rotary.turned; c++) {
            float sign, *own = squares + head * learning->head_size;
            uint64_t pair, other = sc_kernels_rotary_partner(&learning->rotary, c, &pair, &sign);
            if (other > c)
                own[c] = own[other] = (own[c] + own[other]) / 2;
        }
}

/* Lock held. Scales to mean 1, then adds SHRINK. */
static void squares_level(float *squares, uint64_t count)
{
    float sum = 0;
    for (uint64_t c = 0; c < count; c++)
        sum += squares[c];
    float mean = sum / (float)count, scale = mean > FLT_MIN ? 1 / mean : 0; /* finite */
    for (uint64_t c = 0; c < count; c++)
        squares[c] = squares[c] * scale + SHRINK;
}

static void weights_make(const struct sc_plugin_learning *learning,
                         const struct sc_plugin_learnt *learnt, bool is_k)
{
    uint64_t channels = channels_of(learning);
    float *weights = learning->weights;
    bool has_queries = learnt->rows >= ROWS_FIRST;
    for (uint64_t c = 0; c < channels; c++)
        weights[c] = has_queries ? learnt->queries[c] : 1;
    squares_level(weights, channels);
    if (is_k && has_queries)
        pairs_even(learning, weights);
    for (uint64_t c = 0; c < channels; c++)
        weights[c] *= learnt->spans[c] / (float)learnt->slabs;
    squares_level(weights, channels);
}

/* Lock held. Makes a table from learning->weights; NULL: no room. */
static const struct sc_plugin_table *table_make(const struct sc_plugin_learning *learning,
                                                struct sc_plugin_learnt *learnt, uint32_t part)
{
    const struct sc_plugin_table *table = atomic_load(&learnt->table);
    uint64_t channels = channels_of(learning);
    if (learnt->tables == SC_PLUGIN_TABLES_A_LAYER)
        return table;
    sc_kernels_allot(learning->weights, learning->head_count, learning->head_size,
                     learning->row_bytes[part], learning->scratch, learning->to);
    if (table != NULL &&
        sc_kernels_allot_error(learning->weights, channels, learning->to) >
            BETTER * sc_kernels_allot_error(learning->weights, channels, table->planes.to))
        return table;
    sc_plugin_table_pack(learning->to, channels, learning->packed);
    const struct sc_plugin_table *next =
        sc_plugin_tables_add(learning->tables, learning->packed, learning->row_bytes[part]);
    if (next == NULL)
        return table;
    learnt->tables++;
    atomic_store_explicit(&learnt->table, next, memory_order_release);
    return next;
}


/* Lock held. */
static void spans_add(const struct sc_plugin_learning *learning, struct sc_plugin_learnt *learnt,
                      const uint8_t *spans)
{
    uint64_t channels = channels_of(learning);
    float values[64];
    for (uint64_t c = 0; c < channels; c += 64) {
        uint64_t count = channels - c < 64 ? channels - c : 64;
        learning->kernels->widen(values, spans + c * 2, count, SC_KERNELS_F16);
        for (uint64_t i = 0; i < count; i++)
            learnt->spans[c + i] += values[i] * values[i];
    }
    learnt->slabs++;
}

const struct sc_plugin_table *sc_plugin_calibrate_first(struct sc_plugin_learning *learning,
                                                        uint32_t layer, uint32_t part,
                                                        const uint8_t *spans)
{
    struct sc_plugin_learnt *learnt = learnt_of(learning, layer, part);
    pthread_mutex_lock(&learning->lock);
    const struct sc_plugin_table *table = atomic_load(&learnt->table);
    if (table == NULL) {
        spans_add(learning, learnt, spans);
        weights_make(learning, learnt, part == 0);
        table = table_make(learning, learnt, part);
        learnt->slabs_next = SC_PLUGIN_SLABS_NEXT;
    }
    pthread_mutex_unlock(&learning->lock);
    return table;
}

void sc_plugin_calibrate_due(struct sc_plugin_learning *learning, uint32_t layer, uint32_t part)
{
    struct sc_plugin_learnt *learnt = learnt_of(learning, layer, part);
    if (!atomic_load_explicit(&learnt->is_due, memory_order_relaxed))
        return;
    pthread_mutex_lock(&learning->lock);
    if (learnt->slabs > 0) {
        atomic_store_explicit(&learnt->is_due, false, memory_order_relaxed);
        weights_make(learning, learnt, part == 0);
        (void)table_make(learning, learnt, part);
    }
    pthread_mutex_unlock(&learning->lock);
}

void sc_plugin_calibrate_slab(struct sc_plugin_learning *learning, uint32_t layer, uint32_t part,
                              const uint8_t *spans)
{
    struct sc_plugin_learnt *learnt = learnt_of(learning, layer, part);
    if (pthread_mutex_trylock(&learning->lock) != 0)
        return;
    spans_add(learning, learnt, spans);
    if (learnt->slabs >= learnt->slabs_next) {
        weights_make(learning, learnt, part == 0);
        (void)table_make(learning, learnt, part);
        learnt->slabs_next = 2 * learnt->slabs;
    }
    pthread_mutex_unlock(&learning->lock);
}

/* Lock held. */
static void row_add(const struct sc_plugin_learning *learning, struct sc_plugin_learnt *learnt,
                    const struct sc_kernels_queries *queries, uint64_t row)
{
    uint64_t size = learning->head_size;
    float values[SC_KERNELS_BITPLANES_HEAD];
    bool says = false;
    for (uint64_t head = 0; head < learning->head_count * learning->query_group; head++) {
        float *sums = learnt->queries + head / learning->query_group * size;
        learning->kernels->widen(values,
                                 queries->data + row * queries->row_stride_bytes +
                                     head * queries->head_stride_bytes,
                                 size, queries->dtype);
        for (uint64_t c = 0; c < size; c++)
            if (values[c] * values[c] < 1e12f) { /* finite, and small enough to sum */
                sums[c] += values[c] * values[c];
                says = true;
            }
    }
    learnt->rows += says ? 1 : 0;
}

uint64_t sc_plugin_calibrate_step(struct sc_plugin_learning *learning, uint32_t layer,
                                  uint64_t count)
{
    if (learning->learnt == NULL || learning->row_bytes[0] == 0 ||
        pthread_mutex_trylock(&learning->lock) != 0)
        return 0;
    bool is_enough = learnt_of(learning, layer, 0)->rows >= ROWS_MOST;
    pthread_mutex_unlock(&learning->lock);
    uint64_t step = count > ROWS_A_CALL ? count / ROWS_A_CALL : 1;
    return is_enough ? 0 : step;
}

void sc_plugin_calibrate_queries(struct sc_plugin_learning *learning, uint32_t layer,
                                 const struct sc_kernels_queries *queries)
{
    if (learning->learnt == NULL || learning->row_bytes[0] == 0 ||
        pthread_mutex_trylock(&learning->lock) != 0)
        return;
    struct sc_plugin_learnt *learnt = learnt_of(learning, layer, 0);
    uint64_t before = learnt->rows;
    for (uint64_t row = 0; row < queries->row_count && learnt->rows < ROWS_MOST; row++)
        row_add(learning, learnt, queries, row);
    if (before < ROWS_FIRST && learnt->rows >= ROWS_FIRST) { /* the table ignored queries */
        learnt->slabs_next = learnt->slabs + 1;
        atomic_store_explicit(&learnt->is_due, true, memory_order_relaxed);
    }
    pthread_mutex_unlock(&learning->lock);
}

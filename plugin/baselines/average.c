/* average: average importance in memory, in slots found by a hash of the piece. Contract:
 * average.h.
 *
 *   heads [2^n] -> slot -> slot (same hash) ...      a clock hand finds the slot to reuse, one not
 *                                                    used since the hand last passed it
 *
 * Threads: any; one lock for the slots, which no lookup waits for, and one for flushes. */
#include "plugin/baselines/average.h"
#include "kernels/exp2.h"

#include <float.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#define CODE_MAX       65535
#define CODE_STEP      2047.96875f /* codes per octave */
#define SHARE_MIN_BITS 0x2f800000  /* 2^-32, as float32 */
#define ONE_BITS       0x3f800000
#define TOGETHER       16u /* codes per loop of constant length */
#define MEMORY         8u  /* requests in an average, about */
#define NONE           UINT32_MAX
#define LOOKS_MAX      1024u /* slots of a flush under the lock */

struct slot {
    uint64_t piece; /* 0: free */
    uint32_t next;  /* of the same hash, or NONE */
    uint32_t rows;
    uint32_t requests, unsaved; /* in total; since it was written */
    _Atomic bool was_used;      /* since the hand passed; readers set it too */
};

struct sc_baseline_averages {
    /* Set by open, constant after. */
    struct sc_baseline_averages_params params;
    uint32_t slot_count, head_mask;
    uint64_t quant_each; /* layer_count * rows_max */

    pthread_rwlock_t lock; /* rank 30: short, the innermost */
    struct slot *slots;    /* [slot_count] */
    uint16_t *counts;      /* [slot_count][layer_count] requests in a layer's codes */
    uint16_t *codes;       /* [slot_count][layer_count][rows_max] */
    uint32_t *heads;       /* [head_mask + 1] */
    uint32_t hand;

    uint32_t cursor;   /* next slot of flush */
    bool was_refused;  /* put refused the last batch */
    uint16_t *staging; /* guarded by flush_lock: [SC_BASELINE_AVERAGES_BATCH][quant_each] */

    pthread_mutex_t flush_lock; /* rank 29: held while put writes; background and close */
};

/* ---- Codes ---------------------------------------------------------------------------------- */

/* Returns log2(x) within 1e-5; x > 0 and normal. */
static inline float log2_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof(bits));
    int32_t exponent = (int32_t)(bits >> 23) - 127;
    bits = (bits & 0x7fffffu) | 0x3f800000u;
    float m, sum = -0.033822046f;
    memcpy(&m, &bits, sizeof(m));
    m -= 1;
    sum = sum * m + 0.1444711f;
    sum = sum * m - 0.30163801f;
    sum = sum * m + 0.46865888f;
    sum = sum * m - 0.72035877f;
    sum = sum * m + 1.4426815f;
    return (float)exponent + sum * m;
}

/* No branch and no trap in the next two, so that compilers vectorise them. share: a number;
 * positive floats are ordered as their bits. */
static inline int32_t code_of(float share)
{
    int32_t bits, clamped;
    memcpy(&bits, &share, sizeof(bits));
    clamped = bits > SHARE_MIN_BITS ? bits : SHARE_MIN_BITS;
    clamped = clamped < ONE_BITS ? clamped : ONE_BITS;
    float between;
    memcpy(&between, &clamped, sizeof(between));
    int32_t code = (int32_t)(CODE_MAX + CODE_STEP * log2_of(between) + 0.5f);
    code = code > 1 ? code : 1;
    return code & -(int32_t)(bits >= SHARE_MIN_BITS);
}

static inline float share_of(int32_t code)
{
    float share = sc_kernels_exp2_normal(((float)code - CODE_MAX) * (1 / CODE_STEP));
    int32_t bits;
    memcpy(&bits, &share, sizeof(bits));
    bits &= -(int32_t)(code > 0);
    memcpy(&share, &bits, sizeof(share));
    return share;
}

/* Moves shares by `weight` of their difference to sums * by. */
static void block_move(uint16_t codes[TOGETHER], const float sums[TOGETHER], float by, float weight)
{
    uint16_t moved[TOGETHER]; /* separate, so that compilers see no aliasing */
    for (uint32_t i = 0; i < TOGETHER; i++) {
        float old = share_of(codes[i]);
        moved[i] = (uint16_t)code_of(old + (sums[i] * by - old) * weight);
    }
    memcpy(codes, moved, sizeof(moved));
}

static void quant_move(uint16_t *codes, const float *sums, uint64_t count, float by, float weight)
{
    uint64_t whole = count / TOGETHER * TOGETHER;
    uint16_t last_quant[TOGETHER] = {0};
    float last_sums[TOGETHER] = {0};
    for (uint64_t i = 0; i < whole; i += TOGETHER)
        block_move(codes + i, sums + i, by, weight);
    if (whole == count)
        return;
    memcpy(last_quant, codes + whole, (count - whole) * sizeof(*codes));
    memcpy(last_sums, sums + whole, (count - whole) * sizeof(*sums));
    block_move(last_quant, last_sums, by, weight);
    memcpy(codes + whole, last_quant, (count - whole) * sizeof(*codes));
}

/* ---- Slots ---------------------------------------------------------------------------------- */

static uint32_t *head_of(const struct sc_baseline_averages *averages, uint64_t piece)
{
    return &averages->heads[(piece * UINT64_C(0x9e3779b97f4a7c15) >> 32) & averages->head_mask];
}

static struct slot *slot_find(const struct sc_baseline_averages *averages, uint64_t piece)
{
    uint32_t i = *head_of(averages, piece);
    while (i != NONE && averages->slots[i].piece != piece)
        i = averages->slots[i].next;
    return i != NONE ? &averages->slots[i] : NULL;
}

static void slot_free(struct sc_baseline_averages *averages, struct slot *slot)
{
    uint32_t *link = head_of(averages, slot->piece);
    while (&averages->slots[*link] != slot)
        link = &averages->slots[*link].next;
    *link = slot->next;
    slot->piece = 0;
}

/* Makes a slot for a piece without one: the first not used since the hand passed. */
static struct slot *slot_make(struct sc_baseline_averages *averages, uint64_t piece, uint32_t rows)
{
    struct slot *slot;
    for (;; slot->was_used = false) {
        slot = &averages->slots[averages->hand];
        averages->hand = averages->hand + 1 < averages->slot_count ? averages->hand + 1 : 0;
        if (slot->piece == 0 || !slot->was_used)
            break;
    }
    if (slot->piece != 0)
        slot_free(averages, slot);
    uint64_t at = (uint64_t)(slot - averages->slots), layers = averages->params.layer_count;
    uint32_t *head = head_of(averages, piece);
    *slot = (struct slot){.piece = piece, .next = *head, .rows = rows};
    *head = (uint32_t)at;
    memset(averages->counts + at * layers, 0, layers * sizeof(*averages->counts));
    memset(averages->codes + at * averages->quant_each, 0,
           averages->quant_each * sizeof(*averages->codes));
    return slot;
}

static uint16_t *quant_of(const struct sc_baseline_averages *averages, const struct slot *slot,
                          uint32_t layer)
{
    return averages->codes + (uint64_t)(slot - averages->slots) * averages->quant_each +
           (uint64_t)layer * averages->params.rows_max;
}

spec_status sc_baseline_averages_open(const struct sc_baseline_averages_params *params,
                                      struct sc_baseline_averages **ret_averages,
                                      struct spec_error *reterr)
{
    uint64_t layers = params->layer_count, each = layers * params->rows_max;
    uint64_t slot_bytes =
        sizeof(struct slot) + 2 * (layers + each) + 2 * 2 * sizeof(uint32_t); /* heads: <= 4 */
    uint64_t staging_bytes = SC_BASELINE_AVERAGES_BATCH * each * 2;
    *ret_averages = NULL;
    if (params->bytes_max < staging_bytes + slot_bytes)
        return SPEC_OK;
    uint64_t count = (params->bytes_max - staging_bytes) / slot_bytes, heads = 1;
    count = count < NONE / 4 ? count : NONE / 4;
    while (heads < count)
        heads *= 2;
    struct sc_alloc *alloc = params->alloc;
    struct sc_baseline_averages *averages = sc_alloc_zero(alloc, sizeof(*averages));
    if (averages == NULL)
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "averages");
    averages->params = *params;
    averages->slot_count = (uint32_t)count;
    averages->head_mask = (uint32_t)heads - 1;
    averages->quant_each = each;
    (void)pthread_rwlock_init(&averages->lock, NULL);
    (void)pthread_mutex_init(&averages->flush_lock, NULL);
    averages->slots = sc_alloc_zero(alloc, count * sizeof(*averages->slots));
    averages->counts = sc_alloc(alloc, count * layers * sizeof(*averages->counts));
    averages->codes = sc_alloc(alloc, count * each * sizeof(*averages->codes));
    averages->heads = sc_alloc(alloc, heads * sizeof(*averages->heads));
    averages->staging = sc_alloc(alloc, staging_bytes);
    if (averages->slots == NULL || averages->counts == NULL || averages->codes == NULL ||
        averages->heads == NULL || averages->staging == NULL) {
        sc_baseline_averages_close(averages);
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "averages of %" PRIu64 " pieces", count);
    }
    memset(averages->heads, 0xff, heads * sizeof(*averages->heads));
    *ret_averages = averages;
    return SPEC_OK;
}

void sc_baseline_averages_close(struct sc_baseline_averages *averages)
{
    if (averages == NULL)
        return;
    struct sc_alloc *alloc = averages->params.alloc;
    (void)pthread_rwlock_destroy(&averages->lock);
    (void)pthread_mutex_destroy(&averages->flush_lock);
    sc_alloc_free(alloc, averages->slots);
    sc_alloc_free(alloc, averages->counts);
    sc_alloc_free(alloc, averages->codes);
    sc_alloc_free(alloc, averages->heads);
    sc_alloc_free(alloc, averages->staging);
    sc_alloc_free(alloc, averages);
}

/* ---- Use ------------------------------------------------------------------------------------ */

static bool is_due(const struct slot *slot)
{
    return slot->unsaved > 0 && slot->unsaved >= slot->requests / 4;
}

/* Moves a range's averages by 1 / min(n, MEMORY) of the difference. */
static void slot_note(struct sc_baseline_averages *averages, struct slot *slot,
                      const struct sc_store_range *range, uint32_t layer, const float *sums,
                      float by)
{
    uint64_t at = (uint64_t)(slot - averages->slots);
    uint16_t *count = &averages->counts[at * averages->params.layer_count + layer];
    uint16_t *codes = quant_of(averages, slot, layer) + range->row_first;
    if (*count < UINT16_MAX)
        ++*count;
    float weight = 1.0f / (float)(*count < MEMORY ? *count : MEMORY);
    quant_move(codes, sums, range->row_count, by, weight);
    if (*count > slot->requests) {
        slot->requests = *count;
        slot->unsaved++;
    }
    slot->was_used = true;
}

/* Returns the sum of all; 0 if shares of it are undefined. */
static double sample_total(const struct sc_baseline_sample *sample)
{
    double total = 0;
    uint64_t row = 0;
    for (uint64_t i = 0; i < sample->range_count; i++)
        for (uint32_t j = 0; j < sample->ranges[i].row_count; j++)
            total += (double)sample->sums[row++];
    return total >= (double)FLT_MIN && total < INFINITY ? total : 0;
}

bool sc_baseline_averages_note(struct sc_baseline_averages *averages,
                               const struct sc_baseline_sample *sample)
{
    double total = averages != NULL ? sample_total(sample) : 0;
    if (total == 0 || pthread_rwlock_trywrlock(&averages->lock) != 0)
        return false;
    bool due = false;
    uint64_t row = 0;
    for (uint64_t i = 0; i < sample->range_count; row += sample->ranges[i++].row_count) {
        const struct sc_store_range *range = &sample->ranges[i];
        if (sample->is_kept != NULL && !sample->is_kept(sample->user, i))
            continue;
        struct slot *slot = slot_find(averages, range->piece);
        uint32_t rows = 0;
        if (slot == NULL)
            rows = averages->params.rows_of(averages->params.user, range->piece);
        if (slot == NULL && rows > 0 && rows <= averages->params.rows_max)
            slot = slot_make(averages, range->piece, rows);
        if (slot == NULL || (uint64_t)range->row_first + range->row_count > slot->rows)
            continue;
        slot_note(averages, slot, range, sample->layer, sample->sums + row, (float)(1 / total));
        due |= is_due(slot);
    }
    pthread_rwlock_unlock(&averages->lock);
    return due && sample->layer + 1 == averages->params.layer_count;
}

/* Lock held. Writes the range's codes as scores; returns how many rows are known. */
static uint64_t range_scores(const struct sc_baseline_averages *averages, const struct slot *slot,
                             const struct sc_store_range *range, uint32_t layer, float *ret_scores)
{
    uint64_t known = 0;
    const uint16_t *codes = quant_of(averages, slot, layer) + range->row_first;
    for (uint32_t j = 0; j < range->row_count; j++) {
        ret_scores[j] = share_of(codes[j]);
        known += codes[j] > 0;
    }
    return known;
}

static bool slot_has(const struct slot *slot, const struct sc_store_range *range)
{
    return slot != NULL && (uint64_t)range->row_first + range->row_count <= slot->rows;
}

uint64_t sc_baseline_averages_scores(struct sc_baseline_averages *averages,
                                     const struct sc_store_range *ranges, uint64_t range_count,
                                     uint32_t layer, bool waits, float *ret_scores)
{
    uint64_t known = 0, row = 0;
    bool is_locked = averages != NULL && (waits ? pthread_rwlock_rdlock(&averages->lock)
                                                : pthread_rwlock_tryrdlock(&averages->lock)) == 0;
    for (uint64_t i = 0; i < range_count; row += ranges[i].row_count, i++) {
        const struct sc_store_range *range = &ranges[i];
        struct slot *slot = is_locked ? slot_find(averages, range->piece) : NULL;
        memset(ret_scores + row, 0, range->row_count * sizeof(float));
        if (!slot_has(slot, range))
            continue;
        atomic_store_explicit(&slot->was_used, true, memory_order_relaxed);
        known += range_scores(averages, slot, range, layer, ret_scores + row);
    }
    if (is_locked)
        pthread_rwlock_unlock(&averages->lock);
    return known;
}

uint64_t sc_baseline_averages_touched(struct sc_baseline_averages *averages,
                                      const struct sc_store_range *ranges, uint64_t range_count,
                                      uint32_t layer, uint32_t requests_least, float *ret_scores)
{
    uint64_t known = 0, row = 0;
    if (averages != NULL)
        pthread_rwlock_rdlock(&averages->lock);
    for (uint64_t i = 0; i < range_count; row += ranges[i].row_count, i++) {
        const struct slot *slot = averages != NULL ? slot_find(averages, ranges[i].piece) : NULL;
        memset(ret_scores + row, 0, ranges[i].row_count * sizeof(float));
        if (slot_has(slot, &ranges[i]) && slot->requests >= requests_least)
            known += range_scores(averages, slot, &ranges[i], layer, ret_scores + row);
    }
    if (averages != NULL)
        pthread_rwlock_unlock(&averages->lock);
    return known;
}

uint64_t sc_baseline_averages_requests(struct sc_baseline_averages *averages,
                                       const struct sc_store_range *ranges, uint64_t range_count)
{
    uint64_t sum = 0, rows = 0;
    if (averages == NULL)
        return 0;
    pthread_rwlock_rdlock(&averages->lock);
    for (uint64_t i = 0; i < range_count; i++) {
        const struct slot *slot = slot_find(averages, ranges[i].piece);
        sum += slot != NULL ? (uint64_t)slot->requests * ranges[i].row_count : 0;
        rows += ranges[i].row_count;
    }
    pthread_rwlock_unlock(&averages->lock);
    return rows > 0 ? sum / rows : 0;
}

void sc_baseline_averages_load(struct sc_baseline_averages *averages,
                               const struct sc_store_average *average)
{
    if (averages == NULL || average->row_count == 0 ||
        average->row_count > averages->params.rows_max || average->requests == 0)
        return;
    uint32_t layers = averages->params.layer_count;
    pthread_rwlock_wrlock(&averages->lock);
    struct slot *slot = slot_find(averages, average->piece);
    if (slot == NULL || slot->rows != average->row_count) {
        if (slot != NULL)
            slot_free(averages, slot);
        slot = slot_make(averages, average->piece, average->row_count);
    }
    uint64_t at = (uint64_t)(slot - averages->slots);
    slot->requests = average->requests;
    slot->unsaved = 0;
    for (uint32_t layer = 0; layer < layers; layer++) {
        uint32_t count = average->requests < UINT16_MAX ? average->requests : UINT16_MAX;
        averages->counts[at * layers + layer] = (uint16_t)count;
        memcpy(quant_of(averages, slot, layer),
               average->codes + (uint64_t)layer * average->row_count,
               average->row_count * sizeof(uint16_t));
    }
    pthread_rwlock_unlock(&averages->lock);
}

/* Copies slots that are due into staging. ret_unsaved: for batch_give_back. */
static uint64_t batch_take(struct sc_baseline_averages *averages, bool all,
                           struct sc_store_average *ret_batch, uint32_t *ret_unsaved)
{
    uint64_t count = 0;
    for (uint32_t looked = 0; looked < LOOKS_MAX && averages->cursor < averages->slot_count &&
                              count < SC_BASELINE_AVERAGES_BATCH;
         looked++) {
        struct slot *slot = &averages->slots[averages->cursor++];
        if (slot->piece == 0 || !(all ? slot->unsaved > 0 : is_due(slot)))
            continue;
        uint16_t *codes = averages->staging + count * averages->quant_each;
        for (uint32_t layer = 0; layer < averages->params.layer_count; layer++)
            memcpy(codes + (uint64_t)layer * slot->rows, quant_of(averages, slot, layer),
                   slot->rows * sizeof(*codes));
        ret_unsaved[count] = slot->unsaved;
        ret_batch[count++] =
            (struct sc_store_average){slot->piece, slot->requests, slot->rows, codes};
        slot->unsaved = 0;
    }
    return count;
}

/* Undoes batch_take after a refusal: the next flush begins with these pieces. */
static void batch_give_back(struct sc_baseline_averages *averages,
                            const struct sc_store_average *batch, const uint32_t *unsaved,
                            uint64_t count, uint32_t cursor)
{
    for (uint64_t i = 0; i < count; i++) {
        struct slot *slot = slot_find(averages, batch[i].piece);
        if (slot != NULL)
            slot->unsaved += unsaved[i];
    }
    averages->cursor = cursor;
}

bool sc_baseline_averages_flush(struct sc_baseline_averages *averages, bool all,
                                spec_status (*put)(void *user,
                                                   const struct sc_store_average *average,
                                                   uint64_t count),
                                void *user)
{
    struct sc_store_average batch[SC_BASELINE_AVERAGES_BATCH];
    uint32_t unsaved[SC_BASELINE_AVERAGES_BATCH];
    if (averages == NULL)
        return false;
    pthread_mutex_lock(&averages->flush_lock);
    pthread_rwlock_wrlock(&averages->lock);
    uint32_t cursor = averages->cursor;
    uint64_t count = batch_take(averages, all, batch, unsaved);
    bool more = averages->cursor < averages->slot_count;
    if (!more)
        averages->cursor = 0;
    pthread_rwlock_unlock(&averages->lock);
    spec_status status = count > 0 ? put(user, batch, count) : SPEC_OK;
    bool refused = status != SPEC_OK && status != SPEC_E_INVALID; /* INVALID stays so */
    pthread_rwlock_wrlock(&averages->lock);
    if (refused)
        batch_give_back(averages, batch, unsaved, count, cursor);
    averages->was_refused = refused || (averages->was_refused && count == 0 && more);
    pthread_rwlock_unlock(&averages->lock);
    pthread_mutex_unlock(&averages->flush_lock);
    return more && !refused;
}

bool sc_baseline_averages_refused(struct sc_baseline_averages *averages)
{
    if (averages == NULL)
        return false;
    pthread_rwlock_rdlock(&averages->lock);
    bool refused = averages->was_refused;
    pthread_rwlock_unlock(&averages->lock);
    return refused;
}

/* shared: saves that requests share. Contract: shared.h. */
#include "plugin/save/shared.h"

#include "plugin/args/handle.h"
#include "plugin/args/provenance.h"
#include "plugin/connector.h"
#include "plugin/save/queue.h"

#include <string.h>

#define COMPARED_TOKENS 64u /* per comparison */

/* ---- The table ------------------------------------------------------------------------------- */

spec_status sc_plugin_shared_open(spec_connector *conn, struct spec_error *reterr)
{
    struct sc_plugin_sharers *sharers = &conn->saves.sharers;
    uint64_t count = conn->saves.count;
    while ((UINT64_C(1) << sharers->bits) < 2 * count)
        sharers->bits++;
    sharers->slots = sc_alloc_array(&conn->alloc, count, sizeof(*sharers->slots));
    sharers->table =
        sc_alloc_array(&conn->alloc, UINT64_C(1) << sharers->bits, sizeof(*sharers->table));
    if (sharers->slots == NULL || sharers->table == NULL)
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "%" PRIu64 " sharers of saves", count);
    for (uint64_t i = 0; i < count; i++) {
        sharers->slots[i].next = sharers->free;
        sharers->free = &sharers->slots[i];
    }
    return SPEC_OK;
}

static struct sc_plugin_save **bucket_of(struct sc_plugin_sharers *sharers, struct sc_hash hash)
{
    return &sharers->table[hash.lo & ((UINT64_C(1) << sharers->bits) - 1)];
}

/* Lock held. */
static void unlist(struct sc_plugin_sharers *sharers, struct sc_plugin_save *save)
{
    if (!save->is_listed)
        return;
    struct sc_plugin_save **at = bucket_of(sharers, save->first_hash);
    while (*at != save)
        at = &(*at)->bucket_next;
    *at = save->bucket_next;
    save->is_listed = false;
    atomic_fetch_sub_explicit(&sharers->listed, 1, memory_order_relaxed);
}

/* ---- Tokens in common ------------------------------------------------------------------------ */

/* Returns where the extra keys of two prompts diverge, at most `most`. */
static uint64_t common_marks(struct sc_marks a, struct sc_marks b, uint64_t most)
{
    uint64_t i = 0;
    while (i < a.count && i < b.count && a.at[i].token == b.at[i].token &&
           memcmp(&a.at[i].digest, &b.at[i].digest, sizeof(a.at[i].digest)) == 0)
        i++;
    uint64_t next_a = i < a.count ? a.at[i].token : most;
    uint64_t next_b = i < b.count ? b.at[i].token : most;
    uint64_t next = next_a < next_b ? next_a : next_b;
    return next < most ? next : most;
}

/* Returns the end of the tokens common to two requests from `from` on; at most `most`. Extra keys
 * of all tokens are included. A result <= `from` means none. */
static uint64_t common_tokens(const struct sc_plugin_request *a, const struct sc_plugin_request *b,
                              uint64_t from, uint64_t most)
{
    uint64_t end = common_marks((struct sc_marks){a->marks, a->mark_count},
                                (struct sc_marks){b->marks, b->mark_count}, most);
    uint64_t at = from;
    if (memcmp(&a->root, &b->root, sizeof(a->root)) != 0 || end <= from)
        return 0;
    while (at + COMPARED_TOKENS <= end &&
           memcmp(a->tokens + at, b->tokens + at, COMPARED_TOKENS * sizeof(*a->tokens)) == 0)
        at += COMPARED_TOKENS;
    while (at < end && a->tokens[at] == b->tokens[at])
        at++;
    return at;
}

/* Adds a cut at `token`, if something before it is unstored; SC_PLUGIN_CUTS at most. */
static void cut_note(struct sc_plugin_step *step, uint64_t token)
{
    uint32_t at = 0;
    if (token <= step->present_end)
        return;
    while (at < step->cut_count && step->cuts[at] < token)
        at++;
    if (step->cut_count == SC_PLUGIN_CUTS || (at < step->cut_count && step->cuts[at] == token))
        return;
    memmove(&step->cuts[at + 1], &step->cuts[at], (step->cut_count - at) * sizeof(*step->cuts));
    step->cuts[at] = token;
    step->cut_count++;
}

static uint64_t pass_end(const struct sc_plugin_request *request)
{
    return request->step.params.first_token + request->step.params.token_count;
}

static bool may_share(const spec_connector *conn, const struct sc_plugin_request *request)
{
    return conn->states.count == 0 && request->step.is_wanted && request->step.params.layer == 0;
}

/* Tokens before both passes are not compared: a wrong cut is harmless. Otherwise decoded tokens
 * behind one long prompt would compare all of it, pair by pair. */
static void part_two(const spec_connector *conn, struct sc_plugin_request *a,
                     struct sc_plugin_request *b)
{
    uint64_t a_end = pass_end(a), b_end = pass_end(b), chunk = conn->config.chunk_tokens;
    uint64_t from = a->step.present_end, least = a_end < b_end ? a_end : b_end;
    from = from < b->step.present_end ? from : b->step.present_end;
    uint64_t cut = from - from % chunk + chunk; /* the first possible one */
    if (cut > least || (cut == a_end && cut == b_end))
        return;
    uint64_t common = common_tokens(a, b, from, least);
    if (common == a_end && common == b_end)
        return;
    cut_note(&a->step, common - common % chunk);
    cut_note(&b->step, common - common % chunk);
}

void sc_plugin_shared_part(const spec_connector *conn, struct sc_plugin_request *const *requests,
                           uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        requests[i]->step.cut_count = 0;
    for (uint64_t i = 1; i < count; i++) {
        struct sc_plugin_request *a = requests[i];
        for (uint64_t j = 0; j < i && may_share(conn, a); j++)
            if (may_share(conn, requests[j]))
                part_two(conn, a, requests[j]);
    }
}

/* ---- Joining --------------------------------------------------------------------------------- */

static uint32_t kind_of(const struct sc_plugin_request *request)
{
    return sc_plugin_provenance_so_far(request).kind;
}

static bool is_packed(const spec_connector *conn, const struct sc_plugin_save *save)
{
    return save->layers == conn->dims.layer_count;
}

/* Lock held. Returns true if the commit needs no layers from other requests: the predecessor has
 * all its layers, or is the request's own last save. */
static bool may_be_committed(const spec_connector *conn, const struct sc_plugin_request *request,
                             const struct sc_plugin_save *save)
{
    const struct sc_plugin_save *ahead = save->ahead;
    if (!save->waits || (ahead == request->save_last && ahead->life == request->save_last_life))
        return true;
    return is_packed(conn, ahead) && !ahead->waits;
}

/* Lock held. Returns up to where the request may rely on the save; 0: not at all. If layers are
 * missing, the request must be able to end the save alone. */
static uint64_t joinable_end(spec_connector *conn, const struct sc_plugin_request *request,
                             const struct sc_plugin_save *save)
{
    uint64_t save_end = save->first + save->count, end = pass_end(request);
    uint32_t kind = kind_of(request);
    bool is_whole = is_packed(conn, save);
    bool is_lost = save->gives_up || save->is_void || save->status != SPEC_OK ||
                   (save->has_ended && !is_whole);
    if (is_lost || !may_be_committed(conn, request, save) ||
        !sc_plugin_epoch_is_current(conn, save->request))
        return 0;
    if (kind < save->provenance.kind || (kind > save->provenance.kind && !is_whole))
        return 0;
    /* Tokens in front are compared last: they are usually equal, and may be many. */
    uint64_t common =
        common_tokens(save->request, request, save->first, save_end < end ? save_end : end);
    if (common < save_end)
        common = is_whole ? common - common % conn->config.chunk_tokens : 0;
    if (common <= save->first)
        return 0;
    return common_tokens(save->request, request, 0, save->first) == save->first ? common : 0;
}

/* Lock held. Returns the save with that hash that ends last, or NULL. */
static struct sc_plugin_save *find_joinable(spec_connector *conn,
                                            const struct sc_plugin_request *request,
                                            struct sc_hash hash, uint64_t first, uint64_t *ret_end)
{
    struct sc_plugin_save *best = NULL;
    *ret_end = first;
    for (struct sc_plugin_save *at = *bucket_of(&conn->saves.sharers, hash); at != NULL;
         at = at->bucket_next) {
        if (!sc_hash_equal(at->first_hash, hash) || at->first != first)
            continue;
        uint64_t end = joinable_end(conn, request, at);
        if (end <= *ret_end)
            continue;
        *ret_end = end;
        best = at;
    }
    return best;
}

/* Lock held. */
static void sharer_add(const spec_connector *conn, struct sc_plugin_request *request,
                       struct sc_plugin_save *save, struct sc_plugin_sharer *sharer, uint64_t end)
{
    bool brings = !is_packed(conn, save);
    *sharer = (struct sc_plugin_sharer){.next = save->sharers,
                                        .request = brings ? request : NULL,
                                        .ticket = request->pass_ticket,
                                        .pass_first = request->pass_first,
                                        .end = end,
                                        .hint = sc_plugin_hint_of(conn, request)};
    save->sharers = sharer;
    save->producers += brings ? 1 : 0;
}

/* Joins one save with that first-piece hash. Returns the end of the common tokens, or `first`. */
static uint64_t join_one(spec_connector *conn, struct sc_plugin_request *request,
                         struct sc_hash hash, uint64_t first)
{
    struct sc_plugin_sharers *sharers = &conn->saves.sharers;
    uint64_t end;
    sc_plugin_lock(conn, &conn->saves.lock);
    struct sc_plugin_save *save = find_joinable(conn, request, hash, first, &end);
    struct sc_plugin_sharer *sharer = sharers->free;
    if (save != NULL && sharer != NULL) {
        sharers->free = sharer->next;
        sharer_add(conn, request, save, sharer, end);
        request->save_last = save;
        request->save_last_life = save->life;
        if (sharer->request != NULL) {
            save->refs++;
            request->pass[request->pass_saves++] = save;
        }
    }
    pthread_mutex_unlock(&conn->saves.lock);
    return save != NULL && sharer != NULL ? end : first;
}

uint64_t sc_plugin_shared_join(spec_connector *conn, struct sc_plugin_request *request,
                               struct sc_chain *chain, uint64_t first, uint64_t most,
                               uint64_t *ret_parts)
{
    const struct sc_marks marks = {request->marks, request->mark_count};
    uint64_t pass_last = pass_end(request), chunk = conn->config.chunk_tokens;
    *ret_parts = 0;
    while (first < pass_last && *ret_parts < most && conn->states.count == 0 &&
           atomic_load_explicit(&conn->saves.sharers.listed, memory_order_relaxed) > 0) {
        uint64_t piece_end = first - first % chunk + chunk;
        piece_end = piece_end < pass_last ? piece_end : pass_last;
        struct sc_chain at = *chain;
        sc_chain_extend(&at, request->tokens + first, piece_end - first, marks);
        uint64_t end = join_one(conn, request, sc_chain_at(&at), first);
        if (end == first)
            break;
        sc_chain_extend(chain, request->tokens + first, end - first, marks);
        first = end;
        (*ret_parts)++;
    }
    return first;
}

void sc_plugin_shared_found(spec_connector *conn, struct sc_plugin_request *request,
                            struct sc_plugin_save *save, struct sc_hash hash, bool is_listed)
{
    struct sc_plugin_sharers *sharers = &conn->saves.sharers;
    sc_plugin_lock(conn, &conn->saves.lock);
    save->provenance = sc_plugin_provenance_so_far(request);
    sharer_add(conn, request, save, &save->founder, save->first + save->count);
    save->first_hash = hash;
    save->is_listed = is_listed;
    if (is_listed) {
        struct sc_plugin_save **bucket = bucket_of(sharers, hash);
        save->bucket_next = *bucket;
        *bucket = save;
        atomic_fetch_add_explicit(&sharers->listed, 1, memory_order_relaxed);
    }
    pthread_mutex_unlock(&conn->saves.lock);
}

/* ---- Layers ---------------------------------------------------------------------------------- */

/* Lock held. Returns NULL if the request brings no layers of it. */
static struct sc_plugin_sharer *producer_of(struct sc_plugin_save *save,
                                            const struct sc_plugin_request *request)
{
    struct sc_plugin_sharer *at = save->sharers;
    while (at != NULL && at->request != request)
        at = at->next;
    return at;
}

/* Lock held. Makes the save read that request's tokens. Returns whose hold ends, or NULL. */
static struct sc_plugin_request *owner_set(struct sc_plugin_save *save,
                                           struct sc_plugin_request *request)
{
    struct sc_plugin_request *old = save->request;
    if (old == request)
        return NULL;
    atomic_fetch_add_explicit(&request->holds, 1, memory_order_relaxed);
    save->request = request;
    return old;
}

/* Lock held. Ends the request's production. While layers are missing, another producer becomes the
 * owner of the save's tokens. After the last layer its bringer stays the owner. */
static struct sc_plugin_request *leave(const spec_connector *conn, struct sc_plugin_save *save,
                                       struct sc_plugin_sharer *sharer)
{
    const struct sc_plugin_request *request = sharer->request;
    sharer->request = NULL;
    save->producers--;
    bool is_over = is_packed(conn, save) || save->has_ended || save->state != SC_SAVE_WRITING;
    if (save->request != request || is_over)
        return NULL;
    for (struct sc_plugin_sharer *at = save->sharers; at != NULL; at = at->next)
        if (at->request != NULL)
            return owner_set(save, at->request);
    return NULL;
}

/* Lock held. Assigns the layer to the request: others find it packed. */
static enum sc_plugin_putter take(struct sc_plugin_save *save, const struct spec_provenance *worth,
                                  const struct sc_plugin_memory *memory)
{
    save->layers++;
    save->is_packing = true;
    sc_plugin_provenance_add(&save->provenance, worth);
    return memory->batch != NULL || save->queued > 0 ? SC_PUTTER_QUEUE : SC_PUTTER_HOST;
}

/* Unlocks, then ends the hold of `left` (or NULL) and aborts the extent if `aborts`. */
static void decided(spec_connector *conn, struct sc_plugin_save *save,
                    struct sc_plugin_request *left, bool aborts)
{
    pthread_mutex_unlock(&conn->saves.lock);
    if (left != NULL)
        sc_plugin_request_unhold(left);
    if (aborts)
        sc_store_extent_abort(save->extent);
}

enum sc_plugin_putter sc_plugin_shared_tick(spec_connector *conn, struct sc_plugin_request *request,
                                            struct sc_plugin_save *save, uint32_t layer,
                                            const struct sc_plugin_memory *memory,
                                            spec_status *ret_why)
{
    enum sc_plugin_putter putter = SC_PUTTER_OTHER;
    struct sc_plugin_request *left = NULL;
    struct spec_provenance worth = sc_plugin_provenance_so_far(request);
    bool aborts = false;
    sc_plugin_lock(conn, &conn->saves.lock);
    struct sc_plugin_sharer *sharer = producer_of(save, request);
    bool is_next = sharer != NULL && layer == save->layers;
    bool is_late = sharer != NULL && layer > save->layers; /* the previous one was never brought */
    bool worsens = is_next && worth.kind > save->provenance.kind && save->producers > 1;
    bool is_lost = save->gives_up || (save->has_ended && !is_packed(conn, save));
    if (!is_lost && (is_late || worsens)) {
        left = leave(conn, save, sharer);
        aborts = save->producers == 0 && sc_plugin_save_gives_up(conn, save, SPEC_OK);
        is_lost = save->gives_up;
    } else if (!is_lost && is_next && !save->is_packing) {
        putter = take(save, &worth, memory);
        if (is_packed(conn, save)) /* the pass has its last layer: its tokens stay */
            left = owner_set(save, request);
    }
    *ret_why = save->lost != SPEC_OK ? save->lost : SPEC_E_DROPPED;
    decided(conn, save, left, aborts);
    return is_lost ? SC_PUTTER_NONE : putter;
}

void sc_plugin_shared_packed(spec_connector *conn, struct sc_plugin_save *save)
{
    sc_plugin_lock(conn, &conn->saves.lock);
    save->is_packing = false;
    bool aborts = save->gives_up && sc_plugin_save_gives_up(conn, save, save->lost);
    decided(conn, save, NULL, aborts);
}

bool sc_plugin_shared_hand_back(spec_connector *conn, const struct sc_plugin_request *request,
                                struct sc_plugin_save *save)
{
    struct sc_plugin_request *left = NULL;
    sc_plugin_lock(conn, &conn->saves.lock);
    struct sc_plugin_sharer *sharer = producer_of(save, request);
    bool is_another = sharer != NULL && save->producers > 1 && !save->gives_up && !save->has_ended;
    if (is_another) {
        save->layers--;
        save->is_packing = false;
        left = leave(conn, save, sharer);
    }
    decided(conn, save, left, false);
    return is_another;
}

static void leave_one(spec_connector *conn, const struct sc_plugin_request *request,
                      struct sc_plugin_save *save, spec_status why)
{
    struct sc_plugin_request *left = NULL;
    bool aborts = false;
    sc_plugin_lock(conn, &conn->saves.lock);
    struct sc_plugin_sharer *sharer = producer_of(save, request);
    if (sharer != NULL) {
        left = leave(conn, save, sharer);
        aborts = save->producers == 0 && !is_packed(conn, save) &&
                 sc_plugin_save_gives_up(conn, save, why);
    }
    decided(conn, save, left, aborts);
}

void sc_plugin_shared_leave(spec_connector *conn, const struct sc_plugin_request *request,
                            struct sc_plugin_save *const *saves, uint64_t count, spec_status why)
{
    spec_status told = why == SPEC_E_BUSY || why == SPEC_E_IO ? why : SPEC_OK;
    for (uint64_t i = 0; i < count; i++)
        leave_one(conn, request, saves[i], told);
}

/* ---- The end --------------------------------------------------------------------------------- */

struct sc_plugin_sharer *sc_plugin_shared_end(spec_connector *conn, struct sc_plugin_save *save)
{
    struct sc_plugin_sharer *sharers = save->sharers;
    unlist(&conn->saves.sharers, save);
    save->sharers = NULL;
    return sharers;
}

void sc_plugin_shared_free(spec_connector *conn, struct sc_plugin_save *save,
                           struct sc_plugin_sharer *sharers)
{
    pthread_mutex_lock(&conn->saves.lock);
    for (struct sc_plugin_sharer *at = sharers, *next; at != NULL; at = next) {
        next = at->next;
        if (at == &save->founder)
            continue;
        at->next = conn->saves.sharers.free;
        conn->saves.sharers.free = at;
    }
    pthread_mutex_unlock(&conn->saves.lock);
}

/* queue: layers on their way to their extents. Contract: queue.h. */
#include "plugin/save/queue.h"

#include "base/nt_copy.h"
#include "plugin/connector.h"
#include "plugin/device/d2h_batch.h"

#include <string.h>

#define LOOK_NS      UINT64_C(50000) /* delay after a success; then doubled */
#define LOOK_NS_MOST UINT64_C(1000000)

/* ---- Ends ----------------------------------------------------------------------------------- */

/* Lock held. Detaches the save's layers in flight. */
static void disown(struct sc_plugin_saves *saves, struct sc_plugin_save *save)
{
    for (struct sc_plugin_d2h_batch *at = saves->queue.head; at != NULL && save->queued > 0;
         at = at->next)
        if (at->to == save) {
            at->to = NULL;
            save->queued--;
        }
}

/* Lock held. */
static void end(struct sc_plugin_saves *saves, struct sc_plugin_save *save)
{
    save->has_ended = true;
    disown(saves, save);
}

void sc_plugin_save_end(spec_connector *conn, struct sc_plugin_save *save)
{
    sc_plugin_lock(conn, &conn->saves.lock);
    end(&conn->saves, save);
    pthread_mutex_unlock(&conn->saves.lock);
}

bool sc_plugin_save_gives_up(spec_connector *conn, struct sc_plugin_save *save, spec_status why)
{
    bool aborts = !save->has_ended && !save->is_putting && !save->is_packing;
    if (!save->has_ended && !save->gives_up) {
        save->gives_up = true;
        save->lost = why;
    }
    if (aborts)
        end(&conn->saves, save);
    return aborts;
}

void sc_plugin_save_give_up(spec_connector *conn, struct sc_plugin_save *save, spec_status why)
{
    sc_plugin_lock(conn, &conn->saves.lock);
    bool aborts = sc_plugin_save_gives_up(conn, save, why);
    pthread_mutex_unlock(&conn->saves.lock);
    if (aborts)
        sc_store_extent_abort(save->extent);
}

spec_status sc_plugin_save_put_layer(spec_connector *conn, struct sc_plugin_save *save,
                                     uint32_t layer, const struct sc_store_source *source,
                                     struct spec_error *reterr)
{
    spec_status status = sc_store_extent_put_layer(save->extent, layer, source, reterr);
    if (status != SPEC_OK || layer + 1 == conn->dims.layer_count)
        sc_plugin_save_end(conn, save);
    return status;
}

/* ---- Into the queue ------------------------------------------------------------------------- */

/* Appends a batch, detached if the save has ended. */
static void append(spec_connector *conn, struct sc_plugin_save *save,
                   struct sc_plugin_d2h_batch *d2h_batch)
{
    struct sc_plugin_queue *queue = &conn->saves.queue;
    sc_plugin_lock(conn, &conn->saves.lock);
    bool is_idle = !queue->is_active;
    queue->is_active = true;
    d2h_batch->to = save->has_ended ? NULL : save;
    save->queued += save->has_ended ? 0 : 1;
    if (queue->head == NULL)
        queue->head = d2h_batch;
    else
        queue->tail->next = d2h_batch;
    queue->tail = d2h_batch;
    pthread_mutex_unlock(&conn->saves.lock);
    if (!is_idle)
        return;
    atomic_fetch_add_explicit(&conn->saves.live, 1, memory_order_relaxed);
    sc_exec_post_at(conn->exec, &queue->task, SC_IO_CLASS_WRITER,
                    sc_exec_now_ns(conn->exec) + LOOK_NS);
}

/* Waits for a free batch until until_ns. Returns NULL if there is none. */
static struct sc_plugin_d2h_batch *d2h_batch_await(spec_connector *conn, uint64_t row_count,
                                                   uint64_t until_ns)
{
    for (;;) {
        uint32_t seen = atomic_load(&conn->saves.queue.word);
        uint64_t now_ns = sc_exec_now_ns(conn->exec);
        struct sc_plugin_d2h_batch *d2h_batch = sc_plugin_d2h_batch_take(&conn->device, row_count);
        if (d2h_batch != NULL || now_ns >= until_ns)
            return d2h_batch;
        (void)sc_exec_wait(conn->exec, &conn->saves.queue.word, seen, until_ns);
    }
}

spec_status sc_plugin_queue_put(spec_connector *conn, struct sc_plugin_request *request,
                                struct sc_plugin_save *save, const struct sc_plugin_layer *layer,
                                struct spec_error *reterr)
{
    struct sc_plugin_d2h_batch *d2h_batch =
        d2h_batch_await(conn, save->count, request->step.wait_until_ns);
    if (d2h_batch == NULL)
        return sc_fail(reterr, SPEC_E_BUSY,
                       "no room for %" PRIu64 " rows on their way (gpu.store_bytes %" PRIu64 ")",
                       save->count, conn->config.gpu_store_bytes);
    d2h_batch->layer = layer->layer;
    d2h_batch->wait_until_ns = request->step.wait_until_ns;
    spec_status status = SPEC_OK;
    if (layer->memory->batch != NULL)
        status =
            sc_plugin_d2h_batch_send(d2h_batch, &layer->how, layer->memory->stream, layer->first,
                                     (uint64_t)(request - conn->requests.slots), reterr);
    else
        sc_kernels_rows_pack(&layer->how, layer->first, save->count, d2h_batch->rows);
    if (status == SPEC_OK)
        append(conn, save, d2h_batch);
    else
        sc_plugin_d2h_batch_give(d2h_batch);
    return status;
}

/* ---- Out of it ------------------------------------------------------------------------------ */

/* Returns true if its host lets it wait and staging has no space. */
static bool waits_for_room(const struct sc_plugin_d2h_batch *d2h_batch, uint64_t now_ns)
{
    const struct sc_plugin_save *save = d2h_batch->to;
    return save != NULL && now_ns < d2h_batch->wait_until_ns &&
           !sc_store_extent_has_room(save->extent);
}

/* Lock held. Removes and returns the first arrived batch that is the first of its save; or NULL. */
static struct sc_plugin_d2h_batch *take_next(struct sc_plugin_saves *saves, uint64_t now_ns)
{
    struct sc_plugin_queue *queue = &saves->queue;
    struct sc_plugin_d2h_batch *before = NULL;
    queue->look++;
    for (struct sc_plugin_d2h_batch *at = queue->head; at != NULL; before = at, at = at->next) {
        struct sc_plugin_save *save = at->to;
        bool is_first = save == NULL || save->look != queue->look;
        if (save != NULL)
            save->look = queue->look;
        if (!is_first || !sc_plugin_d2h_batch_is_there(at) || waits_for_room(at, now_ns))
            continue;
        if (before == NULL)
            queue->head = at->next;
        else
            before->next = at->next;
        if (queue->tail == at)
            queue->tail = before;
        if (save != NULL)
            save->is_putting = true;
        return at;
    }
    return NULL;
}

struct d2h_batch_source {
    const spec_connector *conn;
    const struct sc_plugin_d2h_batch *d2h_batch;
};

static void d2h_batch_pack(void *user, uint32_t part, uint64_t row_first, uint64_t row_count,
                           uint8_t *dst)
{
    const struct d2h_batch_source *source = user;
    const spec_connector *conn = source->conn;
    uint64_t row_bytes = conn->dims.row_bytes, k_bytes = conn->dims.k_row_bytes;
    const uint8_t *from = source->d2h_batch->rows + row_first * row_bytes;
    uint64_t bytes = k_bytes;
    if (part == SC_STORE_PART_ROW) {
        memcpy(dst, from, row_count * row_bytes);
        return;
    }
    if (part == SC_STORE_PART_PROBE)
        bytes = sc_store_probe_row_bytes(conn->store);
    if (part == SC_STORE_PART_V) {
        from += k_bytes;
        bytes = row_bytes - k_bytes;
    }
    for (uint64_t i = 0; i < row_count; i++)
        memcpy(dst + i * bytes, from + i * row_bytes, bytes);
}

static void d2h_batch_spans(void *user, uint64_t row, uint64_t count, uint8_t **ret_spans)
{
    const struct d2h_batch_source *source = user;
    uint64_t half = source->conn->dims.row_bytes / 2;
    for (uint64_t i = 0; i < 2 * count; i++)
        ret_spans[i] = source->d2h_batch->rows + 2 * row * half + i * half;
}

/* Puts a layer into the extent. ret_has_ended: the extent has no producer any more. */
static spec_status put_layer(spec_connector *conn, const struct sc_plugin_save *save,
                             const struct sc_plugin_d2h_batch *d2h_batch, bool *ret_has_ended,
                             struct spec_error *reterr)
{
    struct d2h_batch_source from = {conn, d2h_batch};
    const struct sc_store_source source = {.pack = d2h_batch_pack,
                                           .spans = sc_nt_copy_is_faster() ? d2h_batch_spans : NULL,
                                           .span_bytes = conn->dims.row_bytes / 2,
                                           .user = &from};
    spec_status status = sc_plugin_d2h_batch_check(d2h_batch, reterr);
    *ret_has_ended = false;
    if (status != SPEC_OK)
        return status;
    status = sc_store_extent_put_layer(save->extent, d2h_batch->layer, &source, reterr);
    *ret_has_ended = status != SPEC_OK || d2h_batch->layer + 1 == conn->dims.layer_count;
    return status;
}

/* Puts an arrived batch into its extent. Ends the caller's hold of the save. */
static void deliver(spec_connector *conn, struct sc_plugin_save *save,
                    const struct sc_plugin_d2h_batch *d2h_batch)
{
    struct spec_error why = {.struct_size = sizeof(why)};
    struct sc_store_extent *extent = save->extent;
    bool has_ended;
    spec_status status = put_layer(conn, save, d2h_batch, &has_ended, &why);
    if (status != SPEC_OK)
        sc_log_write_limited(&conn->log, &conn->saves.lost, sc_exec_now_ns(conn->exec),
                             SPEC_LOG_WARN, "store of layer %" PRIu32 " given up: %s",
                             d2h_batch->layer, why.text);
    bool aborts = false;
    pthread_mutex_lock(&conn->saves.lock);
    save->is_putting = false;
    save->queued--;
    if (has_ended)
        end(&conn->saves, save);
    else if (status != SPEC_OK || save->gives_up)
        aborts = sc_plugin_save_gives_up(conn, save, sc_plugin_ticket_status(status));
    pthread_mutex_unlock(&conn->saves.lock);
    if (aborts)
        sc_store_extent_abort(extent);
    sc_plugin_save_put(conn, save);
}

static bool deliver_next(spec_connector *conn)
{
    struct sc_plugin_save *save = NULL;
    uint64_t now_ns = sc_exec_now_ns(conn->exec);
    pthread_mutex_lock(&conn->saves.lock);
    struct sc_plugin_d2h_batch *d2h_batch = take_next(&conn->saves, now_ns);
    if (d2h_batch != NULL)
        save = d2h_batch->to;
    if (save != NULL)
        save->refs++; /* it may end with this layer */
    pthread_mutex_unlock(&conn->saves.lock);
    if (d2h_batch == NULL)
        return false;
    if (save != NULL)
        deliver(conn, save, d2h_batch);
    sc_plugin_d2h_batch_give(d2h_batch);
    atomic_fetch_add(&conn->saves.queue.word, 1);
    sc_exec_wake(conn->exec, &conn->saves.queue.word);
    return true;
}

/* Counts as a save while active, so that close waits. */
static void queue_step(struct sc_task *task)
{
    struct sc_plugin_queue *queue = SC_TASK_OWNER(task, struct sc_plugin_queue, task);
    spec_connector *conn = queue->conn;
    bool came = false;
    sc_plugin_d2h_batches_reap(&conn->device);
    while (deliver_next(conn))
        came = true;
    pthread_mutex_lock(&conn->saves.lock);
    bool goes_on = queue->head != NULL;
    queue->is_active = goes_on;
    pthread_mutex_unlock(&conn->saves.lock);
    if (goes_on) {
        uint64_t longer = queue->wait_ns * 2 < LOOK_NS_MOST ? queue->wait_ns * 2 : LOOK_NS_MOST;
        queue->wait_ns = came ? LOOK_NS : longer;
        sc_exec_post_at(conn->exec, task, SC_IO_CLASS_WRITER,
                        sc_exec_now_ns(conn->exec) + queue->wait_ns);
        return;
    }
    atomic_fetch_sub_explicit(&conn->saves.live, 1, memory_order_release);
    atomic_fetch_add_explicit(&conn->saves.word, 1, memory_order_release);
    sc_exec_wake(conn->exec, &conn->saves.word);
}

void sc_plugin_queue_open(spec_connector *conn)
{
    conn->saves.queue.conn = conn;
    conn->saves.queue.task.step = queue_step;
    conn->saves.queue.wait_ns = LOOK_NS;
}

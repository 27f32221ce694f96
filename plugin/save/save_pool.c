/* save_pool: pools of saves and of passes with recurrent states. Threads: as in saves.h.
 * Tests: tests/unit/plugin/test_save.c, test_shared_saves.c */
#include "plugin/connector.h"
#include "plugin/save/save_recurrent.h"

struct sc_plugin_save *sc_plugin_save_take(spec_connector *conn)
{
    sc_plugin_lock(conn, &conn->saves.lock);
    struct sc_plugin_save *save = conn->saves.free;
    if (save != NULL) {
        conn->saves.free = save->next;
        save->refs = 1;
        save->queued = 0;
        save->is_putting = save->gives_up = save->has_ended = false;
        save->waits = save->is_packing = save->is_listed = false;
        save->behind = NULL;
        save->sharers = NULL;
        save->producers = 0;
        save->layers = 0;
        save->status = SPEC_OK;
        save->lost = SPEC_OK;
    }
    pthread_mutex_unlock(&conn->saves.lock);
    return save;
}

void sc_plugin_save_put(spec_connector *conn, struct sc_plugin_save *save)
{
    pthread_mutex_lock(&conn->saves.lock);
    SC_ASSERT(&conn->poison, save->refs > 0);
    if (--save->refs == 0) {
        save->next = conn->saves.free;
        conn->saves.free = save;
    }
    pthread_mutex_unlock(&conn->saves.lock);
}

uint64_t sc_plugin_chunk_count(const spec_connector *conn, uint64_t first, uint64_t end)
{
    uint64_t chunk = conn->config.chunk_tokens;
    return end > first ? (end - 1) / chunk - first / chunk + 1 : 0;
}

spec_status sc_plugin_ticket_status(spec_status status)
{
    switch (status) {
    case SPEC_OK:
    case SPEC_E_DROPPED:
    case SPEC_E_BUSY:
    case SPEC_E_IO:
    case SPEC_E_NO_SPACE:
        return status;
    case SPEC_E_NO_MEMORY: /* a table or the index has reached its limit */
        return SPEC_E_BUSY;
    default:
        return SPEC_E_DROPPED;
    }
}

void sc_plugin_save_follow(spec_connector *conn, struct sc_plugin_request *request,
                           struct sc_plugin_save *save)
{
    struct sc_plugin_save *last = request->save_last;
    sc_plugin_lock(conn, &conn->saves.lock);
    if (last != NULL && last->life == request->save_last_life) {
        save->ahead = last;
        save->waits = true;
        save->behind_next = last->behind;
        last->behind = save;
    }
    request->save_last = save;
    request->save_last_life = save->life;
    pthread_mutex_unlock(&conn->saves.lock);
}

struct sc_plugin_text sc_plugin_save_text(const struct sc_plugin_save *save)
{
    const struct sc_plugin_request *request = save->request;
    if (save->states != NULL)
        return save->states->text;
    return (struct sc_plugin_text){.tokens = request->tokens,
                                   .token_count = save->first + save->count, /* others are added */
                                   .marks = {request->marks, request->mark_count},
                                   .store_marks = request->store_marks};
}

void sc_plugin_recurrent_unref(spec_connector *conn, struct sc_plugin_recurrent_pass *pass)
{
    pthread_mutex_lock(&conn->saves.lock);
    SC_ASSERT(&conn->poison, pass->refs > 0);
    if (--pass->refs == 0) {
        pass->next = conn->states.free;
        conn->states.free = pass;
    }
    pthread_mutex_unlock(&conn->saves.lock);
}

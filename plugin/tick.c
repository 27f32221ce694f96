/* tick: periodic work, every 25 ms in I/O class background. Contract: tick.h. */
#include "plugin/tick.h"
#include "plugin/connector.h"

#define TICK_NS UINT64_C(25000000)

static bool tick_run(spec_connector *conn)
{
    bool more = sc_plugin_follow_own(conn);
    sc_plugin_take_over_tick(conn);
    sc_plugin_uses_tick(conn);
    sc_plugin_other_models_tick(conn);
    sc_plugin_bypass_tick(conn);
    if (sc_plugin_reader_grace_end_due(conn))
        sc_plugin_unpinned(conn);
    more = sc_plugin_peers_follow(conn) || more;
    sc_plugin_notify_tick(conn);
    sc_plugin_erase_tick(conn);
    if (sc_baseline_averages_refused(conn->baseline.averages))
        sc_plugin_kick(conn, SC_JOB_BASELINE);
    sc_plugin_reorder_tick(conn);
    sc_plugin_load_policy_tick(conn);
    if (sc_plugin_load_policy_due(conn))
        sc_plugin_kick(conn, SC_JOB_BASELINE);
    return sc_plugin_roots_clear(conn->radix, &conn->index.lock, &conn->index.old_roots) || more;
}

static void tick_step(struct sc_task *task)
{
    spec_connector *conn = SC_TASK_OWNER(task, spec_connector, tick.task);
    bool more = false;
    if (atomic_load(&conn->tick.closing) == 0 && atomic_load(&conn->poison.broken) == 0)
        more = tick_run(conn);
    if (atomic_load(&conn->tick.closing) != 0) {
        atomic_store(&conn->tick.ended, 1);
        sc_exec_wake(conn->exec, &conn->tick.ended);
        return;
    }
    sc_exec_post_at(conn->exec, task, SC_IO_CLASS_BACKGROUND,
                    sc_exec_now_ns(conn->exec) + (more ? 0 : TICK_NS));
}

void sc_plugin_tick_start(spec_connector *conn)
{
    sc_plugin_load_policy_tick(conn);
    conn->tick.task.step = tick_step;
    conn->tick.is_started = true;
    sc_exec_post_at(conn->exec, &conn->tick.task, SC_IO_CLASS_BACKGROUND,
                    sc_exec_now_ns(conn->exec) + TICK_NS);
}

void sc_plugin_tick_stop(spec_connector *conn)
{
    if (!conn->tick.is_started)
        return;
    atomic_store(&conn->tick.closing, 1);
    /* A step that runs now may have read `closing` before; then it posts itself once more. */
    while (!sc_exec_cancel(conn->exec, &conn->tick.task) && atomic_load(&conn->tick.ended) == 0)
        (void)sc_exec_wait(conn->exec, &conn->tick.ended, 0,
                           sc_exec_now_ns(conn->exec) + TICK_NS / 25);
    conn->tick.is_started = false;
}

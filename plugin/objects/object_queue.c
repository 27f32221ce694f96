/* object_queue: tasks, and FIFO queues of transfers, doubly linked, with one task each.
 * Threads: queues under `lock`; tasks from any. Tests: conformance/objects */
#include "plugin/objects/objects.h"

void sc_objects_post(spec_objects *objects, struct sc_task *task, enum sc_io_class io_class)
{
    atomic_fetch_add(&objects->tasks, 1);
    sc_exec_post(objects->exec, task, io_class);
}

void sc_objects_task_end(spec_objects *objects)
{
    struct sc_exec *exec = objects->exec; /* objects may be freed once the count is 0 */
    if (atomic_fetch_sub(&objects->tasks, 1) == 1)
        sc_exec_wake(exec, &objects->tasks);
}

void sc_objects_queue_add(struct sc_object_queue *queue, struct sc_object_transfer *transfer,
                          bool is_first)
{
    transfer->state = SC_OBJECT_QUEUED;
    transfer->next = is_first ? queue->head : NULL;
    transfer->prev = is_first ? NULL : queue->last;
    if (transfer->next != NULL)
        transfer->next->prev = transfer;
    else
        queue->last = transfer;
    if (transfer->prev != NULL)
        transfer->prev->next = transfer;
    else
        queue->head = transfer;
}

void sc_objects_queue_remove(struct sc_object_queue *queue, struct sc_object_transfer *transfer)
{
    if (transfer->next != NULL)
        transfer->next->prev = transfer->prev;
    else
        queue->last = transfer->prev;
    if (transfer->prev != NULL)
        transfer->prev->next = transfer->next;
    else
        queue->head = transfer->next;
    transfer->next = transfer->prev = NULL;
}

void sc_objects_queue_wake(spec_objects *objects, struct sc_object_queue *queue,
                           enum sc_io_class io_class)
{
    queue->runs_again = true;
    if (queue->is_posted)
        return;
    queue->is_posted = true;
    sc_objects_post(objects, &queue->task, io_class);
}

void sc_objects_room_came(spec_objects *objects)
{
    if (objects->put_waits)
        sc_objects_queue_wake(objects, &objects->puts, SC_IO_CLASS_WRITER);
}

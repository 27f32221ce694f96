/* Contract: tests/unit/plugin/gate.h. */
#include "tests/unit/plugin/gate.h"

#include <time.h>

#define PATIENCE_S 120

void gate_pass(void *user)
{
    struct gate *gate = user;
    pthread_mutex_lock(&gate->lock);
    gate->waiting++;
    pthread_cond_broadcast(&gate->changed);
    bool is_held = gate->holds == 0 || gate->waiting <= gate->holds;
    while (gate->is_shut && is_held)
        pthread_cond_wait(&gate->changed, &gate->lock);
    gate->waiting--;
    pthread_mutex_unlock(&gate->lock);
}

void gate_shut(struct gate *gate, bool is_shut)
{
    pthread_mutex_lock(&gate->lock);
    gate->is_shut = is_shut;
    pthread_cond_broadcast(&gate->changed);
    pthread_mutex_unlock(&gate->lock);
}

bool gate_await(struct gate *gate, uint64_t count)
{
    struct timespec end;
    int ended = clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += PATIENCE_S;
    pthread_mutex_lock(&gate->lock);
    while (gate->waiting < count && ended == 0)
        ended = pthread_cond_timedwait(&gate->changed, &gate->lock, &end);
    bool are_held = gate->waiting >= count;
    pthread_mutex_unlock(&gate->lock);
    return are_held;
}

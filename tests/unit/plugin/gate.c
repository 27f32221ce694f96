/* Contract: tests/unit/plugin/gate.h. */
#include "tests/unit/plugin/gate.h"

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

void gate_await(struct gate *gate, uint64_t count)
{
    pthread_mutex_lock(&gate->lock);
    while (gate->waiting < count)
        pthread_cond_wait(&gate->changed, &gate->lock);
    pthread_mutex_unlock(&gate->lock);
}

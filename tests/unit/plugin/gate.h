/* A gate that completions of a device wait at (base/fault.h) until a test lets them through.
 *
 * Threads: any; gate_pass whoever completes.
 * Tests: what uses it */
#ifndef SC_TESTS_UNIT_PLUGIN_GATE_H
#define SC_TESTS_UNIT_PLUGIN_GATE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct gate {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool is_shut;     /* guarded by lock */
    uint64_t waiting; /* guarded by lock: completions held now */
    uint64_t holds;   /* so many are held at most, others pass; 0: all. Set while it is open */
};
#define GATE_OPEN                                                                                  \
    {                                                                                              \
        PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false, 0, 0                           \
    }

void gate_pass(void *user); /* sc_fault_gate_set's; user: the gate */
void gate_shut(struct gate *gate, bool is_shut);
/* Returns when so many completions are held; false: not within two minutes. */
bool gate_await(struct gate *gate, uint64_t count);

#endif

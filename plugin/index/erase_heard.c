/* Which erasures were heard of, and whether they cover a request. Contract: erase.h. */
#include "plugin/connector.h"
#include "plugin/index/erase.h"

#include <string.h>

void sc_plugin_erase_init(spec_connector *conn)
{
    pthread_mutex_init(&conn->erase.lock, NULL);
    pthread_mutex_init(&conn->erase.ring_lock, NULL);
}

void sc_plugin_erase_done(spec_connector *conn)
{
    pthread_mutex_destroy(&conn->erase.lock);
    pthread_mutex_destroy(&conn->erase.ring_lock);
}

struct sc_store_salt sc_plugin_salt(const spec_connector *conn, const struct spec_bytes *salt)
{
    const struct sc_chain_secret *secret = sc_radix_secret(conn->radix);
    struct sc_store_salt stored = {.state = SC_STORE_SALT_NONE};
    if (secret == NULL)
        stored.state = SC_STORE_SALT_UNKNOWN;
    if (secret == NULL || salt->byte_count == 0)
        return stored;
    stored.state = SC_STORE_SALT_KNOWN;
    sc_hash_to_bytes(sc_chain_salt(secret, salt->data, salt->byte_count), stored.digest);
    return stored;
}

/* ---- What is covered --------------------------------------------------------------------------
 */

bool sc_plugin_erase_covers(spec_connector *conn, const struct sc_plugin_request *request)
{
    struct sc_plugin_erase *erase = &conn->erase;
    uint64_t heard = atomic_load(&erase->heard);
    if (request->erasures == heard)
        return false;
    bool covers = heard - request->erasures > SC_PLUGIN_ERASED;
    pthread_mutex_lock(&erase->ring_lock);
    for (uint64_t n = request->erasures; n < heard && !covers; n++)
        covers = sc_store_erasure_covers(&erase->ring[n % SC_PLUGIN_ERASED], &request->salt);
    pthread_mutex_unlock(&erase->ring_lock);
    return covers;
}

void sc_plugin_erase_note(spec_connector *conn, const struct sc_store_erasure *what)
{
    struct sc_plugin_erase *erase = &conn->erase;
    pthread_mutex_lock(&erase->ring_lock);
    erase->ring[atomic_load(&erase->heard) % SC_PLUGIN_ERASED] = *what;
    atomic_fetch_add(&erase->heard, 1);
    pthread_mutex_unlock(&erase->ring_lock);
}

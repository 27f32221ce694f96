/* erase_heard: erasures known to this process. Contract: erase_heard.h. */
#include "plugin/args/erase_heard.h"
#include "plugin/connector.h"

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

bool sc_plugin_erase_covers(spec_connector *conn, const struct sc_plugin_request *request)
{
    struct sc_plugin_erasures *erasures = &conn->erasures;
    uint64_t heard = atomic_load(&erasures->heard);
    if (request->erasures == heard)
        return false;
    bool covers = heard - request->erasures > SC_PLUGIN_ERASED;
    pthread_mutex_lock(&erasures->ring_lock);
    for (uint64_t n = request->erasures; n < heard && !covers; n++)
        covers = sc_store_erasure_covers(&erasures->ring[n % SC_PLUGIN_ERASED], &request->salt);
    pthread_mutex_unlock(&erasures->ring_lock);
    return covers;
}

void sc_plugin_erase_note(spec_connector *conn, const struct sc_store_erasure *what)
{
    struct sc_plugin_erasures *erasures = &conn->erasures;
    pthread_mutex_lock(&erasures->ring_lock);
    erasures->ring[atomic_load(&erasures->heard) % SC_PLUGIN_ERASED] = *what;
    atomic_fetch_add(&erasures->heard, 1);
    pthread_mutex_unlock(&erasures->ring_lock);
}

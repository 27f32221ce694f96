/* limits: every bound of queues, loops and names, with its reason. */
#ifndef SC_BASE_LIMITS_H
#define SC_BASE_LIMITS_H

#define SC_LIMIT_LOG_LINE_BYTES  240  /* one terminal line and a half */
#define SC_LIMIT_LOG_LINES       128  /* waiting for the host's next call; more are dropped */
#define SC_LIMIT_LOG_EVERY_NS    1000000000ull /* between lines with the same limit */
#define SC_LIMIT_PATH_BYTES      4096 /* PATH_MAX */
#define SC_LIMIT_PATH_NAME_BYTES 256  /* part of PATH_MAX kept for names below the store's path */
#define SC_LIMIT_CONFIG_BYTES    (1u << 20)
#define SC_LIMIT_THREADS         64
#define SC_LIMIT_LAYERS          1024 /* the deepest public model has 126 */
#define SC_LIMIT_STATE_BYTES     (256u << 20) /* per layer */
#define SC_LIMIT_KV_HEADS        1024
#define SC_LIMIT_HEAD_SIZE       4096
#define SC_LIMIT_REQUESTS        65536
#define SC_LIMIT_REQUEST_TOKENS  (1u << 24)
#define SC_LIMIT_BATCH           256 /* requests or items in one call */
#define SC_LIMIT_CHUNK_TOKENS    256u
#define SC_LIMIT_PROBE_HEADS     16 /* KV heads with probe keys */
#define SC_LIMIT_EXTRA_KEYS      4096
#define SC_LIMIT_KEY_BYTES       65536 /* per salt, LoRA id or extra key */
#define SC_LIMIT_TICKETS         65536 /* stores whose result was not asked for */
#define SC_LIMIT_RANKS           4096

#endif

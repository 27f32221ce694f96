/* frozen: macros that assert one fact of a frozen layout when the file is compiled (C11, C++17).
 *
 *   AT(structure, member, offset, bytes)    LP64: x86-64, aarch64 */
#ifndef ABI_FROZEN_H
#define ABI_FROZEN_H

#ifdef __cplusplus
#define FROZEN(condition) static_assert(condition, #condition)
#else
#define FROZEN(condition) _Static_assert(condition, #condition)
#endif

#define SIZE(object, bytes) FROZEN(sizeof(struct object) == (bytes))
#define VALUE(name, value)  FROZEN((name) == (value))
#define AT(object, member, offset, bytes)                                                          \
    FROZEN(offsetof(struct object, member) == (offset) &&                                          \
           sizeof(((struct object *)0)->member) == (bytes))

#endif

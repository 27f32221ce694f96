/* Macros of the frozen layouts: each asserts one fact when the file that has it is compiled.
 *
 *   AT(structure, member, offset, bytes)    LP64: x86-64, aarch64
 *
 * Holds: works as C11 and as C++17.  Does not: make code.
 * Threads: none.  Tests: frozen.c and frozen_objects.c are tests. */
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

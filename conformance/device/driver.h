/* The CUDA driver, as a host has it: found by dlopen, its calls in the table that gpu/driver.h
 * declares. The judge's own: of gpu/ it uses declarations alone.
 *
 * Holds: what is not there is an answer, with a reason; a process loads it once. In a child that
 * was forked after that there is none: drivers do not live through fork.
 * Does not: look at devices beyond their count; keep a context.
 * Threads: any.
 * Tests: conformance/test_device.c, tests/cuda (conformance_device). */
#ifndef CONFORMANCE_DEVICE_DRIVER_H
#define CONFORMANCE_DEVICE_DRIVER_H

#include <stdbool.h>

#include "gpu/driver.h"

/* NULL: there is no driver, no device, or this process is such a child; *ret_why says so. */
const struct sc_cu *conf_driver(const char **ret_why);
/* This process is a child that was forked after somebody had asked for the driver. */
bool conf_driver_is_forked(void);
/* A call of the driver's that is not in the table, or what else its library exports; NULL: none. */
void *conf_driver_call(const char *name, int version);
void *conf_driver_symbol(const char *name);

#endif

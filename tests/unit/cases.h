/* The headers of a program with cmocka cases, in the order that cmocka needs. */
#ifndef SC_TESTS_UNIT_CASES_H
#define SC_TESTS_UNIT_CASES_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#endif

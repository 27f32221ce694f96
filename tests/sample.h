/* The samples of conformance/sample.h. Tests outside the suite include them by this file, because
 * they may include nothing else of the suite (tools/tidy.py). Threads: any. */
#ifndef SC_TESTS_SAMPLE_H
#define SC_TESTS_SAMPLE_H

#include "conformance/sample.h"

#endif

/* Told to callgrind from within: count from here, stop and write down what was counted. Ordinary calls where nothing listens. */
#include <valgrind/callgrind.h>

int listening(void) { return RUNNING_ON_VALGRIND != 0; }

void begin(void) {
    CALLGRIND_ZERO_STATS;
    CALLGRIND_START_INSTRUMENTATION;
}

void end(const char *name) {
    CALLGRIND_STOP_INSTRUMENTATION;
    CALLGRIND_DUMP_STATS_AT(name);
    CALLGRIND_ZERO_STATS;
}

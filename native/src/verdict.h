/* The result of the native pass for a line, a payload or a value. */
#ifndef HOURMARK_VERDICT_H
#define HOURMARK_VERDICT_H

enum verdict {
    TAKEN,     /* processed, with exactly the result of the Python code */
    MISMATCH,  /* the Python code certainly raises Mismatch here; the next branch of a union may accept the value */
    UNSURE,    /* the Python code must decide */
    NO_MEMORY,
};

#endif

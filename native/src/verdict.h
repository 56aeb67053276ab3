/* What the native pass says of a line, a payload, or a value. */
#ifndef HOURMARK_VERDICT_H
#define HOURMARK_VERDICT_H

enum verdict {
    TAKEN,     /* done, and exactly what the Python path does */
    MISMATCH,  /* the Python path raises Mismatch here, for certain: the next branch of a union may take it */
    UNSURE,    /* the Python path is to say what it is */
    NO_MEMORY,
};

#endif

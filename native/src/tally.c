/* The callback of an append's delivery reports: counts them, and tells of errors and of the last. */
#include <stdlib.h>

#include "glue.h"

static const char TALLY[] = "hourmark.tally";

struct tally {
    int64_t left;
    PyObject *tell;
};

static void free_tally(PyObject *capsule)
{
    struct tally *tally = PyCapsule_GetPointer(capsule, TALLY);
    Py_DecRef(tally->tell);
    free(tally);
}

/* report(error or None, message) */
static PyObject *report(PyObject *capsule, PyObject *const *args, Py_ssize_t count)
{
    struct tally *tally = PyCapsule_GetPointer(capsule, TALLY);
    if (tally == NULL)
        return NULL;
    if (count != 2)
        return glue_wrong("report(error, message)");
    tally->left--;
    if (args[0] != Py_None || tally->left == 0)
        return PyObject_CallFunctionObjArgs(tally->tell, args[0], NULL);
    Py_IncRef(Py_None);
    return Py_None;
}

static PyMethodDef REPORT = {"report", (PyCFunction)(void (*)(void))report, METH_FASTCALL, NULL};

PyObject *native_tally(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    int64_t left;
    (void)self;
    if (count != 2)
        return glue_wrong("tally(reports, tell)");
    if (!glue_number(args[0], 1, INT64_MAX, &left))
        return NULL;
    struct tally *tally = malloc(sizeof *tally);
    if (tally == NULL)
        return PyErr_NoMemory();
    Py_IncRef(args[1]);
    *tally = (struct tally){left, args[1]};
    PyObject *capsule = PyCapsule_New(tally, TALLY, free_tally);
    if (capsule == NULL) {
        Py_DecRef(args[1]);
        free(tally);
        return NULL;
    }
    PyObject *function = PyCFunction_NewEx(&REPORT, capsule, NULL);
    Py_DecRef(capsule);
    return function;
}

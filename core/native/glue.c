#include "glue.h"

int glue_bytes(PyObject *object, struct span *found)
{
    char *bytes;
    Py_ssize_t size;
    if (PyBytes_AsStringAndSize(object, &bytes, &size) < 0)
        return 0;
    *found = (struct span){(const uint8_t *)bytes, (size_t)size};
    return 1;
}

int glue_number(PyObject *object, int64_t low, int64_t high, int64_t *found)
{
    *found = PyLong_AsLongLong(object);
    if (*found == -1 && PyErr_Occurred() != NULL)
        return 0;
    if (*found < low || *found > high) {
        glue_wrong("a number is out of its range");
        return 0;
    }
    return 1;
}

PyObject *glue_new_bytes(const void *bytes, size_t size)
{
    return PyBytes_FromStringAndSize(size == 0 ? "" : (const char *)bytes, (Py_ssize_t)size);
}

PyObject *glue_tuple(Py_ssize_t count, PyObject **items)
{
    PyObject *made = PyTuple_New(count);
    int whole = made != NULL;
    for (Py_ssize_t i = 0; i < count; i++) {
        whole = whole && items[i] != NULL;
        if (made != NULL && items[i] != NULL)
            (void)PyTuple_SetItem(made, i, items[i]);
        else if (items[i] != NULL)
            Py_DecRef(items[i]);
    }
    if (!whole && made != NULL) {
        Py_DecRef(made);
        made = NULL;
    }
    return made;
}

PyObject *glue_wrong(const char *what)
{
    PyErr_SetString(PyExc_ValueError, what);
    return NULL;
}

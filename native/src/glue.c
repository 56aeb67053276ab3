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

PyObject *glue_room(size_t size, uint8_t **bytes)
{
    char *found;
    Py_ssize_t known;
    PyObject *object = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)size);
    if (object == NULL || PyBytes_AsStringAndSize(object, &found, &known) < 0)
        return NULL;
    *bytes = (uint8_t *)found;
    return object;
}

void glue_release(int count, Py_buffer *views)
{
    for (int i = 0; i < count; i++)
        PyBuffer_Release(&views[i]);
}

int glue_buffers(int count, PyObject *const *objects, Py_buffer *views, struct span *found)
{
    for (int i = 0; i < count; i++) {
        if (PyObject_GetBuffer(objects[i], &views[i], PyBUF_SIMPLE) < 0) {
            glue_release(i, views);
            return 0;
        }
        found[i] = (struct span){views[i].buf, (size_t)views[i].len};
    }
    return 1;
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

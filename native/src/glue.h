/* Conversion of arguments and results between C and Python. Each function sets a Python error on failure. */
#ifndef HOURMARK_GLUE_H
#define HOURMARK_GLUE_H

#include "python_abi.h"
#include "syslog.h"

/* The content of a Python bytes object, valid as long as the object exists. */
int glue_bytes(PyObject *object, struct span *found);
int glue_number(PyObject *object, int64_t low, int64_t high, int64_t *found);
PyObject *glue_new_bytes(const void *bytes, size_t size);
/* Create a bytes object of this size, to be filled before Python code can access it. */
PyObject *glue_room(size_t size, uint8_t **bytes);
/* Acquire contiguous buffers of objects until `glue_release`. Returns 0 with a Python error and without any buffer. */
int glue_buffers(int count, PyObject *const *objects, Py_buffer *views, struct span *found);
void glue_release(int count, Py_buffer *views);
/* Create a tuple of these objects, whose references it takes. Returns NULL if one of them is NULL. */
PyObject *glue_tuple(Py_ssize_t count, PyObject **items);
PyObject *glue_wrong(const char *what); /* sets a ValueError */

/* The functions of the module, by file. */
PyObject *native_program(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *native_source(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *native_range(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *native_read(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *native_promises(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *native_value_hashes(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *native_check_datums(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *native_tally(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *native_blake2b(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *native_kafka(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *native_sender(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *native_send(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *native_news(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *native_reader(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *native_assign(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *native_leave(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *native_high(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *native_consume(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *native_close(PyObject *, PyObject *const *, Py_ssize_t);

#endif

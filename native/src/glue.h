/* Between C and Python: arguments taken apart, results put together. Each function of it leaves a Python error where it fails. */
#ifndef HOURMARK_GLUE_H
#define HOURMARK_GLUE_H

#include "python_abi.h"
#include "syslog.h"

/* What a Python bytes object holds, for as long as it lives. */
int glue_bytes(PyObject *object, struct span *found);
int glue_number(PyObject *object, int64_t low, int64_t high, int64_t *found);
PyObject *glue_new_bytes(const void *bytes, size_t size);
/* A bytes object of this size, to be filled before Python sees it. */
PyObject *glue_room(size_t size, uint8_t **bytes);
/* What objects with the buffer protocol hold (contiguous), until `glue_release`; 0 with a Python error, and none is held. */
int glue_buffers(int count, PyObject *const *objects, Py_buffer *views, struct span *found);
void glue_release(int count, Py_buffer *views);
/* A tuple of these, whose references it takes; NULL if one of them is NULL. */
PyObject *glue_tuple(Py_ssize_t count, PyObject **items);
PyObject *glue_wrong(const char *what); /* a ValueError */

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
